//! Row groups that may have no row of the scope, which their partition values alone tell: those that have none are counted by them,
//! and nothing else of them is read. A file beside the one whose rows are wanted mostly has such row groups, since its few rows
//! from far away make of their statistics that anything may be in them.

use super::super::files::LookedAt;
use super::super::query::{self, Reading};
use super::super::scope::value_name;
use super::super::union::{FILE_BYTES, VALUE_BYTES, one_after_the_other};
use super::batch::{Counts, Judge, Places, Words};
use super::{counted, has_words};
use crate::pipeline::Definition;
use ::polars::prelude as pl;
use ::polars::prelude::OptFlags;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Smaller row groups are read as a whole: to look at one by itself takes time too.
const LEAST_ROWS: u64 = 1 << 16;

/// The rows that need not be read.
pub(in super::super) struct Without {
    /// How many of each file.
    pub(in super::super) rows: Vec<u64>,
    /// For the books.
    pub(in super::super) counted: pl::DataFrame,
}

/// A row group that is looked at.
struct Group {
    file: usize,
    rows: (u64, u64),
    /// How many rows were judged to be what.
    counts: Arc<Mutex<Counts>>,
}

/// Looks at the doubtful row groups of the files, as many at the same time as take about `round_bytes` of memory. Those that have
/// rows in scope are to be read.
pub(in super::super) fn settle(
    definition: &Definition,
    files: &[LookedAt],
    readings: &mut [Reading],
    round_bytes: u64,
) -> pl::PolarsResult<Without> {
    let row_bytes = definition.partition.columns().len() as u64 * VALUE_BYTES;
    let mut groups = Vec::new();
    for (at, (file, reading)) in files.iter().zip(readings.iter_mut()).enumerate() {
        for rows in std::mem::take(&mut reading.doubtful) {
            let fits = rows.1 >= LEAST_ROWS && FILE_BYTES + rows.1 * row_bytes <= round_bytes;
            match fits && !file.is_text() && has_words(definition) {
                true => groups.push(Group { file: at, rows, counts: Arc::default() }),
                false => reading.stretches.push(rows),
            }
        }
    }
    look_at(definition, files, &groups, round_bytes, row_bytes)?;
    let mut without = vec![0; files.len()];
    let mut counts = BTreeMap::new();
    for group in groups {
        let found = std::mem::take(&mut *group.counts.lock().unwrap_or_else(PoisonError::into_inner));
        let in_scope = query::Verdict::InScope.code_in(definition, group.file);
        let (Some(reading), Some(rows)) = (readings.get_mut(group.file), without.get_mut(group.file)) else { continue };
        if found.iter().any(|((code, _), _)| *code == in_scope) {
            reading.stretches.push(group.rows);
            continue;
        }
        *rows += group.rows.1;
        found.into_iter().for_each(|(what, rows)| *counts.entry(what).or_default() += rows);
    }
    readings.iter_mut().for_each(|reading| reading.stretches.sort_unstable());
    Ok(Without { rows: without, counted: counted(definition, &counts.into_iter().collect())? })
}

fn look_at(
    definition: &Definition,
    files: &[LookedAt],
    groups: &[Group],
    round_bytes: u64,
    row_bytes: u64,
) -> pl::PolarsResult<()> {
    let (mut rounds, mut taken) = (Vec::<Vec<pl::LazyFrame>>::new(), 0);
    for group in groups {
        let Some(file) = files.get(group.file) else { continue };
        let (judge, counts) = (Judge::of(definition, file, group.file), Arc::clone(&group.counts));
        let values = definition.partition.columns().len();
        let count = move |rows: pl::DataFrame| {
            let values =
                (0..values).map(|at| Words::of(&rows, &value_name(at))).collect::<pl::PolarsResult<Vec<_>>>()?;
            let counted = Places::all(&judge, &values, rows.height());
            counts.lock().unwrap_or_else(PoisonError::into_inner).extend(counted);
            Ok(rows.clear())
        };
        let rows = query::values(definition, file, query::stretch(definition, file, group.rows)?);
        let rows = rows.map(count, OptFlags::all(), None, Some("doubtful groups"));
        let bytes = FILE_BYTES + group.rows.1 * row_bytes;
        taken += bytes;
        match rounds.last_mut() {
            Some(round) if taken <= round_bytes => round.push(rows),
            _ => {
                taken = bytes;
                rounds.push(vec![rows]);
            }
        }
    }
    if !rounds.is_empty() {
        one_after_the_other(rounds)?.collect_with_engine(pl::Engine::Streaming)?;
    }
    Ok(())
}
