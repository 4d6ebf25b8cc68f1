//! Principals take turns.

use super::bed::Bed;
use super::make::{failed, nothing_to_claim, request, submit, try_claim};
use refrain::run::{Principal, RunId};
use refrain::store::{Claimed, Fenced, NewRun};

/// A request of a principal's.
fn of(principal: &str, name: &str, partitions: &[&str]) -> NewRun {
    NewRun { principal: Principal(principal.to_owned()), ..request("trips", name, partitions) }
}

async fn submitted(bed: &Bed, principal: &str, month: u32) -> RunId {
    let partition = format!("month={principal}-{month:02}");
    submit(&*bed.store, &of(principal, &format!("{principal}-{month}"), &[&partition])).await.id
}

/// Whose run is claimed next.
async fn next(bed: &Bed) -> (String, Claimed) {
    let claimed = try_claim(bed).await.unwrap();
    (claimed.run.principal.0.clone(), claimed)
}

pub(crate) async fn principals_take_turns(bed: &Bed) {
    for month in 1..=6 {
        submitted(bed, "a", month).await;
    }
    let mut order = Vec::new();
    for _ in 0..2 {
        order.push(next(bed).await.0);
    }
    for month in 1..=2 {
        submitted(bed, "b", month).await;
    }
    for _ in 0..3 {
        order.push(next(bed).await.0);
    }
    submitted(bed, "c", 1).await;
    for _ in 0..4 {
        order.push(next(bed).await.0);
    }
    assert_eq!(order, ["a", "a", "b", "a", "b", "c", "a", "a", "a"]);
    nothing_to_claim(bed).await;
}

pub(crate) async fn a_priority_counts_among_ones_own_runs(bed: &Bed) {
    for (month, priority) in [(1, 0), (2, 100), (3, 50)] {
        let partition = format!("month=a-{month:02}");
        let mut asked = of("a", &format!("a-{month}"), &[&partition]);
        asked.asked.priority = priority;
        submit(&*bed.store, &asked).await;
    }
    submitted(bed, "b", 1).await;
    submitted(bed, "b", 2).await;
    let mut order = Vec::new();
    for _ in 0..5 {
        order.push(next(bed).await.1.run.idempotency_key.as_str().to_owned());
    }
    assert_eq!(order, ["a-2", "b-1", "a-3", "b-2", "a-1"]);
}

pub(crate) async fn a_turn_overtakes_no_run_that_overlaps(bed: &Bed) {
    const SHARED: &str = "month=2024-01";
    let first = submit(&*bed.store, &of("a", "first", &[SHARED])).await.id;
    let second = submit(&*bed.store, &of("a", "second", &[SHARED, "month=2024-02"])).await.id;
    let other = submit(&*bed.store, &of("a", "other", &["month=2024-09"])).await.id;
    let third = submit(&*bed.store, &of("b", "third", &["month=2024-02"])).await.id;
    let held = try_claim(bed).await.unwrap();
    assert_eq!(held.run.id, first);
    // It is b's turn, but its run waits for a's second one.
    assert_eq!(try_claim(bed).await.unwrap().run.id, other);
    nothing_to_claim(bed).await;
    assert_eq!(bed.store.end_attempt(first, held.token, &failed()).await.unwrap(), Fenced::Done);
    let held = try_claim(bed).await.unwrap();
    assert_eq!(held.run.id, second);
    nothing_to_claim(bed).await;
    assert_eq!(bed.store.end_attempt(second, held.token, &failed()).await.unwrap(), Fenced::Done);
    assert_eq!(try_claim(bed).await.unwrap().run.id, third);
}
