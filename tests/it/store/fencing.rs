//! A stale token does nothing; a repeat of what was done is done.

use super::bed::Bed;
use super::make::{
    LEASE, claim, content, decide, decided, decision, ended, error, failed, finish, postpone, progress, publish,
    release, run, state, submitted,
};
use refrain::partition::PartitionKey;
use refrain::run::{AttemptOutcome, CatalogEntry, ClaimToken, FailureClass, Outcome, Run, RunId, State};
use refrain::store::{Begun, Cancelled, Fenced, Renewal};
use std::time::Duration;

const A: &str = "month=2024-01";

/// Every fenced step under `token`, each of which must answer that it is lost.
async fn all_lost(bed: &Bed, id: RunId, token: ClaimToken) {
    let (store, before) = (&bed.store, snapshot(bed, id).await);
    let other = decision(vec![decided(A, Outcome::Created, 99)]);
    assert_eq!(store.renew(id, token, LEASE, &progress()).await.unwrap(), Renewal::Lost);
    assert_eq!(store.begin_commit(id, token, &other).await.unwrap(), Begun::Lost);
    assert_eq!(store.may_publish(id, token).await.unwrap(), Fenced::Lost);
    assert_eq!(store.finish(id, token).await.unwrap(), Fenced::Lost);
    for outcome in [AttemptOutcome::Failed, AttemptOutcome::Cancelled, AttemptOutcome::Released] {
        assert_eq!(store.end_attempt(id, token, &ended(outcome, None, None)).await.unwrap(), Fenced::Lost);
    }
    let why = error(FailureClass::Service);
    for outcome in [AttemptOutcome::Failed, AttemptOutcome::Released] {
        assert_eq!(store.postpone_publish(id, token, LEASE, outcome, Some(&why)).await.unwrap(), Fenced::Lost);
    }
    let live = [PartitionKey::from_canonical(A)];
    assert_eq!(store.staging_lost(id, token, &live).await.unwrap(), Fenced::Lost);
    assert_eq!(snapshot(bed, id).await, before, "a stale token changed something");
}

async fn snapshot(bed: &Bed, id: RunId) -> (Run, i64, Vec<CatalogEntry>) {
    let listing = bed.store.partitions("trips", &super::reading::everything()).await.unwrap();
    (run(bed, id).await, listing.version, listing.entries)
}

pub(crate) async fn a_token_that_was_never_given_does_nothing(bed: &Bed) {
    let id = submitted(bed, "a", &[A]).await;
    all_lost(bed, id, ClaimToken::new()).await;
    let claimed = claim(bed, id).await;
    all_lost(bed, id, ClaimToken::new()).await;
    decide(bed, &claimed, vec![decided(A, Outcome::Created, 1)]).await;
    all_lost(bed, id, ClaimToken::new()).await;
    all_lost_of_nothing(bed, claimed.token).await;
}

async fn all_lost_of_nothing(bed: &Bed, token: ClaimToken) {
    let unknown = RunId::new();
    assert_eq!(bed.store.renew(unknown, token, LEASE, &progress()).await.unwrap(), Renewal::Lost);
    assert_eq!(bed.store.finish(unknown, token).await.unwrap(), Fenced::Lost);
}

pub(crate) async fn a_worker_whose_run_was_taken_over_does_nothing(bed: &Bed) {
    let id = submitted(bed, "a", &[A]).await;
    let first = claim(bed, id).await;
    bed.pass(LEASE).await;
    let second = claim(bed, id).await;
    all_lost(bed, id, first.token).await;
    decide(bed, &second, vec![decided(A, Outcome::Created, 1)]).await;
    all_lost(bed, id, first.token).await;
    bed.pass(LEASE).await;
    let third = claim(bed, id).await;
    // The decided token names the staging folder, but it may not act any more.
    all_lost(bed, id, second.token).await;
    finish(bed, &third).await;
    all_lost(bed, id, second.token).await;
    all_lost(bed, id, first.token).await;
}

pub(crate) async fn a_worker_whose_run_was_queued_again_does_nothing(bed: &Bed) {
    let id = submitted(bed, "a", &[A]).await;
    let first = claim(bed, id).await;
    let later = ended(AttemptOutcome::Lost, Some(FailureClass::Lost), None);
    assert_eq!(bed.store.end_attempt(id, first.token, &later).await.unwrap(), Fenced::Done);
    all_lost(bed, id, first.token).await;
}

pub(crate) async fn a_worker_that_handed_its_run_back_does_nothing(bed: &Bed) {
    let id = submitted(bed, "a", &[A]).await;
    let claimed = claim(bed, id).await;
    decide(bed, &claimed, vec![decided(A, Outcome::Created, 1)]).await;
    let (store, token) = (&bed.store, claimed.token);
    assert_eq!(postpone(bed, &claimed, LEASE).await, Fenced::Done);
    assert_eq!(store.renew(id, token, LEASE, &progress()).await.unwrap(), Renewal::Lost);
    assert_eq!(store.may_publish(id, token).await.unwrap(), Fenced::Lost);
    assert_eq!(store.finish(id, token).await.unwrap(), Fenced::Lost);
    assert_eq!(store.staging_lost(id, token, &[]).await.unwrap(), Fenced::Lost);
    assert_eq!(state(bed, id).await, State::Committing);
}

pub(crate) async fn a_lease_that_ran_out_unnoticed_is_renewed(bed: &Bed) {
    let id = submitted(bed, "a", &[A]).await;
    let claimed = claim(bed, id).await;
    bed.pass(LEASE * 2).await;
    let mut report = progress();
    report.rows_read = 7;
    assert_eq!(bed.store.renew(id, claimed.token, LEASE, &report).await.unwrap(), Renewal::Held);
    super::make::nothing_to_claim(bed).await;
    assert_eq!(run(bed, id).await.progress, Some(report));
    decide(bed, &claimed, vec![decided(A, Outcome::Created, 1)]).await;
    assert_eq!(bed.store.renew(id, claimed.token, LEASE, &progress()).await.unwrap(), Renewal::Held);
}

pub(crate) async fn a_decision_is_made_once(bed: &Bed) {
    let id = submitted(bed, "a", &[A]).await;
    let claimed = claim(bed, id).await;
    assert_eq!(bed.store.may_publish(id, claimed.token).await.unwrap(), Fenced::Lost, "nothing is decided");
    decide(bed, &claimed, vec![decided(A, Outcome::Created, 1)]).await;
    let again = decision(vec![decided(A, Outcome::Created, 2)]);
    assert_eq!(bed.store.begin_commit(id, claimed.token, &again).await.unwrap(), Begun::Committing);
    assert_eq!(run(bed, id).await.partitions[0].content, Some(content(1)), "what was decided stays");
    assert_eq!(bed.store.may_publish(id, claimed.token).await.unwrap(), Fenced::Done);
    bed.pass(LEASE).await;
    let second = claim(bed, id).await;
    assert_eq!(bed.store.begin_commit(id, second.token, &again).await.unwrap(), Begun::Lost);
    assert_eq!(bed.store.may_publish(id, second.token).await.unwrap(), Fenced::Done);
    assert_eq!(bed.store.end_attempt(id, second.token, &failed()).await.unwrap(), Fenced::Lost, "it is decided");
}

pub(crate) async fn a_decision_is_for_the_scope_and_nothing_else(bed: &Bed) {
    let id = submitted(bed, "a", &[A, "month=2024-02"]).await;
    let claimed = claim(bed, id).await;
    let too_few = vec![decided(A, Outcome::Created, 1)];
    let wrong = vec![decided(A, Outcome::Created, 1), decided("month=2024-03", Outcome::Created, 1)];
    let too_many = vec![
        decided(A, Outcome::Created, 1),
        decided("month=2024-02", Outcome::Created, 1),
        decided("month=2024-03", Outcome::Created, 1),
    ];
    for partitions in [too_few, wrong, too_many] {
        let refused = bed.store.begin_commit(id, claimed.token, &decision(partitions)).await;
        assert!(refused.is_err(), "{refused:?}");
        let still = run(bed, id).await;
        assert_eq!((still.state, still.partitions[0].outcome), (State::Running, None));
    }
}

pub(crate) async fn a_cancellation_before_the_decision_wins(bed: &Bed) {
    let id = submitted(bed, "a", &[A]).await;
    let claimed = claim(bed, id).await;
    assert!(matches!(bed.store.cancel(id).await.unwrap(), Cancelled::Asked));
    let late = decision(vec![decided(A, Outcome::Created, 1)]);
    assert_eq!(bed.store.begin_commit(id, claimed.token, &late).await.unwrap(), Begun::CancelAsked);
    assert_eq!(state(bed, id).await, State::Running);
    let stop = ended(AttemptOutcome::Cancelled, None, None);
    assert_eq!(bed.store.end_attempt(id, claimed.token, &stop).await.unwrap(), Fenced::Done);
    assert_eq!(state(bed, id).await, State::Cancelled);
}

pub(crate) async fn a_repeated_finish_is_done_and_changes_nothing(bed: &Bed) {
    let id = submitted(bed, "a", &[A]).await;
    let claimed = claim(bed, id).await;
    assert_eq!(bed.store.finish(id, claimed.token).await.unwrap(), Fenced::Lost, "nothing is decided");
    decide(bed, &claimed, vec![decided(A, Outcome::Created, 1)]).await;
    finish(bed, &claimed).await;
    let before = snapshot(bed, id).await;
    finish(bed, &claimed).await;
    assert_eq!(snapshot(bed, id).await, before);
    publish(bed, "b", vec![decided(A, Outcome::Replaced, 2)]).await;
    let before = snapshot(bed, id).await;
    finish(bed, &claimed).await;
    assert_eq!(snapshot(bed, id).await, before, "a late repeat undid what came after it");
}

pub(crate) async fn repeats_of_an_ending_are_done(bed: &Bed) {
    let id = submitted(bed, "a", &[A]).await;
    let claimed = claim(bed, id).await;
    let later = ended(AttemptOutcome::Failed, Some(FailureClass::Source), Some(Duration::ZERO));
    for _ in 0..2 {
        assert_eq!(bed.store.end_attempt(id, claimed.token, &later).await.unwrap(), Fenced::Done);
    }
    let claimed = claim(bed, id).await;
    assert_eq!(claimed.failures.source, 1, "a repeat does not count again");
    decide(bed, &claimed, vec![decided(A, Outcome::Created, 1)]).await;
    for _ in 0..2 {
        assert_eq!(postpone(bed, &claimed, Duration::ZERO).await, Fenced::Done);
    }
    let claimed = claim(bed, id).await;
    for _ in 0..2 {
        assert_eq!(release(bed, &claimed).await, Fenced::Done);
    }
    assert_eq!(postpone(bed, &claimed, Duration::ZERO).await, Fenced::Lost, "it was released");
    let claimed = claim(bed, id).await;
    for _ in 0..2 {
        assert_eq!(bed.store.staging_lost(id, claimed.token, &[]).await.unwrap(), Fenced::Done);
    }
    assert_eq!(state(bed, id).await, State::Queued);
}
