//! The options of a submission.

use crate::http::object::member;
use crate::http::problem::FieldError;
use crate::partition::{PartitionKey, PartitionSpec};
use crate::pipeline::Definition;
use crate::run::{AskedPartitions, Expected, Labels, OnOverlap, Only, Preconditions};
use chrono::{DateTime, Utc};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// The most labels of a run.
const MAX_LABELS: usize = 20;
/// The longest name of a label, in characters.
const MAX_LABEL_NAME: usize = 63;
/// The longest text of a label, in characters.
const MAX_LABEL_TEXT: usize = 255;
/// What a priority may be.
const PRIORITIES: RangeInclusive<i32> = -100..=100;

/// The labels.
pub(super) fn labels(asked: Option<&Labels>, errors: &mut Vec<FieldError>) -> Labels {
    let Some(asked) = asked else { return Labels::new() };
    if asked.len() > MAX_LABELS {
        let detail = format!("found {} labels, expected at most {MAX_LABELS}", asked.len());
        errors.push(FieldError::new("/labels", detail));
        return Labels::new();
    }
    for (name, text) in asked {
        let mut wrong = |detail: String| errors.push(FieldError::new(format!("/labels{}", member(name)), detail));
        let (name_length, length) = (name.chars().count(), text.chars().count());
        if !(1..=MAX_LABEL_NAME).contains(&name_length) || name.contains(|c: char| c == ':' || c.is_control()) {
            wrong(format!(
                "found a name of {name_length} characters, expected 1 to {MAX_LABEL_NAME}, none of them a colon or a control \
                 character"
            ));
        }
        if length > MAX_LABEL_TEXT || text.contains(char::is_control) {
            wrong(format!(
                "found a text of {length} characters, expected at most {MAX_LABEL_TEXT}, none of them a control character"
            ));
        }
    }
    asked.clone()
}

/// The preconditions; of partitions that the run names, since nobody else changes those before it decides. `scope` is none
/// for the whole table.
pub(super) fn if_current(
    asked: Option<&BTreeMap<String, Option<String>>>,
    spec: &PartitionSpec,
    scope: Option<&AskedPartitions>,
    only: Option<Only>,
    errors: &mut Vec<FieldError>,
) -> Preconditions {
    let mut read = BTreeMap::new();
    let Some(asked) = asked.filter(|asked| !asked.is_empty()) else { return Preconditions::default() };
    if let Some(only) = only {
        let detail =
            format!("found beside only = {:?}, expected none: that already asks what the table has", only.as_str());
        errors.push(FieldError::new("/if_current", detail));
        return Preconditions::default();
    }
    for (text, expected) in asked {
        match read_one(text, expected.as_deref(), spec, scope) {
            Ok((key, expected)) if read.get(&key).is_none_or(|other| *other == expected) => {
                read.insert(key, expected);
            }
            Ok((key, _)) => errors.push(FieldError::new(
                format!("/if_current{}", member(text)),
                format!("{key} is named twice, with different values, expected once"),
            )),
            Err(detail) => errors.push(FieldError::new(format!("/if_current{}", member(text)), detail)),
        }
    }
    Preconditions(read)
}

fn read_one(
    text: &str,
    expected: Option<&str>,
    spec: &PartitionSpec,
    scope: Option<&AskedPartitions>,
) -> Result<(PartitionKey, Expected), String> {
    let key = spec.parse_text(text).map_err(|error| error.to_string())?;
    if scope.is_some_and(|scope| scope.0.binary_search(&key).is_err()) {
        return Err(format!("found {key}, expected one of the partitions that the request names"));
    }
    let expected = expected.map_or(Ok(Expected::ABSENT), Expected::parse)?;
    Ok((key, expected))
}

/// Whether preconditions are those of the first request under a key; without its definition, literally.
pub(super) fn is_same(
    asked: Option<&BTreeMap<String, Option<String>>>,
    first: &Preconditions,
    definition: Option<&Definition>,
) -> bool {
    let none = BTreeMap::new();
    let read = asked.unwrap_or(&none).iter().map(|(text, expected)| {
        let key = match definition {
            Some(definition) => definition.partition.parse_text(text).ok()?,
            None => PartitionKey::from_canonical(text.as_str()),
        };
        Some((key, expected.as_deref().map_or(Ok(Expected::ABSENT), Expected::parse).ok()?))
    });
    read.collect::<Option<BTreeMap<_, _>>>().is_some_and(|read| read == first.0)
}

/// The limit of an attempt's time.
pub(super) fn timeout_seconds(asked: Option<u32>, errors: &mut Vec<FieldError>) -> Option<u32> {
    if asked == Some(0) {
        errors.push(FieldError::new("/timeout_seconds", "found 0, expected at least 1"));
    }
    asked
}

/// The time before which the run is not to begin. One that is not to wait is judged when it is accepted, when this one is not
/// in anybody's way yet, so both together would mean nothing.
pub(super) fn not_before(
    asked: Option<&str>,
    on_overlap: OnOverlap,
    errors: &mut Vec<FieldError>,
) -> Option<DateTime<Utc>> {
    let asked = asked?;
    if on_overlap == OnOverlap::Refuse {
        let detail =
            "found it beside on_overlap = \"refuse\", expected wait: what overlaps the run is known when it is due";
        errors.push(FieldError::new("/not_before", detail));
    }
    let time = read_time(asked);
    if time.is_none() {
        let detail =
            format!("found {asked:?}, expected an RFC 3339 time with its offset, such as 2024-03-01T06:00:00Z");
        errors.push(FieldError::new("/not_before", detail));
    }
    time
}

/// A time in whole microseconds, as databases keep them.
pub(super) fn read_time(text: &str) -> Option<DateTime<Utc>> {
    let time = DateTime::parse_from_rfc3339(text).ok()?;
    DateTime::from_timestamp_micros(time.timestamp_micros())
}

/// The place among the runs that can begin.
pub(super) fn priority(asked: Option<i32>, errors: &mut Vec<FieldError>) -> i32 {
    let priority = asked.unwrap_or(0);
    if !PRIORITIES.contains(&priority) {
        let (least, most) = (PRIORITIES.start(), PRIORITIES.end());
        errors.push(FieldError::new("/priority", format!("found {priority}, expected {least} to {most}")));
    }
    priority
}
