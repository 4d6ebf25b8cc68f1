//! One layout in a table: whether what stands goes together with what a definition makes.
//!
//! Readers add up the files of a table. So all of its files must be of one format, and every row of the sources must belong to one
//! partition, whichever of the table's definitions placed it: else an overwrite of one partition leaves the same row in another.

use super::value::text_of;
use super::{Column, DataType, Definition, Format, Literal, Origin, parse};
use crate::partition::{PartitionColumn, PartitionKey};
use crate::run::{CatalogEntry, DefinitionHash, PartFile};
use std::collections::BTreeMap;

#[cfg(test)]
mod tests;

/// How a table that stands differs from what a definition makes, so that only a run of all of it can bring the two together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutChange {
    /// It has other partition columns.
    #[error(
        "found partition {partition}, which is none of the definition's partition columns ({expected}); expected one layout in a \
         table: run mode full once to rebuild it"
    )]
    Columns {
        /// One of the table's partitions.
        partition: PartitionKey,
        /// The definition's columns.
        expected: String,
    },
    /// Its rows were placed by another rule.
    #[error(
        "found partition {partition}, whose rows were placed by {found}, and the definition says {expected}; expected one layout in \
         a table, where no row is in two partitions: run mode full once to rebuild it"
    )]
    Placing {
        /// One of the table's partitions.
        partition: PartitionKey,
        /// How a partition column's values were made.
        found: String,
        /// How the definition makes them.
        expected: String,
    },
    /// Nobody can tell how its rows were placed.
    #[error(
        "found partition {partition}, written by the definition {definition}, which this version cannot read; expected one that \
         tells how its rows were placed: run mode full once to rebuild the table"
    )]
    Unreadable {
        /// One of the table's partitions.
        partition: PartitionKey,
        /// What the catalog says that it was written by.
        definition: DefinitionHash,
    },
    /// Its files have another name, since they are of another format.
    #[error(
        "found {} in partition {partition}, and the definition writes {}; expected one format in a table: run mode full once to \
         rebuild it", .found.as_str(), .expected.as_str()
    )]
    File {
        /// One of the table's partitions.
        partition: PartitionKey,
        /// Its file.
        found: PartFile,
        /// What the definition gives it.
        expected: PartFile,
    },
}

impl Definition {
    /// The first partition that does not go together with what this definition makes, of these entries of the table's catalog;
    /// none where all do. `texts` has the definitions that they were written by; that of this one need not be there.
    pub fn layout_change<'a>(
        &self,
        entries: impl IntoIterator<Item = &'a CatalogEntry>,
        texts: &BTreeMap<DefinitionHash, String>,
    ) -> Option<LayoutChange> {
        let mut placing: BTreeMap<&DefinitionHash, Placing> = BTreeMap::new();
        let expected = self.output.part_file();
        entries.into_iter().find_map(|entry| {
            let (partition, found) = (entry.partition.clone(), entry.content.file);
            if self.partition.values(&partition).is_none() {
                let names = self.partition.columns().iter().map(|column| column.name.as_str()).collect::<Vec<_>>();
                return Some(LayoutChange::Columns { partition, expected: names.join(", ") });
            }
            if found != expected {
                return Some(LayoutChange::File { partition, found, expected });
            }
            if entry.definition == self.hash {
                return None;
            }
            let placed = placing.entry(&entry.definition);
            match placed.or_insert_with(|| self.placing_of(texts.get(&entry.definition))) {
                Placing::Same => None,
                Placing::Other { found, expected } => {
                    Some(LayoutChange::Placing { partition, found: found.clone(), expected: expected.clone() })
                }
                Placing::Unknown => Some(LayoutChange::Unreadable { partition, definition: entry.definition.clone() }),
            }
        })
    }

    /// Whether a table written by that definition may have partitions that do not go together with this one.
    pub fn may_change_layout(&self, text: &str) -> bool {
        let is_written_so = |other: &Definition| other.output.part_file() == self.output.part_file();
        !parse(text, &self.name).is_ok_and(|other| is_written_so(&other) && self.placed_otherwise(&other).is_none())
    }

    fn placing_of(&self, text: Option<&String>) -> Placing {
        match text.map(|text| parse(text, &self.name)) {
            Some(Ok(other)) => match self.placed_otherwise(&other) {
                Some((found, expected)) => Placing::Other { found, expected },
                None => Placing::Same,
            },
            Some(Err(_)) | None => Placing::Unknown,
        }
    }

    /// The first partition column by which another definition may put a row elsewhere: how it makes its values, and how this
    /// one does.
    fn placed_otherwise(&self, other: &Definition) -> Option<(String, String)> {
        let (found, expected) = (other.partition.columns(), self.partition.columns());
        if found.len() != expected.len() {
            let names =
                |columns: &[PartitionColumn]| columns.iter().map(|c| c.name.as_str()).collect::<Vec<_>>().join(", ");
            return Some((names(found), names(expected)));
        }
        let mut pairs = found.iter().zip(expected);
        let (found, expected) = pairs.find(|(found, expected)| !places_alike((other, found), (self, expected)))?;
        Some((rule_of(other, found), rule_of(self, expected)))
    }
}

/// How a definition places rows, beside another one.
enum Placing {
    Same,
    Other { found: String, expected: String },
    Unknown,
}

/// Whether two partition columns give every row the same value, or one of them none. What makes a row rejected that was
/// not, or the other way round, moves none to another partition.
fn places_alike(a: (&Definition, &PartitionColumn), b: (&Definition, &PartitionColumn)) -> bool {
    if (&a.1.name, a.1.transform) != (&b.1.name, b.1.transform) {
        return false;
    }
    let (Some(from_a), Some(from_b)) = (a.0.column(&a.1.source), b.0.column(&b.1.source)) else { return false };
    let zoned = matches!(from_a.data_type, DataType::Datetime(Some(_)));
    is_same_value(&from_a.data_type, &from_b.data_type)
        && is_same_field(from_a, from_b)
        && from_a.format == from_b.format
        // Wall-clock times are never shifted.
        && (!zoned || a.0.timezone == b.0.timezone)
        && (matches!(from_a.origin, Origin::Folder(_)) || is_same_dialect(dialect(a.0), dialect(b.0)))
}

/// Whether a value that fits both types is written alike in a key.
fn is_same_value(a: &DataType, b: &DataType) -> bool {
    use DataType::{Datetime, Decimal, Int, UInt};
    match (a, b) {
        (Int(_) | UInt(_), Int(_) | UInt(_)) => true,
        (Decimal { scale: a, .. }, Decimal { scale: b, .. }) => a == b,
        // In which zone an instant is shown decides nothing.
        (Datetime(a), Datetime(b)) => a.is_some() == b.is_some(),
        (a, b) => a == b,
    }
}

/// Whether two columns take their values from the same place in every file that has it for both. The names of a column that was
/// renamed over the years are looked for in their order, so further ones may follow: a file in which the first ones are is read
/// as before. What it is called in the contract tells nothing.
fn is_same_field(a: &Column, b: &Column) -> bool {
    let has_default = |column: &Column| column.default.as_ref().is_some_and(|default| *default != Literal::Null);
    if has_default(a) && has_default(b) && a.default != b.default {
        return false;
    }
    match (&a.origin, &b.origin) {
        (Origin::Names(x), Origin::Names(y)) => {
            let (shorter, longer) = if x.len() <= y.len() { ((x, a), y) } else { ((y, b), x) };
            // Where the further names are, the shorter list's rows had its default.
            longer.starts_with(shorter.0) && (longer.len() == shorter.0.len() || !has_default(shorter.1))
        }
        (x, y) => x == y,
    }
}

/// What is between and around the fields of csv: by another one another text, or another field, would be read of the same line.
fn dialect(definition: &Definition) -> Option<(u8, Option<u8>)> {
    match &definition.source.format {
        Format::Csv(layout) => Some((layout.delimiter, layout.quote)),
        Format::Parquet | Format::Ndjson => None,
    }
}

/// Other formats tell themselves where a value begins and ends.
fn is_same_dialect(a: Option<(u8, Option<u8>)>, b: Option<(u8, Option<u8>)>) -> bool {
    a.is_none() || b.is_none() || a == b
}

/// For a message: all that decides about the values of a partition column.
fn rule_of(definition: &Definition, partition: &PartitionColumn) -> String {
    let mut rule = format!("{} = {} {}", partition.name, partition.transform.as_str(), partition.source);
    let Some(column) = definition.column(&partition.source) else { return rule };
    rule.push_str(&format!(" ({}, from ", column.data_type));
    match &column.origin {
        Origin::Names(names) => rule.push_str(&names.join(", ")),
        Origin::Position(position) => rule.push_str(&format!("field {position}")),
        Origin::Folder(key) => rule.push_str(&format!("folder {key}")),
    }
    if let Some(format) = &column.format {
        rule.push_str(&format!(", format {format}"));
    }
    if let Some(default) = &column.default {
        rule.push_str(&format!(
            ", default {}",
            text_of(default, &column.data_type).unwrap_or_else(|| "null".to_owned())
        ));
    }
    if matches!(column.data_type, DataType::Datetime(Some(_))) {
        rule.push_str(&format!(", in {}", definition.timezone.name()));
    }
    if let (false, Some((delimiter, quote))) = (matches!(column.origin, Origin::Folder(_)), dialect(definition)) {
        rule.push_str(&format!(", delimiter {:?}", char::from(delimiter)));
        rule.push_str(&quote.map_or(", no quotes".to_owned(), |quote| format!(", quote {}", char::from(quote))));
    }
    rule + ")"
}
