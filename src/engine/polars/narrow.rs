//! Grouping where every key and every number that is added up is an integer of at most 64 bits.
//!
//! Then a batch of rows needs no row encoding, no column of verdicts and no place for what is not in scope: it is judged, counted
//! and added to the groups where it comes out of its file, in one pass. Other definitions go through [`query::group`]; both give the
//! same groups.

mod batch;
mod cells;
mod doubtful;
mod flags;
mod groups;
mod table;

use super::books::Books;
use super::counts::FileCount;
use super::files::LookedAt;
use super::lower::{inner_type, lower};
use super::parts::{self, Part};
use super::query::{self, BAD, Carried, ROWS, Reading, VERDICT, dimension_column, measure_column};
use super::scope::{value_name, value_type};
use super::{Listener, engine_error, not_read, split, union};
use crate::engine::EngineError;
use crate::partition::PartitionValue;
use crate::pipeline::{Aggregate, DataType, Definition, Measure};
use ::polars::prelude as pl;
use ::polars::prelude::{IntoColumn, IntoLazy, NewChunkedArray, lit};
use batch::{Counts, Judge};
use groups::{Groups, Place, Taken};
use std::collections::BTreeMap;
use std::sync::Arc;
use table::{Accumulator, Group};

pub(super) use doubtful::settle;

/// The column that says whether `where` is true for a row.
const KEPT: &str = "\u{1}kept";
/// Which dimensions of a group are null is kept in one word.
const MOST_DIMENSIONS: usize = 64;

/// Whether a definition's rows can be grouped so.
pub(super) fn fits(definition: &Definition) -> bool {
    let dimensions = definition.dimensions.iter().all(|dimension| is_word(&dimension.expr.data_type));
    let measures = definition.measures.iter().all(|measure| match &measure.aggregate {
        Aggregate::CountRows | Aggregate::Count(_) => true,
        Aggregate::Sum(x) | Aggregate::Avg(x) | Aggregate::Min(x) | Aggregate::Max(x) => is_word(&x.data_type),
        Aggregate::CountDistinct(_) => false,
    });
    has_words(definition) && dimensions && measures && definition.dimensions.len() <= MOST_DIMENSIONS
}

/// Whether its partition values are integers of 64 bits.
fn has_words(definition: &Definition) -> bool {
    definition.partition.columns().iter().all(|column| value_type(column) == pl::DataType::Int64)
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
) -> Result<Vec<split::Groups>, EngineError> {
    let mut readings: Vec<Reading> = files.iter().map(query::reading).collect();
    doubtful::choose(definition, files, &mut readings);
    let mut counts = Vec::new();
    for (file, reading) in files.iter().zip(&readings) {
        counts.push(union::counted(definition, file, reading, books, listener));
    }
    let groups = Groups::new(definition);
    parts::each(parts::of(files, &readings, limit_bytes), limit_bytes, |part| {
        let (Some(file), Some(count)) = (files.get(part.file), counts.get(part.file)) else { return Ok(()) };
        add(definition, file, part, count.as_deref(), &groups).map_err(|error| not_read(files, &error))
    })?;
    let counted = counted(definition, &groups.counts()).and_then(|counted| books.enter(definition, files, &counted));
    counted.map_err(|e| engine_error(&e))?;
    Ok(by_partition(definition, groups.take()))
}

/// Counts the rows of a part, and adds those in scope to their groups.
fn add(
    definition: &Definition,
    file: &LookedAt,
    part: &Part,
    count: Option<&FileCount>,
    groups: &Groups,
) -> pl::PolarsResult<()> {
    let judge = Judge::of(definition, file, part.file);
    let without = if part.is_doubtful { doubtful::without(definition, file, &judge, part)? } else { None };
    if let Some(counts) = without {
        groups.count(&counts);
        count.iter().for_each(|count| count.add(part.rows));
        return Ok(());
    }
    parts::read(definition, file, part, query::columns_of_rows(definition, file), |rows| {
        let height = rows.height() as u64;
        let rows = query::prepared(definition, file, rows.lazy(), Carried::default());
        let needed = needed(definition, rows.may_be_bad);
        groups.add(&judge, &rows.frame.select_seq(needed).collect()?)?;
        count.iter().for_each(|count| count.add(height));
        Ok(())
    })
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
fn counted(definition: &Definition, counts: &Counts) -> pl::PolarsResult<pl::DataFrame> {
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

/// The groups by partition, in the order of their values.
fn by_partition(definition: &Definition, taken: Taken) -> Vec<split::Groups> {
    let values = definition.partition.columns().len();
    let mut places: BTreeMap<Vec<i64>, Vec<Place>> = BTreeMap::new();
    let mut last: Option<(Vec<i64>, Vec<Place>)> = None;
    for (place, group) in taken.all() {
        match &mut last {
            Some((of, places)) if (0..values).all(|at| of[at] == group.value(at)) => places.push(place),
            _ => {
                let of: Vec<i64> = (0..values).map(|at| group.value(at)).collect();
                if let Some((of, found)) = last.take() {
                    places.insert(of, found);
                }
                let mut found = places.remove(&of).unwrap_or_default();
                found.push(place);
                last = Some((of, found));
            }
        }
    }
    places.extend(last);
    let (taken, dimensions, measures) =
        (Arc::new(taken), Arc::new(dimension_types(definition)), Arc::new(measure_types(definition)));
    let of_partition = |(values, places): (Vec<i64>, Vec<Place>)| {
        let values: Vec<PartitionValue> = values.into_iter().map(|v| PartitionValue::Int(i128::from(v))).collect();
        let (taken, dimensions, measures) = (Arc::clone(&taken), Arc::clone(&dimensions), Arc::clone(&measures));
        let count = places.len();
        let frame = move || frame(&taken, &places, &dimensions, &measures);
        Some(split::Groups { key: definition.partition.key(&values)?, count, frame: Box::new(frame) })
    };
    places.into_iter().filter_map(of_partition).collect()
}

fn dimension_types(definition: &Definition) -> Vec<pl::DataType> {
    definition.dimensions.iter().map(|dimension| inner_type(&dimension.expr.data_type)).collect()
}

/// What is added up of each measure, and the type that it is of.
fn measure_types(definition: &Definition) -> Vec<Option<(Accumulator, pl::DataType)>> {
    let of = |measure: &Measure| {
        let inner = measure.aggregate.argument().map_or(pl::DataType::Int64, |x| inner_type(&x.data_type));
        Some((accumulator(&measure.aggregate)?, inner))
    };
    definition.measures.iter().map(of).collect()
}

/// The groups at some places, in the columns of [`query::group`]. Each group is looked at once: they are in memory group by group.
fn frame(
    taken: &Taken,
    places: &[Place],
    dimensions: &[pl::DataType],
    measures: &[Option<(Accumulator, pl::DataType)>],
) -> pl::PolarsResult<pl::DataFrame> {
    let mut rows = Vec::with_capacity(places.len());
    let mut of_dimensions: Vec<Options> = dimensions.iter().map(|_| Options::new(places.len())).collect();
    let accumulated = measures.iter().flatten();
    let mut of_measures: Vec<Gathered> = accumulated.map(|(of, _)| Gathered::new(*of, places.len())).collect();
    for place in places {
        let group = taken.group(*place);
        rows.push(group.rows().cast_signed());
        of_dimensions.iter_mut().enumerate().for_each(|(at, values)| values.push(group.dimension(at)));
        of_measures.iter_mut().enumerate().for_each(|(at, gathered)| gathered.push(&group, at));
    }
    let mut columns = Vec::new();
    for (at, (values, data_type)) in of_dimensions.into_iter().zip(dimensions).enumerate() {
        columns.push(of_words(&values.column(dimension_column(at)), data_type)?);
    }
    columns.push(integers(ROWS.into(), rows));
    let with_columns = measures.iter().enumerate().filter_map(|(at, measure)| Some((at, &measure.as_ref()?.1)));
    for ((at, data_type), gathered) in with_columns.zip(of_measures) {
        let name = |part| measure_column(at, part);
        columns.push(integers(name("count"), gathered.counts));
        columns.push(match gathered.values {
            Values::None => continue,
            Values::Sums(sums) => pl::Int128Chunked::from_vec(name("sum"), sums).into_column(),
            Values::Extremes(values) => of_words(&values.column(name("value")), data_type)?,
        });
    }
    pl::DataFrame::new(places.len(), columns)
}

/// What groups have of a measure, group by group.
struct Gathered {
    counts: Vec<i64>,
    values: Values,
}

enum Values {
    None,
    Sums(Vec<i128>),
    Extremes(Options),
}

impl Gathered {
    fn new(accumulator: Accumulator, groups: usize) -> Self {
        let values = match accumulator {
            Accumulator::Count => Values::None,
            Accumulator::Sum => Values::Sums(Vec::with_capacity(groups)),
            Accumulator::Least | Accumulator::Greatest => Values::Extremes(Options::new(groups)),
        };
        Self { counts: Vec::with_capacity(groups), values }
    }

    fn push(&mut self, group: &Group<'_>, number: usize) {
        self.counts.push(group.count(number).cast_signed());
        match &mut self.values {
            Values::None => {}
            Values::Sums(sums) => sums.push(group.sum(number)),
            Values::Extremes(values) => values.push(group.extreme(number)),
        }
    }
}

fn integers(name: pl::PlSmallStr, values: Vec<i64>) -> pl::Column {
    pl::Int64Chunked::from_vec(name, values).into_column()
}

/// Integers of which few are null, most often none.
struct Options {
    values: Vec<i64>,
    nulls: Vec<usize>,
}

impl Options {
    fn new(groups: usize) -> Self {
        Self { values: Vec::with_capacity(groups), nulls: Vec::new() }
    }

    fn push(&mut self, value: Option<i64>) {
        if value.is_none() {
            self.nulls.push(self.values.len());
        }
        self.values.push(value.unwrap_or_default());
    }

    fn column(self, name: pl::PlSmallStr) -> pl::Column {
        if self.nulls.is_empty() {
            return integers(name, self.values);
        }
        let mut values: Vec<Option<i64>> = self.values.into_iter().map(Some).collect();
        for null in self.nulls {
            values[null] = None;
        }
        pl::Int64Chunked::from_iter_options(name, values.into_iter()).into_column()
    }
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
