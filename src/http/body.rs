//! Reading bodies: bounded while they arrive, then JSON with every error at its place.

use super::Limits;
use super::problem::{FieldError, Problem};
use axum::body::Body;
use axum::http::{HeaderMap, Request, header};
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_path_to_error::{Path, Segment};
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
    parse(body)
}

/// The JSON object of a request that may go without a body.
pub(super) fn optional_json<T: DeserializeOwned + Default>(headers: &HeaderMap, body: &[u8]) -> Result<T, Problem> {
    if body.is_empty() { Ok(T::default()) } else { json(headers, body) }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    // Read once for its grammar alone: a wrong field before a broken end is broken JSON and not a wrong field.
    serde_json::from_slice::<IgnoredAny>(body).map_err(|e| Problem::NotJson(format!("the body is not JSON: {e}")))?;
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(Problem::InvalidRequest(vec![FieldError::new("", "expected a JSON object")]));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let pointer = pointer(error.path());
        if !error.inner().is_data() {
            // Such as half a surrogate pair, which the first reading passes over.
            return Problem::NotJson(format!("the body is not JSON: {}", error.inner()));
        }
        let text = error.into_inner().to_string();
        let detail = text.split(" at line ").next().unwrap_or_default();
        Problem::InvalidRequest(vec![FieldError::new(pointer, detail)])
    })
}

/// Where in the body a field is.
fn pointer(path: &Path) -> String {
    let mut pointer = String::new();
    for segment in path.iter() {
        match segment {
            Segment::Seq { index } => pointer.push_str(&format!("/{index}")),
            Segment::Map { key } | Segment::Enum { variant: key } => pointer.push_str(&member(key)),
            Segment::Unknown => {}
        }
    }
    pointer
}

/// One step of a JSON pointer.
pub(super) fn member(key: &str) -> String {
    format!("/{}", key.replace('~', "~0").replace('/', "~1"))
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
    #![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Small {
        #[expect(dead_code, reason = "only its type matters")]
        list: Option<Vec<u8>>,
    }

    fn outcome(body: &str) -> Result<Small, Problem> {
        parse(body.as_bytes())
    }

    fn field(body: &str) -> FieldError {
        match outcome(body).unwrap_err() {
            Problem::InvalidRequest(errors) => errors.into_iter().next().unwrap(),
            other => panic!("expected a field error, found {other:?}"),
        }
    }

    #[test]
    fn what_is_not_json_is_told_from_what_is_of_the_wrong_shape() {
        for broken in ["", "{", "{not json", r#"{"nope": 1, "#, r#"{"list": []} x"#, "\u{1}", r#"{"\ud800": 1}"#] {
            assert!(matches!(outcome(broken), Err(Problem::NotJson(_))), "{broken:?}");
        }
        assert_eq!(field("[]").pointer, "");
        assert_eq!(field(r#"{"list": [1, "x"]}"#).pointer, "/list/1");
        assert_eq!(field(r#"{"nope": 1}"#).detail, "unknown field `nope`, expected `list`");
        assert_eq!(field(r#"{"list": [], "list": []}"#).detail, "duplicate field `list`");
        assert!(outcome(r#"{"list": null}"#).is_ok());
    }

    #[test]
    fn pointers_are_escaped() {
        assert_eq!(member("a/b~c"), "/a~1b~0c");
    }

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
