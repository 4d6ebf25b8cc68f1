//! What metrics and traces say of attempts.

use crate::engine::Report;
use crate::run::{Decided, Outcome, Progress, Stage};
use crate::telemetry::{
    METRIC_ATTEMPT_SECONDS, METRIC_BYTES_WRITTEN, METRIC_LEASES_LOST, METRIC_PARTITIONS, METRIC_REFUSED_STEPS,
    METRIC_ROWS, METRIC_ROWS_WRITTEN, METRIC_SOURCE_BYTES, METRIC_STAGE_SECONDS, past_span,
};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::watch;
use tracing::Instrument;

/// The stages of an attempt whose time is taken. Those from listing to staging are the engine's, and parts of computing; where
/// slices follow one another they come again and again.
pub const STAGES: [&str; 9] =
    ["claim", "compute", "listing", "scanning", "staging", "decide", "lock", "publish", "finish"];

/// What a worker may be doing when it finds its lease lost.
pub const DOING: [&str; 7] = [
    "working",
    "deciding",
    "publishing",
    "finishing",
    "ending the attempt",
    "handing the lease back",
    "giving the run back",
];

/// What becomes of rows.
pub const ROWS: [&str; 4] = ["in_scope", "out_of_scope", "filtered", "rejected"];

/// A renewal was refused to an attempt that has not ended.
pub(super) fn renewal_refused() {
    metrics::counter!(METRIC_REFUSED_STEPS, "step" => "renew").increment(1);
}

/// Takes the time of a stage, and runs it in a span of its own.
macro_rules! timed {
    ($stage:literal, $step:expr) => {
        $crate::worker::metrics::in_stage($stage, tracing::info_span!($stage), $step)
    };
}
pub(super) use timed;

pub(super) async fn in_stage<T>(stage: &'static str, span: tracing::Span, step: impl Future<Output = T>) -> T {
    let since = Instant::now();
    let done = step.instrument(span).await;
    took(stage, since.elapsed());
    done
}

fn took(stage: &'static str, time: Duration) {
    metrics::histogram!(METRIC_STAGE_SECONDS, "stage" => stage).record(time.as_secs_f64());
}

/// A stage that was over when it was known what it was for.
pub(super) fn was(stage: &'static str, since: Instant) {
    let time = since.elapsed();
    took(stage, time);
    past_span(stage, SystemTime::now() - time);
}

/// Takes the times of the engine's stages, as it tells them, until it is done.
pub(super) async fn following<T>(mut told: watch::Receiver<Progress>, computing: impl Future<Output = T>) -> T {
    tokio::pin!(computing);
    let mut at: Option<(&'static str, Instant)> = None;
    loop {
        tokio::select! {
            biased;
            done = &mut computing => {
                at.into_iter().for_each(|(stage, since)| was(stage, since));
                return done;
            }
            Ok(()) = told.changed() => {
                let now = stage_of(told.borrow_and_update().stage);
                if now != at.map(|(stage, _)| stage) {
                    at.into_iter().for_each(|(stage, since)| was(stage, since));
                    at = now.map(|stage| (stage, Instant::now()));
                }
            }
        }
    }
}

fn stage_of(stage: Stage) -> Option<&'static str> {
    match stage {
        Stage::Listing => Some("listing"),
        Stage::Scanning => Some("scanning"),
        Stage::Staging => Some("staging"),
        Stage::Claimed | Stage::Publishing | Stage::Done => None,
    }
}

pub(super) fn attempt_took(pipeline: &str, time: Duration) {
    metrics::histogram!(METRIC_ATTEMPT_SECONDS, "pipeline" => pipeline.to_owned()).record(time.as_secs_f64());
}

/// What an attempt has computed.
pub(super) fn computed(pipeline: &str, report: &Report) {
    let rows = &report.rows;
    let counts = ROWS.into_iter().zip([rows.in_scope, rows.out_of_scope, rows.filtered, rows.rejected]);
    for (kind, count) in counts {
        metrics::counter!(METRIC_ROWS, "pipeline" => pipeline.to_owned(), "kind" => kind).increment(count);
    }
    let bytes = report.sources.iter().map(|file| file.bytes).sum();
    metrics::counter!(METRIC_SOURCE_BYTES, "pipeline" => pipeline.to_owned()).increment(bytes);
}

/// What a run has made of its table.
pub(super) fn published(pipeline: &str, partitions: &[Decided]) {
    for partition in partitions {
        let outcome = partition.outcome;
        metrics::counter!(METRIC_PARTITIONS, "pipeline" => pipeline.to_owned(), "outcome" => outcome.as_str())
            .increment(1);
        if let (Outcome::Created | Outcome::Replaced, Some(content)) = (outcome, &partition.content) {
            metrics::counter!(METRIC_ROWS_WRITTEN, "pipeline" => pipeline.to_owned()).increment(content.rows);
            metrics::counter!(METRIC_BYTES_WRITTEN, "pipeline" => pipeline.to_owned()).increment(content.bytes);
        }
    }
}

/// One of a table's, by its name.
pub(super) fn counted(metric: &'static str, pipeline: &str) {
    metrics::counter!(metric, "pipeline" => pipeline.to_owned()).increment(1);
}

pub(super) fn lease_lost(doing: &'static str) {
    metrics::counter!(METRIC_LEASES_LOST, "doing" => doing).increment(1);
}
