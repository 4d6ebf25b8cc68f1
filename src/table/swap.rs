//! Folders in which others have put data files, or in which our own file gets another name: each goes whole and in one step, so
//! that whoever lists and reads it has the old files or the new one.
//!
//! The new folder is made in the deciding token's staging, under a name of its own each time, and from what was decided
//! alone. So whatever an earlier try has left there, half made or swapped out, is never looked at and never comes back;
//! it goes with the staging, when the run has ended.

use super::publish::{Put, check_is_live};
use super::{PublishLock, Published, TableError, TableResult, Warehouse, disk};
use crate::partition::PartitionKey;
use crate::run::{Decided, ForeignFiles};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use uuid::Uuid;

impl Warehouse {
    /// Swaps two folders in staging and removes them: whether the file system can do it is found out before anything
    /// is decided.
    pub fn probe_exchange(&self, staging: &Path) -> TableResult<()> {
        let (Some(one), Some(other)) = (fresh_folder(staging)?, fresh_folder(staging)?) else {
            return Err(TableError::io("make a folder in", staging, ErrorKind::NotFound.into()));
        };
        let swapped = exchange(&one, &other);
        disk::remove_empty_folder(&one)?;
        disk::remove_empty_folder(&other)?;
        swapped
    }
}

impl PublishLock {
    /// Refuses to publish where there are data files of others that stay: those that came after the decision, too.
    pub fn check_foreign_files(&self, decided: &[Decided]) -> TableResult<()> {
        let ours: BTreeSet<&str> = decided.iter().map(|one| one.partition.as_str()).collect();
        let mut foreign = Vec::new();
        for one in decided.iter().filter(|one| one.foreign_files == ForeignFiles::Fail) {
            let files = self.warehouse.files_beside(&self.pipeline, &one.partition)?.into_iter();
            // Under a folder of an earlier layout lie those of other partitions.
            let files = files.filter(|file| !file.key_text.as_deref().is_some_and(|text| ours.contains(text)));
            foreign.extend(files.map(|file| file.path));
        }
        if foreign.is_empty() {
            return Ok(());
        }
        Err(TableError::ForeignFiles { table: self.pipeline.clone(), paths: foreign })
    }

    /// Whether the folder of a partition is to go whole for the files of others in it.
    pub(super) fn is_to_swap(&self, decided: &Decided) -> TableResult<bool> {
        let replace = decided.foreign_files == ForeignFiles::Replace;
        Ok(replace && !self.warehouse.files_beside(&self.pipeline, &decided.partition)?.is_empty())
    }

    /// Swaps the folder of a partition for one that holds the decided file alone.
    pub(super) fn swap(&self, staging: &Path, key: &PartitionKey, put: Put<'_>) -> TableResult<Published> {
        let Put { staged, sha256, file } = put;
        let folder = self.warehouse.partition_folder(&self.pipeline, key)?;
        // An earlier try may have moved the staged file already, and then somebody put another file beside it.
        let live = folder.join(file.as_str());
        let Some((content, source)) = with_content(&[&live, staged], sha256)? else { return self.gone() };
        let Some(next) = fresh_folder(staging)? else { return self.gone() };
        content.sync_all().map_err(|e| TableError::io("sync", source, e))?;
        let linked = next.join(file.as_str());
        fs::hard_link(source, &linked).map_err(|e| TableError::io("link a staged file to", &linked, e))?;
        check_is_live(&content, &linked)?;
        disk::sync_folder(&next)?;
        exchange(&next, &folder)?;
        // Nobody may have another name for the live file and write through it.
        disk::remove_file(staged)?;
        self.sync(&folder, staging)?;
        check_is_live(&content, &live)?;
        Ok(Published::Moved)
    }

    /// Takes the folder of a partition out of the table.
    pub(super) fn take_away(&self, staging: &Path, key: &PartitionKey) -> TableResult<Published> {
        let folder = self.warehouse.partition_folder(&self.pipeline, key)?;
        let Some(place) = fresh_folder(staging)? else { return self.gone() };
        fs::rename(&folder, &place).map_err(|e| TableError::io("move out of the table", &folder, e))?;
        self.sync(&folder, staging)?;
        Ok(Published::Cleared)
    }

    /// Syncs both folders of a swap, and those above the partition's, which may be as new: what is swapped out must not come
    /// back beside what came in.
    fn sync(&self, folder: &Path, staging: &Path) -> TableResult<()> {
        disk::sync_up_to(self.warehouse.root(), folder)?;
        disk::sync_folder_if_there(staging)
    }
}

/// The first of these files that has this content. What is no regular file has none, and goes with its folder.
fn with_content<'a>(paths: &[&'a Path], sha256: &str) -> TableResult<Option<(File, &'a Path)>> {
    for path in paths {
        match disk::open_regular(path) {
            Ok(Some(mut file)) => {
                if disk::sha256(&mut file, path)? == sha256 {
                    return Ok(Some((file, path)));
                }
            }
            Ok(None) | Err(TableError::NotOurs { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// A new folder in staging; none where staging itself is gone.
fn fresh_folder(staging: &Path) -> TableResult<Option<PathBuf>> {
    let path = staging.join(format!("swap-{}", Uuid::new_v4()));
    match fs::create_dir(&path) {
        Ok(()) => Ok(Some(path)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(TableError::io("make the folder", &path, e)),
    }
}

fn exchange(one: &Path, other: &Path) -> TableResult<()> {
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).map_err(|error| exchange_error(other, error))
}

/// A file system that does not know the flag says that it is invalid, a kernel that it has no such call.
fn exchange_error(path: &Path, error: Errno) -> TableError {
    match error {
        Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP => {
            TableError::NoExchange { path: path.to_owned(), source: error.into() }
        }
        other => TableError::io("swap the folder", path, other.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_without_exchange_is_told_from_other_failures() {
        let of = |error| exchange_error(Path::new("/w/t"), error);
        for unknown in [Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP] {
            let error = of(unknown);
            assert!(matches!(error, TableError::NoExchange { .. }) && !error.is_transient(), "{error}");
            assert!(error.to_string().contains("RENAME_EXCHANGE"), "{error}");
        }
        assert!(of(Errno::NOSPC).is_transient());
    }
}
