//! `[source]`: the files and the contract.

use super::section::{Errors, Section, describe, text};
use crate::partition::PartitionSpec;
use crate::pipeline::{Column, DataType, Source, SourcePath};
use toml::de::DeValue;

/// The most periods either side.
const MAX_NEIGHBOURS: u32 = 1000;

const TYPES: &str = "bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float32, float64, decimal(p,s), \
     string, date, datetime or datetime(TZ)";

/// The source, unless its contract has errors.
pub(super) fn read(root: &Section<'_>, errors: &mut Errors) -> Option<Source> {
    let section = root.required_section("source", "format, path and columns", errors)?;
    section.only(&["format", "path", "neighbours", "columns"], errors);
    if let Some(format) = section.required_text("format", "parquet", errors) {
        match format {
            "parquet" => {}
            "csv" | "ndjson" => {
                errors.add(section.at("format"), format!("format {format} is not supported yet, expected parquet"));
            }
            other => errors.add(section.at("format"), format!("unknown format {other:?}, expected parquet")),
        }
    }
    let paths = paths(&section, errors);
    let neighbours = section.whole("neighbours", 0, MAX_NEIGHBOURS, errors);
    let has_template = paths.iter().any(|path| matches!(path, SourcePath::Template(_)));
    if neighbours.is_some() && !has_template && !paths.is_empty() {
        errors.add(section.at("neighbours"), "needs a path with strftime fields such as %Y-%m, found none");
    }
    let columns = columns(&section, errors)?;
    Some(Source { paths, neighbours: neighbours.unwrap_or(0), columns })
}

/// Templates need partitions whose time says which file is theirs.
pub(super) fn check_templates(source: &Source, partition: &PartitionSpec, errors: &mut Errors) {
    let Some(SourcePath::Template(template)) = source.paths.iter().find(|p| matches!(p, SourcePath::Template(_)))
    else {
        return;
    };
    let timed = partition.columns().iter().filter(|column| column.transform.grain().is_some());
    let mut columns: Vec<&str> = timed.map(|column| column.source.as_str()).collect();
    columns.dedup();
    let detail = match columns.as_slice() {
        [_] => return,
        [] => format!("{} needs a partition column of year_of, month_of, day_of or hour_of, found none", template.text),
        several => format!(
            "{} needs partition columns of one source column's time, found those of {}",
            template.text,
            several.join(" and ")
        ),
    };
    errors.add("source.path", detail);
}

/// The time zone of that name.
pub(super) fn zone(name: &str) -> Result<chrono_tz::Tz, String> {
    name.parse().map_err(|_| format!("unknown time zone {name:?}, expected a name such as UTC or Europe/Berlin"))
}

fn paths(section: &Section<'_>, errors: &mut Errors) -> Vec<SourcePath> {
    let at = section.at("path");
    let expected = "a path, or a list of paths";
    let written = match section.get("path") {
        None => {
            errors.add(&at, format!("is missing, expected {expected}"));
            return Vec::new();
        }
        Some(DeValue::Array(list)) if list.is_empty() => {
            errors.add(&at, format!("expected {expected}, found an empty list"));
            return Vec::new();
        }
        Some(DeValue::Array(list)) => {
            list.iter().filter_map(|path| errors.take(&at, text(path.get_ref()))).collect::<Vec<_>>()
        }
        Some(DeValue::String(path)) => vec![path.as_ref()],
        Some(other) => {
            errors.add(&at, format!("expected {expected}, found {}", describe(other)));
            return Vec::new();
        }
    };
    let mut paths = Vec::new();
    for path in written {
        let Some(parsed) = errors.take(&at, SourcePath::parse(path)) else {
            continue;
        };
        if paths.contains(&parsed) {
            errors.add(&at, format!("{path} is listed twice"));
        }
        paths.push(parsed);
    }
    paths
}

fn columns(section: &Section<'_>, errors: &mut Errors) -> Option<Vec<Column>> {
    let columns = section.required_section("columns", "a type for each column that is read", errors)?;
    if columns.entries.is_empty() {
        errors.add(section.at("columns"), "expected a type for each column that is read, found none");
        return None;
    }
    let read = columns.entries.iter().map(|(name, value)| {
        let written = text(value).and_then(type_of);
        let (data_type, not_null) = errors.take(&columns.at(name), written)?;
        Some(Column { name: (*name).to_owned(), data_type, not_null })
    });
    // Collected first, so that every wrong column is told.
    read.collect::<Vec<_>>().into_iter().collect()
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
