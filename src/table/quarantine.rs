//! Rows kept apart: a file for each attempt, beside the tables, for people to look at and to remove.
//!
//! Only what a run's record names counts. So a file comes in under its attempt's own name, before it is recorded, and those
//! that are never recorded are the sweeper's.

use super::staging::{MAKE_TRIES, entries, folders, id_of};
use super::{TableError, TableResult, Warehouse, disk, table_name};
use crate::run::{ClaimToken, QuarantineFile, RunId};
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

pub(super) const QUARANTINE: &str = "_quarantine";
const EXTENSION: &str = "parquet";

impl Warehouse {
    /// Moves a file from an attempt's staging to where people look for it, durably; answers its path there, relative to the
    /// warehouse.
    pub fn quarantine(&self, pipeline: &str, run: RunId, token: ClaimToken, staged: &str) -> TableResult<String> {
        self.check_identity()?;
        let path = format!("{QUARANTINE}/{}/{run}/{token}.{EXTENSION}", table_name(pipeline)?);
        let staging = self.staging(run, token);
        let (from, to) = (staging.join(staged), self.root().join(&path));
        let folder = self.root().join(QUARANTINE).join(pipeline).join(run.to_string());
        let mut tries = 0;
        loop {
            tries += 1;
            // A sweeper, or an operator, may take folders away that are empty for a moment.
            match self.make_quarantine(pipeline, &folder).and_then(|()| moved(&from, &to)) {
                Ok(()) => break,
                Err(TableError::Io { source, .. })
                    if source.kind() == ErrorKind::NotFound && tries < MAKE_TRIES && from.exists() => {}
                Err(error) => return Err(error),
            }
        }
        disk::sync_folder(&folder)?;
        disk::sync_folder(&staging)?;
        Ok(path)
    }

    /// The files of rows kept apart, of all runs. The sweeper lists them before it asks the database.
    pub fn quarantined(&self) -> TableResult<Vec<QuarantineFile>> {
        let mut found = Vec::new();
        for pipeline in folders(&self.root().join(QUARANTINE))? {
            for folder in folders(&pipeline)? {
                let Some(run) = id_of(&folder) else { continue };
                for file in entries(&folder)? {
                    found.extend(self.of_attempt(RunId(run), &file.path()));
                }
            }
        }
        Ok(found)
    }

    /// Removes a file of rows kept apart, and the folders above it that are empty then. `path` is what [`Warehouse::quarantine`]
    /// answered; where it leads elsewhere nothing is removed.
    pub fn remove_quarantined(&self, path: &str) -> TableResult<()> {
        let root = self.root().join(QUARANTINE);
        let path = self.root().join(path);
        if !path.starts_with(&root) || path.components().any(|part| part == Component::ParentDir) {
            return Ok(());
        }
        disk::remove_file(&path)?;
        for folder in path.ancestors().skip(1).take_while(|folder| *folder != root) {
            if !disk::remove_empty_folder(folder)? {
                break;
            }
        }
        Ok(())
    }

    fn of_attempt(&self, run: RunId, path: &Path) -> Option<QuarantineFile> {
        let token = id_of(&path.with_extension("")).filter(|_| path.extension().is_some_and(|e| e == EXTENSION))?;
        let path = path.strip_prefix(self.root()).ok()?.to_str()?.to_owned();
        Some(QuarantineFile { run, token: ClaimToken(token), path })
    }

    fn make_quarantine(&self, pipeline: &str, folder: &Path) -> TableResult<()> {
        let root: PathBuf = self.root().join(QUARANTINE);
        for made in [root.as_path(), &root.join(pipeline), folder] {
            disk::make_folder(made)?;
        }
        Ok(())
    }
}

fn moved(from: &Path, to: &Path) -> TableResult<()> {
    std::fs::rename(from, to).map_err(|e| TableError::io("move the rows kept apart to", to, e))
}
