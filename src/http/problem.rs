//! Errors as RFC 9457 problem details. Nothing but this file knows an error's status.

mod denied;
mod details;
mod limited;
mod rendering;
mod unreadable;
mod withheld;

pub use denied::Denied;
pub use details::{FieldError, ProblemDetails};
pub use limited::{Limited, connection_refused, plain_http_refused};
pub(super) use rendering::render_problems;

use super::Check;
use crate::run::{RunId, State, Unmet};
use crate::store::UnreadableRun;
use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

/// What the stable types begin with.
pub const TYPE_PREFIX: &str = crate::run::RunError::TYPE_PREFIX;

/// The media type of problem details.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// Why a request was not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// Who asks is not known, or may not.
    Denied(Denied),
    /// The request cannot be understood, below the level of its fields.
    Malformed(String),
    /// The body is no JSON.
    NotJson(String),
    /// A query or path parameter is unknown, repeated or has a value it cannot have.
    InvalidParameter {
        /// The parameter.
        parameter: String,
        /// What was found and what is expected.
        detail: String,
    },
    /// A submission without a key.
    MissingKey,
    /// The key is none, or header and body have different ones.
    InvalidKey(String),
    /// No route has this path.
    NoSuchPath,
    /// No run has this id.
    NoSuchRun(String),
    /// No pipeline of the server has this name.
    NoSuchPipeline {
        /// The name asked for.
        name: String,
        /// The pipelines that there are.
        known: Vec<String>,
    },
    /// The partition is not there and never was.
    NoSuchPartition {
        /// The pipeline.
        pipeline: String,
        /// The canonical key asked for.
        partition: String,
    },
    /// The table never had such a version, or the run is none of its that succeeded.
    NoSuchVersion {
        /// The pipeline.
        pipeline: String,
        /// What was asked for.
        as_of: String,
    },
    /// The version of the table was so long ago that it is not kept any more.
    HistoryGone {
        /// The pipeline.
        pipeline: String,
        /// What was asked for.
        as_of: String,
        /// The oldest version that is kept.
        oldest: i64,
    },
    /// What is asked for can be had in none of the formats that the request takes.
    NotAcceptable {
        /// The media types that there are.
        available: Vec<&'static str>,
    },
    /// The file, of so many bytes, ends before the range.
    RangeNotSatisfiable(u64),
    /// The partition's file is not the one that the catalog has.
    FileDiffers {
        /// The pipeline.
        pipeline: String,
        /// The partition.
        partition: String,
    },
    /// As many files are read for clients as may be.
    TooManyReaders(String),
    /// As many streams of events are open as may be.
    TooManyStreams(usize),
    /// It is too much at once.
    Limited(Limited),
    /// The warehouse cannot be read.
    FilesUnavailable,
    /// The path has no such method.
    MethodNotAllowed,
    /// The client was too slow to send its body.
    SlowBody(u64),
    /// The run's state does not allow it.
    InvalidState {
        /// The run.
        run_id: RunId,
        /// Where it is.
        state: State,
        /// What was asked and what it needs.
        detail: String,
    },
    /// The request is not to wait, and runs that have not ended overlap it.
    OverlappingRuns(Vec<RunId>),
    /// Partitions are not what the request says that they are.
    PreconditionFailed(Vec<Unmet>),
    /// The run cannot be retried with the pipeline as it is now.
    DefinitionChanged {
        /// The run.
        run_id: RunId,
        /// What does not fit.
        detail: String,
    },
    /// The table that stands is cut otherwise than the pipeline says, or has files of another format.
    LayoutChanged {
        /// The pipeline.
        pipeline: String,
        /// What stands, and what the definition says.
        detail: String,
    },
    /// The body is longer than the limit.
    BodyTooLarge(usize),
    /// The body is not declared as JSON.
    UnsupportedMediaType(Option<String>),
    /// The body is JSON, but not a request.
    InvalidRequest(Vec<FieldError>),
    /// The submission names a pipeline that the server does not have.
    UnknownPipeline {
        /// The name asked for.
        name: String,
        /// The pipelines that there are.
        known: Vec<String>,
    },
    /// The key belongs to another request.
    KeyReused {
        /// The run submitted under it; none where it is not to be told.
        run_id: Option<RunId>,
        /// The fields that differ.
        fields: Vec<&'static str>,
    },
    /// What the database has of the run cannot be read.
    UnreadableRun(Box<UnreadableRun>),
    /// Something went wrong here; the log says what.
    Internal,
    /// The database does not answer.
    Unavailable,
    /// The database cannot write.
    NoRoom,
    /// The service cannot do its work now.
    NotReady(Vec<Check>),
    /// The server did not come to an answer in time.
    TimedOut(u64),
    /// A status made by a layer below, in its own words.
    Other(StatusCode),
}

/// A partition with what was found and expected of it.
fn unmet_json(unmet: &Unmet) -> Value {
    let found = unmet.found.as_ref().map(|(sha256, run_id)| json!({ "sha256": sha256, "run_id": run_id }));
    json!({ "partition": unmet.partition, "expected": unmet.expected.as_str(), "found": found })
}

impl Problem {
    /// The status, the stable name and the name in words of each kind.
    fn kind(&self) -> (StatusCode, &'static str, &'static str) {
        use StatusCode as S;
        match self {
            Problem::Denied(Denied::MissingToken) => (S::UNAUTHORIZED, "missing-token", "A token is needed"),
            Problem::Denied(Denied::InvalidToken(_)) => (S::UNAUTHORIZED, "invalid-token", "The token is not valid"),
            Problem::Denied(Denied::InsufficientScope { .. } | Denied::SomePipelines) => {
                (S::FORBIDDEN, "insufficient-scope", "The token does not allow it")
            }
            Problem::Denied(Denied::ForeignRequest { .. }) => {
                (S::FORBIDDEN, "foreign-request", "The request is another site's")
            }
            Problem::Denied(Denied::NotYourRun { .. }) => (S::FORBIDDEN, "not-your-run", "The run is somebody else's"),
            Problem::Malformed(_) => (S::BAD_REQUEST, "malformed-request", "The request is malformed"),
            Problem::NotJson(_) => (S::BAD_REQUEST, "not-json", "The body is not JSON"),
            Problem::InvalidParameter { .. } => (S::BAD_REQUEST, "invalid-parameter", "A parameter is not valid"),
            Problem::MissingKey => (S::BAD_REQUEST, "idempotency-key-missing", "The idempotency key is missing"),
            Problem::InvalidKey(_) => (S::BAD_REQUEST, "idempotency-key-invalid", "The idempotency key is not valid"),
            Problem::NoSuchPath => (S::NOT_FOUND, "not-found", "There is nothing at this path"),
            Problem::NoSuchRun(_) => (S::NOT_FOUND, "run-not-found", "There is no such run"),
            Problem::NoSuchPipeline { .. } => (S::NOT_FOUND, "pipeline-not-found", "There is no such pipeline"),
            Problem::NoSuchPartition { .. } => (S::NOT_FOUND, "partition-not-found", "There is no such partition"),
            Problem::NoSuchVersion { .. } => (S::NOT_FOUND, "version-not-found", "The table never had such a version"),
            Problem::HistoryGone { .. } => (S::GONE, "history-gone", "The table's version is not kept any more"),
            Problem::MethodNotAllowed => {
                (S::METHOD_NOT_ALLOWED, "method-not-allowed", "The path does not have this method")
            }
            Problem::NotAcceptable { .. } => (S::NOT_ACCEPTABLE, "not-acceptable", "It does not come in that format"),
            Problem::RangeNotSatisfiable(_) => {
                (S::RANGE_NOT_SATISFIABLE, "range-not-satisfiable", "The file ends before the range")
            }
            Problem::FileDiffers { .. } => {
                (S::SERVICE_UNAVAILABLE, "file-differs", "The file is not the one that the catalog has")
            }
            Problem::TooManyReaders(_) => (S::SERVICE_UNAVAILABLE, "too-many-readers", "Too many files are being read"),
            Problem::TooManyStreams(_) => (S::SERVICE_UNAVAILABLE, "too-many-streams", "Too many streams are open"),
            Problem::Limited(limited) => match limited {
                Limited::Requests { .. } => (S::TOO_MANY_REQUESTS, "too-many-requests", "Too many requests"),
                Limited::QueuedRuns { .. } => {
                    (S::TOO_MANY_REQUESTS, "too-many-queued-runs", "Too many runs are queued")
                }
                Limited::Waiting { .. } => (S::TOO_MANY_REQUESTS, "too-many-waiting", "Too many clients wait"),
                Limited::Connections => {
                    (S::SERVICE_UNAVAILABLE, "too-many-connections", "Too many connections are open")
                }
                Limited::PlainHttp => (S::BAD_REQUEST, "tls-expected", "This port speaks TLS"),
            },
            Problem::FilesUnavailable => (S::SERVICE_UNAVAILABLE, "files-unavailable", "The warehouse cannot be read"),
            Problem::SlowBody(_) => (S::REQUEST_TIMEOUT, "slow-body", "The body did not arrive in time"),
            Problem::InvalidState { .. } => (S::CONFLICT, "invalid-state", "The run's state does not allow it"),
            Problem::OverlappingRuns(_) => (S::CONFLICT, "overlapping-runs", "Other runs are in the way"),
            Problem::PreconditionFailed(_) => {
                (S::CONFLICT, "precondition-failed", "A partition is not what the request expects")
            }
            Problem::DefinitionChanged { .. } => {
                (S::CONFLICT, "definition-changed", "The pipeline no longer has what the run names")
            }
            Problem::LayoutChanged { .. } => (S::CONFLICT, "layout-changed", "The table has another layout"),
            Problem::BodyTooLarge(_) => (S::PAYLOAD_TOO_LARGE, "body-too-large", "The body is too large"),
            Problem::UnsupportedMediaType(_) => {
                (S::UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", "The body is not declared as JSON")
            }
            Problem::InvalidRequest(_) => (S::UNPROCESSABLE_ENTITY, "invalid-request", "The request is not valid"),
            Problem::UnknownPipeline { .. } => {
                (S::UNPROCESSABLE_ENTITY, "unknown-pipeline", "The request names an unknown pipeline")
            }
            Problem::KeyReused { .. } => {
                (S::UNPROCESSABLE_ENTITY, "idempotency-key-reused", "The idempotency key was used for another request")
            }
            Problem::UnreadableRun(_) => (S::INTERNAL_SERVER_ERROR, "run-unreadable", "The run cannot be read"),
            Problem::Internal => (S::INTERNAL_SERVER_ERROR, "internal", "Something went wrong inside"),
            Problem::Unavailable => (S::SERVICE_UNAVAILABLE, "unavailable", "The database does not answer"),
            Problem::NoRoom => (S::SERVICE_UNAVAILABLE, "database-full", "The database has no room"),
            Problem::NotReady(_) => (S::SERVICE_UNAVAILABLE, "not-ready", "The service is not ready"),
            Problem::TimedOut(_) => (S::SERVICE_UNAVAILABLE, "timed-out", "The answer took too long"),
            Problem::Other(status) => (*status, "http", status.canonical_reason().unwrap_or("HTTP error")),
        }
    }

    fn detail(&self) -> String {
        match self {
            Problem::Denied(denied) => denied.detail(),
            Problem::Malformed(text) | Problem::NotJson(text) | Problem::InvalidKey(text) => text.clone(),
            Problem::InvalidParameter { parameter, detail } => format!("`{parameter}`: {detail}"),
            Problem::MissingKey => "expected the header Idempotency-Key or the field `idempotency_key`, 1 to 255 \
                                    visible ASCII characters that name this piece of work"
                .to_owned(),
            Problem::NoSuchPath => "no route has this path; GET /docs lists them".to_owned(),
            Problem::NoSuchRun(id) => format!("no run has the id {id:?}"),
            Problem::NoSuchPipeline { name, known } | Problem::UnknownPipeline { name, known } => {
                format!("found the pipeline {name:?}, expected one of: {}", known.join(", "))
            }
            Problem::NoSuchPartition { pipeline, partition } => format!(
                "the table {pipeline} has no partition {partition:?} and never had; expected a canonical key, \
                 percent-encoded once more for the path"
            ),
            Problem::MethodNotAllowed => "the header Allow lists the methods of this path".to_owned(),
            Problem::SlowBody(seconds) => format!("the body was not there after {seconds} s"),
            Problem::InvalidState { detail, .. } | Problem::DefinitionChanged { detail, .. } => detail.clone(),
            Problem::LayoutChanged { pipeline, detail } => format!("table {pipeline}: {detail}"),
            Problem::OverlappingRuns(runs) => {
                let first = runs.first().map(ToString::to_string).unwrap_or_default();
                format!(
                    "found {} in the way that overlap this one and have not ended, the first of them {first}; with \
                     on_overlap refuse nothing was accepted, and the key is as it was",
                    if runs.len() == 1 { "1 run".to_owned() } else { format!("{} runs", runs.len()) }
                )
            }
            Problem::PreconditionFailed(unmet) => unmet.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
            Problem::BodyTooLarge(limit) => format!("the body has more than {limit} bytes, which is the limit"),
            Problem::UnsupportedMediaType(found) => match found {
                Some(found) => format!("found the content type {found:?}, expected application/json"),
                None => "found a body without a content type, expected application/json".to_owned(),
            },
            Problem::InvalidRequest(errors) => match errors.as_slice() {
                [one] if one.pointer.is_empty() => one.detail.clone(),
                [one] => format!("{}: {}", one.pointer, one.detail),
                many => format!("{} things are wrong with the request, see `errors`", many.len()),
            },
            Problem::KeyReused { run_id: None, .. } => {
                "another request was submitted under this key; a new request needs a new key".to_owned()
            }
            Problem::KeyReused { run_id: Some(run_id), fields } => format!(
                "the run {run_id} was submitted under this key with other {}; a new request needs a new key",
                fields.join(" and ")
            ),
            Problem::NoSuchVersion { pipeline, as_of } => format!(
                "found {as_of}, expected a version that the table of {pipeline} has had, a run of it that succeeded, or a time when it \
                 was there"
            ),
            Problem::HistoryGone { pipeline, as_of, oldest } => format!(
                "found {as_of}, expected version {oldest} of the table of {pipeline} or a later one: what was before is not kept"
            ),
            Problem::NotAcceptable { available } => {
                format!("found none of the formats in the header Accept, expected one of: {}", available.join(", "))
            }
            Problem::RangeNotSatisfiable(bytes) => {
                format!("found a range that begins after the end, expected one within the {bytes} bytes of the file")
            }
            Problem::FileDiffers { pipeline, partition } => format!(
                "the file of partition {partition} of {pipeline} is not the one that the catalog has: a run is publishing it at this \
                 moment, or others have changed it; ask again, and where it stays so, `refrain verify` says what is wrong"
            ),
            Problem::TooManyReaders(text) => format!("{text}; ask again when one of them has ended"),
            Problem::TooManyStreams(max) => {
                format!(
                    "found {max} streams of events, which is the limit; come back, or ask for the run with ?wait=30"
                )
            }
            Problem::Limited(limited) => limited.detail(),
            Problem::UnreadableRun(run) => unreadable::detail(run),
            Problem::FilesUnavailable | Problem::Internal => "the log has the cause under the request id".to_owned(),
            Problem::Unavailable => {
                "whether the request was done is unknown; ask again with the same idempotency key".to_owned()
            }
            Problem::NoRoom => {
                "the database could not write: its disk is full, or a file of it is at its limit; nothing was \
                                done; ask again with the same idempotency key when there is room"
                    .to_owned()
            }
            Problem::NotReady(checks) => {
                let failed = checks.iter().filter(|check| check.essential && !check.ok);
                failed.map(|check| format!("{}: {}", check.name, check.detail)).collect::<Vec<_>>().join("; ")
            }
            Problem::TimedOut(seconds) => {
                format!("there was no answer after {seconds} s; ask again with the same idempotency key")
            }
            Problem::Other(status) => format!("the request was answered with {status}"),
        }
    }

    fn members(&self) -> Map<String, Value> {
        let members = match self {
            Problem::Denied(denied) => denied.members(),
            Problem::InvalidParameter { parameter, .. } => json!({ "parameter": parameter }),
            Problem::NoSuchPipeline { known, .. } | Problem::UnknownPipeline { known, .. } => {
                json!({ "pipelines": known })
            }
            Problem::HistoryGone { oldest, .. } => json!({ "oldest_version": oldest }),
            Problem::NotAcceptable { available } => json!({ "available": available }),
            Problem::RangeNotSatisfiable(bytes) => json!({ "bytes": bytes }),
            Problem::InvalidState { run_id, state, .. } => json!({ "run_id": run_id, "state": state }),
            Problem::OverlappingRuns(runs) => json!({ "run_ids": runs }),
            Problem::PreconditionFailed(unmet) => {
                json!({ "partitions": unmet.iter().map(unmet_json).collect::<Vec<_>>() })
            }
            Problem::DefinitionChanged { run_id, .. } => json!({ "run_id": run_id }),
            Problem::LayoutChanged { pipeline, .. } => json!({ "pipeline": pipeline }),
            Problem::NotReady(checks) => json!({ "ready": false, "checks": checks }),
            Problem::BodyTooLarge(limit) => json!({ "max_body_bytes": limit }),
            Problem::Limited(limited) => limited.members(),
            Problem::UnreadableRun(run) => unreadable::members(run),
            Problem::KeyReused { run_id: Some(run_id), fields } => json!({ "run_id": run_id, "fields": fields }),
            _ => Value::Null,
        };
        match members {
            Value::Object(map) => map,
            _ => Map::new(),
        }
    }

    fn errors(&self) -> Vec<FieldError> {
        match self {
            Problem::InvalidRequest(errors) => errors.clone(),
            Problem::UnknownPipeline { .. } => vec![FieldError::new("/pipeline", self.detail())],
            _ => Vec::new(),
        }
    }

    fn retry_after_seconds(&self) -> Option<u32> {
        use Problem as P;
        if let P::Limited(limited) = self {
            return limited.retry_after_seconds();
        }
        let passes = matches!(
            self,
            P::Unavailable
                | P::NoRoom
                | P::NotReady(_)
                | P::TimedOut(_)
                | P::FileDiffers { .. }
                | P::TooManyReaders(_)
                | P::TooManyStreams(_)
                | P::FilesUnavailable
        );
        passes.then_some(1)
    }

    /// The body; with the request's id where the cause is only in the log.
    fn details(&self, request_id: Option<&str>) -> ProblemDetails {
        let (status, name, title) = self.kind();
        let mut members = self.members();
        if let Some(id) = request_id.filter(|_| status.is_server_error()) {
            members.insert("request_id".to_owned(), id.into());
        }
        ProblemDetails {
            kind: format!("{TYPE_PREFIX}{name}"),
            title: title.to_owned(),
            status: status.as_u16(),
            detail: self.detail(),
            errors: self.errors(),
            members,
        }
    }

    fn render(&self, request_id: Option<&str>) -> Response {
        let mut response = (self.kind().0, Json(self.details(request_id))).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = self.retry_after_seconds() {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if let Problem::RangeNotSatisfiable(bytes) = self
            && let Ok(range) = HeaderValue::from_str(&format!("bytes */{bytes}"))
        {
            headers.insert(header::CONTENT_RANGE, range);
        }
        if let Problem::Denied(denied) = self
            && let Some(Ok(challenge)) = denied.challenge().map(|text| HeaderValue::from_str(&text))
        {
            headers.insert(header::WWW_AUTHENTICATE, challenge);
        }
        response.extensions_mut().insert(self.clone());
        response
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        self.render(None)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use axum::Router;
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use axum::middleware::from_fn;
    use axum::routing::get;
    use tower::ServiceExt;

    #[tokio::test]
    async fn a_status_of_another_layer_becomes_a_problem() {
        let routes = Router::new().route("/", get(async || StatusCode::IM_A_TEAPOT)).layer(from_fn(render_problems));
        let answer = routes.oneshot(Request::get("/").body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(answer.headers()[header::CONTENT_TYPE], MEDIA_TYPE);
        let body: Value = serde_json::from_slice(&to_bytes(answer.into_body(), 4096).await.unwrap()).unwrap();
        assert_eq!((&body["type"], &body["status"]), (&json!("urn:refrain:problem:http"), &json!(418)));
    }
}
