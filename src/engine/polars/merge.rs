//! Merging: what a partition was, with the rows of the sources put in by key.
//!
//! Both sides may be larger than memory. So the rows of both go through a sorter, each with its side, in the order of the key;
//! of each key the row of one side passes, and what passes is sorted as the table is.

use super::blocks::Blocks;
use super::engine_error;
use super::output;
use super::rows::{Rows, Unique};
use super::sorting::{Sorted, Sorter, keys};
use crate::engine::error::{compute_failure, service_failure};
use crate::engine::{EngineError, Job, MergeBase};
use crate::pipeline::sources::Slice;
use crate::pipeline::{Keep, Merge, OnConflict};
use crate::run::Scope;
use ::polars::prelude as pl;
use ::polars::prelude::NamedFrom;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The column that says which side a row is of.
const SIDE: &str = "\u{1}side";

/// The bases of a slice's partitions.
pub(super) fn bases_of<'a>(job: &'a Job, slice: &Slice) -> impl Iterator<Item = &'a MergeBase> + use<'a> {
    let keys: BTreeSet<_> = match &slice.scope {
        Scope::Full => BTreeSet::new(),
        Scope::Partitions(keys) => keys.iter().cloned().collect(),
    };
    job.bases.iter().filter(move |base| keys.contains(&base.partition))
}

/// Where a row comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Base,
    Batch,
}

/// One partition on its way.
pub(super) struct Merging<'a> {
    rows: &'a Rows<'a>,
    merge: &'a Merge,
    base: BaseFile<'a>,
    /// Of both sides, in the order of the key.
    both: Sorter,
}

impl<'a> Merging<'a> {
    /// Begins with the partition as it was.
    pub(super) fn begin(rows: &'a Rows<'a>, merge: &'a Merge, base: &'a MergeBase) -> Result<Self, EngineError> {
        let base = BaseFile::open(base, rows)?;
        Ok(Self { rows, merge, base, both: Sorter::new(rows.folder, "both", rows.limit_bytes) })
    }

    /// Takes rows of the sources, one for each key.
    pub(super) fn push(&mut self, batch: pl::DataFrame) -> Result<(), EngineError> {
        self.add(batch, Side::Batch)
    }

    /// The rows of both, one for each key, in the order of the table.
    pub(super) fn finish(mut self) -> Result<Sorted, EngineError> {
        while let Some(rows) = self.base.next()? {
            self.add(rows, Side::Base)?;
        }
        let Self { rows, merge, base, both } = self;
        let key: Vec<pl::PlSmallStr> = merge.key.iter().map(|name| name.as_str().into()).collect();
        let mut single = Single { key: key.clone(), last: None };
        let mut unique = Unique::new(key, Keep::Last);
        let order: Vec<pl::PlSmallStr> =
            rows.in_order(&rows.table.sort_by).into_iter().map(|column| column.name.as_str().into()).collect();
        let mut merged = Sorter::new(rows.folder, "merged", rows.limit_bytes);
        let mut keep = |rows: pl::DataFrame| merged.push(rows.select(order.clone()).map_err(|e| engine_error(&e))?);
        let mut sorted = both.finish()?;
        while let Some(rows) = sorted.next()? {
            if let Some(twice) = single.second_of(&rows).map_err(|e| engine_error(&e))? {
                return Err(base.two_of_a_key(&twice));
            }
            for rows in unique.of(rows).map_err(|e| engine_error(&e))? {
                keep(rows)?;
            }
        }
        unique.last().map_or(Ok(()), &mut keep)?;
        merged.finish()
    }

    /// The row that stays comes last of its key.
    fn add(&mut self, rows: pl::DataFrame, side: Side) -> Result<(), EngineError> {
        let stays = match self.merge.on_conflict {
            OnConflict::Replace => Side::Batch,
            OnConflict::Keep => Side::Base,
        };
        let placed = || -> pl::PolarsResult<pl::DataFrame> {
            let sides = pl::Series::new(SIDE.into(), vec![side == stays; rows.height()]);
            let mut columns: Vec<pl::Column> = Vec::new();
            for column in self.rows.in_order(&self.merge.key) {
                columns.push(rows.column(&column.name)?.clone());
            }
            columns.insert(self.merge.key.len(), sides.into());
            pl::DataFrame::new(rows.height(), columns)
        };
        self.both.push(placed().map_err(|e| engine_error(&e))?)
    }
}

/// Finds a side that has two rows of one key. The batch has one of each; a base may have more that was written when the
/// pipeline had another key, or none.
struct Single {
    key: Vec<pl::PlSmallStr>,
    last: Option<Vec<u8>>,
}

impl Single {
    /// The key, as text, of the first row that follows another of its key and side.
    fn second_of(&mut self, rows: &pl::DataFrame) -> pl::PolarsResult<Option<String>> {
        let names: Vec<pl::PlSmallStr> = self.key.iter().cloned().chain([SIDE.into()]).collect();
        let sided = keys(&rows.select(names)?)?;
        for at in 0..sided.len() {
            let before = if at == 0 { self.last.as_deref() } else { sided.get(at - 1) };
            if before.is_some() && before == sided.get(at) {
                return self.told(rows, at).map(Some);
            }
        }
        self.last = sided.last().map(<[u8]>::to_vec).or(self.last.take());
        Ok(None)
    }

    fn told(&self, rows: &pl::DataFrame, at: usize) -> pl::PolarsResult<String> {
        let value = |name: &pl::PlSmallStr| Ok(format!("{name} = {}", rows.column(name)?.get(at)?));
        Ok(self.key.iter().map(value).collect::<pl::PolarsResult<Vec<_>>>()?.join(", "))
    }
}

/// The file that a partition is now: opened once, and what was opened is what is hashed and read.
struct BaseFile<'a> {
    base: &'a MergeBase,
    blocks: Blocks,
}

impl<'a> BaseFile<'a> {
    fn open(base: &'a MergeBase, rows: &Rows<'_>) -> Result<Self, EngineError> {
        let mut file =
            open_regular(&base.path).map_err(|e| unreadable(base, &e))?.map_err(|found| damaged(base, found))?;
        let sha256 = output::sha256(&mut file).map_err(|e| unreadable(base, &e))?;
        if sha256 != base.sha256 {
            return Err(damaged(base, &format!("one with sha256 {sha256}")));
        }
        let blocks = Blocks::of(file).map_err(|e| unreadable(base, &e))?;
        let base = Self { base, blocks };
        base.check_columns(rows)?;
        Ok(base)
    }

    fn next(&mut self) -> Result<Option<pl::DataFrame>, EngineError> {
        self.blocks.next(usize::MAX, None).map_err(|e| unreadable(self.base, &e))
    }

    /// Rows are put together by the names and types of their columns.
    fn check_columns(&self, rows: &Rows<'_>) -> Result<(), EngineError> {
        let none = self.blocks.none().map_err(|e| unreadable(self.base, &e))?;
        let (found, expected) = (columns(&none), columns(&rows.none()?));
        let only = |these: &BTreeSet<String>, others: &BTreeSet<String>| {
            these.difference(others).cloned().collect::<Vec<_>>().join(", ")
        };
        if found == expected {
            return Ok(());
        }
        let or_none = |text: String| if text.is_empty() { "no others".to_owned() } else { text };
        let detail = format!(
            "{}: found the columns {}, where the pipeline has {}; expected the file of partition {} to have the pipeline's columns: {}",
            self.base.path.display(),
            or_none(only(&found, &expected)),
            or_none(only(&expected, &found)),
            self.base.partition,
            Merge::WAY_OUT
        );
        Err(compute_failure("merge-base-columns", "The partition has other columns", detail))
    }

    fn two_of_a_key(&self, key: &str) -> EngineError {
        let detail = format!(
            "{}: found two rows with {key}, expected one for each key of the pipeline in partition {}: {}",
            self.base.path.display(),
            self.base.partition,
            Merge::WAY_OUT
        );
        compute_failure("merge-base-keys", "The partition has several rows of one key", detail)
    }
}

fn columns(frame: &pl::DataFrame) -> BTreeSet<String> {
    frame.columns().iter().map(|column| format!("{} ({})", column.name(), column.dtype())).collect()
}

/// Opens a regular file; otherwise what is there instead.
fn open_regular(path: &Path) -> io::Result<Result<File, &'static str>> {
    // Without NONBLOCK, opening a pipe would wait for its writer.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    match OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path) {
        Ok(file) => Ok(if file.metadata()?.is_file() { Ok(file) } else { Err("no regular file") }),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(Err("none")),
        Err(e) if Errno::from_io_error(&e) == Some(Errno::LOOP) => Ok(Err("a symbolic link")),
        Err(e) => Err(e),
    }
}

fn damaged(base: &MergeBase, found: &str) -> EngineError {
    let detail = format!(
        "{}: found {found}, expected the file of partition {} with sha256 {}, into which rows are to be put: restore the file, or {}",
        base.path.display(),
        base.partition,
        base.sha256,
        Merge::WAY_OUT
    );
    compute_failure(MergeBase::DAMAGED, "The partition's file is not the one that rows are merged into", detail)
}

fn unreadable(base: &MergeBase, error: &dyn Display) -> EngineError {
    let detail = format!("{}: {error}", base.path.display());
    service_failure("merge-base-unreadable", "The file that rows are merged into cannot be read", detail)
}
