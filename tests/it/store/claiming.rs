//! Which run is claimed, and when.

use super::bed::Bed;
use super::make::{
    LEASE, MAX_LOST_WORKERS, claim, claim_request, complete, decide, decided, definition, error, fail, failed, finish,
    nothing_to_claim, postpone, progress, release, request, run, state, submit, submitted, try_claim,
};
use refrain::run::{AttemptOutcome, FailureClass, Outcome, RunId, Stage, State};
use refrain::store::{Cancelled, Change, DecidedRun, Fenced, NewRun, Renewal, RunStore, StoreError};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

const A: &str = "month=2024-01";
const B: &str = "month=2024-02";
const C: &str = "month=2024-03";

pub(crate) async fn a_claimed_run_is_held(bed: &Bed) {
    nothing_to_claim(bed).await;
    let id = submitted(bed, "a", &[A]).await;
    let request = claim_request();
    let claimed = bed.store.claim(&request).await.unwrap().unwrap();
    assert_eq!((claimed.run.id, claimed.token, claimed.attempt), (id, request.token, 1));
    assert_eq!(claimed.definition, definition("trips", 1));
    assert!(claimed.decided.is_none());
    assert_eq!(claimed.run, run(bed, id).await);
    assert_eq!(claimed.run.state, State::Running);
    assert_eq!(claimed.run.progress.as_ref().unwrap().stage, Stage::Claimed);
    let attempt = &claimed.run.attempts[0];
    assert_eq!(claimed.run.started_at, Some(attempt.started_at));
    assert_eq!((attempt.number, attempt.worker.as_str(), attempt.outcome), (1, "worker-1", None));
    nothing_to_claim(bed).await;
}

pub(crate) async fn overlapping_runs_go_in_the_order_of_their_numbers(bed: &Bed) {
    let first = submitted(bed, "first", &[A, B]).await;
    let second = submitted(bed, "second", &[B, C]).await;
    let third = submitted(bed, "third", &[C]).await;
    let claimed = claim(bed, first).await;
    // The third overlaps nothing that is held, but it must not overtake the second.
    nothing_to_claim(bed).await;
    decide(bed, &claimed, vec![decided(A, Outcome::Created, 1), decided(B, Outcome::Created, 1)]).await;
    nothing_to_claim(bed).await;
    finish(bed, &claimed).await;
    complete(bed, second, vec![decided(B, Outcome::Unchanged, 1), decided(C, Outcome::Created, 1)]).await;
    claim(bed, third).await;
}

pub(crate) async fn disjoint_runs_go_side_by_side(bed: &Bed) {
    let first = submitted(bed, "first", &[A]).await;
    let blocked = submitted(bed, "blocked", &[A]).await;
    let disjoint = submitted(bed, "disjoint", &[B]).await;
    // A longer key that begins like another is another.
    let longer = submitted(bed, "longer", &["month=2024-011"]).await;
    claim(bed, first).await;
    claim(bed, disjoint).await;
    claim(bed, longer).await;
    nothing_to_claim(bed).await;
    assert_eq!(state(bed, blocked).await, State::Queued);
}

/// So whoever looks at its decision how the table's rows are placed finds all that runs of other definitions have made of it.
pub(crate) async fn runs_of_two_definitions_are_not_held_at_once(bed: &Bed) {
    let first = submitted(bed, "first", &[A]).await;
    let same = submitted(bed, "same", &[C]).await;
    let other = request("trips", "other", &[B]);
    let other = submit(&*bed.store, &NewRun { definition: definition("trips", 2), ..other }).await.id;
    let elsewhere = submit(&*bed.store, &request("fares", "fares", &[B])).await.id;
    let (first, same) = (claim(bed, first).await, claim(bed, same).await);
    claim(bed, elsewhere).await;
    nothing_to_claim(bed).await;
    decide(bed, &same, vec![decided(C, Outcome::Created, 1)]).await;
    let released = bed.store.end_attempt(first.run.id, first.token, &failed()).await.unwrap();
    assert_eq!(released, Fenced::Done);
    nothing_to_claim(bed).await;
    // Nor does it wait for ever: those that came after it do not begin before it.
    let later = submitted(bed, "later", &[A]).await;
    nothing_to_claim(bed).await;
    finish(bed, &same).await;
    let other = claim(bed, other).await;
    nothing_to_claim(bed).await;
    assert_eq!(bed.store.end_attempt(other.run.id, other.token, &failed()).await.unwrap(), Fenced::Done);
    claim(bed, later).await;
}

pub(crate) async fn pipelines_do_not_block_each_other(bed: &Bed) {
    let trips = submitted(bed, "trips", &[A]).await;
    let fares = submit(&*bed.store, &request("fares", "fares", &[A])).await.id;
    let all_fares = submit(&*bed.store, &request("fares", "all fares".replace(' ', "_").as_str(), &[])).await.id;
    claim(bed, trips).await;
    claim(bed, fares).await;
    nothing_to_claim(bed).await;
    assert_eq!(state(bed, all_fares).await, State::Queued);
}

pub(crate) async fn full_overlaps_everything_of_its_pipeline(bed: &Bed) {
    let first = submitted(bed, "first", &[A]).await;
    let full = submitted(bed, "full", &[]).await;
    let last = submitted(bed, "last", &[C]).await;
    let claimed = claim(bed, first).await;
    nothing_to_claim(bed).await;
    decide(bed, &claimed, vec![decided(A, Outcome::Created, 1)]).await;
    finish(bed, &claimed).await;
    let claimed = claim(bed, full).await;
    nothing_to_claim(bed).await;
    decide(bed, &claimed, vec![decided(A, Outcome::Unchanged, 1), decided(B, Outcome::Created, 1)]).await;
    nothing_to_claim(bed).await;
    finish(bed, &claimed).await;
    let partitions: Vec<_> = run(bed, full).await.partitions.into_iter().map(|p| p.partition.to_string()).collect();
    assert_eq!(partitions, [A, B]);
    claim(bed, last).await;
}

pub(crate) async fn a_retried_older_run_waits_for_a_running_younger_one(bed: &Bed) {
    let older = submitted(bed, "older", &[A]).await;
    let claimed = claim(bed, older).await;
    let younger = submitted(bed, "younger", &[A]).await;
    // The older run waits for its second try with its old number, while the younger one cannot overtake it.
    let later = super::make::ended(AttemptOutcome::Failed, Some(FailureClass::Source), Some(LEASE));
    assert_eq!(bed.store.end_attempt(older, claimed.token, &later).await.unwrap(), Fenced::Done);
    nothing_to_claim(bed).await;
    bed.pass(LEASE).await;
    let claimed = claim(bed, older).await;
    assert_eq!(bed.store.end_attempt(older, claimed.token, &failed()).await.unwrap(), Fenced::Done);
    // Retried by request it comes after the younger one, which runs by now.
    let running = claim(bed, younger).await;
    let _ = bed.store.retry(older, None, &definition("trips", 1)).await.unwrap();
    nothing_to_claim(bed).await;
    decide(bed, &running, vec![decided(A, Outcome::Created, 1)]).await;
    nothing_to_claim(bed).await;
    finish(bed, &running).await;
    claim(bed, older).await;
}

pub(crate) async fn a_held_run_blocks_older_ones_too(bed: &Bed) {
    let held = submitted(bed, "held", &[A]).await;
    submitted(bed, "blocked", &[A, B]).await;
    submitted(bed, "full", &[]).await;
    claim(bed, held).await;
    // No way of the store's makes a held run the youngest; should there be one, the partitions are still held.
    bed.past_the_store("update runs set sequence = 1000 where idempotency_key = 'held'").await.unwrap();
    nothing_to_claim(bed).await;
}

pub(crate) async fn a_run_that_is_not_due_blocks_the_younger_ones_that_overlap_it(bed: &Bed) {
    let waiting = submitted(bed, "waiting", &[A]).await;
    let claimed = claim(bed, waiting).await;
    let later = super::make::ended(AttemptOutcome::Failed, Some(FailureClass::Source), Some(Duration::from_secs(20)));
    assert_eq!(bed.store.end_attempt(waiting, claimed.token, &later).await.unwrap(), Fenced::Done);
    let blocked = submitted(bed, "blocked", &[A, B]).await;
    let free = submitted(bed, "free", &[C]).await;
    claim(bed, free).await;
    nothing_to_claim(bed).await;
    bed.pass(Duration::from_secs(20)).await;
    claim(bed, waiting).await;
    nothing_to_claim(bed).await;
    assert_eq!(state(bed, blocked).await, State::Queued);
}

pub(crate) async fn an_expired_committing_run_is_claimed_first_with_what_was_decided(bed: &Bed) {
    let id = submitted(bed, "a", &[A, B]).await;
    let first = claim(bed, id).await;
    let partitions = vec![decided(A, Outcome::Replaced, 5), decided(B, Outcome::Cleared, 0)];
    decide(bed, &first, partitions.clone()).await;
    let blocked = submitted(bed, "blocked", &[A]).await;
    submitted(bed, "free", &[C]).await;
    bed.pass(LEASE).await;
    let second = claim(bed, id).await;
    assert_eq!((second.run.state, second.attempt), (State::Committing, 2));
    assert_eq!(second.decided, Some(DecidedRun { token: first.token, partitions, manifest: true }));
    assert_eq!(second.run.attempts[0].outcome, Some(AttemptOutcome::Lost));
    assert_eq!(second.run.attempts[1].outcome, None);
    // Again, and again: lost workers do not count any more.
    for attempt in 3..10 {
        bed.pass(LEASE).await;
        assert_eq!(claim(bed, id).await.attempt, attempt);
    }
    assert_eq!(state(bed, blocked).await, State::Queued);
}

pub(crate) async fn a_postponed_run_is_claimed_when_it_is_due(bed: &Bed) {
    let id = submitted(bed, "a", &[A]).await;
    let first = claim(bed, id).await;
    decide(bed, &first, vec![decided(A, Outcome::Created, 5)]).await;
    let (delay, why) = (Duration::from_secs(300), error(FailureClass::Service));
    assert_eq!(postpone(bed, &first, delay).await, Fenced::Done);
    let waiting = run(bed, id).await;
    assert_eq!((waiting.state, waiting.error.as_ref()), (State::Committing, Some(&why)));
    assert_eq!(waiting.attempts[0].outcome, Some(AttemptOutcome::Failed));
    assert_eq!(waiting.attempts[0].error.as_ref(), Some(&why));
    assert!(waiting.due_at > waiting.created_at + Duration::from_secs(200));
    bed.pass(LEASE).await;
    nothing_to_claim(bed).await;
    bed.pass(delay).await;
    let second = claim(bed, id).await;
    assert_eq!(second.decided.as_ref().map(|decided| decided.token), Some(first.token));
    assert_eq!(second.run.attempts[0].outcome, Some(AttemptOutcome::Failed), "it was not lost");
    assert_eq!(second.run.error, None, "it is being tried again");
    finish(bed, &second).await;
    assert_eq!(run(bed, id).await.error, None);
}

pub(crate) async fn publishing_that_was_released_is_no_failure_and_goes_on_at_once(bed: &Bed) {
    let id = submitted(bed, "a", &[A]).await;
    fail_once(bed, id).await;
    let claimed = claim(bed, id).await;
    assert_eq!(claimed.publish_failures, 0);
    decide(bed, &claimed, vec![decided(A, Outcome::Created, 5)]).await;
    let mut changes = bed.store.changes();
    assert_eq!(release(bed, &claimed).await, Fenced::Done);
    let told = async { while changes.recv().await.unwrap() != Change::Queue {} };
    tokio::time::timeout(Duration::from_secs(20), told).await.unwrap();
    let waiting = run(bed, id).await;
    assert_eq!((waiting.state, waiting.error), (State::Committing, None));
    assert_eq!(waiting.attempts[1].outcome, Some(AttemptOutcome::Released));
    let refused = bed.store.postpone_publish(id, claimed.token, LEASE, AttemptOutcome::Lost, None).await;
    assert!(matches!(refused, Err(StoreError::Setup(_))), "{refused:?}");
}

/// A failure to be tried again at once.
async fn fail_once(bed: &Bed, id: RunId) {
    let claimed = claim(bed, id).await;
    let again = super::make::ended(AttemptOutcome::Failed, Some(FailureClass::Source), Some(Duration::ZERO));
    assert_eq!(bed.store.end_attempt(id, claimed.token, &again).await.unwrap(), Fenced::Done);
}

pub(crate) async fn failures_to_publish_are_counted_from_the_decision_on(bed: &Bed) {
    let id = submitted(bed, "a", &[A]).await;
    fail_once(bed, id).await;
    let first = claim(bed, id).await;
    decide(bed, &first, vec![decided(A, Outcome::Created, 5)]).await;
    assert_eq!(postpone(bed, &first, Duration::ZERO).await, Fenced::Done);
    let second = claim(bed, id).await;
    assert_eq!(second.publish_failures, 1, "the failure before the decision is another matter");
    assert_eq!(release(bed, &second).await, Fenced::Done);
    let third = claim(bed, id).await;
    assert_eq!(third.publish_failures, 1);
    assert_eq!(postpone(bed, &third, Duration::ZERO).await, Fenced::Done);
    let fourth = claim(bed, id).await;
    assert_eq!(fourth.publish_failures, 2);
    assert_eq!(bed.store.staging_lost(id, fourth.token, &[]).await.unwrap(), Fenced::Done);
    let fifth = claim(bed, id).await;
    assert_eq!(fifth.publish_failures, 0);
    decide(bed, &fifth, vec![decided(A, Outcome::Created, 5)]).await;
    bed.pass(LEASE).await;
    assert_eq!(claim(bed, id).await.publish_failures, 0, "a new decision, and a lost worker is no failure");
}

pub(crate) async fn a_long_queue_for_one_partition_delays_no_claim(bed: &Bed) {
    let running = submitted(bed, "running", &[A]).await;
    let held = claim(bed, running).await;
    // Making the queue may take longer than a lease.
    let renewed = bed.store.renew(running, held.token, 20 * LEASE, &progress()).await;
    assert_eq!(renewed.unwrap(), Renewal::Held);
    bed.copy_run(300_000, 2_000).await;
    let looked_at = "select count(*) from runs where state = 'queued' and sequence > 0 and behind is null";
    assert_eq!(bed.number(looked_at).await, 0);
    let limit = Duration::from_secs(8);
    let since = Instant::now();
    nothing_to_claim(bed).await;
    assert!(since.elapsed() < limit, "looked for {:?}", since.elapsed());
    fail_with(bed, running, &held.token).await;
    assert_eq!(bed.number(looked_at).await, 1);
    let since = Instant::now();
    let first = try_claim(bed).await.unwrap();
    assert_eq!(first.run.sequence, 1_000_001);
    nothing_to_claim(bed).await;
    assert!(since.elapsed() < limit, "looked for {:?}", since.elapsed());
}

pub(crate) async fn a_run_that_cannot_be_read_does_not_stop_the_others(bed: &Bed) {
    let broken = submitted(bed, "broken", &[A]).await;
    let next = submitted(bed, "next", &[A]).await;
    bed.past_the_store("update runs set progress = '{}' where idempotency_key = 'broken'").await.unwrap();
    let claimed = claim(bed, next).await;
    let given_up = run(bed, broken).await;
    assert_eq!((given_up.state, given_up.progress), (State::Failed, None));
    let why = given_up.error.unwrap();
    assert_eq!((why.kind.as_str(), why.class), ("run-unreadable", FailureClass::Service));
    assert!(why.detail.contains("progress"), "{}", why.detail);
    // Nor does one whose worker is lost.
    bed.past_the_store("update runs set progress = '{}' where idempotency_key = 'next'").await.unwrap();
    bed.pass(LEASE).await;
    let last = submitted(bed, "last", &[A]).await;
    let after = claim(bed, last).await;
    let given_up = run(bed, next).await;
    assert_eq!((given_up.state, given_up.attempts[0].outcome), (State::Failed, Some(AttemptOutcome::Failed)));
    assert_eq!(bed.store.finish(next, claimed.token).await.unwrap(), Fenced::Lost);
    // What is decided does not fail: it is put off, and nothing overtakes it.
    decide(bed, &after, vec![decided(A, Outcome::Created, 1)]).await;
    bed.past_the_store("update runs set progress = '{}' where idempotency_key = 'last'").await.unwrap();
    bed.pass(LEASE).await;
    let free = submitted(bed, "free", &[B]).await;
    submitted(bed, "blocked", &[A]).await;
    claim(bed, free).await;
    nothing_to_claim(bed).await;
    bed.past_the_store("update runs set progress = null where idempotency_key = 'last'").await.unwrap();
    bed.pass(Duration::from_secs(60)).await;
    assert_eq!(claim(bed, last).await.decided.unwrap().token, after.token);
}

pub(crate) async fn a_lost_worker_is_replaced_until_its_run_has_lost_too_many(bed: &Bed) {
    let id = submitted(bed, "a", &[A]).await;
    let sequence = run(bed, id).await.sequence;
    for attempt in 1..=MAX_LOST_WORKERS + 1 {
        assert_eq!(claim(bed, id).await.attempt, attempt);
        bed.pass(LEASE - Duration::from_secs(2)).await;
        nothing_to_claim(bed).await;
        bed.pass(Duration::from_secs(2)).await;
    }
    nothing_to_claim(bed).await;
    let lost = run(bed, id).await;
    assert_eq!((lost.state, lost.sequence), (State::Failed, sequence));
    let why = lost.error.unwrap();
    assert_eq!((why.kind.as_str(), why.class), ("worker-lost", FailureClass::Lost));
    assert!(lost.attempts.iter().all(|a| a.outcome == Some(AttemptOutcome::Lost) && a.ended_at.is_some()));
    assert_eq!(lost.attempts.len(), 3);
}

pub(crate) async fn a_run_that_was_asked_to_stop_is_cancelled_when_its_worker_is_lost(bed: &Bed) {
    let id = submitted(bed, "a", &[A]).await;
    claim(bed, id).await;
    assert!(matches!(bed.store.cancel(id).await.unwrap(), Cancelled::Asked));
    bed.pass(LEASE).await;
    nothing_to_claim(bed).await;
    let cancelled = run(bed, id).await;
    assert_eq!((cancelled.state, cancelled.cancel_requested), (State::Cancelled, false));
    assert_eq!(cancelled.attempts[0].outcome, Some(AttemptOutcome::Lost));
}

pub(crate) async fn an_expired_run_holds_its_partitions_until_it_is_taken_over(bed: &Bed) {
    let id = submitted(bed, "a", &[A]).await;
    let held = claim(bed, id).await;
    submitted(bed, "blocked", &[A]).await;
    bed.pass(LEASE).await;
    let again = claim(bed, id).await;
    assert_ne!(again.token, held.token);
    fail_with(bed, id, &again.token).await;
}

async fn fail_with(bed: &Bed, id: RunId, token: &refrain::run::ClaimToken) {
    assert_eq!(bed.store.end_attempt(id, *token, &failed()).await.unwrap(), Fenced::Done);
}

/// Sixteen claimers over a table of four partitions, each run of two neighbours: whatever they get, no two runs that are
/// held at the same time overlap, each run is claimed once, and in the end all are done.
pub(crate) async fn claimers_at_once_never_hold_overlapping_runs(bed: &Bed) {
    let keys: Vec<String> = (0..8).map(|n| format!("month=2024-0{n}")).collect();
    let mut left = HashSet::new();
    for n in 0..32 {
        let (from, name) = (n % 7, format!("run-{n}"));
        left.insert(submitted(bed, &name, &[&keys[from], &keys[from + 1]]).await);
    }
    while !left.is_empty() {
        let claims = (0..16).map(|n| {
            let store = Arc::clone(if n % 2 == 0 { &bed.store } else { &bed.other });
            tokio::spawn(async move { store.claim(&claim_request()).await.unwrap() })
        });
        let claims: Vec<_> = futures::future::join_all(claims).await;
        let claims: Vec<_> = claims.into_iter().filter_map(|c| c.unwrap()).collect();
        assert!(!claims.is_empty(), "{} runs are left and none can be claimed", left.len());
        let mut held = HashSet::new();
        for claimed in &claims {
            assert!(left.remove(&claimed.run.id), "{} was claimed twice", claimed.run.id);
            for p in &claimed.run.partitions {
                assert!(held.insert(p.partition.clone()), "{} is held twice", p.partition);
            }
        }
        for claimed in &claims {
            fail_with(bed, claimed.run.id, &claimed.token).await;
        }
    }
}

/// Submissions and claims at once: a run is never claimed before an overlapping one with a lower number.
pub(crate) async fn numbers_become_visible_in_order(bed: &Bed) {
    let submitting = (0..40).map(|n| {
        let store = Arc::clone(if n % 2 == 0 { &bed.store } else { &bed.other });
        tokio::spawn(async move { submit(&*store, &request("trips", &format!("run-{n}"), &[A])).await.sequence })
    });
    let submitting: Vec<_> = submitting.collect();
    let mut claimed_in_order = Vec::new();
    while claimed_in_order.len() < 40 {
        if let Some(claimed) = try_claim(bed).await {
            claimed_in_order.push(claimed.run.sequence);
            fail_with(bed, claimed.run.id, &claimed.token).await;
        } else {
            tokio::task::yield_now().await;
        }
    }
    let mut submitted: Vec<_> = futures::future::join_all(submitting).await.into_iter().map(|s| s.unwrap()).collect();
    submitted.sort_unstable();
    assert_eq!(claimed_in_order, submitted);
}

pub(crate) async fn a_failed_run_is_not_claimed(bed: &Bed) {
    let id = submitted(bed, "a", &[A]).await;
    fail(bed, id).await;
    nothing_to_claim(bed).await;
    let store: &dyn RunStore = &*bed.store;
    assert_eq!(store.queue_depth().await.unwrap().queued, 0);
}
