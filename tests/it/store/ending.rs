//! How attempts end without a result, and what becomes of their runs.

use super::bed::Bed;
use super::make::{
    MAX_LOST_WORKERS, claim, complete, decided, ended, error, fail, nothing_to_claim, run, state, submitted,
};
use refrain::run::{AttemptOutcome, FailureClass, Outcome, State};
use refrain::store::{Cancelled, Ended, Failures, Fenced};
use std::time::Duration;

const A: &str = "month=2024-01";
const MINUTE: Duration = Duration::from_secs(60);

pub(crate) async fn a_failure_to_be_retried_waits_with_its_error(bed: &Bed) {
    let id = submitted(bed, "a", &[A]).await;
    let claimed = claim(bed, id).await;
    let later = ended(AttemptOutcome::Failed, Some(FailureClass::Source), Some(MINUTE));
    assert_eq!(bed.store.end_attempt(id, claimed.token, &later).await.unwrap(), Fenced::Done);
    let waiting = run(bed, id).await;
    assert_eq!((waiting.state, waiting.error.as_ref()), (State::Queued, Some(&error(FailureClass::Source))));
    assert_eq!((waiting.sequence, &waiting.progress), (claimed.run.sequence, &None));
    let attempt = &waiting.attempts[0];
    assert_eq!((attempt.outcome, attempt.error.as_ref()), (Some(AttemptOutcome::Failed), waiting.error.as_ref()));
    assert_eq!(waiting.due_at, attempt.ended_at.unwrap() + MINUTE);
    nothing_to_claim(bed).await;
    assert_eq!(bed.store.queue_depth().await.unwrap().oldest_due, None, "none is due");
    bed.pass(MINUTE).await;
    let again = claim(bed, id).await;
    assert_eq!(again.run.error, Some(error(FailureClass::Source)), "the last failure stays visible");
    assert_eq!(again.run.started_at, claimed.run.started_at, "it was started once");
}

pub(crate) async fn failures_are_counted_by_class(bed: &Bed) {
    let id = submitted(bed, "a", &[A]).await;
    let mut expected = Failures::default();
    for class in [FailureClass::Source, FailureClass::Service, FailureClass::Source, FailureClass::Compute] {
        let claimed = claim(bed, id).await;
        assert_eq!(claimed.failures, expected);
        let again = ended(AttemptOutcome::Failed, Some(class), Some(Duration::ZERO));
        assert_eq!(bed.store.end_attempt(id, claimed.token, &again).await.unwrap(), Fenced::Done);
        match class {
            FailureClass::Source => expected.source += 1,
            FailureClass::Service | FailureClass::Lost => expected.service += 1,
            FailureClass::Compute => expected.compute += 1,
        }
    }
    assert_eq!(claim(bed, id).await.failures, expected);
}

pub(crate) async fn a_failure_without_a_retry_ends_the_run(bed: &Bed) {
    let id = submitted(bed, "a", &[A]).await;
    let waiting = submitted(bed, "b", &[A]).await;
    fail(bed, id).await;
    let failed = run(bed, id).await;
    assert_eq!((failed.state, failed.error), (State::Failed, Some(error(FailureClass::Compute))));
    assert_eq!(failed.ended_at, failed.attempts[0].ended_at);
    complete(bed, waiting, vec![decided(A, Outcome::Created, 1)]).await;
}

pub(crate) async fn a_dead_engine_counts_as_a_lost_worker(bed: &Bed) {
    let id = submitted(bed, "a", &[A]).await;
    let died = Ended { error: Some(error(FailureClass::Lost)), ..ended(AttemptOutcome::Lost, None, None) };
    for lost in 1..=MAX_LOST_WORKERS + 1 {
        let claimed = claim(bed, id).await;
        assert_eq!(claimed.failures, Failures::default(), "they have a count of their own");
        assert_eq!(bed.store.end_attempt(id, claimed.token, &died).await.unwrap(), Fenced::Done);
        let expected = if lost > MAX_LOST_WORKERS { State::Failed } else { State::Queued };
        assert_eq!(state(bed, id).await, expected, "after {lost}");
    }
    let failed = run(bed, id).await;
    let (found, said) = (failed.error.unwrap(), error(FailureClass::Lost));
    assert_eq!((&found.kind, found.class), (&said.kind, said.class));
    assert_eq!(found.detail, format!("{}; attempt 3, 3 workers or engines lost where at most 2 may be", said.detail));
    assert!(failed.attempts.iter().all(|a| a.outcome == Some(AttemptOutcome::Lost) && a.error.is_some()));
}

pub(crate) async fn a_dead_engine_comes_back_when_its_worker_says(bed: &Bed) {
    let id = submitted(bed, "a", &[A]).await;
    let claimed = claim(bed, id).await;
    let died = ended(AttemptOutcome::Lost, Some(FailureClass::Lost), Some(MINUTE));
    assert_eq!(bed.store.end_attempt(id, claimed.token, &died).await.unwrap(), Fenced::Done);
    nothing_to_claim(bed).await;
    bed.pass(MINUTE).await;
    claim(bed, id).await;
}

pub(crate) async fn a_released_run_comes_back_at_once_uncounted(bed: &Bed) {
    let id = submitted(bed, "a", &[A]).await;
    for _ in 0..MAX_LOST_WORKERS + 3 {
        let claimed = claim(bed, id).await;
        let release = ended(AttemptOutcome::Released, None, None);
        assert_eq!(bed.store.end_attempt(id, claimed.token, &release).await.unwrap(), Fenced::Done);
        assert_eq!(state(bed, id).await, State::Queued);
    }
    let claimed = claim(bed, id).await;
    assert_eq!(claimed.failures, Failures::default());
    assert_eq!(claimed.run.attempts[0].outcome, Some(AttemptOutcome::Released));
}

pub(crate) async fn however_an_attempt_ends_a_cancellation_holds(bed: &Bed) {
    for (n, end) in [
        ended(AttemptOutcome::Failed, Some(FailureClass::Source), Some(MINUTE)),
        ended(AttemptOutcome::Failed, Some(FailureClass::Compute), None),
        ended(AttemptOutcome::Lost, None, None),
        ended(AttemptOutcome::Released, None, None),
        ended(AttemptOutcome::Cancelled, None, None),
    ]
    .iter()
    .enumerate()
    {
        let id = submitted(bed, &format!("run-{n}"), &[A]).await;
        let claimed = claim(bed, id).await;
        assert!(matches!(bed.store.cancel(id).await.unwrap(), Cancelled::Asked));
        assert_eq!(bed.store.end_attempt(id, claimed.token, end).await.unwrap(), Fenced::Done);
        let cancelled = run(bed, id).await;
        assert_eq!((cancelled.state, cancelled.cancel_requested), (State::Cancelled, false), "{end:?}");
        assert_eq!(cancelled.attempts[0].outcome, Some(end.outcome), "the attempt says what it came to");
    }
}

pub(crate) async fn an_ending_with_a_result_is_refused(bed: &Bed) {
    let id = submitted(bed, "a", &[A]).await;
    let claimed = claim(bed, id).await;
    for outcome in [AttemptOutcome::Succeeded, AttemptOutcome::StagingLost] {
        assert!(bed.store.end_attempt(id, claimed.token, &ended(outcome, None, None)).await.is_err());
    }
    assert_eq!(state(bed, id).await, State::Running);
}
