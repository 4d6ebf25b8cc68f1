//! The field `partitions`: a list of entries, or a range of which only some are rebuilt.

use crate::http::object::member;
use crate::http::problem::FieldError;
use crate::partition::{KeyError, PartitionKey, PartitionSpec};
use crate::run::{Asked, AskedPartitions, Only};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
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

/// The partitions that a request names.
#[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
#[serde(untagged)]
pub enum PartitionsAsked {
    /// One by one, or by ranges.
    List(Vec<PartitionAsked>),
    /// All periods from one to another, or only some of them.
    Range(RangeAsked),
}

/// All partitions from one to another, inclusive, over time transforms; or only some of them, as the table is when the run
/// is accepted.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"from": "2024-01", "to": "2024-12", "only": "missing"}))]
pub struct RangeAsked {
    /// The first.
    pub from: String,
    /// The last.
    pub to: String,
    /// Which of them; none for all.
    #[serde(default)]
    #[schema(schema_with = only_schema)]
    pub only: Option<Only>,
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
pub(super) struct ListLimits {
    /// The most partitions.
    max_keys: usize,
    /// The most with their repeats.
    max_named: usize,
}

impl ListLimits {
    pub(super) fn at_acceptance(max_partitions: usize) -> Self {
        Self { max_keys: max_partitions, max_named: max_partitions.saturating_mul(MAX_REPEATS).min(MAX_NAMED) }
    }

    /// As many partitions as then, named at least as often, whatever the server's limits are by now.
    pub(super) fn at_replay(asked: &Asked) -> Self {
        Self { max_keys: asked.partitions.0.len(), max_named: MAX_NAMED }
    }
}

impl PartitionsAsked {
    /// The keys, sorted and unique.
    pub(super) fn read(&self, spec: &PartitionSpec, limits: ListLimits) -> Result<AskedPartitions, Vec<FieldError>> {
        let wrong = |detail: String| vec![FieldError::new("/partitions", detail)];
        match self {
            PartitionsAsked::List(list) if list.is_empty() => {
                Err(wrong("empty, expected at least one partition".to_owned()))
            }
            PartitionsAsked::List(list) => read_list(list, spec, limits),
            PartitionsAsked::Range(RangeAsked { from, to, .. }) => {
                let keys = spec.range(from, to, limits.max_keys);
                keys.map(AskedPartitions).map_err(|error| wrong(error.to_string()))
            }
        }
    }

    /// Which of them are to be rebuilt; none for all.
    pub(super) fn only(&self) -> Option<Only> {
        match self {
            PartitionsAsked::List(_) => None,
            PartitionsAsked::Range(range) => range.only,
        }
    }

    /// The entries as if each were canonical text already; none where one is not even a text.
    pub(super) fn literal(asked: Option<&Self>) -> Option<AskedPartitions> {
        let list = match asked {
            None => &[],
            Some(PartitionsAsked::List(list)) => list.as_slice(),
            Some(PartitionsAsked::Range(_)) => return None,
        };
        let texts = list.iter().map(|item| match item {
            PartitionAsked::Text(text) => Some(PartitionKey::from_canonical(text)),
            PartitionAsked::Fields(_) => None,
        });
        let keys = texts.collect::<Option<BTreeSet<_>>>()?;
        Some(AskedPartitions(keys.into_iter().collect()))
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

impl<'de> Deserialize<'de> for PartitionsAsked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ListVisitor)
    }
}

struct ListVisitor;

impl<'de> Visitor<'de> for ListVisitor {
    type Value = PartitionsAsked;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of partitions, or a range with from and to, and perhaps only")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<PartitionsAsked, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(seq)).map(PartitionsAsked::List)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PartitionsAsked, A::Error> {
        RangeAsked::deserialize(MapAccessDeserializer::new(map)).map(PartitionsAsked::Range)
    }
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

fn only_schema() -> Object {
    let names = [Some("missing"), Some("outdated"), None].map(serde_json::Value::from);
    ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::String, Type::Null]))
        .enum_values(Some(names))
        .description(Some(
            "`missing`: those that are not there. `outdated`: those that were made by another definition of the pipeline than \
             the current one.",
        ))
        .build()
}
