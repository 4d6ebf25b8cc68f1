//! Which form of a partition's rows a client wants.

use super::files::RowsAs;
use crate::http::accept::Accept;
use crate::run::PartFile;
use axum::http::HeaderMap;

/// A form in which a partition can be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// The file as it is.
    File(PartFile),
    /// Its rows.
    Rows(RowsAs),
}

impl Form {
    /// The media type that the answer has.
    pub(super) fn media_type(self) -> &'static str {
        match self {
            Form::File(PartFile::Parquet) => "application/vnd.apache.parquet",
            Form::File(PartFile::CsvGzip) => "application/gzip",
            Form::File(PartFile::CsvZstd) => "application/zstd",
            Form::File(PartFile::Csv) | Form::Rows(RowsAs::Csv) => "text/csv; charset=utf-8; header=present",
            Form::Rows(RowsAs::Json) => "application/json",
            Form::Rows(RowsAs::Ndjson) => "application/x-ndjson",
        }
    }

    /// The names by which it is asked for.
    fn names(self) -> &'static [&'static str] {
        match self {
            Form::File(PartFile::Parquet) => &["application/vnd.apache.parquet", "application/octet-stream"],
            Form::File(PartFile::CsvGzip) => &["application/gzip", "application/octet-stream"],
            Form::File(PartFile::CsvZstd) => &["application/zstd", "application/octet-stream"],
            Form::File(PartFile::Csv) => &["text/csv", "application/octet-stream"],
            Form::Rows(RowsAs::Csv) => &["text/csv"],
            Form::Rows(RowsAs::Json) => &["application/json"],
            Form::Rows(RowsAs::Ndjson) => &["application/x-ndjson", "application/jsonl"],
        }
    }

    /// What the name of a downloaded file ends in.
    pub(super) fn extension(self) -> &'static str {
        match self {
            Form::File(file) => file.extension(),
            Form::Rows(RowsAs::Csv) => "csv",
            Form::Rows(RowsAs::Json) => "json",
            Form::Rows(RowsAs::Ndjson) => "ndjson",
        }
    }
}

/// The forms that there are, the preferred one first: of a file that is to be cut to some columns or rows, not the file as it is.
pub(super) fn forms(file: PartFile, is_cut: bool) -> Vec<Form> {
    let rows = [RowsAs::Json, RowsAs::Csv, RowsAs::Ndjson].map(Form::Rows);
    match file {
        _ if is_cut => rows.to_vec(),
        PartFile::Csv => vec![Form::File(file), Form::Rows(RowsAs::Json), Form::Rows(RowsAs::Ndjson)],
        _ => [&[Form::File(file)], rows.as_slice()].concat(),
    }
}

/// The form that the client likes best, of equal ones the first; none where it takes none of them.
pub(super) fn choose(request: &HeaderMap, forms: &[Form]) -> Option<Form> {
    let accept = Accept::of(request);
    if accept.is_silent() {
        return forms.first().copied();
    }
    let mut best: Option<(Form, f32)> = None;
    for form in forms {
        let weight = form.names().iter().map(|name| accept.weight(name)).fold(0.0, f32::max);
        if weight > best.map_or(0.0, |(_, weight)| weight) {
            best = Some((*form, weight));
        }
    }
    best.map(|(form, _)| form)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderValue, header};

    fn chosen(accept: &'static str, file: PartFile, is_cut: bool) -> Option<Form> {
        let request = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]);
        choose(&request, &forms(file, is_cut))
    }

    #[test]
    fn the_closest_range_says_what_a_form_weighs() {
        use RowsAs::{Csv, Json, Ndjson};
        let (file, rows) = (Some(Form::File(PartFile::Parquet)), |rows_as| Some(Form::Rows(rows_as)));
        for (accept, expected) in [
            ("*/*", file),
            ("", file),
            ("text/html, application/xhtml+xml, */*;q=0.8", file),
            ("text/csv", rows(Csv)),
            ("text/*", rows(Csv)),
            ("TEXT/CSV; header=present", rows(Csv)),
            ("application/json;q=0.5, text/csv;q=0.4", rows(Json)),
            ("application/json;q=0.4, text/csv; q=0.5", rows(Csv)),
            ("application/*", file),
            ("application/*, application/vnd.apache.parquet;q=0, application/octet-stream;q=0", rows(Json)),
            ("application/x-ndjson, */*;q=0.1", rows(Ndjson)),
            ("application/octet-stream", file),
            ("text/html", None),
            ("text/csv;q=0", None),
            ("text/csv;q=nonsense", None),
        ] {
            assert_eq!(chosen(accept, PartFile::Parquet, false), expected, "{accept:?}");
        }
    }

    #[test]
    fn what_is_cut_is_not_the_file() {
        assert_eq!(chosen("*/*", PartFile::Parquet, true), Some(Form::Rows(RowsAs::Json)));
        assert_eq!(chosen("application/vnd.apache.parquet", PartFile::Parquet, true), None);
        assert_eq!(chosen("text/csv", PartFile::Csv, false), Some(Form::File(PartFile::Csv)));
        assert_eq!(chosen("text/csv", PartFile::Csv, true), Some(Form::Rows(RowsAs::Csv)));
        assert_eq!(chosen("text/csv", PartFile::CsvGzip, false), Some(Form::Rows(RowsAs::Csv)));
    }
}
