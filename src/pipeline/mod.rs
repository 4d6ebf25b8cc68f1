//! Pipelines: a TOML file becomes a checked [`Definition`]. Pure: text in, definition or errors out.

pub mod expr;
mod hash;
mod layout;
mod load;
mod output;
mod quarantine;
pub mod sources;
mod template;
mod types;
pub mod url;
pub mod value;

pub use expr::{Expr, Function, Literal};
pub use layout::LayoutChange;
pub use load::{DefinitionError, parse};
pub use output::{Output, OutputFormat, ParquetCompression, TextCompression};
pub use quarantine::{QuarantineRule, Reason};
pub use types::{Column, DataType, Origin};

use crate::partition::PartitionSpec;
use crate::run::{DefinitionHash, Fold, ForeignFiles, RetryPolicy};

/// A checked pipeline definition. One that exists can be executed.
#[derive(Debug, Clone)]
pub struct Definition {
    /// `[a-z][a-z0-9_]{0,62}`; also the table's folder.
    pub name: String,
    /// For people.
    pub description: String,
    /// Where the rows come from.
    pub source: Source,
    /// The partition columns, in the order of the folders.
    pub partition: PartitionSpec,
    /// Where zoned times are cut (a name of the time zone database).
    pub timezone: chrono_tz::Tz,
    /// The dimensions, in file order: the columns by which rows are grouped and sorted.
    pub dimensions: Vec<Dimension>,
    /// The measures, in file order.
    pub measures: Vec<Measure>,
    /// What the table has instead of dimensions and measures where it keeps rows.
    pub rows: Option<RowTable>,
    /// Rows of the scope for which this is not true are filtered.
    pub filter: Option<Expr>,
    /// The share of rows (0 to 1) that may be rejected.
    pub max_rejected: f64,
    /// When failed attempts are tried again.
    pub retry: RetryPolicy,
    /// How much an attempt may take.
    pub limits: RunLimits,
    /// What becomes of data files of others in the folders of its partitions.
    pub foreign_files: ForeignFiles,
    /// What its files are.
    pub output: Output,
    /// Which rows that go into no partition are kept apart.
    pub quarantine: QuarantineRule,
    /// The sha256 of the parsed definition in canonical form; comments, order of keys, spacing and the description do
    /// not change it.
    pub hash: DefinitionHash,
    /// The file's text.
    pub text: String,
}

impl Definition {
    /// The column of the contract that has this name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.source.columns.iter().find(|column| column.name == name)
    }

    /// How rows are put into what a partition was, where they are.
    pub fn merge(&self) -> Option<&Merge> {
        self.rows.as_ref().and_then(|rows| rows.merge.as_ref())
    }

    /// Whether an expression uses [`SOURCE_FILE`], the path of the row's file as the pipeline names it, as a string.
    pub fn uses_source_file(&self) -> bool {
        self.uses(SOURCE_FILE)
    }

    /// Whether an expression uses [`SOURCE_LINE`], the row's line in its file from 1 (Parquet: its number), as int64.
    pub fn uses_source_line(&self) -> bool {
        self.uses(SOURCE_LINE)
    }

    fn uses(&self, name: &str) -> bool {
        // A column of the contract goes before what the rows come with.
        self.column(name).is_none() && self.expressions().any(|expr| expr.uses(name))
    }

    /// Whether a column of the contract is what partitions, dimensions, measures, `where` or the columns of rows are made of.
    pub fn needs(&self, column: &str) -> bool {
        let is_of_partition = self.partition.columns().iter().any(|partition| partition.source == column);
        is_of_partition || self.expressions().any(|expr| expr.uses(column))
    }

    fn expressions(&self) -> impl Iterator<Item = &Expr> {
        let kept = self.rows.iter().flat_map(|rows| &rows.columns);
        let dimensions = self.dimensions.iter().chain(kept).map(|dimension| &dimension.expr);
        let measures = self.measures.iter().filter_map(|measure| measure.aggregate.argument());
        dimensions.chain(measures).chain(&self.filter)
    }
}

/// The name of the file's path in expressions, where the contract has no column of that name.
pub const SOURCE_FILE: &str = "source_file";
/// The name of the line's number in expressions, where the contract has no column of that name.
pub const SOURCE_LINE: &str = "source_line";

/// The `[limits]` of a pipeline.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunLimits {
    /// How long an attempt may compute; none for as long as it takes. What is decided is published however long that takes.
    pub timeout_seconds: Option<u32>,
}

/// The `[source]` of a pipeline.
#[derive(Debug, Clone)]
pub struct Source {
    /// What the files are.
    pub format: Format,
    /// Paths, globs or templates, relative to the source root.
    pub paths: Vec<SourcePath>,
    /// How many template periods either side are read too.
    pub neighbours: u32,
    /// The contract: the columns that are read, in file order.
    pub columns: Vec<Column>,
}

/// The format of a source's files. Text files whose names end in `.gz` or `.zst` are compressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// Parquet.
    Parquet,
    /// Delimited text.
    Csv(CsvLayout),
    /// One JSON object a line.
    Ndjson,
}

/// The `[source.csv]` of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsvLayout {
    /// Whether the first line names the columns.
    pub header: bool,
    /// What is between fields.
    pub delimiter: u8,
    /// What is around fields that hold delimiters, quotes (doubled) or line ends; none where quotes are mere text.
    pub quote: Option<u8>,
    /// The texts that mean null.
    pub nulls: Vec<String>,
    /// Whether they do so in quotes too. Where not, a quoted text of a string column is a text.
    pub quoted_nulls: bool,
    /// Whether records may have empty fields after the last one that the header names, in one number through the file.
    pub empty_tail: bool,
}

impl Default for CsvLayout {
    fn default() -> Self {
        Self {
            header: true,
            delimiter: b',',
            quote: Some(b'"'),
            nulls: vec![String::new()],
            quoted_nulls: true,
            empty_tail: false,
        }
    }
}

/// One path of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourcePath {
    /// One file.
    Plain(String),
    /// `*`, `**`, `?`, `[…]`.
    Glob(String),
    /// strftime fields.
    Template(Template),
}

/// A path with strftime fields (`%Y`, `%m`, `%d`, `%H`, `%-m`, `%-d`, `%-H`), one file per period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// The text as written, without `.` folders and doubled slashes.
    pub text: String,
    /// The length of its period: the finest field.
    pub unit: TemplateUnit,
}

/// The period of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TemplateUnit {
    /// `%Y`
    Year,
    /// `%Y` and `%m`
    Month,
    /// `%Y`, `%m` and `%d`
    Day,
    /// `%Y`, `%m`, `%d` and `%H`
    Hour,
}

/// A column by which rows are grouped.
#[derive(Debug, Clone, PartialEq)]
pub struct Dimension {
    /// The output column's name.
    pub name: String,
    /// Its value; never a float.
    pub expr: Expr,
}

/// A table that keeps rows: `[columns]`, `sort_by`, `dedupe` and `write`.
#[derive(Debug, Clone, PartialEq)]
pub struct RowTable {
    /// The columns, in file order; floats too.
    pub columns: Vec<Dimension>,
    /// The columns by which a partition's rows are sorted; then by the others, so that the order of arrival tells nothing.
    pub sort_by: Vec<String>,
    /// Which of the rows of one key are kept; all of them without it.
    pub dedupe: Option<Dedupe>,
    /// How rows are put into what a partition was; without it they replace it.
    pub merge: Option<Merge>,
}

impl RowTable {
    /// Which of the source rows of one key are kept. What is merged is one row for each key: by `dedupe` or, without it, the
    /// last one in the order of all its columns.
    pub fn one_of_each_key(&self) -> Option<Dedupe> {
        let last = |merge: &Merge| Dedupe { key: merge.key.clone(), keep: Keep::Last, order_by: Vec::new() };
        self.dedupe.clone().or_else(|| self.merge.as_ref().map(last))
    }
}

/// `write = "merge"`: a partition becomes what it was, with the rows of the sources put in by key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merge {
    /// The columns that name a row. Nulls are alike.
    pub key: Vec<String>,
    /// Which row stays where both have one of a key.
    pub on_conflict: OnConflict,
}

impl Merge {
    /// What is left to do where a partition is not one that rows can be put into.
    pub const WAY_OUT: &'static str = "run mode full once to rebuild the table from its sources, which must have all of its \
                                       rows: what earlier batches brought and they no longer have is lost";
}

/// Which row of a key stays in a merge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnConflict {
    /// That of the sources.
    #[default]
    Replace,
    /// That of the partition as it was.
    Keep,
}

impl OnConflict {
    /// Its name in pipeline files.
    pub fn as_str(self) -> &'static str {
        match self {
            OnConflict::Replace => "replace",
            OnConflict::Keep => "keep",
        }
    }
}

/// One row for each key, in each partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dedupe {
    /// The columns that name a row. Nulls are alike.
    pub key: Vec<String>,
    /// Which row of a key stays.
    pub keep: Keep,
    /// The columns by which the rows of a key are ordered, nulls first; then by all the others.
    pub order_by: Vec<String>,
}

/// Which row of a key stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The first one in order.
    First,
    /// The last one.
    Last,
}

impl Keep {
    /// Its name in pipeline files.
    pub fn as_str(self) -> &'static str {
        match self {
            Keep::First => "first",
            Keep::Last => "last",
        }
    }
}

/// An aggregate.
#[derive(Debug, Clone, PartialEq)]
pub struct Measure {
    /// The output column's name.
    pub name: String,
    /// What is computed.
    pub aggregate: Aggregate,
    /// The output column's type.
    pub data_type: DataType,
}

/// What a measure computes.
#[derive(Debug, Clone, PartialEq)]
pub enum Aggregate {
    /// `count(*)`: int64.
    CountRows,
    /// `count(x)`, nulls not counted: int64.
    Count(Expr),
    /// `count(distinct x)`, nulls not counted: int64.
    CountDistinct(Expr),
    /// Over integers: int64 (uint64 over unsigned columns). Over `decimal(p,s)`: `decimal(min(38, p + 10), s)`.
    Sum(Expr),
    /// The type of its argument.
    Min(Expr),
    /// The type of its argument.
    Max(Expr),
    /// The exact sum divided by the count: float64.
    Avg(Expr),
}

impl Aggregate {
    /// What is aggregated; none for `count(*)`.
    pub fn argument(&self) -> Option<&Expr> {
        match self {
            Aggregate::CountRows => None,
            Aggregate::Count(x)
            | Aggregate::CountDistinct(x)
            | Aggregate::Sum(x)
            | Aggregate::Min(x)
            | Aggregate::Max(x)
            | Aggregate::Avg(x) => Some(x),
        }
    }
}

impl Measure {
    /// How totals of partitions roll up.
    pub fn fold(&self) -> Fold {
        match self.aggregate {
            Aggregate::CountRows | Aggregate::Count(_) | Aggregate::Sum(_) => Fold::Add,
            Aggregate::Min(_) => Fold::Min,
            Aggregate::Max(_) => Fold::Max,
            Aggregate::CountDistinct(_) | Aggregate::Avg(_) => Fold::None,
        }
    }
}
