//! What became of one try.

use crate::pipeline::url::causes;
use chrono::{DateTime, Utc};
use reqwest::header::RETRY_AFTER;
use reqwest::{Response, StatusCode};
use std::time::Duration;

/// What a receiver answered, or why it did not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: Option<u16>,
    /// None where it was told.
    pub(super) error: Option<String>,
    /// How long the receiver asks to be left alone.
    pub(super) retry_after: Option<Duration>,
}

impl Answer {
    /// It was told.
    pub(super) fn told(status: Option<u16>) -> Self {
        Self { status, error: None, retry_after: None }
    }

    /// Nobody answered.
    pub(super) fn failed(error: String) -> Self {
        Self { status: None, error: Some(error), retry_after: None }
    }

    /// A receiver answered. Its body is nobody's business and is not read.
    pub(super) fn of(response: &Response, now: DateTime<Utc>) -> Self {
        let status = response.status();
        if status.is_success() {
            return Self::told(Some(status.as_u16()));
        }
        let is_busy = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        let asked = response.headers().get(RETRY_AFTER).and_then(|text| text.to_str().ok());
        Self {
            status: Some(status.as_u16()),
            error: Some(format!("it answered {status}, expected 2xx")),
            retry_after: asked.filter(|_| is_busy).and_then(|text| wait(text.trim(), now)),
        }
    }

    /// No answer came.
    pub(super) fn of_error(error: &reqwest::Error) -> Self {
        Self::failed(causes(error).unwrap_or_else(|| "it cannot be asked".to_owned()))
    }
}

/// `Retry-After`, in seconds or as a date (RFC 9110, section 10.2.3).
fn wait(text: &str, now: DateTime<Utc>) -> Option<Duration> {
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = DateTime::parse_from_rfc2822(text).ok()?;
    Some((date.to_utc() - now).to_std().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn receivers_ask_to_be_left_alone_in_seconds_or_by_a_date() {
        let now: DateTime<Utc> = "1994-11-06T08:49:30Z".parse().unwrap();
        for (text, expected) in [
            ("120", Some(120)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(7)),
            ("Sun, 06 Nov 1994 08:49:29 GMT", Some(0)),
            ("soon", None),
            ("-1", None),
        ] {
            assert_eq!(wait(text, now).map(|wait| wait.as_secs()), expected, "{text}");
        }
    }
}
