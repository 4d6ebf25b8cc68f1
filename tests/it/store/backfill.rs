//! Ranges of which only some partitions are rebuilt: which ones is settled when the run is accepted.

use super::bed::Bed;
use super::make::{
    claim, complete, decided, definition, fail, nothing_to_claim, publish, request, run, submit, submitted,
};
use refrain::run::{OnOverlap, Only, Outcome, Run, RunId, State};
use refrain::store::{Cancelled, NewRun, Retried, RunFilter, Submitted};

const A: &str = "month=2024-01";
const B: &str = "month=2024-02";
const C: &str = "month=2024-03";

/// A request for some of the three months, with the pipeline's definition of this version.
fn some_of(name: &str, only: Only, version: u32) -> NewRun {
    let mut asked = request("trips", name, &[A, B, C]);
    asked.asked.only = Some(only);
    asked.definition = definition("trips", version);
    asked
}

fn partitions(run: &Run) -> Vec<&str> {
    run.partitions.iter().map(|p| p.partition.as_str()).collect()
}

pub(crate) async fn what_is_picked_is_settled_at_acceptance(bed: &Bed) {
    publish(bed, "first", vec![decided(B, Outcome::Created, 1)]).await;
    let asked = some_of("missing", Only::Missing, 2);
    let missing = submit(&*bed.store, &asked).await;
    assert_eq!(partitions(&missing), [A, C]);
    assert_eq!(missing.asked, asked.asked, "and it tells what was asked");
    assert_eq!(partitions(&submit(&*bed.store, &some_of("old", Only::Outdated, 2)).await), [B]);
    complete(bed, missing.id, vec![decided(A, Outcome::Created, 1), decided(C, Outcome::Empty, 0)]).await;
    let known = bed.store.known_key(&asked.principal, &asked.idempotency_key).await.unwrap().unwrap();
    assert_eq!((known.asked, known.run_id), (asked.asked, missing.id));
    assert_eq!(partitions(&run(bed, missing.id).await), [A, C], "though one of them is there by now");
    assert_eq!(partitions(&submit(&*bed.store, &some_of("again", Only::Missing, 2)).await), [C]);
    // Only what the run picked is in anybody's way.
    let elsewhere = NewRun { definition: definition("trips", 2), ..request("trips", "elsewhere", &[A]) };
    let elsewhere = submit(&*bed.store, &elsewhere).await.id;
    claim(bed, run_named(bed, "old").await).await;
    claim(bed, run_named(bed, "again").await).await;
    claim(bed, elsewhere).await;
}

async fn run_named(bed: &Bed, name: &str) -> RunId {
    let listed = bed.store.list(&RunFilter { limit: 100, ..RunFilter::default() }).await.unwrap();
    listed.iter().find(|run| run.idempotency_key.as_str() == name).unwrap().id
}

pub(crate) async fn a_retry_keeps_what_was_picked(bed: &Bed) {
    let id = submit(&*bed.store, &some_of("missing", Only::Missing, 1)).await.id;
    fail(bed, id).await;
    publish(bed, "between", vec![decided(B, Outcome::Created, 1)]).await;
    assert!(matches!(bed.store.retry(id, None, &definition("trips", 1)).await.unwrap(), Retried::Queued));
    let again = claim(bed, id).await;
    assert_eq!(partitions(&again.run), [A, B, C]);
}

pub(crate) async fn a_run_with_nothing_to_do_has_succeeded(bed: &Bed) {
    publish(bed, "first", [A, B, C].map(|key| decided(key, Outcome::Created, 1)).into()).await;
    // Nobody is in the way of what does nothing.
    submitted(bed, "everything", &[]).await;
    let mut asked = some_of("nothing", Only::Missing, 1);
    asked.asked.on_overlap = OnOverlap::Refuse;
    let mut changes = bed.store.changes();
    let done = submit(&*bed.store, &asked).await;
    assert_eq!((done.state, partitions(&done)), (State::Succeeded, vec![]));
    assert!(done.attempts.is_empty() && done.started_at.is_none() && done.error.is_none(), "{done:?}");
    assert_eq!((done.ended_at, done.rows.clone()), (Some(done.created_at), Some(Default::default())));
    assert_eq!(changes.try_recv().unwrap(), refrain::store::Change::Run(done.id));
    assert_eq!(run(bed, done.id).await, done);
    assert!(matches!(bed.store.cancel(done.id).await.unwrap(), Cancelled::NotAllowed(State::Succeeded)));
    let retried = bed.store.retry(done.id, None, &definition("trips", 1)).await.unwrap();
    assert!(matches!(retried, Retried::NotAllowed { state: State::Succeeded, last_attempt: 0 }), "{retried:?}");
    let again = bed.store.submit(&some_of("nothing", Only::Missing, 1)).await.unwrap();
    assert!(matches!(again, Submitted::KeyTaken), "{again:?}");
    let filter = RunFilter { state: Some(State::Succeeded), limit: 1, ..RunFilter::default() };
    let listed = bed.store.list(&filter).await.unwrap();
    assert_eq!((listed[0].id, listed[0].partitions, listed[0].attempts), (done.id, 0, 0));
    let everything = run_named(bed, "everything").await;
    claim(bed, everything).await;
    nothing_to_claim(bed).await;
    assert_eq!(bed.store.queue_depth().await.unwrap().queued, 0);
}
