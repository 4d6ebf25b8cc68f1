//! Partition files as csv: a header, then a line for each row; quotes only where they are needed.
//!
//! A null is nothing and an empty text is `""`, so that the two can be told apart. What is compressed is fed in blocks of one
//! length, so that the bytes do not depend on the batches that the rows came in.

use super::{Hashing, Written};
use crate::pipeline::TextCompression;
use crate::run::decimal_text;
use ::polars::prelude as pl;
use chrono::{DateTime, NaiveDate, TimeDelta};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// What is compressed at a time. Part of what makes the same rows the same bytes.
const BLOCK_BYTES: usize = 1 << 18;
const ZSTD_LEVEL: i32 = 3;
const GZIP_LEVEL: u32 = 6;

type Out = Hashing<BufWriter<File>>;

/// A csv file that is written as its rows come.
pub(super) struct CsvFile {
    text: Vec<u8>,
    to: Encoder,
}

enum Encoder {
    Plain(Out),
    Gzip(flate2::write::GzEncoder<Out>),
    Zstd(zstd::stream::write::Encoder<'static, Out>),
}

impl CsvFile {
    /// Begins a new file of rows like these.
    pub(super) fn create(path: &Path, rows: &pl::DataFrame, compression: TextCompression) -> pl::PolarsResult<Self> {
        let out = Hashing::create(path)?;
        let to = match compression {
            TextCompression::None => Encoder::Plain(out),
            // Neither a name nor a time in the header.
            TextCompression::Gzip => {
                Encoder::Gzip(flate2::GzBuilder::new().write(out, flate2::Compression::new(GZIP_LEVEL)))
            }
            TextCompression::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(out, ZSTD_LEVEL)?;
                encoder.include_checksum(true)?;
                Encoder::Zstd(encoder)
            }
        };
        let mut file = Self { text: Vec::new(), to };
        for (at, column) in rows.columns().iter().enumerate() {
            file.separate(at);
            text(column.name(), &mut file.text);
        }
        file.text.push(b'\n');
        Ok(file)
    }

    /// Adds rows.
    pub(super) fn push(&mut self, rows: &pl::DataFrame) -> pl::PolarsResult<()> {
        let mut columns = Vec::with_capacity(rows.width());
        for column in rows.columns() {
            columns.push(Cells::of(column)?);
        }
        let alone = columns.len() == 1;
        for row in 0..rows.height() {
            for (at, (cells, column)) in columns.iter().zip(rows.columns()).enumerate() {
                self.separate(at);
                let mut written = cells.write(row, &mut self.text);
                if alone && matches!(written, Ok(false)) {
                    // An empty line is no record.
                    written = cells.write_null_alone(&mut self.text).map(|()| true);
                }
                written.map_err(|error| in_column(error, column.name()))?;
            }
            self.text.push(b'\n');
            if self.text.len() >= BLOCK_BYTES {
                self.feed()?;
            }
        }
        Ok(())
    }

    /// Ends the file, synced.
    pub(super) fn finish(mut self) -> io::Result<Written> {
        self.feed()?;
        self.to.write_all(&self.text)?;
        let mut out = match self.to {
            Encoder::Plain(out) => out,
            Encoder::Gzip(encoder) => encoder.finish()?,
            Encoder::Zstd(encoder) => encoder.finish()?,
        };
        out.sync()
    }

    fn separate(&mut self, at: usize) {
        if at > 0 {
            self.text.push(b',');
        }
    }

    /// Writes whole blocks.
    fn feed(&mut self) -> io::Result<()> {
        let whole = self.text.len() - self.text.len() % BLOCK_BYTES;
        let blocks = self.text.get(..whole).unwrap_or_default();
        blocks.chunks(BLOCK_BYTES).try_for_each(|block| self.to.write_all(block))?;
        self.text.drain(..whole);
        Ok(())
    }
}

impl Write for Encoder {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Encoder::Plain(out) => out.write(bytes),
            Encoder::Gzip(encoder) => encoder.write(bytes),
            Encoder::Zstd(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Encoder::Plain(out) => out.flush(),
            Encoder::Gzip(encoder) => encoder.flush(),
            Encoder::Zstd(encoder) => encoder.flush(),
        }
    }
}

/// A value that has no form is told with its column.
fn in_column(error: pl::PolarsError, name: &str) -> pl::PolarsError {
    match error {
        pl::PolarsError::InvalidOperation(detail) => {
            pl::PolarsError::InvalidOperation(format!("column {name}: {detail}").into())
        }
        error => error,
    }
}

/// The values of a column.
pub(in crate::engine::polars) enum Cells {
    Bool(pl::BooleanChunked),
    Int(pl::Int64Chunked),
    UInt(pl::UInt64Chunked),
    Float32(pl::Float32Chunked),
    Float64(pl::Float64Chunked),
    Decimal(pl::Int128Chunked, u8),
    Text(pl::StringChunked),
    Date(pl::Int32Chunked),
    /// Microseconds, and whether they are of an instant.
    Datetime(pl::Int64Chunked, bool),
}

impl Cells {
    pub(in crate::engine::polars) fn of(column: &pl::Column) -> pl::PolarsResult<Self> {
        let series = column.as_materialized_series().rechunk();
        let physical = series.to_physical_repr();
        Ok(match series.dtype() {
            pl::DataType::Boolean => Cells::Bool(series.bool()?.clone()),
            kind if kind.is_signed_integer() => Cells::Int(series.cast(&pl::DataType::Int64)?.i64()?.clone()),
            kind if kind.is_unsigned_integer() => Cells::UInt(series.cast(&pl::DataType::UInt64)?.u64()?.clone()),
            pl::DataType::Float32 => Cells::Float32(series.f32()?.clone()),
            pl::DataType::Float64 => Cells::Float64(series.f64()?.clone()),
            pl::DataType::Decimal(_, scale) => {
                let scale = u8::try_from(*scale).map_err(|_| no_csv(series.dtype()))?;
                Cells::Decimal(physical.i128()?.clone(), scale)
            }
            pl::DataType::String => Cells::Text(series.str()?.clone()),
            pl::DataType::Date => Cells::Date(physical.i32()?.clone()),
            pl::DataType::Datetime(pl::TimeUnit::Microseconds, zone) => {
                Cells::Datetime(physical.i64()?.clone(), zone.is_some())
            }
            other => return Err(no_csv(other)),
        })
    }

    /// Writes a value; false for null, which is nothing.
    pub(in crate::engine::polars) fn write(&self, row: usize, out: &mut Vec<u8>) -> pl::PolarsResult<bool> {
        macro_rules! value {
            ($cells:expr) => {
                match $cells.get(row) {
                    Some(value) => value,
                    None => return Ok(false),
                }
            };
        }
        match self {
            Cells::Bool(cells) => write!(out, "{}", value!(cells)),
            Cells::Int(cells) => write!(out, "{}", value!(cells)),
            Cells::UInt(cells) => write!(out, "{}", value!(cells)),
            // The shortest text that gives the value back, with an exponent where it is shorter.
            Cells::Float32(cells) => write!(out, "{:?}", value!(cells)),
            Cells::Float64(cells) => write!(out, "{:?}", value!(cells)),
            Cells::Decimal(cells, scale) => out.write_all(decimal_text(value!(cells), *scale).as_bytes()),
            Cells::Text(cells) => {
                text(value!(cells), out);
                Ok(())
            }
            Cells::Date(cells) => {
                let days = value!(cells);
                let date = NaiveDate::default().checked_add_signed(TimeDelta::days(i64::from(days)));
                write!(out, "{}", date.ok_or_else(|| out_of_range("day", i64::from(days)))?)
            }
            Cells::Datetime(cells, zoned) => {
                let micros = value!(cells);
                let time =
                    DateTime::from_timestamp_micros(micros).ok_or_else(|| out_of_range("microsecond", micros))?;
                write!(out, "{}{}", time.naive_utc().format("%Y-%m-%dT%H:%M:%S%.f"), if *zoned { "Z" } else { "" })
            }
        }?;
        Ok(true)
    }

    /// The null of a table of one column: no text but the empty one can be mistaken for it.
    fn write_null_alone(&self, out: &mut Vec<u8>) -> pl::PolarsResult<()> {
        if matches!(self, Cells::Text(_)) {
            let found = "found a null in a csv table of one string column, whose line would be empty and so no row";
            let expected = "expected not null values, another column or format = \"parquet\"";
            return Err(pl::PolarsError::InvalidOperation(format!("{found}; {expected}").into()));
        }
        out.extend_from_slice(b"\"\"");
        Ok(())
    }
}

/// A text, in quotes where RFC 4180 needs them, and where it is empty.
pub(in crate::engine::polars) fn text(value: &str, out: &mut Vec<u8>) {
    let bytes = value.as_bytes();
    let plain = !bytes.is_empty() && !bytes.iter().any(|byte| matches!(byte, b',' | b'"' | b'\n' | b'\r'));
    if plain {
        return out.extend_from_slice(bytes);
    }
    out.push(b'"');
    for byte in bytes {
        if *byte == b'"' {
            out.push(b'"');
        }
        out.push(*byte);
    }
    out.push(b'"');
}

fn no_csv(found: &pl::DataType) -> pl::PolarsError {
    pl::PolarsError::InvalidOperation(format!("found a column of type {found}, which has no form in csv").into())
}

fn out_of_range(unit: &str, found: i64) -> pl::PolarsError {
    let detail = format!("found the {unit} {found} since 1970, which no calendar date of csv names");
    pl::PolarsError::InvalidOperation(detail.into())
}
