//! `GET /pipelines`, `GET /pipelines/{name}`: the definitions.

use super::params::Params;
use super::problem::{Problem, ProblemDetails};
use super::wire::{PipelineDetail, PipelineList, PipelineSummary};
use super::{Caller, Server, answer};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use std::sync::Arc;
use utoipa_axum::{router::OpenApiRouter, routes};

pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(get))
}

/// Lists the pipelines.
#[utoipa::path(get, path = "/pipelines", operation_id = "list_pipelines", tag = "pipelines", responses((status = 200, description = "The pipelines", body = PipelineList<'_>)))]
async fn list(
    State(api): State<Server>,
    caller: Caller,
    params: Params,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    params.only(&[])?;
    let now = Arc::clone(&api.pipelines.borrow());
    let seen = now.values().filter(|definition| caller.sees(&definition.name));
    let pipelines = seen.map(|definition| PipelineSummary::from(definition.as_ref())).collect();
    answer::json(StatusCode::OK, &headers, &PipelineList { pipelines })
}

/// Shows a pipeline's definition.
#[utoipa::path(get, path = "/pipelines/{name}", operation_id = "get_pipeline", tag = "pipelines",
    params(("name" = String, Path, description = "The pipeline's name", example = "zone_hour")),
    responses(
        (status = 200, description = "The definition", body = PipelineDetail<'_>),
        (status = 404, description = "There is no such pipeline", body = ProblemDetails, content_type = "application/problem+json"),
    ),
)]
async fn get(
    State(api): State<Server>,
    Path(name): Path<String>,
    caller: Caller,
    params: Params,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    params.only(&[])?;
    let definition = &api.pipeline(&caller, &name)?;
    answer::json(StatusCode::OK, &headers, &PipelineDetail::from(definition.as_ref()))
}
