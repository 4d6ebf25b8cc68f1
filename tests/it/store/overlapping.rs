//! Requests that are not to wait for the runs in their way.

use super::bed::Bed;
use super::make::{
    claim, decide, decided, definition, fail, finish, key, request, run, state, submit, submitted, try_claim,
};
use refrain::run::{OnOverlap, Outcome, RunId, Scope, State};
use refrain::store::{Cancelled, NewRun, Retried, Submitted};
use std::sync::Arc;

const A: &str = "month=2024-01";
const B: &str = "month=2024-02";
const C: &str = "month=2024-03";

fn not_to_wait(name: &str, partitions: &[&str]) -> NewRun {
    let mut run = request("trips", name, partitions);
    run.asked.on_overlap = OnOverlap::Refuse;
    run
}

/// The runs in the way of a request, which must be refused and leave nothing.
async fn in_the_way(bed: &Bed, partitions: &[&str]) -> Vec<RunId> {
    let refused = not_to_wait("refused", partitions);
    let Submitted::Overlaps(runs) = bed.store.submit(&refused).await.unwrap() else { panic!("it was not refused") };
    let scope = match partitions {
        [] => Scope::Full,
        keys => Scope::Partitions(keys.iter().map(|text| key(text)).collect()),
    };
    let told = bed.store.overlapping("trips", &scope, 100).await.unwrap();
    assert_eq!(told.iter().map(|(id, _)| *id).collect::<Vec<_>>(), runs, "whoever asks beforehand is told the same");
    for (id, state) in &told {
        assert_eq!(bed.store.glances(&[*id]).await.unwrap()[0].state, *state);
    }
    assert_eq!(bed.store.overlapping("trips", &scope, 1).await.unwrap(), told[..1]);
    assert!(bed.store.get(refused.id).await.unwrap().is_none());
    assert_eq!(bed.store.known_key(&refused.principal, &refused.idempotency_key).await.unwrap(), None);
    runs
}

pub(crate) async fn a_run_that_is_not_to_wait_is_refused_for_those_in_the_way(bed: &Bed) {
    let first = submitted(bed, "first", &[A, B]).await;
    let second = submitted(bed, "second", &[B]).await;
    let elsewhere = submit(&*bed.store, &request("fares", "elsewhere", &[A])).await.id;
    assert_eq!(in_the_way(bed, &[A, C]).await, [first]);
    assert_eq!(in_the_way(bed, &[C, B]).await, [first, second]);
    assert_eq!(in_the_way(bed, &[]).await, [first, second], "the whole table overlaps everything");
    let elsewhere_in_time = Scope::Partitions(vec![key(C)]);
    assert_eq!(bed.store.overlapping("trips", &elsewhere_in_time, 100).await.unwrap(), []);
    let disjoint = submit(&*bed.store, &not_to_wait("disjoint", &[C])).await.id;
    assert_eq!(in_the_way(bed, &[C]).await, [disjoint]);
    let claimed = claim(bed, first).await;
    assert_eq!(in_the_way(bed, &[A]).await, [first], "running");
    decide(bed, &claimed, vec![decided(A, Outcome::Created, 1), decided(B, Outcome::Created, 1)]).await;
    assert_eq!(in_the_way(bed, &[A]).await, [first], "committing");
    finish(bed, &claimed).await;
    for id in [second, elsewhere] {
        assert!(matches!(bed.store.cancel(id).await.unwrap(), Cancelled::Now));
    }
    assert_eq!(in_the_way(bed, &[]).await, [disjoint], "what has ended is in nobody's way");
    fail(bed, disjoint).await;
    let full = submit(&*bed.store, &not_to_wait("full", &[])).await.id;
    assert_eq!(in_the_way(bed, &[A]).await, [full]);
}

pub(crate) async fn a_taken_key_comes_before_what_is_in_the_way(bed: &Bed) {
    let first = not_to_wait("key", &[A]);
    submit(&*bed.store, &first).await;
    let again = not_to_wait("key", &[A]);
    assert!(matches!(bed.store.submit(&again).await.unwrap(), Submitted::KeyTaken), "its own run is in nobody's way");
}

pub(crate) async fn of_many_that_are_not_to_wait_at_once_one_is_accepted(bed: &Bed) {
    for round in 0..12 {
        let asking = (0..8).map(|n| {
            let store = Arc::clone(if n % 2 == 0 { &bed.store } else { &bed.other });
            let asked = not_to_wait(&format!("{round}/{n}"), &[A, [B, C][n % 2]]);
            tokio::spawn(async move { store.submit(&asked).await.unwrap() })
        });
        let (mut accepted, mut blamed) = (Vec::new(), Vec::new());
        for answer in futures::future::join_all(asking).await {
            match answer.unwrap() {
                Submitted::New(run) => accepted.push(run.id),
                Submitted::Overlaps(runs) => blamed.extend(runs),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(accepted.len(), 1, "round {round}: {accepted:?}");
        assert!(blamed.iter().all(|run| *run == accepted[0]) && blamed.len() == 7, "round {round}: {blamed:?}");
        fail(bed, accepted[0]).await;
    }
}

/// One that waits and one that does not, at once: where both are accepted, the one that does not wait came first.
pub(crate) async fn one_that_waits_never_slips_in_before_one_that_does_not(bed: &Bed) {
    for round in 0..24 {
        let waits = request("trips", &format!("waits/{round}"), &[A]);
        let does_not = not_to_wait(&format!("does not/{round}").replace(' ', "_"), &[A]);
        let (one, other) = (Arc::clone(&bed.store), Arc::clone(&bed.other));
        let waiting = tokio::spawn(async move { submit(&*one, &waits).await });
        let refused = tokio::spawn(async move { other.submit(&does_not).await.unwrap() });
        let waiting = waiting.await.unwrap();
        match refused.await.unwrap() {
            Submitted::New(accepted) => assert!(accepted.sequence < waiting.sequence, "round {round}"),
            Submitted::Overlaps(runs) => assert_eq!(runs, [waiting.id]),
            other => panic!("{other:?}"),
        }
        while let Some(claimed) = try_claim(bed).await {
            let _ = bed.store.end_attempt(claimed.run.id, claimed.token, &super::make::failed()).await.unwrap();
        }
    }
}

pub(crate) async fn a_retry_that_is_not_to_wait_is_refused_too(bed: &Bed) {
    let id = submit(&*bed.store, &not_to_wait("first", &[A])).await.id;
    fail(bed, id).await;
    let before = run(bed, id).await;
    let other = submitted(bed, "other", &[A]).await;
    let retried = bed.store.retry(id, None, &definition("trips", 1)).await.unwrap();
    assert!(matches!(&retried, Retried::Overlaps(runs) if *runs == [other]), "{retried:?}");
    assert_eq!(run(bed, id).await, before);
    fail(bed, other).await;
    assert!(matches!(bed.store.retry(id, None, &definition("trips", 1)).await.unwrap(), Retried::Queued));
    assert_eq!(state(bed, id).await, State::Queued);
    claim(bed, id).await;
}
