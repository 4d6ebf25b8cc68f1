//! Live files as readers get them: opened once, so that reading goes on over what was opened while a run replaces it, and
//! told with their digests.

use super::{TableError, TableResult, Warehouse, disk};
use crate::partition::PartitionKey;
use crate::run::PartFile;
use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// How many digests are kept.
const KEPT: usize = 10_000;

/// A file that was changed so recently may be changed once more without its times telling, since they are only as fine as the
/// kernel's clock.
const SETTLED: Duration = Duration::from_secs(2);

/// A partition's data file, opened.
#[derive(Debug)]
pub struct LiveFile {
    /// The file, at its beginning.
    pub file: File,
    /// Its size.
    pub bytes: u64,
    path: PathBuf,
    stamp: Stamp,
}

/// What tells that a file is still the one that was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(found: &Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            bytes: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }

    fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let changed = Duration::from_secs(u64::try_from(self.changed.0).unwrap_or_default());
        now > changed + SETTLED
    }
}

/// The digests of files that were read before.
#[derive(Debug, Default)]
pub struct Digests(Mutex<HashMap<Stamp, String>>);

impl Digests {
    /// The sha256 in hex of this file, where it is known.
    pub fn known(&self, live: &LiveFile) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&live.stamp).cloned()
    }

    /// Reads the file for its sha256; none where it was changed meanwhile.
    pub fn read(&self, live: &mut LiveFile) -> TableResult<Option<String>> {
        let settled = live.stamp.is_settled();
        let failed = |source| TableError::io("read", &live.path, source);
        live.file.seek(SeekFrom::Start(0)).map_err(failed)?;
        let sha256 = disk::sha256(&mut live.file, &live.path)?;
        live.file.seek(SeekFrom::Start(0)).map_err(failed)?;
        if Stamp::of(&live.file.metadata().map_err(failed)?) != live.stamp {
            return Ok(None);
        }
        if settled {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if known.len() >= KEPT {
                known.clear();
            }
            known.insert(live.stamp, sha256.clone());
        }
        Ok(Some(sha256))
    }
}

impl Warehouse {
    /// Opens a partition's data file of that name; none where there is none.
    pub fn open_live(&self, pipeline: &str, key: &PartitionKey, file: PartFile) -> TableResult<Option<LiveFile>> {
        let folder = self.partition_folder(pipeline, key)?;
        if !disk::is_folder_below(self.root(), &folder)? {
            self.check_identity()?;
            return Ok(None);
        }
        let path = folder.join(file.as_str());
        let Some(file) = disk::open_regular(&path)? else { return Ok(None) };
        let found = file.metadata().map_err(|e| TableError::io("look at", &path, e))?;
        Ok(Some(LiveFile { file, bytes: found.len(), path, stamp: Stamp::of(&found) }))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use std::fs;

    fn opened(path: &std::path::Path) -> LiveFile {
        let file = File::open(path).unwrap();
        let found = file.metadata().unwrap();
        LiveFile { file, bytes: found.len(), path: path.to_owned(), stamp: Stamp::of(&found) }
    }

    /// Until so long ago that its times tell of the next change.
    fn settle(live: &mut LiveFile) {
        live.stamp.changed.0 -= 10;
    }

    #[test]
    fn a_digest_is_kept_of_a_file_at_rest_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        fs::write(&path, "abc").unwrap();
        let digests = Digests::default();
        let mut fresh = opened(&path);
        let sha256 = digests.read(&mut fresh).unwrap().unwrap();
        assert_eq!(sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(digests.known(&fresh), None, "it may be changed within the same tick");
        let mut other = opened(&path);
        settle(&mut other);
        assert_eq!(digests.read(&mut other).unwrap(), None, "it is not what was opened any more");
        assert_eq!(digests.known(&other), None);
    }
}
