//! What tables sum up to is kept, and is what their partitions sum up to.

use super::bed::Bed;
use super::history::{Dice, KEYS};
use super::make::{complete, decided, definition, key, publish, request, submit};
use super::reading::everything;
use refrain::run::{Decided, Fold, Measured, Outcome, Scalar, Totals};
use refrain::store::{Listing, PartitionFilter};
use std::collections::BTreeMap;

const RUNS: u64 = 120;

/// What a listing sums up.
fn summed(listing: &Listing) -> (i64, u64, u64, Totals) {
    (listing.version, listing.partitions, listing.rows, listing.totals.clone())
}

/// The sum as it is kept, and as it is counted: a range is never kept.
async fn both_sums(bed: &Bed) -> [(i64, u64, u64, Totals); 2] {
    let range = PartitionFilter { from: Some(key("month=")), ..everything() };
    let [kept, counted] = [everything(), range]
        .map(|filter| async move { summed(&bed.store.partitions("trips", &filter).await.unwrap()) });
    [kept.await, counted.await]
}

/// A partition with measures of every kind, as one of two definitions has them.
fn holding(partition: &str, outcome: Outcome, dice: &mut Dice, generation: u32) -> Decided {
    let mut decided = decided(partition, outcome, 1 + dice.below(9));
    let Some(content) = &mut decided.content else { return decided };
    let n = i128::from(dice.below(1000)) - 500;
    let some = dice.below(4) > 0;
    let measured =
        |name: &str, fold, value: Scalar| Measured { name: name.to_owned(), fold, value: some.then_some(value) };
    let mut totals = vec![
        measured("revenue", Fold::Add, Scalar::Decimal { unscaled: n, scale: 2 + u8::try_from(generation).unwrap() }),
        measured("huge", Fold::Add, Scalar::Int(if n % 5 == 0 { i128::MAX / 2 } else { n })),
        measured("least", Fold::Min, Scalar::Int(n)),
        measured("last", Fold::Max, Scalar::Text(format!("{n}"))),
        Measured { name: "mean".to_owned(), fold: Fold::None, value: None },
    ];
    if generation == 1 {
        totals.reverse();
        totals.push(measured("more", Fold::Add, Scalar::Int(n)));
    }
    content.totals = Totals(totals);
    decided
}

/// A server of the version before keeps no sum: this is what one that has finished a run leaves.
async fn without_its_sum(bed: &Bed, finishing: impl Future<Output = ()>) {
    bed.past_the_store("create table before as select * from sums").await.unwrap();
    finishing.await;
    for statement in ["delete from sums", "insert into sums select * from before", "drop table before"] {
        bed.past_the_store(statement).await.unwrap();
    }
}

pub(crate) async fn a_kept_sum_is_what_the_partitions_sum_up_to(bed: &Bed) {
    let mut dice = Dice(11);
    let mut held: BTreeMap<&str, ()> = BTreeMap::new();
    let mut last = 0;
    for n in 0..RUNS {
        let generation = u32::try_from(dice.below(8) / 7).unwrap();
        let mut scope = Vec::new();
        for key in KEYS {
            let outcome = match (dice.below(3), held.contains_key(key)) {
                (0, _) => continue,
                (1, true) if dice.below(3) == 0 => Outcome::Cleared,
                (_, true) => Outcome::Replaced,
                (_, false) => Outcome::Created,
            };
            if outcome == Outcome::Cleared {
                held.remove(key)
            } else {
                held.insert(key, ())
            };
            scope.push(holding(key, outcome, &mut dice, generation));
        }
        if scope.is_empty() {
            continue;
        }
        let keys: Vec<&str> = scope.iter().map(|d| d.partition.as_str()).collect();
        let mut asked = request("trips", &format!("run-{n}"), &keys);
        asked.definition = definition("trips", generation);
        let id = submit(&*bed.store, &asked).await.id;
        match dice.below(4) {
            0 => without_its_sum(bed, complete(bed, id, scope)).await,
            _ => complete(bed, id, scope).await,
        }
        let [kept, counted] = both_sums(bed).await;
        assert_eq!(kept, counted, "after run {n}");
        assert_eq!(bed.store.sum_difference("trips").await.unwrap(), None);
        last = kept.0;
    }
    assert!(last > 50, "{last} versions are too few to tell");
}

pub(crate) async fn a_kept_sum_is_believed_and_one_that_is_wrong_is_found_and_mended(bed: &Bed) {
    publish(bed, "1", vec![decided(KEYS[0], Outcome::Created, 3), decided(KEYS[1], Outcome::Created, 4)]).await;
    let right = both_sums(bed).await;
    assert_eq!(right[0], right[1]);
    let wrong = r#"update sums set sum = '{"partitions": 7, "rows": 8, "measures": [], "orders": []}'"#;
    bed.past_the_store(wrong).await.unwrap();
    let [kept, counted] = both_sums(bed).await;
    assert_eq!((kept.1, kept.2), (7, 8), "the contents are not read");
    assert_eq!(counted, right[1]);
    let (kept, counted) = bed.store.sum_difference("trips").await.unwrap().unwrap();
    assert_eq!((kept.rows, counted.rows), (8, 7));
    assert!(bed.store.settle_sum("trips").await.unwrap(), "something else was kept");
    assert_eq!(both_sums(bed).await, right);
    assert!(!bed.store.settle_sum("trips").await.unwrap());
}

pub(crate) async fn a_table_without_a_kept_sum_gets_one(bed: &Bed) {
    assert!(!bed.store.settle_sum("trips").await.unwrap(), "there is no table");
    publish(bed, "1", vec![decided(KEYS[0], Outcome::Created, 3)]).await;
    let right = both_sums(bed).await;
    for gone in ["delete from sums", r#"update sums set sum = '{"of": "a later version"}'"#] {
        bed.past_the_store(gone).await.unwrap();
        assert_eq!(both_sums(bed).await, right);
        assert!(!bed.store.settle_sum("trips").await.unwrap(), "nothing else was kept");
    }
    bed.past_the_store("delete from catalog").await.unwrap();
    let [kept, counted] = both_sums(bed).await;
    assert_eq!((kept, counted.1), (right[0].clone(), 0), "it is kept again");
}
