//! What a table was: at a version, when a run had finished, at a time; and what became of a run's partitions.

use super::bed::Bed;
use super::make::{complete, content, decided, definition, fail, key, publish, request, run, submit, submitted};
use super::reading::everything;
use refrain::run::{CatalogEntry, Outcome, RunId, Totals};
use refrain::store::{AsOf, Listing, PartitionFilter};
use std::collections::BTreeMap;
use std::time::Duration;

const RUNS: u64 = 200;
pub(super) const KEYS: [&str; 5] =
    ["month=2024-01", "month=2024-02", "month=2024-03", "month=2024-04", "month=2024-05"];

/// Numbers that look random, the same in every run of the test.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// What of a listing stays; who confirmed an entry is not part of a version.
pub(super) fn told(listing: &Listing) -> (i64, Vec<CatalogEntry>, bool, u64, u64, Totals) {
    let mut entries = listing.entries.clone();
    for entry in &mut entries {
        (entry.confirmed_by, entry.confirmed_at) = (None, None);
    }
    (listing.version, entries, listing.more, listing.partitions, listing.rows, listing.totals.clone())
}

/// A page of part of the range: its sum is not over the page.
pub(super) fn some() -> PartitionFilter {
    let (from, until, after) = (Some(key(KEYS[1])), Some(key(KEYS[4])), Some(key(KEYS[1])));
    PartitionFilter { from, until, after, limit: 1, ..PartitionFilter::default() }
}

pub(crate) async fn a_table_as_of_a_version_is_what_its_listing_said(bed: &Bed) {
    let mut dice = Dice(7);
    let mut held: BTreeMap<&str, u64> = BTreeMap::new();
    let mut said = BTreeMap::new();
    let mut made: Vec<(RunId, i64)> = Vec::new();
    let mut last = 0;
    for n in 0..=RUNS {
        for filter in [everything(), some()] {
            let listing = bed.store.partitions("trips", &filter).await.unwrap();
            last = listing.version;
            let key = (last, filter.limit);
            let now = told(&listing);
            assert_eq!(said.entry(key).or_insert_with(|| now.clone()), &now, "a version is never two things");
        }
        if n == RUNS {
            break;
        }
        let mut scope = Vec::new();
        for key in KEYS {
            if dice.below(2) == 0 {
                continue;
            }
            let before = held.get(key).copied();
            let trips = dice.below(4);
            let outcome = match (before, trips) {
                (None, 0) => Outcome::Empty,
                (Some(_), 0) => Outcome::Cleared,
                (None, _) => Outcome::Created,
                (Some(before), trips) if before == trips => Outcome::Unchanged,
                (Some(_), _) => Outcome::Replaced,
            };
            if trips == 0 {
                held.remove(key)
            } else {
                held.insert(key, trips)
            };
            scope.push(decided(key, outcome, trips));
        }
        if scope.is_empty() {
            continue;
        }
        let keys: Vec<&str> = scope.iter().map(|d| d.partition.as_str()).collect();
        let mut asked = request("trips", &format!("run-{n}"), &keys);
        asked.definition = definition("trips", u32::try_from(dice.below(8) / 7).unwrap());
        let id = submit(&*bed.store, &asked).await.id;
        complete(bed, id, scope).await;
        made.push((id, bed.store.table_version("trips").await.unwrap()));
    }
    assert!(last > 50 && said.len() > 100, "{last} versions are too few to tell");
    for ((version, limit), then) in &said {
        let filter = if *limit == 1 { some() } else { everything() };
        let filter = PartitionFilter { as_of: Some(*version), ..filter };
        let found = told(&bed.store.partitions("trips", &filter).await.unwrap());
        assert_eq!(&found, then, "as of version {version}");
    }
    let mut before = 0;
    for (id, version) in made {
        // By the clock of SQLite's test all runs finish at the same time: only those that made a version are told apart.
        if version > before {
            assert_eq!(bed.store.version_as_of("trips", AsOf::Run(id)).await.unwrap(), Some(version));
        }
        before = version;
    }
}

pub(crate) async fn a_moment_is_a_version(bed: &Bed) {
    let as_of = async |moment| bed.store.version_as_of("trips", moment).await.unwrap();
    assert_eq!(as_of(AsOf::Version(0)).await, Some(0));
    assert_eq!(as_of(AsOf::Version(1)).await, None);
    let nothing = publish(bed, "0", vec![decided(KEYS[0], Outcome::Empty, 0)]).await;
    assert_eq!(as_of(AsOf::Run(nothing)).await, Some(0), "it found a table that was never written");
    let first = publish(bed, "1", vec![decided(KEYS[0], Outcome::Created, 1)]).await;
    bed.pass(Duration::from_millis(20)).await;
    let second = publish(bed, "2", vec![decided(KEYS[0], Outcome::Replaced, 2)]).await;
    bed.pass(Duration::from_millis(20)).await;
    let same = publish(bed, "3", vec![decided(KEYS[0], Outcome::Unchanged, 2)]).await;
    bed.pass(Duration::from_millis(20)).await;
    let third = publish(bed, "4", vec![decided(KEYS[0], Outcome::Cleared, 0)]).await;
    for (run, version) in [(first, 1), (second, 2), (same, 2), (third, 3)] {
        assert_eq!(as_of(AsOf::Run(run)).await, Some(version), "{version}");
    }
    for (at, version) in [(first, 1), (second, 2), (same, 2), (third, 3)] {
        let ended = run(bed, at).await.ended_at.unwrap();
        assert_eq!(as_of(AsOf::Time(ended)).await, Some(version), "at its very end");
        if at != same {
            let before = ended - chrono::TimeDelta::microseconds(1);
            assert_eq!(
                as_of(AsOf::Time(before)).await,
                Some(version - 1).filter(|version| *version > 0),
                "a moment before"
            );
        }
    }
    assert_eq!(as_of(AsOf::Version(3)).await, Some(3));
    assert_eq!(as_of(AsOf::Version(4)).await, None, "it never was");
    assert_eq!(as_of(AsOf::Version(-1)).await, None);
    assert_eq!(as_of(AsOf::Run(RunId::new())).await, None);
    assert_eq!(bed.store.version_as_of("fares", AsOf::Run(first)).await.unwrap(), None, "it is of another table");
    let failed = submitted(bed, "5", &[KEYS[0]]).await;
    assert_eq!(as_of(AsOf::Run(failed)).await, None);
    fail(bed, failed).await;
    assert_eq!(as_of(AsOf::Run(failed)).await, None);
}

pub(crate) async fn a_partitions_history_is_paged_and_says_who(bed: &Bed) {
    for n in 1..=5 {
        let outcome = if n == 1 { Outcome::Created } else { Outcome::Replaced };
        publish(bed, &n.to_string(), vec![decided(KEYS[0], outcome, n)]).await;
    }
    let page = async |before| bed.store.partition("trips", &key(KEYS[0]), before, 2).await.unwrap();
    let mut seen = Vec::new();
    let mut before = None;
    loop {
        let (entry, changes) = page(before).await;
        assert_eq!(entry.map(|entry| entry.content), Some(content(5)));
        let Some(last) = changes.last() else { break };
        before = Some(last.version);
        assert!(changes.iter().all(|change| change.principal.0 == "default"), "{changes:?}");
        seen.extend(changes.iter().map(|change| (change.version, change.content.as_ref().unwrap().rows)));
    }
    assert_eq!(seen, [(5, 5), (4, 4), (3, 3), (2, 2), (1, 1)]);
}

pub(crate) async fn a_run_says_what_has_superseded_it(bed: &Bed) {
    let [a, b, c] = [KEYS[0], KEYS[1], KEYS[2]];
    let superseded = async |id| -> Vec<Option<RunId>> {
        run(bed, id).await.partitions.iter().map(|partition| partition.superseded_by).collect()
    };
    let first = publish(
        bed,
        "1",
        vec![decided(a, Outcome::Created, 1), decided(b, Outcome::Created, 1), decided(c, Outcome::Empty, 0)],
    )
    .await;
    assert_eq!(superseded(first).await, [None; 3]);
    let same = publish(bed, "2", vec![decided(a, Outcome::Unchanged, 1)]).await;
    assert_eq!(superseded(first).await, [None; 3], "what was found unchanged is as it was left");
    let mut moved = request("trips", "moved", &[b]);
    moved.definition = definition("trips", 2);
    complete(bed, submit(&*bed.store, &moved).await.id, vec![decided(b, Outcome::Unchanged, 1)]).await;
    assert_eq!(bed.store.table_version("trips").await.unwrap(), 2, "its definition makes a version");
    assert_eq!(superseded(first).await, [None; 3], "and is no other content");
    let failed = submitted(bed, "failed", &[a]).await;
    fail(bed, failed).await;
    let second = publish(bed, "3", vec![decided(a, Outcome::Replaced, 2), decided(c, Outcome::Created, 1)]).await;
    assert_eq!(superseded(first).await, [Some(second), None, Some(second)]);
    assert_eq!(superseded(same).await, [Some(second)], "it vouched for what is gone");
    assert_eq!(superseded(failed).await, [None], "it left nothing that could be");
    let third = publish(bed, "4", vec![decided(a, Outcome::Cleared, 0)]).await;
    assert_eq!(superseded(first).await, [Some(third), None, Some(second)], "the last one is told");
    assert_eq!(superseded(second).await, [Some(third), None]);
    assert_eq!(superseded(third).await, [None]);
}
