//! Which form of a partition's rows a client wants (RFC 9110, 12.5.1).

use super::files::RowsAs;
use crate::run::PartFile;
use axum::http::{HeaderMap, header};

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
    let texts: Vec<&str> =
        request.get_all(header::ACCEPT).into_iter().filter_map(|value| value.to_str().ok()).collect();
    let ranges: Vec<Range<'_>> = texts.iter().flat_map(|text| text.split(',')).filter_map(Range::read).collect();
    if ranges.is_empty() {
        return forms.first().copied();
    }
    let mut best: Option<(Form, f32)> = None;
    for form in forms {
        let weight = form.names().iter().map(|name| weight(&ranges, name)).fold(0.0, f32::max);
        if weight > best.map_or(0.0, |(_, weight)| weight) {
            best = Some((*form, weight));
        }
    }
    best.map(|(form, _)| form)
}

/// A range of media types with its weight.
struct Range<'a> {
    name: &'a str,
    weight: f32,
}

impl<'a> Range<'a> {
    /// Other parameters than the weight are passed over.
    fn read(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let name = parts.next().filter(|name| !name.is_empty())?;
        let weight = parts.find_map(|part| {
            let (parameter, value) = part.split_once('=')?;
            parameter.trim().eq_ignore_ascii_case("q").then(|| value.trim().parse::<f32>().unwrap_or(0.0))
        });
        Some(Self { name, weight: weight.unwrap_or(1.0).clamp(0.0, 1.0) })
    }

    /// How closely it names a media type: 3 for itself, 2 for its kind, 1 for anything; none where it does not.
    fn closeness(&self, name: &str) -> Option<u8> {
        let kind = name.split_once('/').map_or(name, |(kind, _)| kind);
        if self.name.eq_ignore_ascii_case(name) {
            Some(3)
        } else if self.name.strip_suffix("/*").is_some_and(|asked| asked.eq_ignore_ascii_case(kind)) {
            Some(2)
        } else {
            (self.name == "*/*").then_some(1)
        }
    }
}

/// What the closest range says.
fn weight(ranges: &[Range<'_>], name: &str) -> f32 {
    let close = ranges.iter().filter_map(|range| Some((range.closeness(name)?, range.weight)));
    close.max_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))).map_or(0.0, |(_, weight)| weight)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

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
