//! Metrics as they are at a moment, in Prometheus's text format: what is looked up rather than counted.

use super::names::{Kind, described};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Samples, by metric and in the order in which they were told.
#[derive(Debug, Default)]
pub struct Exposition(BTreeMap<&'static str, String>);

impl Exposition {
    /// One sample. A metric that is not in the list of names is left out.
    pub fn sample(&mut self, name: &'static str, labels: &[(&str, &str)], value: f64) {
        let Some((kind, help)) = described(name).filter(|(kind, _)| *kind != Kind::Histogram) else { return };
        let text =
            self.0.entry(name).or_insert_with(|| format!("# HELP {name} {help}\n# TYPE {name} {}\n", kind.as_str()));
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        // Writing into a text does not fail.
        let _ = match labels.is_empty() {
            true => writeln!(text, "{name} {value}"),
            false => writeln!(text, "{name}{{{}}} {value}", labels.join(",")),
        };
    }

    /// The whole text.
    pub fn into_text(self) -> String {
        self.0.into_values().map(|text| text + "\n").collect()
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::super::{METRIC_BUILD_INFO, METRIC_CHECK_OK};
    use super::*;

    #[test]
    fn samples_of_a_metric_stand_together_under_its_help() {
        let mut found = Exposition::default();
        found.sample(METRIC_CHECK_OK, &[("check", "a")], 1.0);
        found.sample(METRIC_BUILD_INFO, &[], 1.0);
        found.sample(METRIC_CHECK_OK, &[("check", "b\"\\\n")], 0.5);
        found.sample("refrain_nothing", &[], 1.0);
        let text = found.into_text();
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("# HELP")).collect();
        assert_eq!(
            lines,
            [
                "# TYPE refrain_build_info gauge",
                "refrain_build_info 1",
                "",
                "# TYPE refrain_check_ok gauge",
                "refrain_check_ok{check=\"a\"} 1",
                "refrain_check_ok{check=\"b\\\"\\\\\\n\"} 0.5",
                "",
            ]
        );
    }
}
