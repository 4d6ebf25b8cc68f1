//! Problem details as they are sent.

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// One thing that is wrong with a request's body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct FieldError {
    /// Where, as a JSON pointer into the body; empty for the body as a whole.
    #[schema(example = "/partitions/0")]
    pub pointer: String,
    /// What was found and what is expected.
    pub detail: String,
}

impl FieldError {
    /// An error at `pointer`.
    pub fn new(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), detail: detail.into() }
    }
}

/// Problem details as they are sent.
#[derive(Debug, Serialize, ToSchema)]
pub struct ProblemDetails {
    /// A stable name of the kind of problem.
    #[serde(rename = "type")]
    #[schema(example = "urn:refrain:problem:invalid-request")]
    pub(super) kind: String,
    /// The kind in words.
    pub(super) title: String,
    /// The HTTP status, again.
    #[schema(example = 422)]
    pub(super) status: u16,
    /// What was found, what was expected and where.
    pub(super) detail: String,
    /// What is wrong with the body, one by one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub(super) errors: Vec<FieldError>,
    /// Members of this kind of problem.
    #[serde(flatten)]
    #[schema(value_type = std::collections::BTreeMap<String, serde_json::Value>)]
    pub(super) members: Map<String, Value>,
}
