//! Rows in the order of all their columns, however many there are.
//!
//! The streaming engine sorts in memory. So rows are gathered up to a bound, sorted, and written aside as a run; at the end the
//! runs are merged block by block, some at a time, so that the blocks stay within the bound too. The order is that of the
//! columns from first to last, so that only rows that are alike in everything are interchangeable: the result does not depend
//! on how the rows arrived.

use super::engine_error;
use crate::engine::EngineError;
use crate::engine::error::service_failure;
use ::polars::io::SerReader;
use ::polars::io::parquet::metadata::FileMetadataRef;
use ::polars::io::parquet::write::BatchedWriter;
use ::polars::prelude as pl;
use ::polars::prelude::{IntoColumn, IntoSeries, StructChunked};
use std::collections::VecDeque;
use std::fmt::Display;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The most rows of a block: what is read of a run at a time.
const MOST_BLOCK_ROWS: usize = 16_384;
/// How many runs are merged at a time.
const MERGED_RUNS: usize = 32;
/// A block of each merged run, its keys and a copy of what is merged are to fit the bound.
const BLOCKS_IN_BOUND: usize = 3 * MERGED_RUNS;

/// Gathers rows.
pub(super) struct Sorter {
    folder: PathBuf,
    name: &'static str,
    limit_bytes: usize,
    pending: Vec<pl::DataFrame>,
    bytes: usize,
    /// The runs that are not merged yet, oldest first.
    runs: VecDeque<Run>,
    /// How many runs were written.
    written: usize,
}

/// Sorted rows in a file of their own, with how far they are read.
struct Run {
    path: PathBuf,
    metadata: FileMetadataRef,
    block_rows: usize,
    rows: usize,
    read: usize,
    /// The block that is being merged, with its rows' keys.
    block: Option<(pl::DataFrame, pl::BinaryOffsetChunked)>,
}

/// A run that is being written.
struct RunFile {
    path: PathBuf,
    writer: BatchedWriter<File>,
    block_rows: usize,
    rows: usize,
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
        let (pending, runs) = (Vec::new(), VecDeque::new());
        Self { folder: folder.to_owned(), name, limit_bytes, pending, bytes: 0, runs, written: 0 }
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
        if self.runs.is_empty() {
            let pending = self.take_pending().map_err(|e| engine_error(&e))?;
            let whole = pending.map(sorted).transpose().map_err(|e| engine_error(&e))?;
            return Ok(Sorted { runs: Vec::new(), whole });
        }
        self.write_run()?;
        while self.runs.len() > MERGED_RUNS {
            let runs = self.runs.drain(..MERGED_RUNS).collect();
            self.write_merged(Sorted { runs, whole: None })?;
        }
        Ok(Sorted { runs: self.runs.into(), whole: None })
    }

    fn take_pending(&mut self) -> pl::PolarsResult<Option<pl::DataFrame>> {
        self.bytes = 0;
        let mut pending = std::mem::take(&mut self.pending).into_iter();
        let Some(mut frame) = pending.next() else { return Ok(None) };
        for more in pending {
            frame.vstack_mut_owned(more)?;
        }
        frame.rechunk_mut();
        Ok(Some(frame))
    }

    fn write_run(&mut self) -> Result<(), EngineError> {
        let bytes = self.bytes;
        let Some(frame) = self.take_pending().map_err(|e| engine_error(&e))? else { return Ok(()) };
        let order = order(&frame).map_err(|e| engine_error(&e))?;
        let row_bytes = bytes / frame.height();
        let mut file = self.new_run(&frame, row_bytes)?;
        let mut at = 0;
        // Block by block, so that there is never a second copy of all of them.
        while at < order.len() {
            let block = order.slice(i64::try_from(at).unwrap_or(i64::MAX), file.block_rows);
            file.push(&frame.take(&block).map_err(|e| engine_error(&e))?)?;
            at += block.len();
        }
        self.runs.push_back(file.finish()?);
        Ok(())
    }

    fn write_merged(&mut self, mut merged: Sorted) -> Result<(), EngineError> {
        let mut file: Option<RunFile> = None;
        while let Some(frame) = merged.next()? {
            let file = match &mut file {
                Some(file) => file,
                None => file.insert(self.new_run(&frame, frame.estimated_size() / frame.height().max(1))?),
            };
            let mut at = 0;
            while at < frame.height() {
                let block = frame.slice(i64::try_from(at).unwrap_or(i64::MAX), file.block_rows);
                file.push(&block)?;
                at += block.height();
            }
        }
        if let Some(file) = file {
            self.runs.push_back(file.finish()?);
        }
        Ok(())
    }

    fn new_run(&mut self, rows: &pl::DataFrame, row_bytes: usize) -> Result<RunFile, EngineError> {
        let path = self.folder.join(format!("{}-{:05}", self.name, self.written));
        self.written += 1;
        let block_rows = (self.limit_bytes / BLOCKS_IN_BOUND / row_bytes.max(1)).clamp(1, MOST_BLOCK_ROWS);
        RunFile::create(path, rows, block_rows)
    }
}

impl RunFile {
    fn create(path: PathBuf, rows: &pl::DataFrame, block_rows: usize) -> Result<Self, EngineError> {
        let created = || -> pl::PolarsResult<BatchedWriter<File>> {
            pl::ParquetWriter::new(File::create_new(&path)?)
                .with_compression(pl::ParquetCompression::Lz4Raw)
                .with_statistics(pl::StatisticsOptions::empty())
                .with_row_group_size(Some(block_rows))
                .batched(rows.schema())
        };
        let writer = created().map_err(|e| not_written(&path, &e))?;
        Ok(Self { path, writer, block_rows, rows: 0 })
    }

    /// Writes rows of one chunk, at most a block.
    fn push(&mut self, block: &pl::DataFrame) -> Result<(), EngineError> {
        self.rows += block.height();
        self.writer.write_batch(block).map_err(|e| not_written(&self.path, &e))
    }

    fn finish(self) -> Result<Run, EngineError> {
        let Self { path, writer, block_rows, rows } = self;
        writer.finish().map_err(|e| not_written(&path, &e))?;
        let metadata = || -> pl::PolarsResult<FileMetadataRef> {
            pl::ParquetReader::new(File::open(&path)?).get_metadata().cloned()
        };
        let metadata = metadata().map_err(|e| not_read_back(&path, &e))?;
        Ok(Run { path, metadata, block_rows, rows, read: 0, block: None })
    }
}

fn not_written(path: &Path, error: &dyn Display) -> EngineError {
    let detail = format!("{}: {error}", path.display());
    service_failure("staging-write-failed", "Rows could not be written aside for sorting", detail)
}

fn not_read_back(path: &Path, error: &dyn Display) -> EngineError {
    let detail = format!("{}: {error}", path.display());
    service_failure("staging-read-failed", "Rows written aside for sorting could not be read back", detail)
}

impl Sorted {
    /// The next rows in order, some at a time; none at the end.
    pub(super) fn next(&mut self) -> Result<Option<pl::DataFrame>, EngineError> {
        if let Some(whole) = self.whole.take() {
            return Ok(Some(whole));
        }
        for run in &mut self.runs {
            run.fill()?;
        }
        self.merge().map_err(|e| engine_error(&e))
    }

    /// All rows up to the least of the blocks' last ones: no run has others that come before them. At least one block is used
    /// up each time.
    fn merge(&mut self) -> pl::PolarsResult<Option<pl::DataFrame>> {
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
    /// Reads the next block where the last one is used up.
    fn fill(&mut self) -> Result<(), EngineError> {
        if self.block.is_some() {
            return Ok(());
        }
        if self.read == self.rows {
            // Used up; the attempt's folder goes anyway.
            let _ = std::fs::remove_file(&self.path);
            return Ok(());
        }
        let rows = self.block_rows.min(self.rows - self.read);
        let block = self.block(rows).map_err(|e| not_read_back(&self.path, &e))?;
        self.read += rows;
        let keys = keys(&block).map_err(|e| engine_error(&e))?;
        self.block = Some((block, keys));
        Ok(())
    }

    fn block(&self, rows: usize) -> pl::PolarsResult<pl::DataFrame> {
        let mut reader = pl::ParquetReader::new(File::open(&self.path)?).with_slice(Some((self.read, rows)));
        reader.set_metadata(self.metadata.clone());
        reader.finish()
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

/// Where the rows of a frame of one chunk are in order.
fn order(frame: &pl::DataFrame) -> pl::PolarsResult<pl::IdxCa> {
    let keys = keys(frame)?.into_series().into_column();
    Ok(keys.as_materialized_series().arg_sort(pl::SortOptions::default()))
}

fn sorted(mut frame: pl::DataFrame) -> pl::PolarsResult<pl::DataFrame> {
    frame.rechunk_mut();
    frame.take(&order(&frame)?)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should say where")]

    use super::*;
    use ::polars::prelude::NamedFrom;

    #[test]
    fn rows_written_aside_that_are_gone_are_missed() {
        let folder = tempfile::tempdir().unwrap();
        let mut sorter = Sorter::new(folder.path(), "rows", 1);
        for at in [2_i64, 1] {
            let column = pl::Series::new("n".into(), [at]).into_column();
            sorter.push(pl::DataFrame::new(1, vec![column]).unwrap()).unwrap();
        }
        let mut sorted = sorter.finish().unwrap();
        let written: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(written.len(), 2);
        std::fs::remove_file(&written[0]).unwrap();
        let Err(EngineError::Failed(error)) = sorted.next() else { panic!("nobody missed it") };
        assert_eq!(error.kind, "staging-read-failed");
        assert!(error.detail.contains(written[0].to_str().unwrap()), "{error:?}");
    }
}
