//! Which files are whose sources.

use super::Definition;
use crate::partition::{PartitionKey, PartitionValue};
use crate::run::{RunError, Scope};

/// What the planner asks of the file system. Paths are as the pipeline writes them; relative ones start at the source
/// root.
pub trait Listing {
    /// Whether this path names a file.
    fn is_file(&self, path: &str) -> std::io::Result<bool>;
    /// The files that match this glob, sorted by path, without hidden files.
    fn glob(&self, pattern: &str) -> std::io::Result<Vec<String>>;
}

/// The partitions that a file is a source of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Serves {
    /// Every partition of the scope (plain paths and globs).
    Scope,
    /// These partitions of the scope (a template, `overwrite`).
    Keys(Vec<PartitionKey>),
    /// Every partition whose time columns have one of these values, in the order of the partition columns with `None`
    /// for a column without a period (a template, `full`).
    Times(Vec<Vec<Option<PartitionValue>>>),
}

/// A file to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedFile {
    /// Its path, as the pipeline writes it with the fields and globs filled in.
    pub path: String,
    /// Whose source it is.
    pub serves: Serves,
}

/// The files of a run, each once, sorted by path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePlan {
    /// The files.
    pub files: Vec<PlannedFile>,
}

impl SourcePlan {
    /// Whether the stray partition `key`, found in `file`, would take that file with `neighbours` one higher.
    pub fn is_next_door(&self, definition: &Definition, file: &PlannedFile, key: &PartitionKey) -> bool {
        let _ = (definition, file, key);
        unimplemented!()
    }
}

/// Plans the files of a run. Errors are source failures (`source-missing`), in class `source`.
pub fn plan(definition: &Definition, scope: &Scope, listing: &dyn Listing) -> Result<SourcePlan, RunError> {
    let _ = (definition, scope, listing);
    unimplemented!()
}
