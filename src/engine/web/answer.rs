//! What servers say in their answers beside the file.

use crate::pipeline::url::shown;
use crate::run::{FailureClass, RunError};
use chrono::{DateTime, Utc};
use reqwest::header::{self, HeaderMap, HeaderName};
use reqwest::{Response, StatusCode};

/// A header as text.
pub(super) fn text_of(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).trim().to_owned())
}

/// The length of the whole file, which an answer with a part of it says too; none where the server does not say.
pub(super) fn length_of(answer: &Response) -> Option<u64> {
    let (name, is_part) = match answer.status() {
        StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => (header::CONTENT_RANGE, true),
        _ => (header::CONTENT_LENGTH, false),
    };
    let text = text_of(answer.headers(), &name)?;
    let length = if is_part { text.rsplit_once('/')?.1 } else { text.as_str() };
    length.parse().ok()
}

/// Where the answer sends to, if it does.
pub(super) fn location(answer: &Response) -> Option<String> {
    let is_redirect = matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    text_of(answer.headers(), &header::LOCATION).filter(|_| is_redirect)
}

/// The answer is not the file. What may pass is told from what the server means.
pub(super) fn unexpected(url: &str, answer: &Response) -> RunError {
    let status = answer.status();
    let (kind, title) = match status.as_u16() {
        408 | 425 | 429 | 500.. => ("source-unreachable", "A source cannot be read"),
        _ => ("source-refused", "A source is refused by its server"),
    };
    let detail = format!("{}: its server answers {status}, expected the file", shown(url));
    let asked = text_of(answer.headers(), &header::RETRY_AFTER);
    let retry_after_seconds = asked.and_then(|text| seconds(&text, Utc::now()));
    RunError { retry_after_seconds, ..RunError::new(FailureClass::Source, kind, title, detail) }
}

/// `Retry-After`, in seconds or as a date (RFC 9110, section 10.2.3).
fn seconds(text: &str, now: DateTime<Utc>) -> Option<u32> {
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(u32::try_from(seconds).unwrap_or(u32::MAX));
    }
    let wait = date(text)?.signed_duration_since(now);
    // Rounded up, so that the date has come.
    Some(u32::try_from((wait.num_milliseconds().max(0) + 999) / 1000).unwrap_or(u32::MAX))
}

/// A date as HTTP writes it.
pub(super) fn date(text: &str) -> Option<DateTime<Utc>> {
    DateTime::parse_from_rfc2822(text).ok().map(Into::into)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn servers_say_when_to_come_back_in_seconds_or_by_a_date() {
        let now: DateTime<Utc> = "1994-11-06T08:49:30.5Z".parse().unwrap();
        for (text, expected) in [
            ("0", Some(0)),
            ("120", Some(120)),
            ("99999999999", Some(u32::MAX)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(7)),
            ("Sun, 06 Nov 1994 08:49:29 GMT", Some(0)),
            ("soon", None),
            ("-1", None),
        ] {
            assert_eq!(seconds(text, now), expected, "{text}");
        }
    }
}
