//! The engine's work, done row by row without it.

use super::cells::{Cell, escaped, exact_text, float_text, text_of};
use super::random::{Case, Dimension, File};
use chrono::{DateTime, Datelike, Days, NaiveDate, NaiveDateTime, TimeDelta, TimeZone, Timelike};
use chrono_tz::Tz;
use polars::prelude::{DataType as Physical, TimeUnit};
use refrain::pipeline::DataType;
use std::collections::{BTreeMap, BTreeSet};

/// What a run must come to.
#[derive(Debug, Default)]
pub(super) struct Expected {
    /// Partition, dimensions, measures.
    pub(super) rows: BTreeMap<(String, Vec<String>), Vec<String>>,
    /// Read, in scope, out of scope, filtered, rejected.
    pub(super) books: [u64; 5],
    pub(super) strays: BTreeMap<String, u64>,
    pub(super) source_rows: BTreeMap<String, u64>,
    /// A sum does not fit.
    pub(super) overflows: bool,
}

fn ten(exponent: u8) -> i128 {
    10i128.pow(u32::from(exponent))
}

/// The value in the contract's type; none where it cannot be kept.
pub(super) fn convert(cell: &Cell, physical: &Physical, contract: &DataType) -> Option<Cell> {
    Some(match (cell, contract) {
        (Cell::Null, _) => Cell::Null,
        (Cell::Exact(v, scale), DataType::Int(_) | DataType::UInt(_)) => {
            let whole = (v % ten(*scale) == 0).then(|| v / ten(*scale))?;
            in_range(whole, contract)?
        }
        (Cell::Float(v), DataType::Int(_) | DataType::UInt(_)) => {
            let small = v.is_finite() && v.trunc() == *v && v.abs() < 1e20;
            in_range(small.then(|| format!("{v:.0}").parse().unwrap())?, contract)?
        }
        (Cell::Exact(v, scale), DataType::Decimal { precision, scale: wanted }) => {
            let moved = match wanted.checked_sub(*scale) {
                Some(up) => v.checked_mul(ten(up))?,
                None => {
                    let down = ten(scale - wanted);
                    (v % down == 0).then(|| v / down)?
                }
            };
            (moved.abs() < ten(*precision)).then_some(Cell::Exact(moved, *wanted))?
        }
        (Cell::Float(v), DataType::Decimal { precision, scale }) => {
            let unscaled = decimal_of(*v, *scale)?;
            (unscaled.abs() < ten(*precision)).then_some(Cell::Exact(unscaled, *scale))?
        }
        (Cell::Float(v), DataType::Float32) => (v.is_nan() || f64::from(*v as f32) == *v).then_some(Cell::Float(*v))?,
        (Cell::Float(v), _) => Cell::Float(*v),
        (Cell::Exact(v, 0), DataType::Float64) => ((*v as f64) as i128 == *v).then_some(Cell::Float(*v as f64))?,
        (Cell::Exact(v, 0), DataType::Float32) => {
            ((*v as f32) as i128 == *v).then_some(Cell::Float(f64::from(*v as f32)))?
        }
        (Cell::Time(v), _) => Cell::Time(match physical {
            Physical::Datetime(TimeUnit::Milliseconds, _) => v.checked_mul(1000)?,
            Physical::Datetime(TimeUnit::Nanoseconds, _) => v.div_euclid(1000),
            _ => *v,
        }),
        (other, _) => other.clone(),
    })
}

fn in_range(v: i128, contract: &DataType) -> Option<Cell> {
    let (least, most) = match contract {
        DataType::Int(bits) => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
        DataType::UInt(bits) => (0, (1i128 << bits) - 1),
        _ => panic!("no integer: {contract}"),
    };
    (least..=most).contains(&v).then_some(Cell::Exact(v, 0))
}

/// The shortest text of a double, rounded half away from zero by its digits.
fn decimal_of(v: f64, scale: u8) -> Option<i128> {
    if !v.is_finite() {
        return None;
    }
    let text = format!("{}", v.abs());
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let kept: String = part.chars().chain("0".repeat(40).chars()).take(usize::from(scale)).collect();
    let next = part.as_bytes().get(usize::from(scale)).copied().unwrap_or(b'0');
    let unscaled = format!("{whole}{kept}").parse::<i128>().ok()? + i128::from(next >= b'5');
    Some(if v < 0.0 { -unscaled } else { unscaled })
}

/// What the clocks show; none beyond the calendar.
pub(super) fn wall(cell: &Cell, contract: &DataType, timezone: Tz) -> Option<NaiveDateTime> {
    match (cell, contract) {
        (Cell::Date(days), _) => {
            let epoch = NaiveDate::from_ymd_opt(1970, 1, 1).unwrap();
            let day = epoch.checked_add_signed(TimeDelta::try_days(i64::from(*days))?)?;
            Some(day.and_hms_opt(0, 0, 0).unwrap())
        }
        (Cell::Time(micros), DataType::Datetime(zone)) => {
            let utc = DateTime::from_timestamp_micros(*micros)?;
            Some(if zone.is_some() { utc.with_timezone(&timezone).naive_local() } else { utc.naive_utc() })
        }
        _ => None,
    }
}

/// The text of a partition value, not escaped.
pub(super) fn partition_text(transform: &str, cell: &Cell, contract: &DataType, timezone: Tz) -> Option<String> {
    let format = match transform {
        "year_of" => "%Y",
        "month_of" => "%Y-%m",
        "day_of" => "%Y-%m-%d",
        "hour_of" => "%Y-%m-%dT%H",
        "hour_of_day" => "%H",
        _ => match cell {
            Cell::Bool(v) => return Some(v.to_string()),
            Cell::Exact(v, 0) => return Some(v.to_string()),
            Cell::Exact(v, scale) => {
                let digits = format!("{:0>width$}", v.abs(), width = usize::from(*scale) + 1);
                let (whole, part) = digits.split_at(digits.len() - usize::from(*scale));
                return Some(format!("{}{whole}.{part}", if *v < 0 { "-" } else { "" }));
            }
            Cell::Text(v) => {
                let bad = v.is_empty() || v == "__HIVE_DEFAULT_PARTITION__" || v.contains('\0');
                return (!bad && escaped(v).len() < 240).then(|| v.clone());
            }
            Cell::Date(_) => "%Y-%m-%d",
            _ => "%Y-%m-%d %H:%M:%S%.6f",
        },
    };
    let at = wall(cell, contract, timezone).filter(|at| (1..=9999).contains(&at.year()))?;
    let text = at.format(format).to_string();
    Some(match text.split_once('.') {
        Some((whole, part)) => format!("{whole}.{part}").trim_end_matches('0').trim_end_matches('.').to_owned(),
        None => text,
    })
}

/// The start of the period, as the engine's files write it.
fn truncated(cell: &Cell, contract: &DataType, unit: &str, timezone: Tz) -> Cell {
    let Some(at) = wall(cell, contract, timezone) else { return Cell::Null };
    let day = at.date();
    let start = match unit {
        "year" => day.with_day(1).unwrap().with_month(1).unwrap().and_hms_opt(0, 0, 0),
        "month" => day.with_day(1).unwrap().and_hms_opt(0, 0, 0),
        "week" => (day - Days::new(u64::from(day.weekday().num_days_from_monday()))).and_hms_opt(0, 0, 0),
        "day" => day.and_hms_opt(0, 0, 0),
        "hour" => day.and_hms_opt(at.hour(), 0, 0),
        _ => day.and_hms_opt(at.hour(), at.minute(), 0),
    };
    let start = start.unwrap();
    match contract {
        DataType::Date => {
            Cell::Date((start.date() - NaiveDate::from_ymd_opt(1970, 1, 1).unwrap()).num_days().try_into().unwrap())
        }
        DataType::Datetime(None) => Cell::Time(start.and_utc().timestamp_micros()),
        _ => {
            let minutes = (0..24 * 60).map(|minute| start + TimeDelta::minutes(minute));
            let mut there = minutes.filter_map(|local| timezone.from_local_datetime(&local).earliest());
            Cell::Time(there.next().unwrap().timestamp_micros())
        }
    }
}

fn dimension(case: &Case, dimension: &Dimension, row: &[Cell]) -> Cell {
    let (cell, contract) = (&row[dimension.column], &case.columns[dimension.column].contract);
    match dimension.unit {
        Some(unit) => truncated(cell, contract, unit, case.timezone),
        None => cell.clone(),
    }
}

/// The measure of a group's values; an error where a sum does not fit.
fn measure(function: &str, contract: &DataType, values: &[&Cell]) -> Result<String, ()> {
    let known: Vec<&Cell> = values.iter().filter(|v| ***v != Cell::Null).copied().collect();
    let scale = if let DataType::Decimal { scale, .. } = contract { *scale } else { 0 };
    let sum = || {
        let mut sum = 0i128;
        for cell in &known {
            let Cell::Exact(v, _) = cell else { panic!("no number: {cell:?}") };
            sum += v;
        }
        sum
    };
    let of = |found: Option<Cell>| Ok(found.map_or_else(|| "null".to_owned(), |cell| text_of(&cell)));
    match function {
        "count(*)" => Ok(exact_text(values.len() as i128, 0)),
        "count" => Ok(exact_text(known.len() as i128, 0)),
        "distinct" => {
            let different: BTreeSet<String> = known.iter().map(|cell| text_of(cell)).collect();
            Ok(exact_text(different.len() as i128, 0))
        }
        "sum" | "avg" if known.is_empty() => Ok("null".to_owned()),
        "sum" => {
            let limit = match contract {
                DataType::Decimal { precision, .. } => {
                    -ten(38.min(precision + 10)) + 1..=ten(38.min(precision + 10)) - 1
                }
                DataType::UInt(_) => 0..=i128::from(u64::MAX),
                _ => i128::from(i64::MIN)..=i128::from(i64::MAX),
            };
            if limit.contains(&sum()) { Ok(exact_text(sum(), scale)) } else { Err(()) }
        }
        "avg" => {
            let exact: f64 = refrain::run::decimal_text(sum(), scale).parse().unwrap();
            Ok(float_text(exact / known.len() as f64))
        }
        "min" => of(known
            .iter()
            .copied()
            .cloned()
            .reduce(|a, b| if order(&b, &a, false).is_lt() { b } else { a })
            .map(one_zero)),
        _ => of(known
            .iter()
            .copied()
            .cloned()
            .reduce(|a, b| if order(&b, &a, true).is_gt() { b } else { a })
            .map(one_zero)),
    }
}

fn one_zero(cell: Cell) -> Cell {
    if cell == Cell::Float(0.0) { Cell::Float(0.0) } else { cell }
}

/// The order of values; what is no number is never the one that is looked for.
fn order(a: &Cell, b: &Cell, greatest: bool) -> std::cmp::Ordering {
    match (a, b) {
        (Cell::Float(a), Cell::Float(b)) => {
            let worst = if greatest { std::cmp::Ordering::Less } else { std::cmp::Ordering::Greater };
            match (a.is_nan(), b.is_nan()) {
                (true, true) => std::cmp::Ordering::Equal,
                (true, false) => worst,
                (false, true) => worst.reverse(),
                (false, false) => a.partial_cmp(b).unwrap(),
            }
        }
        (Cell::Exact(a, _), Cell::Exact(b, _)) => a.cmp(b),
        (Cell::Bool(a), Cell::Bool(b)) => a.cmp(b),
        (Cell::Text(a), Cell::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Cell::Date(a), Cell::Date(b)) => a.cmp(b),
        (Cell::Time(a), Cell::Time(b)) => a.cmp(b),
        _ => panic!("{a:?} and {b:?}"),
    }
}

/// The partition of a row, if it has one.
pub(super) fn partition_of(case: &Case, row: &[Option<Cell>]) -> Option<String> {
    let folders = case.partition.iter().map(|(name, transform, at)| {
        let text = partition_text(transform, row[*at].as_ref()?, &case.columns[*at].contract, case.timezone)?;
        Some(format!("{name}={}", escaped(&text)))
    });
    folders.collect::<Option<Vec<_>>>().map(|folders| folders.join("/"))
}

/// The rows of a file in the contract's types.
pub(super) fn converted<'a>(case: &'a Case, file: &'a File) -> impl Iterator<Item = Vec<Option<Cell>>> + 'a {
    file.rows.iter().map(|row| {
        let cells = row.iter().zip(&file.physical).zip(&case.columns);
        cells.map(|((cell, physical), column)| convert(cell, physical, &column.contract)).collect()
    })
}

/// Judges and groups every row; all partitions are in scope for none.
pub(super) fn compute(case: &Case, scope: Option<&BTreeSet<String>>) -> Expected {
    let mut out = Expected::default();
    let mut groups: BTreeMap<(String, Vec<String>), Vec<Vec<Cell>>> = BTreeMap::new();
    for row in case.files.iter().flat_map(|file| converted(case, file)) {
        out.books[0] += 1;
        let Some(partition) = partition_of(case, &row) else {
            out.books[4] += 1;
            continue;
        };
        if scope.is_some_and(|scope| !scope.contains(&partition)) {
            out.books[2] += 1;
            *out.strays.entry(partition).or_default() += 1;
            continue;
        }
        let good: Option<Vec<Cell>> = row.into_iter().collect();
        let good = good.filter(|row| row.iter().zip(&case.columns).all(|(v, c)| !c.not_null || *v != Cell::Null));
        let Some(row) = good else {
            out.books[4] += 1;
            continue;
        };
        if case.filter.as_ref().is_some_and(|filter| (filter.holds)(&row) != Some(true)) {
            out.books[3] += 1;
            continue;
        }
        out.books[1] += 1;
        *out.source_rows.entry(partition.clone()).or_default() += 1;
        let dimensions = case.dimensions.iter().map(|d| text_of(&dimension(case, d, &row))).collect();
        groups.entry((partition, dimensions)).or_default().push(row);
    }
    for (key, rows) in groups {
        let mut measures = Vec::new();
        for (function, at) in &case.measures {
            let values: Vec<&Cell> = rows.iter().map(|row| &row[*at]).collect();
            let found = measure(function, &case.columns[*at].contract, &values);
            out.overflows |= found.is_err();
            measures.push(found.unwrap_or_default());
        }
        out.rows.insert(key, measures);
    }
    out
}
