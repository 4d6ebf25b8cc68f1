//! Whether the file system keeps names as they are.

use super::{TableError, Warehouse, disk};
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// Two names that are two partitions, and the rule by which a file system would take them for one.
const PAIRS: [(&str, &str, &str); 5] = [
    ("probe=straße", "probe=STRASSE", "it folds case"),
    ("probe=a", "probe=A", "it folds case"),
    ("probe=\u{e9}", "probe=e\u{301}", "it normalises names"),
    ("probe=dot", "probe=dot.", "it drops dots at the end"),
    ("probe=space", "probe=space ", "it drops spaces at the end"),
];

impl Warehouse {
    /// Makes folders of names that differ little, in a temporary folder, and refuses a file system on which they are
    /// one or come back changed.
    pub fn probe_names(&self) -> Result<(), TableError> {
        self.check_identity()?;
        let staging = self.staging_root();
        disk::make_folder(&staging)?;
        let folder = tempfile::Builder::new()
            .prefix("probe-")
            .tempdir_in(&staging)
            .map_err(|e| TableError::io("make a temporary folder in", &staging, e))?;
        for (first, second, rule) in PAIRS {
            let apart = make(folder.path(), first)? && make(folder.path(), second)?;
            if !apart || !has(folder.path(), first)? || !has(folder.path(), second)? {
                return Err(TableError::NamesFold { root: self.root().to_owned(), first, second, rule });
            }
        }
        Ok(())
    }
}

/// Whether the name was free; a name that the file system does not take at all is as bad.
fn make(folder: &Path, name: &str) -> Result<bool, TableError> {
    let path = folder.join(name);
    match fs::create_dir(&path) {
        Ok(()) => Ok(true),
        Err(e)
            if matches!(e.kind(), ErrorKind::AlreadyExists | ErrorKind::InvalidInput | ErrorKind::InvalidFilename) =>
        {
            Ok(false)
        }
        Err(e) => Err(TableError::io("make the folder", &path, e)),
    }
}

fn has(folder: &Path, name: &str) -> Result<bool, TableError> {
    let entries = fs::read_dir(folder).map_err(|e| TableError::io("list", folder, e))?;
    for entry in entries {
        let found: OsString = entry.map_err(|e| TableError::io("list", folder, e))?.file_name();
        if found == name {
            return Ok(true);
        }
    }
    Ok(false)
}
