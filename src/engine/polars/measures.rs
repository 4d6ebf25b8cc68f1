//! Measures: from the grouped parts to exact columns of the output's types, and to totals.

use super::exact::{float, power_of_ten};
use super::lower::{file_type, inner_type};
use super::query::{ROWS, measure_column};
use crate::engine::EngineError;
use crate::engine::error::compute_failure;
use crate::pipeline::{Aggregate, DataType, Definition, Measure};
use crate::run::{Fold, Measured, Scalar, Totals};
use ::polars::prelude as pl;
use ::polars::prelude::{ChunkAgg, ChunkApply, IntoColumn, NewChunkedArray};

/// The finished column of a measure, in its inner type. `grouped` has rows in scope only.
pub(super) fn finish(measure: &Measure, at: usize, grouped: &pl::DataFrame) -> Result<pl::Column, EngineError> {
    let column = match &measure.aggregate {
        Aggregate::CountRows => grouped.column(ROWS).cloned(),
        Aggregate::Count(_) => grouped.column(&measure_column(at, "count")).cloned(),
        Aggregate::CountDistinct(_) => distinct(at, grouped),
        Aggregate::Min(x) | Aggregate::Max(x) => {
            grouped.column(&measure_column(at, "value")).and_then(|c| c.cast(&inner_type(&x.data_type))).map(one_zero)
        }
        Aggregate::Sum(_) => return sum(measure, at, grouped),
        Aggregate::Avg(x) => {
            let scale = x.data_type.digits().map_or(0, |d| d.1);
            let sums = exact_sums(measure, at, grouped)?;
            average(&sums, scale, at, grouped)
        }
    };
    column.map(|c| c.with_name(measure.name.as_str().into())).map_err(|e| super::engine_error(&e))
}

/// Zeros of both signs are one value and so have one form; so has what is not a number.
pub(super) fn one_zero(column: pl::Column) -> pl::Column {
    let zeros = |v: f64| if v.is_nan() { f64::NAN } else { v + 0.0 };
    match column.dtype() {
        pl::DataType::Float64 => match column.as_materialized_series().f64() {
            Ok(values) => values.apply_values(zeros).into_column(),
            Err(_) => column,
        },
        pl::DataType::Float32 => match column.as_materialized_series().f32() {
            Ok(values) => values.apply_values(|v| if v.is_nan() { f32::NAN } else { v + 0.0 }).into_column(),
            Err(_) => column,
        },
        _ => column,
    }
}

fn distinct(at: usize, grouped: &pl::DataFrame) -> pl::PolarsResult<pl::Column> {
    let all = grouped.column(&measure_column(at, "distinct"))?.as_materialized_series();
    let nulls = grouped.column(&measure_column(at, "nulls"))?.as_materialized_series();
    let values = all.i64()?.iter().zip(nulls.i64()?.iter()).map(|(all, nulls)| match (all, nulls) {
        (Some(all), Some(nulls)) => Some(all - i64::from(nulls > 0)),
        _ => None,
    });
    Ok(pl::Int64Chunked::from_iter_options("".into(), values).into_column())
}

/// The sum of each group; null where all its values are.
fn exact_sums(measure: &Measure, at: usize, grouped: &pl::DataFrame) -> Result<pl::Int128Chunked, EngineError> {
    let read = || -> pl::PolarsResult<(pl::Int128Chunked, pl::Int64Chunked)> {
        let counts = grouped.column(&measure_column(at, "count"))?.cast(&pl::DataType::Int64)?;
        Ok((sums(at, grouped)?, counts.as_materialized_series().i64()?.clone()))
    };
    let (sums, counts) = read().map_err(|e| super::engine_error(&e))?;
    if sums.null_count() == 0 && counts.null_count() == 0 && counts.min().is_none_or(|least| least > 0) {
        return Ok(sums);
    }
    let mut out = Vec::with_capacity(sums.len());
    for (sum, count) in sums.iter().zip(counts.iter()) {
        out.push(match (count, sum) {
            (Some(0) | None, _) => None,
            (_, Some(sum)) => Some(sum),
            (_, None) => return Err(overflow(measure, "more than 128 bits")),
        });
    }
    Ok(pl::Int128Chunked::from_iter_options("".into(), out.into_iter()))
}

/// What was added up; null where that is more than 128 bits.
fn sums(at: usize, grouped: &pl::DataFrame) -> pl::PolarsResult<pl::Int128Chunked> {
    let wide = |part: &str| -> pl::PolarsResult<pl::Int128Chunked> {
        let column = grouped.column(&measure_column(at, part))?.cast(&pl::DataType::Int128)?;
        Ok(column.as_materialized_series().i128()?.clone())
    };
    if grouped.column(&measure_column(at, "sum")).is_ok() {
        return wide("sum");
    }
    let (high, low) = (wide("high")?, wide("low")?);
    let whole = |(high, low): (Option<i128>, Option<i128>)| high?.checked_mul(power_of_ten(18))?.checked_add(low?);
    Ok(pl::Int128Chunked::from_iter_options("".into(), high.iter().zip(low.iter()).map(whole)))
}

fn overflow(measure: &Measure, found: &str) -> EngineError {
    compute_failure(
        "sum-overflow",
        "A sum does not fit its type",
        format!("measures.{}: found a sum of {found}, which does not fit {}", measure.name, measure.data_type),
    )
}

fn sum(measure: &Measure, at: usize, grouped: &pl::DataFrame) -> Result<pl::Column, EngineError> {
    let sums = exact_sums(measure, at, grouped)?;
    let (least, greatest) = bounds(&measure.data_type);
    if let Some(bad) = sums.iter().flatten().find(|v| !(least..=greatest).contains(v)) {
        let scale = measure.data_type.digits().map_or(0, |d| d.1);
        return Err(overflow(measure, &crate::run::decimal_text(bad, scale)));
    }
    let wide = sums.with_name(measure.name.as_str().into()).into_column();
    wide.cast(&inner_type(&measure.data_type)).map_err(|e| super::engine_error(&e))
}

fn bounds(data_type: &DataType) -> (i128, i128) {
    match data_type {
        DataType::Decimal { precision, .. } => {
            let limit = power_of_ten(*precision) - 1;
            (-limit, limit)
        }
        DataType::UInt(_) => (0, i128::from(u64::MAX)),
        _ => (i128::from(i64::MIN), i128::from(i64::MAX)),
    }
}

fn average(sums: &pl::Int128Chunked, scale: u8, at: usize, grouped: &pl::DataFrame) -> pl::PolarsResult<pl::Column> {
    let counts = grouped.column(&measure_column(at, "count"))?.as_materialized_series();
    let values = sums.iter().zip(counts.i64()?.iter()).map(|(sum, count)| match (sum, count) {
        (Some(sum), Some(count)) if count > 0 => Some(float(sum, scale) / count as f64),
        _ => None,
    });
    Ok(pl::Float64Chunked::from_iter_options("".into(), values).into_column())
}

/// A column in the type that it has in the file.
pub(super) fn to_file(column: &pl::Column, data_type: &DataType) -> pl::PolarsResult<pl::Column> {
    match data_type {
        DataType::Decimal { precision, scale } => {
            let wide = column.cast(&pl::DataType::Int128)?;
            let wide = wide.as_materialized_series().i128()?.clone();
            Ok(wide.into_decimal(usize::from(*precision), usize::from(*scale))?.into_column())
        }
        other => column.cast(&file_type(other)),
    }
}

/// The totals of a partition's rows; the columns have their inner types.
pub(super) fn totals(definition: &Definition, rows: &pl::DataFrame) -> Result<Totals, EngineError> {
    let mut out = Vec::new();
    for measure in &definition.measures {
        let column = rows.column(&measure.name).map_err(|e| super::engine_error(&e))?;
        let value = match measure.fold() {
            Fold::None => None,
            fold => roll_up(measure, fold, column).map_err(|e| super::engine_error(&e))?,
        };
        out.push(Measured { name: measure.name.clone(), fold: measure.fold(), value });
    }
    Ok(Totals(out))
}

fn roll_up(measure: &Measure, fold: Fold, column: &pl::Column) -> pl::PolarsResult<Option<Scalar>> {
    let series = column.as_materialized_series();
    if measure.data_type.is_exact() {
        let value = match series.i64() {
            Ok(words) => folded(fold, words.iter().flatten().map(i128::from)),
            Err(_) => folded(fold, series.cast(&pl::DataType::Int128)?.i128()?.iter().flatten()),
        };
        return Ok(value.map(|v| match measure.data_type {
            DataType::Decimal { scale, .. } => Scalar::Decimal { unscaled: v, scale },
            _ => Scalar::Int(v),
        }));
    }
    let scalar = match fold {
        Fold::Min => series.min_reduce()?,
        _ => series.max_reduce()?,
    };
    Ok(text_or_number(scalar.value()))
}

fn folded(fold: Fold, mut values: impl Iterator<Item = i128>) -> Option<i128> {
    match fold {
        Fold::Add => {
            let first = values.next()?;
            // A partition's rows are far fewer than would overflow 38 digits' sums; where they do, there is no total.
            values.try_fold(first, i128::checked_add)
        }
        Fold::Min => values.min(),
        _ => values.max(),
    }
}

fn text_or_number(value: &pl::AnyValue<'_>) -> Option<Scalar> {
    let seconds = |micros: i64| chrono::DateTime::from_timestamp_micros(micros);
    match value {
        pl::AnyValue::Null => None,
        pl::AnyValue::Boolean(x) => Some(Scalar::Bool(*x)),
        // What is no number is neither the least nor the greatest of anything.
        pl::AnyValue::Float64(x) => (!x.is_nan()).then_some(Scalar::Float(*x)),
        pl::AnyValue::Float32(x) => (!x.is_nan()).then_some(Scalar::Float(f64::from(*x))),
        pl::AnyValue::String(x) => Some(Scalar::Text((*x).to_owned())),
        pl::AnyValue::StringOwned(x) => Some(Scalar::Text(x.to_string())),
        pl::AnyValue::Date(days) => {
            let date = chrono::NaiveDate::from_num_days_from_ce_opt(days.checked_add(719_163)?)?;
            Some(Scalar::Text(date.to_string()))
        }
        pl::AnyValue::Datetime(micros, _, None) | pl::AnyValue::DatetimeOwned(micros, _, None) => {
            Some(Scalar::Text(seconds(*micros)?.naive_utc().format("%Y-%m-%dT%H:%M:%S%.6f").to_string()))
        }
        pl::AnyValue::Datetime(micros, _, Some(_)) | pl::AnyValue::DatetimeOwned(micros, _, Some(_)) => {
            Some(Scalar::Text(seconds(*micros)?.format("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()))
        }
        _ => None,
    }
}
