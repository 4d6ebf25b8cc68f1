//! The publish lock: nothing is published and no run finishes but under it.

use super::{TableError, TableResult, Warehouse, disk, table_name};
use chrono::{DateTime, Utc};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

pub(super) const LOCKS: &str = ".locks";

/// How long a waiter sleeps between two looks at a lock that another holds.
const POLL: Duration = Duration::from_millis(50);

/// Who holds a publish lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The worker's name, or the verb that holds it.
    pub worker: String,
    /// Its process.
    pub pid: u32,
    /// The run that it publishes, if it does.
    pub run: Option<crate::run::RunId>,
    /// When it took the lock.
    pub since: DateTime<Utc>,
}

/// The publish lock of a pipeline, held until it is dropped or the process is dead.
#[derive(Debug)]
#[must_use]
pub struct PublishLock {
    pub(super) warehouse: Warehouse,
    pub(super) pipeline: String,
    file: File,
}

impl Warehouse {
    /// Waits for the publish lock of a pipeline; none where `cancel` came first. Dropping the future ends the wait too.
    pub async fn publish_lock(
        &self,
        pipeline: &str,
        holder: &Holder,
        cancel: &CancellationToken,
    ) -> TableResult<Option<PublishLock>> {
        while !cancel.is_cancelled() {
            let (warehouse, name, who) = (self.clone(), pipeline.to_owned(), holder.clone());
            let tried = tokio::task::spawn_blocking(move || warehouse.try_publish_lock(&name, &who)).await;
            let tried = tried.map_err(|e| TableError::io("lock", &self.root().join(LOCKS), io::Error::other(e)))?;
            if let Some(lock) = tried? {
                return Ok(Some(lock));
            }
            tokio::select! {
                () = cancel.cancelled() => {}
                () = tokio::time::sleep(POLL) => {}
            }
        }
        Ok(None)
    }

    /// Takes the publish lock of a pipeline unless another holds it.
    pub fn try_publish_lock(&self, pipeline: &str, holder: &Holder) -> TableResult<Option<PublishLock>> {
        self.check_identity()?;
        let path = self.lock_path(pipeline)?;
        let file = open_lock_file(&path)?;
        if !try_flock(&file, &path, FlockOperation::NonBlockingLockExclusive)? {
            return Ok(None);
        }
        let lock = PublishLock { warehouse: self.clone(), pipeline: pipeline.to_owned(), file };
        write_holder(&lock.file, holder).map_err(|e| TableError::io("write", &path, e))?;
        Ok(Some(lock))
    }

    /// Who holds the publish lock of a pipeline now; none where nobody does, or its holder cannot be read.
    pub fn lock_holder(&self, pipeline: &str) -> Option<Holder> {
        let path = self.lock_path(pipeline).ok()?;
        let file = disk::open_regular(&path).ok()??;
        if try_flock(&file, &path, FlockOperation::NonBlockingLockShared).ok()? {
            return None;
        }
        let mut text = Vec::new();
        io::Read::read_to_end(&mut &file, &mut text).ok()?;
        serde_json::from_slice(&text).ok()
    }

    fn lock_path(&self, pipeline: &str) -> TableResult<PathBuf> {
        Ok(self.root().join(LOCKS).join(table_name(pipeline)?))
    }
}

impl PublishLock {
    /// The pipeline whose table may be written.
    pub fn pipeline(&self) -> &str {
        &self.pipeline
    }
}

impl Drop for PublishLock {
    fn drop(&mut self) {
        // Closing the file lets go of the lock as well, but not while a child that is just being started has it open.
        let _ = self.file.set_len(0);
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

fn open_lock_file(path: &Path) -> TableResult<File> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).custom_flags(flags);
    match options.open(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            if let Some(folder) = path.parent() {
                // Nobody holds a lock after a power cut, so that neither the folder nor the file has to outlast one.
                disk::make_folder_unsynced(folder)?;
            }
            options.open(path)
        }
        opened => opened,
    }
    .map_err(|e| TableError::io("open", path, e))
}

pub(super) fn try_flock(file: &File, path: &Path, operation: FlockOperation) -> TableResult<bool> {
    match rustix::io::retry_on_intr(|| flock(file, operation)) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(e) => Err(TableError::io("lock", path, e.into())),
    }
}

fn write_holder(file: &File, holder: &Holder) -> io::Result<()> {
    let text = serde_json::to_vec(holder)?;
    file.write_all_at(&text, 0)?;
    file.set_len(text.len() as u64)
}
