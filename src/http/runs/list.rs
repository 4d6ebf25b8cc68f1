//! `GET /runs`: summaries, newest first.

use crate::access;
use crate::http::params::{Params, cursor, invalid, read_cursor};
use crate::http::problem::{Problem, ProblemDetails};
use crate::http::wire::{RunList, SummaryView};
use crate::http::{Api, Caller, Server, answer};
use crate::partition::PartitionKey;
use crate::run::{IdempotencyKey, RunId, State as RunState};
use crate::store::RunFilter;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use uuid::Uuid;

const KNOWN: [&str; 10] = [
    "pipeline",
    "principal",
    "state",
    "partition",
    "idempotency_key",
    "label",
    "created_after",
    "created_before",
    "cursor",
    "limit",
];

/// Lists runs, newest first.
#[utoipa::path(get, path = "/runs", operation_id = "list_runs", tag = "runs",
    params(
        ("pipeline" = Option<String>, Query, description = "Runs of this pipeline"),
        ("principal" = Option<String>, Query, description = "Runs of this principal"),
        ("state" = Option<String>, Query, description = "Runs in this state"),
        ("partition" = Option<String>, Query, description = "Runs that name or made this partition: a canonical key, \
            or with `pipeline` a bare value"),
        ("idempotency_key" = Option<String>, Query, description = "The run submitted under this key, by `principal` or else by the caller's own"),
        ("label" = Option<Vec<String>>, Query, style = Form, explode, description = "Runs that have this label, as \
            `name:text`; repeated, all of them", example = json!(["team:mobility"])),
        ("created_after" = Option<String>, Query, description = "Accepted after this RFC 3339 time"),
        ("created_before" = Option<String>, Query, description = "Accepted before this RFC 3339 time"),
        ("cursor" = Option<String>, Query, description = "The `next_cursor` of the page before"),
        ("limit" = Option<u32>, Query, description = "The most entries of the page; a server may be set to more or less", minimum = 1, maximum = 1000),
    ),
    responses(
        (status = 200, description = "A page of runs", body = RunList<'_>),
        (status = 400, description = "The query cannot be read", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 503, description = "The database does not answer, or not in time", body = ProblemDetails, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list(
    State(api): State<Server>,
    caller: Caller,
    params: Params,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    params.only_and_repeated(&KNOWN, "label")?;
    let limit = params.limit(api.limits.default_page, api.limits.max_page)?;
    let filter = filter(&api, &caller, &params, limit)?;
    let mut runs = api.store.list(&filter).await?;
    let more = runs.len() > limit as usize;
    runs.truncate(limit as usize);
    let next_cursor = runs.last().filter(|_| more).map(|last| cursor(&last.id.to_string()));
    let body = RunList { runs: runs.iter().map(SummaryView::from).collect(), next_cursor };
    answer::json(StatusCode::OK, &headers, &body)
}

fn filter(api: &Api, caller: &Caller, params: &Params, limit: u32) -> Result<RunFilter, Problem> {
    let state = params.read("state", |text| {
        let names = RunState::ALL.map(RunState::as_str).join(", ");
        RunState::parse(text).ok_or_else(|| format!("found {text:?}, expected one of: {names}"))
    })?;
    let before = params.read("cursor", |text| {
        let id = read_cursor(text).and_then(|id| Uuid::try_parse(&id).ok());
        id.map(RunId).ok_or_else(|| format!("found {text:?}, expected the next_cursor of an earlier page"))
    })?;
    let principal = params.read("principal", access::principal)?;
    Ok(RunFilter {
        pipeline: params.get("pipeline").map(str::to_owned),
        pipelines: caller.pipelines.clone(),
        principal: principal.clone(),
        state,
        partition: params
            .get("partition")
            .map(|text| partition(api, caller, params.get("pipeline"), text))
            .transpose()?,
        idempotency_key: params.read("idempotency_key", |text| {
            IdempotencyKey::parse(text)
                .map(|key| (principal.as_ref().unwrap_or(&caller.principal).clone(), key))
                .map_err(|error| error.to_string())
        })?,
        labels: params.all("label").map(label).collect::<Result<_, _>>()?,
        created_after: params.moment("created_after")?,
        created_before: params.moment("created_before")?,
        before,
        // One more than the page, to know whether another follows.
        limit: limit + 1,
    })
}

fn label(text: &str) -> Result<(String, String), Problem> {
    let pair = text.split_once(':').map(|(name, text)| (name.to_owned(), text.to_owned()));
    let expected = "expected a name, a colon and a text, as in team:mobility";
    pair.ok_or_else(|| invalid("label", &format!("found {text:?}, {expected}")))
}

/// A canonical key, also of a definition that is no longer current; or a bare value of the pipeline.
fn partition(api: &Api, caller: &Caller, pipeline: Option<&str>, text: &str) -> Result<PartitionKey, Problem> {
    let definition = pipeline.filter(|name| caller.sees(name)).and_then(|name| api.definition(name));
    let read = definition.map(|definition| definition.partition.parse_text(text));
    match read {
        Some(Ok(key)) => Ok(key),
        _ if text.contains('=') => Ok(PartitionKey::from_canonical(text)),
        Some(Err(error)) => Err(invalid("partition", &error.to_string())),
        None => Err(invalid("partition", "expected a canonical key such as pickup_month=2024-02, or `pipeline` too")),
    }
}
