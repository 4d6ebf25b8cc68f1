//! Answers with a body: JSON, an entity tag, and 304 for who has it already.

use super::problem::Problem;
use crate::run::hex;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use sha2::{Digest, Sha256};

/// A JSON body under the tag of its bytes, made once for all to whom it is sent.
#[derive(Debug, Clone)]
pub(super) struct Made {
    /// The body.
    pub(super) bytes: Bytes,
    tag: String,
}

impl Made {
    /// Of what is to be sent.
    pub(super) fn of<T: Serialize>(body: &T) -> Result<Self, Problem> {
        let bytes = encode(body)?;
        let tag = format!("\"{}\"", digest(&bytes));
        Ok(Self { bytes: bytes.into(), tag })
    }

    /// The answer to one of them.
    pub(super) fn answer(&self, status: StatusCode, request: &HeaderMap) -> Response {
        tagged(status, request, &self.tag, self.bytes.clone())
    }
}

/// A JSON body under the tag of its bytes.
pub(super) fn json<T: Serialize>(status: StatusCode, request: &HeaderMap, body: &T) -> Result<Response, Problem> {
    Ok(Made::of(body)?.answer(status, request))
}

/// A JSON body under this tag.
pub(super) fn json_tagged<T: Serialize>(request: &HeaderMap, tag: &str, body: &T) -> Result<Response, Problem> {
    Ok(tagged(StatusCode::OK, request, tag, encode(body)?.into()))
}

/// The sha256 of these bytes, in hex.
pub(super) fn digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn encode<T: Serialize>(body: &T) -> Result<Vec<u8>, Problem> {
    serde_json::to_vec(body).map_err(|error| {
        tracing::error!(%error, "an answer cannot be written as JSON");
        Problem::Internal
    })
}

fn tagged(status: StatusCode, request: &HeaderMap, tag: &str, body: Bytes) -> Response {
    if_known(request, tag).filter(|_| status == StatusCode::OK).unwrap_or_else(|| {
        let kind = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        with_tag((status, kind, body).into_response(), tag)
    })
}

/// What of a request's headers its answer depends on, in memory of its own: the others hold on to the buffer that they were read into,
/// for as long as the client waits.
pub(super) fn conditions(request: HeaderMap) -> HeaderMap {
    let copied = |value: &HeaderValue| HeaderValue::from_bytes(value.as_bytes()).ok();
    let listed = request.get_all(header::IF_NONE_MATCH).into_iter().filter_map(copied);
    listed.map(|value| (header::IF_NONE_MATCH, value)).collect()
}

/// Whether the client may have the answer already.
pub(super) fn is_conditional(request: &HeaderMap) -> bool {
    request.contains_key(header::IF_NONE_MATCH)
}

/// The 304 for a client that has the answer under this tag already.
pub(super) fn if_known(request: &HeaderMap, tag: &str) -> Option<Response> {
    known_tag(request, tag).map(|known| with_tag(StatusCode::NOT_MODIFIED.into_response(), &known))
}

fn with_tag(mut response: Response, tag: &str) -> Response {
    // Said by 304 too, which the compression passes over.
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    // Clients may keep the answer but must ask whether it is still right.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(tag) = HeaderValue::from_str(tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

/// This tag as `If-None-Match` lists it, by the weak comparison that RFC 9110 asks for: a client's tag is weak where its
/// answer came compressed, and the 304 is about that answer.
fn known_tag(request: &HeaderMap, tag: &str) -> Option<String> {
    let listed = request.get_all(header::IF_NONE_MATCH).into_iter().filter_map(|value| value.to_str().ok());
    let mut listed = listed.flat_map(|value| value.split(',')).map(str::trim);
    let found = listed.find(|one| *one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag)?;
    Some(if found == "*" { tag } else { found }.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_found_in_lists_and_weak_ones_count() {
        let with =
            |value: &'static str| HeaderMap::from_iter([(header::IF_NONE_MATCH, HeaderValue::from_static(value))]);
        for yes in ["\"a\"", "W/\"a\"", "\"b\", \"a\"", "*"] {
            assert!(known_tag(&with(yes), "\"a\"").is_some(), "{yes}");
        }
        for no in ["a", "\"b\"", ""] {
            assert_eq!(known_tag(&with(no), "\"a\""), None, "{no}");
        }
        assert_eq!(known_tag(&HeaderMap::new(), "\"a\""), None);
        assert_eq!(known_tag(&with("W/\"a\""), "\"a\"").as_deref(), Some("W/\"a\""));
    }
}
