//! A run as answers show it.

use crate::http::answer::Made;
use crate::http::problem::Problem;
use crate::http::wire::RunView;
use crate::run::{Run, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use chrono::{DateTime, Utc};

/// A run's answer, made once for all who asked for it.
#[derive(Debug)]
pub(super) struct Shown {
    /// Where it is.
    pub(super) state: State,
    due_at: DateTime<Utc>,
    made: Made,
}

impl Shown {
    /// The run as it is.
    pub(super) fn of(run: &Run) -> Result<Self, Problem> {
        Ok(Self { state: run.state, due_at: run.due_at, made: Made::of(&RunView::from(run))? })
    }

    /// The body.
    pub(super) fn body(&self) -> &Bytes {
        &self.made.bytes
    }

    /// The answer. `request` are the headers of a GET, whose answer may be 304; none for other methods.
    pub(super) fn answer(&self, status: StatusCode, request: Option<&HeaderMap>) -> Response {
        let mut response = self.made.answer(status, request.unwrap_or(&HeaderMap::new()));
        if !self.state.is_ended() {
            response.headers_mut().insert(header::RETRY_AFTER, self.retry_after_seconds().into());
        }
        response
    }

    /// When it pays to look again: soon, unless the run waits for a retry.
    fn retry_after_seconds(&self) -> u64 {
        let due_in = (self.due_at - Utc::now()).num_seconds();
        u64::try_from(due_in).unwrap_or(0).clamp(1, 60)
    }
}
