//! Whether the table that stands is laid out as the definition says.

use crate::http::problem::Problem;
use crate::http::together::Answer;
use crate::http::{Api, Server};
use crate::pipeline::Definition;
use crate::run::{DefinitionHash, Scope};
use crate::store::StoredDefinition;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The definitions that the entries of a table are right for.
pub(super) type Written = Answer<Arc<Vec<StoredDefinition>>>;

pub(super) async fn written(api: &Server, pipeline: &str) -> Written {
    api.questions().table_definitions(pipeline).await
}

/// Refuses to replace some partitions of a table whose rows were placed otherwise or that has files of another format, unless a full run that may
/// rebuild it has not ended. What counts is the look at the decision; this one only spares the work.
pub(super) async fn check(api: &Server, definition: &Definition, written: Written) -> Result<(), Problem> {
    let (name, written) = (&definition.name, written?);
    let mut others = written.iter().filter(|written| written.hash != definition.hash);
    if !others.any(|other| definition.may_change_layout(&other.text)) {
        return Ok(());
    }
    let entries = api.store.entries(name, None).await?;
    let hashes: BTreeSet<&DefinitionHash> = entries.iter().map(|entry| &entry.definition).collect();
    let hashes: Vec<DefinitionHash> = hashes.into_iter().cloned().collect();
    let texts = api.store.definitions(&hashes).await?.into_iter().map(|d| (d.hash, d.text)).collect();
    let change = definition.layout_change(&entries, &texts);
    match change {
        Some(change) if !is_being_rebuilt(api, name).await? => {
            Err(Problem::LayoutChanged { pipeline: name.clone(), detail: change.to_string() })
        }
        _ => Ok(()),
    }
}

/// Whoever names no partition overlaps full runs alone.
async fn is_being_rebuilt(api: &Api, pipeline: &str) -> Result<bool, Problem> {
    Ok(!api.store.overlapping(pipeline, &Scope::Partitions(Vec::new()), 1).await?.is_empty())
}
