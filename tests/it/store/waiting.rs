//! Runs that are not to begin before a time, and priorities.

use super::bed::Bed;
use super::make::{
    claim, complete, decided, definition, fail, failed, key, nothing_to_claim, request, run, submit, submitted,
    try_claim,
};
use refrain::run::{OnOverlap, Outcome, Run, RunId, Scope, State};
use refrain::store::{Cancelled, Fenced, NewRun, Retried, RunFilter};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

const A: &str = "month=2024-01";
const B: &str = "month=2024-02";
const C: &str = "month=2024-03";
const D: &str = "month=2024-04";

const HOUR: Duration = Duration::from_secs(3600);

fn in_time(bed: &Bed, name: &str, partitions: &[&str], time: Duration) -> NewRun {
    let mut asked = request("trips", name, partitions);
    asked.asked.not_before = Some(bed.now() + time);
    asked
}

fn of_priority(name: &str, partitions: &[&str], priority: i32) -> NewRun {
    let mut asked = request("trips", name, partitions);
    asked.asked.priority = priority;
    asked
}

async fn later(bed: &Bed, name: &str, partitions: &[&str], time: Duration) -> Run {
    let accepted = submit(&*bed.store, &in_time(bed, name, partitions, time)).await;
    assert!(accepted.state == State::Queued && accepted.sequence < 0, "{accepted:?}");
    accepted
}

/// Whom a run of these partitions would wait for.
async fn in_the_way(bed: &Bed, partitions: &[&str]) -> Vec<RunId> {
    let scope = match partitions {
        [] => Scope::Full,
        keys => Scope::Partitions(keys.iter().map(|text| key(text)).collect()),
    };
    let told = bed.store.overlapping("trips", &scope, 100).await.unwrap();
    told.into_iter().map(|(id, _)| id).collect()
}

pub(crate) async fn before_its_time_a_run_is_in_nobodys_way(bed: &Bed) {
    let waiting = later(bed, "waiting", &[A, B], HOUR).await;
    let full = later(bed, "full", &[], 2 * HOUR).await;
    nothing_to_claim(bed).await;
    assert_eq!(in_the_way(bed, &[]).await, []);
    let mut not_to_wait = request("trips", "not-to-wait", &[A]);
    not_to_wait.asked.on_overlap = OnOverlap::Refuse;
    let first = submit(&*bed.store, &not_to_wait).await.id;
    complete(bed, first, vec![decided(A, Outcome::Created, 1)]).await;
    let whole = submitted(bed, "whole", &[]).await;
    complete(bed, whole, vec![decided(A, Outcome::Unchanged, 1)]).await;
    bed.pass(HOUR).await;
    claim(bed, waiting.id).await;
    let after = submit(&*bed.store, &request("trips", "after", &[B, C])).await;
    let number = run(bed, waiting.id).await.sequence;
    assert!(0 < number && number < after.sequence, "{number} {}", after.sequence);
    nothing_to_claim(bed).await;
    assert_eq!(in_the_way(bed, &[]).await, [waiting.id, after.id]);
    assert!(run(bed, full.id).await.sequence < 0);
    assert_eq!(bed.store.queue_depth().await.unwrap().queued, 2);
}

pub(crate) async fn what_is_due_goes_before_what_comes_after_its_time(bed: &Bed) {
    let same_time = in_time(bed, "second", &[A], 2 * HOUR);
    let second = submit(&*bed.store, &same_time).await.id;
    let mut third = request("trips", "third", &[A]);
    third.asked.not_before = same_time.asked.not_before;
    let third = submit(&*bed.store, &third).await.id;
    let first = later(bed, "first", &[A, B], HOUR).await.id;
    let whole = later(bed, "whole", &[], 3 * HOUR).await.id;
    let elsewhere = later(bed, "elsewhere", &[C], HOUR).await.id;
    let now = submitted(bed, "now", &[A]).await;
    fail(bed, now).await;
    let queued = submitted(bed, "queued", &[A]).await;
    bed.pass(3 * HOUR).await;
    // Nobody has looked since: whoever asks is told what it would be.
    assert_eq!(in_the_way(bed, &[A]).await, [queued, first, second, third, whole]);
    assert_eq!(in_the_way(bed, &[C]).await, [elsewhere, whole]);
    let mut not_to_wait = request("trips", "not-to-wait", &[C]);
    not_to_wait.asked.on_overlap = OnOverlap::Refuse;
    let refused = bed.store.submit(&not_to_wait).await.unwrap();
    assert!(
        matches!(&refused, refrain::store::Submitted::Overlaps(runs) if *runs == [elsewhere, whole]),
        "{refused:?}"
    );
    let after = submitted(bed, "after", &[A]).await;
    let mut numbers = Vec::new();
    for id in [queued, first, elsewhere, second, third, whole, after] {
        numbers.push(run(bed, id).await.sequence);
    }
    assert!(numbers[0] > 0 && numbers.is_sorted(), "{numbers:?}");
    for id in [queued, first, elsewhere, second, third, whole, after] {
        fail(bed, id).await;
    }
}

pub(crate) async fn a_retry_after_the_time_goes_behind_what_is_due(bed: &Bed) {
    let once = submitted(bed, "once", &[A]).await;
    fail(bed, once).await;
    let due = later(bed, "due", &[A], HOUR).await.id;
    bed.pass(HOUR).await;
    assert!(matches!(bed.store.retry(once, None, &definition("trips", 1)).await.unwrap(), Retried::Queued));
    fail(bed, due).await;
    claim(bed, once).await;
}

pub(crate) async fn a_time_that_has_passed_is_now(bed: &Bed) {
    let mut asked = request("trips", "past", &[A]);
    let time = bed.now() - HOUR;
    asked.asked.not_before = Some(time);
    let accepted = submit(&*bed.store, &asked).await;
    assert!(accepted.sequence > 0 && accepted.due_at == accepted.created_at, "{accepted:?}");
    assert_eq!(accepted.asked.not_before, Some(time));
    fail(bed, accepted.id).await;
    assert!(matches!(bed.store.retry(accepted.id, None, &definition("trips", 1)).await.unwrap(), Retried::Queued));
    let again = run(bed, accepted.id).await.sequence;
    assert!(again > accepted.sequence, "{again}");
    claim(bed, accepted.id).await;
}

pub(crate) async fn a_retry_waits_for_the_time_too(bed: &Bed) {
    let waiting = later(bed, "waiting", &[A], HOUR).await.id;
    let before = run(bed, waiting).await;
    assert!(matches!(bed.store.cancel(waiting).await.unwrap(), Cancelled::Now));
    bed.pass(HOUR / 2).await;
    assert!(matches!(bed.store.retry(waiting, None, &definition("trips", 1)).await.unwrap(), Retried::Queued));
    let again = run(bed, waiting).await;
    assert!(again.sequence < before.sequence, "another number is to be taken: {} {}", before.sequence, again.sequence);
    let between = submitted(bed, "between", &[A]).await;
    claim(bed, between).await;
    nothing_to_claim(bed).await;
    bed.pass(HOUR).await;
    assert_eq!(in_the_way(bed, &[A]).await.last(), Some(&waiting));
}

pub(crate) async fn of_due_runs_the_highest_priority_is_claimed_first(bed: &Bed) {
    let mut ids = Vec::new();
    for (name, partition, priority) in [("low", A, -100), ("usual", B, 0), ("high", C, 100), ("usual-2", D, 0)] {
        ids.push(submit(&*bed.store, &of_priority(name, &[partition], priority)).await.id);
    }
    let elsewhere = submit(
        &*bed.store,
        &NewRun {
            asked: refrain::run::Asked {
                pipeline: "fares".to_owned(),
                priority: 50,
                ..request("fares", "x", &[A]).asked
            },
            ..request("fares", "elsewhere", &[A])
        },
    )
    .await
    .id;
    let listed = bed.store.list(&RunFilter { limit: 10, ..RunFilter::default() }).await.unwrap();
    assert_eq!(listed.iter().map(|run| run.priority).collect::<Vec<_>>(), [50, 0, 100, 0, -100]);
    for id in [ids[2], elsewhere, ids[1], ids[3], ids[0]] {
        claim(bed, id).await;
    }
}

pub(crate) async fn a_priority_overtakes_no_run_that_overlaps(bed: &Bed) {
    let held = submitted(bed, "held", &[A]).await;
    let held_by = claim(bed, held).await;
    let low = submit(&*bed.store, &of_priority("low", &[A, B], -1)).await.id;
    let high = submit(&*bed.store, &of_priority("high", &[B, C], 100)).await.id;
    let whole = submit(&*bed.store, &of_priority("whole", &[], 100)).await.id;
    let last = submit(&*bed.store, &of_priority("last", &[D], 100)).await.id;
    nothing_to_claim(bed).await;
    assert_eq!(bed.store.end_attempt(held, held_by.token, &failed()).await.unwrap(), Fenced::Done);
    for id in [low, high, whole, last] {
        let claimed = claim(bed, id).await;
        nothing_to_claim(bed).await;
        assert_eq!(bed.store.end_attempt(id, claimed.token, &failed()).await.unwrap(), Fenced::Done);
    }
}

pub(crate) async fn a_long_queue_of_priorities_and_times_delays_no_claim(bed: &Bed) {
    let running = submitted(bed, "running", &[A]).await;
    let held = claim(bed, running).await;
    let renewed = bed.store.renew(running, held.token, 20 * HOUR, &super::make::progress()).await;
    assert_eq!(renewed.unwrap(), refrain::store::Renewal::Held);
    bed.copy_run(20_000, 20_000).await;
    for statement in [
        "delete from reservations where sequence > 1010000",
        "update runs set sequence = -sequence - 1000000, due_at = due_at + DAY where sequence > 1010000",
        "update runs set priority = sequence % 100 where state = 'queued' and sequence > 0",
        "analyze",
    ] {
        bed.past_the_store(sqlx::AssertSqlSafe(statement.replace("DAY", bed.day()))).await.unwrap();
    }
    let limit = Duration::from_secs(8);
    let since = Instant::now();
    nothing_to_claim(bed).await;
    assert_eq!(bed.store.end_attempt(running, held.token, &failed()).await.unwrap(), Fenced::Done);
    let first = try_claim(bed).await.unwrap();
    assert_eq!(first.run.sequence, 1_000_001, "all overlap, so that the order is that of the numbers");
    let free = submit(&*bed.store, &of_priority("free", &[B], 1)).await.id;
    claim(bed, free).await;
    assert!(since.elapsed() < limit, "looked for {:?}", since.elapsed());
}

/// Many servers look at the queue when the time of several runs has come: each of them takes one number, in the order of
/// their times, before every run that is submitted then.
pub(crate) async fn a_due_run_takes_one_number_however_many_look(bed: &Bed) {
    for round in 0..6 {
        let mut due = vec![RunId::new(); 12];
        for n in 0..due.len() {
            let at = n * 5 % due.len();
            let minutes = Duration::from_secs(60 * at as u64);
            due[at] = later(bed, &format!("{round}/due/{at}"), &[A], HOUR + minutes).await.id;
        }
        bed.pass(2 * HOUR).await;
        let store = |n: usize| Arc::clone(if n.is_multiple_of(2) { &bed.store } else { &bed.other });
        let claims = (0..4).map(|n| {
            let store = store(n);
            tokio::spawn(async move { store.claim(&super::make::claim_request()).await.unwrap() })
        });
        let submissions = (0..8).map(|n| {
            let store = store(n);
            let asked = request("trips", &format!("{round}/new/{n}"), &[A]);
            tokio::spawn(async move { submit(&*store, &asked).await.id })
        });
        let (claims, submissions) =
            futures::future::join(futures::future::join_all(claims), futures::future::join_all(submissions)).await;
        let mut order: Vec<RunId> = Vec::new();
        for claimed in claims.into_iter().filter_map(|claimed| claimed.unwrap()) {
            assert_eq!(bed.store.end_attempt(claimed.run.id, claimed.token, &failed()).await.unwrap(), Fenced::Done);
            order.push(claimed.run.id);
        }
        assert!(order.len() <= 1, "all overlap: {order:?}");
        while let Some(claimed) = try_claim(bed).await {
            assert_eq!(bed.store.end_attempt(claimed.run.id, claimed.token, &failed()).await.unwrap(), Fenced::Done);
            order.push(claimed.run.id);
        }
        assert_eq!(order[..due.len()], due, "round {round}: in the order of their times");
        let new: BTreeSet<RunId> = submissions.into_iter().map(|id| id.unwrap()).collect();
        assert_eq!(order[due.len()..].iter().copied().collect::<BTreeSet<_>>(), new, "round {round}");
        let mut numbers = Vec::new();
        for id in order {
            numbers.push(run(bed, id).await.sequence);
        }
        assert!(numbers[0] > 0 && numbers.is_sorted_by(|a, b| a < b), "round {round}: {numbers:?}");
    }
}
