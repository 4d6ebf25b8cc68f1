//! A partition's file read back, in bounded memory, and written row by row in a format for clients.

use super::blocks::Blocks;
use super::measures::to_file;
use super::output::{Cells, csv_text, json_text, write_json};
use super::spool::{told, typed};
use crate::engine::EngineError;
use crate::engine::extract::{Extract, Ready, RowFormat};
use crate::engine::text::TextFile;
use crate::pipeline::{self, Column, CsvLayout, DataType, Definition, Format, Source};
use crate::run::PartFile;
use ::polars::prelude as pl;
use std::fs::File;
use std::io::{self, Write};

/// How many rows of a text are read at once.
const TEXT_ROWS: usize = 16_384;
/// How much is written at once, about.
const BLOCK_BYTES: usize = 1 << 16;

/// Why rows end early.
#[derive(Debug, thiserror::Error)]
pub(in crate::engine) enum Broken {
    /// The file, or the memory.
    #[error("{0}")]
    Read(String),
    /// Nobody takes them.
    #[error("the rows cannot be written: {0}")]
    Write(#[from] io::Error),
}

impl From<pl::PolarsError> for Broken {
    fn from(error: pl::PolarsError) -> Self {
        Broken::Read(error.to_string())
    }
}

impl From<EngineError> for Broken {
    fn from(error: EngineError) -> Self {
        Broken::Read(error.to_string())
    }
}

/// Writes the rows of `file`; before the first it calls `ready`, which is told of columns that the file does not have, and then
/// nothing is written.
pub(in crate::engine) fn extract(
    asked: &Extract,
    file: File,
    out: &mut dyn Write,
    ready: impl FnOnce(&mut dyn Write, &Ready) -> io::Result<()>,
) -> Result<(), Broken> {
    let (mut rows, there) = Rows::open(asked, file)?;
    let wanted = asked.columns.clone().unwrap_or_else(|| there.clone());
    let unknown: Vec<String> = wanted.iter().filter(|name| !there.contains(name)).cloned().collect();
    if !unknown.is_empty() {
        return Ok(ready(out, &Ready::UnknownColumns { found: unknown, expected: there })?);
    }
    rows.keep(&wanted);
    let mut left = asked.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    // The first rows before the first word, so that a file that cannot be read is told as one.
    let mut batch = rows.next(left)?;
    ready(out, &Ready::Rows)?;
    let mut writer = Writer::begin(asked.format, &wanted)?;
    while let Some(frame) = batch {
        left = left.saturating_sub(frame.height());
        writer.push(&frame.select(wanted.iter().map(String::as_str))?, out)?;
        batch = if left == 0 { None } else { rows.next(left)? };
    }
    writer.end(out)?;
    Ok(())
}

/// The rows of a file that are not read yet.
enum Rows {
    Parquet { blocks: Blocks, columns: Vec<String> },
    Text { name: &'static str, file: Box<TextFile>, columns: Vec<Column>, types: Vec<DataType> },
}

impl Rows {
    /// Opens a file; tells the names of its columns.
    fn open(asked: &Extract, file: File) -> Result<(Self, Vec<String>), Broken> {
        if asked.file != PartFile::Parquet {
            return Self::open_text(asked, file);
        }
        let blocks = Blocks::of(file)?;
        let names: Vec<String> = blocks.none()?.get_column_names().iter().map(ToString::to_string).collect();
        Ok((Rows::Parquet { blocks, columns: names.clone() }, names))
    }

    fn open_text(asked: &Extract, file: File) -> Result<(Self, Vec<String>), Broken> {
        let text = asked.definition.as_deref().unwrap_or_default();
        let definition = pipeline::parse(text, "the partition's definition")
            .map_err(|errors| Broken::Read(errors.first().map(ToString::to_string).unwrap_or_default()))?;
        let written = written_columns(&definition);
        let columns: Vec<Column> =
            written.iter().map(|(name, data_type)| Column::new(name, data_type.clone(), false)).collect();
        // A null that is alone on its line is written as "", which for a string is a text.
        let alone = matches!(written.as_slice(), [(_, data_type)] if *data_type != DataType::String);
        let layout = CsvLayout { quoted_nulls: alone, ..CsvLayout::default() };
        let source = Source { format: Format::Csv(layout), columns: columns.clone(), ..definition.source };
        let name = asked.file.as_str();
        let opened = TextFile::open(Box::new(file), name, &source);
        let opened = opened.map_err(|error| Broken::Read(error.to_string()))?;
        let (names, types) = written.into_iter().unzip();
        Ok((Rows::Text { name, file: Box::new(opened), columns, types }, names))
    }

    /// Reads these columns alone, where the format allows.
    fn keep(&mut self, wanted: &[String]) {
        if let Rows::Parquet { columns, .. } = self {
            columns.retain(|name| wanted.contains(name));
        }
    }

    /// The next rows, at most that many.
    fn next(&mut self, most: usize) -> Result<Option<pl::DataFrame>, Broken> {
        match self {
            Rows::Parquet { blocks, columns } => Ok(blocks.next(most, Some(columns))?),
            Rows::Text { name, file, columns, types } => {
                let batch = file.next(most.min(TEXT_ROWS)).map_err(|error| Broken::Read(error.to_string()))?;
                let Some(batch) = batch else { return Ok(None) };
                if let Some(fault) = batch.faults.first() {
                    return Err(Broken::Read(told(name, columns, &batch, fault)));
                }
                let height = batch.lines.len();
                let mut out = Vec::with_capacity(columns.len());
                for ((column, values), data_type) in columns.iter().zip(batch.columns).zip(types) {
                    out.push(to_file(&typed(column, values)?, data_type)?);
                }
                Ok(Some(pl::DataFrame::new(height, out)?))
            }
        }
    }
}

/// The columns of a pipeline's files, in their order.
fn written_columns(definition: &Definition) -> Vec<(String, DataType)> {
    let of_rows = definition.rows.iter().flat_map(|table| &table.columns);
    let values = definition.dimensions.iter().chain(of_rows).map(|d| (d.name.clone(), d.expr.data_type.clone()));
    values.chain(definition.measures.iter().map(|m| (m.name.clone(), m.data_type.clone()))).collect()
}

/// Rows on their way out.
struct Writer {
    format: RowFormat,
    /// What is before each value: a separator, and for JSON the name.
    before: Vec<Vec<u8>>,
    text: Vec<u8>,
    is_first: bool,
}

impl Writer {
    fn begin(format: RowFormat, names: &[String]) -> io::Result<Self> {
        let (mut text, mut before) = (Vec::new(), Vec::new());
        for (at, name) in names.iter().enumerate() {
            let mut lead = if at > 0 { b",".to_vec() } else { Vec::new() };
            if format == RowFormat::Csv {
                text.extend_from_slice(&lead);
                csv_text(name, &mut text);
            } else {
                json_text(name, &mut lead)?;
                lead.push(b':');
            }
            before.push(lead);
        }
        text.extend_from_slice(match format {
            RowFormat::Csv => b"\n",
            RowFormat::Json => b"[",
            RowFormat::Ndjson => b"",
        });
        Ok(Self { format, before, text, is_first: true })
    }

    fn push(&mut self, frame: &pl::DataFrame, out: &mut dyn Write) -> Result<(), Broken> {
        let columns = frame.columns().iter().map(Cells::of).collect::<pl::PolarsResult<Vec<_>>>()?;
        for row in 0..frame.height() {
            match self.format {
                RowFormat::Csv => self.csv_row(&columns, row)?,
                RowFormat::Json | RowFormat::Ndjson => self.json_row(&columns, row)?,
            }
            if self.text.len() >= BLOCK_BYTES {
                out.write_all(&self.text)?;
                self.text.clear();
            }
        }
        Ok(())
    }

    fn csv_row(&mut self, columns: &[Cells], row: usize) -> pl::PolarsResult<()> {
        for (cells, before) in columns.iter().zip(&self.before) {
            self.text.extend_from_slice(before);
            // Of one column, an empty line would be no record.
            if !cells.write(row, &mut self.text)? && columns.len() == 1 {
                self.text.extend_from_slice(b"\"\"");
            }
        }
        self.text.push(b'\n');
        Ok(())
    }

    fn json_row(&mut self, columns: &[Cells], row: usize) -> pl::PolarsResult<()> {
        let is_list = self.format == RowFormat::Json;
        if is_list {
            self.text.extend_from_slice(if self.is_first { b"\n" } else { b",\n" });
        }
        self.is_first = false;
        self.text.push(b'{');
        for (cells, before) in columns.iter().zip(&self.before) {
            self.text.extend_from_slice(before);
            write_json(cells, row, &mut self.text)?;
        }
        self.text.extend_from_slice(if is_list { b"}" } else { b"}\n" });
        Ok(())
    }

    fn end(mut self, out: &mut dyn Write) -> io::Result<()> {
        if self.format == RowFormat::Json {
            self.text.extend_from_slice(b"\n]\n");
        }
        out.write_all(&self.text)?;
        out.flush()
    }
}
