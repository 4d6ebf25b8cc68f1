//! The contract's conversions: a file's column brought to the contract's type, value by value.
//!
//! Conversions keep the value; a value that cannot be kept becomes null, which the caller tells from a null of the
//! file, so that it costs its row and not the run.

use super::exact::{Rounding, digits_type, from_double, from_doubles, map_i64, power_of_ten, rescale_one};
use super::lower::inner_type;
use super::time;
use crate::pipeline::value::TimeFormat;
use crate::pipeline::{Column, DataType};
use ::polars::prelude as pl;
use ::polars::prelude::IntoColumn;

/// How a column of one physical type is brought to a type of the contract.
pub(super) struct Conversion {
    /// The converted column.
    pub(super) expr: pl::Expr,
    /// Whether values may be lost (and are null then).
    pub(super) lossy: bool,
}

/// The conversion of `raw`, which is `found` in the file, to the column's type; none where there is no way that keeps
/// values. Text is a date or time only where the column says in which format.
pub(super) fn convert(raw: pl::Expr, found: &pl::DataType, column: &Column) -> Option<Conversion> {
    let wanted = &column.data_type;
    let to = inner_type(wanted);
    if *found == pl::DataType::String && column.format.is_some() {
        return Some(from_text(raw, column));
    }
    if *found == pl::DataType::Null {
        return Some(keeping(raw.cast(to)));
    }
    match wanted {
        DataType::Bool => (*found == pl::DataType::Boolean).then(|| keeping(raw)),
        DataType::Date => (*found == pl::DataType::Date).then(|| keeping(raw)),
        DataType::String => match found {
            pl::DataType::String => Some(keeping(raw)),
            pl::DataType::Categorical(..) | pl::DataType::Enum(..) => Some(keeping(raw.cast(to))),
            _ => None,
        },
        DataType::Datetime(zone) => match found {
            pl::DataType::Datetime(unit, None) if zone.is_none() => Some(to_micros(raw, *unit)),
            pl::DataType::Datetime(unit, Some(_)) => zone.map(|zone| {
                let micros = to_micros(raw, *unit);
                Conversion { expr: micros.expr.dt().convert_time_zone(time::zone(zone)), lossy: micros.lossy }
            }),
            _ => None,
        },
        DataType::Float32 | DataType::Float64 => to_float(raw, found, &to),
        DataType::Int(_) | DataType::UInt(_) => to_integer(raw, found, wanted),
        DataType::Decimal { precision, scale } => to_decimal(raw, found, *precision, *scale),
    }
}

fn from_text(raw: pl::Expr, column: &Column) -> Conversion {
    let (time, to) = (TimeFormat::of(column), inner_type(&column.data_type));
    let (zoned, days) = (matches!(column.data_type, DataType::Datetime(Some(_))), column.data_type == DataType::Date);
    let read = {
        let to = to.clone();
        move |texts: pl::Column| {
            let texts = texts.as_materialized_series().str()?;
            if days {
                let values: pl::Int32Chunked =
                    pl::arity::unary_elementwise(texts, |text: Option<&str>| time.days(text?).ok());
                return values.into_column().cast(&to);
            }
            let values: pl::Int64Chunked =
                pl::arity::unary_elementwise(texts, |text: Option<&str>| time.micros(text?, zoned).ok());
            values.into_column().cast(&to)
        }
    };
    losing(raw.map(read, move |_, field| Ok(pl::Field::new(field.name().clone(), to.clone()))))
}

fn keeping(expr: pl::Expr) -> Conversion {
    Conversion { expr, lossy: false }
}

fn losing(expr: pl::Expr) -> Conversion {
    Conversion { expr, lossy: true }
}

fn to_micros(raw: pl::Expr, unit: pl::TimeUnit) -> Conversion {
    let rescaled = move |column: pl::Column, f: fn(i64) -> Option<i64>| {
        let zone = match column.dtype() {
            pl::DataType::Datetime(_, zone) => zone.clone(),
            _ => None,
        };
        let physical = column.as_materialized_series().to_physical_repr().into_owned();
        let micros = map_i64(physical.i64()?, f);
        Ok(micros.into_datetime(pl::TimeUnit::Microseconds, zone).into_column())
    };
    let field = |_: &pl::Schema, field: &pl::Field| {
        let zone = match field.dtype() {
            pl::DataType::Datetime(_, zone) => zone.clone(),
            _ => None,
        };
        Ok(pl::Field::new(field.name().clone(), pl::DataType::Datetime(pl::TimeUnit::Microseconds, zone)))
    };
    match unit {
        pl::TimeUnit::Microseconds => keeping(raw),
        pl::TimeUnit::Milliseconds => losing(raw.map(move |c| rescaled(c, |v| v.checked_mul(1_000)), field)),
        pl::TimeUnit::Nanoseconds => keeping(raw.map(move |c| rescaled(c, |v| Some(v.div_euclid(1_000))), field)),
    }
}

fn to_float(raw: pl::Expr, found: &pl::DataType, to: &pl::DataType) -> Option<Conversion> {
    let single = *to == pl::DataType::Float32;
    match found {
        found if found == to => Some(keeping(raw)),
        pl::DataType::Float32 => Some(keeping(raw.cast(to.clone()))),
        pl::DataType::Float64 => Some(losing(raw.map(
            |column| {
                let kept: pl::Float32Chunked =
                    pl::arity::unary_elementwise(column.as_materialized_series().f64()?, |v: Option<f64>| {
                        v.filter(|v| v.is_nan() || f64::from(*v as f32) == *v).map(|v| v as f32)
                    });
                Ok(kept.into_column())
            },
            |_, field| Ok(pl::Field::new(field.name().clone(), pl::DataType::Float32)),
        ))),
        found if found.is_integer() => {
            let kept = move |v: &i128| if single { (*v as f32) as i128 == *v } else { (*v as f64) as i128 == *v };
            let wide = raw.cast(pl::DataType::Int128);
            Some(losing(map_exact(wide, to.clone(), move |v| Some(v).filter(kept))))
        }
        _ => None,
    }
}

fn to_integer(raw: pl::Expr, found: &pl::DataType, wanted: &DataType) -> Option<Conversion> {
    let to = inner_type(wanted);
    let (least, greatest) = integer_range(wanted);
    match found {
        found if *found == to => Some(keeping(raw)),
        // A cast that is not strict gives null where the value is out of range.
        found if found.is_integer() => Some(losing(raw.cast(to))),
        pl::DataType::Float32 | pl::DataType::Float64 => Some(losing(raw.map(
            move |column| {
                let doubles = column.cast(&pl::DataType::Float64)?;
                let values = doubles.as_materialized_series().f64()?.iter().map(|v| {
                    v.filter(|v| v.fract() == 0.0).map(|v| v as i128).filter(|v| (least..=greatest).contains(v))
                });
                let wide: pl::Int128Chunked = pl::NewChunkedArray::from_iter_options(column.name().clone(), values);
                wide.into_column().cast(&to)
            },
            {
                let to = inner_type(wanted);
                move |_, field| Ok(pl::Field::new(field.name().clone(), to.clone()))
            },
        ))),
        pl::DataType::Decimal(_, scale) => {
            let scale = u8::try_from(*scale).ok()?;
            Some(losing(map_exact(raw.to_physical(), to, move |v| {
                rescale_one(v, scale, 0, Rounding::Exact).filter(|v| (least..=greatest).contains(v))
            })))
        }
        _ => None,
    }
}

fn to_decimal(raw: pl::Expr, found: &pl::DataType, precision: u8, scale: u8) -> Option<Conversion> {
    let to = digits_type(precision);
    let limit = power_of_ten(precision);
    let fits = move |v: &i128| v.unsigned_abs() < limit.unsigned_abs();
    match found {
        pl::DataType::Decimal(p, s) => {
            let (p, s) = (u8::try_from(*p).ok()?, u8::try_from(*s).ok()?);
            let wide = raw.to_physical();
            if s == scale && p <= precision {
                return Some(keeping(wide.cast(to)));
            }
            Some(losing(map_exact(wide, to, move |v| rescale_one(v, s, scale, Rounding::Exact).filter(fits))))
        }
        found if found.is_integer() => {
            let wide = raw.cast(pl::DataType::Int128);
            Some(losing(map_exact(wide, to, move |v| rescale_one(v, 0, scale, Rounding::Exact).filter(fits))))
        }
        pl::DataType::Float32 | pl::DataType::Float64 => Some(losing(raw.map(
            move |column| doubles_to_decimal(&column, precision, scale),
            move |_, field| Ok(pl::Field::new(field.name().clone(), to.clone())),
        ))),
        _ => None,
    }
}

fn doubles_to_decimal(column: &pl::Column, precision: u8, scale: u8) -> pl::PolarsResult<pl::Column> {
    let doubles = column.cast(&pl::DataType::Float64)?;
    let doubles = doubles.as_materialized_series().f64()?;
    if precision <= 18 {
        return Ok(from_doubles(doubles, precision, scale).into_column());
    }
    let values = doubles.iter().map(|v| v.and_then(|v| from_double(v, precision, scale)));
    let wide: pl::Int128Chunked = pl::NewChunkedArray::from_iter_options(column.name().clone(), values);
    Ok(wide.into_column())
}

/// Maps 128-bit integers value by value, then casts to a type that holds what is left.
fn map_exact(wide: pl::Expr, to: pl::DataType, f: impl Fn(i128) -> Option<i128> + Send + Sync + 'static) -> pl::Expr {
    wide.map(
        move |column| super::exact::map_i128(&column, &f),
        |_, field| Ok(pl::Field::new(field.name().clone(), pl::DataType::Int128)),
    )
    .cast(to)
}

fn integer_range(wanted: &DataType) -> (i128, i128) {
    match wanted {
        DataType::UInt(bits) => (0, (1i128 << bits) - 1),
        DataType::Int(bits) => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
        _ => (i128::MIN, i128::MAX),
    }
}

/// A physical type in the contract's words, for messages.
pub(super) fn type_name(found: &pl::DataType) -> String {
    match found {
        pl::DataType::Boolean => "bool".to_owned(),
        pl::DataType::Decimal(p, s) => format!("decimal({p},{s})"),
        pl::DataType::Datetime(_, None) => "datetime".to_owned(),
        pl::DataType::Datetime(_, Some(zone)) => format!("datetime({zone})"),
        pl::DataType::Int8 => "int8".to_owned(),
        pl::DataType::Int16 => "int16".to_owned(),
        pl::DataType::Int32 => "int32".to_owned(),
        pl::DataType::Int64 => "int64".to_owned(),
        pl::DataType::UInt8 => "uint8".to_owned(),
        pl::DataType::UInt16 => "uint16".to_owned(),
        pl::DataType::UInt32 => "uint32".to_owned(),
        pl::DataType::UInt64 => "uint64".to_owned(),
        pl::DataType::Float32 => "float32".to_owned(),
        pl::DataType::Float64 => "float64".to_owned(),
        pl::DataType::String => "string".to_owned(),
        pl::DataType::Date => "date".to_owned(),
        pl::DataType::Time => "time".to_owned(),
        pl::DataType::Binary => "binary".to_owned(),
        pl::DataType::List(_) => "a list".to_owned(),
        pl::DataType::Struct(_) => "a struct".to_owned(),
        other => format!("{other:?}").to_lowercase(),
    }
}
