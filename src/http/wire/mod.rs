//! What answers look like: the domain's values in the shapes and names of the interface.

mod delivery;
mod event;
mod pipeline;
mod plan;
mod run;
mod table;

pub(super) use event::{EventView, StateView};
pub(super) use pipeline::{PipelineDetail, PipelineList, PipelineSummary};
pub(super) use plan::{PlanView, Planned, RunOrPlan};
pub(super) use run::{ProgressView, RunList, RunView, SummaryView};
pub(super) use table::{ListOrMissing, MissingList, PartitionDetail, PartitionList};

use crate::partition::PartitionKey;
use crate::run::{AttemptOutcome, Content, Outcome, PartFile, State, Totals};
use serde::{Serialize, Serializer};
use utoipa::ToSchema;
use utoipa::openapi::schema::{AdditionalProperties, Object, ObjectBuilder, Schema, SchemaType, Type};

/// The values of a key by the names of their columns, as they are: not escaped.
#[derive(Debug)]
struct KeyValues<'a>(&'a PartitionKey);

impl Serialize for KeyValues<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.texts())
    }
}

fn key_values_schema() -> Object {
    let text = Schema::Object(ObjectBuilder::new().schema_type(SchemaType::new(Type::String)).build());
    ObjectBuilder::new()
        .description(Some("From partition column to value, as it is: not escaped."))
        .additional_properties(Some(AdditionalProperties::RefOr(text.into())))
        .examples([serde_json::json!({"pickup_month": "2024-02"})])
        .build()
}

/// What a partition holds.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Content)]
pub(super) struct ContentView<'a> {
    /// Rows of the file.
    rows: u64,
    /// Each measure rolled up over the rows.
    #[serde(serialize_with = "totals")]
    #[schema(schema_with = totals_schema)]
    totals: &'a Totals,
    /// Source rows that went in.
    source_rows: u64,
    /// Size of the file in bytes.
    bytes: u64,
    /// Digest of the file, in hex.
    sha256: &'a str,
    /// Name of the file in the partition's folder.
    #[schema(value_type = String, example = "part-0.parquet")]
    file: PartFile,
}

impl<'a> From<&'a Content> for ContentView<'a> {
    fn from(content: &'a Content) -> Self {
        let Content { rows, totals, source_rows, bytes, sha256, file } = content;
        Self { rows: *rows, totals, source_rows: *source_rows, bytes: *bytes, sha256, file: *file }
    }
}

/// What a partition holds; all absent where it is not there.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = ContentIfAny)]
pub(super) struct ContentIfAny<'a> {
    /// Rows of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<u64>,
    /// Each measure rolled up over the rows.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "totals_if_any")]
    #[schema(schema_with = totals_schema, required = false)]
    totals: Option<&'a Totals>,
    /// Source rows that went in.
    #[serde(skip_serializing_if = "Option::is_none")]
    source_rows: Option<u64>,
    /// Size of the file in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    /// Digest of the file, in hex.
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<&'a str>,
    /// Name of the file in the partition's folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "part-0.parquet")]
    file: Option<PartFile>,
}

impl<'a> From<Option<&'a Content>> for ContentIfAny<'a> {
    fn from(content: Option<&'a Content>) -> Self {
        let Some(Content { rows, totals, source_rows, bytes, sha256, file }) = content else {
            return Self::default();
        };
        Self {
            rows: Some(*rows),
            totals: Some(totals),
            source_rows: Some(*source_rows),
            bytes: Some(*bytes),
            sha256: Some(sha256),
            file: Some(*file),
        }
    }
}

/// Writes totals as the map that answers carry.
fn totals<S: Serializer>(totals: &&Totals, serializer: S) -> Result<S::Ok, S::Error> {
    totals.on_the_wire().serialize(serializer)
}

fn totals_if_any<S: Serializer>(totals: &Option<&Totals>, serializer: S) -> Result<S::Ok, S::Error> {
    totals.map(Totals::on_the_wire).serialize(serializer)
}

fn names(values: impl IntoIterator<Item = &'static str>, nullable: bool) -> Object {
    let kind = if nullable { SchemaType::from_iter([Type::String, Type::Null]) } else { SchemaType::new(Type::String) };
    let values = values.into_iter().map(serde_json::Value::from).chain(nullable.then_some(serde_json::Value::Null));
    ObjectBuilder::new().schema_type(kind).enum_values(Some(values)).build()
}

fn state_schema() -> Object {
    names(State::ALL.map(State::as_str), false)
}

fn outcome_schema() -> Object {
    use Outcome::{Cleared, Created, Empty, Replaced, Unchanged};
    names([Created, Replaced, Unchanged, Cleared, Empty].map(Outcome::as_str), false)
}

fn outcome_or_null_schema() -> Object {
    use Outcome::{Cleared, Created, Empty, Replaced, Unchanged};
    names([Created, Replaced, Unchanged, Cleared, Empty].map(Outcome::as_str), true)
}

fn attempt_outcome_schema() -> Object {
    use AttemptOutcome::{Cancelled, Failed, Lost, Released, StagingLost, Succeeded};
    names([Succeeded, Failed, Cancelled, Lost, Released, StagingLost].map(AttemptOutcome::as_str), true)
}

/// A map from measure to number, decimal text or null.
fn totals_schema() -> Object {
    let kinds = SchemaType::from_iter([Type::Number, Type::String, Type::Boolean, Type::Null]);
    ObjectBuilder::new()
        .description(Some("From measure to total. Decimals are strings; a measure that cannot be rolled up is null."))
        .additional_properties(Some(AdditionalProperties::RefOr(
            Schema::Object(ObjectBuilder::new().schema_type(kinds).build()).into(),
        )))
        .examples([serde_json::json!({"trips": 3_007_533, "revenue": "80073797.21"})])
        .build()
}
