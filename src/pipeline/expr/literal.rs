//! Constants: numbers as they are written, and texts that stand for a date or a time.

use super::{Context, Expr, Literal, Node};
use crate::pipeline::DataType;
use chrono::{FixedOffset, LocalResult, NaiveDate, NaiveDateTime, NaiveTime, TimeZone};

/// The most digits of an exact number.
pub(super) const MAX_DIGITS: u8 = 38;

/// A constant of that type.
pub(super) fn literal(value: Literal, data_type: DataType) -> Expr {
    Expr { node: Node::Literal(value), data_type }
}

/// A number as written: exact, unless it has an exponent.
pub(super) fn number(text: &str) -> Result<Expr, String> {
    if text.contains(['e', 'E']) {
        let value = text.replace('_', "").parse::<f64>().ok().filter(|value| value.is_finite());
        let value = value.ok_or_else(|| format!("{text} does not fit a float64"))?;
        return Ok(literal(Literal::Float(value), DataType::Float64));
    }
    // Postgres lets digits be grouped.
    let digits = text.replace('_', "");
    let (whole, part) = digits.split_once('.').unwrap_or((&digits, ""));
    let too_long = || format!("{text} has more than {MAX_DIGITS} digits");
    let unscaled = format!("0{whole}{part}").parse::<i128>().map_err(|_| too_long())?;
    let scale = u8::try_from(part.len()).map_err(|_| too_long())?;
    let precision = digits_of(unscaled).max(scale);
    if precision > MAX_DIGITS {
        return Err(too_long());
    }
    Ok(literal(Literal::Exact(unscaled), exact_type(precision, scale)))
}

/// The type of an exact number that was computed, with so many digits: int64 where it surely fits.
pub(super) fn exact_type(precision: u8, scale: u8) -> DataType {
    if scale == 0 && precision <= 18 { DataType::Int(64) } else { DataType::Decimal { precision, scale } }
}

/// How many decimal digits a number has, 1 for zero.
pub(super) fn digits_of(unscaled: i128) -> u8 {
    let digits = unscaled.unsigned_abs().checked_ilog10().unwrap_or(0) + 1;
    u8::try_from(digits).unwrap_or(u8::MAX)
}

/// An exact constant as another type, where that type holds its very value (float64 takes the nearest).
pub(super) fn exact_as(unscaled: i128, scale: u8, target: &DataType) -> Option<Expr> {
    let value = match target {
        DataType::Float64 => Literal::Float(format!("{unscaled}e-{scale}").parse().ok()?),
        DataType::Decimal { precision, scale: target_scale } => {
            let moved = unscaled.checked_mul(10i128.checked_pow(u32::from(target_scale.checked_sub(scale)?))?)?;
            if moved != 0 && digits_of(moved) > *precision {
                return None;
            }
            Literal::Exact(moved)
        }
        DataType::Int(bits) if scale == 0 => {
            let half = 1i128 << (bits - 1);
            (-half..half).contains(&unscaled).then_some(Literal::Exact(unscaled))?
        }
        DataType::UInt(bits) if scale == 0 => {
            (0..1i128 << bits).contains(&unscaled).then_some(Literal::Exact(unscaled))?
        }
        _ => return None,
    };
    Some(literal(value, target.clone()))
}

/// A text as a date or a time.
pub(super) fn time(text: &str, target: &DataType, context: &Context<'_>) -> Result<Expr, String> {
    let value = match target {
        DataType::Date => {
            let day = date(text).ok_or_else(|| format!("'{text}' is no date, expected 'YYYY-MM-DD'"))?;
            let days = day.signed_duration_since(NaiveDate::default()).num_days();
            Literal::Date(i32::try_from(days).map_err(|_| format!("'{text}' is no date"))?)
        }
        DataType::Datetime(zone) => Literal::Datetime(micros(text, zone.is_some(), context)?),
        other => return Err(format!("'{text}' is a text, expected {other}")),
    };
    Ok(literal(value, target.clone()))
}

fn date(text: &str) -> Option<NaiveDate> {
    has_shape(text, "0000-00-00").then(|| NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()).flatten()
}

/// Whether a text has digits exactly where `shape` has `0`: chrono also takes blanks and signs.
fn has_shape(text: &str, shape: &str) -> bool {
    let fits = |(found, expected): (u8, u8)| if expected == b'0' { found.is_ascii_digit() } else { found == expected };
    text.len() == shape.len() && text.bytes().zip(shape.bytes()).all(fits)
}

/// Microseconds of `YYYY-MM-DD[ HH:MM[:SS[.ffffff]]]`: wall-clock, or UTC where `zoned`.
fn micros(text: &str, zoned: bool, context: &Context<'_>) -> Result<i64, String> {
    let (wall_text, offset) = split_offset(text);
    let wall = wall_clock(wall_text).ok_or_else(|| {
        let zone = if zoned { ", with or without an offset" } else { "" };
        format!("'{text}' is no time, expected 'YYYY-MM-DD', 'YYYY-MM-DD HH:MM' or 'YYYY-MM-DD HH:MM:SS.ffffff'{zone}")
    })?;
    match (zoned, offset) {
        (false, None) => Ok(wall.and_utc().timestamp_micros()),
        (false, Some(_)) => Err(format!("'{text}' has an offset, expected none: the column is wall-clock time")),
        (true, Some(offset)) => match offset.from_local_datetime(&wall) {
            LocalResult::Single(at) => Ok(at.timestamp_micros()),
            _ => Err(format!("'{text}' is no time")),
        },
        (true, None) => match context.timezone.from_local_datetime(&wall) {
            LocalResult::Single(at) => Ok(at.timestamp_micros()),
            LocalResult::Ambiguous(..) => Err(format!(
                "'{text}' happens twice in {}, where clocks go back; give an offset",
                context.timezone.name()
            )),
            LocalResult::None => Err(format!(
                "'{text}' does not happen in {}, where clocks go forward; give an offset",
                context.timezone.name()
            )),
        },
    }
}

fn split_offset(text: &str) -> (&str, Option<FixedOffset>) {
    let utc = FixedOffset::east_opt(0);
    if let Some(wall) = text.strip_suffix(['Z', 'z']) {
        return (wall, utc);
    }
    let at = text.len().saturating_sub(6);
    match text.split_at_checked(at) {
        // A date alone ends in something like an offset.
        Some((wall, tail)) if wall.len() > 10 => match tail.parse::<FixedOffset>() {
            Ok(offset) if tail.starts_with(['+', '-']) && tail.as_bytes().get(3) == Some(&b':') => (wall, Some(offset)),
            _ => (text, None),
        },
        _ => (text, None),
    }
}

fn wall_clock(text: &str) -> Option<NaiveDateTime> {
    let (day, rest) = text.split_at_checked(10)?;
    let day = date(day)?;
    if rest.is_empty() {
        return Some(day.and_time(NaiveTime::MIN));
    }
    let time = rest.strip_prefix([' ', 'T'])?;
    let (whole, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let format = match (has_shape(time, "00:00"), has_shape(whole, "00:00:00"), fraction.len()) {
        (true, ..) => "%H:%M",
        (_, true, 1..=6) => "%H:%M:%S%.f",
        _ => return None,
    };
    let time = NaiveTime::parse_from_str(time, format).ok()?;
    // A leap second is no instant here.
    (chrono::Timelike::nanosecond(&time) < 1_000_000_000).then(|| day.and_time(time))
}
