//! `[source]`: the files and their format.

use super::columns;
use super::section::{Errors, Section, describe, text, texts};
use crate::partition::PartitionSpec;
use crate::pipeline::{CsvLayout, Format, Source, SourcePath, url};
use toml::de::DeValue;

/// The most periods either side.
const MAX_NEIGHBOURS: u32 = 1000;

/// The source, unless its contract has errors.
pub(super) fn read(root: &Section<'_>, file_text: &str, errors: &mut Errors) -> Option<Source> {
    let section = root.required_section("source", "format, path and columns", errors)?;
    section.only(&["format", "csv", "path", "neighbours", "columns"], errors);
    let format = format(&section, errors);
    let paths = paths(&section, file_text, errors);
    let neighbours = section.whole("neighbours", 0, MAX_NEIGHBOURS, errors);
    let has_template = paths.iter().any(|path| matches!(path, SourcePath::Template(_)));
    if neighbours.is_some() && !has_template && !paths.is_empty() {
        errors.add(section.at("neighbours"), "needs a path with strftime fields such as %Y-%m, found none");
    }
    // What a column may say depends on the format.
    let columns = columns::read(&section, format.as_ref()?, errors)?;
    Some(Source { format: format?, paths, neighbours: neighbours.unwrap_or(0), columns })
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

fn format(section: &Section<'_>, errors: &mut Errors) -> Option<Format> {
    let expected = "parquet, csv or ndjson";
    let format = match section.required_text("format", expected, errors)? {
        "parquet" => Some(Format::Parquet),
        "csv" => Some(Format::Csv(CsvLayout::default())),
        "ndjson" => Some(Format::Ndjson),
        other => {
            errors.add(section.at("format"), format!("unknown format {other:?}, expected {expected}"));
            None
        }
    };
    match format {
        Some(Format::Csv(_)) => csv(section, errors).map(Format::Csv),
        Some(_) if section.get("csv").is_some() => {
            errors.add(section.at("csv"), "is for format = \"csv\"");
            format
        }
        _ => format,
    }
}

/// The layout of csv files, unless it has errors.
fn csv(section: &Section<'_>, errors: &mut Errors) -> Option<CsvLayout> {
    let mut layout = CsvLayout::default();
    if section.get("csv").is_none() {
        return Some(layout);
    }
    let section = section.section("csv", errors)?;
    let before = errors.count();
    section.only(&["header", "delimiter", "quote", "null", "quoted_nulls", "empty_tail"], errors);
    layout.header = section.flag("header", errors).unwrap_or(layout.header);
    layout.empty_tail = section.flag("empty_tail", errors).unwrap_or(layout.empty_tail);
    if layout.empty_tail && !layout.header {
        errors.add(section.at("empty_tail"), "is for files with a header, whose fields it is about");
    }
    if let Some(delimiter) = section.text("delimiter", errors) {
        let byte = byte(delimiter, "one ASCII character such as , or ; or \"\\t\"");
        layout.delimiter = errors.take(&section.at("delimiter"), byte).unwrap_or(layout.delimiter);
    }
    if let Some(quote) = section.text("quote", errors) {
        let byte = byte(quote, "one ASCII character, or an empty text for none").map(Some);
        let quote = if quote.is_empty() { Some(None) } else { errors.take(&section.at("quote"), byte) };
        layout.quote = quote.unwrap_or(layout.quote);
    }
    layout.quoted_nulls = section.flag("quoted_nulls", errors).unwrap_or(layout.quoted_nulls);
    if !layout.quoted_nulls && layout.quote.is_none() {
        errors.add(section.at("quoted_nulls"), "is for files with quotes, found quote = \"\"");
    }
    if layout.quote == Some(layout.delimiter) {
        errors.add(section.at("quote"), "is the delimiter too");
    }
    if let Some(value) = section.get("null") {
        let texts = if value.is_array() {
            texts(value)
        } else {
            Err(format!("expected a list of texts, found {}", describe(value)))
        };
        layout.nulls = errors.take(&section.at("null"), texts).unwrap_or_default();
    }
    (errors.count() == before).then_some(layout)
}

/// A text of one ASCII character that ends no line.
fn byte(text: &str, expected: &str) -> Result<u8, String> {
    match text.as_bytes() {
        [byte] if byte.is_ascii() && !matches!(byte, b'\n' | b'\r' | 0) => Ok(*byte),
        _ => Err(format!("expected {expected}, found {text:?}")),
    }
}

/// Whether a text of the file was taken from it as it is. One with an escape was made anew.
fn is_verbatim(value: &str, file_text: &str) -> bool {
    file_text.as_bytes().as_ptr_range().contains(&value.as_ptr())
}

fn paths(section: &Section<'_>, file_text: &str, errors: &mut Errors) -> Vec<SourcePath> {
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
        if url::is_url(path) && !is_verbatim(path, file_text) {
            // Where the file's text is shown, queries are found and left out by how URLs look in it.
            errors.add(&at, "a URL with an escape of TOML in it, expected it as it is");
        }
        if paths.contains(&parsed) {
            errors.add(&at, format!("{path} is listed twice"));
        }
        paths.push(parsed);
    }
    paths
}
