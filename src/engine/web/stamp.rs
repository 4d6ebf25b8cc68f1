//! What tells one version of a server's file from another.

use super::answer::{date, length_of, text_of};
use crate::pipeline::url::shown;
use crate::run::{FailureClass, RunError};
use chrono::{DateTime, Utc};
use reqwest::{Response, header};
use serde::Serialize;
use uuid::Uuid;

/// A version of a file, as its server tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct WebStamp {
    pub(super) url: String,
    /// Its length; none where the server does not say.
    pub(crate) bytes: Option<u64>,
    /// What the server calls the version, quotes and all.
    pub(crate) etag: Option<String>,
    modified: Option<String>,
    /// Where the server says nothing by which two versions could be told apart, each time is another.
    unknown: Option<Uuid>,
}

impl WebStamp {
    pub(super) fn of(url: &str, answer: &Response) -> Self {
        let etag = text_of(answer.headers(), &header::ETAG);
        let modified = text_of(answer.headers(), &header::LAST_MODIFIED);
        let unknown = (etag.is_none() && modified.is_none()).then(Uuid::new_v4);
        Self { url: url.to_owned(), bytes: length_of(answer), etag, modified, unknown }
    }

    /// When the file was last written, as its server tells it.
    pub(crate) fn modified(&self) -> Option<DateTime<Utc>> {
        date(self.modified.as_deref()?)
    }

    /// The name by which a server can refuse another version; weak ones are for caches only (RFC 9110, section 13.1.1).
    pub(super) fn strong_etag(&self) -> Option<&str> {
        self.etag.as_deref().filter(|etag| !etag.starts_with("W/"))
    }

    /// Fails where the version that is sent now is another.
    pub(super) fn check(&self, now: &WebStamp) -> Result<(), RunError> {
        let longer = |a: Option<u64>, b: Option<u64>| a.zip(b).is_some_and(|(a, b)| a != b);
        if longer(self.bytes, now.bytes) {
            return Err(self.changed(&format!("it has {} bytes now", now.bytes.unwrap_or_default())));
        }
        let (was, is) = match &self.etag {
            Some(_) => (&self.etag, &now.etag),
            None => (&self.modified, &now.modified),
        };
        if was.is_some() && was != is {
            let named = |name: &Option<String>| name.clone().unwrap_or_else(|| "not named".to_owned());
            return Err(self.changed(&format!("it was {} and is {} now", named(was), named(is))));
        }
        Ok(())
    }

    pub(super) fn changed(&self, how: &str) -> RunError {
        let had = self.bytes.map_or_else(|| "an unknown number of".to_owned(), |bytes| bytes.to_string());
        let detail = format!("{}: had {had} bytes when the run was planned, {how}", shown(&self.url));
        RunError::new(FailureClass::Source, "source-changed", "A source file changed while it was read", detail)
    }
}
