//! Walking a TOML table by hand, so that every error names its key and all of them are found at once.

use super::DefinitionError;
use crate::pipeline::url::shown_in;
use toml::de::{DeTable, DeValue};

/// The errors of one file.
pub(super) struct Errors {
    file: String,
    found: Vec<DefinitionError>,
}

impl Errors {
    pub(super) fn new(file: &str) -> Self {
        Self { file: file.to_owned(), found: Vec::new() }
    }

    /// Adds an error; of URLs it says what may be shown.
    pub(super) fn add(&mut self, at: impl Into<String>, detail: impl AsRef<str>) {
        let (file, detail) = (self.file.clone(), shown_in(detail.as_ref()));
        self.found.push(DefinitionError { file, at: at.into(), detail });
    }

    /// The value, or none and an error.
    pub(super) fn take<T>(&mut self, at: &str, result: Result<T, String>) -> Option<T> {
        result.map_err(|detail| self.add(at, detail)).ok()
    }

    pub(super) fn count(&self) -> usize {
        self.found.len()
    }

    pub(super) fn into_found(self) -> Vec<DefinitionError> {
        self.found
    }
}

/// A table with its place in the file and its entries in file order.
pub(super) struct Section<'a> {
    at: String,
    pub(super) entries: Vec<(&'a str, &'a DeValue<'a>)>,
}

impl<'a> Section<'a> {
    /// The table at that place; an empty place is the file itself.
    pub(super) fn of(at: impl Into<String>, table: &'a DeTable<'a>) -> Self {
        // The table itself is sorted by name.
        let mut placed: Vec<_> = table.iter().map(|(key, value)| (key.span().start, key, value)).collect();
        placed.sort_by_key(|(start, ..)| *start);
        let entries = placed.into_iter().map(|(_, key, value)| (key.get_ref().as_ref(), value.get_ref())).collect();
        Self { at: at.into(), entries }
    }

    /// The place of a key, such as `measures.revenue`.
    pub(super) fn at(&self, key: &str) -> String {
        let bare = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
        let key = if bare { key.to_owned() } else { format!("{key:?}") };
        if self.at.is_empty() { key } else { format!("{}.{key}", self.at) }
    }

    /// Refuses keys that are none of these.
    pub(super) fn only(&self, known: &[&str], errors: &mut Errors) {
        for (key, _) in self.entries.iter().filter(|(key, _)| !known.contains(key)) {
            errors.add(self.at(key), format!("unknown key, expected one of {}", known.join(", ")));
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&'a DeValue<'a>> {
        self.entries.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
    }

    /// A text, if the key is there.
    pub(super) fn text(&self, key: &str, errors: &mut Errors) -> Option<&'a str> {
        let value = self.get(key)?;
        errors.take(&self.at(key), text(value))
    }

    /// A text that must be there; `expected` says what it is.
    pub(super) fn required_text(&self, key: &str, expected: &str, errors: &mut Errors) -> Option<&'a str> {
        if self.get(key).is_none() {
            errors.add(self.at(key), format!("is missing, expected {expected}"));
        }
        self.text(key, errors)
    }

    /// A table, if the key is there.
    pub(super) fn section(&self, key: &str, errors: &mut Errors) -> Option<Section<'a>> {
        let value = self.get(key)?;
        let table = value.as_table().ok_or_else(|| format!("expected a table, found {}", describe(value)));
        errors.take(&self.at(key), table).map(|table| Section::of(self.at(key), table))
    }

    /// A table that must be there; `expected` says what is in it.
    pub(super) fn required_section(&self, key: &str, expected: &str, errors: &mut Errors) -> Option<Section<'a>> {
        if self.get(key).is_none() {
            errors.add(self.at(key), format!("is missing, expected a table [{}] with {expected}", self.at(key)));
        }
        self.section(key, errors)
    }

    /// True or false, if the key is there.
    pub(super) fn flag(&self, key: &str, errors: &mut Errors) -> Option<bool> {
        let value = self.get(key)?;
        let flag = value.as_bool().ok_or_else(|| format!("expected true or false, found {}", describe(value)));
        errors.take(&self.at(key), flag)
    }

    /// A whole number in these bounds, if the key is there.
    pub(super) fn whole(&self, key: &str, least: u32, most: u32, errors: &mut Errors) -> Option<u32> {
        let value = self.get(key)?;
        let number = value.as_integer().and_then(|n| u32::from_str_radix(n.as_str(), n.radix()).ok());
        let number = number.filter(|number| (least..=most).contains(number));
        let wrong = || format!("expected a whole number from {least} to {most}, found {}", describe(value));
        errors.take(&self.at(key), number.ok_or_else(wrong))
    }
}

/// The text of a value.
pub(super) fn text<'a>(value: &'a DeValue<'a>) -> Result<&'a str, String> {
    value.as_str().ok_or_else(|| format!("expected a text, found {}", describe(value)))
}

/// The texts of a list, or one text.
pub(super) fn texts(value: &DeValue<'_>) -> Result<Vec<String>, String> {
    match value {
        DeValue::Array(list) => list.iter().map(|item| text(item.get_ref()).map(str::to_owned)).collect(),
        DeValue::String(text) => Ok(vec![text.to_string()]),
        other => Err(format!("expected a text or a list of texts, found {}", describe(other))),
    }
}

/// What a value is, for messages.
pub(super) fn describe(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("the text {text:?}"),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(time) => format!("the time {time}"),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}
