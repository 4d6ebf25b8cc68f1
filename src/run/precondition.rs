//! What a request says that its partitions are, so that nobody replaces what they have not seen.

use super::{CatalogEntry, FailureClass, RunError, RunId};
use crate::partition::PartitionKey;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use uuid::Uuid;

/// What each of some partitions must be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Preconditions(pub BTreeMap<PartitionKey, Expected>);

/// What a partition must be: the sha256 of its file or the id of the run that wrote it, both in lower case; none where it
/// must not be there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Expected(Option<String>);

/// A partition that is not what it must be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unmet {
    /// The partition.
    pub partition: PartitionKey,
    /// What it must be.
    pub expected: Expected,
    /// The sha256 of its file and the run that wrote it; none where it is not there.
    pub found: Option<(String, RunId)>,
}

impl Preconditions {
    /// The kind of failure where one is unmet.
    pub const FAILED: &'static str = "precondition-failed";

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that are not met by what the catalog has of their partitions, in the order of the keys.
    pub fn unmet(&self, entries: &[CatalogEntry]) -> Vec<Unmet> {
        let entries: BTreeMap<&PartitionKey, &CatalogEntry> = entries.iter().map(|e| (&e.partition, e)).collect();
        let judged = self.0.iter().map(|(key, expected)| (key, expected, entries.get(key).copied()));
        let unmet = judged.filter(|(_, expected, entry)| !expected.is_met_by(*entry));
        let told = unmet.map(|(key, expected, entry)| Unmet {
            partition: key.clone(),
            expected: expected.clone(),
            found: entry.map(|entry| (entry.content.sha256.clone(), entry.run_id)),
        });
        told.collect()
    }
}

impl Expected {
    /// Nothing at all.
    pub const ABSENT: Expected = Expected(None);

    /// Reads a sha256 or the id of a run.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Ok(Self(Some(text.to_ascii_lowercase())));
        }
        match Uuid::try_parse(text) {
            Ok(id) => Ok(Self(Some(id.to_string()))),
            Err(_) => Err(format!("found {text:?}, expected a sha256 in hex, the id of a run, or null")),
        }
    }

    /// The sha256 or the run's id.
    pub fn as_str(&self) -> Option<&str> {
        self.0.as_deref()
    }

    fn is_met_by(&self, entry: Option<&CatalogEntry>) -> bool {
        match (&self.0, entry) {
            (None, None) => true,
            (Some(text), Some(entry)) => *text == entry.content.sha256 || *text == entry.run_id.to_string(),
            _ => false,
        }
    }
}

impl std::fmt::Display for Unmet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: found ", self.partition)?;
        match &self.found {
            None => write!(f, "nothing")?,
            Some((sha256, run)) => write!(f, "the file {sha256} of run {run}")?,
        }
        match self.expected.as_str() {
            None => write!(f, ", expected nothing"),
            Some(text) => write!(f, ", expected {text}"),
        }
    }
}

/// Why a run failed whose preconditions are not met; trying again by itself changes nothing.
pub fn precondition_failed(unmet: &[Unmet]) -> RunError {
    let detail = unmet.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    let title = "A partition is not what the request expects";
    RunError::new(FailureClass::Compute, Preconditions::FAILED, title, detail)
}
