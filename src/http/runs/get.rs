//! `GET /runs/{id}`: a run as it is, or as it ends.

use super::wait::Wait;
use super::{check_seen, parse_id};
use crate::http::params::Params;
use crate::http::problem::{Problem, ProblemDetails};
use crate::http::wire::RunView;
use crate::http::{Caller, Server, answer};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;

/// Shows a run; with `wait`, when it ends or the time is up.
#[utoipa::path(get, path = "/runs/{id}", operation_id = "get_run", tag = "runs",
    params(
        ("id" = Uuid, Path, description = "The run's id"),
        ("wait" = Option<f64>, Query, description = "Seconds to wait for the run's end; more than the server's limit is cut to it, which is \
            60 unless `--max-wait-seconds` says otherwise", minimum = 0),
        ("Prefer" = Option<String>, Header, description = "`wait=30` is the same as the parameter"),
        ("If-None-Match" = Option<String>, Header, description = "The tag of an earlier answer"),
    ),
    responses(
        (status = 200, description = "The run", body = RunView<'_>, headers(
            ("ETag" = String, description = "The tag of the answer"),
            ("Retry-After" = u64, description = "When it pays to look again, until the run has ended"),
        )),
        (status = 304, description = "The run is as the tag's answer said"),
        (status = 400, description = "The query cannot be read", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 404, description = "There is no such run", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 429, description = "As many clients of the principal wait as may, or it asks too often; `Retry-After` says when to come back",
            body = ProblemDetails, content_type = "application/problem+json"),
        (status = 503, description = "The database does not answer, or not in time", body = ProblemDetails, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn get(
    State(api): State<Server>,
    Path(id): Path<String>,
    caller: Caller,
    params: Params,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    params.only(&["wait"])?;
    let wait = Wait::asked(&params, &headers, &api.limits)?;
    let headers = answer::conditions(headers);
    let id = parse_id(&id)?;
    check_seen(&api, &caller, id).await?;
    let _place = wait.place(&api, &caller)?;
    let mut response = wait.for_end(&api, id).await?.answer(StatusCode::OK, Some(&headers));
    wait.mark(&mut response);
    Ok(response)
}
