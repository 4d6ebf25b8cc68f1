//! What an attempt tells of itself when it is done: the books of promise 5, and what it made.

use super::{ClaimToken, RunId, Totals};
use crate::partition::PartitionKey;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The books of a run: `read = in_scope + out_of_scope + filtered + rejected`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowCounts {
    /// Rows of all the sources.
    pub read: u64,
    /// Rows that went into a partition.
    pub in_scope: u64,
    /// Rows of other partitions, or of a file that is no source of theirs.
    pub out_of_scope: u64,
    /// Rows of the scope that `where` left out.
    pub filtered: u64,
    /// Rows without a partition value, or with a value that does not fit its type.
    pub rejected: u64,
    /// Out-of-scope rows by their partition: the 100 largest, and the rest under `other`.
    pub out_of_scope_by_partition: BTreeMap<String, u64>,
}

impl RowCounts {
    /// How many partitions are listed one by one.
    pub const LISTED_PARTITIONS: usize = 100;

    /// Whether the books balance.
    pub fn balance(&self) -> bool {
        Some(self.read)
            == self
                .in_scope
                .checked_add(self.out_of_scope)
                .and_then(|sum| sum.checked_add(self.filtered))
                .and_then(|sum| sum.checked_add(self.rejected))
    }
}

/// A source file that was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFile {
    /// Its path as the pipeline names it, relative to the source root where it lies below it; a URL without its query.
    pub path: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its rows.
    pub rows: u64,
    /// When it was last written; none where its server does not say.
    pub modified: Option<DateTime<Utc>>,
    /// What its server calls this version of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
}

/// Something that a reader of the run should look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// A stable name such as `strays-next-door`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What was found, and what setting changes it.
    pub detail: String,
}

/// A file of rows that went into no partition, for people to look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantine {
    /// Its path, relative to the warehouse; as the engine tells it, its name in the attempt's staging folder.
    pub path: String,
    /// Its rows.
    pub rows: u64,
    /// How many such rows there were: more than the file has where that is capped.
    pub of: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its digest in hex.
    pub sha256: String,
}

impl Quarantine {
    /// Whether there were more rows than the file has.
    pub fn is_capped(&self) -> bool {
        self.rows < self.of
    }
}

/// A file of rows kept apart, as it lies in the warehouse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuarantineFile {
    /// Its run.
    pub run: RunId,
    /// The claim that it was made under.
    pub token: ClaimToken,
    /// Its path, relative to the warehouse.
    pub path: String,
}

/// A partition as an attempt computed it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StagedPartition {
    /// The canonical key.
    pub partition: PartitionKey,
    /// The file's name in the attempt's staging folder; none where no row is left.
    pub file: Option<String>,
    /// Rows of the file.
    pub rows: u64,
    /// Each measure rolled up over the rows.
    pub totals: Totals,
    /// Source rows that went in.
    pub source_rows: u64,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Digest of the file in hex; empty without a file.
    pub sha256: String,
}

impl StagedPartition {
    /// One that no row is left of.
    pub fn without_rows(partition: PartitionKey) -> Self {
        let (totals, sha256) = (Totals::default(), String::new());
        Self { partition, file: None, rows: 0, totals, source_rows: 0, bytes: 0, sha256 }
    }
}
