//! `[source.columns]`: the contract.

use super::section::{Errors, Section, describe, texts};
use super::source::zone;
use crate::pipeline::value::{TimeFormat, literal};
use crate::pipeline::{Column, CsvLayout, DataType, Format, Literal, Origin};
use toml::de::DeValue;

/// No record has so many fields.
const MAX_POSITION: u32 = 100_000;

const TYPES: &str = "bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float32, float64, decimal(p,s), \
     string, date, datetime or datetime(TZ)";

/// The contract, unless it has errors.
pub(super) fn read(section: &Section<'_>, format: &Format, errors: &mut Errors) -> Option<Vec<Column>> {
    let columns = section.required_section("columns", "a type for each column that is read", errors)?;
    if columns.entries.is_empty() {
        errors.add(section.at("columns"), "expected a type for each column that is read, found none");
        return None;
    }
    let read = columns.entries.iter().map(|(name, value)| column(&columns, name, value, format, errors));
    // Collected first, so that every wrong column is told.
    read.collect::<Vec<_>>().into_iter().collect()
}

fn column(
    columns: &Section<'_>,
    name: &str,
    value: &DeValue<'_>,
    format: &Format,
    errors: &mut Errors,
) -> Option<Column> {
    let at = columns.at(name);
    let before = errors.count();
    let made = match value {
        DeValue::String(written) => {
            let (data_type, not_null) = errors.take(&at, type_of(written))?;
            Column::new(name, data_type, not_null)
        }
        DeValue::Table(table) => long(&Section::of(at.clone(), table), name, format, errors)?,
        other => {
            errors.add(at, format!("expected a type, or {{ type = \"…\", from = \"…\" }}, found {}", describe(other)));
            return None;
        }
    };
    let is_headerless = matches!(format, Format::Csv(CsvLayout { header: false, .. }));
    let found = match &made.origin {
        Origin::Names(names) if *format == Format::Ndjson => errors.take(&at, check_paths(names)),
        Origin::Names(_) if is_headerless => {
            errors.add(at, "expected { type = \"…\", position = n }, since the csv files have no header");
            None
        }
        _ => Some(()),
    };
    found.filter(|()| errors.count() == before).map(|()| made)
}

/// A column of more than its type.
fn long(section: &Section<'_>, name: &str, format: &Format, errors: &mut Errors) -> Option<Column> {
    section.only(&["type", "from", "position", "folder", "format", "default", "optional"], errors);
    let written = section.required_text("type", TYPES, errors)?;
    let (data_type, not_null) = errors.take(&section.at("type"), type_of(written))?;
    let mut column = Column::new(name, data_type, not_null);
    let origins = ["from", "position", "folder"].into_iter().filter(|key| section.get(key).is_some());
    match origins.collect::<Vec<_>>().as_slice() {
        [] => {}
        ["from"] => column.origin = Origin::Names(names(section, errors)?),
        ["position"] => {
            let position = section.whole("position", 1, MAX_POSITION, errors)?;
            if !matches!(format, Format::Csv(CsvLayout { header: false, .. })) {
                errors.add(section.at("position"), "is for csv files without a header: [source.csv] header = false");
            }
            column.origin = Origin::Position(usize::try_from(position).ok()?);
        }
        ["folder"] => {
            let key = section.text("folder", errors)?;
            if key.is_empty() || key.contains('/') {
                errors.add(
                    section.at("folder"),
                    format!("expected what is before the = in a folder's name, found {key:?}"),
                );
            }
            column.origin = Origin::Folder(key.to_owned());
        }
        several => errors.add(section.at(several[1]), format!("expected one of {}, found several", several.join(", "))),
    }
    if let Some(format) = section.text("format", errors) {
        errors.take(&section.at("format"), TimeFormat::checked(format, &column.data_type))?;
        column.format = Some(format.to_owned());
    }
    column.default = default(section, &column, errors);
    Some(column)
}

fn names(section: &Section<'_>, errors: &mut Errors) -> Option<Vec<String>> {
    let at = section.at("from");
    let names = errors.take(&at, texts(section.get("from")?))?;
    if names.is_empty() || names.iter().any(String::is_empty) {
        errors.add(&at, "expected the column's name in the files, or a list of names, found an empty one");
    }
    if let Some((_, twice)) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
        errors.add(&at, format!("{twice} is listed twice"));
    }
    Some(names)
}

/// Paths by dots have no empty parts.
fn check_paths(names: &[String]) -> Result<(), String> {
    match names.iter().find(|name| name.split('.').any(str::is_empty)) {
        Some(path) => Err(format!("expected a path such as repo.name, found {path:?}")),
        None => Ok(()),
    }
}

/// The value where a file has no such column.
fn default(section: &Section<'_>, column: &Column, errors: &mut Errors) -> Option<Literal> {
    let optional = section.flag("optional", errors).unwrap_or(false);
    let Some(value) = section.get("default") else {
        if optional && column.not_null {
            errors.add(section.at("optional"), "makes nulls of what a file does not have, but the type is not null");
        }
        return optional.then_some(Literal::Null);
    };
    if optional {
        errors.add(section.at("optional"), "expected it or default, found both");
    }
    errors.take(&section.at("default"), value_of(value, &column.data_type))
}

fn value_of(value: &DeValue<'_>, data_type: &DataType) -> Result<Literal, String> {
    let text = match (value, data_type) {
        (DeValue::String(text), _) => text.to_string(),
        (DeValue::Boolean(value), DataType::Bool) => value.to_string(),
        (DeValue::Integer(number), _) if number.radix() == 10 && is_number(data_type) => {
            number.as_str().replace('_', "")
        }
        (DeValue::Float(number), _) if is_number(data_type) => number.as_str().replace('_', ""),
        (DeValue::Datetime(time), DataType::Date | DataType::Datetime(_)) => time.to_string(),
        (other, _) => return Err(format!("{} is no {data_type}", describe(other))),
    };
    literal(&text, data_type, &TimeFormat::Iso).map_err(|misfit| format!("{text:?} {misfit}, expected {data_type}"))
}

fn is_number(data_type: &DataType) -> bool {
    data_type.is_exact() || data_type.is_float()
}

fn type_of(written: &str) -> Result<(DataType, bool), String> {
    let words = written.split_whitespace().collect::<Vec<_>>().join(" ");
    let (name, not_null) = words.strip_suffix(" not null").map_or((words.as_str(), false), |name| (name, true));
    let data_type = match name {
        "bool" => DataType::Bool,
        "int8" => DataType::Int(8),
        "int16" => DataType::Int(16),
        "int32" => DataType::Int(32),
        "int64" => DataType::Int(64),
        "uint8" => DataType::UInt(8),
        "uint16" => DataType::UInt(16),
        "uint32" => DataType::UInt(32),
        "uint64" => DataType::UInt(64),
        "float32" => DataType::Float32,
        "float64" => DataType::Float64,
        "string" => DataType::String,
        "date" => DataType::Date,
        "datetime" => DataType::Datetime(None),
        _ => match name.strip_suffix(')').and_then(|call| call.split_once('(')) {
            Some(("decimal", digits)) => decimal(digits)?,
            Some(("datetime", name)) => DataType::Datetime(Some(zone(name.trim())?)),
            _ => return Err(format!("unknown type {written:?}, expected {TYPES}, maybe with ` not null`")),
        },
    };
    Ok((data_type, not_null))
}

fn decimal(digits: &str) -> Result<DataType, String> {
    let numbers = digits.split_once(',').and_then(|(p, s)| Some((p.trim().parse().ok()?, s.trim().parse().ok()?)));
    match numbers {
        Some((precision, scale)) if (1..=38).contains(&precision) && scale <= precision => {
            Ok(DataType::Decimal { precision, scale })
        }
        _ => Err(format!(
            "decimal({digits}) does not exist, expected decimal(p,s) with p from 1 to 38 and s from 0 to p"
        )),
    }
}
