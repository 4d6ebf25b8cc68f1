//! `POST /runs/{id}/cancel` and `/retry`.

use super::shown::Shown;
use super::{definition_for_retry, find_to_change, location, not_done, parse_id, stored_run, too_many_queued};
use crate::http::params::Params;
use crate::http::problem::{Problem, ProblemDetails};
use crate::http::wire::RunView;
use crate::http::{Caller, Server, body};
use crate::run::{RunId, State as RunState};
use crate::store::{Cancelled, Retried, RunControl};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use serde::Deserialize;
use utoipa::ToSchema;

/// The body of a cancellation: nothing.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CancelRequest {}

/// The body of a retry.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RetryRequest {
    /// Retry only if the last attempt was this one, so that a repeated retry does not retry twice.
    #[serde(default)]
    if_attempt: Option<u32>,
}

/// Cancels a queued run at once, or asks the worker of a running one to stop.
#[utoipa::path(post, path = "/runs/{id}/cancel", operation_id = "cancel_run", tag = "runs",
    params(("id" = Uuid, Path, description = "The run's id")),
    request_body(content = Option<CancelRequest>, description = "May be left out"),
    responses(
        (status = 200, description = "The run is cancelled", body = RunView<'_>),
        (status = 202, description = "Its worker was asked to stop", body = RunView<'_>),
        (status = 400, description = "The body is no JSON", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 404, description = "There is no such run", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 409, description = "It is being published, or it has ended otherwise", body = ProblemDetails,
            content_type = "application/problem+json"),
        (status = 413, description = "The body is too large", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 415, description = "The body is not declared as JSON", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 422, description = "The body is not valid", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 503, description = "The database does not answer, or not in time", body = ProblemDetails, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn cancel(
    State(api): State<Server>,
    Path(id): Path<String>,
    caller: Caller,
    params: Params,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    params.only(&[])?;
    let id = parse_id(&id)?;
    let run = find_to_change(&api, &caller, id).await?;
    let CancelRequest {} = body::optional_json(&headers, &body)?;
    let status = match api.store.cancel(id).await.map_err(|error| not_done(&error, &run))? {
        Cancelled::Now => StatusCode::OK,
        Cancelled::Asked => StatusCode::ACCEPTED,
        Cancelled::Unknown => return Err(Problem::NoSuchRun(id.to_string())),
        Cancelled::NotAllowed(state) => {
            let detail = format!("the run is {}, expected queued or running to cancel it", state.as_str());
            return Err(Problem::InvalidState { run_id: id, state, detail });
        }
    };
    let (by, token) = (&caller.principal.0, caller.token_id());
    tracing::info!(run.id = %id, principal = by, token.id = token, "a run was cancelled by request");
    Ok(Shown::of(&*stored_run(&api, id).await?)?.answer(status, None))
}

/// Queues a failed or cancelled run again, as a new attempt, with the pipeline's current definition.
#[utoipa::path(post, path = "/runs/{id}/retry", operation_id = "retry_run", tag = "runs",
    params(("id" = Uuid, Path, description = "The run's id")),
    request_body(content = Option<RetryRequest>, description = "May be left out"),
    responses(
        (status = 202, description = "The run is queued", body = RunView<'_>, headers(
            ("Location" = String, description = "Where the run is"),
        )),
        (status = 400, description = "The body is no JSON", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 404, description = "There is no such run", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 409, description = "It has not failed and was not cancelled, its last attempt is another, the \
            pipeline no longer has what it names, the table has another layout, a partition is not what `if_current` says, or other runs are in the way of one that was not to wait", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 413, description = "The body is too large", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 415, description = "The body is not declared as JSON", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 422, description = "The body is not valid", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 429, description = "As many runs of the principal are queued as may be, or it asks too often; `Retry-After` says when \
            to come back", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 503, description = "The database does not answer, or not in time", body = ProblemDetails, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn retry(
    State(api): State<Server>,
    Path(id): Path<String>,
    caller: Caller,
    params: Params,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    params.only(&[])?;
    let run = find_to_change(&api, &caller, parse_id(&id)?).await?;
    let RetryRequest { if_attempt } = body::optional_json(&headers, &body)?;
    if !matches!(run.state, RunState::Failed | RunState::Cancelled) {
        // Said before the definition is looked at, which does not matter then.
        return Err(not_allowed(run.id, run.state, run.last_attempt, if_attempt));
    }
    let definition = definition_for_retry(&api, &caller, &run).await?;
    match api.store.retry(run.id, if_attempt, &definition).await.map_err(|error| not_done(&error, &run))? {
        Retried::Queued => queued(&api, &caller, &run).await,
        Retried::Unknown => Err(Problem::NoSuchRun(id)),
        Retried::PreconditionFailed(unmet) => Err(Problem::PreconditionFailed(unmet)),
        Retried::Overlaps(runs) => Err(Problem::OverlappingRuns(runs)),
        Retried::TooManyQueued(limit) => Err(too_many_queued(&run.principal, limit)),
        Retried::NotAllowed { state, last_attempt } => Err(not_allowed(run.id, state, last_attempt, if_attempt)),
    }
}

async fn queued(api: &Server, caller: &Caller, run: &RunControl) -> Result<Response, Problem> {
    log_retry(caller, run);
    let mut response = Shown::of(&*stored_run(api, run.id).await?)?.answer(StatusCode::ACCEPTED, None);
    if let Some(location) = location(run.id) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// Who queued a run again, and by which token.
pub(super) fn log_retry(caller: &Caller, run: &RunControl) {
    let (by, token) = (&caller.principal.0, caller.token_id());
    tracing::info!(run.id = %run.id, pipeline = run.pipeline, principal = by, token.id = token, "queued a run again");
}

fn not_allowed(run_id: RunId, state: RunState, last_attempt: u32, if_attempt: Option<u32>) -> Problem {
    let detail = match if_attempt {
        Some(n) if n != last_attempt => format!("the run's last attempt is {last_attempt}, expected {n}"),
        _ => format!("the run is {}, expected failed or cancelled to retry it", state.as_str()),
    };
    Problem::InvalidState { run_id, state, detail }
}
