//! What a submission asks.

mod ask;

pub(crate) use ask::SubmitRequest;

use super::problem::FieldError;
use crate::pipeline::Definition;
use crate::run::Asked;

/// What a body asks of a definition.
pub(crate) fn read(
    request: &SubmitRequest,
    definition: &Definition,
    max_partitions: usize,
) -> Result<Asked, Vec<FieldError>> {
    request.read(definition, max_partitions)
}

/// What it asks when it is sent again.
pub(crate) fn read_again(request: &SubmitRequest, asked: &Asked, definition: &Definition) -> Option<Asked> {
    request.read_again(asked, definition)
}

/// In what it differs from what was asked before.
pub(crate) fn differences(
    request: &SubmitRequest,
    asked: &Asked,
    definition: Option<&Definition>,
) -> Vec<&'static str> {
    request.differences(asked, definition)
}
