//! The few things that are done to files and folders, each with its syncs.

use super::TableError;
use crate::run::hex;
use rustix::fs::OFlags;
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const READ_BUFFER_BYTES: usize = 256 * 1024;

/// Makes what was done to a folder's names durable.
pub(super) fn sync_folder(path: &Path) -> Result<(), TableError> {
    sync_folder_io(path).map_err(|e| TableError::io("sync", path, e))
}

fn sync_folder_io(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// The same, of a folder that may be gone.
pub(super) fn sync_folder_if_there(path: &Path) -> Result<(), TableError> {
    match sync_folder_io(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(TableError::io("sync", path, e)),
        _ => Ok(()),
    }
}

/// Syncs the folders from `folder` up to `root`, as far as they are there.
pub(super) fn sync_up_to(root: &Path, folder: &Path) -> Result<(), TableError> {
    for path in folder.ancestors() {
        sync_folder_if_there(path)?;
        if path == root {
            break;
        }
    }
    Ok(())
}

/// Makes a folder unless it is there, answers whether it did. The parent is synced by the caller or by [`make_folder`].
pub(super) fn make_folder_unsynced(path: &Path) -> Result<bool, TableError> {
    let made = match fs::create_dir(path) {
        Ok(()) => true,
        Err(e) if e.kind() == ErrorKind::AlreadyExists => false,
        Err(e) => return Err(TableError::io("make the folder", path, e)),
    };
    if made || is_folder(path)? {
        return Ok(made);
    }
    // It was there and is gone again: to the caller the same as a parent that is gone.
    Err(TableError::io("make the folder", path, ErrorKind::NotFound.into()))
}

/// Makes a folder unless it is there, and syncs its parent: an earlier maker may have died before it did.
pub(super) fn make_folder(path: &Path) -> Result<bool, TableError> {
    let made = make_folder_unsynced(path)?;
    if let Some(parent) = path.parent() {
        sync_folder(parent)?;
    }
    Ok(made)
}

/// Whether there is a folder; anything else there, a symbolic link to a folder included, is refused.
pub(super) fn is_folder(path: &Path) -> Result<bool, TableError> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => Ok(true),
        Ok(found) => Err(not_ours(path, &found, "a folder")),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(TableError::io("look at", path, e)),
    }
}

/// Whether `folder`, somewhere below `root`, is there, every part of the way being a folder.
pub(super) fn is_folder_below(root: &Path, folder: &Path) -> Result<bool, TableError> {
    let mut way: Vec<&Path> = folder.ancestors().take_while(|path| *path != root).collect();
    way.reverse();
    for path in way {
        if !is_folder(path)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Opens a regular file for reading; none where nothing is there.
pub(super) fn open_regular(path: &Path) -> Result<Option<File>, TableError> {
    // Without NONBLOCK, opening a pipe would wait for its writer.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) if Errno::from_io_error(&e) == Some(Errno::LOOP) => {
            return Err(TableError::NotOurs {
                path: path.to_owned(),
                found: "a symbolic link",
                expected: "a regular file",
            });
        }
        Err(e) => return Err(TableError::io("open", path, e)),
    };
    let metadata = file.metadata().map_err(|e| TableError::io("look at", path, e))?;
    if metadata.is_file() { Ok(Some(file)) } else { Err(not_ours(path, &metadata, "a regular file")) }
}

/// The digest of a file, in hex.
pub(super) fn sha256(file: &mut File, path: &Path) -> Result<String, TableError> {
    let mut digest = Sha256::new();
    let mut buffer = vec![0; READ_BUFFER_BYTES];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => digest.update(&buffer[..count]),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(TableError::io("read", path, e)),
        }
    }
    Ok(hex(&digest.finalize()))
}

/// Removes a file or a symbolic link, answers whether it was there.
pub(super) fn remove_file(path: &Path) -> Result<bool, TableError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(TableError::io("remove", path, e)),
    }
}

/// Removes a folder if it is empty, answers whether it did; one that is not empty or not there is no error.
pub(super) fn remove_empty_folder(path: &Path) -> Result<bool, TableError> {
    match fs::remove_dir(path) {
        Ok(()) => Ok(true),
        Err(e) if is_absent_or_full(&e) => Ok(false),
        Err(e) => Err(TableError::io("remove the folder", path, e)),
    }
}

/// Removes a folder with all that is in it; what is gone already, or filled again meanwhile, is no error.
pub(super) fn remove_tree(path: &Path) -> Result<(), TableError> {
    match fs::remove_dir_all(path) {
        Err(e) if !is_absent_or_full(&e) => Err(TableError::io("remove the folder", path, e)),
        _ => Ok(()),
    }
}

fn is_absent_or_full(error: &io::Error) -> bool {
    // Some file systems say EEXIST of a folder that is not empty.
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists)
}

pub(super) fn not_ours(path: &Path, found: &fs::Metadata, expected: &'static str) -> TableError {
    let kind = found.file_type();
    let found = if kind.is_symlink() {
        "a symbolic link"
    } else if kind.is_dir() {
        "a folder"
    } else if kind.is_file() {
        "a regular file"
    } else {
        "a special file"
    };
    TableError::NotOurs { path: path.to_owned(), found, expected }
}
