//! Partition files as Parquet: fixed pages, and row groups as long whatever the rows come in.

use super::{Hashing, Written};
use crate::pipeline::ParquetCompression;
use ::polars::io::parquet::write::BatchedWriter;
use ::polars::prelude as pl;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a data page before compression. Part of what makes the same rows the same bytes.
const DATA_PAGE_BYTES: usize = 1_048_576;

/// The settings of a pipeline's files.
#[derive(Clone, Copy)]
pub(super) struct Settings {
    compression: ParquetCompression,
    row_group_rows: usize,
}

impl Settings {
    pub(super) fn new(compression: ParquetCompression, row_group_rows: u32) -> Self {
        Self { compression, row_group_rows: usize::try_from(row_group_rows).unwrap_or(usize::MAX).max(1) }
    }

    fn of<W: Write>(self, writer: pl::ParquetWriter<W>) -> pl::ParquetWriter<W> {
        let compression = match self.compression {
            ParquetCompression::None => pl::ParquetCompression::Uncompressed,
            ParquetCompression::Snappy => pl::ParquetCompression::Snappy,
            ParquetCompression::Gzip => pl::ParquetCompression::Gzip(None),
            ParquetCompression::Lz4 => pl::ParquetCompression::Lz4Raw,
            ParquetCompression::Zstd => pl::ParquetCompression::Zstd(None),
        };
        writer
            .with_compression(compression)
            .with_statistics(pl::StatisticsOptions::full())
            .with_row_group_size(Some(self.row_group_rows))
            .with_data_page_size(Some(DATA_PAGE_BYTES))
    }
}

/// Writes a frame of one chunk as a new file.
pub(super) fn write(path: &Path, frame: &mut pl::DataFrame, settings: Settings) -> pl::PolarsResult<Written> {
    let mut out = Hashing::create(path)?;
    settings.of(pl::ParquetWriter::new(&mut out)).finish(frame)?;
    Ok(out.sync()?)
}

/// A file that is written as its rows come.
pub(super) struct ParquetFile {
    out: Shared,
    writer: BatchedWriter<Shared>,
    row_group_rows: usize,
    /// Less than a row group.
    pending: pl::DataFrame,
}

/// What is written, and what it is written to, for the writer keeps what it is given.
#[derive(Clone)]
struct Shared(Arc<Mutex<Hashing<BufWriter<File>>>>);

impl ParquetFile {
    /// Begins a new file of rows like these.
    pub(super) fn create(path: &Path, rows: &pl::DataFrame, settings: Settings) -> pl::PolarsResult<Self> {
        let out = Shared(Arc::new(Mutex::new(Hashing::create(path)?)));
        let writer = settings.of(pl::ParquetWriter::new(out.clone())).batched(rows.schema())?;
        Ok(Self { out, writer, row_group_rows: settings.row_group_rows, pending: rows.clear() })
    }

    /// Adds rows.
    pub(super) fn push(&mut self, rows: pl::DataFrame) -> pl::PolarsResult<()> {
        self.pending.vstack_mut_owned(rows)?;
        while self.pending.height() >= self.row_group_rows {
            let at = i64::try_from(self.row_group_rows).unwrap_or(i64::MAX);
            let (mut group, rest) = self.pending.split_at(at);
            self.pending = rest;
            group.rechunk_mut();
            self.writer.write_batch(&group)?;
        }
        Ok(())
    }

    /// Ends the file, synced.
    pub(super) fn finish(mut self) -> pl::PolarsResult<Written> {
        if self.pending.height() > 0 {
            self.pending.rechunk_mut();
            self.writer.write_batch(&self.pending)?;
        }
        self.writer.finish()?;
        let mut out = self.out.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(out.sync()?)
    }
}

impl Write for Shared {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).flush()
    }
}
