//! Partition files: fixed writer settings, no time, host or run in them, hashed while they are written, and synced.

use crate::engine::EngineError;
use crate::engine::error::service_failure;
use ::polars::prelude as pl;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

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
    let failed = |e: &dyn std::fmt::Display| {
        service_failure(
            "staging-write-failed",
            "A partition file could not be written",
            format!("{}: {e}", path.display()),
        )
    };
    let file = File::create_new(path).map_err(|e| failed(&e))?;
    let mut out = Hashing { to: BufWriter::with_capacity(1 << 20, file), sha256: Sha256::new(), bytes: 0 };
    pl::ParquetWriter::new(&mut out)
        .with_compression(pl::ParquetCompression::Zstd(None))
        .with_statistics(pl::StatisticsOptions::full())
        .with_row_group_size(Some(ROW_GROUP_ROWS))
        .with_data_page_size(Some(DATA_PAGE_BYTES))
        .finish(frame)
        .map_err(|e| failed(&e))?;
    let (bytes, sha256) = (out.bytes, out.sha256());
    let file = out.to.into_inner().map_err(|e| failed(&e))?;
    file.sync_all().map_err(|e| failed(&e))?;
    Ok(Written { bytes, sha256 })
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
    File::open(path).and_then(|folder| folder.sync_all()).map_err(|e| {
        service_failure(
            "staging-write-failed",
            "A partition file could not be written",
            format!("{}: {e}", path.display()),
        )
    })
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
