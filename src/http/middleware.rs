//! What surrounds every handler.

use super::problem::{Problem, render_problems};
use super::{REQUEST_ID, Server, admission, body};
use crate::telemetry::{self, InUse, METRIC_REQUEST_SECONDS, METRIC_REQUESTS, METRIC_REQUESTS_IN_FLIGHT};
use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{Extensions, HeaderMap, HeaderValue, Method, StatusCode, Version, header};
use axum::middleware::{Next, from_fn, from_fn_with_state, map_request};
use axum::response::{IntoResponse, Response};
use std::any::Any;
use std::future::Future;
use std::time::{Duration, Instant};
use tower::{Service, ServiceBuilder};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{DefaultPredicate, Predicate};
use tower_http::request_id::{MakeRequestUuid, PropagateRequestIdLayer, SetRequestIdLayer};
use tower_http::sensitive_headers::SetSensitiveRequestHeadersLayer;
use tower_http::trace::{DefaultOnFailure, DefaultOnResponse, TraceLayer};
use tracing::Level;

/// The routes whose answers may wait for a run's end.
const WAITING: [(Method, &str); 2] = [(Method::GET, "/runs/{id}"), (Method::POST, "/runs")];

/// Wraps the routes; the first layer is the outermost.
pub(super) fn around(routes: Router<Server>, server: &Server) -> Router<Server> {
    routes.layer(
        ServiceBuilder::new()
            // An id first, so that everything below can name the request.
            .layer(map_request(drop_unfit_request_id))
            .layer(SetRequestIdLayer::new(REQUEST_ID, MakeRequestUuid))
            .layer(PropagateRequestIdLayer::new(REQUEST_ID))
            // Before the trace, which may show headers.
            .layer(SetSensitiveRequestHeadersLayer::new([header::AUTHORIZATION]))
            .layer(
                TraceLayer::new_for_http()
                    .make_span_with(span)
                    .on_response(DefaultOnResponse::new().level(Level::DEBUG))
                    // Whoever made a 5xx has logged its cause inside this span.
                    .on_failure(DefaultOnFailure::new().level(Level::DEBUG)),
            )
            // Outside whatever makes answers, so that panics and timeouts are counted with their statuses.
            .layer(from_fn(measure))
            // Outside the problems, since their bodies are rewritten while they are still plain.
            .layer(from_fn(tell_encodings_apart))
            .layer(CompressionLayer::new().compress_when(DefaultPredicate::new().and(has_no_ranges)))
            .layer(from_fn(render_problems))
            .layer(CatchPanicLayer::custom(on_panic))
            // Outside the body, which has a time limit of its own inside the same bound.
            .layer(from_fn_with_state(server.clone(), limit_time))
            // Before the body, which nobody is to send in vain; and inside whatever counts and limits all requests.
            .layer(from_fn_with_state(server.clone(), admission::admit))
            // Handlers find the whole body, or are not called.
            .layer(from_fn_with_state(server.clone(), take_body))
            // Innermost: what was asked is done by now, whether the client will hear of it or not.
            .layer(from_fn_with_state(server.clone(), before_answering)),
    )
}

/// Ids of clients are taken over only where they can stand in a log and a header as they are.
async fn drop_unfit_request_id(mut request: Request) -> Request {
    let fits = |id: &HeaderValue| {
        let id = id.as_bytes();
        (1..=128).contains(&id.len()) && id.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.:/+=@".contains(b))
    };
    let mut ids = request.headers().get_all(&REQUEST_ID).iter();
    let one_that_fits = ids.next().is_some_and(fits) && ids.next().is_none();
    if !one_that_fits {
        request.headers_mut().remove(&REQUEST_ID);
    }
    request
}

fn span(request: &Request<Body>) -> tracing::Span {
    let id = request.headers().get(&REQUEST_ID).and_then(|id| id.to_str().ok()).unwrap_or_default();
    // On at every level, so that no line is without it.
    let span = tracing::error_span!(
        "request",
        request.id = id,
        http.method = %request.method(),
        http.path = request.uri().path(),
        otel.name = tracing::field::Empty,
        otel.kind = tracing::field::Empty,
    );
    telemetry::told_by(&span, traceparent(request.headers()));
    telemetry::entered(&span, &format!("{} {}", method_label(request.method()), route(request)), "server");
    span
}

/// What the caller says of its trace; nothing where it says several things.
pub(super) fn traceparent(headers: &HeaderMap) -> Option<&str> {
    let mut sent = headers.get_all("traceparent").iter();
    sent.next().filter(|_| sent.next().is_none())?.to_str().ok()
}

fn route(request: &Request<Body>) -> &str {
    request.extensions().get::<MatchedPath>().map_or("unmatched", MatchedPath::as_str)
}

/// Hands the request on. A client that waits is in memory with all that its layers keep, so they keep none of the request: they are
/// functions that look at it and hand it on before they wait for the answer, and not async ones, which would have room for it until the end.
pub(super) fn go_on(mut next: Next, request: Request) -> impl Future<Output = Response> + Send {
    let answer = next.call(request);
    async move { answer.await.unwrap_or_else(|never| match never {}) }
}

fn measure(request: Request, next: Next) -> impl Future<Output = Response> + Send {
    let one_more = InUse::of(METRIC_REQUESTS_IN_FLIGHT);
    let route = route(&request).to_owned();
    let method = method_label(request.method());
    let start = Instant::now();
    let answer = go_on(next, request);
    async move {
        let response = answer.await;
        drop(one_more);
        measured(method, route, response.status(), start);
        response
    }
}

fn measured(method: &'static str, route: String, status: StatusCode, start: Instant) {
    telemetry::answered(&route, status.as_u16());
    let status = status.as_u16().to_string();
    metrics::counter!(METRIC_REQUESTS, "method" => method, "route" => route.clone(), "status" => status).increment(1);
    metrics::histogram!(METRIC_REQUEST_SECONDS, "method" => method, "route" => route)
        .record(start.elapsed().as_secs_f64());
}

/// Clients can make methods up, so the label has a closed list.
fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

/// Makes the tags of compressed answers weak, since the same tag stands for the plain ones. And lets no wish for an
/// encoding stand in the way of an answer: a run that was accepted is not answered with 406.
fn tell_encodings_apart(mut request: Request, next: Next) -> impl Future<Output = Response> + Send {
    if request.headers().get_all(header::ACCEPT_ENCODING).iter().any(refuses_plain) {
        request.headers_mut().remove(header::ACCEPT_ENCODING);
    }
    let answer = go_on(next, request);
    async move {
        let mut response = answer.await;
        weaken_if_encoded(response.headers_mut());
        response
    }
}

fn weaken_if_encoded(headers: &mut HeaderMap) {
    if headers.contains_key(header::CONTENT_ENCODING)
        && let Some(tag) = headers.get(header::ETAG).filter(|tag| !tag.as_bytes().starts_with(b"W/"))
        && let Ok(weak) = HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat())
    {
        headers.insert(header::ETAG, weak);
    }
}

/// Whether an `Accept-Encoding` gives the plain answer the weight 0.
fn refuses_plain(value: &HeaderValue) -> bool {
    let text = String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
    text.split(',').any(|wish| {
        let mut parts = wish.split(';').map(str::trim);
        let plain = matches!(parts.next(), Some("identity" | "*"));
        let weight = parts.find_map(|part| part.strip_prefix("q=").and_then(|q| q.trim().parse::<f32>().ok()));
        plain && weight == Some(0.0)
    })
}

/// Ranges are of the bytes as they are, and so is the tag that they are asked under.
fn has_no_ranges(_: StatusCode, _: Version, headers: &HeaderMap, _: &Extensions) -> bool {
    !headers.contains_key(header::ACCEPT_RANGES)
}

fn on_panic(panic: Box<dyn Any + Send + 'static>) -> Response {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    tracing::error!(panic = text.unwrap_or("not a text"), "a handler panicked");
    Problem::Internal.into_response()
}

fn limit_time(State(api): State<Server>, request: Request, next: Next) -> impl Future<Output = Response> + Send {
    let route = request.extensions().get::<MatchedPath>();
    let waits = WAITING.iter().any(|(m, path)| request.method() == m && route.is_some_and(|r| r.as_str() == *path));
    let wait = if waits { u64::from(api.limits.max_wait_seconds) } else { 0 };
    // Reading the body and answering have their time each.
    let seconds = api.limits.request_timeout_seconds * 2 + wait;
    let answer = tokio::time::timeout(Duration::from_secs(seconds), go_on(next, request));
    async move {
        answer.await.unwrap_or_else(|_| {
            tracing::warn!(seconds, "a request was given up");
            Problem::TimedOut(seconds).into_response()
        })
    }
}

/// A named step before each answer but those to who keeps the service running.
fn before_answering(State(api): State<Server>, request: Request, next: Next) -> impl Future<Output = Response> + Send {
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let is_work = route.is_some_and(|route| route.starts_with("/runs") || route.starts_with("/pipelines"));
    let (answer, faults) = (go_on(next, request), api.faults.clone());
    async move {
        let response = answer.await;
        match is_work {
            true if faults.reached("answering").await.is_err() => Problem::Internal.into_response(),
            _ => response,
        }
    }
}

async fn take_body(State(api): State<Server>, request: Request, next: Next) -> Response {
    match body::read(request, &api.limits).await {
        Ok(request) => go_on(next, request.map(Body::from)).await,
        Err(refused) => {
            let mut response = refused.problem.into_response();
            if !refused.drained {
                // What is left of the body would be taken for the next request.
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            response
        }
    }
}
