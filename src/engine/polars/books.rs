//! The books of a run: every row that was read, by what became of it.

use super::files::LookedAt;
use super::query::{ROWS, VERDICT, Verdict};
use super::scope::values_at;
use crate::engine::EngineError;
use crate::engine::error::compute_failure;
use crate::partition::{PartitionKey, PartitionValue};
use crate::pipeline::Definition;
use crate::pipeline::sources::{Serves, SourcePlan};
use crate::run::{RowCounts, Warning};
use ::polars::prelude as pl;
use std::collections::BTreeMap;

/// Rows of one partition of the scope.
#[derive(Debug, Clone, Copy, Default)]
struct Judged {
    rejected: u64,
    filtered: u64,
    in_scope: u64,
}

/// Counts of rows by what they were judged to be.
#[derive(Default)]
pub(super) struct Books {
    partitions: BTreeMap<PartitionKey, Judged>,
    nowhere: BTreeMap<usize, u64>,
    strays: BTreeMap<(usize, PartitionKey), u64>,
}

impl Books {
    /// Enters rows that statistics place out of scope.
    pub(super) fn enter_placed(&mut self, definition: &Definition, file: usize, values: &[PartitionValue], rows: u64) {
        self.enter_stray(definition, file, values, rows);
    }

    /// Enters the groups of the query.
    pub(super) fn enter(&mut self, definition: &Definition, grouped: &pl::DataFrame) -> pl::PolarsResult<()> {
        let verdicts = grouped.column(VERDICT)?.as_materialized_series().i32()?.clone();
        let rows = grouped.column(ROWS)?.as_materialized_series().i64()?.clone();
        let mut last: Option<(Vec<PartitionValue>, PartitionKey)> = None;
        for at in 0..grouped.height() {
            let (Some((verdict, file)), Some(rows)) = (verdicts.get(at).and_then(Verdict::of_code), rows.get(at))
            else {
                continue;
            };
            let rows = u64::try_from(rows).unwrap_or(0);
            let values = match verdict {
                Verdict::Nowhere => None,
                _ => values_at(grouped, &definition.partition, at)?,
            };
            let Some(values) = values else {
                *self.nowhere.entry(file).or_default() += rows;
                continue;
            };
            if verdict == Verdict::OutOfScope {
                self.enter_stray(definition, file, &values, rows);
                continue;
            }
            // Groups of one partition come together, so most keys are the one before.
            let key = match &last {
                Some((v, key)) if *v == values => Some(key.clone()),
                _ => definition.partition.key(&values),
            };
            let Some(key) = key else { continue };
            let judged = self.partitions.entry(key.clone()).or_default();
            match verdict {
                Verdict::Rejected => judged.rejected += rows,
                Verdict::Filtered => judged.filtered += rows,
                _ => judged.in_scope += rows,
            }
            last = Some((values, key));
        }
        Ok(())
    }

    fn enter_stray(&mut self, definition: &Definition, file: usize, values: &[PartitionValue], rows: u64) {
        match definition.partition.key(values) {
            Some(key) => *self.strays.entry((file, key)).or_default() += rows,
            None => *self.nowhere.entry(file).or_default() += rows,
        }
    }

    /// Source rows that went into a partition.
    pub(super) fn source_rows(&self, key: &PartitionKey) -> u64 {
        self.partitions.get(key).map_or(0, |judged| judged.in_scope)
    }

    /// Fails where more rows were rejected than the pipeline allows: of a partition, or of a file those without one.
    pub(super) fn check_rejected(&self, definition: &Definition, files: &[LookedAt]) -> Result<(), EngineError> {
        let too_many = |whose: String, rejected: u64, of: u64, why: &str| {
            let (share, allowed) = (100.0 * rejected as f64 / of as f64, 100.0 * definition.max_rejected);
            compute_failure(
                "too-many-rejected",
                "Too many rows were rejected",
                format!(
                    "{whose}: {rejected} of {of} rows ({share:.2} %) {why}, expected at most {allowed} % (max_rejected)"
                ),
            )
        };
        // The quotient is rounded as the setting was when it was read, so that exactly the share allowed is allowed.
        let over = |rejected: u64, of: u64| rejected > 0 && rejected as f64 / of as f64 > definition.max_rejected;
        for (index, rejected) in &self.nowhere {
            let Some(file) = files.get(*index) else { continue };
            if over(*rejected, file.rows()) {
                let whose = file.planned.path.clone();
                return Err(too_many(whose, *rejected, file.rows(), "have no partition value"));
            }
        }
        for (key, judged) in &self.partitions {
            let of = judged.rejected + judged.filtered + judged.in_scope;
            if over(judged.rejected, of) {
                let why = "have a value that does not fit the contract, or a null where none may be";
                return Err(too_many(key.to_string(), judged.rejected, of, why));
            }
        }
        Ok(())
    }

    /// The report's counts; fails where they do not balance, for then rows were lost.
    pub(super) fn counts(&self, files: &[LookedAt]) -> Result<RowCounts, EngineError> {
        let mut by_partition: BTreeMap<&PartitionKey, u64> = BTreeMap::new();
        for ((_, key), rows) in &self.strays {
            *by_partition.entry(key).or_default() += rows;
        }
        let judged = |f: fn(&Judged) -> u64| self.partitions.values().map(f).sum::<u64>();
        let counts = RowCounts {
            read: files.iter().map(LookedAt::rows).sum(),
            in_scope: judged(|j| j.in_scope),
            out_of_scope: by_partition.values().sum(),
            filtered: judged(|j| j.filtered),
            rejected: judged(|j| j.rejected) + self.nowhere.values().sum::<u64>(),
            out_of_scope_by_partition: listed(by_partition),
        };
        if counts.balance() {
            return Ok(counts);
        }
        Err(compute_failure(
            "books-do-not-balance",
            "The row counts do not add up",
            format!("the sources have {} rows, but the rows accounted for are {counts:?}", counts.read),
        ))
    }

    /// Warns of strays that one more neighbour would have taken in, and of rejected rows.
    pub(super) fn warnings(&self, definition: &Definition, plan: &SourcePlan, files: &[LookedAt]) -> Vec<Warning> {
        let mut out = Vec::new();
        let mut next_door: BTreeMap<&PartitionKey, u64> = BTreeMap::new();
        for ((index, key), rows) in &self.strays {
            let Some(file) = files.get(*index) else { continue };
            if is_made(definition, files, file, key) && plan.is_next_door(definition, &file.planned, key) {
                *next_door.entry(key).or_default() += rows;
            }
        }
        if !next_door.is_empty() {
            let rows: u64 = next_door.values().sum();
            let keys: Vec<String> = next_door.iter().take(5).map(|(key, rows)| format!("{rows} of {key}")).collect();
            let more = if next_door.len() > 5 { ", …" } else { "" };
            out.push(Warning {
                kind: "strays-next-door".to_owned(),
                detail: format!(
                    "{rows} rows lie in the file of a period next door to their partition's ({}{more}) and are left out; set \
                     source.neighbours = {} to read them",
                    keys.join(", "),
                    definition.source.neighbours + 1
                ),
            });
        }
        let rejected: u64 =
            self.nowhere.values().sum::<u64>() + self.partitions.values().map(|j| j.rejected).sum::<u64>();
        if rejected > 0 {
            out.push(Warning {
                kind: "rows-rejected".to_owned(),
                detail: format!(
                    "{rejected} rows were rejected: no partition value, or a value that does not fit the contract"
                ),
            });
        }
        out
    }
}

/// Whether a stray's partition could have taken it in: its file has neighbours and, in `full`, the partition has files of
/// its own, without which it is not made whatever the neighbours.
fn is_made(definition: &Definition, files: &[LookedAt], file: &LookedAt, key: &PartitionKey) -> bool {
    match &file.planned.serves {
        Serves::Scope => false,
        Serves::Keys(_) => true,
        Serves::Times(_) => {
            let values = definition.partition.values(key);
            values.is_some_and(|values| files.iter().any(|file| file.allowed.contains(&values)))
        }
    }
}

/// The largest partitions one by one, the rest together.
fn listed(by_partition: BTreeMap<&PartitionKey, u64>) -> BTreeMap<String, u64> {
    let mut sorted: Vec<(&PartitionKey, u64)> = by_partition.into_iter().collect();
    sorted.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    let rest: u64 = sorted.iter().skip(RowCounts::LISTED_PARTITIONS).map(|(_, rows)| rows).sum();
    let mut out: BTreeMap<String, u64> =
        sorted.into_iter().take(RowCounts::LISTED_PARTITIONS).map(|(key, rows)| (key.to_string(), rows)).collect();
    if rest > 0 {
        out.insert("other".to_owned(), rest);
    }
    out
}
