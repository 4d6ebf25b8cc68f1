//! What was asked, and its digest: the test of "the same request".

use super::{DefinitionHash, Mode, Preconditions, hex};
use crate::partition::PartitionKey;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// What a request asked, in canonical form: everything that changes the result or when it may run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// The pipeline's name.
    pub pipeline: String,
    /// Overwrite or full.
    pub mode: Mode,
    /// The partitions asked for.
    pub partitions: AskedPartitions,
    /// Which of them are rebuilt, as the table is at acceptance; none for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<Only>,
    /// What happens where another run is in the way.
    #[serde(default, skip_serializing_if = "OnOverlap::is_wait")]
    pub on_overlap: OnOverlap,
    /// What the caller calls the run by.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// What partitions must be, at acceptance and when the run decides.
    #[serde(default, skip_serializing_if = "Preconditions::is_empty")]
    pub if_current: Preconditions,
    /// How long an attempt may compute; none for as long as the pipeline says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u32>,
    /// The time before which the run is not to begin, in whole microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<DateTime<Utc>>,
    /// Among due runs, those of a higher one are claimed first; 0 where nothing was said.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub priority: i32,
    /// The URL that is told of the run's end, as it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<String>,
    /// Where in the caller's trace it was asked, as W3C `traceparent`. It is not what was asked: the same request may come from
    /// another place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

fn is_usual(priority: &i32) -> bool {
    *priority == 0
}

/// Names with short texts.
pub type Labels = BTreeMap<String, String>;

/// Which of the partitions asked for are rebuilt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Only {
    /// Those that are not there.
    Missing,
    /// Those that were made by another definition than the current one.
    Outdated,
}

impl Only {
    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Only::Missing => "missing",
            Only::Outdated => "outdated",
        }
    }

    /// Whether a partition is one of them, by the definition that it was made by (none where it is not there) and the one
    /// that is current.
    fn picks(self, made_by: Option<&DefinitionHash>, current: &DefinitionHash) -> bool {
        match self {
            Only::Missing => made_by.is_none(),
            Only::Outdated => made_by.is_some_and(|made_by| made_by != current),
        }
    }
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
    /// A request with no option that differs from its default.
    pub fn new(pipeline: &str, mode: Mode, partitions: AskedPartitions) -> Self {
        Self {
            pipeline: pipeline.to_owned(),
            mode,
            partitions,
            only: None,
            on_overlap: OnOverlap::Wait,
            labels: Labels::new(),
            if_current: Preconditions::default(),
            timeout_seconds: None,
            not_before: None,
            priority: 0,
            webhook: None,
            traceparent: None,
        }
    }

    /// The partitions that a run rebuilds: those asked for, or the ones among them that `only` picks. `made_by` has what is
    /// there of them and by which definition it was made.
    pub fn picked(
        &self,
        made_by: &BTreeMap<PartitionKey, DefinitionHash>,
        current: &DefinitionHash,
    ) -> Vec<&PartitionKey> {
        let picks = |key: &&PartitionKey| self.only.is_none_or(|only| only.picks(made_by.get(*key), current));
        self.partitions.0.iter().filter(picks).collect()
    }

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
        // No key is empty, so what follows an empty one is an option. Defaults leave the digest as it was.
        let options = self.options();
        for text in options.first().map(|_| "").into_iter().chain(options.iter().map(String::as_str)) {
            field(text);
        }
        Fingerprint(format!("v1:{}", hex(&hash.finalize())))
    }

    /// The options that are not their defaults, in an order that never changes.
    fn options(&self) -> Vec<String> {
        let mut options = Vec::new();
        if self.on_overlap == OnOverlap::Refuse {
            options.push("on_overlap=refuse".to_owned());
        }
        if let Some(only) = self.only {
            options.push(format!("only={}", only.as_str()));
        }
        // Lengths tell where a text ends that may hold anything.
        options.extend(self.labels.iter().map(|(name, text)| format!("label={}:{name}{text}", name.len())));
        for (key, expected) in &self.if_current.0 {
            let (key, expected) = (key.as_str(), expected.as_str().unwrap_or("none"));
            options.push(format!("if_current={}:{key}{expected}", key.len()));
        }
        options.extend(self.timeout_seconds.map(|seconds| format!("timeout_seconds={seconds}")));
        options.extend(self.not_before.map(|time| format!("not_before={}", time.timestamp_micros())));
        options.extend(Some(self.priority).filter(|priority| *priority != 0).map(|n| format!("priority={n}")));
        options.extend(self.webhook.as_ref().map(|url| format!("webhook={url}")));
        options
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::super::Expected;
    use super::*;

    fn asked() -> Asked {
        let keys = ["month=2024-01", "month=2024-02"].map(PartitionKey::from_canonical);
        Asked::new("trips", Mode::Overwrite, AskedPartitions(keys.into()))
    }

    /// A key that was used before an option came must find its run after it has.
    #[test]
    fn fingerprints_without_new_options_are_what_they_were() {
        let digest = |asked: &Asked| asked.fingerprint().0;
        assert_eq!(digest(&asked()), "v1:43e8208dbfbf68b27fcc8f32aeac58037ad356ad0524b2b769a7d1d1de376a7e");
        let full = Asked::new("trips", Mode::Full, AskedPartitions(Vec::new()));
        assert_eq!(digest(&full), "v1:ea5e12c0ad2b2f88bec98690be3ee5b75dfe631fb85e439f10d2b3be8d5c8fe1");
        let refuse = Asked { on_overlap: OnOverlap::Refuse, ..asked() };
        assert_eq!(digest(&refuse), "v1:ba87537317abe7687d7008d7391d439d91b259ca3bafd3f39a024760558651ee");
        let stored = r#"{"pipeline":"trips","mode":"overwrite","partitions":["month=2024-01","month=2024-02"]}"#;
        assert_eq!(serde_json::to_string(&asked()).unwrap(), stored, "and so are their records");
        assert_eq!(serde_json::from_str::<Asked>(stored).unwrap(), asked());
    }

    fn expecting(expected: Expected) -> Preconditions {
        Preconditions([(PartitionKey::from_canonical("month=2024-01"), expected)].into())
    }

    #[test]
    fn every_option_makes_another_request() {
        let asked_for = [
            asked(),
            Asked { on_overlap: OnOverlap::Refuse, ..asked() },
            Asked { only: Some(Only::Missing), ..asked() },
            Asked { only: Some(Only::Outdated), ..asked() },
            Asked { labels: [("team".to_owned(), "a".to_owned())].into(), ..asked() },
            Asked { labels: [("tea".to_owned(), "ma".to_owned())].into(), ..asked() },
            Asked { if_current: expecting(Expected::ABSENT), ..asked() },
            Asked { if_current: expecting(Expected::parse(&"a".repeat(64)).unwrap()), ..asked() },
            Asked { timeout_seconds: Some(60), ..asked() },
            Asked { not_before: DateTime::from_timestamp(60, 1000), ..asked() },
            Asked { not_before: DateTime::from_timestamp(60, 0), ..asked() },
            Asked { priority: 60, ..asked() },
            Asked { priority: -60, ..asked() },
            Asked { webhook: Some("https://h/a".to_owned()), ..asked() },
            Asked { webhook: Some("https://h/b".to_owned()), ..asked() },
            Asked { only: Some(Only::Outdated), on_overlap: OnOverlap::Refuse, ..asked() },
        ];
        let digests: std::collections::BTreeSet<String> = asked_for.iter().map(|a| a.fingerprint().0).collect();
        assert_eq!(digests.len(), asked_for.len());
        for one in &asked_for {
            let stored = serde_json::to_string(one).unwrap();
            assert_eq!(serde_json::from_str::<Asked>(&stored).unwrap(), *one);
        }
    }
}
