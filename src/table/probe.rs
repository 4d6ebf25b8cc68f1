//! Whether the file system keeps names as they are.

use super::lock::try_flock;
use super::staging::MAKE_TRIES;
use super::{TableError, Warehouse};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;
use tempfile::TempDir;

/// How the temporary folders of probes are named.
pub(super) const PREFIX: &str = "probe-";

/// Two names that are two partitions, and the rule by which a file system would take them for one.
const PAIRS: [(&str, &str, &str); 5] = [
    ("probe=straße", "probe=STRASSE", "it folds case"),
    ("probe=a", "probe=A", "it folds case"),
    ("probe=\u{e9}", "probe=e\u{301}", "it normalises names"),
    ("probe=dot", "probe=dot.", "it drops dots at the end"),
    ("probe=space", "probe=space ", "it drops spaces at the end"),
];

/// What is written to see whether there is room for more.
const PROBE_BYTES: [u8; 4096] = [b'.'; 4096];

impl Warehouse {
    /// Writes and syncs a file where attempts stage theirs, and takes it away again. It has no name where the file system knows
    /// such files, so that nobody sees it and nothing of it is left by who dies meanwhile; elsewhere it lies in a probe's
    /// temporary folder, which the sweeper knows.
    pub fn probe_write(&self) -> Result<(), TableError> {
        self.check_usable()?;
        let staging = self.staging_root();
        // It is not made here: what was looked at may by now be the empty folder that an unmounted disk leaves.
        let folder = if staging.is_dir() { &staging } else { self.root() };
        let failed = |e| TableError::io("write a probe in", folder, e);
        let nameless = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        match rustix::fs::open(folder, nameless, Mode::RUSR | Mode::WUSR) {
            Ok(file) => write_probe(File::from(file)).map_err(failed),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) if folder == staging => {
                let (folder, _held) = make_held(&staging)?;
                File::create(folder.path().join("file")).and_then(write_probe).map_err(failed)
            }
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Ok(()),
            Err(error) => Err(failed(error.into())),
        }
    }

    /// Makes folders of names that differ little, in a temporary folder, and refuses a file system on which they are
    /// one or come back changed.
    pub fn probe_names(&self) -> Result<(), TableError> {
        self.check_identity()?;
        self.make_staging_root()?;
        let (folder, _held) = make_held(&self.staging_root())?;
        for (first, second, rule) in PAIRS {
            if !keeps_apart(folder.path(), first, second)? {
                return Err(TableError::NamesFold { root: self.root().to_owned(), first, second, rule });
            }
        }
        Ok(())
    }
}

fn write_probe(mut file: File) -> std::io::Result<()> {
    file.write_all(&PROBE_BYTES)?;
    file.sync_all()
}

/// A temporary folder that is held by a lock, so that a sweeper knows that it is somebody's. One that it took before it was
/// held is made again.
fn make_held(staging: &Path) -> Result<(TempDir, File), TableError> {
    let failed = |e| TableError::io("make a temporary folder in", staging, e);
    for _ in 1..MAKE_TRIES {
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(staging).map_err(failed)?;
        if let Some(held) = hold(folder.path())?.filter(|_| folder.path().is_dir()) {
            return Ok((folder, held));
        }
    }
    Err(failed(ErrorKind::NotFound.into()))
}

/// The folder, held as long as this is kept; none where another holds it, or it is gone.
pub(super) fn hold(folder: &Path) -> Result<Option<File>, TableError> {
    let file = match File::open(folder) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|e| TableError::io("open", folder, e))?,
    };
    Ok(try_flock(&file, folder, FlockOperation::NonBlockingLockExclusive)?.then_some(file))
}

fn keeps_apart(folder: &Path, first: &str, second: &str) -> Result<bool, TableError> {
    Ok(make(folder, first)? && make(folder, second)? && has(folder, first)? && has(folder, second)?)
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

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

    use super::keeps_apart;

    #[test]
    fn names_that_are_one_or_come_back_changed_are_found_out() {
        let folder = tempfile::tempdir().unwrap();
        assert!(keeps_apart(folder.path(), "a", "A").unwrap());
        // What folding looks like: the second name is taken.
        assert!(!keeps_apart(folder.path(), "b", "b").unwrap());
        // What normalising looks like: the folder is made, under another name than was asked.
        assert!(!keeps_apart(folder.path(), "c", "c/../d").unwrap());
    }
}
