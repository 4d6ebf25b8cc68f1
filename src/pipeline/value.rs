//! Texts as values of the contract's types: fields of csv files, values in JSON, names of folders, defaults. Pure, exact,
//! and without a thought for the machine's language or clock.

mod number;
#[cfg(test)]
mod tests;
mod time;

pub use number::{boolean, decimal, float32, float64, integer};
pub use time::TimeFormat;

use super::{Column, DataType, Literal};
use chrono::{DateTime, NaiveDate, TimeDelta};

/// Why a text is no value of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// It is something else.
    #[error("does not fit")]
    Other,
    /// It is a number with digits after the point.
    #[error("is not whole")]
    NotWhole,
    /// It is too large or too small.
    #[error("is out of range")]
    OutOfRange,
    /// It names an instant, and the type is wall-clock time, which would shift it silently.
    #[error("has an offset, but the type is wall-clock time")]
    Offset,
    /// It is wall-clock time, and the type is an instant.
    #[error("has no offset, but the type is an instant")]
    NoOffset,
}

/// A text as a value of the column's type, in the column's format; `time` is that format, compiled.
pub fn literal(text: &str, data_type: &DataType, time: &TimeFormat) -> Result<Literal, Misfit> {
    Ok(match data_type {
        DataType::String => Literal::Text(text.to_owned()),
        DataType::Bool => Literal::Bool(boolean(text)?),
        DataType::Int(_) | DataType::UInt(_) => Literal::Exact(integer(text, data_type)?),
        DataType::Decimal { precision, scale } => Literal::Exact(decimal(text, *precision, *scale)?),
        DataType::Float32 => Literal::Float(f64::from(float32(text)?)),
        DataType::Float64 => Literal::Float(float64(text)?),
        DataType::Date => Literal::Date(time.days(text)?),
        DataType::Datetime(zone) => Literal::Datetime(time.micros(text, zone.is_some())?),
    })
}

/// A value as the text that [`literal`] reads; none for null.
pub fn text_of(value: &Literal, data_type: &DataType) -> Option<String> {
    let of_micros =
        |micros: i64| Some(DateTime::from_timestamp_micros(micros)?.naive_utc().format("%Y-%m-%d %H:%M:%S%.f"));
    Some(match (value, data_type) {
        (Literal::Null, _) => return None,
        (Literal::Bool(value), _) => value.to_string(),
        (Literal::Exact(value), DataType::Decimal { scale, .. }) => crate::run::decimal_text(*value, *scale),
        (Literal::Exact(value), _) => value.to_string(),
        (Literal::Float(value), DataType::Float32) => (*value as f32).to_string(),
        (Literal::Float(value), _) => value.to_string(),
        (Literal::Text(text), _) => text.clone(),
        (Literal::Date(days), _) => (NaiveDate::default() + TimeDelta::days(i64::from(*days))).to_string(),
        (Literal::Datetime(micros), DataType::Datetime(Some(_))) => format!("{}Z", of_micros(*micros)?),
        (Literal::Datetime(micros), _) => of_micros(*micros)?.to_string(),
    })
}

/// The value that a `key=value` folder of `path` gives the column; the column's default where there is no such folder. The
/// error says what was found and what was expected.
pub fn of_folder(column: &Column, key: &str, path: &str) -> Result<Literal, String> {
    let expected = &column.data_type;
    let text = match (crate::partition::folder_value(path, key), &column.default) {
        (Some(Some(text)), _) => text,
        (Some(None), _) => return Ok(Literal::Null),
        (None, Some(default)) => return Ok(default.clone()),
        (None, None) => return Err(format!("not found, expected {expected} in a folder {key}=… of the path")),
    };
    let time = TimeFormat::of(column);
    literal(&text, expected, &time).map_err(|misfit| format!("the folder {key}={text} {misfit}, expected {expected}"))
}
