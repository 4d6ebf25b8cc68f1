//! `POST /runs`: one key, one run.

use super::ask::{IfFailed, SubmitRequest};
use super::change::log_retry;
use super::shown::Shown;
use super::wait::Wait;
use super::{control, definition_for_retry, layout, location, not_done, plan, stored, stored_run, too_many_queued};
use crate::http::params::Params;
use crate::http::problem::{FieldError, Problem, ProblemDetails};
use crate::http::wire::{RunOrPlan, RunView};
use crate::http::{Api, Caller, IDEMPOTENCY_KEY, IDEMPOTENT_REPLAYED, Server, body, middleware};
use crate::pipeline::{self, Definition};
use crate::run::{Asked, Audience, IdempotencyKey, Mode, Run, RunId, State as RunState};
use crate::store::{KnownKey, NewRun, Retried, RunFilter, StoreError, StoredDefinition, Submitted};
use crate::telemetry;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use chrono::{TimeDelta, Utc};
use std::sync::Arc;
use tracing::Instrument;

/// How often a submission looks again after the key was taken meanwhile. The second look finds it, since keys live as
/// long as their runs; the bound is for a store that breaks its word.
const MAX_LOOKS: usize = 5;

/// How far ahead a run may be told to begin; what is further is a slip.
const MAX_AHEAD: TimeDelta = TimeDelta::days(366);

/// Submits a run under a key.
///
/// The same request under the same key gives back the run that the first one made. Another request under it is refused.
///
/// With `dry_run=true` nothing is created and the key, which may be left out, stays free: the answer is what the run would
/// replace, read and wait for, or the refusal or the replay that the submission would get.
#[utoipa::path(post, path = "/runs", operation_id = "submit_run", tag = "runs",
    request_body(content = SubmitRequest, example = json!({"pipeline": "zone_hour", "partitions": ["2024-02"]})),
    params((
        "Idempotency-Key" = Option<String>, Header,
        description = "1 to 255 visible ASCII characters, bare or quoted; or the field `idempotency_key`",
        example = "zone_hour/2024-02/scheduled__2024-03-01",
    ),
        ("dry_run" = Option<bool>, Query, description = "Whether to answer what would be done, and to do nothing"),
        ("wait" = Option<f64>, Query, description = "Seconds to wait for the run's end; more than the server's limit is cut to it, which is \
            60 unless `--max-wait-seconds` says otherwise", minimum = 0),
        ("Prefer" = Option<String>, Header, description = "`wait=30` is the same as the parameter"),
    ),
    responses(
        (status = 202, description = "The run was accepted", body = RunView<'_>, headers(
            ("Location" = String, description = "Where the run is"),
            ("Retry-After" = u64, description = "When it pays to look"),
            ("ETag" = String, description = "The tag of the answer"),
        )),
        (status = 200, description = "The run that was accepted under this key before, as it is now; or, of a dry run under a key \
            that is free, the plan", body = RunOrPlan<'_>,
            headers(("Idempotent-Replayed" = String, description = "`true` where it is a run"))),
        (status = 400, description = "No JSON, or no or a bad key", body = ProblemDetails,
            content_type = "application/problem+json"),
        (status = 409, description = "`on_overlap: refuse`, and other runs are in the way; a partition is not what \
            `if_current` says; the table has another layout than the \
            pipeline, so that only `mode: full` can rebuild it; or `if_failed: retry`, and the pipeline no longer has what the \
            run names",
            body = ProblemDetails, content_type = "application/problem+json"),
        (status = 413, description = "The body is too large", body = ProblemDetails,
            content_type = "application/problem+json"),
        (status = 415, description = "The body is not declared as JSON", body = ProblemDetails,
            content_type = "application/problem+json"),
        (status = 422, description = "The request is not valid, or its key belongs to another", body = ProblemDetails,
            content_type = "application/problem+json"),
        (status = 429, description = "As many runs of the principal are queued as may be, or it asks too often; `Retry-After` says when \
            to send the same request again",
            body = ProblemDetails, content_type = "application/problem+json"),
        (status = 503, description = "The database does not answer: send the same request again",
            body = ProblemDetails, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn submit(
    State(api): State<Server>,
    caller: Caller,
    params: Params,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    params.only(&["wait", "dry_run"])?;
    let (wait, _place) = Wait::asked(&params, &headers, &api.limits)?.if_there_is_room(&api, &caller);
    if params.flag("dry_run")? {
        return dry_run(&api, &caller, &headers, &body, wait).await;
    }
    answer(&api, &caller, headers, body, wait).instrument(tracing::info_span!("submit")).await
}

async fn answer(
    api: &Server,
    caller: &Caller,
    headers: HeaderMap,
    body: Bytes,
    wait: Wait,
) -> Result<Response, Problem> {
    let request = read(&headers, &body)?;
    let key = key(&headers, request.idempotency_key.as_deref())?;
    let traceparent = telemetry::traceparent(middleware::traceparent(&headers));
    // Whoever waits is in memory without them.
    drop((headers, body));
    check_pipeline(api, caller, &request)?;
    let new = async |written| submitted(api, caller, &request, &key, written, traceparent.clone()).await;
    let mut first = match api.questions().spares_a_look(&caller.principal, &key, &request.pipeline) {
        Some(written) => Some(new(Ok(written)).await),
        None => None,
    };
    if let Some(Ok(Submitted::New(run))) = first {
        return accepted(api, caller, *run, wait).await;
    }
    for _ in 0..MAX_LOOKS {
        // Both are asked at once, for most keys are new.
        let (known, written) = tokio::join!(known_key(api, caller, &key), layout::written(api, &request.pipeline));
        if let Some(known) = known? {
            return replay(api, caller, &request, &known, wait).await;
        }
        let submitted = match first.take() {
            None | Some(Ok(Submitted::KeyTaken)) => new(written).await?,
            Some(refused) => refused?,
        };
        match submitted {
            Submitted::New(run) => return accepted(api, caller, *run, wait).await,
            Submitted::KeyTaken => {}
            Submitted::PreconditionFailed(unmet) => return Err(Problem::PreconditionFailed(unmet)),
            Submitted::Overlaps(runs) => return Err(Problem::OverlappingRuns(runs)),
            Submitted::TooManyQueued(limit) => return Err(too_many_queued(&caller.principal, limit)),
        }
    }
    tracing::error!("a key is taken and not known");
    Err(Problem::Internal)
}

/// What [`answer`] would come to. A failed run is not queued again.
async fn dry_run(
    api: &Server,
    caller: &Caller,
    headers: &HeaderMap,
    body: &Bytes,
    wait: Wait,
) -> Result<Response, Problem> {
    let request = read(headers, body)?;
    let request = SubmitRequest { if_failed: None, ..request };
    check_pipeline(api, caller, &request)?;
    let known = match key(headers, request.idempotency_key.as_deref()) {
        Ok(key) => known_key(api, caller, &key).await?,
        Err(Problem::MissingKey) => None,
        Err(problem) => return Err(problem),
    };
    if let Some(known) = known {
        return replay(api, caller, &request, &known, wait).await;
    }
    let written = layout::written(api, &request.pipeline).await;
    let (definition, asked) = asked(api, caller, &request, written).await?;
    plan::show(api, &definition, &asked).await
}

/// What is known of the caller's key. Where its first request cannot be read, the problem names the run.
async fn known_key(api: &Server, caller: &Caller, key: &IdempotencyKey) -> Result<Option<Arc<KnownKey>>, Problem> {
    let error = match api.questions().known_key(&caller.principal, key).await {
        Err(error) if matches!(*error, StoreError::Corrupt(_)) => error,
        known => return Ok(known?),
    };
    let of_key = (caller.principal.clone(), key.clone());
    let runs = api.store.list(&RunFilter { idempotency_key: Some(of_key), limit: 1, ..RunFilter::default() }).await?;
    let Some(run) = runs.first() else { return Err(error.into()) };
    match caller.sees(&run.pipeline) {
        true => Err(not_done(&error, &control(api, run.id).await?)),
        false => Err(Problem::KeyReused { run_id: None, fields: Vec::new() }),
    }
}

fn read(headers: &HeaderMap, body: &Bytes) -> Result<SubmitRequest, Problem> {
    let request: SubmitRequest = body::json(headers, body)?;
    request.check_retry().map_err(|error| Problem::InvalidRequest(vec![error]))?;
    Ok(request)
}

/// A pipeline that is none of the caller's is not there, also where a key of another token of theirs has a run of it.
fn check_pipeline(api: &Api, caller: &Caller, request: &SubmitRequest) -> Result<(), Problem> {
    if caller.sees(&request.pipeline) { Ok(()) } else { Err(unknown_pipeline(api, caller, request)) }
}

fn unknown_pipeline(api: &Api, caller: &Caller, request: &SubmitRequest) -> Problem {
    Problem::UnknownPipeline { name: request.pipeline.clone(), known: api.pipeline_names(caller) }
}

async fn accepted(api: &Server, caller: &Caller, run: Run, wait: Wait) -> Result<Response, Problem> {
    let (by, token) = (&caller.principal.0, caller.token_id());
    tracing::info!(run.id = %run.id, pipeline = run.pipeline, principal = by, token.id = token, "accepted a run");
    let shown = if wait.is_none() { Arc::new(Shown::of(&run)?) } else { wait.for_end(api, run.id).await? };
    let mut response = shown.answer(StatusCode::ACCEPTED, None);
    wait.mark(&mut response);
    if let Some(location) = location(run.id) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// The key in the header or the body.
fn key(headers: &HeaderMap, in_body: Option<&str>) -> Result<IdempotencyKey, Problem> {
    let parse = |text: &str| IdempotencyKey::parse(text).map_err(|e| Problem::InvalidKey(e.to_string()));
    let mut in_headers = headers.get_all(&IDEMPOTENCY_KEY).into_iter();
    let in_header = in_headers.next().map(|value| parse(&String::from_utf8_lossy(value.as_bytes()))).transpose()?;
    if in_headers.next().is_some() {
        return Err(Problem::InvalidKey("found the header Idempotency-Key more than once, expected once".to_owned()));
    }
    match (in_header, in_body.map(parse).transpose()?) {
        (None, None) => Err(Problem::MissingKey),
        (Some(key), None) | (None, Some(key)) => Ok(key),
        (Some(header), Some(body)) if header == body => Ok(header),
        (Some(header), Some(body)) => Err(Problem::InvalidKey(format!(
            "found {:?} in the header Idempotency-Key and {:?} in the field `idempotency_key`, expected the same",
            header.as_str(),
            body.as_str()
        ))),
    }
}

/// What is asked of a pipeline as it is now, if it can be done.
async fn asked(
    api: &Server,
    caller: &Caller,
    request: &SubmitRequest,
    written: layout::Written,
) -> Result<(Arc<Definition>, Asked), Problem> {
    let definition = api.definition(&request.pipeline).ok_or_else(|| unknown_pipeline(api, caller, request))?;
    let asked = request.read(&definition, api.limits.max_partitions_per_run).map_err(Problem::InvalidRequest)?;
    if asked.not_before.is_some_and(|time| time > Utc::now() + MAX_AHEAD) {
        let detail = format!("found a time more than {} days ahead, expected an earlier one", MAX_AHEAD.num_days());
        return Err(Problem::InvalidRequest(vec![FieldError::new("/not_before", detail)]));
    }
    audience(api, &asked)?;
    if asked.mode == Mode::Overwrite {
        layout::check(api, &definition, written).await?;
    }
    Ok((definition, asked))
}

/// Who is told of what is asked, where its webhook may be told.
fn audience(api: &Api, asked: &Asked) -> Result<Audience, Problem> {
    let audience = api.audiences.of(asked.webhook.as_deref());
    audience.map_err(|detail| Problem::InvalidRequest(vec![FieldError::new("/webhook", detail)]))
}

/// What comes of a new run of what is asked.
async fn submitted(
    api: &Server,
    caller: &Caller,
    request: &SubmitRequest,
    key: &IdempotencyKey,
    written: layout::Written,
    traceparent: Option<String>,
) -> Result<Submitted, Problem> {
    let (definition, mut asked) = asked(api, caller, request, written).await?;
    asked.traceparent = traceparent;
    let run = NewRun {
        id: RunId::new(),
        principal: caller.principal.clone(),
        idempotency_key: key.clone(),
        audience: audience(api, &asked)?,
        asked,
        definition: stored(&definition),
    };
    match run.is_plain() {
        true => Ok(api.questions().submit(run).await?),
        false => Ok(api.store.submit(&run).await?),
    }
}

/// Answers a request under a key that is known.
async fn replay(
    api: &Server,
    caller: &Caller,
    request: &SubmitRequest,
    known: &KnownKey,
    wait: Wait,
) -> Result<Response, Problem> {
    // The request is for a pipeline that there is for the caller; of another one nothing is told.
    if !caller.sees(&known.pipeline) {
        return Err(Problem::KeyReused { run_id: None, fields: Vec::new() });
    }
    let fields = differences(api, request, known).await?;
    if !fields.is_empty() {
        return Err(Problem::KeyReused { run_id: Some(known.run_id), fields });
    }
    let again = request.if_failed.unwrap_or_default() == IfFailed::Retry
        && retry_if_failed(api, caller, known.run_id, request.if_attempt).await?;
    let retried = if again { Some(stored_run(api, known.run_id).await?) } else { None };
    let known = known.run.as_ref().map_err(|run| StoreError::UnreadableRun(run.clone()));
    let run = retried.as_deref().map_or(known, Ok)?;
    let shown = match wait.is_none() || run.state.is_ended() {
        true => Arc::new(Shown::of(run)?),
        false => wait.for_end(api, run.id).await?,
    };
    let mut response = shown.answer(StatusCode::OK, None);
    wait.mark(&mut response);
    response.headers_mut().insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    if let Some(location) = location(run.id) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// Queues a failed or cancelled run again, unless somebody else did since it was looked at, or its last attempt is another than the
/// one asked about. Whether it is queued again.
async fn retry_if_failed(api: &Server, caller: &Caller, id: RunId, if_attempt: Option<u32>) -> Result<bool, Problem> {
    let run = control(api, id).await?;
    let is_another = if_attempt.is_some_and(|asked| asked != run.last_attempt);
    if is_another || !matches!(run.state, RunState::Failed | RunState::Cancelled) {
        return Ok(false);
    }
    let definition = definition_for_retry(api, caller, &run).await?;
    let retried = api.store.retry(run.id, Some(run.last_attempt), &definition).await;
    match retried.map_err(|error| not_done(&error, &run))? {
        Retried::Queued => {
            log_retry(caller, &run);
            Ok(true)
        }
        // Somebody else was first.
        Retried::NotAllowed { .. } => Ok(true),
        Retried::PreconditionFailed(unmet) => Err(Problem::PreconditionFailed(unmet)),
        Retried::Overlaps(runs) => Err(Problem::OverlappingRuns(runs)),
        Retried::TooManyQueued(limit) => Err(too_many_queued(&run.principal, limit)),
        Retried::Unknown => Err(Problem::NoSuchRun(run.id.to_string())),
    }
}

/// The fields in which a request differs from the first one under its key.
async fn differences(api: &Server, request: &SubmitRequest, known: &KnownKey) -> Result<Vec<&'static str>, Problem> {
    if let Some(definition) = accepted_with(api, known).await? {
        return Ok(request.differences(&known.asked, Some(&definition)));
    }
    // What the two are to be the same in is the fingerprint, whatever it is read by; and canonical texts are themselves.
    let current = api.definition(&request.pipeline);
    let again = current.and_then(|definition| request.read_again(&known.asked, &definition));
    if again.is_some_and(|again| again.fingerprint() == known.fingerprint) {
        return Ok(Vec::new());
    }
    Ok(request.differences(&known.asked, None))
}

/// The definition that the key's first request was read by: the current one if it is the same, or as it is stored. None
/// where an earlier version accepted what this one refuses.
async fn accepted_with(api: &Server, known: &KnownKey) -> Result<Option<Arc<Definition>>, Problem> {
    let current = api.definition(&known.pipeline).filter(|current| current.hash == known.accepted_with);
    if current.is_some() {
        return Ok(current);
    }
    let stored = api.store.definitions(std::slice::from_ref(&known.accepted_with)).await?.pop();
    Ok(stored.and_then(|stored| parsed(&stored)).map(Arc::new))
}

fn parsed(stored: &StoredDefinition) -> Option<Definition> {
    let read = pipeline::parse(&stored.text, &stored.pipeline).map_err(|errors| {
        let error = errors.first().map(ToString::to_string).unwrap_or_default();
        tracing::warn!(pipeline = stored.pipeline, error, "a stored definition cannot be read by this version");
    });
    read.ok()
}
