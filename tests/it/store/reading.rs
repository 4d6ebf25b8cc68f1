//! What the store answers: listings, totals, pages, verdicts, counts, wake-ups.

use super::bed::Bed;
use super::make::{
    LEASE, claim, content, decide, decided, definition, ended, fail, failed, finish, key, publish, quarantine, request,
    run, submit, submitted,
};
use refrain::run::{
    AttemptOutcome, ClaimToken, Outcome, Part, Progress, QuarantineFile, RunId, Stage, State, TableSum, Totals,
};
use refrain::store::{
    Change, Ended, Fenced, Glance, Listing, PartitionFilter, QueueDepth, Renewal, Retried, RunFilter, StagingVerdict,
};
use std::time::Duration;
use tokio::sync::broadcast;

/// The whole table on one page.
pub(crate) fn everything() -> PartitionFilter {
    PartitionFilter { limit: 1000, ..PartitionFilter::default() }
}

pub(crate) async fn the_database_has_an_identity_and_one_warehouse(bed: &Bed) {
    bed.store.ping().await.unwrap();
    let id = bed.store.database_id().await.unwrap();
    assert_eq!(bed.other.database_id().await.unwrap(), id);
    assert!(!id.is_nil());
    assert_eq!(bed.store.warehouse_id().await.unwrap(), None);
    let (first, second) = (uuid::Uuid::new_v4(), uuid::Uuid::new_v4());
    assert_eq!(bed.store.bind_warehouse(first).await.unwrap(), first);
    assert_eq!(bed.other.bind_warehouse(second).await.unwrap(), first, "one is bound");
    assert_eq!(bed.store.warehouse_id().await.unwrap(), Some(first));
}

fn keys(listing: &Listing) -> Vec<&str> {
    listing.entries.iter().map(|e| e.partition.as_str()).collect()
}

pub(crate) async fn totals_are_over_the_range_and_not_over_the_page(bed: &Bed) {
    let months: Vec<_> = (1..=5).map(|n| decided(&format!("month=2024-0{n}"), Outcome::Created, n)).collect();
    publish(bed, "1", months).await;
    let list = async |filter: PartitionFilter| bed.store.partitions("trips", &filter).await.unwrap();
    let all = list(everything()).await;
    assert_eq!((all.version, all.partitions, all.rows, all.more), (1, 5, 15, false));
    assert_eq!(all.entries.len(), 5);
    assert_eq!(all.entries[2].content, content(3));
    let part = |n| Part { rows: n, totals: content(n).totals };
    let expected = (1..=5).fold(TableSum::default(), |sum, n| sum.with(&part(n)).unwrap());
    assert_eq!(all.totals, expected.totals());
    let page = list(PartitionFilter { limit: 2, after: Some(key("month=2024-01")), ..everything() }).await;
    assert_eq!((keys(&page), page.more), (vec!["month=2024-02", "month=2024-03"], true));
    assert_eq!((page.partitions, page.rows, &page.totals), (5, 15, &all.totals));
    let last = list(PartitionFilter { limit: 2, after: Some(key("month=2024-03")), ..everything() }).await;
    assert_eq!((keys(&last), last.more), (vec!["month=2024-04", "month=2024-05"], false));
    let (from, until) = (Some(key("month=2024-02")), Some(key("month=2024-04")));
    let range = list(PartitionFilter { from, until, ..everything() }).await;
    assert_eq!((keys(&range), range.partitions, range.rows), (vec!["month=2024-02", "month=2024-03"], 2, 5));
    let none = bed.store.partitions("fares", &everything()).await.unwrap();
    assert_eq!((none.version, none.partitions, none.rows, none.more), (0, 0, 0, false));
    assert_eq!(none.totals, Totals::default());
}

pub(crate) async fn keys_are_ordered_byte_by_byte(bed: &Bed) {
    let mut names = ["p=Z", "p=a", "p=é", "p=A", "p=a-b", "p=ab", "p=a b", "p=_", "p=10", "p=9", "p=日"];
    publish(bed, "1", names.iter().map(|name| decided(name, Outcome::Created, 1)).collect()).await;
    names.sort_unstable();
    let all = bed.store.partitions("trips", &everything()).await.unwrap();
    assert_eq!(keys(&all), names);
    let entries = bed.store.entries("trips", None).await.unwrap();
    assert!(entries.iter().map(|e| e.partition.as_str()).eq(names));
    let filter = PartitionFilter { from: Some(key("p=Z")), until: Some(key("p=a-b")), ..everything() };
    assert_eq!(keys(&bed.store.partitions("trips", &filter).await.unwrap()), ["p=Z", "p=_", "p=a", "p=a b"]);
    let run_id = all.entries[0].run_id;
    assert!(run(bed, run_id).await.partitions.iter().map(|p| p.partition.as_str()).eq(names));
}

pub(crate) async fn a_partition_is_told_with_its_history(bed: &Bed) {
    publish(bed, "1", vec![decided("p=1", Outcome::Created, 1), decided("p=10", Outcome::Created, 10)]).await;
    let partition = async |limit| bed.store.partition("trips", &key("p=1"), None, limit).await.unwrap();
    let (entry, history) = partition(100).await;
    assert_eq!((entry.unwrap().content, history.len()), (content(1), 1));
    publish(bed, "2", vec![decided("p=1", Outcome::Cleared, 0)]).await;
    let (entry, history) = partition(100).await;
    assert_eq!((entry, history.len(), partition(1).await.1.len()), (None, 2, 1));
    let (entry, history) = bed.store.partition("fares", &key("p=1"), None, 100).await.unwrap();
    assert_eq!((entry, history.len()), (None, 0));
    assert_eq!(bed.store.table_version("trips").await.unwrap(), 2);
    assert_eq!(bed.store.table_version("fares").await.unwrap(), 0);
}

pub(crate) async fn the_last_attempts_are_told(bed: &Bed) {
    let id = submitted(bed, "a", &["p=1"]).await;
    for _ in 0..102 {
        let claimed = claim(bed, id).await;
        let release = ended(AttemptOutcome::Released, None, None);
        assert_eq!(bed.store.end_attempt(id, claimed.token, &release).await.unwrap(), Fenced::Done);
    }
    let claimed = claim(bed, id).await;
    assert_eq!((claimed.attempt, claimed.run.attempts.len()), (103, 100));
    let numbers: Vec<_> = run(bed, id).await.attempts.iter().map(|a| a.number).collect();
    assert_eq!(numbers, (4..=103).collect::<Vec<_>>());
    let summary = bed.store.list(&RunFilter { limit: 1, ..RunFilter::default() }).await.unwrap().remove(0);
    assert_eq!(summary.attempts, 103);
}

pub(crate) async fn glances_tell_what_changes_of_runs(bed: &Bed) {
    let (failed, queued) = (submitted(bed, "a", &["p=1"]).await, submitted(bed, "b", &["p=2"]).await);
    fail(bed, failed).await;
    let mut found = bed.store.glances(&[queued, RunId::new(), failed]).await.unwrap();
    found.sort_by_key(|glance| glance.state == State::Failed);
    let told = |g: &Glance| (g.id, g.state, g.attempt, g.error.is_some(), g.progress.is_some());
    assert_eq!(
        found.iter().map(told).collect::<Vec<_>>(),
        [(queued, State::Queued, 0, false, false), (failed, State::Failed, 1, true, true),]
    );
    let definition = request("trips", "a", &["p=1"]).definition;
    assert!(matches!(bed.store.retry(failed, None, &definition).await.unwrap(), Retried::Queued));
    let again = bed.store.glances(&[failed]).await.unwrap().remove(0);
    assert_eq!((again.state, again.attempt), (State::Queued, 1));
    assert!(again.sequence > found[1].sequence, "a retry by request takes a new place");
    assert!(bed.store.glances(&[]).await.unwrap().is_empty());
}

pub(crate) async fn entries_are_those_asked_for(bed: &Bed) {
    publish(bed, "1", vec![decided("p=1", Outcome::Created, 1), decided("p=2", Outcome::Created, 2)]).await;
    let asked = [key("p=2"), key("p=3"), key("p=\"2\"")];
    let found = bed.store.entries("trips", Some(&asked)).await.unwrap();
    assert_eq!(found.iter().map(|e| e.content.rows).collect::<Vec<_>>(), [2]);
    assert!(bed.store.entries("trips", Some(&[])).await.unwrap().is_empty());
    assert!(bed.store.entries("fares", None).await.unwrap().is_empty());
}

pub(crate) async fn listings_are_newest_first_and_filtered(bed: &Bed) {
    let first = publish(bed, "first", vec![decided("p=1", Outcome::Created, 1)]).await;
    let failed = submitted(bed, "failed", &["p=1", "p=2"]).await;
    fail(bed, failed).await;
    let fares = submit(&*bed.store, &request("fares", "fares", &["p=1"])).await.id;
    let last = submitted(bed, "last", &["p=2"]).await;
    let list = async |filter: RunFilter| {
        let limit = if filter.limit == 0 { 100 } else { filter.limit };
        let found = bed.store.list(&RunFilter { limit, ..filter }).await.unwrap();
        found.iter().map(|s| s.id).collect::<Vec<_>>()
    };
    let all = RunFilter::default;
    assert_eq!(list(all()).await, [last, fares, failed, first]);
    assert_eq!(list(RunFilter { limit: 2, ..all() }).await, [last, fares]);
    assert_eq!(list(RunFilter { before: Some(fares), ..all() }).await, [failed, first]);
    let trips = || RunFilter { pipeline: Some("trips".to_owned()), ..all() };
    assert_eq!(list(trips()).await, [last, failed, first]);
    assert_eq!(list(RunFilter { state: Some(State::Queued), ..all() }).await, [last, fares]);
    assert_eq!(list(RunFilter { state: Some(State::Queued), ..trips() }).await, [last]);
    assert_eq!(list(RunFilter { state: Some(State::Failed), ..trips() }).await, [failed]);
    let on = |p: &str| RunFilter { partition: Some(key(p)), ..all() };
    assert_eq!(list(on("p=1")).await, [fares, failed, first]);
    assert_eq!(list(RunFilter { pipeline: Some("trips".to_owned()), ..on("p=1") }).await, [failed, first]);
    assert_eq!(list(RunFilter { before: Some(failed), ..on("p=1") }).await, [first]);
    assert_eq!(list(RunFilter { state: Some(State::Queued), limit: 1, ..on("p=2") }).await, [last]);
    let (since, until) = (run(bed, first).await.created_at, run(bed, last).await.created_at);
    let between = RunFilter { created_after: Some(since), created_before: Some(until), ..all() };
    assert_eq!(list(between).await, [fares, failed]);
}

pub(crate) async fn a_summary_sums_up_its_run(bed: &Bed) {
    let id = submitted(bed, "key-1", &["p=1", "p=2"]).await;
    fail(bed, id).await;
    let summary = bed.store.list(&RunFilter { limit: 1, ..RunFilter::default() }).await.unwrap().remove(0);
    let run = run(bed, id).await;
    assert_eq!((summary.id, summary.pipeline, summary.idempotency_key), (id, run.pipeline, run.idempotency_key));
    assert_eq!((summary.mode, summary.state, summary.partitions, summary.attempts), (run.mode, run.state, 2, 1));
    assert_eq!((summary.error, summary.created_at), (run.error, run.created_at));
    assert_eq!((summary.started_at, summary.ended_at), (run.started_at, run.ended_at));
}

pub(crate) async fn staging_is_kept_for_who_may_need_it(bed: &Bed) {
    let verdicts = async |folders: &[(RunId, Option<ClaimToken>)]| bed.store.staging_verdicts(folders).await.unwrap();
    let id = submitted(bed, "a", &["p=1"]).await;
    let lost = claim(bed, id).await;
    bed.pass(LEASE).await;
    let decider = claim(bed, id).await;
    use StagingVerdict::{Keep, Remove, Unknown};
    let (by, lost_by) = (Some(decider.token), Some(lost.token));
    let folders = [(RunId::new(), by), (id, by), (id, lost_by), (id, Some(ClaimToken::new())), (id, None)];
    assert_eq!(verdicts(&folders).await, [Unknown, Keep, Remove, Remove, Keep]);
    decide(bed, &decider, vec![decided("p=1", Outcome::Created, 1)]).await;
    bed.pass(LEASE).await;
    let finisher = claim(bed, id).await;
    let folders = [(id, by), (id, Some(finisher.token)), (id, lost_by), (id, None)];
    assert_eq!(verdicts(&folders).await, [Keep, Keep, Remove, Keep]);
    finish(bed, &finisher).await;
    assert_eq!(verdicts(&folders).await, [Remove, Remove, Remove, Remove]);
    assert_eq!(verdicts(&[]).await, []);
}

pub(crate) async fn rows_kept_apart_stay_while_a_record_names_them(bed: &Bed) {
    let verdicts = async |files: &[QuarantineFile]| bed.store.quarantine_verdicts(files).await.unwrap();
    let file = |run, token, name: &str| QuarantineFile { run, token, path: quarantine(name).path };
    use StagingVerdict::{Keep, Remove, Unknown};
    let id = submitted(bed, "a", &["p=1"]).await;
    let lost = claim(bed, id).await;
    bed.pass(LEASE).await;
    let first = claim(bed, id).await;
    let files = [
        file(RunId::new(), first.token, "first"),
        file(id, lost.token, "lost"),
        file(id, first.token, "first"),
        file(id, ClaimToken::new(), "nobody"),
    ];
    assert_eq!(verdicts(&files).await, [Unknown, Remove, Keep, Remove]);
    let rejected = Ended { quarantine: Some(quarantine("first")), ..failed() };
    assert_eq!(bed.store.end_attempt(id, first.token, &rejected).await.unwrap(), Fenced::Done);
    assert_eq!(run(bed, id).await.quarantine, Some(quarantine("first")));
    assert_eq!(verdicts(&files).await, [Unknown, Remove, Keep, Remove]);

    // An attempt that does not get so far leaves it, one that does takes its place.
    let _ = bed.store.retry(id, None, &definition("trips", 1)).await.unwrap();
    let again = Ended { retry_after: Some(Duration::ZERO), ..failed() };
    let second = claim(bed, id).await;
    assert_eq!(bed.store.end_attempt(id, second.token, &again).await.unwrap(), Fenced::Done);
    assert_eq!(run(bed, id).await.quarantine, Some(quarantine("first")));
    let third = claim(bed, id).await;
    decide(bed, &third, vec![decided("p=1", Outcome::Created, 1)]).await;
    let files = [file(id, first.token, "first"), file(id, third.token, "decided"), file(id, third.token, "other")];
    assert_eq!(verdicts(&files).await, [Remove, Keep, Remove]);
    finish(bed, &third).await;
    assert_eq!(run(bed, id).await.quarantine, Some(quarantine("decided")));
    assert_eq!(verdicts(&files).await, [Remove, Keep, Remove]);
    assert_eq!(verdicts(&[]).await, []);
}

pub(crate) async fn the_queue_is_counted(bed: &Bed) {
    assert_eq!(bed.store.queue_depth().await.unwrap(), QueueDepth::default());
    let ids: Vec<_> = [submitted(bed, "a", &["p=1"]).await, submitted(bed, "b", &["p=2"]).await].into();
    submitted(bed, "c", &["p=1"]).await;
    let first = claim(bed, ids[0]).await;
    claim(bed, ids[1]).await;
    decide(bed, &first, vec![decided("p=1", Outcome::Created, 1)]).await;
    bed.pass(LEASE).await;
    let depth = bed.store.queue_depth().await.unwrap();
    assert_eq!((depth.queued, depth.scheduled, depth.running, depth.committing), (1, 0, 1, 1));
    assert!(depth.oldest_due.unwrap() >= LEASE, "{depth:?}");
    let [trips] = depth.pipelines.as_slice() else { panic!("{depth:?}") };
    assert_eq!((trips.pipeline.as_str(), trips.due, trips.oldest_due), ("trips", 1, depth.oldest_due));
    assert_eq!(trips.last_success, None);
    finish(bed, &first).await;
    let (first, mut later) = (run(bed, ids[0]).await, request("other", "later", &["p=1"]));
    later.asked.not_before = Some(first.created_at + LEASE * 1000);
    submit(&*bed.store, &later).await;
    let depth = bed.store.queue_depth().await.unwrap();
    assert_eq!((depth.queued, depth.scheduled), (2, 1));
    let of = |depth: &QueueDepth| -> Vec<_> {
        depth.pipelines.iter().map(|one| (one.pipeline.clone(), one.due, one.last_success)).collect()
    };
    assert_eq!(of(&depth), [("other".to_owned(), 0, None), ("trips".to_owned(), 1, first.ended_at)]);
}

/// The next change that is of this kind; the others are passed over.
async fn heard(changes: &mut broadcast::Receiver<Change>, expected: Change) {
    let waiting = async { while changes.recv().await.unwrap() != expected {} };
    let heard = tokio::time::timeout(std::time::Duration::from_secs(20), waiting).await;
    assert!(heard.is_ok(), "nobody told of {expected:?}");
}

pub(crate) async fn changes_are_told_to_every_server(bed: &Bed) {
    let (mut here, mut there) = (bed.store.changes(), bed.other.changes());
    // On Postgres the other server first has to listen; it says so with a wake-up of its own.
    let asked = request("trips", "a", &["p=1"]);
    let listening = async {
        for n in 0..100 {
            submit(&*bed.store, &request("probe", &format!("probe-{n}"), &["p=1"])).await;
            let wait = tokio::time::timeout(std::time::Duration::from_millis(200), there.recv());
            if let Ok(Ok(Change::Run(_))) = wait.await {
                return true;
            }
        }
        false
    };
    assert!(listening.await, "the other server hears nothing");
    let id = submit(&*bed.store, &asked).await.id;
    for changes in [&mut here, &mut there] {
        heard(changes, Change::Run(id)).await;
        heard(changes, Change::Queue).await;
    }
    let claimed = loop {
        let claimed = super::make::try_claim(bed).await.unwrap();
        if claimed.run.id == id {
            break claimed;
        }
    };
    let _ = bed.store.cancel(id).await.unwrap();
    for changes in [&mut here, &mut there] {
        heard(changes, Change::Held(id)).await;
    }
    let stop = super::make::ended(refrain::run::AttemptOutcome::Cancelled, None, None);
    assert_eq!(bed.store.end_attempt(id, claimed.token, &stop).await.unwrap(), refrain::store::Fenced::Done);
    heard(&mut here, Change::Queue).await;
    heard(&mut there, Change::Queue).await;
    let _ = bed.store.retry(id, None, &definition("trips", 1)).await.unwrap();
    heard(&mut here, Change::Queue).await;
    heard(&mut there, Change::Queue).await;
}

pub(crate) async fn a_holder_hears_of_what_others_do(bed: &Bed) {
    let mut changes = bed.store.changes();
    let mut told = || std::iter::from_fn(|| changes.try_recv().ok()).collect::<Vec<_>>();
    let id = submitted(bed, "a", &["month=2024-01"]).await;
    let progress = Progress::at(Stage::Claimed);
    let mut claimed = claim(bed, id).await;
    for decides in [false, true] {
        assert_eq!(bed.store.renew(id, claimed.token, LEASE, &progress).await.unwrap(), Renewal::Held);
        if decides {
            decide(bed, &claimed, vec![decided("month=2024-01", Outcome::Created, 1)]).await;
        }
        let of_its_own = told();
        assert!(of_its_own.contains(&Change::Run(id)) && !of_its_own.contains(&Change::Held(id)), "{of_its_own:?}");
        bed.pass(Duration::from_secs(3600)).await;
        claimed = super::make::try_claim(bed).await.unwrap();
        assert!(told().contains(&Change::Held(id)), "it is not told that another has it");
    }
}
