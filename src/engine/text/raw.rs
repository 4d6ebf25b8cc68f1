//! What lines say before anything is made of it: for the rows that are kept apart, which people look at.

use super::{Fault, Target};
use crate::pipeline::Origin;
use crate::pipeline::value::text_of;

/// The most that is kept of a line, and of a field.
pub(crate) const LINE_BYTES: usize = 4096;
pub(crate) const FIELD_BYTES: usize = 1024;

/// A row as its line has it. What is long is cut short, with `…` at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RawRow {
    /// Its line, from 1.
    pub(crate) line: i64,
    /// The text of each column of the contract; none where the line does not have it, or has JSON's null.
    pub(crate) fields: Vec<Option<String>>,
    /// What is wrong with it.
    pub(crate) fault: Option<Fault>,
    /// The line, where it is malformed.
    pub(crate) text: Option<String>,
}

/// A field as it is kept.
pub(crate) fn kept_field(text: &str) -> String {
    kept(text, FIELD_BYTES)
}

fn kept(text: &str, most: usize) -> String {
    match text.len() <= most {
        true => text.to_owned(),
        false => format!("{}…", &text[..text.floor_char_boundary(most)]),
    }
}

/// Takes down what the rows of some lines say while a batch of them is read.
pub(super) struct Capture<'a> {
    /// The lines that are still to come, in order.
    wanted: &'a [i64],
    /// With their places in the batch.
    rows: Vec<(usize, RawRow)>,
    /// Whether the row that is being read is one of them.
    is_on: bool,
}

impl<'a> Capture<'a> {
    pub(super) fn of(wanted: &'a [i64]) -> Self {
        Self { wanted, rows: Vec::new(), is_on: false }
    }

    pub(super) fn begin(&mut self, line: i64, row: usize, targets: &[Target]) {
        self.is_on = self.wanted.first() == Some(&line);
        if !self.is_on {
            return;
        }
        self.wanted = self.wanted.get(1..).unwrap_or_default();
        let of_folder = |target: &Target| match target.origin {
            Origin::Folder(_) => target.constant.as_ref().and_then(|value| text_of(value, &target.data_type)),
            Origin::Names(_) | Origin::Position(_) => None,
        };
        let fields = targets.iter().map(of_folder).collect();
        self.rows.push((row, RawRow { line, fields, fault: None, text: None }));
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    pub(super) fn field(&mut self, column: usize, text: &str) {
        let row = self.rows.last_mut().filter(|_| self.is_on);
        if let Some(field) = row.and_then(|(_, row)| row.fields.get_mut(column)) {
            *field = Some(kept_field(text));
        }
    }

    pub(super) fn malformed(&mut self, line: &[u8]) {
        if let Some((_, row)) = self.rows.last_mut().filter(|_| self.is_on) {
            // What is beyond the bound would be decoded for nothing.
            let start = line.get(..LINE_BYTES + 4).unwrap_or(line);
            let text = String::from_utf8_lossy(start);
            row.text = Some(kept(text.trim_end_matches('\r'), LINE_BYTES)).filter(|text| !text.is_empty());
        }
    }

    /// The rows, each with its fault among those of the batch.
    pub(super) fn finish(self, faults: &[Fault]) -> Vec<RawRow> {
        let fault = |row: usize| faults.iter().find(|fault| fault.row == row).cloned();
        self.rows.into_iter().map(|(at, row)| RawRow { fault: fault(at), ..row }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(kept("äöü", 6), "äöü");
        assert_eq!(kept("äöü", 5), "äö…");
        assert_eq!(kept("", 0), "");
    }
}
