//! The file table on local disk: the warehouse's identity, staging, the publish lock, publishing, sweeping, verifying.
//!
//! ```text
//!   <warehouse>/
//!     .refrain-warehouse             whose warehouse this is
//!     .locks/<pipeline>              the publish lock, a kernel's lock on a file that is never removed
//!     .staging/<run>/<token>/        an attempt's files before they are published, and folders that were swapped out
//!     _quarantine/<pipeline>/<run>/<token>.parquet   rows that went into no partition
//!     <pipeline>/_SUCCESS            made by a full run
//!     <pipeline>/_manifest.json      where the pipeline says so
//!     <pipeline>/<key>/part-0.parquet     or .csv, .csv.gz, .csv.zst
//! ```
//!
//! All of it blocks, except for waiting for the publish lock. Nothing here follows a symbolic link below the root, and
//! nothing makes a folder in a root that is not this database's warehouse.

mod disk;
mod error;
mod identity;
mod live;
mod lock;
mod look;
mod manifest;
mod probe;
mod publish;
mod quarantine;
mod staging;
mod swap;
mod verify;

pub use error::{IdentityError, TableError};
pub use live::{Digests, LiveFile};
pub use lock::{Holder, PublishLock};
pub use look::ForeignFile;
pub use manifest::MANIFEST_FILE;
pub use publish::Published;
pub use verify::{Finding, FindingKind};

use crate::partition::PartitionKey;
use crate::run::PartFile;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use uuid::Uuid;

/// The name of the file at a table's root that says that a full run went through.
pub const SUCCESS_FILE: &str = "_SUCCESS";

/// A result of the table.
pub type TableResult<T> = Result<T, TableError>;

/// The root under which the tables of one database lie.
#[derive(Debug, Clone)]
pub struct Warehouse {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    id: Uuid,
    database_id: Uuid,
    /// Whether this process has seen to it that the folder of all staging outlasts a power cut.
    staging_lasts: AtomicBool,
}

impl Warehouse {
    /// Opens the warehouse that the database is bound to. Where it is bound to none, makes the root (it must be absent
    /// or empty) or takes the one that was made for this database before it could be bound; the caller then binds
    /// [`Warehouse::id`].
    ///
    /// An absent, empty or other root of a bound database is refused: it is what an unmounted disk leaves.
    pub fn open(root: &Path, bound: Option<Uuid>, database_id: Uuid) -> TableResult<Self> {
        let root = std::path::absolute(root).map_err(|e| TableError::io("make an absolute path of", root, e))?;
        let id = match bound {
            Some(id) => {
                identity::check(&root, id, database_id)?;
                id
            }
            None => identity::adopt(&root, database_id)?,
        };
        Ok(Self { inner: Arc::new(Inner { root, id, database_id, staging_lasts: AtomicBool::new(false) }) })
    }

    /// The warehouse's random id.
    pub fn id(&self) -> Uuid {
        self.inner.id
    }

    /// The root, absolute.
    pub fn root(&self) -> &Path {
        &self.inner.root
    }

    /// Reads the root's identity again: a disk that was unmounted since shows another root. Asked before each stage
    /// and publish.
    pub fn check_identity(&self) -> TableResult<()> {
        identity::check(self.root(), self.inner.id, self.inner.database_id)
    }

    /// Whether the root is this database's warehouse and this process may write there: what a worker needs before it
    /// takes a run. Nothing is written.
    pub fn check_usable(&self) -> TableResult<()> {
        self.check_identity()?;
        for path in [self.root().to_owned(), self.staging_root()] {
            match accessat(CWD, &path, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS) {
                // The first attempt makes it.
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(TableError::io("write in", &path, error.into())),
            }
        }
        Ok(())
    }

    /// Where the data file of a partition lies, there or not.
    pub fn live_path(&self, pipeline: &str, key: &PartitionKey, file: PartFile) -> TableResult<PathBuf> {
        Ok(self.partition_folder(pipeline, key)?.join(file.as_str()))
    }

    fn table_folder(&self, pipeline: &str) -> TableResult<PathBuf> {
        Ok(self.root().join(table_name(pipeline)?))
    }

    fn partition_folder(&self, pipeline: &str, key: &PartitionKey) -> TableResult<PathBuf> {
        let mut folder = self.table_folder(pipeline)?;
        for component in key.as_str().split('/') {
            if !is_key_component(component) {
                return Err(TableError::Name {
                    found: key.as_str().to_owned(),
                    expected: "a partition key of `column=value` parts",
                });
            }
            folder.push(component);
        }
        Ok(folder)
    }
}

/// Keys and names were checked when they were made; a path is only made of what is safe in one all the same.
fn is_key_component(text: &str) -> bool {
    text.split_once('=').is_some_and(|(column, _)| !column.is_empty()) && !text.contains('\0')
}

fn table_name(pipeline: &str) -> TableResult<&str> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if pipeline.starts_with(|c: char| c.is_ascii_lowercase()) && pipeline.chars().all(plain) {
        return Ok(pipeline);
    }
    Err(TableError::Name { found: pipeline.to_owned(), expected: "a pipeline's name, [a-z][a-z0-9_]*" })
}
