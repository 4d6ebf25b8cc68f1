//! Logs and metrics: set up once, and the names and help of the metrics.

use clap::ValueEnum;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use std::io::IsTerminal;
use std::sync::OnceLock;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Runs in a state, by `state`.
pub const METRIC_RUNS: &str = "refrain_runs";

/// How long the oldest due run has been waiting, in seconds.
pub const METRIC_OLDEST_DUE_SECONDS: &str = "refrain_oldest_due_run_seconds";

/// For how long a table's publish lock has been held, in seconds, by `pipeline`; 0 where it is free.
pub const METRIC_PUBLISH_LOCK_SECONDS: &str = "refrain_publish_lock_held_seconds";

/// Staging folders that the sweeper removed.
pub const METRIC_SWEPT: &str = "refrain_staging_folders_swept_total";

/// Runs that ended long ago and are not kept any more.
pub const METRIC_PRUNED: &str = "refrain_runs_pruned_total";

/// Buckets of durations, in seconds.
const SECONDS: [f64; 12] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0];

/// Sends logs to standard error: what `RUST_LOG` says, or `info`.
pub fn start_logs(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,sqlx=warn"));
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr);
    // A line that cannot be written, as on a full disk, is lost; to complain of it there would be a panic.
    let lines = lines.log_internal_errors(false);
    // A second start, in tests, changes nothing.
    let _ = match format {
        LogFormat::Text => lines.finish().try_init(),
        LogFormat::Json => lines.json().flatten_event(true).finish().try_init(),
    };
}

/// The metrics of this process, recorded from the first call on.
pub fn metrics() -> PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    HANDLE
        .get_or_init(|| {
            let builder = PrometheusBuilder::new();
            let builder = builder
                .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)
                .unwrap_or_else(|_| PrometheusBuilder::new());
            let recorder = builder.build_recorder();
            let handle = recorder.handle();
            // Where another recorder is installed, the handle shows nothing, and nothing breaks.
            let _ = metrics::set_global_recorder(recorder);
            describe();
            handle
        })
        .clone()
}

fn describe() {
    metrics::describe_gauge!(METRIC_RUNS, "Runs by state: queued, running, committing");
    metrics::describe_gauge!(METRIC_OLDEST_DUE_SECONDS, "Seconds that the oldest due run has been waiting");
    metrics::describe_gauge!(
        METRIC_PUBLISH_LOCK_SECONDS,
        "Seconds that a table's publish lock has been held, by pipeline"
    );
    metrics::describe_counter!(METRIC_PRUNED, "Ended runs forgotten by this server (--keep-runs-days)");
    metrics::describe_counter!(METRIC_SWEPT, "Staging folders removed by the sweeper");
}
