//! Csv files: the header held against the contract, then a row for each record.

use super::batch::Rows;
use super::lines::{Line, Lines, More};
use super::record::{Field, Split, Splitter};
use super::{MAX_LINE_BYTES, Stop, Target, clipped};
use crate::pipeline::{CsvLayout, DataType, Literal, Origin};
use std::io;

/// How many names of a header a message gives.
const MAX_NAMED: usize = 50;

/// A csv file after its header.
pub(super) struct Csv {
    layout: CsvLayout,
    splitter: Splitter,
    /// The names of the header.
    names: Option<usize>,
    /// The fields of a record, once they are known.
    fields: Option<usize>,
    /// The field of each column of the contract, where it has one.
    places: Vec<Option<usize>>,
    unescaped: String,
}

/// What a record turned out to be.
enum Record {
    Whole,
    Malformed(String),
}

impl Csv {
    /// Reads the header, if there is one. Columns that the file does not have get their defaults as constants.
    pub(super) fn open(layout: &CsvLayout, lines: &mut Lines, targets: &mut [Target]) -> Result<Self, Stop> {
        let splitter = Splitter::new(layout.delimiter, layout.quote);
        let places = Vec::new();
        let unescaped = String::new();
        let mut csv = Self { layout: layout.clone(), splitter, names: None, fields: None, places, unescaped };
        lines.start()?;
        if layout.header {
            let names = csv.header(lines)?;
            csv.places = places_by_name(targets, &names, lines.number())?;
            csv.names = Some(names.len());
            csv.fields = Some(names.len()).filter(|_| !layout.empty_tail);
            csv.splitter.keep(csv.kept(), names.len());
        } else {
            csv.places = targets.iter().map(place_by_position).collect();
        }
        Ok(csv)
    }

    pub(super) fn has_header(&self) -> bool {
        self.names.is_some()
    }

    /// Reads one record into a row; none at the end. Blank lines are passed over.
    pub(super) fn row(&mut self, lines: &mut Lines, rows: &mut Rows<'_>) -> Result<bool, Stop> {
        let Some(record) = self.record(lines)? else { return Ok(false) };
        let line = lines.number();
        let text = match record {
            Record::Whole => checked_text(lines.record()),
            Record::Malformed(reason) => Err(reason),
        };
        let text = match text {
            Ok(text) => text,
            Err(reason) => {
                rows.malformed(line, reason, lines.record());
                return Ok(true);
            }
        };
        match self.count_is_right(line, rows.targets)? {
            Ok(()) => self.values(text, line, rows),
            Err(reason) => rows.malformed(line, reason, lines.record()),
        }
        Ok(true)
    }

    fn header(&mut self, lines: &mut Lines) -> Result<Vec<String>, Stop> {
        let record = self.record(lines)?;
        let line = lines.number();
        let broken = |detail: String| Stop::Contract(Some(line), format!("the header {detail}"));
        match record {
            None => return Err(Stop::Contract(None, "has only blank lines, expected a header".to_owned())),
            Some(Record::Malformed(reason)) => return Err(broken(reason)),
            Some(Record::Whole) => {}
        }
        let text = checked_text(lines.record()).map_err(broken)?;
        let names = self.splitter.fields().iter().map(|field| {
            let raw = text.get(field.start..field.end).unwrap_or_default();
            unescape(raw, field, self.layout.quote, &mut self.unescaped).trim().to_owned()
        });
        Ok(names.collect())
    }

    /// The next record that is not blank.
    fn record(&mut self, lines: &mut Lines) -> io::Result<Option<Record>> {
        loop {
            match lines.next()? {
                None => return Ok(None),
                Some(Line::TooLong(bytes)) => {
                    let reason = format!("has a line of {bytes} bytes, expected at most {MAX_LINE_BYTES}");
                    return Ok(Some(Record::Malformed(reason)));
                }
                Some(Line::There) if without_cr(lines.record()).is_empty() => {}
                Some(Line::There) => return self.whole(lines).map(Some),
            }
        }
    }

    /// Takes the record apart, with the lines that its quotes span. Where they do not pair, the first line alone is malformed:
    /// one stray quote does not swallow the file.
    fn whole(&mut self, lines: &mut Lines) -> io::Result<Record> {
        let mut split = self.splitter.split(without_cr(lines.record()));
        loop {
            let reason = match split {
                Split::Whole => return Ok(Record::Whole),
                Split::Broken(field) => format!("has text after the closing quote of field {field}"),
                Split::Open => match lines.extend()? {
                    More::There => {
                        split = self.splitter.go_on(without_cr(lines.record()));
                        continue;
                    }
                    More::End => {
                        format!("has a quote in field {} that is not closed", self.splitter.count() + 1)
                    }
                    More::TooLong => {
                        let field = self.splitter.count() + 1;
                        format!("has a quote in field {field} that is not closed within {MAX_LINE_BYTES} bytes")
                    }
                },
            };
            lines.give_back();
            return Ok(Record::Malformed(reason));
        }
    }

    /// Whether the record has as many fields as it should; the first one says how many where the header does not.
    fn count_is_right(&mut self, line: u64, targets: &[Target]) -> Result<Result<(), String>, Stop> {
        let found = self.splitter.count();
        let expected = match (self.fields, self.names) {
            (Some(fields), _) => fields,
            (None, Some(names)) if found >= names && self.splitter.tail_is_empty() => *self.fields.insert(found),
            (None, Some(names)) => names,
            (None, None) => {
                self.check_positions(found, line, targets)?;
                self.splitter.keep(self.kept(), usize::MAX);
                *self.fields.insert(found)
            }
        };
        let whose = match self.names {
            Some(names) if names == expected => "the header",
            _ => "the first record",
        };
        if found != expected {
            let fields = if found == 1 { "field" } else { "fields" };
            return Ok(Err(format!("has {found} {fields}, {whose} has {expected}")));
        }
        if !self.splitter.tail_is_empty() {
            let names = self.names.unwrap_or(expected);
            return Ok(Err(format!("has a value beyond the {names} fields of the header")));
        }
        Ok(Ok(()))
    }

    fn check_positions(&self, fields: usize, line: u64, targets: &[Target]) -> Result<(), Stop> {
        for (target, place) in targets.iter().zip(&self.places) {
            if let Some(place) = place.filter(|place| *place >= fields && target.default.is_none()) {
                let (name, expected, position) = (&target.name, &target.data_type, place + 1);
                let detail =
                    format!("column {name}: expected {expected} in field {position}, the record has {fields} fields");
                return Err(Stop::Contract(Some(line), detail));
            }
        }
        Ok(())
    }

    fn values(&mut self, text: &str, line: u64, rows: &mut Rows<'_>) {
        rows.begin(line);
        let targets = rows.targets;
        for (column, place) in self.places.iter().enumerate() {
            let target = &targets[column];
            let field = place.and_then(|place| self.splitter.fields().get(place));
            let Some(field) = field else {
                let value = target.constant.as_ref().or(target.default.as_ref()).unwrap_or(&Literal::Null);
                rows.literal(column, value);
                continue;
            };
            let raw = text.get(field.start..field.end).unwrap_or_default();
            let value = unescape(raw, field, self.layout.quote, &mut self.unescaped);
            rows.raw(column, || Some(value.into()));
            let value = if target.data_type == DataType::String { value } else { value.trim_matches([' ', '\t']) };
            let is_text = field.quoted && !self.layout.quoted_nulls && target.data_type == DataType::String;
            if !is_text && self.layout.nulls.iter().any(|null| null == value) {
                rows.null(column);
            } else {
                rows.text(column, value);
            }
        }
    }

    /// The fields up to the last one that is wanted.
    fn kept(&self) -> usize {
        self.places.iter().flatten().max().map_or(0, |last| last + 1)
    }
}

fn without_cr(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Text that can be trusted to be some.
pub(super) fn checked_text(record: &[u8]) -> Result<&str, String> {
    if let Some(at) = memchr::memchr(0, record) {
        return Err(format!("has a NUL byte, the {}th of its bytes", at + 1));
    }
    std::str::from_utf8(record).map_err(|error| format!("is not UTF-8 from byte {} on", error.valid_up_to() + 1))
}

/// A field's text, with doubled quotes made single in `buffer`.
fn unescape<'a>(raw: &'a str, field: &Field, quote: Option<u8>, buffer: &'a mut String) -> &'a str {
    let Some(quote) = quote.filter(|_| field.escapes) else { return raw };
    let quote = char::from(quote);
    buffer.clear();
    let mut rest = raw;
    while let Some((before, after)) = rest.split_once(quote) {
        buffer.push_str(before);
        buffer.push(quote);
        rest = after.strip_prefix(quote).unwrap_or(after);
    }
    buffer.push_str(rest);
    buffer
}

fn place_by_position(target: &Target) -> Option<usize> {
    match target.origin {
        Origin::Position(position) => position.checked_sub(1),
        Origin::Names(_) | Origin::Folder(_) => None,
    }
}

/// The first of each column's names that the header has.
fn places_by_name(targets: &mut [Target], header: &[String], line: u64) -> Result<Vec<Option<usize>>, Stop> {
    targets
        .iter_mut()
        .map(|target| place_by_name(target, header).map_err(|detail| broken(target, line, &detail)))
        .collect()
}

fn place_by_name(target: &mut Target, header: &[String]) -> Result<Option<usize>, String> {
    let Origin::Names(names) = &target.origin else { return Ok(None) };
    let Some(name) = names.iter().find(|name| header.contains(name)) else {
        return match &target.default {
            Some(default) => {
                target.constant = Some(default.clone());
                Ok(None)
            }
            None => Err(missing(names, header)),
        };
    };
    match header.iter().filter(|there| *there == name).count() {
        1 => Ok(header.iter().position(|there| there == name)),
        several => Err(format!("the header has {name} {several} times, expected it once")),
    }
}

fn missing(names: &[String], header: &[String]) -> String {
    let shown = header.iter().take(MAX_NAMED).map(|name| clipped(name)).collect::<Vec<_>>().join(", ");
    let more = if header.len() > MAX_NAMED { format!(" and {} more", header.len() - MAX_NAMED) } else { String::new() };
    format!("not found as {}; the header has {shown}{more}", names.join(" or "))
}

fn broken(target: &Target, line: u64, detail: &str) -> Stop {
    Stop::Contract(Some(line), format!("column {}: expected {}, {detail}", target.name, target.data_type))
}
