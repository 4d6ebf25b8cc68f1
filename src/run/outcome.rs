//! What is decided for each partition of a run.

use super::{CatalogEntry, Content, PartFile, Previous, StagedPartition};
use crate::partition::PartitionKey;
use serde::{Deserialize, Serialize};

/// What a run did to a partition, by the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It had none and has rows now.
    Created,
    /// It has other rows, or its damaged file was put right.
    Replaced,
    /// It is what it was, to the byte.
    Unchanged,
    /// It had rows and now has none.
    Cleared,
    /// It had none and has none.
    Empty,
}

impl Outcome {
    /// The outcome's name on the wire and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Created => "created",
            Outcome::Replaced => "replaced",
            Outcome::Unchanged => "unchanged",
            Outcome::Cleared => "cleared",
            Outcome::Empty => "empty",
        }
    }

    /// The outcome of that name.
    pub fn parse(text: &str) -> Option<Self> {
        use Outcome::{Cleared, Created, Empty, Replaced, Unchanged};
        [Created, Replaced, Unchanged, Cleared, Empty].into_iter().find(|o| o.as_str() == text)
    }
}

/// What becomes of data files in a partition's folder that Refrain did not write, and that readers would count too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForeignFiles {
    /// They stay, and nothing is published beside them.
    #[default]
    Fail,
    /// They go: the whole folder is swapped in one step.
    Replace,
}

impl ForeignFiles {
    /// The rule's name in pipeline files, on the wire and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            ForeignFiles::Fail => "fail",
            ForeignFiles::Replace => "replace",
        }
    }

    /// The rule of that name.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Fail, Self::Replace].into_iter().find(|rule| rule.as_str() == text)
    }
}

/// What the rows of a merge were put into.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Base {
    /// The partition was not there.
    Nothing,
    /// The file with this digest in hex.
    File(String),
}

impl Base {
    const NONE: &'static str = "none";

    /// What the catalog says that a partition is now.
    pub fn of(entry: Option<&CatalogEntry>) -> Self {
        entry.map_or(Base::Nothing, |entry| Base::File(entry.content.sha256.clone()))
    }

    /// Its text in the database: the digest, or `none`.
    pub fn as_str(&self) -> &str {
        match self {
            Base::Nothing => Self::NONE,
            Base::File(sha256) => sha256,
        }
    }

    /// The base of that text.
    pub fn parse(text: String) -> Self {
        if text == Self::NONE { Base::Nothing } else { Base::File(text) }
    }
}

/// What publishing does to the files of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// The live file becomes the one with this digest, staged under this name in the decided token's folder.
    Put {
        /// The staged file's name.
        staged: String,
        /// Its digest in hex.
        sha256: String,
        /// Its name in the partition's folder.
        file: PartFile,
    },
    /// No file is left.
    Clear,
}

/// One partition as decided.
#[derive(Debug, Clone, PartialEq)]
pub struct Decided {
    /// The canonical key.
    pub partition: PartitionKey,
    /// What the run does to it, by the catalog.
    pub outcome: Outcome,
    /// What it will hold; none where it will be absent.
    pub content: Option<Content>,
    /// The staged file's name; none where it will be absent.
    pub file: Option<String>,
    /// What it held before.
    pub previous: Option<Previous>,
    /// What publishing does where it finds data files of others.
    pub foreign_files: ForeignFiles,
    /// What its rows were put into; none where they replace what was there.
    pub base: Option<Base>,
}

impl Decided {
    /// What publishing does to the files.
    pub fn action(&self) -> Action {
        match (&self.file, &self.content) {
            (Some(staged), Some(content)) => {
                Action::Put { staged: staged.clone(), sha256: content.sha256.clone(), file: content.file }
            }
            _ => Action::Clear,
        }
    }
}

/// Decides one partition: outcomes come from the catalog, and `unchanged` needs the live file too.
///
/// `file` is the name that its file has in the table. `live_sha256` is the digest of the live file of that name, hashed anew;
/// none where there is none, or it is not all that readers find there.
pub fn decide(
    staged: &StagedPartition,
    file: PartFile,
    entry: Option<&CatalogEntry>,
    live_sha256: Option<&str>,
    foreign_files: ForeignFiles,
) -> Decided {
    let content = staged.file.as_ref().map(|_| Content {
        rows: staged.rows,
        totals: staged.totals.clone(),
        source_rows: staged.source_rows,
        bytes: staged.bytes,
        sha256: staged.sha256.clone(),
        file,
    });
    let outcome = match (entry, &content) {
        (None, None) => Outcome::Empty,
        (Some(_), None) => Outcome::Cleared,
        (None, Some(_)) => Outcome::Created,
        (Some(CatalogEntry { content: old, .. }), Some(new))
            if (&old.sha256, old.file) == (&new.sha256, new.file) && live_sha256 == Some(new.sha256.as_str()) =>
        {
            Outcome::Unchanged
        }
        (Some(_), Some(_)) => Outcome::Replaced,
    };
    let previous = entry.map(|e| Previous { rows: e.content.rows, totals: e.content.totals.clone(), run_id: e.run_id });
    let file = staged.file.clone();
    Decided { partition: staged.partition.clone(), outcome, content, file, previous, foreign_files, base: None }
}
