//! The reading of request bodies, without the web.

mod object;
pub(crate) mod problem;
pub(crate) mod runs;

/// The submission that a body is.
pub(crate) fn submission(body: &[u8]) -> Result<runs::SubmitRequest, problem::Problem> {
    object::read(body)
}
