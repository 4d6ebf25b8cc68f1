//! Merges: a decision holds only over the bases that its rows were put into.

use super::bed::Bed;
use super::make::{claim, complete, content, decided, decision, finish, key, publish, run, state, submitted};
use refrain::run::{Base, Decided, Outcome, State};
use refrain::store::{Begun, Claimed, Fenced};

const A: &str = "month=2024-01";
const B: &str = "month=2024-02";
const C: &str = "month=2024-03";

/// The base of a partition that has so many trips.
fn of(trips: u64) -> Base {
    Base::File(content(trips).sha256)
}

/// A partition that becomes so many trips, from this base.
fn merged(partition: &str, trips: u64, base: Base) -> Decided {
    let outcome = if base == Base::Nothing { Outcome::Created } else { Outcome::Replaced };
    Decided { base: Some(base), ..decided(partition, outcome, trips) }
}

async fn begin(bed: &Bed, claimed: &Claimed, partitions: Vec<Decided>) -> Begun {
    bed.store.begin_commit(claimed.run.id, claimed.token, &decision(partitions)).await.unwrap()
}

pub(crate) async fn a_merge_is_decided_over_its_bases_and_no_others(bed: &Bed) {
    publish(bed, "first", vec![decided(A, Outcome::Created, 3)]).await;
    let id = submitted(bed, "a", &[A, B]).await;
    let claimed = claim(bed, id).await;
    for (a, b, changed) in [(Base::Nothing, Base::Nothing, A), (of(4), Base::Nothing, A), (of(3), of(3), B)] {
        let partitions = vec![merged(A, 5, a), merged(B, 6, b)];
        assert_eq!(begin(bed, &claimed, partitions).await, Begun::BaseChanged(key(changed)));
        assert_eq!(state(bed, id).await, State::Running, "nothing is decided");
        let blank = run(bed, id).await;
        assert!(blank.rows.is_none() && blank.partitions.iter().all(|p| p.outcome.is_none() && p.base.is_none()));
    }
    let good = || vec![merged(A, 5, of(3)), merged(B, 6, Base::Nothing)];
    assert_eq!(begin(bed, &claimed, good()).await, Begun::Committing);
    assert_eq!(begin(bed, &claimed, good()).await, Begun::Committing);
    finish(bed, &claimed).await;
    let done = run(bed, id).await;
    let bases: Vec<_> = done.partitions.iter().map(|p| p.base.clone()).collect();
    assert_eq!(bases, [Some(of(3)), Some(Base::Nothing)]);
    // A replay of the same decision is not one, by now.
    let again = submitted(bed, "again", &[A, B]).await;
    let claimed = claim(bed, again).await;
    assert_eq!(begin(bed, &claimed, good()).await, Begun::BaseChanged(key(A)));
}

pub(crate) async fn what_replaces_is_decided_whatever_was_there(bed: &Bed) {
    publish(bed, "first", vec![decided(A, Outcome::Created, 3)]).await;
    let id = submitted(bed, "a", &[A]).await;
    complete(bed, id, vec![decided(A, Outcome::Replaced, 4)]).await;
    assert_eq!(run(bed, id).await.partitions[0].base, None);
}

/// A run whose staging is lost after a part of it went live is computed over what is live by then, and not over what it began
/// with.
pub(crate) async fn lost_staging_leaves_new_bases(bed: &Bed) {
    publish(bed, "first", vec![decided(A, Outcome::Created, 3), decided(B, Outcome::Created, 4)]).await;
    let id = submitted(bed, "a", &[A, B, C]).await;
    let claimed = claim(bed, id).await;
    let first = || vec![merged(A, 5, of(3)), merged(B, 6, of(4)), merged(C, 7, Base::Nothing)];
    assert_eq!(begin(bed, &claimed, first()).await, Begun::Committing);
    assert_eq!(bed.store.staging_lost(id, claimed.token, &[key(A), key(C)]).await.unwrap(), Fenced::Done);
    assert!(run(bed, id).await.partitions.iter().all(|p| p.base.is_none()), "nothing is decided any more");
    let claimed = claim(bed, id).await;
    assert_eq!(begin(bed, &claimed, first()).await, Begun::BaseChanged(key(A)));
    let of_c = vec![merged(A, 5, of(5)), merged(B, 6, of(4)), merged(C, 7, Base::Nothing)];
    assert_eq!(begin(bed, &claimed, of_c).await, Begun::BaseChanged(key(C)));
    let again = vec![merged(A, 5, of(5)), merged(B, 6, of(4)), merged(C, 7, of(7))];
    assert_eq!(begin(bed, &claimed, again).await, Begun::Committing);
    finish(bed, &claimed).await;
}
