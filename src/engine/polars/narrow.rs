//! Grouping where every key and every number that is added up is an integer of at most 64 bits.
//!
//! Then a batch of rows needs no row encoding, no column of verdicts and no place for what is not in scope: it is judged, counted
//! and added to the groups where it comes out of its file, in one pass. Other definitions go through [`query::group`]; both give the
//! same groups.

mod batch;
mod groups;
mod table;

use super::books::Books;
use super::files::LookedAt;
use super::lower::{inner_type, lower};
use super::query::{self, BAD, Carried, ROWS, VERDICT, Verdict, dimension_column, measure_column};
use super::scope::{value_name, value_type};
use super::{Listener, engine_error, not_read, union};
use crate::engine::EngineError;
use crate::pipeline::{Aggregate, DataType, Definition};
use ::polars::prelude as pl;
use ::polars::prelude::{IntoColumn, NewChunkedArray, OptFlags, lit};
use batch::Judge;
use groups::Groups;
use std::sync::Arc;
use table::{Accumulator, Group};

/// The column that says whether `where` is true for a row.
const KEPT: &str = "\u{1}kept";
/// Which dimensions of a group are null is kept in one word.
const MOST_DIMENSIONS: usize = 64;

/// Whether a definition's rows can be grouped so.
pub(super) fn fits(definition: &Definition) -> bool {
    let values = definition.partition.columns().iter().all(|column| value_type(column) == pl::DataType::Int64);
    let dimensions = definition.dimensions.iter().all(|dimension| is_word(&dimension.expr.data_type));
    let measures = definition.measures.iter().all(|measure| match &measure.aggregate {
        Aggregate::CountRows | Aggregate::Count(_) => true,
        Aggregate::Sum(x) | Aggregate::Avg(x) | Aggregate::Min(x) | Aggregate::Max(x) => is_word(&x.data_type),
        Aggregate::CountDistinct(_) => false,
    });
    values && dimensions && measures && definition.dimensions.len() <= MOST_DIMENSIONS
}

/// Whether values of a type are integers in the order of the type.
fn is_word(data_type: &DataType) -> bool {
    match inner_type(data_type) {
        pl::DataType::Boolean | pl::DataType::Date | pl::DataType::Datetime(..) => true,
        pl::DataType::UInt64 => false,
        inner => inner.is_integer() && inner != pl::DataType::Int128,
    }
}

/// A column of such a type as integers.
pub(super) fn words(column: &pl::Column) -> pl::PolarsResult<pl::Int64Chunked> {
    let physical = column.as_materialized_series().to_physical_repr().cast(&pl::DataType::Int64)?;
    Ok(physical.i64()?.rechunk().into_owned())
}

/// Reads the files and groups their rows in scope; enters all of them into the books.
pub(super) fn scan(
    definition: &Definition,
    files: &[LookedAt],
    books: &mut Books,
    listener: &dyn Listener,
    limit_bytes: Option<u64>,
) -> Result<Option<pl::DataFrame>, EngineError> {
    let groups = Arc::new(Groups::new(definition));
    let rows = union::of(definition, files, books, listener, limit_bytes, |file, index, stretch, count| {
        let carried = Carried { count: count.cloned(), ..Carried::default() };
        let rows = query::stretch(definition, file, stretch)?;
        let rows = query::prepared(definition, file, rows, carried);
        let (judge, groups) = (Judge::of(definition, file, index), Arc::clone(&groups));
        let take = move |rows: pl::DataFrame| {
            groups.add(&judge, &rows)?;
            Ok(rows.clear())
        };
        let needed = needed(definition, rows.may_be_bad);
        Ok(rows.frame.select(needed).map(take, OptFlags::all(), None, Some("narrow groups")))
    })?;
    let Some(rows) = rows else { return Ok(None) };
    rows.collect_with_engine(pl::Engine::Streaming).map_err(|error| not_read(files, &error))?;
    let mut entered = || -> pl::PolarsResult<pl::DataFrame> {
        books.enter(definition, files, &counted(definition, &groups)?)?;
        grouped(definition, &groups)
    };
    entered().map(Some).map_err(|e| engine_error(&e))
}

/// What is needed of rows that are prepared.
fn needed(definition: &Definition, may_be_bad: bool) -> Vec<pl::Expr> {
    let mut out: Vec<pl::Expr> = (0..definition.partition.columns().len()).map(|at| pl::col(value_name(at))).collect();
    // All files have the same columns.
    out.push(if may_be_bad { pl::col(BAD) } else { lit(false).alias(BAD) });
    if let Some(filter) = &definition.filter {
        out.push(lower(definition, filter).fill_null(lit(false)).alias(KEPT));
    }
    for (at, dimension) in definition.dimensions.iter().enumerate() {
        out.push(lower(definition, &dimension.expr).alias(dimension_column(at)));
    }
    for (at, measure) in definition.measures.iter().enumerate() {
        let value = match &measure.aggregate {
            Aggregate::CountRows | Aggregate::CountDistinct(_) => continue,
            Aggregate::Count(x) => lower(definition, x).is_not_null(),
            Aggregate::Sum(x) | Aggregate::Avg(x) | Aggregate::Min(x) | Aggregate::Max(x) => lower(definition, x),
        };
        out.push(value.alias(measure_column(at, "")));
    }
    out
}

/// What is added up of a measure; nothing where the rows are all it counts.
fn accumulator(aggregate: &Aggregate) -> Option<Accumulator> {
    match aggregate {
        Aggregate::CountRows | Aggregate::CountDistinct(_) => None,
        Aggregate::Count(_) => Some(Accumulator::Count),
        Aggregate::Sum(_) | Aggregate::Avg(_) => Some(Accumulator::Sum),
        Aggregate::Min(_) => Some(Accumulator::Least),
        Aggregate::Max(_) => Some(Accumulator::Greatest),
    }
}

/// How many rows were judged to be what, by partition: what the books take.
fn counted(definition: &Definition, groups: &Groups) -> pl::PolarsResult<pl::DataFrame> {
    let counts = groups.counts();
    let verdicts = counts.iter().map(|((code, _), _)| Some(*code));
    let mut columns = vec![pl::Int32Chunked::from_iter_options(VERDICT.into(), verdicts).into_column()];
    for at in 0..definition.partition.columns().len() {
        let values = counts.iter().map(|((_, values), _)| values.get(at).copied());
        columns.push(pl::Int64Chunked::from_iter_options(value_name(at), values).into_column());
    }
    let rows = counts.iter().map(|(_, rows)| i64::try_from(*rows).ok());
    columns.push(pl::Int64Chunked::from_iter_options(ROWS.into(), rows).into_column());
    pl::DataFrame::new(counts.len(), columns)
}

/// The groups in scope, in the columns of [`query::group`].
fn grouped(definition: &Definition, groups: &Groups) -> pl::PolarsResult<pl::DataFrame> {
    let shards = groups.all();
    let all = || shards.iter().flat_map(|shard| shard.groups());
    let height = all().count();
    let integers = |name: pl::PlSmallStr, value: &dyn Fn(&Group<'_>) -> Option<i64>| {
        pl::Int64Chunked::from_iter_options(name, all().map(|group| value(&group))).into_column()
    };
    let code = Verdict::InScope.code(0);
    let mut columns = vec![pl::Column::new_scalar(VERDICT.into(), pl::Scalar::from(code), height)];
    for at in 0..definition.partition.columns().len() {
        columns.push(integers(value_name(at), &|group| Some(group.value(at))));
    }
    for (at, dimension) in definition.dimensions.iter().enumerate() {
        let values = integers(dimension_column(at), &|group| group.dimension(at));
        columns.push(of_words(&values, &inner_type(&dimension.expr.data_type))?);
    }
    columns.push(integers(ROWS.into(), &|group| i64::try_from(group.rows()).ok()));
    let mut place = 0;
    for (at, measure) in definition.measures.iter().enumerate() {
        let Some(accumulator) = accumulator(&measure.aggregate) else { continue };
        let (here, name) = (place, |part| measure_column(at, part));
        columns.push(integers(name("count"), &|group| i64::try_from(group.count(here)).ok()));
        match accumulator {
            Accumulator::Count => {}
            Accumulator::Sum => {
                let sums = all().map(|group| Some(group.sum(here)));
                columns.push(pl::Int128Chunked::from_iter_options(name("sum"), sums).into_column());
            }
            Accumulator::Least | Accumulator::Greatest => {
                let values = integers(name("value"), &|group| group.extreme(here));
                let inner = measure.aggregate.argument().map_or(pl::DataType::Int64, |x| inner_type(&x.data_type));
                columns.push(of_words(&values, &inner)?);
            }
        }
        place += 1;
    }
    pl::DataFrame::new(height, columns)
}

/// The other way round: a column of integers in the type that it was.
fn of_words(words: &pl::Column, inner: &pl::DataType) -> pl::PolarsResult<pl::Column> {
    words.cast(&inner.to_physical())?.cast(inner)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

    use super::*;

    fn definition(partition: &str, dimension: &str, measure: &str) -> Definition {
        let columns = [
            "text = \"string\"",
            "at = \"datetime\"",
            "day = \"date\"",
            "zoned = \"datetime(UTC)\"",
            "small = \"uint32\"",
            "large = \"uint64\"",
            "cents = \"decimal(18,2)\"",
            "wide = \"decimal(19,2)\"",
            "real = \"float64\"",
        ];
        let text = format!(
            "name = \"t\"\n[source]\nformat = \"parquet\"\npath = \"a\"\n[source.columns]\n{}\n[partition]\np = {{ {partition} }}\n\
             [dimensions]\nd = \"{dimension}\"\n[measures]\nm = \"{measure}\"\n",
            columns.join("\n")
        );
        crate::pipeline::parse(&text, "test").unwrap()
    }

    #[test]
    fn definitions_of_integers_are_grouped_so_and_no_others() {
        let narrow = [
            ("month_of = \"at\"", "small", "count(*)"),
            ("value_of = \"cents\"", "cents", "sum(cents)"),
            ("day_of = \"zoned\"", "zoned", "max(zoned)"),
            ("value_of = \"day\"", "cents < 3", "avg(small)"),
            ("year_of = \"day\"", "day", "count(text)"),
        ];
        for (partition, dimension, measure) in narrow {
            assert!(fits(&definition(partition, dimension, measure)), "{partition} {dimension} {measure}");
        }
        let others = [
            ("value_of = \"text\"", "small", "count(*)"),
            ("value_of = \"large\"", "small", "count(*)"),
            ("month_of = \"at\"", "text", "count(*)"),
            ("month_of = \"at\"", "wide", "count(*)"),
            ("month_of = \"at\"", "large", "count(*)"),
            ("month_of = \"at\"", "small", "sum(wide)"),
            ("month_of = \"at\"", "small", "sum(large)"),
            ("month_of = \"at\"", "small", "max(text)"),
            ("month_of = \"at\"", "small", "min(real)"),
            ("month_of = \"at\"", "small", "count(distinct small)"),
        ];
        for (partition, dimension, measure) in others {
            assert!(!fits(&definition(partition, dimension, measure)), "{partition} {dimension} {measure}");
        }
    }
}
