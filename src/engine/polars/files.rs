//! The source files: listed, looked at by their own schema, and cut to the row groups that matter.

use super::contract::{self, Found};
use super::scope::Allowed;
use super::spool::spool;
use crate::engine::EngineError;
use crate::engine::error::source_failure;
use crate::pipeline::Definition;
use crate::pipeline::sources::{Listing, PlannedFile};
use crate::run::SourceFile;
use ::polars::io::SerReader;
use ::polars::io::parquet::metadata::FileMetadataRef;
use ::polars::prelude as pl;
use chrono::{DateTime, Utc};
use serde::Serialize;
use std::fmt::Display;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Sources on the local disk.
pub(super) struct LocalListing<'a> {
    /// Where relative paths start.
    pub(super) root: &'a Path,
}

impl Listing for LocalListing<'_> {
    fn is_file(&self, path: &str) -> io::Result<bool> {
        match std::fs::metadata(self.root.join(path)) {
            Ok(found) if found.is_file() => Ok(true),
            Ok(found) => {
                let what = if found.is_dir() { "a folder" } else { "no regular file" };
                Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {what}, expected a file")))
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn glob(&self, pattern: &str) -> io::Result<Vec<String>> {
        let root = glob::Pattern::escape(&self.root.to_string_lossy());
        let absolute = if Path::new(pattern).is_absolute() { pattern.to_owned() } else { format!("{root}/{pattern}") };
        let options = glob::MatchOptions {
            case_sensitive: true,
            require_literal_separator: true,
            require_literal_leading_dot: true,
        };
        let found = glob::glob_with(&absolute, options).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
        let mut out = Vec::new();
        for path in found {
            let path = path.map_err(io::Error::from)?;
            if path.is_file() {
                let shown = if Path::new(pattern).is_absolute() {
                    &path
                } else {
                    path.strip_prefix(self.root).unwrap_or(&path)
                };
                out.push(shown.to_string_lossy().into_owned());
            }
        }
        out.sort();
        Ok(out)
    }
}

/// What tells whether a file was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Stamp {
    pub(super) bytes: u64,
    seconds: i64,
    nanoseconds: i64,
    inode: u64,
}

impl Stamp {
    /// The stamp of a planned file, before anything of it is read.
    pub(super) fn before(root: &Path, planned: &PlannedFile) -> Result<Self, EngineError> {
        Self::of(&root.join(&planned.path)).map_err(|e| unreadable(planned, &e))
    }

    fn of(path: &Path) -> io::Result<Self> {
        let found = std::fs::metadata(path)?;
        Ok(Self { bytes: found.len(), seconds: found.mtime(), nanoseconds: found.mtime_nsec(), inode: found.ino() })
    }
}

/// A source file whose schema keeps the contract.
pub(super) struct LookedAt {
    /// What was planned for it.
    pub(super) planned: PlannedFile,
    /// Where its rows are: it, or the file that it was read into.
    pub(super) path: PathBuf,
    source: PathBuf,
    /// What is wrong with the first lines of a text file in which something is.
    pub(super) faults: Vec<String>,
    /// The partitions that its rows may go to.
    pub(super) allowed: Allowed,
    /// The rows of its row groups.
    pub(super) row_groups: Vec<u64>,
    /// Where it has each column of the contract.
    pub(super) found: Vec<Found>,
    stamp: Stamp,
    pub(super) metadata: FileMetadataRef,
    pub(super) schema: Arc<pl::ArrowSchema>,
}

impl LookedAt {
    /// Reads a file's schema and holds it against the contract.
    pub(super) fn open(
        definition: &Definition,
        root: &Path,
        planned: PlannedFile,
        allowed: Allowed,
        stamp: Stamp,
    ) -> Result<Self, EngineError> {
        let source = root.join(&planned.path);
        let (metadata, schema) = footer(&source, &planned)?;
        let found = contract::of_parquet(definition, &planned.path, &schema)?;
        let row_groups = metadata.row_groups.iter().map(|g| g.num_rows() as u64).collect();
        let (path, faults) = (source.clone(), Vec::new());
        Ok(Self { planned, path, source, faults, allowed, row_groups, found, stamp, metadata, schema })
    }

    /// Reads a text file into a file at `to`, which is the caller's to remove.
    pub(super) fn spool(
        definition: &Definition,
        root: &Path,
        planned: PlannedFile,
        allowed: Allowed,
        stamp: Stamp,
        (to, rows_read): (PathBuf, &AtomicU64),
    ) -> Result<Self, EngineError> {
        let faults = spool(definition, root, &planned, &to, rows_read)?;
        let (metadata, schema) = footer(&to, &planned)?;
        let row_groups = metadata.row_groups.iter().map(|g| g.num_rows() as u64).collect();
        let (source, found) = (root.join(&planned.path), contract::of_spool(definition));
        Ok(Self { planned, path: to, source, faults, allowed, row_groups, found, stamp, metadata, schema })
    }

    /// Whether it is text, read into a file of its own.
    pub(super) fn is_text(&self) -> bool {
        self.path != self.source
    }

    /// Its rows.
    pub(super) fn rows(&self) -> u64 {
        self.row_groups.iter().sum()
    }

    /// What the report says of it.
    pub(super) fn report(&self) -> SourceFile {
        let nanoseconds = u32::try_from(self.stamp.nanoseconds).unwrap_or(0);
        SourceFile {
            path: self.planned.path.clone(),
            bytes: self.stamp.bytes,
            rows: self.rows(),
            modified: DateTime::<Utc>::from_timestamp(self.stamp.seconds, nanoseconds).unwrap_or_default(),
        }
    }

    /// Fails where the file is not the one that was looked at.
    pub(super) fn check_unchanged(&self) -> Result<(), EngineError> {
        let now = Stamp::of(&self.source).ok();
        if now == Some(self.stamp) {
            return Ok(());
        }
        let found = now.map_or_else(|| "it is gone".to_owned(), |now| format!("it has {} bytes now", now.bytes));
        Err(source_failure(
            "source-changed",
            "A source file changed while it was read",
            format!("{}: had {} bytes when the attempt began, {found}", self.planned.path, self.stamp.bytes),
        ))
    }

    /// Reads the contract's columns as they are, and keeps nothing of them.
    pub(super) fn read_through(&self) -> pl::PolarsResult<()> {
        super::query::open(self, false)?
            .select(self.found.iter().map(|found| found.is_null().any(true)).collect::<Vec<_>>())
            .collect_with_engine(pl::Engine::Streaming)?;
        Ok(())
    }
}

fn footer(path: &Path, planned: &PlannedFile) -> Result<(FileMetadataRef, Arc<pl::ArrowSchema>), EngineError> {
    let file = File::open(path).map_err(|e| unreadable(planned, &e))?;
    let mut reader = pl::ParquetReader::new(file);
    let no_footer = |e| format!("expected a Parquet file, but its footer cannot be read: {e}");
    let metadata = reader.get_metadata().map_err(|e| unreadable(planned, &no_footer(e)))?.clone();
    let schema = reader.schema().map_err(|e| unreadable(planned, &e))?;
    Ok((metadata, schema))
}

fn unreadable(planned: &PlannedFile, error: &dyn Display) -> EngineError {
    source_failure("source-unreadable", "A source file cannot be read", format!("{}: {error}", planned.path))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::pipeline::sources::Serves;
    use ::polars::prelude::NamedFrom;
    use std::io::Write;

    #[test]
    fn a_file_that_changed_or_went_is_told() {
        let text = "name = \"t\"\n[source]\nformat = \"parquet\"\npath = \"a.parquet\"\n[source.columns]\nx = \"int64\"\n\
                    [partition]\np = { value_of = \"x\" }\n[measures]\nn = \"count(*)\"\n";
        let definition = crate::pipeline::parse(text, "test").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.parquet");
        let mut frame = pl::DataFrame::new_infer_height(vec![pl::Series::new("x".into(), [1i64, 2]).into()]).unwrap();
        pl::ParquetWriter::new(File::create(&path).unwrap()).finish(&mut frame).unwrap();
        let planned = PlannedFile { path: "a.parquet".to_owned(), serves: Serves::Scope };
        let stamp = Stamp::before(dir.path(), &planned).unwrap();
        let looked_at = LookedAt::open(&definition, dir.path(), planned, Allowed::All, stamp).unwrap();
        assert_eq!(looked_at.check_unchanged(), Ok(()));

        let told = || looked_at.check_unchanged().unwrap_err().to_string();
        let bytes = looked_at.stamp.bytes;
        File::options().append(true).open(&path).unwrap().write_all(b"more").unwrap();
        assert_eq!(
            told(),
            format!("a.parquet: had {bytes} bytes when the attempt began, it has {} bytes now", bytes + 4)
        );
        std::fs::remove_file(&path).unwrap();
        assert!(told().ends_with("it is gone"), "{}", told());
    }
}
