//! Rows in the order of all their columns, however many there are.
//!
//! The streaming engine sorts in memory. So rows are gathered up to a bound, sorted, and written aside as a run; at the end the
//! runs are merged block by block. The order is that of the columns from first to last, so that only rows that are alike in
//! everything are interchangeable: the result does not depend on how the rows arrived.

use super::engine_error;
use crate::engine::EngineError;
use crate::engine::error::service_failure;
use ::polars::io::SerReader;
use ::polars::prelude as pl;
use ::polars::prelude::{IntoColumn, IntoSeries, StructChunked};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Rows of a block: what is read of a run at a time.
const BLOCK_ROWS: usize = 16_384;

/// Gathers rows.
pub(super) struct Sorter {
    folder: PathBuf,
    name: &'static str,
    limit_bytes: usize,
    pending: Vec<pl::DataFrame>,
    bytes: usize,
    runs: Vec<Run>,
}

/// Sorted rows in a file of their own, with how far they are read.
struct Run {
    path: PathBuf,
    rows: usize,
    read: usize,
    /// The block that is being merged, with its rows' keys.
    block: Option<(pl::DataFrame, pl::BinaryOffsetChunked)>,
}

/// Sorted rows, block by block.
pub(super) struct Sorted {
    runs: Vec<Run>,
    /// All of it, where it did not outgrow the memory.
    whole: Option<pl::DataFrame>,
}

impl Sorter {
    /// Keeps up to `limit_bytes` of rows in memory, and the others in files in `folder` that start with `name`.
    pub(super) fn new(folder: &Path, name: &'static str, limit_bytes: usize) -> Self {
        Self { folder: folder.to_owned(), name, limit_bytes, pending: Vec::new(), bytes: 0, runs: Vec::new() }
    }

    /// Takes rows; all frames have the same columns.
    pub(super) fn push(&mut self, frame: pl::DataFrame) -> Result<(), EngineError> {
        if frame.height() == 0 {
            return Ok(());
        }
        self.bytes += frame.estimated_size();
        self.pending.push(frame);
        if self.bytes >= self.limit_bytes { self.write_run() } else { Ok(()) }
    }

    /// The rows in order.
    pub(super) fn finish(mut self) -> Result<Sorted, EngineError> {
        if !self.runs.is_empty() {
            self.write_run()?;
            return Ok(Sorted { runs: self.runs, whole: None });
        }
        let whole = self.sort_pending().map_err(|e| engine_error(&e))?;
        Ok(Sorted { runs: Vec::new(), whole })
    }

    fn sort_pending(&mut self) -> pl::PolarsResult<Option<pl::DataFrame>> {
        self.bytes = 0;
        let mut pending = std::mem::take(&mut self.pending).into_iter();
        let Some(mut frame) = pending.next() else { return Ok(None) };
        for more in pending {
            frame.vstack_mut_owned(more)?;
        }
        sorted(frame).map(Some)
    }

    fn write_run(&mut self) -> Result<(), EngineError> {
        let Some(mut frame) = self.sort_pending().map_err(|e| engine_error(&e))? else { return Ok(()) };
        let path = self.folder.join(format!("{}-{:05}", self.name, self.runs.len()));
        let failed = |e: &dyn std::fmt::Display| {
            let detail = format!("{}: {e}", path.display());
            service_failure("staging-write-failed", "Rows could not be written aside for sorting", detail)
        };
        let file = File::create_new(&path).map_err(|e| failed(&e))?;
        pl::ParquetWriter::new(file)
            .with_compression(pl::ParquetCompression::Lz4Raw)
            .with_statistics(pl::StatisticsOptions::empty())
            .with_row_group_size(Some(BLOCK_ROWS))
            .finish(&mut frame)
            .map_err(|e| failed(&e))?;
        self.runs.push(Run { path, rows: frame.height(), read: 0, block: None });
        Ok(())
    }
}

impl Sorted {
    /// The next rows in order, some at a time; none at the end.
    pub(super) fn next(&mut self) -> Result<Option<pl::DataFrame>, EngineError> {
        if let Some(whole) = self.whole.take() {
            return Ok(Some(whole));
        }
        self.merge().map_err(|e| engine_error(&e))
    }

    /// All rows up to the least of the blocks' last ones: no run has others that come before them. At least one block is used
    /// up each time.
    fn merge(&mut self) -> pl::PolarsResult<Option<pl::DataFrame>> {
        for run in &mut self.runs {
            run.fill()?;
        }
        let lasts = self.runs.iter().filter_map(|run| run.block.as_ref().and_then(|(_, keys)| keys.last()));
        let Some(bound) = lasts.min().map(<[u8]>::to_vec) else { return Ok(None) };
        let mut out: Option<pl::DataFrame> = None;
        for run in &mut self.runs {
            if let Some(part) = run.take_up_to(&bound) {
                match &mut out {
                    Some(out) => out.vstack_mut_owned(part).map(drop)?,
                    None => out = Some(part),
                }
            }
        }
        out.map(sorted).transpose()
    }
}

impl Run {
    fn fill(&mut self) -> pl::PolarsResult<()> {
        if self.block.is_some() {
            return Ok(());
        }
        if self.read == self.rows {
            // Used up; the attempt's folder goes anyway.
            let _ = std::fs::remove_file(&self.path);
            return Ok(());
        }
        let rows = BLOCK_ROWS.min(self.rows - self.read);
        let file = File::open(&self.path)?;
        let block = pl::ParquetReader::new(file).with_slice(Some((self.read, rows))).finish()?;
        self.read += rows;
        let keys = keys(&block)?;
        self.block = Some((block, keys));
        Ok(())
    }

    /// Takes the rows out of the block whose keys are not after `bound`.
    fn take_up_to(&mut self, bound: &[u8]) -> Option<pl::DataFrame> {
        let (block, keys) = self.block.take()?;
        let (mut within, mut after) = (0, keys.len());
        while within < after {
            let middle = within + (after - within) / 2;
            if keys.get(middle).is_some_and(|key| key <= bound) { within = middle + 1 } else { after = middle }
        }
        let taken = block.slice(0, within);
        if within < block.height() {
            let rest = i64::try_from(within).unwrap_or(i64::MAX);
            self.block = Some((block.slice(rest, usize::MAX), keys.slice(rest, usize::MAX)));
        }
        (within > 0).then_some(taken)
    }
}

/// What rows are ordered by: all columns, nulls first, as bytes.
pub(super) fn keys(frame: &pl::DataFrame) -> pl::PolarsResult<pl::BinaryOffsetChunked> {
    let fields = frame.columns().iter();
    StructChunked::from_columns("key".into(), frame.height(), &fields.cloned().collect::<Vec<_>>())?
        .into_series()
        .row_encode_ordered(false, false)
}

fn sorted(mut frame: pl::DataFrame) -> pl::PolarsResult<pl::DataFrame> {
    frame.rechunk_mut();
    let keys = keys(&frame)?.into_series().into_column();
    let order = keys.as_materialized_series().arg_sort(pl::SortOptions::default());
    frame.take(&order)
}
