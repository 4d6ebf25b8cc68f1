//! Staging folders: where attempts write, outside every table and on the same file system; and their sweeping.

use super::{TableError, TableResult, Warehouse, disk, probe};
use crate::run::{ClaimToken, RunId};
use std::fs::{self, DirEntry};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use uuid::Uuid;

pub(super) const STAGING: &str = ".staging";

const CHECKPOINTS: &str = "slices";

/// How often a folder is made again that a sweeper or a clearing run takes away meanwhile.
pub(super) const MAKE_TRIES: u32 = 16;

impl Warehouse {
    pub(super) fn staging_root(&self) -> PathBuf {
        self.root().join(STAGING)
    }

    /// Makes the folder of all staging unless it is there. Whoever made it may have died before it lasted, so that a process syncs
    /// its parent once; from then on whoever makes it again does.
    pub(super) fn make_staging_root(&self) -> TableResult<()> {
        let made = disk::make_folder_unsynced(&self.staging_root())?;
        if made || !self.inner.staging_lasts.load(Ordering::Relaxed) {
            disk::sync_folder(self.root())?;
            self.inner.staging_lasts.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// An attempt's own folder, there or not.
    pub fn staging(&self, run: RunId, token: ClaimToken) -> PathBuf {
        self.staging_of_run(run).join(token.to_string())
    }

    fn staging_of_run(&self, run: RunId) -> PathBuf {
        self.staging_root().join(run.to_string())
    }

    /// Where a run's attempts leave what they have finished for the next one, there or not; it stays until the run ends.
    pub fn checkpoints(&self, run: RunId) -> PathBuf {
        self.staging_of_run(run).join(CHECKPOINTS)
    }

    /// One of [`Warehouse::staged_folders`]: an attempt's, or without a token that of checkpoints.
    pub fn staged_folder(&self, run: RunId, token: Option<ClaimToken>) -> PathBuf {
        token.map_or_else(|| self.checkpoints(run), |token| self.staging(run, token))
    }

    /// Makes an attempt's own folder and those above it, each with its parent synced. It must not be there: a claim
    /// makes it once, and "not found" later on ends the attempt.
    pub fn make_staging(&self, run: RunId, token: ClaimToken) -> TableResult<PathBuf> {
        self.check_identity()?;
        self.make_staging_root()?;
        let folder = self.staging(run, token);
        let mut tries = 0;
        loop {
            tries += 1;
            // A sweeper may take the run's folder, empty for a moment, away between the two.
            let of_run = self.staging_of_run(run);
            let made = disk::make_folder_unsynced(&of_run).and_then(|_| disk::make_folder(&folder));
            match made.and_then(|made| disk::sync_folder(&self.staging_root()).map(|()| made)) {
                Ok(true) => return Ok(folder),
                Ok(false) => return Err(TableError::StagingTaken(folder)),
                Err(TableError::Io { source, .. }) if source.kind() == ErrorKind::NotFound && tries < MAKE_TRIES => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Removes all that a run has staged. Only for a run that can have no other attempt: after its own finish was
    /// accepted. After a failure, another attempt may have begun: [`Warehouse::remove_staged`].
    pub fn remove_staging(&self, run: RunId) -> TableResult<()> {
        disk::remove_tree(&self.staging_of_run(run))
    }

    /// The staging folders of attempts, and those of checkpoints as folders without a token. The sweeper lists them before it asks the database, so that one that is made
    /// meanwhile is not judged by what was known before.
    pub fn staged_folders(&self) -> TableResult<Vec<(RunId, Option<ClaimToken>)>> {
        let mut found = Vec::new();
        for run in folders(&self.staging_root())? {
            let Some(run_id) = id_of(&run) else { continue };
            for folder in folders(&run)? {
                match id_of(&folder) {
                    Some(token) => found.push((RunId(run_id), Some(ClaimToken(token)))),
                    None if folder.ends_with(CHECKPOINTS) => found.push((RunId(run_id), None)),
                    None => {}
                }
            }
        }
        Ok(found)
    }

    /// Removes one attempt's staging, or without a token the run's checkpoints, and the run's folder if that is empty
    /// then.
    pub fn remove_staged(&self, run: RunId, token: Option<ClaimToken>) -> TableResult<()> {
        disk::remove_tree(&self.staged_folder(run, token))?;
        disk::remove_empty_folder(&self.staging_of_run(run)).map(drop)
    }

    /// Removes what a process that died leaves beside staged files: the folders of runs that have nothing staged, and
    /// those in which it looked whether names are kept.
    pub fn remove_leftovers(&self) -> TableResult<()> {
        for folder in folders(&self.staging_root())? {
            if id_of(&folder).is_some() {
                disk::remove_empty_folder(&folder)?;
            } else if is_probe(&folder)
                && let Some(_held) = probe::hold(&folder)?
            {
                // Nobody held it: its process has died, or has not come to hold it, and makes another.
                disk::remove_tree(&folder)?;
            }
        }
        Ok(())
    }

    /// What lies in staging and is no attempt's folder: nothing that the sweeper touches, for `verify` to report.
    pub fn unknown_staging(&self) -> TableResult<Vec<PathBuf>> {
        let mut unknown = Vec::new();
        for run in entries(&self.staging_root())? {
            if !is_attempt_folder(&run) {
                unknown.push(run.path());
                continue;
            }
            let unknown_in_run = |entry: &DirEntry| !is_attempt_folder(entry) && entry.file_name() != CHECKPOINTS;
            unknown.extend(entries(&run.path())?.into_iter().filter(unknown_in_run).map(|entry| entry.path()));
        }
        Ok(unknown)
    }
}

fn is_probe(folder: &Path) -> bool {
    folder.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(probe::PREFIX))
}

fn is_attempt_folder(entry: &DirEntry) -> bool {
    entry.file_type().is_ok_and(|kind| kind.is_dir()) && id_of(&entry.path()).is_some()
}

/// The id that a folder is named after, if it is written as Refrain writes ids.
pub(super) fn id_of(path: &Path) -> Option<Uuid> {
    let name = path.file_name()?.to_str()?;
    Uuid::parse_str(name).ok().filter(|id| id.to_string() == name)
}

/// The folders in a folder, no symbolic links, sorted; none where it is not there.
pub(super) fn folders(path: &Path) -> TableResult<Vec<PathBuf>> {
    let is_folder = |entry: &DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    Ok(entries(path)?.iter().filter(|entry| is_folder(entry)).map(DirEntry::path).collect())
}

/// What is in a folder, sorted; nothing where it is not there.
pub(super) fn entries(path: &Path) -> TableResult<Vec<DirEntry>> {
    let listed = match fs::read_dir(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed.and_then(Iterator::collect::<Result<Vec<_>, _>>),
    };
    let mut entries = listed.map_err(|e| TableError::io("list", path, e))?;
    entries.sort_by_key(DirEntry::file_name);
    Ok(entries)
}
