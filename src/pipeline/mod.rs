//! Pipelines: a TOML file becomes a checked [`Definition`]. Pure: text in, definition or errors out.

pub mod expr;
mod hash;
mod load;
pub mod sources;
mod template;
mod types;

pub use expr::{Expr, Function, Literal};
pub use load::{DefinitionError, parse};
pub use types::{Column, DataType};

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
}

/// The `[limits]` of a pipeline.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunLimits {
    /// How long an attempt may compute; none for as long as it takes. What is decided is published however long that takes.
    pub timeout_seconds: Option<u32>,
}

/// The `[source]` of a pipeline.
#[derive(Debug, Clone)]
pub struct Source {
    /// Paths, globs or templates, relative to the source root.
    pub paths: Vec<SourcePath>,
    /// How many template periods either side are read too.
    pub neighbours: u32,
    /// The contract: the columns that are read, in file order.
    pub columns: Vec<Column>,
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
