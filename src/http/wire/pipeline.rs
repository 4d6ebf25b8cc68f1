//! Pipelines: their definitions.

use crate::partition::{PartitionColumn, Transform};
use crate::pipeline::url::{shown, shown_in};
use crate::pipeline::value::text_of;
use crate::pipeline::{Column, CsvLayout, Definition, Format, Literal, Origin, Output, OutputFormat, SourcePath};
use crate::run::{Fold, ForeignFiles};
use serde::Serialize;
use utoipa::ToSchema;

/// The pipelines of the server, by name.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http) struct PipelineList<'a> {
    pub(in crate::http) pipelines: Vec<PipelineSummary<'a>>,
}

/// A pipeline in the listing.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http) struct PipelineSummary<'a> {
    #[schema(example = "zone_hour")]
    name: &'a str,
    description: &'a str,
    /// The sha256 of the parsed definition.
    definition: &'a str,
}

/// A pipeline's definition.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Pipeline)]
pub(in crate::http) struct PipelineDetail<'a> {
    #[serde(flatten)]
    summary: PipelineSummary<'a>,
    source: SourceView<'a>,
    /// The partition columns, in the order of the folders.
    partition: Vec<PartitionColumnView<'a>>,
    /// Where zoned times are cut.
    timezone: &'static str,
    dimensions: Vec<DimensionView<'a>>,
    measures: Vec<MeasureView<'a>>,
    /// Of a table that keeps rows: its columns and rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<RowTableView<'a>>,
    /// The share of rows that may be rejected.
    max_rejected: f64,
    /// How long an attempt may compute, in seconds; null for as long as it takes.
    timeout_seconds: Option<u32>,
    /// What a run does about data files of others in its partitions' folders: `fail`, or `replace` the whole folder.
    #[schema(value_type = String, example = "fail")]
    foreign_files: ForeignFiles,
    output: OutputView,
    quarantine: QuarantineRuleView,
    /// The pipeline file, its URLs without their queries.
    text: String,
}

/// Which rows that go into no partition a run keeps apart.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = QuarantineRule)]
struct QuarantineRuleView {
    /// Some of `rejected`, `filtered` and `strays`.
    #[schema(example = json!(["rejected"]))]
    rows: Vec<&'static str>,
    /// At most so many.
    max_rows: u32,
}

/// Where the rows come from.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PipelineSource)]
struct SourceView<'a> {
    /// `parquet`, `csv` or `ndjson`.
    #[schema(example = "parquet")]
    format: &'static str,
    /// The layout of csv files.
    #[serde(skip_serializing_if = "Option::is_none")]
    csv: Option<CsvView<'a>>,
    /// Paths, globs or templates.
    paths: Vec<&'a str>,
    /// How many template periods either side are read too.
    neighbours: u32,
    /// The columns that are read.
    columns: Vec<ColumnView<'a>>,
}

/// What the table's files are.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PipelineOutput)]
struct OutputView {
    /// `parquet` or `csv`.
    #[schema(example = "parquet")]
    format: &'static str,
    /// Of Parquet's pages, or of the whole csv file.
    #[schema(example = "zstd")]
    compression: &'static str,
    /// Rows of a row group of Parquet.
    #[serde(skip_serializing_if = "Option::is_none")]
    row_group_rows: Option<u32>,
    /// Whether `_manifest.json` at the table's root lists its files.
    manifest: bool,
}

/// The layout of csv files.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CsvLayout)]
struct CsvView<'a> {
    /// Whether the first line names the columns.
    header: bool,
    #[schema(value_type = String, example = ",")]
    delimiter: char,
    /// Null where quotes are mere text.
    #[schema(value_type = Option<String>, example = "\"")]
    quote: Option<char>,
    /// The texts that mean null.
    null: &'a [String],
    /// Whether they do so in quotes too.
    quoted_nulls: bool,
    /// Whether records may have empty fields after the header's last one.
    empty_tail: bool,
}

/// A column of the contract.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ContractColumn)]
struct ColumnView<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    #[schema(example = "decimal(18,2)")]
    data_type: String,
    not_null: bool,
    /// The names in the files, of which the first one that is there counts; for ndjson paths by dots.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<&'a [String]>,
    /// The number of the field, from 1, in csv files without a header.
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<usize>,
    /// The key of the `key=value` folder that has the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    folder: Option<&'a str>,
    /// How texts are read as dates and times (strftime).
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<&'a str>,
    /// The value where a file has no such column, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    default: Option<String>,
    /// Whether a file may lack the column, whose values are null then.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    optional: bool,
}

/// A partition column.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PartitionColumn)]
struct PartitionColumnView<'a> {
    name: &'a str,
    #[schema(value_type = String, example = "month_of")]
    transform: Transform,
    /// The column of the contract that it is made from.
    source: &'a str,
}

/// A dimension.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Dimension)]
struct DimensionView<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    data_type: String,
}

/// A table that keeps rows.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RowTable)]
struct RowTableView<'a> {
    columns: Vec<DimensionView<'a>>,
    /// The columns by which a partition's rows are sorted; then by the others.
    sort_by: &'a [String],
    /// Which of the rows of one key are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    dedupe: Option<DedupeView<'a>>,
    /// How rows are put into what a partition was; absent where they replace it.
    #[serde(skip_serializing_if = "Option::is_none")]
    merge: Option<MergeView<'a>>,
}

/// `write = "merge"`.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Merge)]
struct MergeView<'a> {
    /// The columns that name a row.
    key: &'a [String],
    /// Which row of a key stays: `replace`, that of the sources, or `keep`, that of the partition.
    #[schema(example = "replace")]
    on_conflict: &'static str,
}

/// One row for each key, in each partition.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Dedupe)]
struct DedupeView<'a> {
    key: &'a [String],
    /// `first` or `last`.
    #[schema(example = "last")]
    keep: &'static str,
    /// The columns by which the rows of a key are ordered, nulls first.
    order_by: &'a [String],
}

/// A measure.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Measure)]
struct MeasureView<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    data_type: String,
    /// How totals of partitions roll up; `none` has no total.
    #[schema(value_type = String, example = "add")]
    rolls_up_by: Fold,
}

impl<'a> From<&'a Definition> for PipelineSummary<'a> {
    fn from(d: &'a Definition) -> Self {
        Self { name: &d.name, description: &d.description, definition: &d.hash.0 }
    }
}

impl<'a> From<&'a Definition> for PipelineDetail<'a> {
    fn from(d: &'a Definition) -> Self {
        let dimension = |name: &'a str, data_type: String| DimensionView { name, data_type };
        Self {
            summary: d.into(),
            source: SourceView {
                format: format_name(&d.source.format),
                csv: csv_of(&d.source.format),
                paths: d.source.paths.iter().map(path_text).collect(),
                neighbours: d.source.neighbours,
                columns: d.source.columns.iter().map(ColumnView::from).collect(),
            },
            partition: d.partition.columns().iter().map(PartitionColumnView::from).collect(),
            timezone: d.timezone.name(),
            dimensions: d.dimensions.iter().map(|x| dimension(&x.name, x.expr.data_type.to_string())).collect(),
            rows: d.rows.as_ref().map(|rows| RowTableView {
                columns: rows.columns.iter().map(|x| dimension(&x.name, x.expr.data_type.to_string())).collect(),
                sort_by: &rows.sort_by,
                dedupe: rows.dedupe.as_ref().map(|dedupe| DedupeView {
                    key: &dedupe.key,
                    keep: dedupe.keep.as_str(),
                    order_by: &dedupe.order_by,
                }),
                merge: rows
                    .merge
                    .as_ref()
                    .map(|merge| MergeView { key: &merge.key, on_conflict: merge.on_conflict.as_str() }),
            }),
            measures: d
                .measures
                .iter()
                .map(|m| MeasureView { name: &m.name, data_type: m.data_type.to_string(), rolls_up_by: m.fold() })
                .collect(),
            max_rejected: d.max_rejected,
            timeout_seconds: d.limits.timeout_seconds,
            foreign_files: d.foreign_files,
            output: d.output.into(),
            quarantine: QuarantineRuleView {
                rows: d.quarantine.rows.iter().map(|reason| reason.rows()).collect(),
                max_rows: d.quarantine.max_rows,
            },
            text: shown_in(&d.text),
        }
    }
}

impl From<Output> for OutputView {
    fn from(output: Output) -> Self {
        let row_group_rows = match output.format {
            OutputFormat::Parquet { row_group_rows, .. } => Some(row_group_rows),
            OutputFormat::Csv { .. } => None,
        };
        let Output { format, manifest } = output;
        Self { format: format.as_str(), compression: format.compression(), row_group_rows, manifest }
    }
}

impl<'a> From<&'a Column> for ColumnView<'a> {
    fn from(c: &'a Column) -> Self {
        let (from, position, folder) = match &c.origin {
            Origin::Names(names) if *names == [c.name.as_str()] => (None, None, None),
            Origin::Names(names) => (Some(names.as_slice()), None, None),
            Origin::Position(position) => (None, Some(*position), None),
            Origin::Folder(key) => (None, None, Some(key.as_str())),
        };
        Self {
            name: &c.name,
            data_type: c.data_type.to_string(),
            not_null: c.not_null,
            from,
            position,
            folder,
            format: c.format.as_deref(),
            default: c.default.as_ref().and_then(|default| text_of(default, &c.data_type)),
            optional: c.default == Some(Literal::Null),
        }
    }
}

impl<'a> From<&'a CsvLayout> for CsvView<'a> {
    fn from(layout: &'a CsvLayout) -> Self {
        Self {
            header: layout.header,
            delimiter: char::from(layout.delimiter),
            quote: layout.quote.map(char::from),
            null: &layout.nulls,
            quoted_nulls: layout.quoted_nulls,
            empty_tail: layout.empty_tail,
        }
    }
}

impl<'a> From<&'a PartitionColumn> for PartitionColumnView<'a> {
    fn from(c: &'a PartitionColumn) -> Self {
        Self { name: &c.name, transform: c.transform, source: &c.source }
    }
}

fn format_name(format: &Format) -> &'static str {
    match format {
        Format::Parquet => "parquet",
        Format::Csv(_) => "csv",
        Format::Ndjson => "ndjson",
    }
}

fn csv_of(format: &Format) -> Option<CsvView<'_>> {
    match format {
        Format::Csv(layout) => Some(layout.into()),
        Format::Parquet | Format::Ndjson => None,
    }
}

fn path_text(path: &SourcePath) -> &str {
    shown(match path {
        SourcePath::Plain(text) | SourcePath::Glob(text) => text,
        SourcePath::Template(template) => &template.text,
    })
}
