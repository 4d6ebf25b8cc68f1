#![expect(clippy::unwrap_used, reason = "tests")]

mod csv;
mod files;
mod ndjson;
mod real;

use super::*;
use std::io::{Cursor, Read};

/// The `[source]` of a pipeline of these columns.
fn source(format: &str, layout: &str, columns: &str) -> Source {
    let text = format!(
        "name = \"t\"\n[source]\nformat = \"{format}\"\npath = \"in/*\"\n{layout}\n[source.columns]\n{columns}\n\
         [partition]\np = {{ value_of = \"k\" }}\n[measures]\nn = \"count(*)\"\n"
    );
    let text = if columns.starts_with("k = ") {
        text
    } else {
        // What is under test need not be fit for a partition column.
        text.replace("[partition]", "k = { type = \"string\", folder = \"k\", optional = true }\n[partition]")
    };
    crate::pipeline::parse(&text, "t").unwrap_or_else(|errors| unreachable!("{errors:?}")).source
}

fn csv_of(layout: &str, columns: &str) -> Source {
    source("csv", &format!("[source.csv]\n{layout}"), columns)
}

/// All rows of a file, each as `line: a|b|c`, with null as `-` and faults after `!`.
fn shown(source: &Source, path: &str, bytes: &[u8]) -> Result<Vec<String>, TextError> {
    let mut all = vec![1, 3, 1000].into_iter().map(|rows| shown_in_batches(source, path, bytes, rows));
    let first = all.next().unwrap();
    assert!(all.all(|other| other == first), "the size of batches makes no difference");
    first
}

fn shown_in_batches(source: &Source, path: &str, bytes: &[u8], rows: usize) -> Result<Vec<String>, TextError> {
    let mut file = TextFile::open(Box::new(Dripping(Cursor::new(bytes.to_vec()))), path, source)?;
    let mut out = Vec::new();
    while let Some(batch) = file.next(rows)? {
        assert!(
            batch.lines.len() <= rows && batch.columns.iter().all(|column| column.texts().len() == batch.lines.len())
        );
        assert!(batch.faults.windows(2).all(|pair| pair[0].row < pair[1].row), "at most one for each row");
        out.extend(rows_of(&batch, source.columns.len()));
    }
    assert_eq!(file.rows, out.len() as u64);
    Ok(out)
}

fn rows_of(batch: &Batch, columns: usize) -> Vec<String> {
    // Without the bed's own column at the end.
    let columns: Vec<_> = batch.columns.iter().take(columns.max(2) - 1).map(Values::texts).collect();
    let row = |(at, line): (usize, &i64)| {
        let values: Vec<&str> = columns.iter().map(|column| column[at].as_deref().unwrap_or("-")).collect();
        let fault = batch.faults.iter().find(|fault| fault.row == at);
        let fault = fault.map(|fault| match fault.column {
            Some(column) => format!(" !{column} {}", fault.reason),
            None => format!(" !{}", fault.reason),
        });
        format!("{line}: {}{}", values.join("|"), fault.unwrap_or_default())
    };
    batch.lines.iter().enumerate().map(row).collect()
}

#[track_caller]
fn error(source: &Source, path: &str, bytes: &[u8]) -> String {
    shown(source, path, bytes).unwrap_err().to_string()
}

impl Values {
    fn texts(&self) -> Vec<Option<String>> {
        fn of<T: ToString>(values: &[Option<T>]) -> Vec<Option<String>> {
            values.iter().map(|value| value.as_ref().map(ToString::to_string)).collect()
        }
        match self {
            Values::Bool(values) => of(values),
            Values::Int64(values) => of(values),
            Values::UInt64(values) => of(values),
            Values::Int128(values) => of(values),
            Values::Float32(values) => of(values),
            Values::Float64(values) => of(values),
            Values::Date(values) => of(values),
            Values::Text(values) => values.iter().map(|text| text.map(str::to_owned)).collect(),
        }
    }
}

/// Gives seven bytes at a time, so that lines, characters and quotes are cut wherever they can be.
struct Dripping(Cursor<Vec<u8>>);

impl Read for Dripping {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(7);
        self.0.read(&mut buffer[..most])
    }
}
