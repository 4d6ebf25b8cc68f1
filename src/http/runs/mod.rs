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

use super::Api;
use super::problem::Problem;
use crate::pipeline::Definition;
use crate::run::{Mode, Run, RunId};
use crate::store::StoredDefinition;
use axum::http::HeaderValue;
use utoipa_axum::{router::OpenApiRouter, routes};
use uuid::Uuid;

pub(super) fn routes() -> OpenApiRouter<Api> {
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

/// The run of this id, or a 404; what is no id is no run.
async fn find(api: &Api, id: &str) -> Result<Run, Problem> {
    let id = parse_id(id)?;
    api.store.get(id).await?.ok_or_else(|| Problem::NoSuchRun(id.to_string()))
}

fn parse_id(id: &str) -> Result<RunId, Problem> {
    Uuid::try_parse(id).map(RunId).map_err(|_| Problem::NoSuchRun(id.to_owned()))
}

fn stored(definition: &Definition) -> StoredDefinition {
    StoredDefinition { hash: definition.hash.clone(), pipeline: definition.name.clone(), text: definition.text.clone() }
}

/// The definition that a retry takes: the current one, if it still has what the run names.
async fn definition_for_retry(api: &Api, run: &Run) -> Result<StoredDefinition, Problem> {
    let changed = |detail| Problem::DefinitionChanged { run_id: run.id, detail };
    let Some(definition) = api.definition(&run.pipeline) else {
        let known = api.pipeline_names().join(", ");
        return Err(changed(format!("the pipeline {} is gone, found: {known}", run.pipeline)));
    };
    // A full run makes its partitions anew; those listed are an earlier attempt's.
    let named = if run.mode == Mode::Full { &[] } else { run.partitions.as_slice() };
    for partition in named {
        definition.partition.parse_key(partition.partition.as_str()).map_err(|error| {
            changed(format!(
                "{} is no partition of the pipeline {} as it is now: {error}; submit a new run under a new key",
                partition.partition, run.pipeline
            ))
        })?;
    }
    if run.mode == Mode::Overwrite {
        layout::check(api, &definition).await?;
    }
    Ok(stored(&definition))
}
