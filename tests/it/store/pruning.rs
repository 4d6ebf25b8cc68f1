//! What is old goes, and what is told of the rest stays as it was.

use super::bed::Bed;
use super::history::{Dice, KEYS, some, told};
use super::make::{
    claim, complete, content, decide, decided, definition, fail, finish, key, publish, request, run, submit, submitted,
};
use super::reading::everything;
use super::telling::anything;
use refrain::run::{CatalogEntry, Outcome, Run, RunId, Totals};
use refrain::store::{AsOf, EndedAt, Fenced, Listing, PartitionFilter, Retried, RunFilter, Taken, Then, Tried};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const RUNS: u64 = 60;

/// What is told of a version: the whole listing, and a page of a part of it.
type Told = (i64, Vec<CatalogEntry>, bool, u64, u64, Totals);

/// A run that the test has made, and what it knows of it.
struct Made {
    id: RunId,
    /// How many hours ago it ended.
    age: u64,
    /// The version that it made, if it did.
    version: Option<i64>,
}

/// Runs of an hour each with random outcomes, under two definitions, some of them failed.
async fn make(bed: &Bed) -> Vec<Made> {
    let mut dice = Dice(11);
    let mut held: BTreeMap<&str, u64> = BTreeMap::new();
    let (mut made, mut last) = (Vec::new(), 0);
    for n in 0..RUNS {
        let mut scope = Vec::new();
        let failing = dice.below(8) == 0;
        for key in KEYS {
            if dice.below(3) > 0 {
                continue;
            }
            let trips = dice.below(4);
            let before = if failing { None } else { held.get(key).copied() };
            scope.push(match (before, trips) {
                (None, 0) => decided(key, Outcome::Empty, 0),
                (None, _) => decided(key, Outcome::Created, trips),
                (Some(_), 0) => decided(key, Outcome::Cleared, 0),
                (Some(before), _) if before == trips || dice.below(2) == 0 => decided(key, Outcome::Unchanged, before),
                (Some(_), _) => decided(key, Outcome::Replaced, trips),
            });
        }
        if scope.is_empty() {
            continue;
        }
        let keys: Vec<&str> = scope.iter().map(|d| d.partition.as_str()).collect();
        let mut asked = request("trips", &format!("run-{n}"), &keys);
        asked.definition = definition("trips", u32::try_from(dice.below(8) / 7).unwrap());
        let id = submit(&*bed.store, &asked).await.id;
        if failing {
            fail(bed, id).await;
        } else {
            for one in &scope {
                match &one.content {
                    Some(content) => {
                        held.insert(KEYS.into_iter().find(|k| *k == one.partition.as_str()).unwrap(), content.rows)
                    }
                    None => held.remove(one.partition.as_str()),
                };
            }
            complete(bed, id, scope).await;
        }
        let now = bed.store.table_version("trips").await.unwrap();
        made.push(Made { id, age: 0, version: (now > last).then_some(now) });
        last = now;
        bed.age(HOUR).await;
        made.iter_mut().for_each(|run| run.age += 1);
    }
    made
}

/// Prunes all there is to prune, in pages of a few runs; how many runs that were.
async fn prune(bed: &Bed, kept: Duration) -> u64 {
    while bed.store.prune_version(kept).await.unwrap() {}
    let (mut pruned, mut after) = (0, Some(EndedAt::default()));
    while let Some(from) = after {
        let page = bed.store.prunable(kept, from, 3).await.unwrap();
        let ids: Vec<RunId> = page.runs.iter().map(|run| run.id).collect();
        pruned += bed.store.prune_runs(kept, &ids).await.unwrap();
        after = page.next;
    }
    pruned
}

async fn as_of(bed: &Bed, version: i64, filter: PartitionFilter) -> Listing {
    bed.store.partitions("trips", &PartitionFilter { as_of: Some(version), ..filter }).await.unwrap()
}

/// All that is told of the versions from `first` on.
async fn tell(bed: &Bed, first: i64, last: i64) -> BTreeMap<i64, [Told; 2]> {
    let mut all = BTreeMap::new();
    for version in first..=last {
        let [whole, part] = [as_of(bed, version, everything()).await, as_of(bed, version, some()).await];
        all.insert(version, [told(&whole), told(&part)]);
    }
    all
}

/// The runs that the store has.
async fn all_runs(bed: &Bed) -> BTreeMap<RunId, Run> {
    let listed = bed.store.list(&RunFilter { limit: 1000, ..RunFilter::default() }).await.unwrap();
    let mut runs = BTreeMap::new();
    for summary in listed {
        runs.insert(summary.id, run(bed, summary.id).await);
    }
    runs
}

/// The runs that the catalog, or its history, names.
async fn referred_to(bed: &Bed) -> BTreeSet<RunId> {
    let mut named = BTreeSet::new();
    for partition in KEYS {
        let (entry, changes) = bed.store.partition("trips", &key(partition), None, 1000).await.unwrap();
        named.extend(entry.iter().flat_map(|entry| [Some(entry.run_id), entry.confirmed_by]).flatten());
        named.extend(changes.iter().map(|change| change.run_id));
    }
    named
}

/// At random cuts: each version that was current then or later is told as before, no older one is, and of the runs that ended
/// before stay those that something refers to.
pub(crate) async fn what_is_pruned_is_told_no_more_and_all_else_as_before(bed: &Bed) {
    let mut made = make(bed).await;
    let last = bed.store.table_version("trips").await.unwrap();
    assert!(last > 20, "{last} versions are too few to tell");
    let now = told(&bed.store.partitions("trips", &everything()).await.unwrap());
    let (mut first, mut pruned) = (0, 0);
    for hours in [200, 50, 38, 37, 20, 5, 1, 0] {
        let kept = HOUR * hours + HOUR / 2;
        let (before, runs) = (tell(bed, first, last).await, all_runs(bed).await);
        pruned += prune(bed, kept).await;
        let old = made.iter().filter(|run| run.age > u64::from(hours));
        let expected = old.filter_map(|run| run.version).max().unwrap_or(0);
        let listing = bed.store.partitions("trips", &everything()).await.unwrap();
        assert_eq!((listing.history_from, told(&listing)), (expected, now.clone()), "after {hours} hours");
        for version in 0..expected {
            assert!(as_of(bed, version, everything()).await.history_from > version, "version {version}");
        }
        first = expected;
        for (version, then) in tell(bed, first, last).await {
            assert_eq!(&then, &before[&version], "version {version} after {hours} hours");
        }
        let named = referred_to(bed).await;
        made.retain(|run| run.age <= u64::from(hours) || named.contains(&run.id));
        let left = all_runs(bed).await;
        assert_eq!(
            left.keys().collect::<BTreeSet<_>>(),
            made.iter().map(|run| &run.id).collect(),
            "after {hours} hours"
        );
        for (id, run) in left {
            assert_eq!(&run, &runs[&id], "a run that stays is told as before");
        }
    }
    assert_eq!(first, last, "nothing is left but what the table is");
    assert!(pruned > 20, "{pruned} runs are too few to tell");
    assert_eq!(prune(bed, HOUR / 2).await, 0, "there is nothing more");
}

pub(crate) async fn a_run_goes_with_all_of_it_and_its_key_is_free(bed: &Bed) {
    let mut asked = request("trips", "old", &[KEYS[0], KEYS[1]]);
    asked.asked.labels = [("team".to_owned(), "fares".to_owned())].into();
    let old = submit(&*bed.store, &asked).await.id;
    let both = [KEYS[0], KEYS[1]].map(|key| decided(key, Outcome::Created, 1)).to_vec();
    complete(bed, old, both).await;
    bed.age(HOUR).await;
    publish(bed, "new", [KEYS[0], KEYS[1]].map(|key| decided(key, Outcome::Replaced, 2)).to_vec()).await;
    assert_eq!(prune(bed, HOUR / 2).await, 0, "what it had made was still there at that time");
    bed.age(HOUR).await;
    let page = bed.store.prunable(HOUR / 2, EndedAt::default(), 10).await.unwrap();
    assert!(page.runs.is_empty(), "the history has it: {page:?}");
    assert_eq!(bed.store.version_as_of("trips", AsOf::Run(old)).await.unwrap(), Some(1));
    while bed.store.prune_version(HOUR / 2).await.unwrap() {}
    let page = bed.store.prunable(HOUR / 2, EndedAt::default(), 10).await.unwrap();
    let [found] = page.runs.as_slice() else { panic!("{page:?}") };
    assert_eq!((found.id, found.partitions, found.quarantine.is_some()), (old, 2, true));
    assert_eq!(bed.store.prune_runs(HOUR / 2, &[old]).await.unwrap(), 1);
    for (table, column) in [
        ("runs", "id"),
        ("run_partitions", "run_id"),
        ("run_labels", "run_id"),
        ("attempts", "run_id"),
        ("reservations", "run_id"),
        ("history", "run_id"),
        ("catalog", "run_id"),
    ] {
        assert_eq!(bed.rows_of(table, column, old).await, 0, "{table}");
    }
    assert_eq!(bed.store.get(old).await.unwrap(), None);
    assert_eq!(bed.store.version_as_of("trips", AsOf::Run(old)).await.unwrap(), None);
    assert!(bed.store.known_key(&asked.principal, &asked.idempotency_key).await.unwrap().is_none());
    let again = submit(&*bed.store, &request("trips", "old", &[KEYS[0]])).await;
    assert_ne!(again.id, old, "the key is free");
    let entry = bed.store.partition("trips", &key(KEYS[0]), None, 10).await.unwrap();
    assert_eq!((entry.0.unwrap().content, entry.1.len()), (content(2), 1));
}

pub(crate) async fn what_has_not_ended_stays(bed: &Bed) {
    let committing = submitted(bed, "committing", &[KEYS[0]]).await;
    let held = claim(bed, committing).await;
    decide(bed, &held, vec![decided(KEYS[0], Outcome::Created, 1)]).await;
    let running = submitted(bed, "running", &[KEYS[1]]).await;
    claim(bed, running).await;
    let queued = submitted(bed, "queued", &[KEYS[0]]).await;
    let ended = submitted(bed, "ended", &[KEYS[2]]).await;
    fail(bed, ended).await;
    bed.age(HOUR * 1000).await;
    assert_eq!(bed.store.prune_runs(HOUR, &[committing, running, queued]).await.unwrap(), 0);
    assert_eq!(prune(bed, HOUR).await, 1, "the one that failed");
    for id in [committing, running, queued] {
        run(bed, id).await;
    }
    finish(bed, &held).await;
    let just_ended = submitted(bed, "just-ended", &[KEYS[3]]).await;
    let _ = bed.store.cancel(just_ended).await.unwrap();
    assert_eq!(prune(bed, HOUR).await, 0);
}

pub(crate) async fn a_run_that_is_queued_again_meanwhile_stays(bed: &Bed) {
    let [retried, gone] = [submitted(bed, "1", &[KEYS[0]]).await, submitted(bed, "2", &[KEYS[1]]).await];
    fail(bed, retried).await;
    fail(bed, gone).await;
    bed.age(HOUR * 2).await;
    let page = bed.store.prunable(HOUR, EndedAt::default(), 10).await.unwrap();
    let ids: Vec<RunId> = page.runs.iter().map(|run| run.id).collect();
    assert_eq!(ids, [retried, gone]);
    let queued = bed.store.retry(retried, None, &definition("trips", 1)).await.unwrap();
    assert!(matches!(queued, Retried::Queued), "{queued:?}");
    assert_eq!(bed.store.prune_runs(HOUR, &ids).await.unwrap(), 1);
    complete(bed, retried, vec![decided(KEYS[0], Outcome::Created, 1)]).await;
    let unknown = bed.store.retry(gone, None, &definition("trips", 1)).await.unwrap();
    assert!(matches!(unknown, Retried::Unknown), "{unknown:?}");
}

pub(crate) async fn a_run_whose_webhook_is_not_told_yet_stays(bed: &Bed) {
    let mut asked = request("trips", "told", &[KEYS[0]]);
    asked.audience.webhooks = vec!["https://hooks.example.org/".to_owned()];
    let id = submit(&*bed.store, &asked).await.id;
    fail(bed, id).await;
    bed.age(HOUR * 2).await;
    let page = bed.store.prunable(HOUR, EndedAt::default(), 10).await.unwrap();
    assert!(page.runs.is_empty(), "it is not offered: {page:?}");
    assert_eq!(bed.store.prune_runs(HOUR, &[id]).await.unwrap(), 0, "nor does it go");
    let claim = anything();
    let Some(Taken::Message(message)) = bed.store.claim_message(&claim).await.unwrap() else { panic!("it is due") };
    let told = Tried { status: Some(204), error: None, then: Then::Delivered };
    assert_eq!(bed.store.message_tried(message.position, claim.token, &told).await.unwrap(), Fenced::Done);
    assert_eq!(prune(bed, HOUR).await, 1, "once it was told it may");
}

pub(crate) async fn pruners_at_once_share_the_work(bed: &Bed) {
    let mut wanted = 0;
    for n in 0..40 {
        let outcome = if n == 0 { Outcome::Created } else { Outcome::Replaced };
        publish(bed, &format!("{n}"), vec![decided(KEYS[0], outcome, n + 1)]).await;
        wanted += 1;
    }
    bed.age(HOUR * 2).await;
    let pruner = |store: std::sync::Arc<dyn refrain::store::RunStore>| async move {
        while store.prune_version(HOUR).await.unwrap() {}
        let page = store.prunable(HOUR, EndedAt::default(), 1000).await.unwrap();
        let ids: Vec<RunId> = page.runs.iter().map(|run| run.id).collect();
        store.prune_runs(HOUR, &ids).await.unwrap()
    };
    let (one, two) = (bed.store.clone(), bed.other.clone());
    let (a, b, c) =
        tokio::join!(tokio::spawn(pruner(one.clone())), tokio::spawn(pruner(two)), tokio::spawn(pruner(one)));
    let rest = prune(bed, HOUR).await;
    assert_eq!(a.unwrap() + b.unwrap() + c.unwrap() + rest, wanted - 1, "each is counted once");
    let listing = bed.store.partitions("trips", &everything()).await.unwrap();
    assert_eq!((listing.history_from, listing.entries[0].content.clone()), (40, content(40)));
}
