//! Logs, metrics and traces: set up once, and the names and help of the metrics.

mod exposition;
mod names;
mod process;
mod spool;
mod traces;

pub use exposition::Exposition;
pub use names::*;
pub use traces::{OtlpError, OtlpOptions, Traces, answered, entered, past_span, told_by, traceparent};

use clap::ValueEnum;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Buckets of durations that are over in moments, in seconds.
const SECONDS: [f64; 12] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0];

/// Buckets of attempts and their stages, in seconds: some take milliseconds, some hours.
const LONG_SECONDS: [f64; 14] =
    [0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1_800.0, 3_600.0, 10_800.0, 28_800.0];

/// Sends logs to standard error: what `RUST_LOG` says, or `info`. Spans go to `traces`, where they are asked for.
pub fn start_logs(format: LogFormat, traces: Option<&Traces>) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,sqlx=warn"));
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let lines = tracing_subscriber::fmt::layer().with_ansi(colours).with_writer(std::io::stderr);
    // A line that cannot be written, as on a full disk, is lost; to complain of it there would be a panic.
    let lines = lines.log_internal_errors(false);
    let lines = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let started = tracing_subscriber::registry().with(lines.with_filter(filter)).with(traces.map(Traces::layer));
    // A second start, in tests, changes nothing.
    let _ = started.try_init();
}

/// The metrics of this process.
#[derive(Clone)]
pub struct Metrics {
    recorded: PrometheusHandle,
    observed: Arc<Mutex<String>>,
}

impl Metrics {
    /// Those that a recorder of its own has, for tests.
    pub fn of(recorded: PrometheusHandle) -> Self {
        Self { recorded, observed: Arc::default() }
    }

    /// Takes the place of what was observed before: what is not there any more, or is not known, is not shown.
    pub fn observe(&self, found: Exposition) {
        *self.observed.lock().unwrap_or_else(PoisonError::into_inner) = found.into_text();
        // What histograms have taken in since is put into their buckets; otherwise it would pile up where nobody asks.
        self.recorded.run_upkeep();
    }

    /// All of them, in Prometheus's text format: what was counted, what was observed last, and what the kernel says now.
    pub fn render(&self) -> String {
        let observed = self.observed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        [self.recorded.render(), observed, process::now().into_text()].concat()
    }
}

/// The metrics of this process, recorded from the first call on.
pub fn metrics() -> Metrics {
    static METRICS: OnceLock<Metrics> = OnceLock::new();
    METRICS
        .get_or_init(|| {
            let recorder = builder().build_recorder();
            let handle = recorder.handle();
            // Where another recorder is installed, the handle shows nothing, and nothing breaks.
            let _ = metrics::set_global_recorder(recorder);
            names::describe();
            Metrics::of(handle)
        })
        .clone()
}

fn builder() -> PrometheusBuilder {
    let long = [METRIC_ATTEMPT_SECONDS, METRIC_STAGE_SECONDS];
    let set = long.iter().try_fold(PrometheusBuilder::new(), |builder, name| {
        builder.set_buckets_for_metric(Matcher::Full((*name).to_owned()), &LONG_SECONDS)
    });
    let set = set.and_then(|builder| builder.set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS));
    set.unwrap_or_else(|_| PrometheusBuilder::new())
}

/// Counts one more of a thing that goes on, until it is dropped.
#[derive(Debug)]
pub struct InUse(metrics::Gauge);

impl InUse {
    /// One more of what the gauge `name` counts.
    pub fn of(name: &'static str) -> Self {
        let gauge = metrics::gauge!(name);
        gauge.increment(1.0);
        Self(gauge)
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}
