//! Answers with a body: JSON, an entity tag, and 304 for who has it already.

use super::problem::Problem;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use sha2::{Digest, Sha256};

/// A JSON body under the tag of its bytes.
pub(super) fn json<T: Serialize>(status: StatusCode, request: &HeaderMap, body: &T) -> Result<Response, Problem> {
    let bytes = encode(body)?;
    let tag = format!("\"{}\"", digest(&bytes));
    Ok(tagged(status, request, &tag, bytes))
}

/// A JSON body under this tag.
pub(super) fn json_tagged<T: Serialize>(request: &HeaderMap, tag: &str, body: &T) -> Result<Response, Problem> {
    Ok(tagged(StatusCode::OK, request, tag, encode(body)?))
}

/// The sha256 of these bytes, in hex.
pub(super) fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

fn encode<T: Serialize>(body: &T) -> Result<Vec<u8>, Problem> {
    serde_json::to_vec(body).map_err(|error| {
        tracing::error!(%error, "an answer cannot be written as JSON");
        Problem::Internal
    })
}

fn tagged(status: StatusCode, request: &HeaderMap, tag: &str, body: Vec<u8>) -> Response {
    let known = status == StatusCode::OK && has_tag(request, tag);
    let mut response = if known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        (status, [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
    };
    // Clients may keep the answer but must ask whether it is still right.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(tag) = HeaderValue::from_str(tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

/// Whether `If-None-Match` lists this tag, by the weak comparison that RFC 9110 asks for.
fn has_tag(request: &HeaderMap, tag: &str) -> bool {
    let listed = request.get_all(header::IF_NONE_MATCH).into_iter().filter_map(|value| value.to_str().ok());
    listed.flat_map(|value| value.split(',')).map(str::trim).any(|one| {
        let strong = one.strip_prefix("W/").unwrap_or(one);
        one == "*" || strong == tag
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_found_in_lists_and_weak_ones_count() {
        let with =
            |value: &'static str| HeaderMap::from_iter([(header::IF_NONE_MATCH, HeaderValue::from_static(value))]);
        for yes in ["\"a\"", "W/\"a\"", "\"b\", \"a\"", "*"] {
            assert!(has_tag(&with(yes), "\"a\""), "{yes}");
        }
        for no in ["a", "\"b\"", ""] {
            assert!(!has_tag(&with(no), "\"a\""), "{no}");
        }
        assert!(!has_tag(&HeaderMap::new(), "\"a\""));
    }
}
