//! What a run's partitions become: outcomes come from the catalog, actions from the disk.

use super::ending::{compute_error, table_error};
use super::layout::Standing;
use super::merge::base_of;
use super::{Attempt, Worker};
use crate::engine::Report;
use crate::partition::PartitionKey;
use crate::pipeline::Definition;
use crate::run::{Base, CatalogEntry, Decided, ForeignFiles, Mode, RunError, StagedPartition, Warning, decide};
use crate::store::StoreResult;
use crate::table::{ForeignFile, TableError};
use std::collections::{BTreeMap, BTreeSet};

impl Worker {
    /// What the catalog says of the scope's partitions, or of the whole table where the run is for all of it or the
    /// definition has changed since its partitions were written.
    pub(super) async fn catalog(
        &self,
        attempt: &Attempt<'_>,
        definition: &Definition,
        report: &Report,
    ) -> StoreResult<Standing> {
        let pipeline = &attempt.run.pipeline;
        let mut written_by = self.store.table_definitions(pipeline).await?.into_iter();
        let whole = attempt.run.mode == Mode::Full || written_by.any(|written| written.hash != definition.hash);
        let keys: Vec<PartitionKey> = report.partitions.iter().map(|p| p.partition.clone()).collect();
        self.standing(pipeline, definition, if whole { None } else { Some(&keys) }).await
    }

    /// Decides each partition, or says why the table stands in the way; `warnings` gets what the run's reader should know.
    pub(super) async fn outcomes(
        &self,
        attempt: &Attempt<'_>,
        definition: &Definition,
        report: &Report,
        standing: Standing,
        warnings: &mut Vec<Warning>,
    ) -> Result<Vec<Decided>, RunError> {
        let pipeline = attempt.run.pipeline.clone();
        let full = attempt.run.mode == Mode::Full;
        let mut staged: BTreeMap<PartitionKey, StagedPartition> =
            report.partitions.iter().map(|p| (p.partition.clone(), p.clone())).collect();
        let keys: Vec<PartitionKey> = staged.keys().cloned().collect();
        if !full {
            standing.check_layout(definition)?;
        }
        let entries: BTreeMap<PartitionKey, CatalogEntry> =
            standing.entries.into_iter().map(|e| (e.partition.clone(), e)).collect();
        let (spec, name, known) =
            (definition.partition.clone(), pipeline.clone(), entries.keys().cloned().collect::<Vec<_>>());
        let looked = self.on_disk(move |warehouse| {
            if full {
                let foreign = warehouse.foreign_files_of_table(&name, &spec, &known)?;
                Ok((foreign, warehouse.live_partitions(&name, &spec)?))
            } else {
                Ok((warehouse.foreign_files(&name, &keys)?, Vec::new()))
            }
        });
        let (foreign, live) = looked.await.map_err(|e| table_error(&e))?;
        if full {
            // What stands and is no longer made goes.
            let replaced = foreign.iter().filter_map(|file| file.partition.as_ref());
            for key in entries.keys().chain(&live).chain(replaced) {
                staged.entry(key.clone()).or_insert_with(|| StagedPartition::without_rows(key.clone()));
            }
        }
        let rules = rules(definition.foreign_files, &staged);
        let replaced = self.foreign_partitions(attempt, &rules, foreign, warnings).await?;
        let file = definition.output.part_file();
        let staging = self.warehouse.staging(attempt.run.id, attempt.token);
        let bases = attempt.bases.clone();
        let manifest = definition.output.manifest;
        let decided = self.on_disk(move |warehouse| {
            if manifest {
                warehouse.check_manifest_place(&pipeline)?;
            }
            let (mut swaps, mut unknown) = (false, Vec::new());
            let one = |(key, staged): (PartitionKey, StagedPartition)| {
                let entry = entries.get(&key);
                let renamed = staged.file.is_some() && warehouse.has_other_part(&pipeline, &key, file)?;
                if renamed && entry.is_none_or(|entry| entry.content.file == file) {
                    unknown.push(key.clone());
                }
                swaps |= renamed;
                // The file counts only where the catalog has the very content that was staged, and readers find it alone.
                let same = entry.is_some_and(|e| staged.file.is_some() && e.content.sha256 == staged.sha256);
                let alone = same && !replaced.contains(&key) && !renamed;
                let live = if alone { warehouse.live_sha256(&pipeline, &key, file)? } else { None };
                let rule = rules.get(&key).copied().unwrap_or_default();
                let base = bases.as_ref().map(|bases| base_of(bases, &key));
                Ok(Decided { base, ..decide(&staged, file, entry, live.as_deref(), rule) })
            };
            let decided = staged.into_iter().map(one).collect::<Result<Vec<_>, TableError>>()?;
            if swaps {
                warehouse.probe_exchange(&staging)?;
            }
            // What was looked at may have been the empty folder that an unmounted disk leaves.
            warehouse.check_identity()?;
            Ok((decided, unknown))
        });
        let (decided, unknown) = decided.await.map_err(|e| table_error(&e))?;
        warnings.extend(unknown_parts(&unknown));
        if definition.merge().is_some() {
            check_merged(&decided)?;
            warnings.extend(fewer_rows(&decided));
        }
        Ok(decided)
    }

    /// The partitions whose folders are swapped for the sake of files of others, which a warning names; an error where
    /// some of those files may not go, or the file system cannot swap.
    async fn foreign_partitions(
        &self,
        attempt: &Attempt<'_>,
        rules: &Rules,
        foreign: Vec<ForeignFile>,
        warnings: &mut Vec<Warning>,
    ) -> Result<BTreeSet<PartitionKey>, RunError> {
        let rule = |file: &ForeignFile| file.partition.as_ref().and_then(|key| rules.get(key)).copied();
        let (go, stay): (Vec<_>, Vec<_>) =
            foreign.into_iter().partition(|file| rule(file) == Some(ForeignFiles::Replace));
        if !stay.is_empty() {
            let paths = stay.into_iter().map(|file| file.path).collect();
            return Err(table_error(&TableError::ForeignFiles { table: attempt.run.pipeline.clone(), paths }));
        }
        let Some(first) = go.first() else { return Ok(BTreeSet::new()) };
        let detail = format!(
            "{} data files that Refrain did not write go with the folders they are in, such as {}, since the pipeline says \
             foreign_files = \"replace\"",
            go.len(),
            first.path.display()
        );
        warnings.push(Warning { kind: "foreign-files-replaced".to_owned(), detail });
        let staging = self.warehouse.staging(attempt.run.id, attempt.token);
        self.on_disk(move |warehouse| warehouse.probe_exchange(&staging)).await.map_err(|e| table_error(&e))?;
        Ok(go.into_iter().filter_map(|file| file.partition).collect())
    }
}

/// What becomes of files of others, by partition.
type Rules = BTreeMap<PartitionKey, ForeignFiles>;

/// The definition's rule for each partition. A folder in which that of another one lies is never swapped: that one would go
/// with it.
fn rules(rule: ForeignFiles, partitions: &BTreeMap<PartitionKey, StagedPartition>) -> Rules {
    let holds_another = |key: &PartitionKey| {
        let below = format!("{key}/");
        let next = partitions.range(PartitionKey::from_canonical(below.as_str())..).next();
        next.is_some_and(|(next, _)| next.as_str().starts_with(&below))
    };
    partitions.keys().map(|key| (key.clone(), if holds_another(key) { ForeignFiles::Fail } else { rule })).collect()
}

/// A merge clears nothing, and what it would clear no run brings back.
fn check_merged(decided: &[Decided]) -> Result<(), RunError> {
    match decided.iter().find(|d| matches!(d.base, Some(Base::File(_))) && d.content.is_none()) {
        None => Ok(()),
        Some(lost) => {
            let detail = format!("partition {}: found no rows, expected those that it had", lost.partition);
            Err(compute_error("merge-lost-rows", "A merge would clear a partition", detail))
        }
    }
}

/// What a full run of a merged table leaves out: rows that the sources no longer have.
fn fewer_rows(decided: &[Decided]) -> Option<Warning> {
    let rows = |d: &Decided| d.content.as_ref().map_or(0, |content| content.rows);
    let fewer: Vec<(&PartitionKey, u64, u64)> = decided
        .iter()
        .filter_map(|d| Some((&d.partition, d.previous.as_ref()?.rows, rows(d))))
        .filter(|(_, before, now)| now < before)
        .collect();
    let (key, before, now) = fewer.first()?;
    let detail = format!(
        "{} partitions of a merged table have fewer rows than before, such as {key}: {now}, before {before}; what earlier batches brought \
         and the sources no longer have is gone",
        fewer.len()
    );
    Some(Warning { kind: "merged-rows-removed".to_owned(), detail })
}

/// Files that have a name of ours in another format, and that the catalog does not have.
fn unknown_parts(keys: &[PartitionKey]) -> Option<Warning> {
    let first = keys.first()?;
    let detail = format!(
        "{} partitions have a file of another format that the catalog does not have, such as {first}: it goes with its folder",
        keys.len()
    );
    Some(Warning { kind: "unknown-files-replaced".to_owned(), detail })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::PartFile;

    #[test]
    fn a_merge_that_would_clear_a_partition_is_not_decided() {
        let of = |base| {
            let staged = StagedPartition::without_rows(PartitionKey::from_canonical("day=1"));
            let decided = decide(&staged, PartFile::Parquet, None, None, ForeignFiles::Fail);
            check_merged(&[Decided { base, ..decided }])
        };
        assert_eq!(of(Some(Base::File("0".repeat(64)))).map_err(|error| error.kind), Err("merge-lost-rows".to_owned()));
        assert_eq!(of(Some(Base::Nothing)), Ok(()), "it had none");
        assert_eq!(of(None), Ok(()), "a full run has no bases");
    }

    #[test]
    fn a_folder_that_holds_another_partitions_is_never_swapped() {
        let keys = ["year=2023", "year=2023/month=01", "year=2023-x", "year=2024", "year=2024 b/month=02"];
        let partitions = keys.map(|key| {
            (PartitionKey::from_canonical(key), StagedPartition::without_rows(PartitionKey::from_canonical(key)))
        });
        let of = |rule| rules(rule, &partitions.iter().cloned().collect()).into_values().collect::<Vec<_>>();
        let (fail, replace) = (ForeignFiles::Fail, ForeignFiles::Replace);
        // In the order of the keys: a hyphen and a blank sort before the slash.
        assert_eq!(of(replace), [fail, replace, replace, replace, replace]);
        assert_eq!(of(fail), [fail; 5]);
    }
}
