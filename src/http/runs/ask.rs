//! What a submission asks: the shape of its body, and its reading by a definition.

use crate::http::object::member;
use crate::http::problem::FieldError;
use crate::partition::{KeyError, PartitionKey, PartitionSpec};
use crate::pipeline::{Definition, SourcePath};
use crate::run::{Asked, AskedPartitions, Mode, OnOverlap};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{AnyOfBuilder, Object, ObjectBuilder, Schema, SchemaType, Type};
use utoipa::{PartialSchema, ToSchema};

/// The most errors that one answer lists.
const MAX_ERRORS: usize = 100;

/// How often, on average, a request may name the same partition.
const MAX_REPEATS: usize = 10;

/// The most partitions that a request may name with its repeats, whatever the server's limits: so a repetition is read
/// whatever they were when the first was accepted.
const MAX_NAMED: usize = 1_000_000;

/// The body of a submission.
#[derive(Debug, Clone, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitRequest {
    /// The pipeline's name.
    #[schema(example = "zone_hour")]
    pub pipeline: String,
    /// The partitions to rebuild; absent for `full`.
    #[serde(default)]
    pub partitions: Option<Vec<PartitionAsked>>,
    /// `overwrite` (the default) replaces the named partitions, `full` rebuilds the whole table.
    #[serde(default)]
    #[schema(schema_with = mode_schema)]
    pub mode: Option<String>,
    /// What happens where a run that has not ended overlaps this one: `wait` (the default) or `refuse`.
    #[serde(default)]
    #[schema(schema_with = on_overlap_schema)]
    pub on_overlap: Option<OnOverlap>,
    /// What a failed or cancelled run under the same key becomes.
    #[serde(default)]
    pub if_failed: Option<IfFailed>,
    /// The same as the header `Idempotency-Key`.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 255)]
    pub idempotency_key: Option<String>,
}

/// What a failed or cancelled run becomes when its request is sent again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum IfFailed {
    /// It is given back as it is.
    #[default]
    Return,
    /// It is queued again, as a new attempt.
    Retry,
}

/// One entry of `partitions`: a text (canonical, or the bare value where there is one partition column), an object with
/// the text of each column, or a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartitionAsked {
    /// Canonical text or a bare value.
    Text(String),
    /// The fields of an object; `from` and `to` make a range.
    Fields(BTreeMap<String, String>),
}

/// How much one list of partitions may name.
#[derive(Debug, Clone, Copy)]
struct ListLimits {
    /// The most partitions.
    max_keys: usize,
    /// The most with their repeats.
    max_named: usize,
}

impl ListLimits {
    fn at_acceptance(max_partitions: usize) -> Self {
        Self { max_keys: max_partitions, max_named: max_partitions.saturating_mul(MAX_REPEATS).min(MAX_NAMED) }
    }

    /// As many partitions as then, named at least as often, whatever the server's limits are by now.
    fn at_replay(asked: &Asked) -> Self {
        Self { max_keys: asked.partitions.0.len(), max_named: MAX_NAMED }
    }
}

impl SubmitRequest {
    /// What is asked, read by a definition of the pipeline that it names; or everything that is wrong with it.
    pub(super) fn read(&self, definition: &Definition, max_partitions: usize) -> Result<Asked, Vec<FieldError>> {
        let asked = self.read_within(definition, ListLimits::at_acceptance(max_partitions))?;
        if asked.mode == Mode::Full && definition.source.paths.iter().any(SourcePath::is_url_template) {
            let detail = "found full, expected overwrite and the partitions: the pipeline's sources are URLs with strftime \
                          fields, and no server lists which of them there are";
            return Err(vec![FieldError::new("/mode", detail)]);
        }
        Ok(asked)
    }

    fn read_within(&self, definition: &Definition, limits: ListLimits) -> Result<Asked, Vec<FieldError>> {
        let mut errors = Vec::new();
        let mode = self.mode().unwrap_or_else(|error| {
            errors.push(error);
            // Assumed so that the partitions are looked at too.
            if self.partitions.is_some() { Mode::Overwrite } else { Mode::Full }
        });
        let partitions = self.partitions(mode, &definition.partition, limits).unwrap_or_else(|more| {
            errors.extend(more);
            AskedPartitions(Vec::new())
        });
        if !errors.is_empty() {
            return Err(errors);
        }
        let on_overlap = self.on_overlap.unwrap_or_default();
        Ok(Asked { pipeline: self.pipeline.clone(), mode, partitions, on_overlap })
    }

    /// What is asked again, read by a definition that may be another than that of the first time.
    pub(super) fn read_again(&self, asked: &Asked, definition: &Definition) -> Option<Asked> {
        self.read_within(definition, ListLimits::at_replay(asked)).ok()
    }

    /// The fields in which this request differs from what was asked before, read by the definition of that time; or,
    /// without it, literally. What cannot be read so was not asked then.
    pub(super) fn differences(&self, asked: &Asked, definition: Option<&Definition>) -> Vec<&'static str> {
        let mode = self.mode().ok();
        let partitions = match definition {
            Some(definition) => {
                let limits = ListLimits::at_replay(asked);
                self.partitions(mode.unwrap_or(asked.mode), &definition.partition, limits).ok()
            }
            None => self.literal_partitions(),
        };
        let fields = [
            ("pipeline", self.pipeline == asked.pipeline),
            ("mode", mode == Some(asked.mode)),
            ("partitions", partitions.as_ref() == Some(&asked.partitions)),
            ("on_overlap", self.on_overlap.unwrap_or_default() == asked.on_overlap),
        ];
        fields.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect()
    }

    fn mode(&self) -> Result<Mode, FieldError> {
        match self.mode.as_deref() {
            None | Some("overwrite") => Ok(Mode::Overwrite),
            Some("full") => Ok(Mode::Full),
            Some("append") => Err(FieldError::new(
                "/mode",
                "append does not exist: a repeated append counts rows twice. Use overwrite, which replaces the named \
                 partitions and so can be repeated",
            )),
            Some(other) => Err(FieldError::new("/mode", format!("found {other:?}, expected overwrite or full"))),
        }
    }

    /// The entries as if each were canonical text already; none where one is not even a text.
    fn literal_partitions(&self) -> Option<AskedPartitions> {
        let list = self.partitions.as_deref().unwrap_or_default();
        let texts = list.iter().map(|item| match item {
            PartitionAsked::Text(text) => Some(PartitionKey::from_canonical(text)),
            PartitionAsked::Fields(_) => None,
        });
        let keys = texts.collect::<Option<BTreeSet<_>>>()?;
        Some(AskedPartitions(keys.into_iter().collect()))
    }

    fn partitions(
        &self,
        mode: Mode,
        spec: &PartitionSpec,
        limits: ListLimits,
    ) -> Result<AskedPartitions, Vec<FieldError>> {
        let wrong = |detail: String| Err(vec![FieldError::new("/partitions", detail)]);
        match (mode, self.partitions.as_deref()) {
            (Mode::Full, None) => Ok(AskedPartitions(Vec::new())),
            (Mode::Full, Some(_)) => {
                wrong("found partitions, expected none with mode full, which rebuilds the whole table".to_owned())
            }
            (Mode::Overwrite, None) => wrong(
                "absent or null, expected a list of partitions (or mode full to rebuild the whole table)".to_owned(),
            ),
            (Mode::Overwrite, Some([])) => wrong("empty, expected at least one partition".to_owned()),
            (Mode::Overwrite, Some(list)) => read_list(list, spec, limits),
        }
    }
}

/// Reads the list into sorted and unique keys.
fn read_list(
    list: &[PartitionAsked],
    spec: &PartitionSpec,
    limits: ListLimits,
) -> Result<AskedPartitions, Vec<FieldError>> {
    let ListLimits { max_keys, max_named } = limits;
    let too_many = |detail: String| Err(vec![FieldError::new("/partitions", detail)]);
    let mut keys = BTreeSet::new();
    let mut errors = Vec::new();
    let mut named = 0usize;
    for (index, item) in list.iter().enumerate() {
        match item.read(spec, max_keys) {
            Ok(more) => {
                named = named.saturating_add(more.len());
                keys.extend(more);
            }
            Err(error) => errors.push(FieldError::new(format!("/partitions/{index}{}", error.member), error.detail)),
        }
        if keys.len() > max_keys {
            return too_many(format!("found more than {max_keys} partitions, which is the limit for one run"));
        }
        if named > max_named {
            return too_many(format!(
                "names partitions more than {max_named} times, repeats counted, which is the limit"
            ));
        }
        if errors.len() >= MAX_ERRORS {
            break;
        }
    }
    if errors.is_empty() { Ok(AskedPartitions(keys.into_iter().collect())) } else { Err(errors) }
}

/// What is wrong with one entry, and in which member of it.
struct EntryError {
    member: String,
    detail: String,
}

impl From<KeyError> for EntryError {
    fn from(error: KeyError) -> Self {
        Self { member: String::new(), detail: error.to_string() }
    }
}

impl PartitionAsked {
    fn read(&self, spec: &PartitionSpec, max: usize) -> Result<Vec<PartitionKey>, EntryError> {
        match self {
            PartitionAsked::Text(text) => Ok(vec![spec.parse_text(text)?]),
            PartitionAsked::Fields(fields) if is_range(fields, spec) => {
                if let Some(unknown) = fields.keys().find(|name| !matches!(name.as_str(), "from" | "to")) {
                    let detail = "unknown in a range, expected from and to".to_owned();
                    return Err(EntryError { member: member(unknown), detail });
                }
                match (fields.get("from"), fields.get("to")) {
                    (Some(from), Some(to)) => Ok(spec.range(from, to, max)?),
                    _ => Err(KeyError("a range needs both from and to".to_owned()).into()),
                }
            }
            PartitionAsked::Fields(fields) => Ok(vec![spec.parse_object(fields)?]),
        }
    }
}

/// Whether an object is a range and not the columns of one partition.
fn is_range(fields: &BTreeMap<String, String>, spec: &PartitionSpec) -> bool {
    let mut ends = ["from", "to"].into_iter().filter(|end| fields.contains_key(*end)).peekable();
    ends.peek().is_some() && ends.all(|end| spec.columns().iter().all(|column| column.name != end))
}

impl<'de> Deserialize<'de> for PartitionAsked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(EntryVisitor)
    }
}

struct EntryVisitor;

impl<'de> Visitor<'de> for EntryVisitor {
    type Value = PartitionAsked;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a partition as text, an object of texts, or a range with from and to")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<PartitionAsked, E> {
        Ok(PartitionAsked::Text(text.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PartitionAsked, A::Error> {
        let mut fields = BTreeMap::new();
        while let Some((name, text)) = map.next_entry::<String, String>()? {
            if fields.contains_key(&name) {
                return Err(A::Error::custom(format!("duplicate field `{name}`")));
            }
            fields.insert(name, text);
        }
        Ok(PartitionAsked::Fields(fields))
    }
}

impl ToSchema for PartitionAsked {
    fn name() -> std::borrow::Cow<'static, str> {
        "PartitionAsked".into()
    }
}

impl PartialSchema for PartitionAsked {
    fn schema() -> RefOr<Schema> {
        let text = |description: &str| ObjectBuilder::new().schema_type(Type::String).description(Some(description));
        let range = ObjectBuilder::new()
            .description(Some("All partitions from one to another, inclusive, over time transforms"))
            .property("from", text("The first").build())
            .property("to", text("The last").build())
            .required("from")
            .required("to")
            .examples([serde_json::json!({"from": "2024-01", "to": "2024-03"})]);
        let columns = ObjectBuilder::new()
            .description(Some("The text of each partition column"))
            .additional_properties(Some(text("The column's value")))
            .examples([serde_json::json!({"event_date": "2015-01-01", "hour": "15"})]);
        AnyOfBuilder::new()
            .item(text("Canonical text, or the bare value where there is one partition column").examples(["2024-02"]))
            .item(range)
            .item(columns)
            .into()
    }
}

fn mode_schema() -> Object {
    ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::String, Type::Null]))
        .enum_values(Some([serde_json::json!("overwrite"), serde_json::json!("full"), serde_json::Value::Null]))
        .description(Some("`overwrite` (the default) replaces the named partitions, `full` rebuilds the whole table."))
        .build()
}

fn on_overlap_schema() -> Object {
    ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::String, Type::Null]))
        .enum_values(Some([serde_json::json!("wait"), serde_json::json!("refuse"), serde_json::Value::Null]))
        .description(Some(
            "Where a run that has not ended overlaps this one: `wait` (the default) for it, or `refuse` with 409.",
        ))
        .build()
}
