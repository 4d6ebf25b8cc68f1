//! What the demo shows: sentences, tables and a progress bar.

use super::orchestrator::{Amounts, Listing, Progress};
use crate::client::thousands;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::Write;
use std::time::Duration;

/// Standard output, with a bar where it is a terminal.
pub(super) struct Screen {
    out: Box<dyn Write + Send>,
    bar: ProgressBar,
    stage: String,
}

impl Screen {
    /// Writes to standard output.
    pub(super) fn stdout() -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stdout());
        Self { out: Box::new(std::io::stdout()), bar, stage: String::new() }
    }

    /// Writes to `out`, without a bar.
    #[cfg(test)]
    pub(super) fn plain(out: Box<dyn Write + Send>) -> Self {
        Self { out, bar: ProgressBar::hidden(), stage: String::new() }
    }

    /// Says something on a line of its own.
    pub(super) fn say(&mut self, text: &str) -> anyhow::Result<()> {
        let Self { out, bar, .. } = self;
        bar.suspend(|| writeln!(out, "{text}").and_then(|()| out.flush()))?;
        Ok(())
    }

    /// Starts the bar of a run.
    pub(super) fn run_starts(&mut self) {
        self.stage.clear();
        let style = ProgressStyle::with_template("  {bar:40} {human_pos} of {human_len} rows read, {msg}");
        self.bar.reset();
        self.bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        self.bar.enable_steady_tick(Duration::from_millis(200));
    }

    /// Shows how far a run is: on the bar, or else a line for each new stage.
    pub(super) fn run_goes_on(&mut self, state: &str, progress: Option<&Progress>) -> anyhow::Result<()> {
        let stage = progress.map_or(state, |p| p.stage.as_str());
        if let Some(p) = progress {
            self.bar.set_length(p.rows.max(p.rows_read));
            self.bar.set_position(p.rows_read);
        }
        self.bar.set_message(stage.to_owned());
        if self.bar.is_hidden() && self.stage != stage {
            self.say(&format!("  ... {stage}"))?;
        }
        stage.clone_into(&mut self.stage);
        Ok(())
    }

    /// Takes the bar away.
    pub(super) fn run_ends(&mut self) {
        self.bar.disable_steady_tick();
        self.bar.finish_and_clear();
    }

    /// Shows the totals of a table.
    pub(super) fn table(&mut self, listing: &Listing) -> anyhow::Result<()> {
        let head = ["pickup_month", "buckets", "trips", "revenue"].map(str::to_owned);
        let months = listing.partitions.iter().map(|p| (p.partition.as_str(), p.rows, &p.totals));
        let all = ("all", listing.total.rows, &listing.total.totals);
        let cells = months.chain([all]).map(|(name, rows, totals)| row(name, rows, totals));
        let cells: Vec<[String; 4]> = std::iter::once(head).chain(cells).collect();
        let widths: [usize; 4] =
            std::array::from_fn(|i| cells.iter().map(|c| c[i].chars().count()).max().unwrap_or_default());
        for (i, [name, numbers @ ..]) in cells.iter().enumerate() {
            let numbers = numbers.iter().zip(&widths[1..]).map(|(n, &w)| format!("   {n:>w$}")).collect::<String>();
            self.say(&format!("    {name:<w$}{numbers}", w = widths[0]))?;
            if i == 0 {
                self.say(&format!("    {}", "-".repeat(widths.iter().sum::<usize>() + 9)))?;
            }
        }
        Ok(())
    }
}

fn row(name: &str, rows: u64, totals: &Amounts) -> [String; 4] {
    let month = name.rsplit('=').next().unwrap_or(name);
    [month.to_owned(), thousands(&rows.to_string()), thousands(&totals.trips.to_string()), thousands(&totals.revenue)]
}
