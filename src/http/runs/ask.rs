//! What a submission asks: the shape of its body, and its reading by a definition.

mod options;
mod partitions;

pub use partitions::{PartitionAsked, PartitionsAsked, RangeAsked};

use crate::http::problem::FieldError;
use crate::partition::PartitionSpec;
use crate::pipeline::{Definition, SourcePath};
use crate::run::{Asked, AskedPartitions, Labels, Mode, OnOverlap, Only};
use partitions::ListLimits;
use std::collections::BTreeMap;
use utoipa::ToSchema;
use utoipa::openapi::schema::{Object, ObjectBuilder, SchemaType, Type};

/// The body of a submission.
#[derive(Debug, Clone, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitRequest {
    /// The pipeline's name.
    #[schema(example = "zone_hour")]
    pub pipeline: String,
    /// The partitions to rebuild; absent for `full`.
    #[serde(default)]
    pub partitions: Option<PartitionsAsked>,
    /// `overwrite` (the default) replaces the named partitions, `full` rebuilds the whole table.
    #[serde(default)]
    #[schema(schema_with = mode_schema)]
    pub mode: Option<String>,
    /// What happens where a run that has not ended overlaps this one: `wait` (the default) or `refuse`.
    #[serde(default)]
    #[schema(schema_with = on_overlap_schema)]
    pub on_overlap: Option<OnOverlap>,
    /// Names with short texts, at most 20, by which runs can be found again.
    #[serde(default)]
    #[schema(example = json!({"dag": "zones", "team": "mobility"}))]
    pub labels: Option<BTreeMap<String, String>>,
    /// What partitions of the run must be when it is accepted and when it decides: the sha256 of the file, the id of the run
    /// that wrote it, or null where it must not be there.
    #[serde(default)]
    #[schema(example = json!({"pickup_month=2024-02": null}))]
    pub if_current: Option<BTreeMap<String, Option<String>>>,
    /// How many seconds an attempt may compute; the pipeline's limit holds too.
    #[serde(default)]
    #[schema(minimum = 1)]
    pub timeout_seconds: Option<u32>,
    /// The run does not begin before this time, at most a year ahead, and takes its place among the runs that overlap it then.
    #[serde(default)]
    #[schema(value_type = Option<DateTime<Utc>>, example = "2024-03-01T06:00:00+01:00")]
    pub not_before: Option<String>,
    /// Among the runs that can begin, those of a higher priority do so first; 0 where it is left out.
    #[serde(default)]
    #[schema(minimum = -100, maximum = 100)]
    pub priority: Option<i32>,
    /// The URL that is told of the run's end, on a host that the operator has listed (`--webhook-hosts`).
    #[serde(default)]
    #[schema(max_length = 2000, example = "https://hooks.example.org/refrain")]
    pub webhook: Option<String>,
    /// What a failed or cancelled run under the same key becomes.
    #[serde(default)]
    pub if_failed: Option<IfFailed>,
    /// With `if_failed: retry`: queue it again only if its last attempt was this one, and give it back as it is otherwise.
    #[serde(default)]
    pub if_attempt: Option<u32>,
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

impl SubmitRequest {
    /// What is asked, read by a definition of the pipeline that it names; or everything that is wrong with it.
    pub fn read(&self, definition: &Definition, max_partitions: usize) -> Result<Asked, Vec<FieldError>> {
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
        let only = self.only();
        // Where they could not be read, nothing is said of what is not among them.
        let scope = (mode == Mode::Overwrite && errors.is_empty()).then_some(&partitions);
        let if_current = options::if_current(self.if_current.as_ref(), &definition.partition, scope, only, &mut errors);
        let labels = options::labels(self.labels.as_ref(), &mut errors);
        let timeout_seconds = options::timeout_seconds(self.timeout_seconds, &mut errors);
        let on_overlap = self.on_overlap.unwrap_or_default();
        let not_before = options::not_before(self.not_before.as_deref(), on_overlap, &mut errors);
        let priority = options::priority(self.priority, &mut errors);
        if !errors.is_empty() {
            return Err(errors);
        }
        let asked = Asked::new(&self.pipeline, mode, partitions);
        let webhook = self.webhook.clone();
        Ok(Asked { only, on_overlap, labels, if_current, timeout_seconds, not_before, priority, webhook, ..asked })
    }

    /// Refuses a condition on a retry that is not asked for; it is no part of what is asked of a run.
    pub(super) fn check_retry(&self) -> Result<(), FieldError> {
        match self.if_attempt {
            Some(attempt) if self.if_failed != Some(IfFailed::Retry) => {
                let detail = format!("found {attempt} without if_failed = \"retry\", expected it there, or none here");
                Err(FieldError::new("/if_attempt", detail))
            }
            _ => Ok(()),
        }
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
            None => PartitionsAsked::literal(self.partitions.as_ref()),
        };
        let fields = [
            ("pipeline", self.pipeline == asked.pipeline),
            ("mode", mode == Some(asked.mode)),
            ("partitions", partitions.as_ref() == Some(&asked.partitions) && self.only() == asked.only),
            ("on_overlap", self.on_overlap.unwrap_or_default() == asked.on_overlap),
            ("labels", self.labels.as_ref().unwrap_or(&Labels::new()) == &asked.labels),
            ("if_current", options::is_same(self.if_current.as_ref(), &asked.if_current, definition)),
            ("timeout_seconds", self.timeout_seconds == asked.timeout_seconds),
            ("not_before", self.not_before.as_deref().map(options::read_time) == asked.not_before.map(Some)),
            ("priority", self.priority.unwrap_or(0) == asked.priority),
            ("webhook", self.webhook == asked.webhook),
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

    /// Which of the partitions are to be rebuilt; none for all of them.
    fn only(&self) -> Option<Only> {
        self.partitions.as_ref().and_then(PartitionsAsked::only)
    }

    fn partitions(
        &self,
        mode: Mode,
        spec: &PartitionSpec,
        limits: ListLimits,
    ) -> Result<AskedPartitions, Vec<FieldError>> {
        let wrong = |detail: String| Err(vec![FieldError::new("/partitions", detail)]);
        match (mode, &self.partitions) {
            (Mode::Full, None) => Ok(AskedPartitions(Vec::new())),
            (Mode::Full, Some(_)) => {
                wrong("found partitions, expected none with mode full, which rebuilds the whole table".to_owned())
            }
            (Mode::Overwrite, None) => wrong(
                "absent or null, expected a list of partitions (or mode full to rebuild the whole table)".to_owned(),
            ),
            (Mode::Overwrite, Some(asked)) => asked.read(spec, limits),
        }
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
