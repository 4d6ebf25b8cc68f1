//! Overlapping runs go one after the other, in the order of their sequence numbers.

use super::{MadeUp, Workers, on_both_stores, request, store_of, submit, succeeded};
use crate::store::bed::Bed;
use refrain::partition::PartitionKey;
use refrain::run::{Outcome, Run, RunId};
use std::collections::BTreeMap;
use std::time::Duration;

on_both_stores! {
    two_hundred_rounds_of_overlapping_runs_leave_the_last_ones_result,
}

const ROUNDS: u32 = 200;

/// So many rounds go on at the same time, each in a table of its own.
const ROUNDS_AT_ONCE: u32 = 8;

const KEYS: [&str; 5] = [
    "date=2024-02-28/hour=23",
    "date=2024-02-29/hour=00",
    "date=2024-02-29/hour=01",
    "date=2024-02-29/hour=02",
    "date=2024-03-01/hour=00",
];

/// Always the same numbers, one after the other.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(self.0 >> 33).unwrap() % n
    }
}

/// Whether this run makes the partition empty: one in four does.
fn empties(run: RunId, key: &PartitionKey) -> bool {
    let sum: u32 = run.0.as_bytes().iter().chain(key.as_str().as_bytes()).map(|byte| u32::from(*byte)).sum();
    sum.is_multiple_of(4)
}

async fn two_hundred_rounds_of_overlapping_runs_leave_the_last_ones_result(bed: &Bed) {
    let engine = MadeUp {
        // Long enough for another to overtake it, were it allowed to.
        computes: Box::new(|run| {
            let pause = Duration::from_micros(u64::from(run.0.as_bytes()[15]) * 20);
            Box::pin(tokio::time::sleep(pause))
        }),
        makes: Box::new(|run, key| (!empties(run, key)).then(|| (format!("{run} {key}").into_bytes(), 1))),
    };
    let workers = Workers::start(bed, 4, engine).await;
    let (mut dice, mut runs) = (Dice(2024), 0);
    for first in (0..ROUNDS).step_by(ROUNDS_AT_ONCE as usize) {
        let rounds: Vec<u64> = (0..ROUNDS_AT_ONCE).map(|_| u64::from(dice.below(u32::MAX))).collect();
        let rounds = rounds.into_iter().zip(first..).map(|(seed, number)| one_round(bed, &workers, seed, number));
        runs += futures::future::join_all(rounds).await.into_iter().sum::<usize>();
    }
    crate::counted(format_args!("{ROUNDS} rounds of overlapping runs, {runs} runs over 4 workers"));
    workers.stop().await;
}

/// Two to eight runs at once, each of two or three neighbours: a chain, in which the third could overtake a waiting second
/// that the first holds up. Answers how many.
async fn one_round(bed: &Bed, workers: &Workers, seed: u64, number: u32) -> usize {
    let pipeline = format!("round_{number}");
    let mut dice = Dice(seed);
    let asked: Vec<_> = (0..2 + dice.below(7))
        .map(|_| {
            let from = dice.below(4) as usize;
            let to = (from + 2 + dice.below(2) as usize).min(KEYS.len());
            request(&pipeline, &KEYS[from..to])
        })
        .collect();
    let submitting = asked.iter().enumerate().map(|(at, run)| {
        let store = store_of(bed, at);
        async move { submit(&*store, run).await }
    });
    let mut runs = futures::future::join_all(submitting).await;
    runs.sort_by_key(|run| run.sequence);
    for run in &mut runs {
        *run = succeeded(bed, run.id).await;
    }
    for key in KEYS {
        let naming: Vec<&Run> =
            runs.iter().filter(|run| run.partitions.iter().any(|p| p.partition.as_str() == key)).collect();
        check_partition(bed, workers, &pipeline, key, &naming).await;
    }
    for (at, younger) in runs.iter().enumerate() {
        for older in runs[..at].iter().filter(|older| overlap(older, younger)) {
            assert!(older.ended_at <= younger.started_at, "round {number}: {} overtook {}", younger.id, older.id);
        }
    }
    runs.len()
}

fn overlap(a: &Run, b: &Run) -> bool {
    a.partitions.iter().any(|p| b.partitions.iter().any(|q| p.partition == q.partition))
}

/// The file, the catalog and the history of a partition, against the runs that named it, in their order.
async fn check_partition(bed: &Bed, workers: &Workers, pipeline: &str, key: &str, runs: &[&Run]) {
    let canonical = PartitionKey::from_canonical(key);
    let makes = |run: &Run| (!empties(run.id, &canonical)).then(|| format!("{} {key}", run.id).into_bytes());
    let last = runs.last().and_then(|run| makes(run));
    assert_eq!(workers.live(pipeline, key), last, "{pipeline} {key}: the last run's result is there");

    let entries = bed.store.entries(pipeline, Some(std::slice::from_ref(&canonical))).await.unwrap();
    let listed: BTreeMap<_, _> = entries.into_iter().map(|e| (e.run_id, e.content.sha256)).collect();
    let expected = last.iter().map(|content| (runs[runs.len() - 1].id, super::sha256(content))).collect();
    assert_eq!(listed, expected, "{pipeline} {key}: the catalog says so");

    let mut there = false;
    let mut changes = Vec::new();
    for run in runs {
        let outcome = match (there, makes(run).is_some()) {
            (false, true) => Outcome::Created,
            (true, true) => Outcome::Replaced,
            (true, false) => Outcome::Cleared,
            (false, false) => Outcome::Empty,
        };
        there = makes(run).is_some();
        let of_the_run = run.partitions.iter().find(|p| p.partition == canonical).and_then(|p| p.outcome);
        assert_eq!(of_the_run, Some(outcome), "{pipeline} {key}: {}", run.id);
        if outcome != Outcome::Empty {
            changes.push((run.id, outcome));
        }
    }
    let (_, mut history) = bed.store.partition(pipeline, &canonical, None, 100).await.unwrap();
    history.reverse();
    let history: Vec<_> = history.into_iter().map(|entry| (entry.run_id, entry.outcome)).collect();
    assert_eq!(history, changes, "{pipeline} {key}: the history says who wrote what");
}
