//! Tables: the current totals of partitions, and one partition with its history.

use super::{ContentIfAny, ContentView, KeyValues, key_values_schema, outcome_schema, totals, totals_schema};
use crate::partition::PartitionKey;
use crate::run::{CatalogEntry, DefinitionHash, HistoryEntry, Labels, Outcome, RunId, Totals};
use crate::store::Listing;
use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

/// A page of a table's partitions, and the sum over all of them.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http) struct PartitionList<'a> {
    pipeline: &'a str,
    /// Goes up by one with every change of any partition; 0 before the first. With `as_of` the version that the answer shows.
    version: i64,
    /// In the order of their keys.
    partitions: Vec<EntryView<'a>>,
    /// Over the whole table, or the range asked for, not over the page.
    total: TotalView<'a>,
    /// Gives the next page; null on the last.
    next_cursor: Option<String>,
}

/// The periods of a range that have no partition.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({"pipeline": "zone_hour", "version": 7, "periods": 12, "missing": ["pickup_month=2024-04"]}))]
pub(in crate::http) struct MissingList<'a> {
    pipeline: &'a str,
    /// The table's version.
    version: i64,
    /// How many periods were looked for.
    periods: usize,
    /// The canonical keys of those that are not there, in order.
    #[schema(value_type = Vec<String>)]
    missing: &'a [PartitionKey],
}

impl<'a> MissingList<'a> {
    pub(in crate::http) fn new(pipeline: &'a str, version: i64, periods: usize, missing: &'a [PartitionKey]) -> Self {
        Self { pipeline, version, periods, missing }
    }
}

/// The answer to a listing, or to the question what is missing.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) enum ListOrMissing<'a> {
    /// A page of partitions.
    Listed(PartitionList<'a>),
    /// The missing ones.
    Missing(MissingList<'a>),
}

/// The sum over partitions.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TableTotal)]
struct TotalView<'a> {
    partitions: u64,
    rows: u64,
    #[serde(serialize_with = "totals")]
    #[schema(schema_with = totals_schema)]
    totals: &'a Totals,
}

/// What a partition is now.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CurrentPartition)]
struct EntryView<'a> {
    /// The canonical key.
    #[schema(example = "pickup_month=2024-02")]
    partition: &'a str,
    #[schema(schema_with = key_values_schema)]
    values: KeyValues<'a>,
    #[serde(flatten)]
    content: ContentView<'a>,
    /// The run that wrote it.
    #[schema(value_type = Uuid)]
    run_id: RunId,
    /// When that run finished.
    committed_at: DateTime<Utc>,
    /// The sha256 of the definition that the content is right for.
    definition: &'a str,
    /// Whether that is the pipeline's definition now.
    definition_current: bool,
}

/// One partition, with its history: as the listing has it, or that it was cleared.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(in crate::http) enum PartitionDetail<'a> {
    /// It has rows.
    There(ThereView<'a>),
    /// It was cleared.
    Cleared(ClearedView<'a>),
}

/// A partition that has rows, which run found it unchanged last, and its history.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PartitionThere)]
pub(in crate::http) struct ThereView<'a> {
    pipeline: &'a str,
    #[serde(flatten)]
    entry: EntryView<'a>,
    /// The last run that computed the same content again.
    #[schema(value_type = Option<Uuid>)]
    confirmed_by: Option<RunId>,
    confirmed_at: Option<DateTime<Utc>>,
    /// Its changes, newest first.
    history: Vec<HistoryView<'a>>,
    /// Gives the older changes; null where there are none.
    next_cursor: Option<String>,
}

/// A partition that was cleared: no rows, no file. And its history.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ClearedPartition)]
pub(in crate::http) struct ClearedView<'a> {
    pipeline: &'a str,
    /// The canonical key.
    partition: &'a str,
    /// 0
    #[schema(maximum = 0)]
    rows: u64,
    /// Its changes, newest first.
    history: Vec<HistoryView<'a>>,
    /// Gives the older changes; null where there are none.
    next_cursor: Option<String>,
}

/// One change of a partition.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PartitionChange)]
struct HistoryView<'a> {
    /// The table version that it made.
    version: i64,
    #[schema(value_type = Uuid)]
    run_id: RunId,
    /// Whose run that was.
    principal: &'a str,
    /// What its caller calls that run by.
    #[schema(value_type = BTreeMap<String, String>)]
    labels: &'a Labels,
    committed_at: DateTime<Utc>,
    #[schema(schema_with = outcome_schema)]
    outcome: Outcome,
    /// What the partition held from then on; absent where it was cleared.
    #[serde(flatten)]
    content: ContentIfAny<'a>,
    definition: &'a str,
}

impl<'a> PartitionList<'a> {
    pub(in crate::http) fn new(
        pipeline: &'a str,
        now: &DefinitionHash,
        listing: &'a Listing,
        next_cursor: Option<String>,
    ) -> Self {
        Self {
            pipeline,
            version: listing.version,
            partitions: listing.entries.iter().map(|entry| EntryView::new(entry, now)).collect(),
            total: TotalView { partitions: listing.partitions, rows: listing.rows, totals: &listing.totals },
            next_cursor,
        }
    }
}

impl<'a> PartitionDetail<'a> {
    pub(in crate::http) fn new(
        pipeline: &'a str,
        partition: &'a str,
        now: &DefinitionHash,
        entry: Option<&'a CatalogEntry>,
        history: &'a [HistoryEntry],
        next_cursor: Option<String>,
    ) -> Self {
        let history = history.iter().map(HistoryView::from).collect();
        match entry {
            Some(e) => Self::There(ThereView {
                pipeline,
                entry: EntryView::new(e, now),
                confirmed_by: e.confirmed_by,
                confirmed_at: e.confirmed_at,
                history,
                next_cursor,
            }),
            None => Self::Cleared(ClearedView { pipeline, partition, rows: 0, history, next_cursor }),
        }
    }
}

impl<'a> EntryView<'a> {
    fn new(entry: &'a CatalogEntry, now: &DefinitionHash) -> Self {
        Self {
            partition: entry.partition.as_str(),
            values: KeyValues(&entry.partition),
            content: ContentView::from(&entry.content),
            run_id: entry.run_id,
            committed_at: entry.committed_at,
            definition: &entry.definition.0,
            definition_current: entry.definition == *now,
        }
    }
}

impl<'a> From<&'a HistoryEntry> for HistoryView<'a> {
    fn from(h: &'a HistoryEntry) -> Self {
        Self {
            version: h.version,
            run_id: h.run_id,
            principal: &h.principal.0,
            labels: &h.labels,
            committed_at: h.committed_at,
            outcome: h.outcome,
            content: h.content.as_ref().into(),
            definition: &h.definition.0,
        }
    }
}
