//! Rows kept apart: those that go into no partition are looked for again and told as they were found, for people to look at.
//!
//! The first reading only counts them. Where there are any, the files that have them are read a second time, up to the last
//! of them or the bound; so a run without such rows pays nothing. The rows are the first ones by file and line, whatever the
//! slices: each slice brings its own first ones, in its checkpoint too.

mod looking;
mod said;

use super::books::{Books, Intake};
use super::checkpoints::SliceReport;
use super::files::LookedAt;
use super::{Attempt, engine_error, output};
use crate::engine::text::{FIELD_BYTES, LINE_BYTES};
use crate::engine::{EngineError, Job};
use crate::partition::PartitionKey;
use crate::pipeline::url::shown;
use crate::pipeline::{DataType, Definition, Format, Output, Reason};
use crate::run::Quarantine;
use ::polars::prelude as pl;
use ::polars::prelude::NamedFrom;
use looking::Looking;
use serde::{Deserialize, Serialize};

/// The memory that the rows of a run may take.
const MOST_BYTES: usize = 32 << 20;
/// What a value that is no text takes, and what is said of a row.
const OTHER_FIELD_BYTES: usize = 64;
const DETAIL_BYTES: usize = 256;
/// The file's name in staging.
const FILE: &str = "quarantine.parquet";

/// A row that is kept apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Row {
    /// The path of its file, with the query if it has one.
    path: String,
    /// Its line there, or its number, from 1.
    line: i64,
    reason: Reason,
    /// What is wrong with it.
    detail: String,
    /// The partition that it would go into.
    partition: Option<PartitionKey>,
    /// The line, where it is malformed.
    text: Option<String>,
    /// What it has for each column of the contract, as text.
    fields: Vec<Option<String>>,
}

impl Row {
    fn place(&self) -> (&str, i64) {
        (&self.path, self.line)
    }
}

/// The rows of a slice's files that are kept apart.
pub(super) fn rows(
    definition: &Definition,
    intake: &Intake<'_>,
    files: &[LookedAt],
    books: &Books,
) -> Result<Vec<Row>, EngineError> {
    let looking = Looking { definition, intake };
    let mut out = Vec::new();
    for file in files {
        let room = most(definition).saturating_sub(out.len());
        out.append(&mut looking.through(file, books, room)?);
    }
    Ok(out)
}

/// Adds the rows of a slice. A row of a file that several slices read counts once.
pub(super) fn add(rows: &mut Vec<Row>, slice: Vec<Row>, definition: &Definition) {
    rows.extend(slice);
    rows.sort_by(|a, b| a.place().cmp(&b.place()));
    rows.dedup_by(|a, b| a.place() == b.place());
    rows.truncate(most(definition));
}

/// Stages the rows, of as many as the books have; nothing where there are none.
pub(super) fn write(
    definition: &Definition,
    job: &Job,
    rows: &[Row],
    books: &Books,
) -> Result<Option<Quarantine>, EngineError> {
    if rows.is_empty() {
        return Ok(None);
    }
    let mut frame = frame(definition, rows).map_err(|e| engine_error(&e))?;
    let output::Written { bytes, sha256 } = output::write(&job.staging.join(FILE), &mut frame, &Output::default())?;
    let kept = Reason::ALL.into_iter().filter(|reason| definition.quarantine.keeps(*reason));
    let of = kept.map(|reason| books.apart_of_all(reason)).sum();
    Ok(Some(Quarantine { path: FILE.to_owned(), rows: rows.len() as u64, of, bytes, sha256 }))
}

impl Attempt<'_> {
    /// The failure of a slice that rejected too many rows, with those of the slices so far and of this one.
    pub(super) fn rejected(&mut self, error: EngineError, slice: &Books, apart: Vec<Row>) -> EngineError {
        let EngineError::Failed(error) = error else { return error };
        let SliceReport { mut books, apart: mut rows, .. } = std::mem::take(&mut self.whole);
        books.add(slice.clone(), self.intake);
        add(&mut rows, apart, self.definition);
        let written = write(self.definition, self.job, &rows, &books);
        match written.and_then(|written| output::sync_folder(&self.job.staging).map(|()| written)) {
            Ok(Some(quarantine)) => EngineError::Rejected { error, quarantine: Box::new(quarantine) },
            Ok(None) => EngineError::Failed(error),
            Err(not_written) => not_written,
        }
    }
}

/// How many rows are kept: as the pipeline says, but no more than have room at their longest, for they are in memory until the
/// run's last slice is done. What is kept for people must not decide whether a run can be computed.
fn most(definition: &Definition) -> usize {
    let columns = definition.source.columns.iter().map(|column| match column.data_type {
        DataType::String => FIELD_BYTES,
        _ => OTHER_FIELD_BYTES,
    });
    let line = if definition.source.format == Format::Parquet { 0 } else { LINE_BYTES };
    let row = columns.sum::<usize>() + line + DETAIL_BYTES;
    usize::try_from(definition.quarantine.max_rows).unwrap_or(usize::MAX).min(MOST_BYTES / row)
}

/// The columns that each row has beside those of the contract.
const BESIDE: [&str; 6] = ["reason", "detail", "partition", "source_file", "source_line", "source_text"];

fn frame(definition: &Definition, rows: &[Row]) -> pl::PolarsResult<pl::DataFrame> {
    let texts = |name: &str, of: &dyn Fn(&Row) -> Option<String>| -> pl::Column {
        let texts: Vec<Option<String>> = rows.iter().map(of).collect();
        pl::Series::new(name.into(), texts).into()
    };
    let [reason, detail, partition, file, line, text] = BESIDE;
    let mut columns = vec![
        texts(reason, &|row| Some(row.reason.as_str().to_owned())),
        texts(detail, &|row| Some(row.detail.clone())),
        texts(partition, &|row| row.partition.as_ref().map(ToString::to_string)),
        texts(file, &|row| Some(shown(&row.path).to_owned())),
        pl::Series::new(line.into(), rows.iter().map(|row| row.line).collect::<Vec<_>>()).into(),
        texts(text, &|row| row.text.clone()),
    ];
    for (at, name) in names(definition.source.columns.iter().map(|column| column.name.as_str())).iter().enumerate() {
        columns.push(texts(name, &|row| row.fields.get(at).cloned().flatten()));
    }
    pl::DataFrame::new(rows.len(), columns)
}

/// The names of the contract's columns, with `_` after those that the rows have beside them. Readers fold case.
fn names<'a>(of_contract: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut taken: Vec<String> = BESIDE.map(str::to_owned).into();
    let mut out = Vec::new();
    for name in of_contract {
        let mut name = name.to_owned();
        while taken.contains(&name.to_lowercase()) {
            name.push('_');
        }
        taken.push(name.to_lowercase());
        out.push(name);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_columns_have_one_name() {
        let names = |of_contract: &[&str]| names(of_contract.iter().copied()).join(" ");
        assert_eq!(names(&["zone", "Reason", "reason", "reason_"]), "zone Reason_ reason__ reason___");
        assert_eq!(names(&["a", "A", "source_file"]), "a A_ source_file_");
    }
}
