//! What others are told of a run, as it was at that moment, and who they are.

use super::{AttemptOutcome, DefinitionHash, Labels, Mode, Outcome, RowCounts, RunError, RunId, SourceFile, State};
use crate::partition::PartitionKey;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Who is told of a run; settled when it is accepted, so that whoever ends it needs no setting.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audience {
    /// The URLs that are told of its end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub webhooks: Vec<String>,
    /// Whether its attempts are told as lineage.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lineage: bool,
}

impl Audience {
    /// Whether there is nobody to be told.
    pub fn is_nobody(&self) -> bool {
        self.webhooks.is_empty() && !self.lineage
    }
}

/// What has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Occasion {
    /// The run has ended.
    RunEnded,
    /// An attempt was claimed.
    AttemptStarted,
    /// An attempt has ended.
    AttemptEnded(AttemptOutcome),
}

/// What is told: the run as it was when it happened, since it may be queued again afterwards.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Notice {
    /// What has happened.
    pub occasion: Occasion,
    /// When.
    pub at: DateTime<Utc>,
    /// The run.
    pub run_id: RunId,
    /// Whose run it is.
    pub principal: String,
    /// The key that it was submitted under.
    pub idempotency_key: String,
    /// The pipeline's name.
    pub pipeline: String,
    /// Overwrite or full.
    pub mode: Mode,
    /// Where it was.
    pub state: State,
    /// Its last attempt; 0 before the first.
    pub attempt: u32,
    /// What the caller calls it by.
    pub labels: Labels,
    /// The definition that it was executed with.
    pub definition: DefinitionHash,
    /// When it was accepted.
    pub created_at: DateTime<Utc>,
    /// When it was first claimed.
    pub started_at: Option<DateTime<Utc>>,
    /// Why it, or the attempt, failed.
    pub error: Option<RunError>,
    /// The books, where it was decided; without the partitions of strays.
    pub rows: Option<RowCounts>,
    /// Its partitions, counted.
    pub partitions: PartitionCounts,
    /// The files read, where an attempt that succeeded is told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceFile>,
}

impl Notice {
    /// The name of what has happened, such as `run.succeeded`.
    pub fn event(&self) -> String {
        match self.occasion {
            Occasion::RunEnded => format!("run.{}", self.state.as_str()),
            Occasion::AttemptStarted => "attempt.started".to_owned(),
            Occasion::AttemptEnded(outcome) => format!("attempt.{}", outcome.as_str()),
        }
    }
}

/// The partitions of a run, counted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionCounts {
    /// How many it names, or made.
    pub named: u64,
    /// The first and the last of them, in the order of their keys.
    pub span: Option<(PartitionKey, PartitionKey)>,
    /// How many came out how, by the name of the outcome; empty before the decision.
    pub outcomes: BTreeMap<String, u64>,
    /// What was written.
    pub written: Written,
}

/// The files that a run has written: those of partitions that were created or replaced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// How many.
    pub files: u64,
    /// Their rows.
    pub rows: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl PartitionCounts {
    /// Adds the next partition, in the order of the keys. `rows` and `bytes` are those of its file, if it has one.
    pub fn add(&mut self, key: PartitionKey, outcome: Option<Outcome>, rows: u64, bytes: u64) {
        self.named = self.named.saturating_add(1);
        self.span = Some(match self.span.take() {
            Some((first, _)) => (first, key),
            None => (key.clone(), key),
        });
        let Some(outcome) = outcome else { return };
        *self.outcomes.entry(outcome.as_str().to_owned()).or_default() += 1;
        if matches!(outcome, Outcome::Created | Outcome::Replaced) {
            self.written.files = self.written.files.saturating_add(1);
            self.written.rows = self.written.rows.saturating_add(rows);
            self.written.bytes = self.written.bytes.saturating_add(bytes);
        }
    }
}

/// How far the telling of a run's end to one URL is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The same for each try: what its receiver drops repeats by.
    pub id: Uuid,
    /// What is told, such as `run.succeeded`.
    pub event: String,
    /// Who is told.
    pub url: String,
    /// How far it is.
    pub state: DeliveryState,
    /// Tries of which it is known how they ended.
    pub tries: u32,
    /// What the receiver answered last.
    pub last_status: Option<u16>,
    /// Why the last try failed.
    pub last_error: Option<String>,
    /// When it was last tried.
    pub last_try_at: Option<DateTime<Utc>>,
    /// When it is tried next; none where it is over.
    pub next_try_at: Option<DateTime<Utc>>,
}

/// How far a delivery is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryState {
    /// It is tried, or will be again.
    Pending,
    /// Its receiver has said that it has it.
    Delivered,
    /// It is not tried any more.
    GaveUp,
}

impl DeliveryState {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Pending, Self::Delivered, Self::GaveUp];

    /// The state's name on the wire and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::GaveUp => "gave_up",
        }
    }

    /// The state of that name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn only_what_was_written_counts_as_written() {
        let mut counts = PartitionCounts::default();
        let key = |month: &str| PartitionKey::from_canonical(format!("month={month}"));
        for (month, outcome) in [
            ("2024-01", Some(Outcome::Created)),
            ("2024-02", Some(Outcome::Replaced)),
            ("2024-03", Some(Outcome::Unchanged)),
            ("2024-04", Some(Outcome::Cleared)),
            ("2024-05", None),
        ] {
            counts.add(key(month), outcome, 7, 100);
        }
        assert_eq!(counts.named, 5);
        assert_eq!(counts.span, Some((key("2024-01"), key("2024-05"))));
        assert_eq!(counts.written, Written { files: 2, rows: 14, bytes: 200 });
        let named: Vec<(&str, u64)> = counts.outcomes.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        assert_eq!(named, [("cleared", 1), ("created", 1), ("replaced", 1), ("unchanged", 1)]);
    }

    #[test]
    fn an_audience_is_stored_without_what_it_has_not() {
        assert_eq!(serde_json::to_string(&Audience::default()).unwrap(), "{}");
        assert!(serde_json::from_str::<Audience>("{}").unwrap().is_nobody());
        let told = Audience { webhooks: vec!["https://h/a".to_owned()], lineage: true };
        let stored = serde_json::to_string(&told).unwrap();
        assert_eq!(serde_json::from_str::<Audience>(&stored).unwrap(), told);
    }
}
