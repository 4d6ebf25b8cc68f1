//! Partition values of rows, and which of them a file's rows may go to.

use super::lower::balanced;
use super::time;
use crate::partition::{PartitionColumn, PartitionKey, PartitionSpec, PartitionValue, Transform, ValueKind};
use crate::pipeline::sources::Serves;
use crate::pipeline::{DataType, Definition};
use crate::run::Scope;
use ::polars::prelude as pl;
use ::polars::prelude::{IntoColumn, NamedFrom, lit};
use std::collections::{BTreeMap, BTreeSet};

/// The name of the n-th partition column inside the engine.
pub(super) fn value_name(at: usize) -> pl::PlSmallStr {
    // A control character keeps the name apart from those of the contract.
    format!("\u{1}p{at}").into()
}

/// The type of a partition column's values inside the engine: text, or an integer of 64 or 128 bits.
pub(super) fn value_type(column: &PartitionColumn) -> pl::DataType {
    match column.kind {
        _ if column.transform != Transform::ValueOf => pl::DataType::Int64,
        ValueKind::Text => pl::DataType::String,
        ValueKind::Int { max, .. } if max > i128::from(i64::MAX) => pl::DataType::Int128,
        ValueKind::Decimal { precision, .. } if precision > 18 => pl::DataType::Int128,
        _ => pl::DataType::Int64,
    }
}

/// A partition column's value, null where a row has none (see [`PartitionValue`]).
pub(super) fn value_of(definition: &Definition, column: &PartitionColumn, data_type: &DataType) -> pl::Expr {
    let source = pl::col(column.source.as_str());
    let to = value_type(column);
    let wall = |source| time::wall_clock(source, data_type, definition.timezone);
    match (column.transform, data_type) {
        (Transform::ValueOf, DataType::String) => nameable(source, column),
        // The day and the year bound the calendar, as for the other time transforms.
        (Transform::ValueOf, DataType::Date) => time::period_of(wall(source), Transform::DayOf),
        (Transform::ValueOf, DataType::Datetime(_)) => {
            let wall = wall(source);
            let known = time::period_of(wall.clone(), Transform::DayOf).is_not_null();
            pl::when(known).then(wall.to_physical()).otherwise(lit(pl::Null {}))
        }
        (Transform::ValueOf, _) => source.cast(to),
        (transform, _) => time::period_of(wall(source), transform),
    }
}

/// Texts that name a folder; the others become null.
fn nameable(source: pl::Expr, column: &PartitionColumn) -> pl::Expr {
    let spec = PartitionSpec::new(vec![column.clone()]);
    let room = 255usize.saturating_sub(column.name.len() + 1) / 3;
    source.map(
        move |texts| {
            let has_name = |text: &str| {
                let plain = !text.is_empty()
                    && text.len() <= room
                    && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.');
                plain || spec.key(&[PartitionValue::Text(text.to_owned())]).is_some()
            };
            let kept = texts.as_materialized_series().str()?.iter().map(|t| t.filter(|t| has_name(t)));
            let kept: pl::StringChunked = pl::NewChunkedArray::from_iter_options(texts.name().clone(), kept);
            Ok(kept.into_column())
        },
        super::lower::keep_type,
    )
}

/// The partitions that a file's rows may go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Allowed {
    /// All of them.
    All,
    /// Those with one of these values in these columns.
    Values { columns: Vec<usize>, values: BTreeSet<Vec<PartitionValue>> },
}

impl Allowed {
    /// What `serves` allows in `scope`.
    pub(super) fn of(spec: &PartitionSpec, scope: &Scope, serves: &Serves) -> Self {
        let named = |keys: &[PartitionKey]| Allowed::Values {
            columns: (0..spec.columns().len()).collect(),
            values: keys.iter().filter_map(|key| spec.values(key)).collect(),
        };
        match (scope, serves) {
            (_, Serves::Keys(keys)) | (Scope::Partitions(keys), Serves::Scope) => named(keys),
            (Scope::Full, Serves::Scope) => Allowed::All,
            (_, Serves::Times(times)) => {
                let columns: Vec<usize> = match times.first() {
                    Some(first) => (0..first.len()).filter(|i| first.get(*i).is_some_and(Option::is_some)).collect(),
                    None => Vec::new(),
                };
                let values = times.iter().map(|t| t.iter().flatten().cloned().collect()).collect();
                Allowed::Values { columns, values }
            }
        }
    }

    /// Whether a row with these partition values may go to its partition.
    pub(super) fn contains(&self, row: &[PartitionValue]) -> bool {
        match self {
            Allowed::All => true,
            Allowed::Values { columns, values } => {
                let part: Option<Vec<PartitionValue>> = columns.iter().map(|i| row.get(*i).cloned()).collect();
                part.is_some_and(|part| values.contains(&part))
            }
        }
    }

    /// The condition on the partition columns, none where all are allowed.
    pub(super) fn condition(&self) -> Option<pl::Expr> {
        match self {
            Allowed::All => None,
            Allowed::Values { columns, values } => {
                let rows: BTreeSet<&[PartitionValue]> = values.iter().map(Vec::as_slice).collect();
                Some(condition(columns, &rows))
            }
        }
    }
}

/// Rows by their first value, first values with the same rest together: a set of keys that is a product (all hours of
/// some days) becomes one term.
fn condition(columns: &[usize], rows: &BTreeSet<&[PartitionValue]>) -> pl::Expr {
    let Some((column, others)) = columns.split_first() else { return lit(!rows.is_empty()) };
    let mut rests: BTreeMap<&PartitionValue, BTreeSet<&[PartitionValue]>> = BTreeMap::new();
    for row in rows {
        if let Some((first, rest)) = row.split_first() {
            rests.entry(first).or_default().insert(rest);
        }
    }
    let mut firsts: BTreeMap<BTreeSet<&[PartitionValue]>, Vec<&PartitionValue>> = BTreeMap::new();
    for (first, rest) in rests {
        firsts.entry(rest).or_default().push(first);
    }
    let terms = firsts
        .into_iter()
        .map(|(rest, firsts)| {
            let here = is_one_of(&pl::col(value_name(*column)), &firsts);
            if others.is_empty() { here } else { here.and(condition(others, &rest)) }
        })
        .collect();
    balanced(terms, pl::Expr::or).unwrap_or_else(|| lit(false))
}

/// Sorted values as runs of neighbouring integers, or a set.
fn is_one_of(column: &pl::Expr, values: &[&PartitionValue]) -> pl::Expr {
    let mut runs: Vec<(i128, i128)> = Vec::new();
    let mut texts: Vec<&str> = Vec::new();
    for value in values {
        match value {
            PartitionValue::Text(text) => texts.push(text),
            PartitionValue::Int(v) => match runs.last_mut() {
                Some((_, last)) if *last + 1 == *v => *last = *v,
                _ => runs.push((*v, *v)),
            },
        }
    }
    let number = |v: i128| match i64::try_from(v) {
        Ok(v) => lit(v),
        Err(_) => lit(pl::Scalar::new(pl::DataType::Int128, pl::AnyValue::Int128(v))),
    };
    let mut terms: Vec<pl::Expr> = runs
        .into_iter()
        .map(|(first, last)| match first == last {
            true => column.clone().eq(number(first)),
            false => column.clone().gt_eq(number(first)).and(column.clone().lt_eq(number(last))),
        })
        .collect();
    match texts.as_slice() {
        [] => {}
        [one] => terms.push(column.clone().eq(lit(*one))),
        many => {
            let set = lit(pl::Series::new("".into(), many)).implode(false);
            terms.push(column.clone().is_in(set, false));
        }
    }
    balanced(terms, pl::Expr::or).unwrap_or_else(|| lit(false))
}

/// The partition values of row `at` of a frame with the value columns; none where one is null.
pub(super) fn values_at(
    frame: &pl::DataFrame,
    spec: &PartitionSpec,
    at: usize,
) -> pl::PolarsResult<Option<Vec<PartitionValue>>> {
    let mut out = Vec::with_capacity(spec.columns().len());
    for i in 0..spec.columns().len() {
        out.push(match frame.column(&value_name(i))?.get(at)? {
            pl::AnyValue::Int64(v) => PartitionValue::Int(i128::from(v)),
            pl::AnyValue::Int128(v) => PartitionValue::Int(v),
            pl::AnyValue::String(text) => PartitionValue::Text(text.to_owned()),
            pl::AnyValue::StringOwned(text) => PartitionValue::Text(text.to_string()),
            _ => return Ok(None),
        });
    }
    Ok(Some(out))
}
