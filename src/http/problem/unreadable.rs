//! A run that the database has and that cannot be shown: who mends it must know which run, where it is, and what was found in which of
//! its documents. That is of the run alone, and for whoever may see it.

use super::Problem;
use crate::store::UnreadableRun;
use bytes::Bytes;
use serde_json::{Value, json};

pub(super) fn detail(run: &UnreadableRun) -> String {
    let UnreadableRun { control, why } = run;
    format!(
        "run {} of {} is {}, and what is kept of it cannot be read: {why}",
        control.id,
        control.pipeline,
        control.state.as_str()
    )
}

pub(super) fn members(run: &UnreadableRun) -> Value {
    let control = &run.control;
    json!({
        "run_id": control.id, "pipeline": control.pipeline, "state": control.state, "attempt": control.last_attempt
    })
}

impl Problem {
    /// Where it is told in place of what cannot be.
    pub(in crate::http) fn json(&self) -> Bytes {
        serde_json::to_vec(&self.details(None)).unwrap_or_default().into()
    }
}
