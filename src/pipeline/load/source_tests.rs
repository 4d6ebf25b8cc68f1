//! What `[source]` and `[source.columns]` may say.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::pipeline::{Column, CsvLayout, Format, Literal, Origin};

/// A pipeline over csv files with the given layout and contract.
fn text(format: &str, layout: &str, columns: &str) -> String {
    format!(
        "name = \"t\"\n[source]\nformat = \"{format}\"\npath = \"in/*\"\n{layout}\n[source.columns]\n{columns}\n\
         k = {{ type = \"string\", folder = \"k\" }}\n[partition]\np = {{ value_of = \"k\" }}\n[measures]\nn = \"count(*)\"\n"
    )
}

#[track_caller]
fn good(format: &str, layout: &str, columns: &str) -> Definition {
    let text = text(format, layout, columns);
    parse(&text, "t").unwrap_or_else(|errors| unreachable!("{errors:?}"))
}

/// This and only this is wrong.
#[track_caller]
fn refused(format: &str, layout: &str, columns: &str, expected: &str) {
    let errors = parse(&text(format, layout, columns), "t").map(|_| ()).unwrap_err();
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(errors.len(), 1, "{layout} {columns}: {errors:?}");
    assert!(errors[0].starts_with(&format!("t: {expected}")), "{layout} {columns}: {}", errors[0]);
}

fn layout(written: &str) -> CsvLayout {
    match good("csv", written, "x = \"int8\"").source.format {
        Format::Csv(layout) => layout,
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn a_csv_layout_has_the_usual_defaults() {
    let usual = CsvLayout {
        header: true,
        delimiter: b',',
        quote: Some(b'"'),
        nulls: vec![String::new()],
        quoted_nulls: true,
        empty_tail: false,
    };
    assert_eq!([layout(""), layout("[source.csv]")], [usual.clone(), usual.clone()]);
    let other = layout("[source.csv]\ndelimiter = \"\\t\"\nquote = \"\"\nnull = [\"NA\", \"-\"]\nempty_tail = true");
    let nulls = vec!["NA".to_owned(), "-".to_owned()];
    assert_eq!(other, CsvLayout { delimiter: b'\t', quote: None, nulls, empty_tail: true, ..usual });
    assert_eq!(good("ndjson", "", "x = \"int8\"").source.format, Format::Ndjson);
    assert_eq!(good("parquet", "", "x = \"int8\"").source.format, Format::Parquet);
}

#[test]
fn a_csv_layout_is_checked() {
    let wrong = |key: &str, expected: &str| {
        refused("csv", &format!("[source.csv]\n{key}"), "x = \"int8\"", &format!("source.csv.{expected}"));
    };
    wrong("header = 1", "header: expected true or false, found 1");
    wrong("delimiter = \"\"", "delimiter: expected one ASCII character such as , or ; or \"\\t\", found \"\"");
    wrong("delimiter = \";;\"", "delimiter: expected one ASCII character");
    wrong("delimiter = \"·\"", "delimiter: expected one ASCII character");
    wrong("delimiter = \"\\n\"", "delimiter: expected one ASCII character");
    wrong("quote = \"''\"", "quote: expected one ASCII character, or an empty text for none, found \"''\"");
    wrong("quote = \",\"", "quote: is the delimiter too");
    wrong("null = \"NA\"", "null: expected a list of texts, found the text \"NA\"");
    wrong("null = [0]", "null: expected a text, found 0");
    wrong(
        "escape = \"x\"",
        "escape: unknown key, expected one of header, delimiter, quote, null, quoted_nulls, empty_tail",
    );
    refused("csv", "csv = 1", "x = \"int8\"", "source.csv: expected a table, found 1");
    refused("parquet", "[source.csv]", "x = \"int8\"", "source.csv: is for format = \"csv\"");
    refused(
        "csv",
        "[source.csv]\nheader = false\nempty_tail = true",
        "x = { type = \"int8\", position = 1 }",
        "source.csv.empty_tail: is for files with a header",
    );
}

fn column(format: &str, layout: &str, written: &str) -> Column {
    good(format, layout, &format!("x = {written}")).column("x").cloned().unwrap()
}

#[test]
fn a_column_says_where_its_values_are() {
    let names = |names: &[&str]| Origin::Names(names.iter().map(ToString::to_string).collect());
    let of = |written: &str| column("csv", "", written).origin;
    assert_eq!([of("\"int8\""), of("{ type = \"int8\" }")], [names(&["x"]), names(&["x"])]);
    assert_eq!(of("{ type = \"int8\", from = \"X\" }"), names(&["X"]));
    assert_eq!(of("{ type = \"int8\", from = [\"X\", \"Y.z\"] }"), names(&["X", "Y.z"]));
    assert_eq!(of("{ type = \"int8\", folder = \"trip year\" }"), Origin::Folder("trip year".to_owned()));
    let headerless = "[source.csv]\nheader = false";
    assert_eq!(column("csv", headerless, "{ type = \"int8\", position = 3 }").origin, Origin::Position(3));
    assert_eq!(column("csv", headerless, "{ type = \"int8\", folder = \"x\" }").origin, Origin::Folder("x".to_owned()));
    assert!(column("parquet", "", "{ type = \"int8 not null\", from = \"X\" }").not_null);
}

#[test]
fn columns_are_checked_where_they_stand() {
    let wrong = |written: &str, expected: &str| {
        refused("csv", "", &format!("x = {written}"), &format!("source.columns.x{expected}"));
    };
    wrong("{ from = \"a\" }", ".type: is missing, expected bool, int8");
    wrong("{ type = \"text\" }", ".type: unknown type \"text\"");
    wrong("{ type = \"int8\", form = \"a\" }", ".form: unknown key, expected one of type, from, position, folder");
    wrong("{ type = \"int8\", from = [] }", ".from: expected the column's name in the files, or a list");
    wrong("{ type = \"int8\", from = [\"\"] }", ".from: expected the column's name in the files, or a list");
    wrong("{ type = \"int8\", from = [\"a\", \"a\"] }", ".from: a is listed twice");
    wrong("{ type = \"int8\", from = 1 }", ".from: expected a text or a list of texts, found 1");
    wrong("{ type = \"int8\", from = \"a\", folder = \"b\" }", ".folder: expected one of from, folder, found several");
    wrong("{ type = \"int8\", folder = \"a/b\" }", ".folder: expected what is before the = in a folder's name");
    wrong("{ type = \"int8\", position = 1 }", ".position: is for csv files without a header");
    let headerless = |written: &str, expected: &str| {
        let columns = format!("x = {written}");
        refused("csv", "[source.csv]\nheader = false", &columns, &format!("source.columns.x{expected}"));
    };
    headerless("\"int8\"", ": expected { type = \"…\", position = n }, since the csv files have no header");
    headerless("{ type = \"int8\", from = \"a\" }", ": expected { type = \"…\", position = n }");
    headerless("{ type = \"int8\", position = 0 }", ".position: expected a whole number from 1 to 100000, found 0");
    refused(
        "ndjson",
        "",
        "x = { type = \"int8\", from = \"repo..name\" }",
        "source.columns.x: expected a path such as repo.name, found \"repo..name\"",
    );
}

#[test]
fn formats_are_for_dates_and_times_and_must_be_readable() {
    let of = |data_type: &str, format: &str| {
        column("csv", "", &format!("{{ type = \"{data_type}\", format = \"{format}\" }}")).format
    };
    for (data_type, format) in [
        ("date", "%d/%m/%Y"),
        ("date", "%d %b %y"),
        ("date", "%Y-%m-%dT%H:%M:%S%z"),
        ("datetime", "%d/%m/%Y"),
        ("datetime", "%d/%m/%Y %I:%M:%S %p"),
        ("datetime", "%Y%m%d%H"),
        ("datetime(UTC)", "%Y-%m-%d %H:%M:%S %z"),
        ("datetime(UTC)", "%s"),
    ] {
        assert_eq!(of(data_type, format).as_deref(), Some(format));
    }
    for (data_type, format, expected) in [
        ("int8", "%d", "is for dates and times, but the column is int8"),
        ("date", "", "expected strftime fields such as %d/%m/%Y"),
        ("date", "%d/%m", "\"%d/%m\" does not give a date"),
        ("date", "%Q", "\"%Q\" has a field that strftime does not know"),
        ("datetime", "%H:%M", "\"%H:%M\" does not give a date and a time"),
        ("datetime", "%Y-%m-%d %I:%M", "\"%Y-%m-%d %I:%M\" does not give a date and a time"),
        ("datetime", "%Y-%m-%d %H:%M %z", "\"%Y-%m-%d %H:%M %z\" has an offset, expected none"),
        ("datetime", "%s", "\"%s\" has an offset, expected none"),
        ("datetime(UTC)", "%Y-%m-%d %H:%M", "\"%Y-%m-%d %H:%M\" has no offset, expected %z or %s"),
        ("datetime(UTC)", "%Y-%m-%d %H:%M %Z", "\"%Y-%m-%d %H:%M %Z\" has %Z, whose names are ambiguous"),
    ] {
        let columns = format!("x = {{ type = \"{data_type}\", format = \"{format}\" }}");
        refused("csv", "", &columns, &format!("source.columns.x.format: {expected}"));
    }
}

#[test]
fn defaults_are_values_of_the_type() {
    let of = |data_type: &str, default: &str| {
        column("parquet", "", &format!("{{ type = \"{data_type}\", default = {default} }}")).default.unwrap()
    };
    assert_eq!(of("int8", "5"), Literal::Exact(5));
    assert_eq!(of("string", "\"\""), Literal::Text(String::new()));
    assert_eq!(of("bool", "false"), Literal::Bool(false));
    assert_eq!([of("decimal(5,2)", "1.10"), of("decimal(5,2)", "\"1.1\"")], [Literal::Exact(110), Literal::Exact(110)]);
    assert_eq!(of("float64", "1_000.5"), Literal::Float(1000.5));
    assert_eq!([of("date", "1970-01-02"), of("date", "\"1970-01-02\"")], [Literal::Date(1), Literal::Date(1)]);
    assert_eq!(of("datetime(Europe/Berlin)", "1970-01-01T01:00:00+01:00"), Literal::Datetime(0));
    let optional = column("parquet", "", "{ type = \"int8\", optional = true }");
    assert_eq!(optional.default, Some(Literal::Null));
    assert_eq!(column("parquet", "", "{ type = \"int8\", optional = false }").default, None);
    for (written, expected) in [
        ("type = \"int8\", default = 200", "default: \"200\" is out of range, expected int8"),
        ("type = \"int8\", default = 1.5", "default: \"1.5\" is not whole, expected int8"),
        ("type = \"int8\", default = \"\"", "default: \"\" does not fit, expected int8"),
        ("type = \"int8\", default = true", "default: true is no int8"),
        ("type = \"string\", default = 5", "default: 5 is no string"),
        ("type = \"datetime\", default = 1970-01-01T00:00:00Z", "default: \"1970-01-01T00:00:00Z\" has an offset"),
        ("type = \"int8\", default = 1, optional = true", "optional: expected it or default, found both"),
        ("type = \"int8 not null\", optional = true", "optional: makes nulls of what a file does not have"),
    ] {
        refused("parquet", "", &format!("x = {{ {written} }}"), &format!("source.columns.x.{expected}"));
    }
}

#[test]
fn rows_bring_their_file_and_line_along() {
    let with = |dimension: &str, columns: &str| {
        let text =
            text("csv", "", columns).replace("[measures]", &format!("[dimensions]\nd = \"{dimension}\"\n[measures]"));
        parse(&text, "t").map_err(|errors| errors[0].to_string())
    };
    let uses = |dimension: &str| {
        let definition = with(dimension, "x = \"int8\"").unwrap();
        (definition.uses_source_file(), definition.uses_source_line())
    };
    assert_eq!([uses("x"), uses("source_file"), uses("source_line")], [(false, false), (true, false), (false, true)]);
    assert_eq!(uses("case when source_line > 1 then lower(source_file) end"), (true, true));
    let own = with("source_file", "x = \"int8\"\nsource_file = \"int8\"").unwrap();
    assert!(!own.uses_source_file(), "a column of the contract goes first");
    let filtered = text("csv", "", "x = \"int8\"") + "[where]\nsql = \"source_line > 1\"\n";
    assert!(parse(&filtered, "t").unwrap().uses_source_line());
    let counted = text("csv", "", "x = \"int8\"").replace("count(*)", "max(source_line)");
    assert!(parse(&counted, "t").unwrap().uses_source_line());
    assert!(with("source_fil", "x = \"int8\"").unwrap_err().contains("unknown column source_fil"));
}

#[test]
fn the_hash_tells_sources_apart() {
    let x = "x = \"int8\"";
    let hash = |format: &str, layout: &str, columns: &str| good(format, layout, columns).hash;
    assert_eq!(hash("csv", "", x), hash("csv", "[source.csv]\nheader = true\nnull = [\"\", \"\"]", x));
    assert_eq!(hash("csv", "", x), hash("csv", "", "x = { type = \"int8\", from = [\"x\"], optional = false }"));
    let headerless = "[source.csv]\nheader = false";
    let all = [
        hash("parquet", "", x),
        hash("ndjson", "", x),
        hash("csv", "", x),
        hash("csv", "[source.csv]\ndelimiter = \";\"", x),
        hash("csv", "[source.csv]\nquote = \"\"", x),
        hash("csv", "[source.csv]\nnull = []", x),
        hash("csv", "[source.csv]\nempty_tail = true", x),
        hash("csv", headerless, "x = { type = \"int8\", position = 1 }"),
        hash("csv", headerless, "x = { type = \"int8\", position = 2 }"),
        hash("csv", "", "x = { type = \"int8\", from = \"y\" }"),
        hash("csv", "", "x = { type = \"int8\", from = [\"y\", \"z\"] }"),
        hash("csv", "", "x = { type = \"int8\", from = [\"z\", \"y\"] }"),
        hash("csv", "", "x = { type = \"int8\", folder = \"y\" }"),
        hash("csv", "", "x = { type = \"int8\", default = 1 }"),
        hash("csv", "", "x = { type = \"int8\", optional = true }"),
        hash("csv", "", "x = { type = \"date\", format = \"%d%m%Y\" }"),
    ];
    for (at, one) in all.iter().enumerate() {
        assert!(!all[..at].contains(one), "{at}");
    }
}

#[test]
fn what_a_url_hides_is_in_no_message() {
    let told = |paths: &str| {
        let text = text("csv", "", "x = \"int8\"").replace("path = \"in/*\"", &format!("path = {paths}"));
        parse(&text, "t").map(|_| ()).map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    assert_eq!(told("\"HTTPS://h/a?sig=secret\""), Ok(()));
    let one = |error: &str| Err(vec![format!("t: source.path: {error}")]);
    let twice = "[\"HTTPS://h/a?sig=secret\", \"HTTPS://h/a?sig=secret\"]";
    assert_eq!(told(twice), one("HTTPS://h/a is listed twice"));
    let untimed = "HTTPS://h/%Y?sig=secret";
    let needs = "https://h/%Y needs a partition column of year_of, month_of, day_of or hour_of, found none";
    assert_eq!(told(&format!("\"{untimed}\"")), one(needs));
    for escaped in ["https:\\u002f\\u002fh/a?sig=secret", "https://h/a?sig=s\\u0065cret"] {
        // Also where it stands as it is elsewhere.
        for plain in ["", " # https://h/a?sig=secret"] {
            let told = told(&format!("\"{escaped}\"{plain}"));
            assert_eq!(told, one("a URL with an escape of TOML in it, expected it as it is"));
        }
    }
}

#[test]
fn an_error_hides_none_of_what_comes_after_it() {
    let text = "name = \"t\"\nmax_rejected = 2\nsort_by = []\n[source]\nformat = \"parquet\"\npath = \"in/*\"\n[source.columns]\n\
                k = \"string\"\n[partition]\np = { value_of = \"k\" }\n[columns]\nk = \"k\"\n[quarantine]\nrows = []\n";
    let errors = parse(text, "t").unwrap_err();
    let places: Vec<&str> = errors.iter().map(|error| error.at.as_str()).collect();
    assert_eq!(places, ["max_rejected", "quarantine.rows", "sort_by"]);
}
