//! Query parameters: each known, at most once unless it may be repeated, and of its type.

use super::problem::Problem;
use crate::run::hex;
use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use chrono::{DateTime, Utc};
use std::collections::BTreeMap;

/// The parameters of a request's query.
#[derive(Debug, Default)]
pub(super) struct Params(BTreeMap<String, Vec<String>>);

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        // Reading it would put other characters in the place of what is no UTF-8, and so ask another question.
        let raw = parts.uri.query().unwrap_or_default();
        if percent_encoding::percent_decode_str(raw).decode_utf8().is_err() {
            return Err(Problem::Malformed("the query is not UTF-8 once it is decoded".to_owned()));
        }
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri)
            .map_err(|e| Problem::Malformed(format!("the query cannot be read: {e}")))?;
        let mut params = BTreeMap::<String, Vec<String>>::new();
        for (name, value) in pairs {
            let is_control = |c: char| c.is_ascii_control();
            if name.contains(is_control) || value.contains(is_control) {
                // No name holds one and keys have these escaped; and not every database takes NUL.
                return Err(invalid(name.trim_matches(char::is_control), "found a control character"));
            }
            params.entry(name).or_default().push(value);
        }
        Ok(Self(params))
    }
}

impl Params {
    /// Refuses any parameter but these, each at most once.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), Problem> {
        self.only_and_repeated(known, "")
    }

    /// The same, but one of them may be there more than once.
    pub(super) fn only_and_repeated(&self, known: &[&str], repeated: &str) -> Result<(), Problem> {
        if let Some((name, _)) = self.0.iter().find(|(name, values)| values.len() > 1 && *name != repeated) {
            return Err(invalid(name, "found more than once, expected at most once"));
        }
        match self.0.keys().find(|name| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) if known.is_empty() => Err(invalid(name, "unknown, this path has no query parameters")),
            Some(name) => Err(invalid(name, &format!("unknown, expected one of: {}", known.join(", ")))),
        }
    }

    /// The value of a parameter.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// All values of a parameter that may be repeated.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.get(name).into_iter().flatten().map(String::as_str)
    }

    /// The value of a parameter, read by `read`, whose error says what is expected.
    pub(super) fn read<T>(&self, name: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, Problem> {
        match self.get(name) {
            None => Ok(None),
            Some(text) => read(text).map(Some).map_err(|detail| invalid(name, &detail)),
        }
    }

    /// The page size, within 1 and `max`.
    pub(super) fn limit(&self, default: u32, max: u32) -> Result<u32, Problem> {
        let found = self.read("limit", |text| match text.parse::<u32>() {
            Ok(n) if (1..=max).contains(&n) => Ok(n),
            _ => Err(format!("found {text:?}, expected a whole number from 1 to {max}")),
        })?;
        Ok(found.unwrap_or(default.min(max)))
    }

    /// Whether a parameter says so.
    pub(super) fn flag(&self, name: &str) -> Result<bool, Problem> {
        let found = self
            .read(name, |text| text.parse::<bool>().map_err(|_| format!("found {text:?}, expected true or false")))?;
        Ok(found.unwrap_or(false))
    }

    /// A moment.
    pub(super) fn moment(&self, name: &str) -> Result<Option<DateTime<Utc>>, Problem> {
        self.read(name, |text| match DateTime::parse_from_rfc3339(text) {
            Ok(moment) => Ok(moment.with_timezone(&Utc)),
            Err(_) => Err(format!(
                "found {text:?}, expected an RFC 3339 time such as 2024-03-01T00:00:00Z (a + is %2B in a query)"
            )),
        })
    }

    /// All of them in one text, which does not depend on their order.
    pub(super) fn canonical(&self) -> String {
        let pairs = self.0.iter().flat_map(|(name, values)| values.iter().map(move |value| (name, value)));
        pairs.map(|(name, value)| format!("{}:{name}{}:{value}", name.len(), value.len())).collect()
    }
}

/// A parameter with a value that it cannot have.
pub(super) fn invalid(parameter: &str, detail: &str) -> Problem {
    Problem::InvalidParameter { parameter: parameter.to_owned(), detail: detail.to_owned() }
}

/// An opaque cursor that stands for this text.
pub(super) fn cursor(text: &str) -> String {
    hex(text.as_bytes())
}

/// The text that a cursor stands for.
pub(super) fn read_cursor(cursor: &str) -> Option<String> {
    let digits = cursor.as_bytes();
    if digits.is_empty() || !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let pairs = digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    String::from_utf8(pairs.collect::<Option<Vec<u8>>>()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_come_back_and_nonsense_does_not() {
        let text = "kind=é%2Fb";
        assert_eq!(read_cursor(&cursor(text)).as_deref(), Some(text));
        for bad in ["", "0", "0g", "+1", "ff", "é"] {
            assert_eq!(read_cursor(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_canonical_text_tells_queries_apart() {
        let params = |pairs: &[(&str, &str)]| {
            Params(pairs.iter().map(|(a, b)| ((*a).to_owned(), vec![(*b).to_owned()])).collect()).canonical()
        };
        assert_eq!(params(&[("to", "2"), ("from", "1")]), params(&[("from", "1"), ("to", "2")]));
        assert_ne!(params(&[("from", "1")]), params(&[("to", "1")]));
    }
}
