//! Runs: submitting, looking, waiting, listing, cancelling and retrying.

mod ask;
mod change;
mod events;
mod get;
mod layout;
mod list;
mod plan;
mod shown;
mod submit;
mod wait;
mod watch;

pub use ask::{IfFailed, PartitionAsked, PartitionsAsked, RangeAsked, SubmitRequest};
pub use watch::Watches;

use super::problem::{Denied, Limited, Problem};
use super::{Caller, Server};
use crate::pipeline::Definition;
use crate::run::{Mode, Principal, Run, RunId};
use crate::store::{RunControl, StoreError, StoredDefinition, UnreadableRun};
use axum::http::HeaderValue;
use std::sync::Arc;
use utoipa_axum::{router::OpenApiRouter, routes};
use uuid::Uuid;

pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new()
        .routes(routes!(submit::submit, list::list))
        .routes(routes!(get::get))
        .routes(routes!(events::events))
        .routes(routes!(change::cancel))
        .routes(routes!(change::retry))
}

fn location(run: RunId) -> Option<HeaderValue> {
    HeaderValue::from_str(&format!("/runs/{run}")).ok()
}

/// The run of this id, or a 404, also where its pipeline is none of the caller's. What is in its documents does not matter.
async fn find(api: &Server, caller: &Caller, id: RunId) -> Result<RunControl, Problem> {
    let run = control(api, id).await?;
    if caller.sees(&run.pipeline) { Ok(run) } else { Err(Problem::NoSuchRun(id.to_string())) }
}

/// The same, where the caller may cancel and retry it.
async fn find_to_change(api: &Server, caller: &Caller, id: RunId) -> Result<RunControl, Problem> {
    let run = find(api, caller, id).await?;
    match caller.may_change(&run.principal) {
        true => Ok(run),
        false => Err(Problem::Denied(Denied::NotYourRun {
            run_id: id,
            owner: run.principal,
            caller: caller.principal.clone(),
        })),
    }
}

/// Refuses what [`find`] would; whose run it is never changes, so that it may be read without the caller afterwards.
async fn check_seen(api: &Server, caller: &Caller, id: RunId) -> Result<(), Problem> {
    // Who sees all pipelines costs no question.
    if caller.pipelines.is_some() { find(api, caller, id).await.map(drop) } else { Ok(()) }
}

async fn stored_run(api: &Server, id: RunId) -> Result<Arc<Run>, Problem> {
    api.questions().run(id).await?.ok_or_else(|| Problem::NoSuchRun(id.to_string()))
}

/// What of a run can be told also where its documents cannot be read.
async fn control(api: &Server, id: RunId) -> Result<RunControl, Problem> {
    match api.store.get(id).await {
        Err(StoreError::UnreadableRun(run)) => Ok(run.control),
        found => Ok(found?.ok_or_else(|| Problem::NoSuchRun(id.to_string()))?.into()),
    }
}

/// Why a step with a run was not done: where what is kept of the run could not be read, which run that is.
fn not_done(error: &StoreError, run: &RunControl) -> Problem {
    match error {
        StoreError::Corrupt(why) => {
            StoreError::UnreadableRun(Box::new(UnreadableRun { control: run.clone(), why: why.clone() })).into()
        }
        other => other.into(),
    }
}

/// The id that a text is; what is no id is no run.
fn parse_id(id: &str) -> Result<RunId, Problem> {
    Uuid::try_parse(id).map(RunId).map_err(|_| Problem::NoSuchRun(id.to_owned()))
}

fn too_many_queued(principal: &Principal, limit: u32) -> Problem {
    Problem::Limited(Limited::QueuedRuns { principal: principal.0.clone(), limit })
}

fn stored(definition: &Definition) -> StoredDefinition {
    StoredDefinition { hash: definition.hash.clone(), pipeline: definition.name.clone(), text: definition.text.clone() }
}

/// The definition that a retry takes: the current one, if it still has what the run names.
async fn definition_for_retry(api: &Server, caller: &Caller, run: &RunControl) -> Result<StoredDefinition, Problem> {
    let changed = |detail| Problem::DefinitionChanged { run_id: run.id, detail };
    let Some(definition) = api.definition(&run.pipeline) else {
        let known = api.pipeline_names(caller).join(", ");
        return Err(changed(format!("the pipeline {} is gone, found: {known}", run.pipeline)));
    };
    // A full run makes its partitions anew; those listed are an earlier attempt's.
    let named = if run.mode == Mode::Full { &[] } else { run.partitions.as_slice() };
    for partition in named {
        definition.partition.parse_key(partition.as_str()).map_err(|error| {
            changed(format!(
                "{partition} is no partition of the pipeline {} as it is now: {error}; submit a new run under a new key",
                run.pipeline
            ))
        })?;
    }
    if run.mode == Mode::Overwrite {
        layout::check(api, &definition, layout::written(api, &definition.name).await).await?;
    }
    Ok(stored(&definition))
}
