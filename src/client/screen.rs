//! Where people look: colours only on a terminal, and how far a run is.

use super::show::{progress, stage};
use super::{has_ended, state};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;
use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

/// Whether standard output takes colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Paint {
    pub(super) colours: bool,
    /// Whether somebody looks at it as it comes.
    pub(super) terminal: bool,
}

impl Paint {
    /// No colours, and nobody looks.
    pub(super) const PLAIN: Self = Self { colours: false, terminal: false };

    /// That of standard output: colours on a terminal, unless `NO_COLOR` or a dumb terminal says otherwise.
    pub(super) fn stdout() -> Self {
        if !std::io::stdout().is_terminal() {
            return Self::PLAIN;
        }
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { colours: !refused && !dumb, terminal: true }
    }

    /// `shown` in the colour that the word has; most have none.
    pub(super) fn word(self, word: &str, shown: String) -> String {
        let colour = match word {
            _ if !self.colours => return shown,
            "succeeded" => 32,
            "failed" => 31,
            "cancelled" => 33,
            "running" | "committing" => 36,
            _ => return shown,
        };
        format!("\u{1b}[{colour}m{shown}\u{1b}[0m")
    }
}

/// Tells something beside the result, on standard error.
pub(super) fn note(text: &str) {
    // Nothing is left to tell it to where standard error is closed.
    let _ = writeln!(std::io::stderr(), "refrain: {text}");
}

/// Shows how far a run is, on standard error: a bar on a terminal, else a line for each step.
pub(super) struct Watch {
    bar: ProgressBar,
    step: String,
}

impl Watch {
    pub(super) fn start() -> Self {
        let bar = ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{spinner} [{bar:30}] {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar, step: String::new() }
    }

    /// Shows the run as it is now.
    pub(super) fn see(&mut self, run: &Value) {
        if has_ended(run) {
            return;
        }
        let line = progress(run);
        let count = |name: &str| run["progress"][name].as_u64().unwrap_or(0);
        let (done, of) = match (state(run), run["progress"]["stage"].as_str()) {
            ("committing", _) => (count("partitions_published"), count("partitions")),
            (_, Some("staging")) if count("bytes_read") >= count("bytes") => {
                (count("partitions_staged"), count("partitions"))
            }
            _ => (count("bytes_read"), count("bytes")),
        };
        self.bar.set_length(of.max(done).max(1));
        self.bar.set_position(done);
        // Rows alone are no step: nobody wants a line for each second of a night.
        let step = format!("{} {} {}", stage(run), count("partitions_staged"), run["error"]["detail"]);
        if self.bar.is_hidden() && step != self.step {
            note(&line);
        }
        self.bar.set_message(line);
        self.step = step;
    }

    /// Takes the bar away.
    pub(super) fn end(self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_have_colours_where_colours_are_taken() {
        let coloured = Paint { colours: true, terminal: true };
        assert_eq!(coloured.word("failed", "failed  ".to_owned()), "\u{1b}[31mfailed  \u{1b}[0m");
        assert_eq!(coloured.word("zone_hour", "zone_hour".to_owned()), "zone_hour");
        assert_eq!(Paint::PLAIN.word("failed", "failed".to_owned()), "failed");
    }
}
