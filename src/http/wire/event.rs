//! What events of a run say.

use super::run::ErrorView;
use super::state_schema;
use crate::run::State;
use crate::store::Glance;
use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

/// An event of a run's stream.
#[derive(Debug, ToSchema)]
#[schema(as = RunEvent)]
pub(in crate::http) struct EventView<'a> {
    /// `state`, `progress` or `end`.
    #[schema(example = "state")]
    pub(in crate::http) event: &'a str,
    /// What the client says in `Last-Event-ID` where it goes on after this one.
    #[schema(example = "5b0c7a1f9d3e2244")]
    pub(in crate::http) id: &'a str,
    /// JSON on one line: a `StateEvent`, a `Progress` or, of `end`, the `Run`.
    #[schema(example = "{\"state\":\"queued\",\"attempt\":0,\"cancel_requested\":false,\"error\":null}")]
    pub(in crate::http) data: &'a str,
}

impl EventView<'_> {
    /// It as it is sent.
    pub(in crate::http) fn frame(&self) -> String {
        format!("event: {}\nid: {}\ndata: {}\n\n", self.event, self.id, self.data)
    }
}

/// The data of an event `state`: where a run is.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = StateEvent)]
pub(in crate::http) struct StateView<'a> {
    #[schema(schema_with = state_schema)]
    state: State,
    /// Its last attempt; 0 before the first.
    attempt: u32,
    /// Whether somebody asked to cancel it.
    cancel_requested: bool,
    /// Why it failed, or why its last attempt did while it waits for the next.
    error: Option<ErrorView<'a>>,
    /// When it is tried again, while it waits for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    due_at: Option<DateTime<Utc>>,
}

impl<'a> From<&'a Glance> for StateView<'a> {
    fn from(glance: &'a Glance) -> Self {
        let Glance { state, attempt, cancel_requested, error, due_at, .. } = glance;
        Self {
            state: *state,
            attempt: *attempt,
            cancel_requested: *cancel_requested,
            error: error.as_ref().map(ErrorView::from),
            due_at: (!state.is_ended() && error.is_some()).then_some(*due_at),
        }
    }
}
