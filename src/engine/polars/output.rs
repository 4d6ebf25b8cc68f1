//! Partition files: fixed writer settings, no time, host or run in them, hashed while they are written, and synced.

mod csv;
mod json;
mod parquet;

use crate::engine::EngineError;
use crate::engine::error::{compute_failure, service_failure};
use crate::partition::PartitionKey;
use crate::pipeline::{Output, OutputFormat};
use crate::run::{RunError, hex};
use ::polars::prelude as pl;
use csv::CsvFile;
pub(super) use csv::{Cells, text as csv_text};
pub(super) use json::{json_text, write_json};
use parquet::{ParquetFile, Settings};
use sha2::{Digest, Sha256};
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// The type of the failure of a value that has no form in the format.
const VALUE_NOT_WRITTEN: &str = "value-not-written";

/// A file that was written.
pub(super) struct Written {
    /// Its size.
    pub(super) bytes: u64,
    /// Its digest in hex.
    pub(super) sha256: String,
}

/// Writes a frame of one chunk as a new file.
pub(super) fn write(path: &Path, frame: &mut pl::DataFrame, output: &Output) -> Result<Written, EngineError> {
    let written = match output.format {
        OutputFormat::Parquet { compression, row_group_rows } => {
            parquet::write(path, frame, Settings::new(compression, row_group_rows))
        }
        OutputFormat::Csv { compression } => CsvFile::create(path, frame, compression).and_then(|mut file| {
            file.push(frame)?;
            Ok(file.finish()?)
        }),
    };
    written.map_err(|e| not_written(path, &e))
}

/// A partition's file that is written as its rows come.
pub(super) struct PartitionFile {
    path: PathBuf,
    writer: Writer,
    rows: u64,
}

enum Writer {
    Parquet(Box<ParquetFile>),
    Csv(Box<CsvFile>),
}

impl PartitionFile {
    /// Begins a new file of rows like these.
    pub(super) fn create(path: PathBuf, rows: &pl::DataFrame, output: &Output) -> Result<Self, EngineError> {
        let writer = match output.format {
            OutputFormat::Parquet { compression, row_group_rows } => {
                let settings = Settings::new(compression, row_group_rows);
                ParquetFile::create(&path, rows, settings).map(|file| Writer::Parquet(Box::new(file)))
            }
            OutputFormat::Csv { compression } => {
                CsvFile::create(&path, rows, compression).map(|file| Writer::Csv(Box::new(file)))
            }
        };
        let writer = writer.map_err(|e| not_written(&path, &e))?;
        Ok(Self { path, writer, rows: 0 })
    }

    /// Adds rows.
    pub(super) fn push(&mut self, rows: pl::DataFrame) -> Result<(), EngineError> {
        self.rows += rows.height() as u64;
        let pushed = match &mut self.writer {
            Writer::Parquet(file) => file.push(rows),
            Writer::Csv(file) => file.push(&rows),
        };
        pushed.map_err(|e| not_written(&self.path, &e))
    }

    /// Ends the file, synced. Answers with its rows too.
    pub(super) fn finish(self) -> Result<(Written, u64), EngineError> {
        let written = match self.writer {
            Writer::Parquet(file) => file.finish(),
            Writer::Csv(file) => file.finish().map_err(pl::PolarsError::from),
        };
        written.map(|written| (written, self.rows)).map_err(|e| not_written(&self.path, &e))
    }
}

/// A value that cannot be written is told with the partition that it is of.
pub(super) fn in_partition(error: EngineError, key: &PartitionKey) -> EngineError {
    match error {
        EngineError::Failed(error) if error.kind == VALUE_NOT_WRITTEN => {
            let detail = format!("partition {key}: {}", error.detail);
            EngineError::Failed(RunError { detail, ..error })
        }
        error => error,
    }
}

/// What the disk says is the service's trouble. A value that has no form in the format will have none the next time.
fn not_written(path: &Path, error: &pl::PolarsError) -> EngineError {
    match error {
        pl::PolarsError::InvalidOperation(detail) => {
            compute_failure(VALUE_NOT_WRITTEN, "A value cannot be written", detail.to_string())
        }
        error => disk_failed(path, error),
    }
}

fn disk_failed(path: &Path, error: &dyn Display) -> EngineError {
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
    File::open(path).and_then(|folder| folder.sync_all()).map_err(|e| disk_failed(path, &e))
}

struct Hashing<W> {
    to: W,
    sha256: Sha256,
    bytes: u64,
}

impl<W> Hashing<W> {
    fn sha256(&self) -> String {
        hex(&self.sha256.clone().finalize())
    }
}

impl Hashing<BufWriter<File>> {
    /// A new file.
    fn create(path: &Path) -> io::Result<Self> {
        let to = BufWriter::with_capacity(1 << 20, File::create_new(path)?);
        Ok(Self { to, sha256: Sha256::new(), bytes: 0 })
    }

    /// Makes what was written durable.
    fn sync(&mut self) -> io::Result<Written> {
        self.to.flush()?;
        self.to.get_ref().sync_all()?;
        Ok(Written { bytes: self.bytes, sha256: self.sha256() })
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
