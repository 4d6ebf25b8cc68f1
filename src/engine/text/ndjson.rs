//! Ndjson files: of each line only the contract's fields are parsed, whatever shape the others have.

use super::batch::Rows;
use super::csv::checked_text;
use super::lines::{Line, Lines};
use super::{MAX_LINE_BYTES, Stop, Target, beginning, clipped};
use crate::pipeline::{DataType, Literal, Origin};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// An ndjson file.
pub(super) struct Ndjson {
    root: Node,
    /// The raw value that the line has at each place, as a part of the line.
    found: Vec<Option<Range<usize>>>,
    /// The places of each column, in the order of its names.
    places: Vec<Vec<usize>>,
    /// The columns that some line has had.
    seen: Vec<bool>,
    /// Whether some line was a JSON object.
    any: bool,
}

/// A key that is looked for, with what is looked for inside its value. Places are numbered so that those of a node and of
/// all below it are one range.
#[derive(Debug, Default)]
struct Node {
    key: String,
    place: Option<usize>,
    places: Range<usize>,
    children: Vec<Node>,
}

impl Ndjson {
    pub(super) fn of(targets: &[Target]) -> Self {
        let mut root = Node::default();
        for target in targets {
            for name in names(target) {
                root.add(name.split('.'));
            }
        }
        let count = root.number(0);
        let places =
            targets.iter().map(|target| names(target).iter().filter_map(|name| root.find(name.split('.'))).collect());
        let places = places.collect();
        Self { root, found: vec![None; count], places, seen: vec![false; targets.len()], any: false }
    }

    /// Reads one line into a row; none at the end. Blank lines are passed over.
    pub(super) fn row(&mut self, lines: &mut Lines, rows: &mut Rows<'_>) -> Result<bool, Stop> {
        loop {
            let reason = match lines.next()? {
                None => return Ok(false),
                Some(Line::TooLong(bytes)) => format!("has {bytes} bytes, expected at most {MAX_LINE_BYTES}"),
                Some(Line::There) if lines.record().trim_ascii().is_empty() => continue,
                Some(Line::There) => match checked_text(lines.record()).and_then(|line| self.look(line).map(|()| line))
                {
                    Ok(line) => {
                        self.values(line, lines.number(), rows);
                        return Ok(true);
                    }
                    Err(reason) => reason,
                },
            };
            rows.malformed(lines.number(), reason, lines.record());
            return Ok(true);
        }
    }

    /// Refuses a file in which no line has a column that must be there: its name may be wrong.
    pub(super) fn check_seen(&self, targets: &[Target]) -> Result<(), Stop> {
        let never = |(target, seen): &(&Target, &bool)| {
            !**seen && target.default.is_none() && matches!(target.origin, Origin::Names(_))
        };
        match targets.iter().zip(&self.seen).find(never).filter(|_| self.any) {
            None => Ok(()),
            Some((target, _)) => Err(Stop::Contract(
                None,
                format!(
                    "column {}: expected {}, no line has {}",
                    target.name,
                    target.data_type,
                    names(target).join(" or ")
                ),
            )),
        }
    }

    /// Finds the places in a line.
    fn look(&mut self, line: &str) -> Result<(), String> {
        if !line.trim_start().starts_with('{') {
            return Err(format!("is no JSON object: {}", clipped(line)));
        }
        self.found.fill(None);
        let mut json = serde_json::Deserializer::from_str(line);
        let look = Look { node: &self.root, line, found: &mut self.found };
        look.deserialize(&mut json).and_then(|()| json.end()).map_err(|error| {
            let text = error.to_string();
            let what = text.split_once(" at line").map_or(text.as_str(), |(what, _)| what);
            format!("is no JSON object: {what} at its byte {}", error.column())
        })
    }

    fn values(&mut self, line: &str, number: u64, rows: &mut Rows<'_>) {
        self.any = true;
        rows.begin(number);
        for (column, target) in rows.targets.iter().enumerate() {
            let found = self.places[column].iter().find_map(|place| self.found[*place].clone());
            match found.and_then(|range| line.get(range)) {
                Some(raw) => {
                    self.seen[column] = true;
                    rows.raw(column, || plain(raw));
                    value(raw, column, target, rows);
                }
                None => {
                    let absent = target.constant.as_ref().or(target.default.as_ref());
                    rows.literal(column, absent.unwrap_or(&Literal::Null));
                }
            }
        }
    }
}

fn names(target: &Target) -> &[String] {
    match &target.origin {
        Origin::Names(names) => names,
        Origin::Position(_) | Origin::Folder(_) => &[],
    }
}

/// A raw JSON value as people read it: a text without its quotes, nothing for null.
fn plain(raw: &str) -> Option<Cow<'_, str>> {
    match raw.as_bytes().first() {
        Some(b'n') => None,
        Some(b'"') => Some(serde_json::from_str::<String>(raw).map_or(Cow::Borrowed(raw), Cow::Owned)),
        _ => Some(Cow::Borrowed(raw)),
    }
}

/// A raw JSON value as one of the column's type. JSON says what is a number and what a text; so a number in quotes is no number,
/// as Parquet's texts are none: whether `"1,5"` or `"0x1f"` is meant is for its producer to say. Numbers are read from
/// their digits, never through a double.
fn value(raw: &str, column: usize, target: &Target, rows: &mut Rows<'_>) {
    let takes_text = matches!(target.data_type, DataType::String | DataType::Date | DataType::Datetime(_));
    let takes_bool = target.data_type == DataType::Bool;
    match raw.as_bytes().first() {
        Some(b'n') => rows.null(column),
        Some(b'"') if takes_text => {
            let inner = raw.get(1..raw.len() - 1).unwrap_or_default();
            if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
                rows.text(column, inner);
            } else {
                match serde_json::from_str::<String>(raw) {
                    Ok(text) => rows.text(column, &text),
                    Err(_) => rows.misfit(column, &format!("{} has an escape that is no character", beginning(raw))),
                }
            }
        }
        Some(b't' | b'f') if takes_bool => rows.text(column, raw),
        Some(b'-' | b'0'..=b'9') if !takes_text && !takes_bool => rows.text(column, raw),
        Some(b'"') => rows.misfit(column, &format!("{} is a text", beginning(raw))),
        Some(b'{') => rows.misfit(column, "an object"),
        Some(b'[') => rows.misfit(column, "a list"),
        _ => rows.misfit(column, beginning(raw)),
    }
}

impl Node {
    fn add<'p>(&mut self, mut path: impl Iterator<Item = &'p str>) {
        let Some(key) = path.next() else {
            self.place = Some(0);
            return;
        };
        let at = self.children.iter().position(|child| child.key == key).unwrap_or_else(|| {
            self.children.push(Node { key: key.to_owned(), ..Node::default() });
            self.children.len() - 1
        });
        self.children[at].add(path);
    }

    /// Numbers the places from `next` on; the number after them.
    fn number(&mut self, mut next: usize) -> usize {
        self.places.start = next;
        if let Some(place) = &mut self.place {
            *place = next;
            next += 1;
        }
        for child in &mut self.children {
            next = child.number(next);
        }
        self.places.end = next;
        next
    }

    fn find<'p>(&self, mut path: impl Iterator<Item = &'p str>) -> Option<usize> {
        match path.next() {
            None => self.place,
            Some(key) => self.children.iter().find(|child| child.key == key)?.find(path),
        }
    }
}

/// Looks for a node's children in a value, which may be anything.
struct Look<'a> {
    node: &'a Node,
    line: &'a str,
    found: &'a mut [Option<Range<usize>>],
}

impl<'de> DeserializeSeed<'de> for Look<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Look<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(child) = map.next_key_seed(Key(&self.node.children))? {
            let Some(child) = child else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            // Of a key that comes twice the last one counts, with all that is in it.
            self.found[child.places.clone()].fill(None);
            let Some(place) = child.place else {
                map.next_value_seed(Look { node: child, line: self.line, found: self.found })?;
                continue;
            };
            let raw = map.next_value::<&'de RawValue>()?.get();
            // The raw value is a part of the line, so its address says where.
            let start = (raw.as_ptr() as usize).saturating_sub(self.line.as_ptr() as usize);
            self.found[place] = Some(start..start + raw.len());
            if !child.children.is_empty() && raw.starts_with('{') {
                let mut json = serde_json::Deserializer::from_str(raw);
                let inside = Look { node: child, line: self.line, found: self.found };
                inside.deserialize(&mut json).map_err(serde::de::Error::custom)?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// Which of these nodes a key names.
struct Key<'a>(&'a [Node]);

impl<'a, 'de> DeserializeSeed<'de> for Key<'a> {
    type Value = Option<&'a Node>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for Key<'a> {
    type Value = Option<&'a Node>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().find(|node| node.key == key))
    }
}
