//! Whether the table that stands is laid out as the definition says.

use crate::http::Api;
use crate::http::problem::Problem;
use crate::pipeline::{self, Definition};
use crate::run::{Mode, State};
use crate::store::RunFilter;

/// How many runs of a pipeline in one state are looked through for a full one.
const MAX_RUNS: u32 = 1000;

/// Refuses to replace some partitions of a table that is cut otherwise or has files of another format, unless a full run that may
/// rebuild it has not ended. What counts is the look at the decision; this one only spares the work.
pub(super) async fn check(api: &Api, definition: &Definition) -> Result<(), Problem> {
    let name = &definition.name;
    let mut written = api.store.table_definitions(name).await?.into_iter().filter(|d| d.hash != definition.hash);
    // One that this version cannot read is left to the decision.
    let differs = |other: Definition| {
        other.partition != definition.partition || other.output.part_file() != definition.output.part_file()
    };
    if !written.any(|other| pipeline::parse(&other.text, &other.pipeline).is_ok_and(differs)) {
        return Ok(());
    }
    let entries = api.store.entries(name, None).await?;
    let change = entries.iter().find_map(|entry| definition.layout_change(&entry.partition, entry.content.file));
    match change {
        Some(change) if !is_being_rebuilt(api, name).await? => {
            Err(Problem::LayoutChanged { pipeline: name.clone(), detail: change.to_string() })
        }
        _ => Ok(()),
    }
}

async fn is_being_rebuilt(api: &Api, pipeline: &str) -> Result<bool, Problem> {
    for state in [State::Queued, State::Running, State::Committing] {
        let pipeline = Some(pipeline.to_owned());
        let filter = RunFilter { pipeline, state: Some(state), limit: MAX_RUNS, ..RunFilter::default() };
        if api.store.list(&filter).await?.iter().any(|run| run.mode == Mode::Full) {
            return Ok(true);
        }
    }
    Ok(false)
}
