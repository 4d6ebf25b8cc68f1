//! `[table]`: what the table's files are, and what becomes of files of others.

use super::section::{Errors, Section};
use crate::pipeline::{Output, OutputFormat, ParquetCompression, TextCompression};
use crate::run::ForeignFiles;

/// The longest row group: what is written at once is in memory.
const MAX_ROW_GROUP_ROWS: u32 = 16_777_216;

/// The section, or the defaults without it.
pub(super) fn read(root: &Section<'_>, errors: &mut Errors) -> Option<(ForeignFiles, Output)> {
    if root.get("table").is_none() {
        return Some(Default::default());
    }
    let section = root.section("table", errors)?;
    section.only(&["foreign_files", "format", "compression", "row_group_rows", "manifest"], errors);
    let foreign_files = foreign_files(&section, errors);
    let format = format(&section, errors);
    let manifest = section.flag("manifest", errors).unwrap_or_default();
    Some((foreign_files?, Output { format: format?, manifest }))
}

fn foreign_files(section: &Section<'_>, errors: &mut Errors) -> Option<ForeignFiles> {
    if section.get("foreign_files").is_none() {
        return Some(ForeignFiles::default());
    }
    let text = section.text("foreign_files", errors)?;
    let wrong = || format!("expected \"fail\" or \"replace\", found {text:?}");
    errors.take(&section.at("foreign_files"), ForeignFiles::parse(text).ok_or_else(wrong))
}

fn format(section: &Section<'_>, errors: &mut Errors) -> Option<OutputFormat> {
    let format = match section.get("format") {
        None => "parquet",
        Some(_) => section.text("format", errors)?,
    };
    match format {
        "parquet" => {
            let compression = compression(section, format, ParquetCompression::ALL, ParquetCompression::as_str, errors);
            let rows = section.whole("row_group_rows", 1, MAX_ROW_GROUP_ROWS, errors);
            let row_group_rows = rows.unwrap_or(OutputFormat::ROW_GROUP_ROWS);
            Some(OutputFormat::Parquet { compression: compression?, row_group_rows })
        }
        "csv" => {
            if section.get("row_group_rows").is_some() {
                errors.add(section.at("row_group_rows"), "is for format = \"parquet\", found it with format = \"csv\"");
            }
            let compression = compression(section, format, TextCompression::ALL, TextCompression::as_str, errors);
            Some(OutputFormat::Csv { compression: compression? })
        }
        other => {
            errors.add(section.at("format"), format!("expected \"parquet\" or \"csv\", found {other:?}"));
            None
        }
    }
}

/// One of the format's compressions, which differ.
fn compression<T: Copy + Default, const N: usize>(
    section: &Section<'_>,
    format: &str,
    all: [T; N],
    name: fn(T) -> &'static str,
    errors: &mut Errors,
) -> Option<T> {
    if section.get("compression").is_none() {
        return Some(T::default());
    }
    let text = section.text("compression", errors)?;
    let wrong = || {
        let known = all.map(name).join(", ");
        format!("expected one of {known} for format = {format:?}, found {text:?}")
    };
    errors.take(&section.at("compression"), all.into_iter().find(|one| name(*one) == text).ok_or_else(wrong))
}
