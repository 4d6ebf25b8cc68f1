//! The source files: listed, looked at by their own schema, and cut to the row groups that matter.

use super::contract::{self, Found};
use super::counts::Counts;
use super::place::Placed;
use super::scope::Allowed;
use super::spool::{raw_rows, spool};
use crate::engine::EngineError;
use crate::engine::error::source_failure;
use crate::engine::local::LocalFiles;
use crate::engine::text::RawRow;
use crate::engine::web::{Web, WebStamp};
use crate::pipeline::Definition;
use crate::pipeline::sources::{Listing, PlannedFile};
use crate::pipeline::url::{is_url, shown};
use crate::run::{RunError, SourceFile};
use ::polars::io::SerReader;
use ::polars::io::parquet::metadata::FileMetadataRef;
use ::polars::prelude as pl;
use chrono::{DateTime, Utc};
use serde::Serialize;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Sources on the local disk and of other servers.
pub(super) struct SourceFiles<'a> {
    local: LocalFiles,
    /// The way to other servers.
    pub(super) web: &'a Web<'a>,
    /// What the servers said of their files, by URL.
    asked: RefCell<BTreeMap<String, WebStamp>>,
}

impl<'a> SourceFiles<'a> {
    /// Relative paths start at `root`.
    pub(super) fn new(root: &Path, web: &'a Web<'a>) -> Self {
        Self { local: LocalFiles::new(root), web, asked: RefCell::default() }
    }

    /// The stamp of a planned file, before anything of it is read.
    pub(super) fn stamp(&self, planned: &PlannedFile) -> Result<Stamp, EngineError> {
        if let Some(stamp) = self.asked.borrow().get(&planned.path) {
            return Ok(Stamp::Web(stamp.clone()));
        }
        LocalStamp::of(&self.local.at(&planned.path)).map(Stamp::Local).map_err(|e| unreadable(planned, &e))
    }
}

impl Listing for SourceFiles<'_> {
    fn are_files(&self, paths: &[String]) -> Result<Vec<bool>, RunError> {
        let urls: Vec<&str> = paths.iter().map(String::as_str).filter(|path| is_url(path)).collect();
        let stamps = self.web.ask(&urls)?;
        let there = urls.iter().zip(stamps).filter_map(|(url, stamp)| Some(((*url).to_owned(), stamp?)));
        self.asked.borrow_mut().extend(there);
        let is_there = |path: &String| match is_url(path) {
            true => Ok(self.asked.borrow().contains_key(path)),
            false => self.local.is_file(path),
        };
        paths.iter().map(is_there).collect()
    }

    fn glob(&self, pattern: &str) -> Result<Vec<String>, RunError> {
        self.local.glob(pattern)
    }
}

/// What tells whether a file was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(super) enum Stamp {
    Local(LocalStamp),
    Web(WebStamp),
}

impl Stamp {
    /// The size of the file; 0 where its server does not say.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Stamp::Local(stamp) => stamp.bytes,
            Stamp::Web(stamp) => stamp.bytes.unwrap_or(0),
        }
    }
}

/// The stamp of a file on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct LocalStamp {
    bytes: u64,
    seconds: i64,
    nanoseconds: i64,
    inode: u64,
}

impl LocalStamp {
    fn of(path: &Path) -> io::Result<Self> {
        let found = std::fs::metadata(path)?;
        Ok(Self { bytes: found.len(), seconds: found.mtime(), nanoseconds: found.mtime_nsec(), inode: found.ino() })
    }

    fn modified(&self) -> Option<DateTime<Utc>> {
        DateTime::<Utc>::from_timestamp(self.seconds, u32::try_from(self.nanoseconds).unwrap_or(0))
    }
}

/// A planned file, and where it is read.
pub(super) struct Place {
    pub(super) planned: PlannedFile,
    pub(super) allowed: Allowed,
    pub(super) stamp: Stamp,
    /// The file, or its download.
    pub(super) bytes_at: PathBuf,
    /// The rows of a text file, once they are read; the caller's to remove.
    pub(super) rows_at: Option<PathBuf>,
}

impl Place {
    /// What must be downloaded, and whereto.
    pub(super) fn download(&self) -> Option<(&WebStamp, PathBuf)> {
        match &self.stamp {
            Stamp::Local(_) => None,
            Stamp::Web(stamp) => Some((stamp, self.bytes_at.clone())),
        }
    }
}

/// A source file whose schema keeps the contract.
pub(super) struct LookedAt {
    /// What was planned for it.
    pub(super) planned: PlannedFile,
    /// Where its rows are: it, its download, or the file that its text was read into.
    pub(super) path: PathBuf,
    source: PathBuf,
    bytes: u64,
    /// What is wrong with the first lines of a text file in which something is.
    pub(super) faults: Vec<String>,
    /// The partitions that its rows may go to.
    pub(super) allowed: Allowed,
    /// The rows of its row groups.
    pub(super) row_groups: Vec<u64>,
    /// What their statistics say of them.
    pub(super) placed: Vec<Placed>,
    /// Where it has each column of the contract.
    pub(super) found: Vec<Found>,
    stamp: Stamp,
    pub(super) metadata: FileMetadataRef,
    pub(super) schema: Arc<pl::ArrowSchema>,
}

impl LookedAt {
    /// Reads a file's schema and holds it against the contract. Text is read into a file of its rows before.
    pub(super) fn open(definition: &Definition, place: Place, counts: &Counts) -> Result<Self, EngineError> {
        let Place { planned, allowed, stamp, bytes_at: source, rows_at } = place;
        let bytes = std::fs::metadata(&source).map_err(|e| unreadable(&planned, &e))?.len();
        let (path, faults) = match rows_at {
            Some(rows_at) => {
                let faults = spool(definition, &planned, &source, &rows_at, counts)?;
                (rows_at, faults)
            }
            None => (source.clone(), Vec::new()),
        };
        let (metadata, schema) = footer(&path, &planned)?;
        let found = match path == source {
            true => contract::of_parquet(definition, shown(&planned.path), &schema)?,
            false => contract::of_spool(definition),
        };
        let row_groups = metadata.row_groups.iter().map(|g| g.num_rows() as u64).collect();
        let placed = Vec::new();
        let looked_at =
            Self { planned, path, source, bytes, faults, allowed, row_groups, placed, found, stamp, metadata, schema };
        Ok(Self { placed: looked_at.row_groups_placed(definition), ..looked_at })
    }

    /// Whether it is text, read into a file of its own.
    pub(super) fn is_text(&self) -> bool {
        self.path != self.source
    }

    /// What was made of it to read it: its download, and the file that its text was read into.
    pub(super) fn copies(&self) -> impl Iterator<Item = &PathBuf> {
        let download = matches!(self.stamp, Stamp::Web(_)).then_some(&self.source);
        download.into_iter().chain(self.is_text().then_some(&self.path))
    }

    /// What the lines of a text file say, before anything is made of them.
    pub(super) fn raw_rows(&self, definition: &Definition, lines: &[i64]) -> Result<Vec<RawRow>, EngineError> {
        raw_rows(definition, &self.planned, &self.source, lines)
    }

    /// Its size.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its rows.
    pub(super) fn rows(&self) -> u64 {
        self.row_groups.iter().sum()
    }

    /// What the report says of it.
    pub(super) fn report(&self) -> SourceFile {
        let (modified, etag) = match &self.stamp {
            Stamp::Local(stamp) => (stamp.modified(), None),
            Stamp::Web(stamp) => (stamp.modified(), stamp.etag.clone()),
        };
        SourceFile { path: self.planned.path.clone(), bytes: self.bytes, rows: self.rows(), modified, etag }
    }

    /// Fails where the file is not the one that was looked at.
    pub(super) fn check_unchanged(&self) -> Result<(), EngineError> {
        // What was downloaded is the version that was planned with, and nobody else's.
        let Stamp::Local(stamp) = &self.stamp else { return Ok(()) };
        let now = LocalStamp::of(&self.source).ok();
        if now == Some(*stamp) {
            return Ok(());
        }
        let found = now.map_or_else(|| "it is gone".to_owned(), |now| format!("it has {} bytes now", now.bytes));
        Err(source_failure(
            "source-changed",
            "A source file changed while it was read",
            format!("{}: had {} bytes when the attempt began, {found}", self.planned.path, stamp.bytes),
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
        let stamp = Stamp::Local(LocalStamp::of(&path).unwrap());
        let place = Place { planned, allowed: Allowed::All, stamp, bytes_at: path.clone(), rows_at: None };
        let looked_at = LookedAt::open(&definition, place, &Counts::default()).unwrap();
        assert_eq!(looked_at.check_unchanged(), Ok(()));

        let told = || looked_at.check_unchanged().unwrap_err().to_string();
        let bytes = looked_at.bytes;
        File::options().append(true).open(&path).unwrap().write_all(b"more").unwrap();
        assert_eq!(
            told(),
            format!("a.parquet: had {bytes} bytes when the attempt began, it has {} bytes now", bytes + 4)
        );
        std::fs::remove_file(&path).unwrap();
        assert!(told().ends_with("it is gone"), "{}", told());
    }
}
