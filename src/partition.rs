//! Partition keys: transforms, canonical text, escaping and ranges. Pure.
//!
//! A key is the Hive path of a partition below its table, e.g. `pickup_month=2024-02` or
//! `event_date=2015-01-01/hour=15`. A [`PartitionKey`] that exists was checked by a [`PartitionSpec`].

mod escape;
mod folder;
mod grain;
#[cfg(test)]
mod tests;
mod value;

pub use folder::folder_value;
pub use grain::Grain;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The longest folder name that file systems take.
const MAX_FOLDER_BYTES: usize = 255;

/// A canonical partition key. Ordered and compared by its exact text, never by prefix.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PartitionKey(String);

impl PartitionKey {
    /// Takes text that was canonical when it was stored (a database row, a decided run).
    pub fn from_canonical(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The canonical text, which is also the folder below the table.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name and the value of each column, unescaped, in order.
    pub fn texts(&self) -> impl Iterator<Item = (String, String)> {
        let folders = self.0.split('/').filter_map(|folder| folder.split_once('='));
        folders.map(|(name, value)| (escape::unescape(name), escape::unescape(value)))
    }
}

impl std::fmt::Display for PartitionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// How a partition value is made from a column, after Iceberg's partition transforms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transform {
    /// `2024`
    YearOf,
    /// `2024-02`
    MonthOf,
    /// `2024-02-29`
    DayOf,
    /// `2024-02-29T23`
    HourOf,
    /// `00` to `23`
    HourOfDay,
    /// The value itself.
    ValueOf,
}

impl Transform {
    /// The length of the periods it makes; none for `hour_of_day` and `value_of`.
    pub fn grain(self) -> Option<Grain> {
        match self {
            Transform::YearOf => Some(Grain::Year),
            Transform::MonthOf => Some(Grain::Month),
            Transform::DayOf => Some(Grain::Day),
            Transform::HourOf => Some(Grain::Hour),
            Transform::HourOfDay | Transform::ValueOf => None,
        }
    }

    /// The transform's name in a pipeline file.
    pub fn as_str(self) -> &'static str {
        match self {
            Transform::YearOf => "year_of",
            Transform::MonthOf => "month_of",
            Transform::DayOf => "day_of",
            Transform::HourOf => "hour_of",
            Transform::HourOfDay => "hour_of_day",
            Transform::ValueOf => "value_of",
        }
    }

    /// The value of an instant; none for `value_of`.
    fn value_at(self, at: chrono::NaiveDateTime) -> Option<PartitionValue> {
        let count = match (self, self.grain()) {
            (_, Some(grain)) => grain.index(at),
            (Transform::HourOfDay, None) => i64::from(chrono::Timelike::hour(&at)),
            _ => return None,
        };
        Some(PartitionValue::Int(i128::from(count)))
    }
}

/// The type of the text of a `value_of` column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueKind {
    /// Any text.
    Text,
    /// A whole number in decimal digits, within the column's range.
    Int {
        /// The least value.
        min: i128,
        /// The greatest value.
        max: i128,
    },
    /// A decimal written with exactly `scale` digits after the point.
    Decimal {
        /// Digits in all.
        precision: u8,
        /// Digits after the point.
        scale: u8,
    },
    /// `true` or `false`.
    Bool,
    /// `2024-02-29`
    Date,
    /// `2024-02-29 23:59:59`, with `.5` to `.000001` only where the microseconds are not zero, without trailing zeros,
    /// as Spark writes timestamps.
    Datetime,
}

/// One partition column of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PartitionColumn {
    /// The folder's name before the `=`.
    pub name: String,
    /// How the value is made.
    pub transform: Transform,
    /// What the value is; `Text` for no time transform.
    pub kind: ValueKind,
    /// The column of the contract that it is made from.
    pub source: String,
}

/// A typed value of one partition column, as the engine computes it.
///
/// Time transforms are counts: `year_of` the year, `month_of` `year * 12 + month - 1`, `day_of` days since 1970-01-01,
/// `hour_of` hours since 1970-01-01T00, `hour_of_day` 0 to 23. `value_of`: a bool is 0 or 1, a date is days and a
/// datetime microseconds since 1970-01-01, a decimal its unscaled integer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum PartitionValue {
    /// Everything but text.
    Int(i128),
    /// A text.
    Text(String),
}

/// A half-open interval of wall-clock time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period {
    /// The first instant inside.
    pub start: chrono::NaiveDateTime,
    /// The first instant after.
    pub end: chrono::NaiveDateTime,
}

/// Why a text is no key of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KeyError(pub String);

/// The partition columns of a pipeline, in the order of the folders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionSpec {
    columns: Vec<PartitionColumn>,
}

impl PartitionSpec {
    /// The spec of these columns.
    pub fn new(columns: Vec<PartitionColumn>) -> Self {
        Self { columns }
    }

    /// The columns, in the order of the folders.
    pub fn columns(&self) -> &[PartitionColumn] {
        &self.columns
    }

    /// A key from canonical text.
    pub fn parse_key(&self, canonical: &str) -> Result<PartitionKey, KeyError> {
        self.parse(canonical).map(|_| PartitionKey(canonical.to_owned()))
    }

    /// A key from canonical text or, where there is one column, its bare value.
    pub fn parse_text(&self, text: &str) -> Result<PartitionKey, KeyError> {
        let first = self.columns.first().map(|column| escape::escape(&column.name)).unwrap_or_default();
        let is_canonical = text.strip_prefix(first.as_str()).is_some_and(|rest| rest.starts_with('='));
        match self.columns.as_slice() {
            _ if is_canonical => self.parse_key(text),
            [only] => self.parse_values(&[(only, text)]),
            _ => Err(KeyError(format!("{text}: expected {}", self.shape()))),
        }
    }

    /// A key from the unescaped texts of all columns.
    pub fn parse_object(&self, values: &BTreeMap<String, String>) -> Result<PartitionKey, KeyError> {
        let known = |name: &String| self.columns.iter().any(|column| column.name == *name);
        let names = || self.columns.iter().map(|c| c.name.as_str()).collect::<Vec<_>>().join(", ");
        if let Some(unknown) = values.keys().find(|name| !known(name)) {
            return Err(KeyError(format!("{unknown}: no such partition column, expected {}", names())));
        }
        let texts = self.columns.iter().map(|column| match values.get(&column.name) {
            Some(text) => Ok((column, text.as_str())),
            None => Err(KeyError(format!("{} is missing, expected values for {}", column.name, names()))),
        });
        self.parse_values(&texts.collect::<Result<Vec<_>, _>>()?)
    }

    /// The keys from `from` to `to`, inclusive, at most `limit` of them; over time transforms that together are one
    /// series of one source column.
    pub fn range(&self, from: &str, to: &str, limit: usize) -> Result<Vec<PartitionKey>, KeyError> {
        let Some(grain) = self.time_grain().filter(|_| self.is_series()) else {
            return Err(KeyError(format!(
                "a range needs partition columns that are years, months, days or hours of one source column, found {}",
                self.shape()
            )));
        };
        let index = |text: &str| {
            let key = self.parse_text(text)?;
            let period = self.period(&key).ok_or_else(|| KeyError(format!("{key}: covers no time")))?;
            Ok(grain.index(period.start))
        };
        let (first, last) = (index(from)?, index(to)?);
        if first > last {
            return Err(KeyError(format!("the range starts at {from}, after its end {to}")));
        }
        let count = last - first + 1;
        if usize::try_from(count).is_ok_and(|count| count > limit) {
            return Err(KeyError(format!("the range {from} to {to} has {count} partitions, expected at most {limit}")));
        }
        let periods = (first..=last).filter_map(|index| grain.period(index));
        let values = periods.map(|period| self.columns.iter().filter_map(move |c| c.transform.value_at(period.start)));
        let mut keys: Vec<_> = values.filter_map(|values| self.key(&values.collect::<Vec<_>>())).collect();
        keys.sort_unstable();
        Ok(keys)
    }

    /// The key of these values, one for each column; none where a value has no name (it is empty, reserved, out of
    /// range or too long), so that its row is rejected.
    pub fn key(&self, values: &[PartitionValue]) -> Option<PartitionKey> {
        if values.len() != self.columns.len() {
            return None;
        }
        let mut key = String::new();
        for (column, value) in self.columns.iter().zip(values) {
            if !key.is_empty() {
                key.push('/');
            }
            let start = key.len();
            push_folder(column, &value::to_text(column, value)?, &mut key);
            if key.len() - start > MAX_FOLDER_BYTES {
                return None;
            }
        }
        Some(PartitionKey(key))
    }

    /// The values of a canonical key; none where it is no key of this spec.
    pub fn values(&self, key: &PartitionKey) -> Option<Vec<PartitionValue>> {
        self.parse(key.as_str()).ok()
    }

    /// The time that the key covers, from its time columns together; none without a column that has a period.
    ///
    /// Where time columns are made from several source columns, those of the first one's source count.
    pub fn period(&self, key: &PartitionKey) -> Option<Period> {
        self.period_of(&self.values(key)?)?.ok()
    }

    /// The length of the periods that keys cover, as [`PartitionSpec::period`] gives them.
    pub fn time_grain(&self) -> Option<Grain> {
        self.time_columns().map(|(_, column)| column.transform.grain().unwrap_or(Grain::Hour)).max()
    }

    /// What the columns that make the period are at an instant, with none for the others.
    pub fn time_values(&self, at: chrono::NaiveDateTime) -> Vec<Option<PartitionValue>> {
        let mut values = vec![None; self.columns.len()];
        for (place, column) in self.time_columns() {
            values[place] = column.transform.value_at(at);
        }
        values
    }

    /// The columns that together make the period: those with a period of the first such column's source, and its hour
    /// of the day where the day is known.
    fn time_columns(&self) -> impl Iterator<Item = (usize, &PartitionColumn)> {
        let source = self.columns.iter().find(|column| column.transform.grain().is_some()).map(|c| c.source.as_str());
        let of_source = move |column: &PartitionColumn| Some(column.source.as_str()) == source;
        let day_known = self.columns.iter().any(|c| of_source(c) && c.transform.grain() >= Some(Grain::Day));
        self.columns.iter().enumerate().filter(move |(_, column)| {
            let hour_of_day = column.transform == Transform::HourOfDay && day_known;
            of_source(column) && (column.transform.grain().is_some() || hour_of_day)
        })
    }

    /// Whether keys are one series of periods: every column is one of the time columns.
    fn is_series(&self) -> bool {
        self.time_columns().count() == self.columns.len()
    }

    /// The period of a key's values, or the two columns that contradict each other.
    fn period_of(&self, values: &[PartitionValue]) -> Option<Result<Period, (&PartitionColumn, &PartitionColumn)>> {
        let count = |place: usize| match values.get(place) {
            Some(PartitionValue::Int(count)) => i64::try_from(*count).ok(),
            _ => None,
        };
        let with_grain = self.time_columns().filter_map(|(place, c)| Some((c.transform.grain()?, place, c)));
        let (mut grain, place, finest) = with_grain.max_by_key(|(grain, ..)| *grain)?;
        let mut index = count(place)?;
        let hour = self.time_columns().find(|(_, column)| column.transform == Transform::HourOfDay);
        if let (Grain::Day, Some((place, _))) = (grain, hour) {
            (grain, index) = (Grain::Hour, index * 24 + count(place)?);
        }
        let period = grain.period(index)?;
        let mut others = self.time_columns();
        let contradiction = others.find(|(place, c)| c.transform.value_at(period.start).as_ref() != values.get(*place));
        Some(contradiction.map_or(Ok(period), |(_, other)| Err((other, finest))))
    }

    fn parse(&self, canonical: &str) -> Result<Vec<PartitionValue>, KeyError> {
        let folders: Vec<&str> = canonical.split('/').collect();
        if folders.len() != self.columns.len() {
            let (found, expected) = (folders.len(), self.columns.len());
            let hint = if found > expected { " (a / inside a value is written %2F)" } else { "" };
            return Err(KeyError(format!(
                "{canonical}: expected {}, in {expected} parts, found {found}{hint}",
                self.shape()
            )));
        }
        let mut values = Vec::with_capacity(folders.len());
        for (column, folder) in self.columns.iter().zip(folders) {
            let name = escape::escape(&column.name);
            let Some(text) = folder.strip_prefix(name.as_str()).and_then(|rest| rest.strip_prefix('=')) else {
                return Err(KeyError(format!("{folder}: expected {name}=…")));
            };
            let unescaped = escape::unescape(text);
            values.push(value_of(column, &unescaped)?);
            let form = escape::escape(&unescaped);
            if form != text {
                return Err(KeyError(format!("{folder}: not in canonical form, expected {name}={form}")));
            }
        }
        self.check_together(&values).map_err(|detail| KeyError(format!("{canonical}: {detail}")))?;
        Ok(values)
    }

    fn parse_values(&self, texts: &[(&PartitionColumn, &str)]) -> Result<PartitionKey, KeyError> {
        let values = texts.iter().map(|(column, text)| value_of(column, text)).collect::<Result<Vec<_>, _>>()?;
        let key = self.key(&values).ok_or_else(|| KeyError("the values have no name".to_owned()))?;
        self.check_together(&values).map_err(|detail| KeyError(format!("{key}: {detail}")))?;
        Ok(key)
    }

    /// Columns of one source column cannot say different things, since no row could be there.
    fn check_together(&self, values: &[PartitionValue]) -> Result<(), String> {
        match self.period_of(values) {
            Some(Err((a, b))) => Err(format!("{} and {} exclude each other", a.name, b.name)),
            _ => Ok(()),
        }
    }

    /// What a key looks like, for messages.
    fn shape(&self) -> String {
        self.columns.iter().map(|c| format!("{}=…", escape::escape(&c.name))).collect::<Vec<_>>().join("/")
    }
}

fn value_of(column: &PartitionColumn, text: &str) -> Result<PartitionValue, KeyError> {
    let wrong = |detail: String| KeyError(format!("{}={text}: {detail}", column.name));
    let value = value::from_text(column, text).map_err(wrong)?;
    let mut folder = String::new();
    push_folder(column, text, &mut folder);
    if folder.len() > MAX_FOLDER_BYTES {
        let bytes = folder.len();
        return Err(wrong(format!("the folder name has {bytes} bytes, expected at most {MAX_FOLDER_BYTES}")));
    }
    Ok(value)
}

fn push_folder(column: &PartitionColumn, text: &str, out: &mut String) {
    escape::escape_into(&column.name, out);
    out.push('=');
    escape::escape_into(text, out);
}
