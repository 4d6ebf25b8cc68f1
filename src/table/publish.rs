//! Publishing: each partition becomes as decided, by steps of which each can be repeated after a crash.

use super::staging::MAKE_TRIES;
use super::{PublishLock, SUCCESS_FILE, TableError, TableResult, disk};
use crate::run::{Action, Decided, PartFile};
use std::collections::BTreeSet;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// What publishing one partition came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Published {
    /// The live file was as decided: nothing was written.
    AlreadyLive,
    /// The staged file is live now.
    Moved,
    /// The file or its folder was removed.
    Cleared,
    /// There was nothing to remove.
    AlreadyAbsent,
    /// The staged file is gone, or is not what was decided, and the live file is not it either: only a new attempt
    /// can make it. Nothing was changed.
    Gone,
}

/// A file that is to be live.
#[derive(Clone, Copy)]
pub(super) struct Put<'a> {
    /// Where it is staged.
    pub(super) staged: &'a Path,
    /// Its digest in hex.
    pub(super) sha256: &'a str,
    /// Its name in the partition's folder.
    pub(super) file: PartFile,
}

impl PublishLock {
    /// Makes one partition as decided. `staging` is the folder of the token that decided.
    ///
    /// When this answers other than [`Published::Gone`], the partition is as decided; once [`PublishLock::settle`] has answered, it
    /// will be after a power cut.
    pub fn publish(&self, staging: &Path, decided: &Decided) -> TableResult<Published> {
        self.warehouse.check_identity()?;
        match decided.action() {
            Action::Put { staged, sha256, file } => {
                let staged = staging.join(plain_name(&staged)?);
                self.put(staging, decided, Put { staged: &staged, sha256: &sha256, file })
            }
            Action::Clear => self.clear(staging, decided),
        }
    }

    /// Makes lasting what was published of these partitions: syncs each folder on their ways once, however many of them lie in it.
    /// Before it has answered nothing may be told that rests on them: no manifest, no `_SUCCESS`, no catalog.
    pub fn settle(&self, decided: &[Decided]) -> TableResult<()> {
        let root = self.warehouse.root();
        let mut folders: BTreeSet<PathBuf> = BTreeSet::new();
        for one in decided {
            let folder = self.warehouse.partition_folder(&self.pipeline, &one.partition)?;
            // What is above a folder that is in already is in too.
            let new = folder.ancestors().take_while(|path| path.starts_with(root) && !folders.contains(*path));
            let new: Vec<PathBuf> = new.map(Path::to_owned).collect();
            folders.extend(new);
        }
        // Those below first.
        folders.iter().rev().try_for_each(|folder| disk::sync_folder_if_there(folder))?;
        // Nothing is there either where the disk was unmounted meanwhile.
        self.warehouse.check_identity()
    }

    /// Takes `_SUCCESS` away, before a full run changes its first partition.
    pub fn unmark_success(&self) -> TableResult<()> {
        let table = self.warehouse.table_folder(&self.pipeline)?;
        if !disk::is_folder(&table)? {
            return Ok(());
        }
        disk::remove_file(&table.join(SUCCESS_FILE))?;
        disk::sync_folder(&table)
    }

    /// Makes `_SUCCESS`, after a full run has changed its last partition.
    pub fn mark_success(&self) -> TableResult<()> {
        self.warehouse.check_identity()?;
        let table = self.warehouse.table_folder(&self.pipeline)?;
        disk::make_folder(&table)?;
        let path = table.join(SUCCESS_FILE);
        // Made anew, since a symbolic link there would be written through.
        disk::remove_file(&path)?;
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .and_then(|file| file.sync_all())
            .map_err(|e| TableError::io("make", &path, e))?;
        disk::sync_folder(&table)
    }

    fn put(&self, staging: &Path, decided: &Decided, put: Put<'_>) -> TableResult<Published> {
        let (key, Put { staged, sha256, file }) = (&decided.partition, put);
        if self.is_to_swap(decided)? || self.warehouse.has_other_part(&self.pipeline, key, file)? {
            return self.swap(staging, key, put);
        }
        let folder = self.warehouse.partition_folder(&self.pipeline, key)?;
        if self.warehouse.live_sha256(&self.pipeline, key, file)?.as_deref() == Some(sha256) {
            return Ok(Published::AlreadyLive);
        }
        let Some(mut content) = disk::open_regular(staged)? else { return self.gone() };
        if disk::sha256(&mut content, staged)? != sha256 {
            return self.gone();
        }
        let live = folder.join(file.as_str());
        self.move_into(staged, &folder, &live)?;
        check_is_live(&content, &live)?;
        Ok(Published::Moved)
    }

    fn clear(&self, staging: &Path, decided: &Decided) -> TableResult<Published> {
        let root = self.warehouse.root();
        let folder = self.warehouse.partition_folder(&self.pipeline, &decided.partition)?;
        if self.is_to_swap(decided)? {
            return self.take_away(staging, &decided.partition);
        }
        let parts = PartFile::ALL.map(|part| folder.join(part.as_str()));
        let mut removed = false;
        if disk::is_folder_below(root, &folder)? {
            for live in &parts {
                // What is no regular file was not made here.
                if disk::open_regular(live)?.is_some() {
                    removed |= disk::remove_file(live)?;
                }
            }
            removed |= disk::remove_empty_folder(&folder)?;
        }
        for live in parts {
            match fs::symlink_metadata(&live) {
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(TableError::io("look at", &live, e)),
                Ok(_) => return Err(TableError::NotAsDecided(live)),
            }
        }
        // Nothing is there either where the disk was unmounted meanwhile.
        self.warehouse.check_identity()?;
        Ok(if removed { Published::Cleared } else { Published::AlreadyAbsent })
    }

    /// A file is only proven gone in the warehouse itself, not in the empty folder that an unmounted disk leaves.
    pub(super) fn gone(&self) -> TableResult<Published> {
        self.warehouse.check_identity()?;
        Ok(Published::Gone)
    }

    fn move_into(&self, staged: &Path, folder: &Path, live: &Path) -> TableResult<()> {
        let mut tries = 0;
        loop {
            tries += 1;
            let moved = self
                .make_folders(folder)
                .and_then(|()| fs::rename(staged, live).map_err(|e| TableError::io("move a staged file to", live, e)));
            match moved {
                // A folder that was empty when another run cleared its last partition.
                Err(TableError::Io { source, .. }) if source.kind() == ErrorKind::NotFound && tries < MAKE_TRIES => {}
                moved => return moved,
            }
        }
    }

    pub(super) fn make_folders(&self, folder: &Path) -> TableResult<()> {
        let root = self.warehouse.root();
        let mut way: Vec<&Path> = folder.ancestors().take_while(|path| *path != root).collect();
        way.reverse();
        way.into_iter().try_for_each(|path| disk::make_folder_unsynced(path).map(drop))
    }
}

fn plain_name(file: &str) -> TableResult<&str> {
    let mut components = Path::new(file).components();
    match (components.next(), components.next()) {
        (Some(Component::Normal(name)), None) if name == file && !file.contains('\0') => Ok(file),
        _ => Err(TableError::Name { found: file.to_owned(), expected: "the name of a staged file" }),
    }
}

/// The file whose content was checked must be the one that is live: the same one, not one that is like it.
pub(super) fn check_is_live(content: &File, live: &Path) -> TableResult<()> {
    let id = |found: io::Result<Metadata>| found.map(|found| (found.dev(), found.ino()));
    let checked = id(content.metadata()).map_err(|e| TableError::io("look at", live, e))?;
    match id(fs::symlink_metadata(live)) {
        Ok(found) if found == checked => Ok(()),
        Ok(_) => Err(TableError::NotAsDecided(live.to_owned())),
        Err(e) if e.kind() == ErrorKind::NotFound => Err(TableError::NotAsDecided(live.to_owned())),
        Err(e) => Err(TableError::io("look at", live, e)),
    }
}
