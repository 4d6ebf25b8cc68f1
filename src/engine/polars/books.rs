//! The books of a run: every row that was read, by what became of it.

use super::files::LookedAt;
use super::query::{ROWS, VERDICT, Verdict};
use super::scope::{Allowed, values_at};
use crate::engine::EngineError;
use crate::engine::error::compute_failure;
use crate::partition::{PartitionKey, PartitionValue};
use crate::pipeline::sources::{PlannedFile, Serves, SourcePlan};
use crate::pipeline::{Definition, Reason};
use crate::run::{RowCounts, Scope, SourceFile, Warning};
use ::polars::prelude as pl;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Rows of one partition of the scope.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Judged {
    rejected: u64,
    filtered: u64,
    in_scope: u64,
}

/// Counts of rows by what they were judged to be.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Books {
    partitions: BTreeMap<PartitionKey, Judged>,
    /// By the path of their file.
    nowhere: BTreeMap<String, u64>,
    strays: BTreeMap<String, BTreeMap<PartitionKey, u64>>,
    /// By the path of their file, of partitions of the scope: rejected rows, and filtered ones where they are kept apart. Only
    /// until the slice is read.
    #[serde(skip)]
    of_files: BTreeMap<String, Judged>,
    /// What is wrong with the first lines in which something is.
    faults: Vec<String>,
}

/// Which file's rows go into which partition, over all slices of a run.
pub(super) struct Intake<'a> {
    definition: &'a Definition,
    plan: &'a SourcePlan,
    allowed: BTreeMap<&'a str, Allowed>,
}

impl<'a> Intake<'a> {
    /// As the plan of the whole run says.
    pub(super) fn of(definition: &'a Definition, scope: &Scope, plan: &'a SourcePlan) -> Self {
        let allowed = |serves| Allowed::of(&definition.partition, scope, serves);
        let allowed = plan.files.iter().map(|file| (file.path.as_str(), allowed(&file.serves))).collect();
        Self { definition, plan, allowed }
    }

    /// Whether a file's rows of this partition go into it, by whichever slice.
    pub(super) fn takes(&self, path: &str, key: &PartitionKey) -> bool {
        let values = self.definition.partition.values(key);
        self.allowed.get(path).zip(values).is_some_and(|(allowed, values)| allowed.contains(&values))
    }

    /// The partitions that a file's rows may go to.
    pub(super) fn allowed(&self, path: &str) -> Option<&Allowed> {
        self.allowed.get(path)
    }

    /// Whether the run makes this partition, from whichever files.
    pub(super) fn makes(&self, values: &[PartitionValue]) -> bool {
        self.allowed.values().any(|allowed| allowed.contains(values))
    }

    /// Whether a stray would have been taken in with one more neighbour: its file has neighbours and, in `full`, its
    /// partition has files of its own, without which it is not made whatever the neighbours.
    fn is_next_door(&self, file: &PlannedFile, key: &PartitionKey) -> bool {
        let made = match &file.serves {
            Serves::Scope => false,
            Serves::Keys(_) => true,
            Serves::Times(_) => self.definition.partition.values(key).is_some_and(|values| self.makes(&values)),
        };
        made && self.plan.is_next_door(self.definition, file, key)
    }
}

/// How many faults are told.
const TOLD_FAULTS: usize = 5;

impl Books {
    /// Empty books of these files, but for what was found wrong with them when they were read.
    pub(super) fn of(files: &[LookedAt]) -> Self {
        let faults = files.iter().flat_map(|file| &file.faults).take(TOLD_FAULTS).cloned();
        Self { faults: faults.collect(), ..Self::default() }
    }

    /// Enters rows that statistics place out of scope.
    pub(super) fn enter_placed(&mut self, definition: &Definition, path: &str, values: &[PartitionValue], rows: u64) {
        self.enter_stray(definition, path, values, rows);
    }

    /// Enters the groups of the query over `files`.
    pub(super) fn enter(
        &mut self,
        definition: &Definition,
        files: &[LookedAt],
        grouped: &pl::DataFrame,
    ) -> pl::PolarsResult<()> {
        let verdicts = grouped.column(VERDICT)?.as_materialized_series().i32()?.clone();
        let rows = grouped.column(ROWS)?.as_materialized_series().i64()?.clone();
        let mut last: Option<(Vec<PartitionValue>, PartitionKey)> = None;
        for at in 0..grouped.height() {
            let (Some((verdict, file)), Some(rows)) = (verdicts.get(at).and_then(Verdict::of_code), rows.get(at))
            else {
                continue;
            };
            let rows = u64::try_from(rows).unwrap_or(0);
            let path = files.get(file).map_or("", |file| file.planned.path.as_str());
            let values = match verdict {
                Verdict::Nowhere => None,
                _ => values_at(grouped, &definition.partition, at)?,
            };
            let Some(values) = values else {
                *self.nowhere.entry(path.to_owned()).or_default() += rows;
                continue;
            };
            if verdict == Verdict::OutOfScope {
                self.enter_stray(definition, path, &values, rows);
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
                Verdict::Rejected => {
                    judged.rejected += rows;
                    self.of_files.entry(path.to_owned()).or_default().rejected += rows;
                }
                Verdict::Filtered => {
                    judged.filtered += rows;
                    self.of_files.entry(path.to_owned()).or_default().filtered += rows;
                }
                _ => judged.in_scope += rows,
            }
            last = Some((values, key));
        }
        Ok(())
    }

    fn enter_stray(&mut self, definition: &Definition, path: &str, values: &[PartitionValue], rows: u64) {
        let path = path.to_owned();
        match definition.partition.key(values) {
            Some(key) => *self.strays.entry(path).or_default().entry(key).or_default() += rows,
            None => *self.nowhere.entry(path).or_default() += rows,
        }
    }

    /// Adds the books of a slice. A file that several slices read has its rows in the books of each: what one of them takes
    /// in is a stray in the others, and is a stray of the run only where no slice takes it in.
    pub(super) fn add(&mut self, slice: Books, intake: &Intake<'_>) {
        self.partitions.extend(slice.partitions);
        self.nowhere.extend(slice.nowhere);
        let room = TOLD_FAULTS.saturating_sub(self.faults.len());
        let new = slice.faults.into_iter().filter(|fault| !self.faults.contains(fault)).take(room);
        self.faults.extend(new.collect::<Vec<_>>());
        for (path, mut strays) in slice.strays {
            strays.retain(|key, _| !intake.takes(&path, key));
            self.strays.entry(path).or_default().extend(strays);
        }
    }

    /// Source rows that went into a partition.
    pub(super) fn source_rows(&self, key: &PartitionKey) -> u64 {
        self.partitions.get(key).map_or(0, |judged| judged.in_scope)
    }

    /// How many rows of a file go into no partition for this reason. Of its strays, those that no slice of the run takes in.
    pub(super) fn apart(&self, path: &str, reason: Reason, intake: &Intake<'_>) -> u64 {
        let of_file = self.of_files.get(path).copied().unwrap_or_default();
        match reason {
            Reason::Rejected => of_file.rejected + self.nowhere.get(path).copied().unwrap_or(0),
            Reason::Filtered => of_file.filtered,
            Reason::Stray => {
                let strays = self.strays.get(path).into_iter().flatten();
                strays.filter(|(key, _)| !intake.takes(path, key)).map(|(_, rows)| rows).sum()
            }
        }
    }

    /// The same of all files.
    pub(super) fn apart_of_all(&self, reason: Reason) -> u64 {
        let judged = |f: fn(&Judged) -> u64| self.partitions.values().map(f).sum::<u64>();
        match reason {
            Reason::Rejected => judged(|j| j.rejected) + self.nowhere.values().sum::<u64>(),
            Reason::Filtered => judged(|j| j.filtered),
            Reason::Stray => self.strays.values().flatten().map(|(_, rows)| rows).sum(),
        }
    }

    /// Fails where more rows were rejected than the pipeline allows: of a partition, or of a file those without one.
    pub(super) fn check_rejected(&self, definition: &Definition, files: &[LookedAt]) -> Result<(), EngineError> {
        let too_many = |whose: String, rejected: u64, of: u64, why: &str| {
            let (share, allowed) = (100.0 * rejected as f64 / of as f64, 100.0 * definition.max_rejected);
            let share = if share < 0.01 { "less than 0.01".to_owned() } else { format!("{share:.2}") };
            compute_failure(
                "too-many-rejected",
                "Too many rows were rejected",
                format!(
                    "{whose}: {rejected} of {of} rows ({share} %) {why}, expected at most {allowed} % (max_rejected){}",
                    self.first_faults()
                ),
            )
        };
        // The quotient is rounded as the setting was when it was read, so that exactly the share allowed is allowed.
        let over = |rejected: u64, of: u64| rejected > 0 && rejected as f64 / of as f64 > definition.max_rejected;
        for file in files {
            let path = &file.planned.path;
            let rejected = self.nowhere.get(path).copied().unwrap_or(0);
            if over(rejected, file.rows()) {
                return Err(too_many(path.clone(), rejected, file.rows(), "have no partition value"));
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

    fn first_faults(&self) -> String {
        if self.faults.is_empty() { String::new() } else { format!("; first: {}", self.faults.join("; ")) }
    }

    /// The report's counts; fails where they do not balance, for then rows were lost.
    pub(super) fn counts(&self, sources: &[SourceFile]) -> Result<RowCounts, EngineError> {
        let mut by_partition: BTreeMap<&PartitionKey, u64> = BTreeMap::new();
        for (key, rows) in self.strays.values().flatten() {
            *by_partition.entry(key).or_default() += rows;
        }
        let counts = RowCounts {
            read: sources.iter().map(|source| source.rows).sum(),
            in_scope: self.partitions.values().map(|judged| judged.in_scope).sum(),
            out_of_scope: self.apart_of_all(Reason::Stray),
            filtered: self.apart_of_all(Reason::Filtered),
            rejected: self.apart_of_all(Reason::Rejected),
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
    pub(super) fn warnings(&self, intake: &Intake<'_>) -> Vec<Warning> {
        let mut out = Vec::new();
        let mut next_door: BTreeMap<&PartitionKey, u64> = BTreeMap::new();
        for file in &intake.plan.files {
            let strays = self.strays.get(&file.path).into_iter().flatten();
            for (key, rows) in strays.filter(|(key, _)| intake.is_next_door(file, key)) {
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
                    intake.definition.source.neighbours + 1
                ),
            });
        }
        let rejected = self.apart_of_all(Reason::Rejected);
        if rejected > 0 {
            out.push(Warning {
                kind: "rows-rejected".to_owned(),
                detail: format!(
                    "{rejected} rows were rejected: no partition value, or a value that does not fit the contract{}",
                    self.first_faults()
                ),
            });
        }
        out
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

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

    use super::*;

    #[test]
    fn rows_that_are_read_and_not_accounted_for_fail_the_run() {
        let source = |rows| SourceFile { path: "a".to_owned(), bytes: 1, rows, modified: None, etag: None };
        let mut books = Books::default();
        books.nowhere.insert("a".to_owned(), 2);
        assert_eq!(books.counts(&[source(2)]).unwrap().rejected, 2);
        match books.counts(&[source(3)]) {
            Err(EngineError::Failed(error)) => assert_eq!(error.kind, "books-do-not-balance"),
            other => assert!(other.is_err(), "{other:?}"),
        }
        assert!(books.counts(&[source(3)]).is_err());
    }
}
