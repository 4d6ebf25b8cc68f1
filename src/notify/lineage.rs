//! Attempts as OpenLineage run events (<https://openlineage.io/spec/2-0-2/OpenLineage.json>).
//!
//! One of our attempts is a run of theirs, since that has one start and one end. The first attempt has our run's id; a later one has
//! an id made of that and its number, and names our run as its parent.

use super::Sink;
use super::answer::Answer;
use crate::partition::{PartitionKey, PartitionSpec, Transform};
use crate::pipeline::url::{is_url, shown, shown_in};
use crate::pipeline::{self, Definition};
use crate::run::{AttemptOutcome, Notice, Occasion, RunId, SourceFile, Written};
use chrono::{DateTime, NaiveDateTime, SecondsFormat, TimeZone, Utc};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use uuid::Uuid;

const EVENT_SCHEMA: &str = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent";
const FACETS: &str = "https://openlineage.io/spec/facets/";
const PRODUCER: &str = concat!("urn:refrain:", env!("CARGO_PKG_VERSION"));
/// Up to so many files are datasets one by one; of more, their folders are.
const FILES_AS_DATASETS: usize = 100;

/// How lineage is told.
#[derive(Debug)]
pub struct Lineage {
    /// Where it goes.
    pub sink: Sink,
    /// The namespace of jobs.
    pub namespace: String,
    /// Where relative source paths start.
    pub source_root: PathBuf,
    /// Where the tables lie.
    pub warehouse: PathBuf,
}

impl Lineage {
    /// Tells it, once. `definition` is the text of that which the run was executed with.
    pub(super) async fn send(&self, notice: &Notice, definition: Option<String>) -> Answer {
        // A later version may not read it: then the event says less.
        let definition = definition.and_then(|text| pipeline::parse(&text, &notice.pipeline).ok());
        self.sink.take(self.event(notice, definition.as_ref()).to_string()).await
    }

    fn event(&self, notice: &Notice, definition: Option<&Definition>) -> Value {
        json!({
            "eventType": event_type(notice.occasion),
            "eventTime": time(notice.at),
            "producer": PRODUCER,
            "schemaURL": EVENT_SCHEMA,
            "run": {"runId": run_id(notice.run_id, notice.attempt), "facets": self.run_facets(notice, definition)},
            "job": {"namespace": self.namespace, "name": notice.pipeline, "facets": job_facets(definition)},
            "inputs": self.inputs(&notice.sources),
            "outputs": [self.output(notice, definition)],
        })
    }

    fn run_facets(&self, notice: &Notice, definition: Option<&Definition>) -> Map<String, Value> {
        let version = env!("CARGO_PKG_VERSION");
        let engine = json!({"name": "Refrain", "version": version, "openlineageAdapterVersion": version});
        let mut facets = Map::new();
        add(&mut facets, "processing_engine", "1-1-1/ProcessingEngineRunFacet", engine);
        if notice.attempt > 1 {
            let job = json!({"namespace": self.namespace, "name": notice.pipeline});
            add(&mut facets, "parent", "1-2-0/ParentRunFacet", json!({"run": {"runId": notice.run_id}, "job": job}));
        }
        if let Some(nominal) = nominal_time(notice, definition) {
            add(&mut facets, "nominalTime", "1-0-1/NominalTimeRunFacet", nominal);
        }
        if let Some(message) = failure(notice) {
            let error = json!({"message": shown_in(&message), "programmingLanguage": "Rust"});
            add(&mut facets, "errorMessage", "1-0-1/ErrorMessageRunFacet", error);
        }
        if !notice.labels.is_empty() {
            let tags = notice.labels.iter().map(|(key, value)| json!({"key": key, "value": value, "source": "USER"}));
            add(&mut facets, "tags", "1-0-0/TagsRunFacet", json!({"tags": tags.collect::<Vec<_>>()}));
        }
        facets
    }

    /// The files that were read; where they are many, their folders.
    fn inputs(&self, sources: &[SourceFile]) -> Vec<Value> {
        let mut read: BTreeMap<(String, String), Written> = BTreeMap::new();
        for source in sources {
            let (namespace, mut name) = self.dataset(&source.path);
            if sources.len() > FILES_AS_DATASETS {
                name.truncate(name.rfind('/').unwrap_or(0).max(1));
            }
            let of = read.entry((namespace, name)).or_default();
            of.files += 1;
            of.rows = of.rows.saturating_add(source.rows);
            of.bytes = of.bytes.saturating_add(source.bytes);
        }
        let dataset = |((namespace, name), of)| {
            let mut facets = Map::new();
            add(&mut facets, "inputStatistics", "1-0-0/InputStatisticsInputDatasetFacet", statistics(of));
            json!({"namespace": namespace, "name": name, "inputFacets": facets})
        };
        read.into_iter().map(dataset).collect()
    }

    /// The namespace and the name of a source, after <https://openlineage.io/docs/spec/naming>.
    fn dataset(&self, path: &str) -> (String, String) {
        let path = shown(path);
        if !is_url(path) {
            return file(&self.source_root.join(path));
        }
        let after_scheme = path.find("://").map_or(0, |at| at + 3);
        let host_ends = path[after_scheme..].find('/').map_or(path.len(), |at| after_scheme + at);
        let (host, name) = path.split_at(host_ends);
        (host.to_owned(), if name.is_empty() { "/".to_owned() } else { name.to_owned() })
    }

    fn output(&self, notice: &Notice, definition: Option<&Definition>) -> Value {
        let (namespace, name) = file(&self.warehouse.join(&notice.pipeline));
        let mut facets = Map::new();
        if let Some(definition) = definition {
            let fields = fields(definition);
            add(&mut facets, "schema", "1-2-0/SchemaDatasetFacet", json!({"fields": fields}));
        }
        let mut table = json!({"namespace": namespace, "name": name, "facets": facets});
        if is_success(notice) {
            let mut facets = Map::new();
            let written = statistics(notice.partitions.written);
            add(&mut facets, "outputStatistics", "1-0-2/OutputStatisticsOutputDatasetFacet", written);
            table["outputFacets"] = facets.into();
        }
        table
    }
}

/// Adds a facet, of which `schema` is the version and the name in the specification.
fn add(facets: &mut Map<String, Value>, name: &str, schema: &str, mut facet: Value) {
    let defined = schema.split_once('/').map_or(schema, |(_, name)| name);
    facet["_producer"] = PRODUCER.into();
    facet["_schemaURL"] = format!("{FACETS}{schema}.json#/$defs/{defined}").into();
    facets.insert(name.to_owned(), facet);
}

fn event_type(occasion: Occasion) -> &'static str {
    match occasion {
        Occasion::AttemptStarted => "START",
        Occasion::AttemptEnded(AttemptOutcome::Succeeded) => "COMPLETE",
        Occasion::AttemptEnded(AttemptOutcome::Cancelled | AttemptOutcome::Released) => "ABORT",
        Occasion::AttemptEnded(AttemptOutcome::Failed | AttemptOutcome::Lost | AttemptOutcome::StagingLost) => "FAIL",
        Occasion::RunEnded => "OTHER",
    }
}

fn is_success(notice: &Notice) -> bool {
    notice.occasion == Occasion::AttemptEnded(AttemptOutcome::Succeeded)
}

/// Why an attempt failed, in words.
fn failure(notice: &Notice) -> Option<String> {
    let Occasion::AttemptEnded(outcome) = notice.occasion else { return None };
    let usual = match outcome {
        AttemptOutcome::Failed => "the attempt failed",
        AttemptOutcome::Lost => "the attempt's worker or its engine was lost",
        AttemptOutcome::StagingLost => "what the attempt had staged is gone",
        AttemptOutcome::Succeeded | AttemptOutcome::Cancelled | AttemptOutcome::Released => return None,
    };
    Some(notice.error.as_ref().map_or_else(|| usual.to_owned(), |error| format!("{}: {}", error.title, error.detail)))
}

/// The id of an attempt.
fn run_id(run: RunId, attempt: u32) -> Uuid {
    if attempt <= 1 {
        return run.0;
    }
    let digest = Sha256::new().chain_update(run.0).chain_update(attempt.to_be_bytes()).finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

fn job_facets(definition: Option<&Definition>) -> Map<String, Value> {
    let mut facets = Map::new();
    let kind = json!({"processingType": "BATCH", "integration": "REFRAIN", "jobType": "PIPELINE"});
    add(&mut facets, "jobType", "2-0-4/JobTypeJobFacet", kind);
    if let Some(definition) = definition.filter(|definition| !definition.description.is_empty()) {
        let documentation = json!({"description": definition.description});
        add(&mut facets, "documentation", "1-1-0/DocumentationJobFacet", documentation);
    }
    facets
}

/// The time that the run's partitions cover, from the first to the last; none where they cover no time.
fn nominal_time(notice: &Notice, definition: Option<&Definition>) -> Option<Value> {
    let definition = definition?;
    let (first, last) = notice.partitions.span.as_ref()?;
    let at = |wall: NaiveDateTime| definition.timezone.from_local_datetime(&wall).earliest().map(|at| at.to_utc());
    let of = |key: &PartitionKey, spec: &PartitionSpec| spec.period(key);
    let (first, last) = (of(first, &definition.partition)?, of(last, &definition.partition)?);
    Some(json!({"nominalStartTime": time(at(first.start)?), "nominalEndTime": time(at(last.end)?)}))
}

/// The columns of the table as its readers see them: those of the files and those of the folders.
fn fields(definition: &Definition) -> Vec<Value> {
    let partition = definition.partition.columns().iter().map(|column| {
        let source = definition.column(&column.source).filter(|_| column.transform == Transform::ValueOf);
        (column.name.as_str(), source.map_or_else(|| "string".to_owned(), |column| column.data_type.to_string()))
    });
    let kept = definition.rows.iter().flat_map(|rows| &rows.columns);
    let dimensions = definition.dimensions.iter().chain(kept);
    let dimensions = dimensions.map(|column| (column.name.as_str(), column.expr.data_type.to_string()));
    let measures = definition.measures.iter().map(|measure| (measure.name.as_str(), measure.data_type.to_string()));
    partition.chain(dimensions).chain(measures).map(|(name, kind)| json!({"name": name, "type": kind})).collect()
}

fn statistics(of: Written) -> Value {
    json!({"rowCount": of.rows, "size": of.bytes, "fileCount": of.files})
}

fn file(path: &Path) -> (String, String) {
    ("file".to_owned(), path.display().to_string())
}

fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Micros, true)
}
