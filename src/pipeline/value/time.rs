//! Dates and times: ISO 8601, or in a strftime format.

use super::Misfit;
use crate::pipeline::{Column, DataType};
use chrono::format::{Fixed, Item, Parsed, StrftimeItems};
use chrono::{DateTime, FixedOffset, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, Timelike};
use std::fmt::Write;

/// The longest format.
const MAX_FORMAT_BYTES: usize = 200;

/// How texts are read as dates and times.
#[derive(Debug, Clone)]
pub enum TimeFormat {
    /// `2024-02-29` for dates; for times a `T` or a blank, `23:59` or `23:59:59` with a fraction, and for instants `Z`, ` UTC` or
    /// an offset. A date alone is its midnight.
    Iso,
    /// strftime fields.
    Fields(Vec<Item<'static>>),
}

impl TimeFormat {
    /// That of a column.
    pub fn of(column: &Column) -> Self {
        // It was compiled once when the pipeline was loaded.
        column.format.as_deref().and_then(|text| Self::compile(text).ok()).unwrap_or(TimeFormat::Iso)
    }

    /// Checks a strftime format for a type: what it writes it must be able to read.
    pub fn checked(text: &str, data_type: &DataType) -> Result<Self, String> {
        let format = Self::compile(text)?;
        let (zoned, expected) = match data_type {
            DataType::Date => (None, "a date"),
            DataType::Datetime(zone) => (Some(zone.is_some()), "a date and a time"),
            other => return Err(format!("is for dates and times, but the column is {other}")),
        };
        let sample = sample().ok_or("there is no sample")?;
        let TimeFormat::Fields(items) = &format else { return Ok(format) };
        let mut written = String::new();
        let no_value = || format!("{text:?} does not give {expected}");
        write!(written, "{}", sample.format_with_items(items.iter())).map_err(|_| no_value())?;
        let (wall, offset) = format.read(&written).map_err(|_| no_value())?;
        if wall.date() != sample.date_naive() {
            return Err(no_value());
        }
        match (zoned, offset) {
            (Some(true), None) => {
                Err(format!("{text:?} has no offset, expected %z or %s, since {data_type} is an instant"))
            }
            (Some(false), Some(_)) => {
                Err(format!("{text:?} has an offset, expected none, since {data_type} is wall-clock time"))
            }
            _ => Ok(format),
        }
    }

    /// Days since 1970-01-01.
    pub fn days(&self, text: &str) -> Result<i32, Misfit> {
        let date = match self {
            TimeFormat::Iso => return iso_days(text.as_bytes()).ok_or(Misfit::Other),
            TimeFormat::Fields(_) => self.read(text)?.0.date(),
        };
        i32::try_from(date.signed_duration_since(NaiveDate::default()).num_days()).map_err(|_| Misfit::OutOfRange)
    }

    /// Microseconds since 1970-01-01T00:00:00, of wall-clock time or, where `zoned`, of the instant. Finer digits are cut off.
    pub fn micros(&self, text: &str, zoned: bool) -> Result<i64, Misfit> {
        let (micros, offset) = match self {
            TimeFormat::Iso => iso_micros(text).ok_or(Misfit::Other)?,
            TimeFormat::Fields(_) => {
                let (wall, offset) = self.read(text)?;
                (wall.and_utc().timestamp_micros(), offset)
            }
        };
        match (zoned, offset) {
            (false, None) => Ok(micros),
            (true, Some(seconds)) => Ok(micros - i64::from(seconds) * 1_000_000),
            (false, Some(_)) => Err(Misfit::Offset),
            (true, None) => Err(Misfit::NoOffset),
        }
    }

    fn compile(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.len() > MAX_FORMAT_BYTES {
            let bytes = text.len();
            return Err(format!(
                "expected strftime fields such as %d/%m/%Y, at most {MAX_FORMAT_BYTES} bytes, found {bytes}"
            ));
        }
        let items = StrftimeItems::new(text).parse_to_owned();
        let items = items.map_err(|_| {
            format!("{text:?} has a field that strftime does not know, expected such as %d/%m/%Y %H:%M")
        })?;
        if items.contains(&Item::Fixed(Fixed::TimezoneName)) {
            return Err(format!("{text:?} has %Z, whose names are ambiguous; expected an offset, %z"));
        }
        Ok(TimeFormat::Fields(items))
    }

    /// Wall-clock time and the offset in seconds, if the text has one.
    fn read(&self, text: &str) -> Result<(NaiveDateTime, Option<i32>), Misfit> {
        let TimeFormat::Fields(items) = self else { return Err(Misfit::Other) };
        let mut parsed = Parsed::new();
        chrono::format::parse(&mut parsed, text, items.iter()).map_err(|_| Misfit::Other)?;
        let has_hour = parsed.hour_mod_12().is_some();
        if has_hour && parsed.minute().is_none() {
            parsed.set_minute(0).map_err(|_| Misfit::Other)?;
        }
        // Seconds since 1970 are an instant.
        let offset = parsed.offset().or(parsed.timestamp().map(|_| 0));
        let wall = if has_hour || parsed.timestamp().is_some() {
            parsed.to_naive_datetime_with_offset(offset.unwrap_or(0)).map_err(|_| Misfit::Other)?
        } else {
            parsed.to_naive_date().map_err(|_| Misfit::Other)?.and_time(NaiveTime::MIN)
        };
        // A leap second is no instant here.
        if wall.nanosecond() < 1_000_000_000 { Ok((wall, offset)) } else { Err(Misfit::OutOfRange) }
    }
}

/// A time whose fields all differ.
fn sample() -> Option<DateTime<FixedOffset>> {
    let wall = NaiveDate::from_ymd_opt(2011, 10, 23)?.and_hms_micro_opt(16, 17, 18, 192_021)?;
    wall.and_local_timezone(FixedOffset::east_opt(5 * 3600 + 30 * 60)?).single()
}

/// The number that `digits` are; none where one of them is no digit.
fn number(digits: &[u8]) -> Option<u32> {
    let mut value = 0;
    for digit in digits {
        value = value * 10 + char::from(*digit).to_digit(10)?;
    }
    Some(value)
}

fn iso_days(text: &[u8]) -> Option<i32> {
    let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = text else { return None };
    let year = i32::try_from(number(&[*y1, *y2, *y3, *y4])?).ok()?;
    let date = NaiveDate::from_ymd_opt(year, number(&[*m1, *m2])?, number(&[*d1, *d2])?)?;
    i32::try_from(date.signed_duration_since(NaiveDate::default()).num_days()).ok()
}

/// Wall-clock microseconds and the offset in seconds, if there is one.
fn iso_micros(text: &str) -> Option<(i64, Option<i32>)> {
    let (date, rest) = text.as_bytes().split_at_checked(10)?;
    let midnight = i64::from(iso_days(date)?) * 86_400_000_000;
    if rest.is_empty() {
        return Some((midnight, None));
    }
    let [b'T' | b' ', h1, h2, b':', m1, m2, rest @ ..] = rest else { return None };
    let (hour, minute) = (number(&[*h1, *h2])?, number(&[*m1, *m2])?);
    let (second, rest) = match rest {
        [b':', s1, s2, rest @ ..] => (number(&[*s1, *s2])?, rest),
        rest => (0, rest),
    };
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let (micros, rest) = match rest {
        [b'.', rest @ ..] => fraction(rest)?,
        rest => (0, rest),
    };
    let seconds = i64::from((hour * 60 + minute) * 60 + second);
    let offset = if rest.is_empty() { None } else { Some(offset(rest)?) };
    Some((midnight + seconds * 1_000_000 + micros, offset))
}

/// The microseconds of a fraction of one to nine digits, finer ones cut off, and what follows it.
fn fraction(text: &[u8]) -> Option<(i64, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (fraction, rest) = text.split_at_checked(digits)?;
    if !(1..=9).contains(&digits) {
        return None;
    }
    let kept = fraction.get(..digits.min(6))?;
    let micros = i64::from(number(kept)?) * 10i64.pow(6 - u32::try_from(kept.len()).ok()?);
    Some((micros, rest))
}

/// `Z`, ` UTC`, `+05:30`, `+0530` or `+05` in seconds.
fn offset(text: &[u8]) -> Option<i32> {
    let (sign, hours, minutes) = match text {
        [b'Z' | b'z'] | b" UTC" => return Some(0),
        [sign, h1, h2, b':', m1, m2] | [sign, h1, h2, m1, m2] => (sign, number(&[*h1, *h2])?, number(&[*m1, *m2])?),
        [sign, h1, h2] => (sign, number(&[*h1, *h2])?, 0),
        _ => return None,
    };
    let seconds = i32::try_from(TimeDelta::minutes(i64::from(hours * 60 + minutes)).num_seconds()).ok()?;
    match sign {
        _ if hours > 23 || minutes > 59 => None,
        b'+' => Some(seconds),
        b'-' => Some(-seconds),
        _ => None,
    }
}
