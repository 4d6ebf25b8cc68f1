//! Rows as typed columns.

use super::raw::Capture;
use super::{Target, clipped};
use crate::pipeline::value::{Misfit, boolean, decimal, float32, float64, integer};
use crate::pipeline::{DataType, Literal};
use std::borrow::Cow;

/// Some rows of a file.
#[derive(Debug)]
pub(crate) struct Batch {
    /// The columns of the contract, in its order.
    pub(crate) columns: Vec<Values>,
    /// The line of each row, from 1; a record's first.
    pub(crate) lines: Vec<i64>,
    /// What is wrong with rows, in their order; at most one for each.
    pub(crate) faults: Vec<Fault>,
}

/// What is wrong with a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Its place in the batch.
    pub(crate) row: usize,
    /// The column whose value does not fit and is null in the batch, the first of them; none where the line is malformed, and
    /// all that comes from it is null.
    pub(crate) column: Option<usize>,
    /// What was found, and what was expected.
    pub(crate) reason: String,
}

/// The values of a column, in the type that the engine computes with.
#[derive(Debug)]
pub(crate) enum Values {
    /// bool
    Bool(Vec<Option<bool>>),
    /// int8 to int64, uint8 to uint32, datetimes in microseconds, and the unscaled integers of decimals of up to 18 digits.
    Int64(Vec<Option<i64>>),
    /// uint64
    UInt64(Vec<Option<u64>>),
    /// The unscaled integers of longer decimals.
    Int128(Vec<Option<i128>>),
    /// float32
    Float32(Vec<Option<f32>>),
    /// float64
    Float64(Vec<Option<f64>>),
    /// date, in days since 1970-01-01
    Date(Vec<Option<i32>>),
    /// string
    Text(Texts),
}

/// Texts, one after the other in one buffer.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    bytes: String,
    /// The end of each, or nothing for null.
    ends: Vec<Option<usize>>,
}

impl Texts {
    /// The texts, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Option<&str>> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let end = (*end)?;
            let text = self.bytes.get(start..end);
            start = end;
            text
        })
    }

    fn push(&mut self, text: &str) {
        self.bytes.push_str(text);
        self.ends.push(Some(self.bytes.len()));
    }
}

/// A batch that is being filled, row by row.
pub(super) struct Rows<'a> {
    pub(super) targets: &'a [Target],
    pub(super) batch: Batch,
    pub(super) text_bytes: usize,
    /// Where somebody wants to see what lines say.
    pub(super) capture: Option<Capture<'a>>,
}

impl<'a> Rows<'a> {
    pub(super) fn new(targets: &'a [Target], capture: Option<Capture<'a>>) -> Self {
        let columns = targets.iter().map(|target| Values::of(&target.data_type)).collect();
        Self { targets, batch: Batch { columns, lines: Vec::new(), faults: Vec::new() }, text_bytes: 0, capture }
    }

    pub(super) fn count(&self) -> usize {
        self.batch.lines.len()
    }

    /// Begins a row; a value for each column must follow.
    pub(super) fn begin(&mut self, line: u64) {
        let line = i64::try_from(line).unwrap_or(i64::MAX);
        if let Some(capture) = &mut self.capture {
            capture.begin(line, self.batch.lines.len(), self.targets);
        }
        self.batch.lines.push(line);
    }

    /// What the line has for a column, before anything is made of it; worked out only where somebody wants to see it.
    pub(super) fn raw<'t>(&mut self, column: usize, text: impl FnOnce() -> Option<Cow<'t, str>>) {
        let Some(capture) = self.capture.as_mut().filter(|capture| capture.is_on()) else { return };
        if let Some(text) = text() {
            capture.field(column, &text);
        }
    }

    /// A whole row of a line that is malformed. What does not come from the line, its folder's values, stays.
    pub(super) fn malformed(&mut self, line: u64, reason: String, text: &[u8]) {
        self.begin(line);
        if let Some(capture) = &mut self.capture {
            capture.malformed(text);
        }
        for (column, target) in self.targets.iter().enumerate() {
            self.literal(column, target.constant.as_ref().unwrap_or(&Literal::Null));
        }
        let row = self.batch.lines.len() - 1;
        self.batch.faults.push(Fault { row, column: None, reason });
    }

    /// A value from a text of the column's type.
    pub(super) fn text(&mut self, column: usize, text: &str) {
        let target = &self.targets[column];
        match self.batch.columns[column].push(text, target) {
            Ok(()) if target.data_type == DataType::String => self.text_bytes += text.len(),
            Ok(()) => {}
            Err(misfit) => self.misfit(column, &format!("{} {misfit}", clipped(text))),
        }
    }

    /// A value that does not fit: null, and the row's fault if it is the first.
    pub(super) fn misfit(&mut self, column: usize, found: &str) {
        self.null(column);
        let row = self.batch.lines.len() - 1;
        if self.batch.faults.last().is_none_or(|fault| fault.row != row) {
            let reason = format!("{found}, expected {}", self.targets[column].data_type);
            self.batch.faults.push(Fault { row, column: Some(column), reason });
        }
    }

    pub(super) fn null(&mut self, column: usize) {
        self.batch.columns[column].push_literal(&Literal::Null);
    }

    pub(super) fn literal(&mut self, column: usize, value: &Literal) {
        if let Literal::Text(text) = value {
            self.text_bytes += text.len();
        }
        self.batch.columns[column].push_literal(value);
    }
}

impl Values {
    /// No values of a type.
    fn of(data_type: &DataType) -> Self {
        match data_type {
            DataType::Bool => Values::Bool(Vec::new()),
            DataType::UInt(64) => Values::UInt64(Vec::new()),
            DataType::Decimal { precision, .. } if *precision > 18 => Values::Int128(Vec::new()),
            DataType::Int(_) | DataType::UInt(_) | DataType::Decimal { .. } | DataType::Datetime(_) => {
                Values::Int64(Vec::new())
            }
            DataType::Float32 => Values::Float32(Vec::new()),
            DataType::Float64 => Values::Float64(Vec::new()),
            DataType::Date => Values::Date(Vec::new()),
            DataType::String => Values::Text(Texts::default()),
        }
    }

    /// Adds a text's value, or nothing where it does not fit.
    fn push(&mut self, text: &str, target: &Target) -> Result<(), Misfit> {
        match self {
            Values::Bool(values) => values.push(Some(boolean(text)?)),
            Values::Int64(values) => values.push(Some(int64(text, target)?)),
            Values::UInt64(values) => values.push(narrow(integer(text, &target.data_type)?)),
            Values::Int128(values) => values.push(Some(exact(text, &target.data_type)?)),
            Values::Float32(values) => values.push(Some(float32(text)?)),
            Values::Float64(values) => values.push(Some(float64(text)?)),
            Values::Date(values) => values.push(Some(target.time.days(text)?)),
            Values::Text(values) => values.push(text),
        }
        Ok(())
    }

    /// Adds a value that was typed before.
    fn push_literal(&mut self, value: &Literal) {
        match (self, value) {
            (Values::Bool(values), Literal::Bool(value)) => values.push(Some(*value)),
            (Values::Int64(values), Literal::Exact(value)) => values.push(narrow(*value)),
            (Values::Int64(values), Literal::Datetime(micros)) => values.push(Some(*micros)),
            (Values::UInt64(values), Literal::Exact(value)) => values.push(narrow(*value)),
            (Values::Int128(values), Literal::Exact(value)) => values.push(Some(*value)),
            (Values::Float32(values), Literal::Float(value)) => values.push(Some(*value as f32)),
            (Values::Float64(values), Literal::Float(value)) => values.push(Some(*value)),
            (Values::Date(values), Literal::Date(days)) => values.push(Some(*days)),
            (Values::Text(values), Literal::Text(text)) => values.push(text),
            // Defaults and folders were read as the column's type; so what is left is null.
            (Values::Bool(values), _) => values.push(None),
            (Values::Int64(values), _) => values.push(None),
            (Values::UInt64(values), _) => values.push(None),
            (Values::Int128(values), _) => values.push(None),
            (Values::Float32(values), _) => values.push(None),
            (Values::Float64(values), _) => values.push(None),
            (Values::Date(values), _) => values.push(None),
            (Values::Text(values), _) => values.ends.push(None),
        }
    }
}

fn int64(text: &str, target: &Target) -> Result<i64, Misfit> {
    match &target.data_type {
        DataType::Datetime(zone) => target.time.micros(text, zone.is_some()),
        exact_type => narrow(exact(text, exact_type)?).ok_or(Misfit::OutOfRange),
    }
}

fn exact(text: &str, data_type: &DataType) -> Result<i128, Misfit> {
    match data_type {
        DataType::Decimal { precision, scale } => decimal(text, *precision, *scale),
        other => integer(text, other),
    }
}

fn narrow<T: TryFrom<i128>>(value: i128) -> Option<T> {
    T::try_from(value).ok()
}
