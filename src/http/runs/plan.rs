//! `POST /runs?dry_run=true`: what a submission would do, without it.

use crate::http::problem::Problem;
use crate::http::wire::{PlanView, Planned};
use crate::http::{Api, answer};
use crate::pipeline::Definition;
use crate::pipeline::sources::Foreseen;
use crate::run::{Asked, CatalogEntry, Mode, OnOverlap, Scope};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use std::sync::Arc;

/// How many runs a plan names for which it would wait.
const MAX_WAITED_FOR: u32 = 100;

/// Answers a request that would be accepted: the table, the sources and the queue as they are now.
pub(super) async fn show(api: &Api, definition: &Arc<Definition>, asked: &Asked) -> Result<Response, Problem> {
    let (scope, entries) = match asked.mode {
        Mode::Full => (Scope::Full, api.store.entries(&asked.pipeline, None).await?),
        Mode::Overwrite => {
            let entries = api.store.entries(&asked.pipeline, Some(&asked.partitions.0)).await?;
            (picked(asked, definition, &entries), entries)
        }
    };
    let unmet = asked.if_current.unmet(&entries);
    if !unmet.is_empty() {
        return Err(Problem::PreconditionFailed(unmet));
    }
    let (waits_for, foreseen) = match &scope {
        Scope::Partitions(none) if none.is_empty() => {
            (Vec::new(), Ok(Foreseen { files: Vec::new(), missing: Vec::new() }))
        }
        scope => {
            let waits_for = api.store.overlapping(&asked.pipeline, scope, MAX_WAITED_FOR).await?;
            if asked.on_overlap == OnOverlap::Refuse && !waits_for.is_empty() {
                return Err(Problem::OverlappingRuns(waits_for.into_iter().map(|(id, _)| id).collect()));
            }
            (waits_for, (api.foresight)(Arc::clone(definition), scope.clone()).await)
        }
    };
    let planned = Planned { definition, asked, scope: &scope, entries: &entries };
    answer::json(StatusCode::OK, &HeaderMap::new(), &PlanView::new(&planned, &foreseen, &waits_for))
}

/// The partitions that a run would name, as the catalog is now.
fn picked(asked: &Asked, definition: &Definition, entries: &[CatalogEntry]) -> Scope {
    let made_by = entries.iter().map(|entry| (entry.partition.clone(), entry.definition.clone())).collect();
    let keys = asked.picked(&made_by, &definition.hash).into_iter().cloned().collect();
    Scope::Partitions(keys)
}
