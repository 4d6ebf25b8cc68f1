//! `[partition]`, `[dimensions]` and `[measures]`: the columns of the table.

use super::section::{Errors, Section, describe, text};
use super::spec_of;
use crate::partition::{PartitionColumn, PartitionSpec, Transform, ValueKind};
use crate::pipeline::expr::{Context, Expr, Node, Unit, aggregate, expression};
use crate::pipeline::{Column, DataType, Dimension, Measure};
use toml::de::DeValue;

const TRANSFORMS: [Transform; 6] = [
    Transform::YearOf,
    Transform::MonthOf,
    Transform::DayOf,
    Transform::HourOf,
    Transform::HourOfDay,
    Transform::ValueOf,
];

/// The names of the table's columns so far, in lower case, with their places: readers of the table fold case.
#[derive(Default)]
pub(super) struct Names(Vec<(String, String)>);

impl Names {
    pub(super) fn add(&mut self, name: &str, at: String, errors: &mut Errors) {
        let start = |c: char| c.is_ascii_alphabetic() || c == '_';
        if !name.starts_with(start) || !name.chars().all(|c| start(c) || c.is_ascii_digit()) {
            errors.add(at, "expected a name of letters a to z, digits and _, not starting with a digit");
            return;
        }
        let folded = name.to_ascii_lowercase();
        match self.0.iter().find(|(known, _)| *known == folded) {
            Some((_, before)) => {
                errors.add(at, format!("the table has a column of that name already, from {before} (case is ignored)"));
            }
            None => self.0.push((folded, at)),
        }
    }
}

/// The partition columns.
pub(super) fn partition(
    root: &Section<'_>,
    context: &Context<'_>,
    names: &mut Names,
    errors: &mut Errors,
) -> Option<PartitionSpec> {
    let expected = "a column such as month = { month_of = \"column\" }";
    let section = root.required_section("partition", expected, errors)?;
    if section.entries.is_empty() {
        errors.add("partition", format!("expected {expected}, found none"));
    }
    let mut columns = Vec::new();
    for (name, value) in &section.entries {
        let at = section.at(name);
        names.add(name, at.clone(), errors);
        columns.extend(errors.take(&at, partition_column(name, value, context)));
    }
    spec_of(columns)
}

/// The dimensions; there may be none.
pub(super) fn dimensions(
    root: &Section<'_>,
    context: &Context<'_>,
    names: &mut Names,
    errors: &mut Errors,
) -> Vec<Dimension> {
    let Some(section) = root.section("dimensions", errors) else {
        return Vec::new();
    };
    let mut dimensions = Vec::new();
    for (name, value) in &section.entries {
        let at = section.at(name);
        names.add(name, at.clone(), errors);
        let expr = errors.take(&at, dimension(value, context));
        dimensions.extend(expr.map(|expr| Dimension { name: (*name).to_owned(), expr }));
    }
    dimensions
}

/// The measures, at least one.
pub(super) fn measures(
    root: &Section<'_>,
    context: &Context<'_>,
    names: &mut Names,
    errors: &mut Errors,
) -> Vec<Measure> {
    let expected = "an aggregate such as rows = \"count(*)\" (or [columns], to keep rows)";
    let Some(section) = root.required_section("measures", expected, errors) else {
        return Vec::new();
    };
    if section.entries.is_empty() {
        errors.add("measures", format!("expected {expected}, found none"));
    }
    let mut measures = Vec::new();
    for (name, value) in &section.entries {
        let at = section.at(name);
        names.add(name, at.clone(), errors);
        let made = errors.take(&at, text(value).and_then(|sql| aggregate(sql, context)));
        measures.extend(made.map(|(aggregate, data_type)| Measure { name: (*name).to_owned(), aggregate, data_type }));
    }
    measures
}

fn partition_column(name: &str, value: &DeValue<'_>, context: &Context<'_>) -> Result<PartitionColumn, String> {
    let known = TRANSFORMS.map(Transform::as_str).join(", ");
    let expected = || format!("expected {{ transform = \"column\" }} with one of {known}, found {}", describe(value));
    let entries = Section::of("", value.as_table().ok_or_else(expected)?).entries;
    let [(key, source)] = entries.as_slice() else {
        return Err(format!("expected one transform of {known}, found {} keys", entries.len()));
    };
    let transform = TRANSFORMS.into_iter().find(|transform| transform.as_str() == *key);
    let transform = transform.ok_or_else(|| format!("unknown transform {key}, expected one of {known}"))?;
    let column = column(text(source)?, context)?;
    let kind = kind(transform, column, context)?;
    Ok(PartitionColumn { name: name.to_owned(), transform, kind, source: column.name.clone() })
}

/// What the values of a partition column are, if the transform can take the column.
fn kind(transform: Transform, column: &Column, context: &Context<'_>) -> Result<ValueKind, String> {
    let (name, found) = (transform.as_str(), &column.data_type);
    let hourly = matches!(transform, Transform::HourOf | Transform::HourOfDay);
    match (transform, found) {
        (Transform::ValueOf, _) => {}
        (_, DataType::Datetime(_)) => {}
        (_, DataType::Date) if !hourly => {}
        _ => {
            let expected = if hourly { "datetime" } else { "date or datetime" };
            return Err(format!("{name} needs a {expected} column, but {} is {found}", column.name));
        }
    }
    let exact_time = hourly || transform == Transform::ValueOf;
    if matches!(found, DataType::Datetime(Some(_))) && exact_time {
        utc_only(name, context)?;
    }
    if transform != Transform::ValueOf {
        return Ok(ValueKind::Text);
    }
    Ok(match found {
        DataType::Bool => ValueKind::Bool,
        DataType::Int(bits) => ValueKind::Int { min: -(1i128 << (bits - 1)), max: (1i128 << (bits - 1)) - 1 },
        DataType::UInt(bits) => ValueKind::Int { min: 0, max: (1i128 << bits) - 1 },
        DataType::Decimal { precision, scale } => ValueKind::Decimal { precision: *precision, scale: *scale },
        DataType::String => ValueKind::Text,
        DataType::Date => ValueKind::Date,
        DataType::Datetime(_) => ValueKind::Datetime,
        DataType::Float32 | DataType::Float64 => {
            return Err(format!("value_of cannot take {found} ({}): declare decimal(p,s) or an integer", column.name));
        }
    })
}

/// The value of a column of the table.
pub(super) fn value(value: &DeValue<'_>, context: &Context<'_>) -> Result<Expr, String> {
    match value {
        DeValue::String(sql) => expression(sql, context),
        DeValue::Table(table) => truncate(&Section::of("", table), context),
        other => {
            let found = describe(other);
            Err(format!("expected an expression or {{ truncate = \"column\", to = \"hour\" }}, found {found}"))
        }
    }
}

fn dimension(found: &DeValue<'_>, context: &Context<'_>) -> Result<Expr, String> {
    let expr = value(found, context)?;
    if expr.data_type.is_float() {
        let found = expr.data_type;
        return Err(format!("a dimension cannot be {found}, since floats are no groups: declare decimal(p,s)"));
    }
    Ok(expr)
}

fn truncate(section: &Section<'_>, context: &Context<'_>) -> Result<Expr, String> {
    let value_of = |key: &str| {
        section.get(key).ok_or_else(|| format!("{key} is missing, expected {{ truncate = \"column\", to = \"hour\" }}"))
    };
    if let Some((key, _)) = section.entries.iter().find(|(key, _)| !matches!(*key, "truncate" | "to")) {
        return Err(format!("unknown key {key}, expected truncate and to"));
    }
    let column = column(text(value_of("truncate")?)?, context)?;
    let name = text(value_of("to")?)?;
    let (unit, of_day) = match name {
        "year" => (Unit::Year, false),
        "month" => (Unit::Month, false),
        "week" => (Unit::Week, false),
        "day" => (Unit::Day, false),
        "hour" => (Unit::Hour, true),
        "minute" => (Unit::Minute, true),
        _ => return Err(format!("cannot truncate to {name:?}, expected year, month, week, day, hour or minute")),
    };
    match &column.data_type {
        DataType::Date if !of_day => {}
        DataType::Datetime(None) => {}
        DataType::Datetime(Some(_)) if !of_day => {}
        DataType::Datetime(Some(_)) => utc_only(&format!("truncate to {name}"), context)?,
        found => {
            let expected = if of_day { "datetime" } else { "date or datetime" };
            return Err(format!("truncate to {name} needs a {expected} column, but {} is {found}", column.name));
        }
    }
    let inner = Expr { node: Node::Column(column.name.clone()), data_type: column.data_type.clone() };
    Ok(Expr { node: Node::Truncate(Box::new(inner), unit), data_type: column.data_type.clone() })
}

/// Hours of a zone that changes its clocks have no names of their own.
fn utc_only(what: &str, context: &Context<'_>) -> Result<(), String> {
    if matches!(context.timezone, chrono_tz::UTC | chrono_tz::Etc::UTC) {
        return Ok(());
    }
    Err(format!(
        "zoned hours are UTC only: {what} of a zoned column needs timezone = \"UTC\", found {}",
        context.timezone
    ))
}

fn column<'a>(name: &str, context: &Context<'a>) -> Result<&'a Column, String> {
    let columns = context.columns;
    columns.iter().find(|column| column.name == name).ok_or_else(|| {
        let names = columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ");
        format!("unknown column {name}, expected one of source.columns: {names}")
    })
}
