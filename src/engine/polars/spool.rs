//! Text files are read once, into a Parquet file of typed columns in the attempt's staging folder; what comes after reads
//! that. So text is judged, grouped and counted like everything else, in bounded memory, and its rows are known before.

use super::contract::broken_file;
use super::counts::Counts;
use super::query::{BAD_LINE, LINE};
use crate::engine::EngineError;
use crate::engine::error::{service_failure, source_failure};
use crate::engine::text::{Batch, Fault, RawRow, TextError, TextFile, Values};
use crate::pipeline::sources::PlannedFile;
use crate::pipeline::url::shown;
use crate::pipeline::{Column, DataType, Definition};
use ::polars::prelude as pl;
use ::polars::prelude::{IntoColumn, NamedFrom};
use std::fmt::Display;
use std::fs::File;
use std::path::Path;

/// Rows of a batch, and of the row group that it becomes.
const BATCH_ROWS: usize = 16_384;
/// How many of a file's faults are kept to be told.
const TOLD_FAULTS: usize = 5;

/// Reads the text file at `from` into a new file at `to`. Answers what is wrong with the first lines in which something is, each with its
/// line.
pub(super) fn spool(
    definition: &Definition,
    planned: &PlannedFile,
    from: &Path,
    to: &Path,
    counts: &Counts,
) -> Result<Vec<String>, EngineError> {
    let path = shown(&planned.path);
    let mut text = open(definition, planned, from)?;
    let failed = |e: &dyn Display| {
        let detail = format!("{}: {e}", to.display());
        service_failure("staging-write-failed", "A text file's rows could not be written aside", detail)
    };
    let out = File::create_new(to).map_err(|e| failed(&e))?;
    let columns = &definition.source.columns;
    let mut writer = pl::ParquetWriter::new(out)
        .with_compression(pl::ParquetCompression::Lz4Raw)
        .with_statistics(pl::StatisticsOptions::full())
        .batched(&schema(columns))
        .map_err(|e| failed(&e))?;
    let (mut faults, mut bytes) = (Vec::new(), 0);
    while let Some(batch) = text.next(BATCH_ROWS).map_err(failure)? {
        counts.add(text.bytes() - bytes, batch.lines.len() as u64);
        bytes = text.bytes();
        for fault in batch.faults.iter().take(TOLD_FAULTS - faults.len()) {
            faults.push(told(path, columns, &batch, fault));
        }
        let frame = frame(columns, batch).map_err(|e| failed(&e))?;
        writer.write_batch(&frame).map_err(|e| failed(&e))?;
    }
    writer.finish().map_err(|e| failed(&e))?;
    counts.add(text.bytes() - bytes, 0);
    counts.add_file();
    Ok(faults)
}

/// What these lines of the text file at `from` say, before anything is made of them.
pub(super) fn raw_rows(
    definition: &Definition,
    planned: &PlannedFile,
    from: &Path,
    lines: &[i64],
) -> Result<Vec<RawRow>, EngineError> {
    open(definition, planned, from)?.raw(lines).map_err(failure)
}

fn open(definition: &Definition, planned: &PlannedFile, from: &Path) -> Result<TextFile, EngineError> {
    let path = shown(&planned.path);
    let opened = File::open(from).map_err(|e| unreadable(format!("{path}: {e}")))?;
    TextFile::open(Box::new(opened), path, &definition.source).map_err(failure)
}

fn schema(columns: &[Column]) -> pl::Schema {
    let of_contract = columns.iter().map(|c| (c.name.as_str().into(), stored_type(&c.data_type)));
    let beside = [(BAD_LINE.into(), pl::DataType::Boolean), (LINE.into(), pl::DataType::Int64)];
    of_contract.chain(beside).collect()
}

fn failure(error: TextError) -> EngineError {
    match error {
        TextError::Unreadable(detail) => unreadable(detail),
        TextError::Contract(detail) => broken_file(detail),
    }
}

fn unreadable(detail: String) -> EngineError {
    source_failure("source-unreadable", "A source file cannot be read", detail)
}

/// What is wrong with a row: where, and in which column.
pub(super) fn told(path: &str, columns: &[Column], batch: &Batch, fault: &Fault) -> String {
    let line = batch.lines.get(fault.row).copied().unwrap_or_default();
    match fault.column.and_then(|at| columns.get(at)) {
        Some(column) => format!("{path}: line {line}: column {}: {}", column.name, fault.reason),
        None => format!("{path}: line {line}: {}", fault.reason),
    }
}

/// A batch as a frame: the columns of the contract, which rows are bad, and the lines.
fn frame(columns: &[Column], batch: Batch) -> pl::PolarsResult<pl::DataFrame> {
    let height = batch.lines.len();
    let mut bad = vec![false; height];
    for fault in &batch.faults {
        if let Some(bad) = bad.get_mut(fault.row) {
            *bad = true;
        }
    }
    let mut out = Vec::with_capacity(columns.len() + 2);
    for (column, values) in columns.iter().zip(batch.columns) {
        out.push(typed(column, values)?);
    }
    out.push(pl::Series::new(BAD_LINE.into(), bad).into());
    out.push(pl::Series::new(LINE.into(), batch.lines).into());
    pl::DataFrame::new(height, out)
}

/// A column of a batch, in the type in which its inner values are stored.
pub(super) fn typed(column: &Column, values: Values) -> pl::PolarsResult<pl::Column> {
    let name = column.name.as_str();
    let plain = match values {
        Values::Bool(values) => pl::Series::new(name.into(), values),
        Values::Int64(values) => pl::Series::new(name.into(), values),
        Values::UInt64(values) => pl::Series::new(name.into(), values),
        Values::Int128(values) => {
            let wide: pl::Int128Chunked = pl::NewChunkedArray::from_iter_options(name.into(), values.into_iter());
            return wide.into_column().cast(&stored_type(&column.data_type));
        }
        Values::Float32(values) => pl::Series::new(name.into(), values),
        Values::Float64(values) => pl::Series::new(name.into(), values),
        Values::Date(values) => pl::Series::new(name.into(), values),
        Values::Text(texts) => {
            let texts: pl::StringChunked = pl::NewChunkedArray::from_iter_options(name.into(), texts.iter());
            return Ok(texts.into_column());
        }
    };
    plain.into_column().cast(&stored_type(&column.data_type))
}

/// The type in which the inner values of a type are stored: Parquet knows 128-bit integers as decimals only.
pub(super) fn stored_type(data_type: &DataType) -> pl::DataType {
    match super::lower::inner_type(data_type) {
        pl::DataType::Int128 => pl::DataType::Decimal(38, 0),
        inner => inner,
    }
}
