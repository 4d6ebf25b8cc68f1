//! The text of one partition value: written and read.

use super::grain::{Grain, days};
use super::{PartitionColumn, PartitionValue, Transform, ValueKind};
use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, NaiveTime, Timelike};
use std::fmt::Write;

/// What Hive calls the partition of nulls; no value has this name.
pub(super) const HIVE_NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// The text of a value, not escaped; none where it has no name.
pub(super) fn to_text(column: &PartitionColumn, value: &PartitionValue) -> Option<String> {
    let count = match value {
        PartitionValue::Text(text) => {
            let nameable = column.transform == Transform::ValueOf && column.kind == ValueKind::Text;
            return (nameable && check_text(text).is_ok()).then(|| text.clone());
        }
        PartitionValue::Int(count) => *count,
    };
    match (column.transform, column.kind) {
        (Transform::ValueOf, ValueKind::Text) => None,
        (Transform::ValueOf, ValueKind::Bool) => match count {
            0 => Some("false".to_owned()),
            1 => Some("true".to_owned()),
            _ => None,
        },
        (Transform::ValueOf, ValueKind::Int { min, max }) => (min..=max).contains(&count).then(|| count.to_string()),
        (Transform::ValueOf, ValueKind::Decimal { precision, scale }) => {
            (count.unsigned_abs() < ten_to(precision)).then(|| decimal_text(count, scale))
        }
        (Transform::ValueOf, ValueKind::Date) => period_text(Grain::Day, i64::try_from(count).ok()?),
        (Transform::ValueOf, ValueKind::Datetime) => datetime_text(i64::try_from(count).ok()?),
        (Transform::HourOfDay, _) => (0..24).contains(&count).then(|| format!("{count:02}")),
        (transform, _) => period_text(transform.grain()?, i64::try_from(count).ok()?),
    }
}

/// The value of an unescaped text; the error says what is wrong and what is expected.
pub(super) fn from_text(column: &PartitionColumn, text: &str) -> Result<PartitionValue, String> {
    check_text(text)?;
    let count = match (column.transform, column.kind) {
        (Transform::ValueOf, ValueKind::Text) => return Ok(PartitionValue::Text(text.to_owned())),
        (Transform::ValueOf, ValueKind::Bool) => match text {
            "false" => 0,
            "true" => 1,
            _ => return Err("expected true or false".to_owned()),
        },
        (Transform::ValueOf, ValueKind::Int { min, max }) => {
            let count = text.parse::<i128>().ok().filter(|n| (min..=max).contains(n) && n.to_string() == text);
            count.ok_or_else(|| format!("expected a whole number from {min} to {max}, without + or leading zeros"))?
        }
        (Transform::ValueOf, ValueKind::Decimal { precision, scale }) => decimal(text, precision, scale)?,
        (Transform::ValueOf, ValueKind::Date) => i128::from(days(day(text, "a date as YYYY-MM-DD")?)),
        (Transform::ValueOf, ValueKind::Datetime) => datetime(text)?,
        (Transform::YearOf, _) => i128::from(Grain::Year.index(year_and_month(text, None)?)),
        (Transform::MonthOf, _) => i128::from(Grain::Month.index(month(text)?)),
        (Transform::DayOf, _) => i128::from(days(day(text, "a day as YYYY-MM-DD")?)),
        (Transform::HourOf, _) => i128::from(Grain::Hour.index(hour(text)?)),
        (Transform::HourOfDay, _) => i128::from(hour_of_day(text, "an hour as HH")?),
    };
    Ok(PartitionValue::Int(count))
}

fn check_text(text: &str) -> Result<(), String> {
    match text {
        "" => Err("the value is empty, and a folder needs a name".to_owned()),
        HIVE_NULL => Err("that name is what Hive gives to nulls, and no partition has it".to_owned()),
        _ if text.contains('\0') => Err("the value holds a NUL character, which no folder name can".to_owned()),
        _ => Ok(()),
    }
}

fn period_text(grain: Grain, index: i64) -> Option<String> {
    let start = grain.period(index)?.start;
    let (year, month, day) = (start.year(), start.month(), start.day());
    Some(match grain {
        Grain::Year => format!("{year:04}"),
        Grain::Month => format!("{year:04}-{month:02}"),
        Grain::Day => format!("{year:04}-{month:02}-{day:02}"),
        Grain::Hour => format!("{year:04}-{month:02}-{day:02}T{:02}", start.hour()),
    })
}

/// As Spark writes timestamps: no more digits of the second than needed.
fn datetime_text(micros: i64) -> Option<String> {
    let at = DateTime::from_timestamp_micros(micros)?.naive_utc();
    if !(1..=9999).contains(&at.year()) {
        return None;
    }
    let mut text = format!("{:04}-{:02}-{:02} {}", at.year(), at.month(), at.day(), at.format("%H:%M:%S"));
    let fraction = micros.rem_euclid(1_000_000);
    if fraction != 0 {
        write!(text, ".{fraction:06}").ok()?;
        text.truncate(text.trim_end_matches('0').len());
    }
    Some(text)
}

fn decimal_text(unscaled: i128, scale: u8) -> String {
    if scale == 0 {
        return unscaled.to_string();
    }
    let unit = ten_to(scale);
    let (whole, part) = (unscaled.unsigned_abs() / unit, unscaled.unsigned_abs() % unit);
    let sign = if unscaled < 0 { "-" } else { "" };
    format!("{sign}{whole}.{part:0width$}", width = usize::from(scale))
}

fn ten_to(exponent: u8) -> u128 {
    10u128.saturating_pow(u32::from(exponent))
}

fn decimal(text: &str, precision: u8, scale: u8) -> Result<i128, String> {
    let digits: String = text.chars().filter(|c| *c != '.').collect();
    digits
        .parse::<i128>()
        .ok()
        .filter(|unscaled| unscaled.unsigned_abs() < ten_to(precision) && decimal_text(*unscaled, scale) == text)
        .ok_or_else(|| {
            let example = decimal_text(0, scale);
            format!("expected a decimal({precision},{scale}) with {scale} digits after the point, e.g. {example}")
        })
}

/// The numbers of a text that has digits exactly where `shape` has `0` and the same characters elsewhere.
fn shaped<const N: usize>(text: &str, shape: &str) -> Option<[u32; N]> {
    if text.len() != shape.len() {
        return None;
    }
    let mut numbers = [0u32; N];
    let mut at = 0;
    for (found, expected) in text.chars().zip(shape.chars()) {
        if expected == '0' {
            let number = numbers.get_mut(at)?;
            *number = *number * 10 + found.to_digit(10)?;
        } else if found == expected {
            at += 1;
        } else {
            return None;
        }
    }
    Some(numbers)
}

fn year_and_month(text: &str, month: Option<u32>) -> Result<NaiveDateTime, String> {
    let [year] = shaped(text, "0000").ok_or("expected a year as YYYY")?;
    if year == 0 {
        return Err("year 0000 does not exist, expected 0001 to 9999".to_owned());
    }
    let month = month.unwrap_or(1);
    let first = i32::try_from(year).ok().and_then(|year| NaiveDate::from_ymd_opt(year, month, 1));
    first
        .map(|day| day.and_time(NaiveTime::MIN))
        .ok_or_else(|| format!("month {month:02} does not exist, expected 01 to 12"))
}

fn month(text: &str) -> Result<NaiveDateTime, String> {
    let [_, month] = shaped(text, "0000-00").ok_or("expected a month as YYYY-MM")?;
    year_and_month(&text[..4], Some(month))
}

fn day(text: &str, expected: &str) -> Result<NaiveDate, String> {
    let [_, month, day] = shaped(text, "0000-00-00").ok_or_else(|| format!("expected {expected}"))?;
    let first = year_and_month(&text[..4], Some(month))?.date();
    first.with_day(day).ok_or_else(|| {
        let last = (28..=31).rev().find(|day| first.with_day(*day).is_some()).unwrap_or(28);
        format!("day {day:02} does not exist in {}, expected 01 to {last}", &text[..7])
    })
}

fn hour(text: &str) -> Result<NaiveDateTime, String> {
    let expected = "an hour as YYYY-MM-DDTHH";
    let [_, _, _, hour] = shaped(text, "0000-00-00T00").ok_or_else(|| format!("expected {expected}"))?;
    let date = day(&text[..10], expected)?;
    hour_of_day(&text[11..], expected)?;
    date.and_hms_opt(hour, 0, 0).ok_or_else(|| format!("expected {expected}"))
}

fn hour_of_day(text: &str, expected: &str) -> Result<u32, String> {
    let [hour] = shaped(text, "00").ok_or_else(|| format!("expected {expected}"))?;
    if hour > 23 {
        return Err(format!("hour {hour:02} does not exist, expected 00 to 23"));
    }
    Ok(hour)
}

fn datetime(text: &str) -> Result<i128, String> {
    let expected = "a time as YYYY-MM-DD HH:MM:SS, with .ffffff without trailing zeros where it has microseconds";
    let wrong = || format!("expected {expected}");
    let (date_text, _) = text.split_at_checked(10).ok_or_else(wrong)?;
    let date = day(date_text, expected)?;
    let at = NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f").map_err(|_| wrong())?;
    let micros = at.and_utc().timestamp_micros();
    // The text that such a value gets is the only one for it.
    if at.date() != date || datetime_text(micros).as_deref() != Some(text) {
        return Err(wrong());
    }
    Ok(i128::from(micros))
}
