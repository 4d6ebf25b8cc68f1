//! The problems of a body, as `src/http/problem.rs` has them, without their answers.

/// One thing that is wrong with a request's body.
#[derive(Debug)]
pub(crate) struct FieldError {
    pub(crate) pointer: String,
    pub(crate) detail: String,
}

impl FieldError {
    pub(crate) fn new(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), detail: detail.into() }
    }
}

/// Why a body is none.
#[derive(Debug)]
pub(crate) enum Problem {
    NotJson(String),
    InvalidRequest(Vec<FieldError>),
}
