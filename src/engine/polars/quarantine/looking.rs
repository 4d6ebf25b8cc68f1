//! The second reading of a file: the rows that are kept apart, in the order of their lines, and what was found in them.

use super::super::books::{Books, Intake};
use super::super::contract::Found;
use super::super::files::LookedAt;
use super::super::lower::{balanced, keep_type};
use super::super::not_read;
use super::super::query::{self, Carried, VERDICT, Verdict, bad_name};
use super::super::scope::{value_name, values_at};
use super::Row;
use super::said;
use crate::engine::EngineError;
use crate::engine::text::{RawRow, kept_field};
use crate::partition::PartitionValue;
use crate::pipeline::value::text_of;
use crate::pipeline::{Column, Definition, Origin, Reason};
use ::polars::prelude as pl;
use ::polars::prelude::{IntoColumn, lit};
use std::collections::BTreeMap;

/// The column of the row's line, or number.
const LINE: &str = "\u{1}its line";

fn raw_name(at: usize) -> pl::PlSmallStr {
    format!("\u{1}raw {at}").into()
}

/// Looks for rows that are kept apart.
pub(super) struct Looking<'a> {
    pub(super) definition: &'a Definition,
    pub(super) intake: &'a Intake<'a>,
}

/// A row that was found, and what is wrong with it.
pub(super) struct Seen {
    pub(super) line: i64,
    pub(super) reason: Reason,
    /// Its partition values, if it has them.
    pub(super) values: Option<Vec<PartitionValue>>,
    /// The partition columns that it has no value for.
    pub(super) nowhere: Vec<usize>,
    /// The columns of the contract whose values do not fit.
    pub(super) bad: Vec<usize>,
    pub(super) raw: RawRow,
}

impl Looking<'_> {
    /// The first rows of a file that are kept apart, `room` at most. Reads no further than the last of those counted.
    pub(super) fn through(&self, file: &LookedAt, books: &Books, room: usize) -> Result<Vec<Row>, EngineError> {
        let counted = |reason: &Reason| books.apart(&file.planned.path, *reason, self.intake);
        let kept = Reason::ALL.into_iter().filter(|reason| self.definition.quarantine.keeps(*reason));
        let reasons: Vec<Reason> = kept.filter(|reason| counted(reason) > 0).collect();
        let there: u64 = reasons.iter().map(counted).sum();
        let wanted = room.min(usize::try_from(there).unwrap_or(usize::MAX));
        if wanted == 0 {
            return Ok(Vec::new());
        }
        let mut seen = self.seen(file, &reasons, wanted).map_err(|e| not_read(std::slice::from_ref(file), &e))?;
        if file.is_text() {
            let lines: Vec<i64> = seen.iter().map(|row| row.line).collect();
            let mut raw: BTreeMap<i64, RawRow> =
                file.raw_rows(self.definition, &lines)?.into_iter().map(|row| (row.line, row)).collect();
            for row in &mut seen {
                row.raw = raw.remove(&row.line).unwrap_or_else(|| std::mem::replace(&mut row.raw, nothing(row.line)));
            }
        }
        Ok(seen.into_iter().map(|seen| self.row(file, seen)).collect())
    }

    fn row(&self, file: &LookedAt, seen: Seen) -> Row {
        let detail = said::detail(self.definition, self.intake, file, &seen);
        let Seen { line, reason, values, raw, .. } = seen;
        let partition = values.and_then(|values| self.definition.partition.key(&values));
        let RawRow { fields, text, .. } = raw;
        Row { path: file.planned.path.clone(), line, reason, detail, partition, text, fields }
    }

    fn seen(&self, file: &LookedAt, reasons: &[Reason], wanted: usize) -> pl::PolarsResult<Vec<Seen>> {
        // Strays may be in row groups that the first reading left out.
        let stretches = match reasons.contains(&Reason::Stray) {
            true => vec![(0, file.rows())],
            false => query::reading(file).stretches,
        };
        let mut out = Vec::new();
        for (offset, length) in stretches {
            let left = wanted.saturating_sub(out.len());
            if left == 0 {
                break;
            }
            let rows = query::open(file, !file.is_text())?
                .slice(i64::try_from(offset).unwrap_or(i64::MAX), query::index_size(length));
            let found = query::judged(self.definition, file, 0, rows, self.carried(file))
                .filter(self.condition(file, reasons))
                .limit(query::index_size(left as u64))
                .collect_with_engine(pl::Engine::Streaming)?
                .unwrap_single();
            for at in 0..found.height() {
                out.extend(self.seen_at(file, &found, at)?);
            }
        }
        Ok(out)
    }

    /// The columns as the file has them, and the lines.
    fn carried(&self, file: &LookedAt) -> Carried {
        let mut carried = Carried { with_bad: true, ..Carried::default() };
        let mut carry = |column: pl::Expr, name: pl::PlSmallStr| {
            carried.columns.push(column.alias(name.clone()));
            carried.names.push(name);
        };
        carry(query::line_of(file), LINE.into());
        for (at, found) in file.found.iter().enumerate() {
            match found {
                Found::Column { name, physical: pl::DataType::String } => {
                    carry(pl::col(name.as_str()).map(shortened, keep_type), raw_name(at));
                }
                Found::Column { name, .. } => carry(pl::col(name.as_str()), raw_name(at)),
                Found::Spooled { .. } | Found::Constant(_) => {}
            }
        }
        carried
    }

    fn condition(&self, file: &LookedAt, reasons: &[Reason]) -> pl::Expr {
        let is = |verdict: Verdict| pl::col(VERDICT).eq(lit(verdict.code(0)));
        let of_reason = |reason: &Reason| match reason {
            Reason::Rejected => is(Verdict::Nowhere).or(is(Verdict::Rejected)),
            Reason::Filtered => is(Verdict::Filtered),
            Reason::Stray => {
                let taken = self.intake.allowed(&file.planned.path).and_then(|allowed| allowed.condition());
                match taken {
                    Some(taken) => is(Verdict::OutOfScope).and(taken.not()),
                    None => lit(false),
                }
            }
        };
        balanced(reasons.iter().map(of_reason).collect(), pl::Expr::or).unwrap_or_else(|| lit(false))
    }

    fn seen_at(&self, file: &LookedAt, found: &pl::DataFrame, at: usize) -> pl::PolarsResult<Option<Seen>> {
        let code = found.column(VERDICT)?.get(at)?.extract::<i32>();
        let reason = match code.and_then(Verdict::of_code) {
            Some((Verdict::Nowhere | Verdict::Rejected, _)) => Reason::Rejected,
            Some((Verdict::Filtered, _)) => Reason::Filtered,
            Some((Verdict::OutOfScope, _)) => Reason::Stray,
            Some((Verdict::InScope, _)) | None => return Ok(None),
        };
        let line = found.column(LINE)?.get(at)?.extract::<i64>().unwrap_or_default();
        let spec = &self.definition.partition;
        let mut nowhere = Vec::new();
        for column in 0..spec.columns().len() {
            if found.column(&value_name(column))?.get(at)?.is_null() {
                nowhere.push(column);
            }
        }
        let (mut bad, mut fields) = (Vec::new(), Vec::new());
        for (place, (column, has)) in self.definition.source.columns.iter().zip(&file.found).enumerate() {
            if found.column(&bad_name(place)).is_ok_and(|bad| matches!(bad.get(at), Ok(pl::AnyValue::Boolean(true)))) {
                bad.push(place);
            }
            fields.push(field(column, has, found, place, at)?);
        }
        let raw = RawRow { fields, ..nothing(line) };
        Ok(Some(Seen { line, reason, values: values_at(found, spec, at)?, nowhere, bad, raw }))
    }
}

/// What a row of a Parquet file has for a column; of a text file it is read from the text.
fn field(
    column: &Column,
    has: &Found,
    found: &pl::DataFrame,
    place: usize,
    at: usize,
) -> pl::PolarsResult<Option<String>> {
    Ok(match (has, &column.origin) {
        (Found::Column { .. }, _) => said::value(&found.column(&raw_name(place))?.get(at)?),
        (Found::Constant(value), Origin::Folder(_)) => text_of(value, &column.data_type),
        (Found::Constant(_) | Found::Spooled { .. }, _) => None,
    })
}

fn nothing(line: i64) -> RawRow {
    RawRow { line, fields: Vec::new(), fault: None, text: None }
}

fn shortened(texts: pl::Column) -> pl::PolarsResult<pl::Column> {
    let kept = texts.as_materialized_series().str()?.iter().map(|text| text.map(kept_field));
    let kept: pl::StringChunked = pl::NewChunkedArray::from_iter_options(texts.name().clone(), kept);
    Ok(kept.into_column())
}
