//! Refusals of what is too much at once, and of connections.

use super::Problem;
use axum::body::Bytes;
use axum::response::IntoResponse;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// What there is too much of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Limited {
    /// A principal asks too often.
    Requests {
        /// Whose requests.
        principal: String,
        /// What the limit is, e.g. `12000 submissions a minute`.
        limit: String,
        /// When there is room for one more, in seconds.
        retry_after: u32,
    },
    /// As many runs of a principal are queued as may be.
    QueuedRuns {
        /// Whose runs.
        principal: String,
        /// The limit.
        limit: u32,
    },
    /// As many clients of a principal wait as may.
    Waiting {
        /// Whose clients.
        principal: String,
        /// What they wait for, e.g. `streams of events`.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// There is no place for another connection.
    Connections,
    /// Plain HTTP came to a port that speaks TLS.
    PlainHttp,
}

impl Limited {
    pub(super) fn detail(&self) -> String {
        match self {
            Limited::Requests { principal, limit, retry_after } => {
                format!("the principal {principal:?} may have {limit}; come back in {retry_after} s")
            }
            Limited::QueuedRuns { principal, limit } => format!(
                "found {limit} queued runs of the principal {principal:?}, which is the limit; nothing was accepted, and the key is as it \
                 was; come back when some have begun"
            ),
            Limited::Waiting { principal, what, limit } => format!(
                "found {limit} {what} of the principal {principal:?}, which is the limit; come back when one has ended"
            ),
            Limited::Connections => "as many connections are open as may be, or as may be of one address".to_owned(),
            Limited::PlainHttp => "found plain HTTP, expected TLS; ask again with https".to_owned(),
        }
    }

    pub(super) fn members(&self) -> Value {
        match self {
            Limited::Requests { principal, limit, .. } => json!({ "principal": principal, "limit": limit }),
            Limited::QueuedRuns { principal, limit } => json!({ "principal": principal, "limit": limit }),
            Limited::Waiting { principal, limit, .. } => json!({ "principal": principal, "limit": limit }),
            Limited::Connections | Limited::PlainHttp => Value::Null,
        }
    }

    pub(super) fn retry_after_seconds(&self) -> Option<u32> {
        match self {
            Limited::Requests { retry_after, .. } => Some(*retry_after),
            // A run begins, and one that waits ends, at any time.
            Limited::QueuedRuns { .. } => Some(10),
            Limited::Waiting { .. } | Limited::Connections => Some(1),
            Limited::PlainHttp => None,
        }
    }
}

/// What is sent to a connection for which there is no place, whatever it asks.
pub fn connection_refused() -> Bytes {
    on_the_wire(Limited::Connections)
}

/// What is sent to plain HTTP on a port that speaks TLS.
pub fn plain_http_refused() -> Bytes {
    on_the_wire(Limited::PlainHttp)
}

/// An answer as it goes over a connection that ends with it.
fn on_the_wire(limited: Limited) -> Bytes {
    let problem = Problem::Limited(limited);
    let body = serde_json::to_string(&problem.details(None)).unwrap_or_default();
    let (parts, _) = problem.into_response().into_parts();
    let mut text = format!("HTTP/1.1 {}\r\nconnection: close\r\ncontent-length: {}\r\n", parts.status, body.len());
    for (name, value) in parts.headers.iter().filter(|(name, _)| *name != "content-length") {
        let _ = write!(text, "{name}: {}\r\n", value.to_str().unwrap_or_default());
    }
    text.push_str("\r\n");
    text.push_str(&body);
    text.into()
}
