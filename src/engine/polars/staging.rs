//! Staging tables that keep rows: each partition's rows go into its file or, where they are merged, to those that it has.

use super::books::Books;
use super::merge::{self, Merging};
use super::output::{self, PartitionFile};
use super::rows::Rows;
use super::sorting::{Sorted, Sorter};
use super::split::split;
use super::{Attempt, engine_error, file_name};
use crate::engine::{EngineError, MergeBase};
use crate::partition::PartitionKey;
use crate::pipeline::sources::Slice;
use crate::run::{Stage, StagedPartition, Totals};
use ::polars::prelude as pl;
use std::collections::BTreeMap;

/// Rows of one partition on their way into its file.
enum Filling<'a> {
    Writing(Box<PartitionFile>),
    Merging(Merging<'a>),
}

impl Filling<'_> {
    fn push(&mut self, rows: pl::DataFrame) -> Result<(), EngineError> {
        match self {
            Filling::Writing(file) => file.push(rows),
            Filling::Merging(merging) => merging.push(rows),
        }
    }
}

impl Attempt<'_> {
    /// Writes the rows in scope partition by partition, as they come in order; then the partitions that get no rows and keep
    /// those that they have.
    pub(super) fn stage_rows(
        &mut self,
        rows: &Rows<'_>,
        kept: Option<Sorter>,
        slice: &Slice,
        books: &Books,
    ) -> Result<Vec<StagedPartition>, EngineError> {
        self.progress.stage = Stage::Staging;
        self.listener.at(&self.progress);
        self.listener.step("scanned")?;
        let mut out = Vec::new();
        let mut bases: BTreeMap<_, _> = merge::bases_of(self.job, slice).map(|base| (&base.partition, base)).collect();
        let mut sorted = kept.map(|kept| rows.finish(kept)).transpose()?;
        let mut open: Option<(PartitionKey, Filling<'_>)> = None;
        while let Some(batch) = sorted.as_mut().map_or(Ok(None), Sorted::next)? {
            for (key, part) in split(self.definition, &batch).map_err(|e| engine_error(&e))? {
                let part = part.select(rows.file_names()).map_err(|e| engine_error(&e))?;
                if let Some((last, done)) = open.take_if(|(last, _)| *last != key) {
                    out.push(self.staged_filling(last, done, rows, books)?);
                }
                let (to_key, to) = match &mut open {
                    Some(open) => open,
                    None => {
                        let base = bases.remove(&key);
                        open.insert((key, self.filling(rows, base)?))
                    }
                };
                to.push(part).map_err(|e| output::in_partition(e, to_key))?;
            }
        }
        if let Some((last, done)) = open {
            out.push(self.staged_filling(last, done, rows, books)?);
        }
        for (key, base) in bases {
            let kept = self.filling(rows, Some(base))?;
            out.push(self.staged_filling(key.clone(), kept, rows, books)?);
        }
        Ok(out)
    }

    /// Where the rows of a partition go: into its next file or, where they are merged, to the rows of its base first.
    fn filling<'r>(&self, rows: &'r Rows<'r>, base: Option<&'r MergeBase>) -> Result<Filling<'r>, EngineError> {
        Ok(match (&rows.table.merge, base) {
            (Some(merge), Some(base)) => Filling::Merging(Merging::begin(rows, merge, base)?),
            _ => Filling::Writing(Box::new(self.next_file(rows)?)),
        })
    }

    fn next_file(&self, rows: &Rows<'_>) -> Result<PartitionFile, EngineError> {
        let path = self.job.staging.join(file_name(self.definition, self.staged));
        PartitionFile::create(path, &rows.none()?, &self.definition.output)
    }

    fn staged_filling(
        &mut self,
        key: PartitionKey,
        filling: Filling<'_>,
        rows: &Rows<'_>,
        books: &Books,
    ) -> Result<StagedPartition, EngineError> {
        let file = match filling {
            Filling::Writing(file) => *file,
            Filling::Merging(merging) => {
                let mut merged = merging.finish()?;
                let mut file = self.next_file(rows)?;
                while let Some(batch) = merged.next()? {
                    file.push(batch.select(rows.file_names()).map_err(|e| engine_error(&e))?)?;
                }
                file
            }
        };
        self.staged_rows(key, file, books)
    }

    fn staged_rows(
        &mut self,
        partition: PartitionKey,
        file: PartitionFile,
        books: &Books,
    ) -> Result<StagedPartition, EngineError> {
        let (written, rows) = file.finish()?;
        let source_rows = books.source_rows(&partition);
        let file = Some(file_name(self.definition, self.staged));
        self.staged += 1;
        self.progress.partitions += 1;
        self.progress.partitions_staged += 1;
        self.listener.at(&self.progress);
        self.listener.step(&format!("staged-{}", self.staged))?;
        let (bytes, sha256) = (written.bytes, written.sha256);
        Ok(StagedPartition { partition, file, rows, totals: Totals::default(), source_rows, bytes, sha256 })
    }
}
