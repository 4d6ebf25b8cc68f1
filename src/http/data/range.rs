//! A part of a file (RFC 9110, 14): one range of bytes. Several at once are answered with the whole, as they may be.

use axum::http::{HeaderMap, header};
use std::ops::Range;

/// How much of a file is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// All of it.
    Whole,
    /// These bytes, at least one.
    Part(Range<u64>),
    /// Bytes that it does not have.
    Beyond,
}

/// What the request asks of a file of so many bytes under this tag. A range counts only for the file that the client began with,
/// where it names that (`If-Range`); a time does not name it surely enough.
pub(super) fn asked(request: &HeaderMap, tag: &str, bytes: u64) -> Asked {
    let text = |name| request.get(name).and_then(|value| value.to_str().ok());
    if request.contains_key(header::IF_RANGE) && text(header::IF_RANGE) != Some(tag) {
        return Asked::Whole;
    }
    let range = text(header::RANGE).and_then(|range| {
        let (unit, range) = range.split_once('=')?;
        unit.trim().eq_ignore_ascii_case("bytes").then(|| range.trim().split_once('-'))?
    });
    let Some((first, last)) = range else { return Asked::Whole };
    match (number(first), number(last)) {
        // The last bytes.
        (Some(None), Some(Some(length))) if length == 0 || bytes == 0 => Asked::Beyond,
        (Some(None), Some(Some(length))) => Asked::Part(bytes.saturating_sub(length)..bytes),
        (Some(Some(first)), Some(Some(last))) if last < first => Asked::Whole,
        (Some(Some(first)), Some(_)) if first >= bytes => Asked::Beyond,
        (Some(Some(first)), Some(last)) => {
            Asked::Part(first..last.map_or(bytes, |last| last.saturating_add(1).min(bytes)))
        }
        _ => Asked::Whole,
    }
}

/// A number or nothing; none where it is something else.
fn number(text: &str) -> Option<Option<u64>> {
    let text = text.trim();
    if text.is_empty() {
        return Some(None);
    }
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    // A number beyond all numbers is beyond every file.
    digits.then(|| Some(text.parse().unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn one_range_is_cut_to_the_file() {
        for (range, expected) in [
            ("bytes=0-0", Asked::Part(0..1)),
            ("bytes=2-", Asked::Part(2..10)),
            ("Bytes = 8-99", Asked::Part(8..10)),
            ("bytes=-3", Asked::Part(7..10)),
            ("bytes=-99", Asked::Part(0..10)),
            ("bytes=0-99999999999999999999999", Asked::Part(0..10)),
            ("bytes=10-", Asked::Beyond),
            ("bytes=99999999999999999999999-", Asked::Beyond),
            ("bytes=-0", Asked::Beyond),
            ("bytes=5-4", Asked::Whole),
            ("bytes=-", Asked::Whole),
            ("bytes=0-1,3-4", Asked::Whole),
            ("bytes=+1-2", Asked::Whole),
            ("rows=0-1", Asked::Whole),
        ] {
            let request = HeaderMap::from_iter([(header::RANGE, HeaderValue::from_static(range))]);
            assert_eq!(asked(&request, "\"t\"", 10), expected, "{range}");
        }
    }

    #[test]
    fn a_range_is_for_the_file_that_the_client_began_with() {
        for (if_range, expected) in [
            ("\"t\"", Asked::Part(1..2)),
            ("\"u\"", Asked::Whole),
            ("W/\"t\"", Asked::Whole),
            ("Fri, 01 Mar 2024 06:00:00 GMT", Asked::Whole),
        ] {
            let request = HeaderMap::from_iter([
                (header::RANGE, HeaderValue::from_static("bytes=1-1")),
                (header::IF_RANGE, HeaderValue::from_static(if_range)),
            ]);
            assert_eq!(asked(&request, "\"t\"", 10), expected, "{if_range}");
        }
    }
}
