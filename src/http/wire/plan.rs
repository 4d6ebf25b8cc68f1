//! What a submission would do.

use super::run::{ErrorView, RangeView, RunView};
use super::{ContentView, state_schema};
use crate::partition::PartitionKey;
use crate::pipeline::Definition;
use crate::pipeline::sources::{Foreseen, ForeseenFile};
use crate::run::{Asked, CatalogEntry, Mode, RunError, RunId, Scope, State};
use chrono::{DateTime, Utc};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// What a plan is not.
const NOTE: &str = "nothing was created and nothing is reserved: this is how things are now, not a promise";

/// The answer to a submission under a known key, or to a dry run under one that is free.
#[derive(Serialize, ToSchema)]
#[schema(as = RunOrPlan)]
#[serde(untagged)]
#[expect(dead_code, clippy::large_enum_variant, reason = "only its schema is used")]
pub(in crate::http) enum RunOrPlan<'a> {
    /// The run, as it is now.
    Run(RunView<'a>),
    /// What would be done.
    Plan(PlanView<'a>),
}

/// What a submission would do, as things are now. Nothing was created, and it is no promise.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Plan)]
pub(in crate::http) struct PlanView<'a> {
    /// Always true: this is no run.
    dry_run: bool,
    /// What the plan is not.
    note: &'static str,
    #[schema(example = "zone_hour")]
    pipeline: &'a str,
    #[schema(value_type = String, example = "overwrite")]
    mode: Mode,
    /// The sha256 of the definition that it would be executed with.
    definition: &'a str,
    /// What was asked, where the partitions are picked from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    asked: Option<RangeView<'a>>,
    /// What it would rebuild, in the order of the keys; for `full` what the table has now. Without any, the run would
    /// succeed at once.
    partitions: Vec<PlannedPartition<'a>>,
    sources: PlannedSources<'a>,
    /// The time before which it would not begin, where the request says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_before: Option<DateTime<Utc>>,
    /// The runs that have not ended and overlap it, in their order: at most 100. Without those that are not due yet by
    /// their own `not_before`; and where it has one itself, those of now.
    waits_for: Vec<WaitedFor>,
}

/// A partition that a submission would rebuild.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PlannedPartition)]
struct PlannedPartition<'a> {
    /// The canonical key.
    #[schema(example = "pickup_month=2024-02")]
    partition: &'a str,
    would: Would,
    /// What it holds now; null where it is not there.
    current: Option<CurrentView<'a>>,
}

/// What would become of a partition.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Would {
    /// It is there and would be replaced: by the same, by other content, or by nothing where no rows come out.
    Replace,
    /// It is not there, and would be made if rows come out.
    CreateOrEmpty,
    /// Rows would be put into what it holds, by key.
    Merge,
    /// A full run would replace it, or remove it where the sources have no rows for it.
    ReplaceOrRemove,
}

/// What a partition holds now.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CurrentContent)]
struct CurrentView<'a> {
    #[serde(flatten)]
    content: ContentView<'a>,
    /// The run that wrote it.
    #[schema(value_type = Uuid)]
    run_id: RunId,
    committed_at: DateTime<Utc>,
    /// Whether it is right for the definition as it is now.
    definition_current: bool,
}

/// The files that a submission would read, as this server's disk has them.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = PlannedSources)]
struct PlannedSources<'a> {
    /// Those that are there, by path.
    files: Vec<PlannedFileView<'a>>,
    /// The size of those whose size is known.
    bytes: u64,
    /// What is not there and must be, in words: while it is so, the run fails.
    #[schema(example = json!(["data/yellow_tripdata_2024-04.parquet does not exist, and pickup_month=2024-04 needs it"]))]
    missing: &'a [String],
    /// Why the files could not be looked at; null where they could.
    error: Option<ErrorView<'a>>,
}

/// A file that a submission would read.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PlannedFile)]
struct PlannedFileView<'a> {
    /// As the pipeline names it.
    #[schema(example = "data/yellow_tripdata_2024-02.parquet")]
    path: &'a str,
    /// Its size; null where it is another server's, which is asked when the run begins.
    bytes: Option<u64>,
    /// Whether it is read for late rows alone.
    neighbour: bool,
}

/// A run that would come first.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WaitedFor)]
struct WaitedFor {
    #[schema(value_type = Uuid)]
    id: RunId,
    #[schema(schema_with = state_schema)]
    state: State,
}

/// What is planned.
pub(in crate::http) struct Planned<'a> {
    /// By which definition.
    pub(in crate::http) definition: &'a Definition,
    /// What was asked.
    pub(in crate::http) asked: &'a Asked,
    /// What would be rebuilt.
    pub(in crate::http) scope: &'a Scope,
    /// What the catalog has of it.
    pub(in crate::http) entries: &'a [CatalogEntry],
}

impl<'a> PlanView<'a> {
    pub(in crate::http) fn new(
        planned: &Planned<'a>,
        foreseen: &'a Result<Foreseen, RunError>,
        waits_for: &[(RunId, State)],
    ) -> Self {
        let Planned { definition, asked, scope, entries } = *planned;
        let current = |entry: &'a CatalogEntry| CurrentView {
            content: ContentView::from(&entry.content),
            run_id: entry.run_id,
            committed_at: entry.committed_at,
            definition_current: entry.definition == definition.hash,
        };
        let partitions = match scope {
            Scope::Full => entries
                .iter()
                .map(|entry| PlannedPartition {
                    partition: entry.partition.as_str(),
                    would: Would::ReplaceOrRemove,
                    current: Some(current(entry)),
                })
                .collect(),
            Scope::Partitions(keys) => {
                let known: BTreeMap<&PartitionKey, &CatalogEntry> =
                    entries.iter().map(|entry| (&entry.partition, entry)).collect();
                let would = |entry: Option<&CatalogEntry>| match entry {
                    _ if definition.merge().is_some() => Would::Merge,
                    Some(_) => Would::Replace,
                    None => Would::CreateOrEmpty,
                };
                let planned = |key: &'a PartitionKey| {
                    let entry = known.get(key).copied();
                    PlannedPartition { partition: key.as_str(), would: would(entry), current: entry.map(current) }
                };
                keys.iter().map(planned).collect()
            }
        };
        Self {
            dry_run: true,
            note: NOTE,
            pipeline: &definition.name,
            mode: asked.mode,
            definition: &definition.hash.0,
            asked: RangeView::of(asked),
            partitions,
            sources: foreseen.into(),
            not_before: asked.not_before,
            waits_for: waits_for.iter().map(|(id, state)| WaitedFor { id: *id, state: *state }).collect(),
        }
    }
}

impl<'a> From<&'a Result<Foreseen, RunError>> for PlannedSources<'a> {
    fn from(foreseen: &'a Result<Foreseen, RunError>) -> Self {
        let Foreseen { files, missing } = match foreseen {
            Ok(foreseen) => foreseen,
            Err(error) => return Self { error: Some(error.into()), ..Self::default() },
        };
        let bytes = files.iter().filter_map(|file| file.bytes).fold(0, u64::saturating_add);
        let files = files.iter().map(|ForeseenFile { path, bytes, neighbour }| PlannedFileView {
            path,
            bytes: *bytes,
            neighbour: *neighbour,
        });
        Self { files: files.collect(), bytes, missing, error: None }
    }
}
