//! The rows of several files as one query, in bounded memory.
//!
//! Of each file that a query reads there are row groups in memory: some that are decoded ahead, and some on their way through
//! its steps. So files are read in rounds, in each as many side by side as fit the bound, one round after the other; and of row
//! groups that do not fit it by themselves a part is read at a time.

use super::books::Books;
use super::contract::Found;
use super::counts::FileCount;
use super::files::LookedAt;
use super::query::{self, Reading};
use super::{Listener, engine_error, narrow};
use crate::engine::EngineError;
use crate::pipeline::Definition;
use ::polars::prelude as pl;
use ::polars::prelude::OptFlags;
use std::sync::Arc;

/// How many row groups of a file are in memory at the same time, about.
const GROUPS_IN_MEMORY: u64 = 8;
/// The least that a value takes when it is decoded.
const VALUE_BYTES: u64 = 16;
/// What a file takes beside its rows.
pub(super) const FILE_BYTES: u64 = 1 << 20;
/// The fewest rows of a part: smaller ones cost time and save next to nothing.
const LEAST_PART_ROWS: u64 = 4_096;
/// What files of a round may take for each processor where there is no bound: more of them make no query faster.
const PROCESSOR_BYTES: u64 = 192 << 20;

/// The judged rows of the files, each cut to the stretches of rows that may be of the scope; none where statistics place all of
/// them out of it. Reading takes about `limit_bytes` of memory.
pub(super) fn judged(
    definition: &Definition,
    files: &[LookedAt],
    books: &mut Books,
    listener: &dyn Listener,
    limit_bytes: Option<u64>,
) -> Result<Option<pl::LazyFrame>, EngineError> {
    let processors = || std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let round_bytes = limit_bytes.unwrap_or_else(|| processors().saturating_mul(PROCESSOR_BYTES));
    let (mut rounds, mut taken) = (Vec::<Vec<pl::LazyFrame>>::new(), 0);
    let mut readings: Vec<Reading> = files.iter().map(query::reading).collect();
    let without = narrow::settle(definition, files, &mut readings, limit_bytes)?;
    books.enter(definition, files, &without.counted).map_err(|e| engine_error(&e))?;
    for (index, (file, reading)) in files.iter().zip(readings).enumerate() {
        let count = counted(definition, file, &reading, books, listener);
        count.iter().for_each(|count| count.add(without.rows.get(index).copied().unwrap_or(0)));
        for part in parts(file, &reading.stretches, limit_bytes.map(|limit| limit / GROUPS_IN_MEMORY)) {
            let rows = query::scan(definition, file, index, (part.start, part.rows), count.as_ref());
            let rows = rows.map_err(|e| engine_error(&e))?;
            taken += part.memory();
            match rounds.last_mut() {
                Some(round) if taken <= round_bytes => round.push(rows),
                _ => {
                    taken = part.memory();
                    rounds.push(vec![rows]);
                }
            }
        }
    }
    if rounds.is_empty() {
        return Ok(None);
    }
    one_after_the_other(rounds).map(Some).map_err(|e| engine_error(&e))
}

/// Where the rows of a file count as read; nowhere for text, whose lines were counted when they were read. Enters those into the
/// books that statistics place out of scope.
pub(super) fn counted(
    definition: &Definition,
    file: &LookedAt,
    reading: &Reading,
    books: &mut Books,
    listener: &dyn Listener,
) -> Option<Arc<FileCount>> {
    let count = (!file.is_text()).then(|| Arc::new(FileCount::new(listener.counts(), file.bytes(), file.rows())));
    for (values, rows) in &reading.placed {
        books.enter_placed(definition, &file.planned.path, values, *rows);
        count.iter().for_each(|count| count.add(*rows));
    }
    count
}

/// As one query.
fn one_after_the_other(rounds: Vec<Vec<pl::LazyFrame>>) -> pl::PolarsResult<pl::LazyFrame> {
    let side_by_side = |round: Vec<pl::LazyFrame>| -> pl::PolarsResult<pl::LazyFrame> {
        let round = pl::concat(round, pl::UnionArgs { maintain_order: false, ..Default::default() })?;
        // A step between, or the optimizer makes one union of all.
        Ok(round.map(Ok, OptFlags::all(), None, Some("round")))
    };
    let rounds = rounds.into_iter().map(side_by_side).collect::<pl::PolarsResult<Vec<_>>>()?;
    let rows = pl::concat(rounds, pl::UnionArgs { maintain_order: true, ..Default::default() })?;
    // Nobody looks at the order of the rounds, for which the optimizer would give it up. And parts of one file are no common
    // part of the query: it would be read once, and whole, into memory.
    let kept = rows.get_current_optimizations() - (OptFlags::CHECK_ORDER_OBSERVE | OptFlags::COMM_SUBPLAN_ELIM);
    Ok(rows.with_optimizations(kept))
}

/// Rows of a file that are read together.
struct Part {
    start: u64,
    rows: u64,
    bytes: u64,
    /// The bytes of the largest row group in it.
    largest: u64,
}

impl Part {
    /// What of it is in memory at the same time, about.
    fn memory(&self) -> u64 {
        FILE_BYTES + self.bytes.min(self.largest.saturating_mul(GROUPS_IN_MEMORY))
    }
}

/// The stretches of a file, cut where a row group takes more than `most_bytes`.
fn parts(file: &LookedAt, stretches: &[(u64, u64)], most_bytes: Option<u64>) -> Vec<Part> {
    let mut out: Vec<Part> = Vec::new();
    let mut start = 0;
    for (rows, bytes) in groups(file) {
        let end = start + rows;
        let is_read = stretches.iter().any(|(first, length)| (*first..first + length).contains(&start));
        if is_read && most_bytes.is_some_and(|most| bytes > most) {
            let share = u128::from(rows) * u128::from(most_bytes.unwrap_or(bytes)) / u128::from(bytes);
            let part_rows = u64::try_from(share).unwrap_or(rows).max(LEAST_PART_ROWS);
            while start < end {
                let part = part_rows.min(end - start);
                let bytes = bytes / rows * part;
                out.push(Part { start, rows: part, bytes, largest: bytes });
                start += part;
            }
        } else if is_read {
            match out.last_mut().filter(|last| last.start + last.rows == start) {
                Some(last) => {
                    last.rows += rows;
                    last.bytes += bytes;
                    last.largest = last.largest.max(bytes);
                }
                None => out.push(Part { start, rows, bytes, largest: bytes }),
            }
        }
        start = end;
    }
    out
}

/// The rows of each row group, and what the contract's columns in it take when they are decoded, about.
pub(super) fn groups(file: &LookedAt) -> impl Iterator<Item = (u64, u64)> {
    let names: Vec<&str> = file.found.iter().filter_map(Found::name).collect();
    file.metadata.row_groups.iter().map(move |group| {
        let rows = group.num_rows() as u64;
        let of = |name: &&str| {
            let columns = group.columns_under_root_iter(name).into_iter().flatten();
            let stored: i64 = columns.map(|column| column.uncompressed_size()).sum();
            u64::try_from(stored).unwrap_or(0).max(rows * VALUE_BYTES)
        };
        (rows, names.iter().map(of).sum())
    })
}
