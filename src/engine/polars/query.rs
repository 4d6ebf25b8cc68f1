//! The query: every row judged once, and grouped by what was judged, its partition and its dimensions.

use super::contract::Found;
use super::counts::FileCount;
use super::exact::{map_i128, power_of_ten};
use super::files::LookedAt;
use super::lower::{balanced, keep_type, lower};
use super::place::Placed;
use super::scope::{value_name, value_of};
use crate::partition::PartitionValue;
use crate::pipeline::url::shown;
use crate::pipeline::{Aggregate, Column, Definition, Expr, Reason, SOURCE_FILE, SOURCE_LINE};
use ::polars::io::HiveOptions;
use ::polars::prelude as pl;
use ::polars::prelude::{IntoLazy, lit};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The column of verdicts: [`Verdict::code`].
pub(super) const VERDICT: &str = "\u{1}verdict";
/// The column with the source rows of a group.
pub(super) const ROWS: &str = "\u{1}rows";
/// The column with a row's number in its file, from 0. Where no other column of a file is read, it says how many there are.
pub(super) const ROW: &str = "\u{1}row";
/// Of a text file: whether a row's line is malformed or a value of it does not fit.
pub(super) const BAD_LINE: &str = "\u{1}bad line";
/// Of a text file: a row's line, from 1.
pub(super) const LINE: &str = "\u{1}line";
/// Whether a row is to be rejected, where one may be.
pub(super) const BAD: &str = "\u{1}bad";

/// What a row was judged to be, in the order of judgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It has no partition value. Counted by file.
    Nowhere,
    /// Its partition is out of scope, or its file is none of its partition's. Counted by file.
    OutOfScope,
    /// A value does not fit its type, or a null is where none may be. Counted by file too.
    Rejected,
    /// `where` is not true for it. Counted by file too where such rows are kept apart.
    Filtered,
    /// It goes into its partition.
    InScope,
}

impl Verdict {
    const ALL: [Verdict; 5] =
        [Verdict::Nowhere, Verdict::OutOfScope, Verdict::Rejected, Verdict::Filtered, Verdict::InScope];

    /// The verdict and the file, as one number: grouping by one column is cheaper.
    pub(super) fn code(self, file: usize) -> i32 {
        i32::try_from(file).unwrap_or(i32::MAX / 8) * 8 + self as i32
    }

    /// The code of a row of the `index`-th file.
    pub(super) fn code_in(self, definition: &Definition, index: usize) -> i32 {
        self.code(if self.is_by_file(definition) { index } else { 0 })
    }

    /// Whether rows of this verdict are counted by their file.
    fn is_by_file(self, definition: &Definition) -> bool {
        match self {
            Verdict::Nowhere | Verdict::OutOfScope | Verdict::Rejected => true,
            Verdict::Filtered => definition.quarantine.keeps(Reason::Filtered),
            Verdict::InScope => false,
        }
    }

    /// The verdict and the file of a code.
    pub(super) fn of_code(code: i32) -> Option<(Self, usize)> {
        let verdict = Self::ALL.get(usize::try_from(code % 8).ok()?)?;
        Some((*verdict, usize::try_from(code / 8).ok()?))
    }
}

/// The names of a measure's columns in the grouped frame.
pub(super) fn measure_column(at: usize, part: &str) -> pl::PlSmallStr {
    format!("\u{1}m{at}{part}").into()
}

/// The name of the column that says whether the value of a column of the contract does not fit.
pub(super) fn bad_name(at: usize) -> pl::PlSmallStr {
    format!("\u{1}bad {at}").into()
}

/// The name of a dimension's column in the grouped frame.
pub(super) fn dimension_column(at: usize) -> pl::PlSmallStr {
    format!("\u{1}d{at}").into()
}

/// What a scan found out of a file before it reads.
#[derive(Default)]
pub(super) struct Reading {
    /// Offset and length of the stretches to read.
    pub(super) stretches: Vec<(u64, u64)>,
    /// Rows out of scope by their partition values.
    pub(super) placed: Vec<(Vec<PartitionValue>, u64)>,
    /// Row groups that may have no row of the scope: statistics name partitions on both sides of it.
    pub(super) doubtful: Vec<(u64, u64)>,
}

/// Cuts a file to the row groups that may hold rows of the scope.
pub(super) fn reading(file: &LookedAt) -> Reading {
    let is_out = |values: &[PartitionValue]| !file.allowed.contains(values);
    let mut out = Reading::default();
    let mut offset = 0;
    for (rows, place) in file.row_groups.iter().zip(&file.placed) {
        match place {
            Placed::In(values) if is_out(values) => out.placed.push((values.clone(), *rows)),
            Placed::Between(least, greatest) if is_out(least) && is_out(greatest) => {
                out.doubtful.push((offset, *rows));
            }
            _ => match out.stretches.last_mut() {
                Some((start, length)) if *start + *length == offset => *length += rows,
                _ => out.stretches.push((offset, *rows)),
            },
        }
        offset += rows;
    }
    out.stretches.retain(|(_, rows)| *rows > 0);
    out
}

/// The judged rows of a stretch of a file, all files alike in schema.
pub(super) fn scan(
    definition: &Definition,
    file: &LookedAt,
    index: usize,
    rows: (u64, u64),
    count: Option<&Arc<FileCount>>,
) -> pl::PolarsResult<pl::LazyFrame> {
    let carried = Carried { count: count.cloned(), ..Carried::default() };
    Ok(judged(definition, file, index, stretch(definition, file, rows)?, carried))
}

/// The rows of a stretch of a file as they are.
pub(super) fn stretch(
    definition: &Definition,
    file: &LookedAt,
    (offset, length): (u64, u64),
) -> pl::PolarsResult<pl::LazyFrame> {
    let frame = open(file, is_numbered(definition, file))?;
    Ok(match length < file.rows() {
        true => frame.slice(i64::try_from(offset).unwrap_or(i64::MAX), index_size(length)),
        false => frame,
    })
}

/// The rows of a file as they are, with their numbers where asked.
pub(super) fn open(file: &LookedAt, numbered: bool) -> pl::PolarsResult<pl::LazyFrame> {
    // Folders named like key=value are no columns: what a file says of itself counts.
    let args = pl::ScanArgsParquet {
        row_index: numbered.then(|| pl::RowIndex { name: ROW.into(), offset: 0 }),
        glob: false,
        cache: false,
        use_statistics: false,
        hive_options: HiveOptions::new_disabled(),
        ..Default::default()
    };
    pl::LazyFrame::scan_parquet(pl::PlRefPath::new(file.path.to_string_lossy().as_ref()), args)
}

pub(super) fn index_size(rows: u64) -> pl::IdxSize {
    pl::IdxSize::try_from(rows).unwrap_or(pl::IdxSize::MAX)
}

/// What rows carry through the judgement beside what it needs.
#[derive(Default)]
pub(super) struct Carried {
    /// Counts them as they pass.
    pub(super) count: Option<Arc<FileCount>>,
    /// Columns of the file, under names of their own.
    pub(super) columns: Vec<pl::Expr>,
    /// Those names.
    pub(super) names: Vec<pl::PlSmallStr>,
    /// Whether they come with what is wrong with each column of the contract, under [`bad_name`].
    pub(super) with_bad: bool,
}

/// The judged rows of a frame over a file.
pub(super) fn judged(
    definition: &Definition,
    file: &LookedAt,
    index: usize,
    frame: pl::LazyFrame,
    carried: Carried,
) -> pl::LazyFrame {
    let Prepared { frame, kept, may_be_bad } = prepared(definition, file, frame, carried);
    let mut judged = vec![verdict(definition, file, index, may_be_bad).alias(VERDICT)];
    judged.extend((0..definition.partition.columns().len()).map(|i| pl::col(value_name(i))));
    judged.extend(kept);
    frame.select(judged)
}

/// Rows with all that the judgement needs: their partition values, the columns of the contract, and whether they are [`BAD`].
pub(super) struct Prepared {
    pub(super) frame: pl::LazyFrame,
    /// What they have beside the partition values, for whoever takes them.
    kept: Vec<pl::Expr>,
    /// Whether there is [`BAD`].
    pub(super) may_be_bad: bool,
}

/// Prepares the rows of a frame over a file.
pub(super) fn prepared(definition: &Definition, file: &LookedAt, frame: pl::LazyFrame, carried: Carried) -> Prepared {
    let Brought { mut columns, bad, extras } = brought(definition, file);
    let Carried { count, columns: more, mut names, with_bad } = carried;
    columns.extend(more);
    let mut values = partition_values(definition, count);
    let needed = definition.source.columns.iter().filter(|column| definition.needs(&column.name));
    let of_contract = needed.map(|column| column.name.as_str());
    let mut kept: Vec<pl::Expr> = of_contract.chain(extras.iter().copied()).map(pl::col).collect();
    kept.extend(names.drain(..).map(pl::col));
    values.extend(kept.iter().cloned());
    if with_bad {
        for (at, is_bad) in &bad {
            values.push(is_bad.clone().alias(bad_name(*at)));
            kept.push(pl::col(bad_name(*at)));
        }
    }
    let mut bad: Vec<pl::Expr> = bad.into_iter().map(|(_, is_bad)| is_bad).collect();
    if file.is_text() {
        bad.push(pl::col(BAD_LINE));
    }
    let any_bad = balanced(bad, pl::Expr::or);
    let may_be_bad = any_bad.is_some();
    values.extend(any_bad.map(|any_bad| any_bad.alias(BAD)));
    Prepared { frame: frame.select_seq(columns).select_seq(values), kept, may_be_bad }
}

/// The partition values of the rows of a frame over a file, and nothing else.
pub(super) fn values(definition: &Definition, file: &LookedAt, frame: pl::LazyFrame) -> pl::LazyFrame {
    let values = partition_values(definition, None);
    let columns = definition.source.columns.iter().zip(&file.found).filter_map(|(column, found)| {
        let conversion = found.convert(column).filter(|_| is_of_partition(definition, column));
        Some(conversion?.expr.alias(column.name.as_str()))
    });
    let mut columns: Vec<pl::Expr> = columns.collect();
    if !has_columns(file) {
        columns.push(pl::col(ROW));
    }
    frame.select_seq(columns).select_seq(values)
}

/// The columns of a file that [`values`] needs.
pub(super) fn columns_of_values(definition: &Definition, file: &LookedAt) -> Vec<String> {
    columns_of(definition, file, |column, _| is_of_partition(definition, column))
}

/// The columns of a file that [`prepared`] needs.
pub(super) fn columns_of_rows(definition: &Definition, file: &LookedAt) -> Vec<String> {
    let mut out = columns_of(definition, file, |column, found| is_brought(definition, column, found));
    if file.is_text() {
        out.push(BAD_LINE.to_owned());
        out.extend(definition.uses_source_line().then(|| LINE.to_owned()));
    }
    out
}

fn columns_of(definition: &Definition, file: &LookedAt, is_needed: impl Fn(&Column, &Found) -> bool) -> Vec<String> {
    let columns = definition.source.columns.iter().zip(&file.found);
    let needed = columns.filter(|(column, found)| is_needed(column, found));
    let names: BTreeSet<&str> = needed.filter_map(|(_, found)| found.name()).collect();
    names.into_iter().map(str::to_owned).collect()
}

fn is_of_partition(definition: &Definition, column: &Column) -> bool {
    definition.partition.columns().iter().any(|p| p.source == column.name)
}

/// Whether a column of the contract is needed, or a value of it may reject its row.
fn is_brought(definition: &Definition, column: &Column, found: &Found) -> bool {
    column.not_null || definition.needs(&column.name) || found.convert(column).is_some_and(|found| found.lossy)
}

/// The partition values of rows over the columns of the contract.
fn partition_values(definition: &Definition, count: Option<Arc<FileCount>>) -> Vec<pl::Expr> {
    let columns = definition.partition.columns().iter().enumerate();
    let mut values: Vec<pl::Expr> = columns
        .filter_map(|(i, p)| {
            let contract = definition.column(&p.source)?;
            Some(value_of(definition, p, &contract.data_type).alias(value_name(i)))
        })
        .collect();
    if let Some((first, count)) = values.first_mut().zip(count) {
        // Rows are counted where each passes once.
        *first = first.clone().map(
            move |column| {
                count.add(column.len() as u64);
                Ok(column)
            },
            keep_type,
        );
    }
    values
}

/// A file's columns brought to the contract.
struct Brought {
    columns: Vec<pl::Expr>,
    /// For each column of the contract that may have one, by its place: whether its value does not fit.
    bad: Vec<(usize, pl::Expr)>,
    /// The columns that rows come with beside those of the contract.
    extras: Vec<&'static str>,
}

fn has_columns(file: &LookedAt) -> bool {
    file.found.iter().any(|found| !matches!(found, Found::Constant(_)))
}

pub(super) fn is_numbered(definition: &Definition, file: &LookedAt) -> bool {
    (definition.uses_source_line() && !file.is_text()) || !has_columns(file)
}

fn brought(definition: &Definition, file: &LookedAt) -> Brought {
    let mut out = Brought { columns: Vec::new(), bad: Vec::new(), extras: Vec::new() };
    for (at, (column, found)) in definition.source.columns.iter().zip(&file.found).enumerate() {
        let name = column.name.as_str();
        let Some(conversion) = found.convert(column).filter(|_| is_brought(definition, column, found)) else {
            continue;
        };
        out.columns.push(conversion.expr.alias(name));
        if column.not_null {
            out.bad.push((at, pl::col(name).is_null()));
        } else if conversion.lossy {
            let was_null = format!("\u{1}null {name}");
            out.columns.push(found.is_null().alias(was_null.as_str()));
            out.bad.push((at, pl::col(name).is_null().and(pl::col(was_null.as_str()).not())));
        }
    }
    if definition.uses_source_file() {
        out.columns.push(lit(shown(&file.planned.path)).alias(SOURCE_FILE));
        out.extras.push(SOURCE_FILE);
    }
    if file.is_text() {
        out.columns.push(pl::col(BAD_LINE));
    }
    if definition.uses_source_line() {
        out.columns.push(line_of(file).alias(SOURCE_LINE));
        out.extras.push(SOURCE_LINE);
    }
    if !has_columns(file) {
        out.columns.push(pl::col(ROW));
    }
    out
}

/// A row's line in its file, or its number, from 1.
pub(super) fn line_of(file: &LookedAt) -> pl::Expr {
    match file.is_text() {
        true => pl::col(LINE),
        false => pl::col(ROW).cast(pl::DataType::Int64) + lit(1i64),
    }
}

fn verdict(definition: &Definition, file: &LookedAt, index: usize, may_be_bad: bool) -> pl::Expr {
    let code = |verdict: Verdict| lit(verdict.code_in(definition, index));
    let mut out = code(Verdict::InScope);
    if let Some(filter) = &definition.filter {
        let kept = lower(definition, filter).fill_null(lit(false));
        out = pl::when(kept).then(out).otherwise(code(Verdict::Filtered));
    }
    if may_be_bad {
        out = pl::when(pl::col(BAD)).then(code(Verdict::Rejected)).otherwise(out);
    }
    if let Some(condition) = file.allowed.condition() {
        out = pl::when(condition).then(out).otherwise(code(Verdict::OutOfScope));
    }
    let nowhere = (0..definition.partition.columns().len()).map(|i| pl::col(value_name(i)).is_null()).collect();
    match balanced(nowhere, pl::Expr::or) {
        Some(nowhere) => pl::when(nowhere).then(code(Verdict::Nowhere)).otherwise(out),
        None => out,
    }
}

/// Groups judged rows: by verdict, partition and, for rows in scope, dimensions.
pub(super) fn group(definition: &Definition, judged: pl::LazyFrame) -> pl::LazyFrame {
    let in_scope = pl::col(VERDICT).eq(lit(Verdict::InScope.code(0)));
    let mut keys = vec![pl::col(VERDICT)];
    keys.extend((0..definition.partition.columns().len()).map(|i| pl::col(value_name(i))));
    for (i, dimension) in definition.dimensions.iter().enumerate() {
        let value = lower(definition, &dimension.expr);
        keys.push(pl::when(in_scope.clone()).then(value).otherwise(lit(pl::Null {})).alias(dimension_column(i)));
    }
    let mut aggregates = vec![pl::len().cast(pl::DataType::Int64).alias(ROWS)];
    for (i, measure) in definition.measures.iter().enumerate() {
        aggregates.extend(parts(definition, i, &measure.aggregate));
    }
    judged.group_by(keys).agg(aggregates)
}

/// How many rows were judged to be what, by partition: the rows of the groups without their dimensions.
pub(super) fn counted(definition: &Definition, grouped: &pl::DataFrame) -> pl::PolarsResult<pl::DataFrame> {
    let mut keys = vec![pl::col(VERDICT)];
    keys.extend((0..definition.partition.columns().len()).map(|i| pl::col(value_name(i))));
    grouped.clone().lazy().group_by(keys).agg([pl::col(ROWS).sum()]).collect()
}

/// The aggregates that a measure is made of.
fn parts(definition: &Definition, at: usize, aggregate: &Aggregate) -> Vec<pl::Expr> {
    let name = |part: &str| measure_column(at, part);
    // A constant is one value in Polars, and not one for each row of the group.
    let value = |x: &Expr| {
        let value = lower(definition, x);
        let has_column = value.into_iter().any(|part| matches!(part, pl::Expr::Column(_)));
        if has_column {
            value
        } else {
            pl::when(pl::col(VERDICT).is_not_null()).then(value).otherwise(lit(pl::Null {}))
        }
    };
    match aggregate {
        Aggregate::CountRows => Vec::new(),
        Aggregate::Count(x) => vec![value(x).count().cast(pl::DataType::Int64).alias(name("count"))],
        Aggregate::CountDistinct(x) => {
            // Values of rows that are out of scope or filtered, of which there may be many, are not to be told apart.
            let in_scope = pl::col(VERDICT).eq(lit(Verdict::InScope.code(0)));
            let value = pl::when(in_scope).then(value(x)).otherwise(lit(pl::Null {}));
            vec![
                value.clone().n_unique().cast(pl::DataType::Int64).alias(name("distinct")),
                value.null_count().cast(pl::DataType::Int64).alias(name("nulls")),
            ]
        }
        Aggregate::Min(x) => vec![value(x).min().alias(name("value"))],
        Aggregate::Max(x) => vec![value(x).max().alias(name("value"))],
        Aggregate::Sum(x) | Aggregate::Avg(x) => {
            let mut out = sums(value(x).cast(pl::DataType::Int128), x.data_type.digits().map_or(38, |d| d.0), at);
            out.push(value(x).count().cast(pl::DataType::Int64).alias(name("count")));
            out
        }
    }
}

/// Numbers of up to 19 digits cannot overflow 128 bits in any number of rows. Wider ones are summed in two halves that
/// cannot either, and put together with a check.
fn sums(wide: pl::Expr, precision: u8, at: usize) -> Vec<pl::Expr> {
    let half = power_of_ten(18);
    if precision <= 19 {
        return vec![wide.sum().alias(measure_column(at, "sum"))];
    }
    let high = wide.clone().map(move |c| map_i128(&c, |v| Some(v.div_euclid(half))), keep_type);
    let low = wide.map(move |c| map_i128(&c, |v| Some(v.rem_euclid(half))), keep_type);
    vec![high.sum().alias(measure_column(at, "high")), low.sum().alias(measure_column(at, "low"))]
}
