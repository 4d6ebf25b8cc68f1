//! Groups by partition, their finished rows in order, and the rows of each partition.

use super::query::{self, VERDICT, Verdict};
use super::scope::{value_name, values_at};
use super::{engine_error, measures, order};
use crate::engine::EngineError;
use crate::partition::{PartitionKey, PartitionSpec, PartitionValue};
use crate::pipeline::Definition;
use ::polars::prelude as pl;
use ::polars::prelude::IntoLazy;

/// The groups of a partition, in any order, and in the columns of [`query::group`] when they are asked for.
pub(super) struct Groups {
    pub(super) key: PartitionKey,
    pub(super) count: usize,
    pub(super) frame: Box<dyn FnOnce() -> pl::PolarsResult<pl::DataFrame> + Send>,
}

/// The groups in scope by partition, in the order of their values.
pub(super) fn by_partition(definition: &Definition, grouped: &pl::DataFrame) -> pl::PolarsResult<Vec<Groups>> {
    let in_scope = pl::col(VERDICT).eq(pl::lit(Verdict::InScope as i32));
    let grouped = grouped.clone().lazy().filter(in_scope).collect()?;
    let names = (0..definition.partition.columns().len()).map(value_name);
    let values = names.map(|name| grouped.column(&name).cloned()).collect::<pl::PolarsResult<Vec<_>>>()?;
    let parts = split(definition, &order::sorted(&grouped, &values)?)?;
    let groups = |(key, part): (PartitionKey, pl::DataFrame)| Groups {
        key,
        count: part.height(),
        frame: Box::new(move || Ok(part)),
    };
    Ok(parts.into_iter().map(groups).collect())
}

/// The finished rows of a partition's groups, sorted by the dimensions: a total order, since the rows are groups.
pub(super) fn finished(definition: &Definition, grouped: &pl::DataFrame) -> Result<pl::DataFrame, EngineError> {
    let mut columns = Vec::new();
    for (at, dimension) in definition.dimensions.iter().enumerate() {
        let column = grouped.column(&query::dimension_column(at)).map_err(|e| engine_error(&e))?;
        columns.push(column.clone().with_name(dimension.name.as_str().into()));
    }
    let keys = columns.clone();
    for (at, measure) in definition.measures.iter().enumerate() {
        columns.push(measures::finish(measure, at, grouped)?);
    }
    let finish = || {
        let frame = pl::DataFrame::new(grouped.height(), columns)?;
        let mut frame = if keys.is_empty() { frame } else { order::sorted(&frame, &keys)? };
        frame.rechunk_mut();
        Ok(frame)
    };
    finish().map_err(|e| engine_error(&e))
}

/// The rows of each partition, without the partition values.
pub(super) fn split(
    definition: &Definition,
    rows: &pl::DataFrame,
) -> pl::PolarsResult<Vec<(PartitionKey, pl::DataFrame)>> {
    let spec = &definition.partition;
    let names: Vec<pl::PlSmallStr> = (0..spec.columns().len()).map(value_name).collect();
    let without_values = rows.drop_many(names);
    let mut out = Vec::new();
    let mut start = 0;
    while start < rows.height() {
        let values = values_at(rows, spec, start)?;
        let end = end_of(rows, spec, start, values.as_ref())?;
        if let Some(key) = values.and_then(|values| spec.key(&values)) {
            let mut part = without_values.slice(i64::try_from(start).unwrap_or(i64::MAX), end - start);
            part.rechunk_mut();
            out.push((key, part));
        }
        start = end;
    }
    Ok(out)
}

/// The first row after `start` with other partition values, by bisection: rows are sorted by them.
fn end_of(
    rows: &pl::DataFrame,
    spec: &PartitionSpec,
    start: usize,
    values: Option<&Vec<PartitionValue>>,
) -> pl::PolarsResult<usize> {
    let (mut same, mut other) = (start, rows.height());
    while other - same > 1 {
        let middle = same + (other - same) / 2;
        if values_at(rows, spec, middle)?.as_ref() == values { same = middle } else { other = middle }
    }
    Ok(other)
}
