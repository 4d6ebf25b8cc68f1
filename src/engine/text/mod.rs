//! Text files: csv and ndjson, plain or compressed, become batches of typed columns.
//!
//! Streaming and in bounded memory, whatever the file. What is wrong with one line or one value costs its row; what is wrong
//! with the file as a whole is an error. Knows no query engine: a [`Batch`] is plain vectors.

mod batch;
mod csv;
mod input;
mod lines;
mod ndjson;
mod raw;
mod record;
#[cfg(test)]
mod tests;

pub(crate) use batch::{Batch, Fault, Values};
pub(crate) use raw::{FIELD_BYTES, LINE_BYTES, RawRow, kept_field};

use crate::pipeline::value::{TimeFormat, of_folder};
use crate::pipeline::{Column, DataType, Format, Literal, Origin, Source};
use batch::Rows;
use csv::Csv;
use input::Input;
use lines::Lines;
use ndjson::Ndjson;
use raw::Capture;
use std::io;

/// The longest line, or record of several lines. A longer one is malformed and skipped without being kept.
pub(crate) const MAX_LINE_BYTES: usize = 16 << 20;

/// How many rows are read at once while some of them are looked for.
const RAW_ROWS: usize = 4096;

/// A batch ends early where its texts have so many bytes.
const MAX_BATCH_BYTES: usize = 8 << 20;

/// Why a file cannot be read on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TextError {
    /// A failure of the source, which may be about to change: the file is empty, cut short, or may still be being written.
    #[error("{0}")]
    Unreadable(String),
    /// The file does not keep the contract.
    #[error("{0}")]
    Contract(String),
}

/// What ends the reading of a file, not yet with the file's name.
#[derive(Debug)]
enum Stop {
    Io(io::Error),
    Empty,
    /// At that line, or in the file as a whole.
    Contract(Option<u64>, String),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Stop::Io(error)
    }
}

/// A column of the contract, as the readers need it.
struct Target {
    name: String,
    data_type: DataType,
    time: TimeFormat,
    origin: Origin,
    default: Option<Literal>,
    /// The value that all rows of the file have.
    constant: Option<Literal>,
}

enum Reader {
    Csv(Csv),
    Ndjson(Ndjson),
}

/// A text file that is being read.
pub(crate) struct TextFile {
    path: String,
    lines: Lines,
    targets: Vec<Target>,
    reader: Reader,
    rows: u64,
}

impl TextFile {
    /// Begins to read `input`, the bytes of the file that the pipeline names `path`. A name that ends in `.gz` or `.zst` says that
    /// they are compressed.
    pub(crate) fn open(input: Box<dyn io::Read + Send>, path: &str, source: &Source) -> Result<Self, TextError> {
        let broken = |detail: String| TextError::Contract(format!("{path}: {detail}"));
        let targets = source.columns.iter().map(|column| Target::of(column, path).map_err(broken));
        let mut targets = targets.collect::<Result<Vec<_>, _>>()?;
        let input = Input::open(input, path).map_err(|error| TextError::Unreadable(format!("{path}: {error}")))?;
        let mut lines = Lines::new(input);
        let reader = match &source.format {
            Format::Parquet => return Err(broken("is text, expected csv or ndjson as the format".to_owned())),
            Format::Csv(layout) => Csv::open(layout, &mut lines, &mut targets).map(Reader::Csv),
            Format::Ndjson => lines.start().map(|()| Reader::Ndjson(Ndjson::of(&targets))),
        };
        match reader {
            Ok(reader) => Ok(Self { path: path.to_owned(), lines, targets, reader, rows: 0 }),
            Err(stop) => Err(failure(path, &lines, 0, stop)),
        }
    }

    /// The next rows, at most `max_rows` of them; none at the end. After an error nothing more can be read.
    pub(crate) fn next(&mut self, max_rows: usize) -> Result<Option<Batch>, TextError> {
        Ok(self.read(max_rows, None)?.map(|(batch, _)| batch))
    }

    /// The bytes of the file that were taken so far, as they lie there.
    pub(crate) fn bytes(&self) -> u64 {
        self.lines.bytes()
    }

    /// What the rows of these lines say, which are in order. Reads no further than the last of them.
    pub(crate) fn raw(&mut self, lines: &[i64]) -> Result<Vec<RawRow>, TextError> {
        let mut out = Vec::with_capacity(lines.len());
        while let Some(wanted) = lines.get(out.len()..).filter(|wanted| !wanted.is_empty()) {
            match self.read(RAW_ROWS, Some(wanted))? {
                Some((_, mut rows)) => out.append(&mut rows),
                None => break,
            }
        }
        Ok(out)
    }

    /// The next rows, and those of the wanted lines among them as they are in the text.
    fn read(&mut self, max_rows: usize, wanted: Option<&[i64]>) -> Result<Option<(Batch, Vec<RawRow>)>, TextError> {
        let mut rows = Rows::new(&self.targets, wanted.map(Capture::of));
        let (reader, lines) = (&mut self.reader, &mut self.lines);
        let mut found = Ok(true);
        while matches!(found, Ok(true)) && rows.count() < max_rows.max(1) && rows.text_bytes < MAX_BATCH_BYTES {
            found = match reader {
                Reader::Csv(csv) => csv.row(lines, &mut rows),
                Reader::Ndjson(ndjson) => ndjson.row(lines, &mut rows),
            };
        }
        self.rows += rows.count() as u64;
        let (batch, capture) = (rows.batch, rows.capture);
        let raw = capture.map_or_else(Vec::new, |capture| capture.finish(&batch.faults));
        match found.and_then(|more| if more { Ok(()) } else { self.at_end() }) {
            Ok(()) => Ok(Some((batch, raw)).filter(|(batch, _)| !batch.lines.is_empty())),
            Err(stop) => Err(failure(&self.path, &self.lines, self.rows, stop)),
        }
    }

    fn at_end(&self) -> Result<(), Stop> {
        match &self.reader {
            // A header alone says that there are no rows.
            Reader::Csv(csv) if csv.has_header() => Ok(()),
            _ if self.rows == 0 => Err(Stop::Empty),
            Reader::Csv(_) => Ok(()),
            Reader::Ndjson(ndjson) => ndjson.check_seen(&self.targets),
        }
    }
}

impl Target {
    fn of(column: &Column, path: &str) -> Result<Self, String> {
        let constant = match &column.origin {
            Origin::Folder(key) => {
                let value = of_folder(column, key, path);
                Some(value.map_err(|detail| format!("column {}: {detail}", column.name))?)
            }
            Origin::Names(_) | Origin::Position(_) => None,
        };
        Ok(Self {
            name: column.name.clone(),
            data_type: column.data_type.clone(),
            time: TimeFormat::of(column),
            origin: column.origin.clone(),
            default: column.default.clone(),
            constant,
        })
    }
}

fn failure(path: &str, lines: &Lines, rows: u64, stop: Stop) -> TextError {
    match stop {
        Stop::Contract(Some(line), detail) => TextError::Contract(format!("{path}: line {line}: {detail}")),
        Stop::Contract(None, detail) => TextError::Contract(format!("{path}: {detail}")),
        Stop::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof && lines.bytes() == 0 => {
            failure(path, lines, rows, Stop::Empty)
        }
        Stop::Empty => TextError::Unreadable(format!("{path}: is empty, expected rows; it may be still being written")),
        Stop::Io(error) => TextError::Unreadable(format!(
            "{path}: cannot be read beyond {rows} rows, after {} bytes of the file: {error}; it may be cut short, or still being written",
            lines.bytes()
        )),
    }
}

/// A text for messages: its beginning, quoted.
pub(super) fn clipped(text: &str) -> String {
    let start = beginning(text);
    format!("{start:?}{}", if start.len() < text.len() { "…" } else { "" })
}

/// The first characters of a text.
pub(super) fn beginning(text: &str) -> &str {
    const MOST: usize = 60;
    text.char_indices().nth(MOST).map_or(text, |(end, _)| &text[..end])
}
