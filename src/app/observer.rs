//! What metrics show without being counted: looked up every few seconds, on every server, so that all agree after restarts.

use super::health::{Health, held_for};
use crate::engine::DEATHS;
use crate::http::Readiness;
use crate::run::{AttemptOutcome, FailureClass, Outcome, State};
use crate::store::{FENCED_STEPS, QueueDepth};
use crate::telemetry::*;
use crate::worker::Condition;
use crate::worker::metrics::{DOING, ROWS, STAGES};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How often all of it is looked up.
const EVERY: Duration = Duration::from_secs(5);

/// Looks until `shutdown`.
pub(super) async fn run(health: Health, readiness: Readiness, metrics: Metrics, shutdown: CancellationToken) {
    let mut tables = health.tables.clone();
    while !shutdown.is_cancelled() {
        counters_from_zero(&tables.borrow_and_update());
        let mut found = Exposition::default();
        found.sample(METRIC_BUILD_INFO, &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
        of_checks(&mut found, &readiness).await;
        of_workers(&mut found, &health);
        of_locks(&mut found, &health).await;
        if let Ok(depth) = health.store.queue_depth().await {
            of_queue(&mut found, &depth, &health);
        }
        metrics.observe(found);
        wait(&mut tables, &shutdown).await;
    }
}

async fn wait(tables: &mut watch::Receiver<std::sync::Arc<BTreeSet<String>>>, shutdown: &CancellationToken) {
    tokio::select! {
        () = tokio::time::sleep(EVERY) => {}
        Ok(()) = tables.changed() => {}
        () = shutdown.cancelled() => {}
    }
}

async fn of_checks(found: &mut Exposition, readiness: &Readiness) {
    for check in readiness().await {
        found.sample(METRIC_CHECK_OK, &[("check", &check.name)], if check.ok { 1.0 } else { 0.0 });
    }
}

fn of_workers(found: &mut Exposition, health: &Health) {
    let (mut idle, mut busy, mut stuck) = (0, 0, 0);
    for condition in health.conditions() {
        match condition {
            Condition::Idle => idle += 1,
            Condition::Busy => busy += 1,
            Condition::Stuck(_) => stuck += 1,
        }
    }
    for (state, count) in [("idle", idle), ("busy", busy), ("stuck", stuck)] {
        found.sample(METRIC_WORKERS, &[("state", state)], f64::from(count));
    }
}

async fn of_locks(found: &mut Exposition, health: &Health) {
    let Some(warehouse) = health.warehouse.clone() else { return };
    let tables = std::sync::Arc::clone(&health.tables.borrow());
    let looked = tokio::task::spawn_blocking(move || {
        let held = |name: &String| warehouse.lock_holder(name).map_or(Duration::ZERO, |holder| held_for(&holder));
        tables.iter().map(|name| (name.clone(), held(name))).collect::<Vec<_>>()
    });
    for (name, held) in looked.await.unwrap_or_default() {
        found.sample(METRIC_PUBLISH_LOCK_SECONDS, &[("pipeline", &name)], held.as_secs_f64());
    }
}

/// Pipelines that are gone are left out: nobody waits for their next success.
fn of_queue(found: &mut Exposition, depth: &QueueDepth, health: &Health) {
    let queued = depth.queued.saturating_sub(depth.scheduled);
    let states = [
        ("queued", queued),
        ("scheduled", depth.scheduled),
        ("running", depth.running),
        ("committing", depth.committing),
    ];
    for (state, runs) in states {
        found.sample(METRIC_RUNS, &[("state", state)], runs as f64);
    }
    let seconds = |time: Option<Duration>| time.unwrap_or_default().as_secs_f64();
    found.sample(METRIC_OLDEST_DUE_SECONDS, &[], seconds(depth.oldest_due));
    let pipelines = health.pipelines.borrow();
    for one in depth.pipelines.iter().filter(|one| pipelines.contains_key(&one.pipeline)) {
        let labels = [("pipeline", one.pipeline.as_str())];
        found.sample(METRIC_DUE_RUNS, &labels, one.due as f64);
        found.sample(METRIC_PIPELINE_OLDEST_DUE_SECONDS, &labels, seconds(one.oldest_due));
        if let Some(time) = one.last_success {
            found.sample(METRIC_LAST_SUCCESS, &labels, time.timestamp_micros() as f64 / 1e6);
        }
    }
}

/// What has not happened yet is 0 and not absent, so that its first time is seen as an increase.
fn counters_from_zero(pipelines: &BTreeSet<String>) {
    use metrics::counter;
    for (outcome, class) in ended_attempts() {
        counter!(METRIC_ATTEMPTS, "outcome" => outcome, "class" => class).increment(0);
    }
    let classes = [FailureClass::Source, FailureClass::Service, FailureClass::Lost].map(FailureClass::as_str);
    for reason in classes.into_iter().chain(["compute", "released", "staging_lost", "request"]) {
        counter!(METRIC_RETRIES, "reason" => reason).increment(0);
    }
    DOING.iter().for_each(|doing| counter!(METRIC_LEASES_LOST, "doing" => *doing).increment(0));
    FENCED_STEPS.iter().for_each(|step| counter!(METRIC_REFUSED_STEPS, "step" => *step).increment(0));
    DEATHS.iter().for_each(|how| counter!(METRIC_ENGINE_DEATHS, "how" => *how).increment(0));
    let plain = [METRIC_PRUNED, METRIC_SWEPT, METRIC_SWEEP_FAILURES, METRIC_CONFLICTS, METRIC_DATABASE_FAILURES];
    plain.iter().for_each(|name| counter!(*name).increment(0));
    for stage in STAGES {
        let _ = metrics::histogram!(METRIC_STAGE_SECONDS, "stage" => stage);
    }
    for gauge in [METRIC_WAITERS, METRIC_EVENT_STREAMS, METRIC_READERS, METRIC_REQUESTS_IN_FLIGHT] {
        metrics::gauge!(gauge).increment(0.0);
    }
    pipelines.iter().for_each(|pipeline| of_pipeline_from_zero(pipeline));
}

fn of_pipeline_from_zero(pipeline: &str) {
    let named = |name: &'static str, label: &'static str, value: &'static str| {
        metrics::counter!(name, "pipeline" => pipeline.to_owned(), label => value).increment(0);
    };
    for state in State::ALL.into_iter().filter(|state| state.is_ended()) {
        named(METRIC_RUNS_ENDED, "outcome", state.as_str());
    }
    for outcome in [Outcome::Created, Outcome::Replaced, Outcome::Unchanged, Outcome::Cleared, Outcome::Empty] {
        named(METRIC_PARTITIONS, "outcome", outcome.as_str());
    }
    ROWS.into_iter().for_each(|kind| named(METRIC_ROWS, "kind", kind));
    let plain =
        [METRIC_SOURCE_BYTES, METRIC_ROWS_WRITTEN, METRIC_BYTES_WRITTEN, METRIC_PUBLISH_FAILURES, METRIC_STAGING_LOST];
    for name in plain {
        metrics::counter!(name, "pipeline" => pipeline.to_owned()).increment(0);
    }
    let _ = metrics::histogram!(METRIC_ATTEMPT_SECONDS, "pipeline" => pipeline.to_owned());
}

/// How attempts end, with the class of their failure.
fn ended_attempts() -> impl Iterator<Item = (&'static str, &'static str)> {
    use AttemptOutcome::{Cancelled, Failed, Lost, Released, StagingLost, Succeeded};
    let failed = [FailureClass::Source, FailureClass::Service, FailureClass::Compute];
    let failed = failed.into_iter().map(|class| (Failed.as_str(), class.as_str()));
    let others = [Succeeded, Cancelled, Lost, Released, StagingLost].map(|outcome| (outcome.as_str(), "none"));
    failed.chain(others).chain([(Lost.as_str(), FailureClass::Lost.as_str())])
}
