//! Taking bodies in: bounded while they arrive, and of the right media type.

use super::Limits;
use super::object;
use super::problem::Problem;
use axum::body::Body;
use axum::http::{HeaderMap, Request, header};
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// How much of a body over the limit is read and thrown away before the answer, so that clients that send first and
/// read later see it.
const MAX_DRAINED_BYTES: usize = 8 << 20;

/// How long that may take.
const MAX_DRAIN: Duration = Duration::from_secs(5);

/// A body that was not taken, and whether all of it was read.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) problem: Problem,
    pub(super) drained: bool,
}

/// Reads a whole body, up to the limit.
pub(super) async fn read(request: Request<Body>, limits: &Limits) -> Result<Request<Bytes>, Refused> {
    let limit = limits.max_body_bytes;
    let (parts, body) = request.into_parts();
    let declared = number(&parts.headers, header::CONTENT_LENGTH);
    if declared.is_some_and(|n| n > limit as u64) && parts.headers.contains_key(header::EXPECT) {
        // Such a client asks before it sends, and nothing has been sent yet.
        return Err(Refused { problem: Problem::BodyTooLarge(limit), drained: false });
    }
    let slow = Problem::SlowBody(limits.request_timeout_seconds);
    match tokio::time::timeout(Duration::from_secs(limits.request_timeout_seconds), collect(body, limit)).await {
        Ok(Ok(bytes)) => Ok(Request::from_parts(parts, bytes)),
        Ok(Err(refused)) => Err(refused),
        Err(_) => Err(Refused { problem: slow, drained: false }),
    }
}

async fn collect(body: Body, limit: usize) -> Result<Bytes, Refused> {
    let mut stream = body.into_data_stream();
    let mut read = BytesMut::new();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk
            .map_err(|_| Refused { problem: Problem::Malformed("the body broke off".to_owned()), drained: false })?;
        if read.len() + chunk.len() > limit {
            let drained = tokio::time::timeout(MAX_DRAIN, drain(&mut stream)).await.unwrap_or(false);
            return Err(Refused { problem: Problem::BodyTooLarge(limit), drained });
        }
        read.extend_from_slice(&chunk);
    }
    Ok(read.freeze())
}

/// Throws away the rest of a body; whether its end came within bounds.
async fn drain(stream: &mut axum::body::BodyDataStream) -> bool {
    let mut left = MAX_DRAINED_BYTES;
    while let Some(Ok(chunk)) = stream.next().await {
        match left.checked_sub(chunk.len()) {
            Some(rest) => left = rest,
            None => return false,
        }
    }
    true
}

/// The JSON object of a request.
pub(super) fn json<T: DeserializeOwned>(headers: &HeaderMap, body: &[u8]) -> Result<T, Problem> {
    let found = headers.get(header::CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
    if !found.as_deref().is_some_and(is_json) {
        return Err(Problem::UnsupportedMediaType(found.map(|f| f.into_owned())));
    }
    object::read(body)
}

/// The JSON object of a request that may go without a body, or with null for none.
pub(super) fn optional_json<T: DeserializeOwned + Default>(headers: &HeaderMap, body: &[u8]) -> Result<T, Problem> {
    if matches!(body.trim_ascii(), b"" | b"null") { Ok(T::default()) } else { json(headers, body) }
}

fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
}

fn number(headers: &HeaderMap, name: header::HeaderName) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_may_have_a_charset_or_a_suffix() {
        for good in ["application/json", "Application/JSON; charset=utf-8", "application/merge-patch+json"] {
            assert!(is_json(good), "{good}");
        }
        for bad in ["text/json", "application/x-www-form-urlencoded", "application/jsonx", ""] {
            assert!(!is_json(bad), "{bad}");
        }
    }
}
