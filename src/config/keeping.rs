//! How long what is over is kept.

use clap::Args;
use std::time::Duration;

/// How long what is over is kept.
#[derive(Debug, Clone, Default, Args)]
pub struct KeepSettings {
    /// Forget runs, with their keys, so many days after they ended, and the versions of tables that were superseded before then
    /// [default: never]. What the tables are now, and the runs that it is from, stays.
    #[arg(long, env = "REFRAIN_KEEP_RUNS_DAYS", value_name = "DAYS")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub keep_runs_days: Option<u32>,
}

impl KeepSettings {
    /// How long runs are kept after their end; none for ever.
    pub fn runs(&self) -> Option<Duration> {
        self.keep_runs_days.map(|days| Duration::from_secs(u64::from(days) * 24 * 60 * 60))
    }
}
