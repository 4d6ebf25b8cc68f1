//! The `[quarantine]` of a pipeline: which rows that go into no partition are kept apart, for people to look at.

use std::collections::BTreeSet;

/// Why a row goes into no partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It has no partition value, a value that does not fit, or a null where none may be.
    Rejected,
    /// `where` is not true for it.
    Filtered,
    /// Its partition is out of scope, or its file is none of its partition's.
    Stray,
}

impl Reason {
    /// All of them.
    pub const ALL: [Reason; 3] = [Reason::Rejected, Reason::Filtered, Reason::Stray];

    /// Its name in the quarantined row.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Rejected => "rejected",
            Reason::Filtered => "filtered",
            Reason::Stray => "stray",
        }
    }

    /// The name of its rows in pipeline files.
    pub fn rows(self) -> &'static str {
        match self {
            Reason::Stray => "strays",
            other => other.as_str(),
        }
    }
}

/// Which rows are kept apart, and how many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuarantineRule {
    /// The rows of these reasons.
    pub rows: BTreeSet<Reason>,
    /// At most so many of a run, the first ones by file and line; 0 for none.
    pub max_rows: u32,
}

impl QuarantineRule {
    /// The most that [`QuarantineRule::max_rows`] may say: they are held in memory.
    pub const MOST_ROWS: u32 = 100_000;

    /// Whether rows of this reason are kept apart.
    pub fn keeps(&self, reason: Reason) -> bool {
        self.max_rows > 0 && self.rows.contains(&reason)
    }
}

impl Default for QuarantineRule {
    fn default() -> Self {
        Self { rows: [Reason::Rejected].into(), max_rows: 10_000 }
    }
}
