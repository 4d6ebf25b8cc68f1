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
    /// What happens where another run is in the way.
    #[serde(default, skip_serializing_if = "OnOverlap::is_wait")]
    pub on_overlap: OnOverlap,
}

/// What a request wants where a run that has not ended overlaps it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnOverlap {
    /// The new run waits for its turn.
    #[default]
    Wait,
    /// There is no new run.
    Refuse,
}

impl OnOverlap {
    fn is_wait(&self) -> bool {
        *self == OnOverlap::Wait
    }
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
        if self.on_overlap == OnOverlap::Refuse {
            // No key is empty, so what follows an empty one is an option. Defaults leave the digest as it was.
            field("");
            field("on_overlap=refuse");
        }
        Fingerprint(format!("v1:{}", hex(&hash.finalize())))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
