//! `GET /runs/{id}`: a run as it is, or as it ends.

use super::{find, show};
use crate::http::Api;
use crate::http::params::Params;
use crate::http::problem::{Problem, ProblemDetails};
use crate::http::wire::RunView;
use crate::run::{Run, RunId};
use crate::store::Change;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use std::time::Duration;
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio::time::Instant;

const PREFER: HeaderName = HeaderName::from_static("prefer");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// How long a wait relies on wake-ups before it looks again by itself.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Shows a run; with `wait`, when it ends or the time is up.
#[utoipa::path(get, path = "/runs/{id}", operation_id = "get_run", tag = "runs",
    params(
        ("id" = Uuid, Path, description = "The run's id"),
        ("wait" = Option<f64>, Query, description = "Seconds to wait for the run's end", minimum = 0, maximum = 60),
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
        (status = 503, description = "The database does not answer, or not in time", body = ProblemDetails, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn get(
    State(api): State<Api>,
    Path(id): Path<String>,
    params: Params,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    params.only(&["wait"])?;
    let asked = asked_wait(&params, api.limits.max_wait_seconds)?;
    let preferred = preferred_wait(&headers).map(|seconds| seconds.min(api.limits.max_wait_seconds));
    let wait = asked.or(preferred.map(|seconds| Duration::from_secs(seconds.into())));
    let run = match wait {
        Some(wait) if !wait.is_zero() => wait_for_end(&api, &id, Instant::now() + wait).await?,
        _ => find(&api, &id).await?,
    };
    let mut response = show(StatusCode::OK, Some(&headers), &run)?;
    if let (None, Some(seconds)) = (asked, preferred)
        && let Ok(applied) = HeaderValue::from_str(&format!("wait={seconds}"))
    {
        response.headers_mut().insert(PREFERENCE_APPLIED, applied);
    }
    Ok(response)
}

fn asked_wait(params: &Params, max: u32) -> Result<Option<Duration>, Problem> {
    params.read("wait", |text| match text.parse::<f64>() {
        Ok(seconds) if (0.0..=f64::from(max)).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("found {text:?}, expected seconds from 0 to {max}")),
    })
}

/// The wait of a `Prefer` header (RFC 7240); what cannot be read is ignored, as preferences are.
fn preferred_wait(headers: &HeaderMap) -> Option<u32> {
    let values = headers.get_all(PREFER).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split([',', ';'])).find_map(|preference| {
        let (name, value) = preference.split_once('=')?;
        name.trim().eq_ignore_ascii_case("wait").then(|| value.trim().trim_matches('"').parse().ok())?
    })
}

/// The run when it has ended, when the time is up or when the service shuts down.
async fn wait_for_end(api: &Api, id: &str, deadline: Instant) -> Result<Run, Problem> {
    let mut changes = api.store.changes();
    loop {
        let run = find(api, id).await?;
        let left = deadline.saturating_duration_since(Instant::now());
        if run.state.is_ended() || left.is_zero() || api.shutdown.is_cancelled() {
            return Ok(run);
        }
        tokio::select! {
            () = change_of(&mut changes, run.id) => {}
            () = tokio::time::sleep(left.min(LOOK_EVERY)) => {}
            () = api.shutdown.cancelled() => {}
        }
    }
}

/// Returns when this run may have changed.
async fn change_of(changes: &mut Receiver<Change>, id: RunId) {
    loop {
        match changes.recv().await {
            Ok(Change::Run(changed)) if changed == id => return,
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => return,
            // Nobody sends any more; the caller's timer goes on.
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preference_is_found_among_others() {
        let with = |value: &'static str| HeaderMap::from_iter([(PREFER, HeaderValue::from_static(value))]);
        assert_eq!(preferred_wait(&with("respond-async, wait=10")), Some(10));
        assert_eq!(preferred_wait(&with("Wait = \"7\"")), Some(7));
        assert_eq!(preferred_wait(&with("wait=soon")), None);
        assert_eq!(preferred_wait(&HeaderMap::new()), None);
    }
}
