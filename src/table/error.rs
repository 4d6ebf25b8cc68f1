//! Why the table did not do a step.

use std::io;
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// Why the table did not do a step.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The disk refused.
    #[error("cannot {what} {}: {source}", .path.display())]
    Io {
        /// What was tried, as a verb.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// What the disk said.
        source: io::Error,
    },
    /// The root is not this database's warehouse.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Something that Refrain never makes is in the way.
    #[error("{} is {found}, expected {expected}: refrain did not make it and leaves it alone", .path.display())]
    NotOurs {
        /// What is in the way.
        path: PathBuf,
        /// What it is.
        found: &'static str,
        /// What should be there.
        expected: &'static str,
    },
    /// A name that would lead out of its folder.
    #[error("{found:?} cannot be part of a path, expected {expected}")]
    Name {
        /// The name.
        found: String,
        /// What it should be.
        expected: &'static str,
    },
    /// The attempt's staging folder is there already.
    #[error("the staging folder {} is there already, expected a claim to make its own once", .0.display())]
    StagingTaken(PathBuf),
    /// A partition is not as decided after it was published: something else writes here.
    #[error("{} is not the file just published: something else than refrain writes in this table", .0.display())]
    NotAsDecided(PathBuf),
    /// Readers would count them beside what Refrain writes.
    #[error(
        "table {table}: found data files that Refrain did not write, which readers would count too: {}; expected only one \
         file such as {} in a partition's folder", some_of(.paths), crate::run::PartFile::default().as_str()
    )]
    ForeignFiles {
        /// The pipeline.
        table: String,
        /// The files.
        paths: Vec<PathBuf>,
    },
    /// The file system cannot swap two folders in one step.
    #[error(
        "the file system of {} cannot swap two folders in one step ({source}), expected one that knows RENAME_EXCHANGE: \
         foreign_files = \"replace\" and a change of the output format need it", .path.display()
    )]
    NoExchange {
        /// The folder that was to be swapped.
        path: PathBuf,
        /// What the disk said.
        source: io::Error,
    },
    /// The file system takes two names for one.
    #[error(
        "the file system of {} takes the names {first:?} and {second:?} for one or changes them ({rule}), expected one \
         that keeps names as they are, since two partitions would share a folder",
        .root.display()
    )]
    NamesFold {
        /// The warehouse's root.
        root: PathBuf,
        /// A name.
        first: &'static str,
        /// Another name.
        second: &'static str,
        /// What the file system seems to do.
        rule: &'static str,
    },
}

impl TableError {
    pub(super) fn io(what: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { what, path: path.to_owned(), source }
    }

    /// Whether trying again may help without anybody changing files or settings: what the disk said may pass, and an
    /// unmounted disk may come back.
    pub fn is_transient(&self) -> bool {
        match self {
            TableError::Io { .. } | TableError::NotAsDecided(_) => true,
            TableError::Identity(identity) => identity.is_transient(),
            TableError::NotOurs { .. }
            | TableError::Name { .. }
            | TableError::StagingTaken(_)
            | TableError::ForeignFiles { .. }
            | TableError::NoExchange { .. }
            | TableError::NamesFold { .. } => false,
        }
    }
}

/// The first few.
fn some_of(paths: &[PathBuf]) -> String {
    const TOLD: usize = 5;
    let told: Vec<String> = paths.iter().take(TOLD).map(|path| path.display().to_string()).collect();
    let more = paths.len().saturating_sub(TOLD);
    if more > 0 { format!("{} and {more} more", told.join(", ")) } else { told.join(", ") }
}

/// Why a root is not the warehouse of a database.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// Nothing there.
    #[error("the warehouse {} is absent, expected the one with id {expected}: is its disk mounted?", .root.display())]
    Absent {
        /// The root.
        root: PathBuf,
        /// The warehouse that the database is bound to.
        expected: Uuid,
    },
    /// A folder without an identity.
    #[error(
        "{} holds no warehouse (it has no .refrain-warehouse), expected the one with id {expected}: is its disk mounted?",
        .root.display()
    )]
    NoWarehouse {
        /// The root.
        root: PathBuf,
        /// The warehouse that the database is bound to.
        expected: Uuid,
    },
    /// Another warehouse.
    #[error("{} is the warehouse {found}, expected {expected}, which this database is bound to", .root.display())]
    OtherWarehouse {
        /// The root.
        root: PathBuf,
        /// Its id.
        found: Uuid,
        /// The warehouse that the database is bound to.
        expected: Uuid,
    },
    /// A warehouse of another database.
    #[error("the warehouse {} belongs to the database {found}, expected this one, {expected}", .root.display())]
    OtherDatabase {
        /// The root.
        root: PathBuf,
        /// The database's id in the root.
        found: Uuid,
        /// This database's id.
        expected: Uuid,
    },
    /// A new warehouse would be mixed with something else.
    #[error(
        "{} holds {found:?} and no warehouse, expected an absent or empty folder for this database's new one",
        .root.display()
    )]
    NotEmpty {
        /// The root.
        root: PathBuf,
        /// One thing found in it.
        found: String,
    },
    /// The identity cannot be read.
    #[error("{} is no warehouse identity ({detail}), expected JSON with warehouse_id and database_id", .path.display())]
    Unreadable {
        /// The identity's file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
}

impl IdentityError {
    /// Whether it is what an unmounted disk looks like, which comes back.
    fn is_transient(&self) -> bool {
        !matches!(self, IdentityError::NotEmpty { .. })
    }
}
