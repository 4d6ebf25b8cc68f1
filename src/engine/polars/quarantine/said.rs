//! What is said of a row that is kept apart: values as text, and what is wrong with them.

use super::super::books::Intake;
use super::super::contract::Found;
use super::super::convert::type_name;
use super::super::files::LookedAt;
use super::looking::Seen;
use crate::engine::text::{beginning, clipped};
use crate::pipeline::{Column, Definition, Reason};
use crate::run::decimal_text;
use ::polars::prelude as pl;
use chrono::{DateTime, NaiveDate, TimeDelta};

/// What is wrong with a row: which column, what was found, and what was expected.
pub(super) fn detail(definition: &Definition, intake: &Intake<'_>, file: &LookedAt, seen: &Seen) -> String {
    match seen.reason {
        Reason::Rejected => rejected(definition, file, seen),
        Reason::Filtered => "where is not true for it".to_owned(),
        Reason::Stray if seen.values.as_ref().is_some_and(|values| intake.makes(values)) => {
            "its file is no source of its partition".to_owned()
        }
        Reason::Stray => "the run does not make its partition".to_owned(),
    }
}

fn rejected(definition: &Definition, file: &LookedAt, seen: &Seen) -> String {
    let columns = &definition.source.columns;
    let (mut said, mut of) = (Vec::new(), Vec::new());
    if let Some(fault) = &seen.raw.fault {
        let Some((at, column)) = fault.column.and_then(|at| Some((at, columns.get(at)?))) else {
            return format!("the line {}", fault.reason);
        };
        said.push(format!("column {}: {}", column.name, fault.reason));
        of.push(at);
    }
    for at in &seen.bad {
        if let Some(column) = columns.get(*at).filter(|_| !of.contains(at)) {
            let not_null = if column.not_null { " not null" } else { "" };
            said.push(format!("{}, expected {}{not_null}", found(column, *at, file, seen), column.data_type));
            of.push(*at);
        }
    }
    for partition in seen.nowhere.iter().filter_map(|at| definition.partition.columns().get(*at)) {
        let source = columns.iter().enumerate().find(|(_, column)| column.name == partition.source);
        if let Some((at, column)) = source.filter(|(at, _)| !of.contains(at)) {
            let found = found(column, at, file, seen);
            said.push(format!("{found}, expected what has a value of partition column {}", partition.name));
        }
    }
    said.join("; ")
}

/// What a row has for a column.
fn found(column: &Column, at: usize, file: &LookedAt, seen: &Seen) -> String {
    let name = &column.name;
    let Some(text) = seen.raw.fields.get(at).and_then(Option::as_deref) else {
        return format!("column {name}: found null");
    };
    match file.found.get(at) {
        Some(Found::Column { physical, .. }) if *physical != pl::DataType::String => {
            format!("column {name}: found {} ({})", beginning(text), type_name(physical))
        }
        _ => format!("column {name}: found {}", clipped(text)),
    }
}

/// A value of a file as text, exact and whatever its size; none for null.
pub(super) fn value(value: &pl::AnyValue<'_>) -> Option<String> {
    Some(match value {
        pl::AnyValue::Null => return None,
        pl::AnyValue::Boolean(value) => value.to_string(),
        // The shortest text that gives the value back, without a hundred zeros.
        pl::AnyValue::Float32(value) => format!("{value:?}"),
        pl::AnyValue::Float64(value) => format!("{value:?}"),
        pl::AnyValue::Decimal(value, _, scale) => decimal_text(*value, u8::try_from(*scale).unwrap_or(u8::MAX)),
        pl::AnyValue::Date(days) => match NaiveDate::default().checked_add_signed(TimeDelta::days(i64::from(*days))) {
            Some(date) => date.to_string(),
            None => format!("{days} days since 1970-01-01"),
        },
        pl::AnyValue::Datetime(count, unit, zone) => time(*count, *unit, zone.is_some()),
        pl::AnyValue::DatetimeOwned(count, unit, zone) => time(*count, *unit, zone.is_some()),
        other => match (other.get_str(), other.extract::<i128>()) {
            (Some(text), _) => text.to_owned(),
            (None, Some(number)) => number.to_string(),
            (None, None) => other.to_string(),
        },
    })
}

fn time(count: i64, unit: pl::TimeUnit, zoned: bool) -> String {
    let (time, unit) = match unit {
        pl::TimeUnit::Nanoseconds => (Some(DateTime::from_timestamp_nanos(count)), "nanoseconds"),
        pl::TimeUnit::Microseconds => (DateTime::from_timestamp_micros(count), "microseconds"),
        pl::TimeUnit::Milliseconds => (DateTime::from_timestamp_millis(count), "milliseconds"),
    };
    let zone = if zoned { "Z" } else { "" };
    match time {
        Some(time) => format!("{}{zone}", time.naive_utc().format("%Y-%m-%d %H:%M:%S%.f")),
        None => format!("{count} {unit} since 1970-01-01"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_told_exactly_and_whatever_their_size() {
        let micros = pl::TimeUnit::Microseconds;
        for (of, text) in [
            (pl::AnyValue::Null, None),
            (pl::AnyValue::Boolean(true), Some("true")),
            (pl::AnyValue::UInt64(u64::MAX), Some("18446744073709551615")),
            (pl::AnyValue::Int8(-1), Some("-1")),
            (pl::AnyValue::Float64(0.1 + 0.2), Some("0.30000000000000004")),
            (pl::AnyValue::Float64(1e300), Some("1e300")),
            (pl::AnyValue::Float32(0.1), Some("0.1")),
            (pl::AnyValue::Float64(f64::NAN), Some("NaN")),
            (pl::AnyValue::Decimal(-5, 38, 2), Some("-0.05")),
            (pl::AnyValue::Date(19_782), Some("2024-02-29")),
            (pl::AnyValue::Date(i32::MAX), Some("2147483647 days since 1970-01-01")),
            (pl::AnyValue::Datetime(1_500_000, micros, None), Some("1970-01-01 00:00:01.500")),
            (pl::AnyValue::Datetime(i64::MAX, micros, None), Some("9223372036854775807 microseconds since 1970-01-01")),
            (pl::AnyValue::String("a\"b"), Some("a\"b")),
        ] {
            assert_eq!(value(&of).as_deref(), text, "{of:?}");
        }
    }
}
