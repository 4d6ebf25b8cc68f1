//! Row groups that may have no row of the scope, which their partition values alone tell: those that have none are counted by them,
//! and nothing else of them is read. A file beside the one whose rows are wanted mostly has such row groups, since its few rows
//! from far away make of their statistics that anything may be in them.

use super::super::files::LookedAt;
use super::super::parts::{self, Part};
use super::super::query::{self, Reading, Verdict};
use super::super::scope::value_name;
use super::super::{EngineError, not_read};
use super::batch::{Counts, Judge, Places, Words};
use super::{counted, engine_error, has_words};
use crate::pipeline::Definition;
use ::polars::prelude as pl;
use ::polars::prelude::IntoLazy;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Smaller row groups are read as a whole: to look at one by itself takes time too.
const LEAST_ROWS: u64 = 1 << 16;

/// The rows that need not be read.
pub(in super::super) struct Without {
    /// How many of each file.
    pub(in super::super) rows: Vec<u64>,
    /// For the books.
    pub(in super::super) counted: pl::DataFrame,
}

/// Leaves those alone in doubt that it pays to look at; the others are to be read.
pub(super) fn choose(definition: &Definition, files: &[LookedAt], readings: &mut [Reading]) {
    for (file, reading) in files.iter().zip(readings) {
        let pays = |rows: &(u64, u64)| rows.1 >= LEAST_ROWS && !file.is_text() && has_words(definition);
        let (doubtful, read) = std::mem::take(&mut reading.doubtful).into_iter().partition(pays);
        reading.doubtful = doubtful;
        reading.stretches.extend::<Vec<_>>(read);
        reading.stretches.sort_unstable();
    }
}

/// What the rows of a part are judged to be by their partition values alone; none where some of them are in scope.
pub(super) fn without(
    definition: &Definition,
    file: &LookedAt,
    judge: &Judge,
    part: &Part,
) -> pl::PolarsResult<Option<Counts>> {
    let values = definition.partition.columns().len();
    let mut counts = Counts::new();
    parts::read(definition, file, part, query::columns_of_values(definition, file), |rows| {
        let rows = query::values(definition, file, rows.lazy()).collect()?;
        let values = (0..values).map(|at| Words::of(&rows, &value_name(at))).collect::<pl::PolarsResult<Vec<_>>>()?;
        counts.extend(Places::all(judge, &values, rows.height()));
        Ok(())
    })?;
    let in_scope = Verdict::InScope.code_in(definition, part.file);
    Ok(counts.iter().all(|((code, _), _)| *code != in_scope).then_some(counts))
}

/// Looks at the doubtful row groups of the files. Those that have rows in scope are to be read.
pub(in super::super) fn settle(
    definition: &Definition,
    files: &[LookedAt],
    readings: &mut [Reading],
    limit_bytes: Option<u64>,
) -> Result<Without, EngineError> {
    choose(definition, files, readings);
    let in_doubt: Vec<Vec<(u64, u64)>> = readings.iter().map(|reading| reading.doubtful.clone()).collect();
    let looked_at = in_doubt.iter().map(|doubtful| Reading { doubtful: doubtful.clone(), ..Reading::default() });
    let parts = parts::of(files, &looked_at.collect::<Vec<_>>(), limit_bytes);
    // What is found of each row group by its first row; none where a part of it has rows in scope.
    let found: Mutex<BTreeMap<(usize, u64), Option<Counts>>> = Mutex::default();
    parts::each(parts, limit_bytes, |part| {
        let Some(file) = files.get(part.file) else { return Ok(()) };
        let judge = Judge::of(definition, file, part.file);
        let counts = without(definition, file, &judge, part).map_err(|error| not_read(files, &error))?;
        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
        let of_group = found.entry((part.file, part.group_start)).or_insert_with(|| Some(Counts::new()));
        *of_group = of_group.take().zip(counts).map(|(all, more)| [all, more].concat());
        Ok(())
    })?;
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut without = vec![0; files.len()];
    let mut counts = BTreeMap::new();
    for (file, (doubtful, reading)) in in_doubt.into_iter().zip(readings).enumerate() {
        for (start, rows) in doubtful {
            match found.remove(&(file, start)).flatten() {
                None => reading.stretches.push((start, rows)),
                Some(of_group) => {
                    without.iter_mut().skip(file).take(1).for_each(|without| *without += rows);
                    of_group.into_iter().for_each(|(what, rows)| *counts.entry(what).or_default() += rows);
                }
            }
        }
        reading.doubtful.clear();
        reading.stretches.sort_unstable();
    }
    let counted = counted(definition, &counts.into_iter().collect()).map_err(|e| engine_error(&e))?;
    Ok(Without { rows: without, counted })
}
