//! What was asked, and its digest: the test of "the same request".

use super::Mode;
use crate::partition::PartitionKey;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// What a request asked, in canonical form: everything that changes the result or when it may run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// The pipeline's name.
    pub pipeline: String,
    /// Overwrite or full.
    pub mode: Mode,
    /// The partitions asked for.
    pub partitions: AskedPartitions,
}

/// The partitions as asked: sorted and unique, none for `full`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AskedPartitions(pub Vec<PartitionKey>);

/// A versioned digest of an [`Asked`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(pub String);

impl Asked {
    /// The digest, `v1:` and hex.
    pub fn fingerprint(&self) -> Fingerprint {
        let mut hash = Sha256::new();
        let mut field = |text: &str| {
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text.as_bytes());
        };
        field(&self.pipeline);
        field(match self.mode {
            Mode::Overwrite => "overwrite",
            Mode::Full => "full",
        });
        for key in &self.partitions.0 {
            field(key.as_str());
        }
        Fingerprint(format!("v1:{}", hex(&hash.finalize())))
    }

    /// The names of the fields that differ from another request.
    pub fn differences(&self, other: &Asked) -> Vec<&'static str> {
        let mut out = Vec::new();
        if self.pipeline != other.pipeline {
            out.push("pipeline");
        }
        if self.mode != other.mode {
            out.push("mode");
        }
        if self.partitions != other.partitions {
            out.push("partitions");
        }
        out
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
