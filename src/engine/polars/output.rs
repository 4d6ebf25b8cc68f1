//! Partition files: fixed writer settings, no time, host or run in them, hashed while they are written, and synced.

use crate::engine::EngineError;
use crate::engine::error::service_failure;
use ::polars::io::parquet::write::BatchedWriter;
use ::polars::prelude as pl;
use sha2::{Digest, Sha256};
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Rows of a row group. Part of what makes the same rows the same bytes.
const ROW_GROUP_ROWS: usize = 262_144;
/// Bytes of a data page before compression, likewise.
const DATA_PAGE_BYTES: usize = 1_048_576;

/// A file that was written.
pub(super) struct Written {
    /// Its size.
    pub(super) bytes: u64,
    /// Its digest in hex.
    pub(super) sha256: String,
}

/// Writes a frame of one chunk as a new Parquet file.
pub(super) fn write(path: &Path, frame: &mut pl::DataFrame) -> Result<Written, EngineError> {
    let failed = |e: &dyn Display| not_written(path, e);
    let file = File::create_new(path).map_err(|e| failed(&e))?;
    let mut out = Hashing { to: BufWriter::with_capacity(1 << 20, file), sha256: Sha256::new(), bytes: 0 };
    settings(pl::ParquetWriter::new(&mut out)).finish(frame).map_err(|e| failed(&e))?;
    let (bytes, sha256) = (out.bytes, out.sha256());
    let file = out.to.into_inner().map_err(|e| failed(&e))?;
    file.sync_all().map_err(|e| failed(&e))?;
    Ok(Written { bytes, sha256 })
}

/// A partition's file that is written as its rows come.
pub(super) struct PartitionFile {
    path: PathBuf,
    out: Shared,
    writer: BatchedWriter<Shared>,
    /// Less than a row group.
    pending: pl::DataFrame,
    rows: u64,
}

/// What is written, and what it is written to, for the writer keeps what it is given.
#[derive(Clone)]
struct Shared(Arc<Mutex<Hashing<BufWriter<File>>>>);

impl PartitionFile {
    /// Begins a new file of rows like these.
    pub(super) fn create(path: PathBuf, rows: &pl::DataFrame) -> Result<Self, EngineError> {
        let created = || -> pl::PolarsResult<(Shared, BatchedWriter<Shared>)> {
            let file = BufWriter::with_capacity(1 << 20, File::create_new(&path)?);
            let out = Shared(Arc::new(Mutex::new(Hashing { to: file, sha256: Sha256::new(), bytes: 0 })));
            let writer = settings(pl::ParquetWriter::new(out.clone())).batched(rows.schema())?;
            Ok((out, writer))
        };
        let (out, writer) = created().map_err(|e| not_written(&path, &e))?;
        Ok(Self { path, out, writer, pending: rows.clear(), rows: 0 })
    }

    /// Adds rows. Row groups are as long whatever the rows come in.
    pub(super) fn push(&mut self, rows: pl::DataFrame) -> Result<(), EngineError> {
        self.rows += rows.height() as u64;
        self.add(rows).map_err(|e| not_written(&self.path, &e))
    }

    fn add(&mut self, rows: pl::DataFrame) -> pl::PolarsResult<()> {
        self.pending.vstack_mut_owned(rows)?;
        while self.pending.height() >= ROW_GROUP_ROWS {
            let at = i64::try_from(ROW_GROUP_ROWS).unwrap_or(i64::MAX);
            let (mut group, rest) = self.pending.split_at(at);
            self.pending = rest;
            group.rechunk_mut();
            self.writer.write_batch(&group)?;
        }
        Ok(())
    }

    /// Ends the file, synced. Answers with its rows too.
    pub(super) fn finish(mut self) -> Result<(Written, u64), EngineError> {
        let mut ended = || -> pl::PolarsResult<Written> {
            if self.pending.height() > 0 {
                self.pending.rechunk_mut();
                self.writer.write_batch(&self.pending)?;
            }
            self.writer.finish()?;
            let mut out = self.out.0.lock().unwrap_or_else(PoisonError::into_inner);
            out.flush()?;
            out.to.get_ref().sync_all()?;
            Ok(Written { bytes: out.bytes, sha256: out.sha256() })
        };
        let written = ended();
        written.map(|written| (written, self.rows)).map_err(|e| not_written(&self.path, &e))
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

/// The settings of every partition's file.
fn settings<W: Write>(writer: pl::ParquetWriter<W>) -> pl::ParquetWriter<W> {
    writer
        .with_compression(pl::ParquetCompression::Zstd(None))
        .with_statistics(pl::StatisticsOptions::full())
        .with_row_group_size(Some(ROW_GROUP_ROWS))
        .with_data_page_size(Some(DATA_PAGE_BYTES))
}

fn not_written(path: &Path, error: &dyn Display) -> EngineError {
    let detail = format!("{}: {error}", path.display());
    service_failure("staging-write-failed", "A partition file could not be written", detail)
}

/// The digest in hex of what is read.
pub(super) fn sha256(content: &mut dyn Read) -> io::Result<String> {
    let mut out = Hashing { to: io::sink(), sha256: Sha256::new(), bytes: 0 };
    io::copy(content, &mut out)?;
    Ok(out.sha256())
}

/// Removes a file of this attempt that is not needed any more.
pub(super) fn remove(path: &Path) -> Result<(), EngineError> {
    std::fs::remove_file(path).map_err(|e| {
        let detail = format!("{}: {e}", path.display());
        service_failure("staging-write-failed", "A file could not be removed from staging", detail)
    })
}

/// Syncs a folder, so that the names in it last.
pub(super) fn sync_folder(path: &Path) -> Result<(), EngineError> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(|e| not_written(path, &e))
}

struct Hashing<W> {
    to: W,
    sha256: Sha256,
    bytes: u64,
}

impl<W> Hashing<W> {
    fn sha256(&self) -> String {
        self.sha256.clone().finalize().iter().map(|b| format!("{b:02x}")).collect()
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.to.write(buffer)?;
        self.sha256.update(buffer.get(..written).unwrap_or(buffer));
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
