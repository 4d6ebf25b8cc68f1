#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::partition::{Transform, ValueKind};
use crate::pipeline::{DataType, SourcePath, TemplateUnit};

const ZONE_HOUR: &str = include_str!("../../../pipelines/zone_hour.toml");
const ZONE_HOUR_BY_FILE: &str = include_str!("../../../pipelines/zone_hour_by_file.toml");

const SMALL: &str = r#"
name = "small"
timezone = "UTC"
max_rejected = 0.01
[source]
format = "parquet"
path = "in/*.parquet"
[source.columns]
at = "datetime"
zoned = "datetime(Europe/Berlin)"
day = "date not null"
kind = "string"
size = "int8"
price = "decimal(18,2)"
ratio = "float64"
[partition]
p = { month_of = "at" }
[dimensions]
kind = "kind"
[measures]
rows = "count(*)"
"#;

#[track_caller]
fn good(text: &str) -> Definition {
    parse(text, "small.toml").unwrap_or_else(|errors| unreachable!("{errors:?}"))
}

fn errors(text: &str) -> Vec<String> {
    let errors = parse(text, "pipelines/small.toml").err().unwrap_or_default();
    errors.iter().map(ToString::to_string).collect()
}

/// The small pipeline with one thing changed has just this error.
#[track_caller]
fn refused(from: &str, to: &str, expected: &str) {
    assert!(SMALL.contains(from), "{from}");
    let found = errors(&SMALL.replacen(from, to, 1));
    assert_eq!(found.len(), 1, "{from} -> {to}: {found:?}");
    assert!(found[0].starts_with(&format!("pipelines/small.toml: {expected}")), "{from} -> {to}: {}", found[0]);
}

#[test]
fn the_shipped_pipelines_load() {
    let zone_hour = parse(ZONE_HOUR, "pipelines/zone_hour.toml").unwrap();
    assert_eq!(zone_hour.source.neighbours, 1);
    let path = "data/yellow_tripdata_%Y-%m.parquet".to_owned();
    let template = crate::pipeline::Template { text: path, unit: TemplateUnit::Month };
    assert_eq!(zone_hour.source.paths, [SourcePath::Template(template)]);
    assert_eq!(zone_hour.dimensions.iter().map(|d| d.name.as_str()).collect::<Vec<_>>(), ["zone", "pickup_hour"]);
    assert_eq!(zone_hour.measures[1].data_type, DataType::Decimal { precision: 28, scale: 2 });
    assert_eq!(zone_hour.column("PULocationID").map(|column| column.data_type.clone()), Some(DataType::Int(32)));
    assert_eq!(zone_hour.retry.source.delay_seconds, Some(30));
    assert_eq!(zone_hour.retry.service, RetryPolicy::default().service);
    assert!(zone_hour.filter.is_some());
    let by_file = parse(ZONE_HOUR_BY_FILE, "zone_hour_by_file.toml").unwrap();
    assert_eq!((by_file.source.neighbours, &by_file.source.paths), (0, &zone_hour.source.paths));
    assert_eq!((by_file.measures, by_file.filter), (zone_hour.measures, zone_hour.filter));
}

#[test]
fn columns_keep_the_order_of_the_file() {
    let text = SMALL.replace("[dimensions]", "[dimensions]\nz = \"size\"\na = \"day\"");
    let text = text.replace("rows = \"count(*)\"", "z_rows = \"count(*)\"\na_rows = \"count(kind)\"");
    let text = text.replace("p = {", "year = { year_of = \"at\" }\np = {");
    let definition = good(&text);
    assert_eq!(definition.dimensions.iter().map(|d| d.name.as_str()).collect::<Vec<_>>(), ["z", "a", "kind"]);
    assert_eq!(definition.measures.iter().map(|m| m.name.as_str()).collect::<Vec<_>>(), ["z_rows", "a_rows"]);
    let spec = &definition.partition;
    assert_eq!(spec.columns().iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["year", "p"]);
    let columns = definition.source.columns.iter().map(|c| c.name.as_str()).collect::<Vec<_>>();
    assert_eq!(columns, ["at", "zoned", "day", "kind", "size", "price", "ratio"]);
    assert!(definition.column("day").unwrap().not_null && !definition.column("at").unwrap().not_null);
}

#[test]
fn the_hash_is_of_the_meaning() {
    let hash = |text: &str| good(text).hash;
    let same = [
        ("timezone = \"UTC\"\n", ""),
        ("max_rejected = 0.01", "# one in a hundred\nmax_rejected=1e-2"),
        ("name = \"small\"", "description = \"for people\"\nname = \"small\""),
        ("\"in/*.parquet\"", "[\"./in//*.parquet\"]"),
        ("[measures]", "[table]\nforeign_files = \"fail\"\n[measures]"),
        ("[measures]", "[quarantine]\nrows = [\"rejected\"]\nmax_rows = 10000\n[measures]"),
        ("count(*)", " COUNT( * ) "),
        ("kind = \"string\"\nsize = \"int8\"", "size = \"int8\"\nkind = \"string\""),
        ("rows =", "\"rows\" ="),
    ];
    for (from, to) in same {
        assert_eq!(hash(&SMALL.replacen(from, to, 1)), hash(SMALL), "{from} -> {to}");
    }
    let other = [
        ("timezone = \"UTC\"", "timezone = \"Europe/Berlin\""),
        ("max_rejected = 0.01", "max_rejected = 0.02"),
        ("in/*", "in/**/*"),
        ("size = \"int8\"", "size = \"int8 not null\""),
        ("month_of", "day_of"),
        ("kind = \"kind\"", "kind = \"lower(kind)\""),
        ("kind = \"kind\"", "kind = \"kind\"\nsize = \"size\""),
        ("count(*)", "count(kind)"),
        ("[measures]", "[where]\nsql = \"size > 1\"\n[measures]"),
        ("[measures]", "[retry]\nsource = { attempts = 9 }\n[measures]"),
        ("[measures]", "[limits]\ntimeout_seconds = 60\n[measures]"),
        ("[measures]", "[table]\nforeign_files = \"replace\"\n[measures]"),
        ("[measures]", "[quarantine]\nrows = [\"filtered\"]\n[measures]"),
        ("[measures]", "[quarantine]\nrows = [\"strays\", \"rejected\"]\n[measures]"),
        ("[measures]", "[quarantine]\nmax_rows = 0\n[measures]"),
    ];
    let mut seen = vec![hash(SMALL)];
    for (from, to) in other {
        let hash = hash(&SMALL.replacen(from, to, 1));
        assert!(!seen.contains(&hash), "{from} -> {to}");
        seen.push(hash);
    }
    let two = |a: &str, b: &str| hash(&SMALL.replace("rows = \"count(*)\"", &format!("{a}\n{b}")));
    let rejected = |share: &str| hash(&SMALL.replacen("0.01", share, 1));
    assert_eq!(rejected("-0.0"), rejected("0"));
    assert_ne!(two("a = \"count(*)\"", "b = \"count(*)\""), two("b = \"count(*)\"", "a = \"count(*)\""));
    // Tables of today must not count as stale tomorrow.
    let known = "a6e9657ff9206e3a9b7e796bfe5a62a2afcc61ccdd5caef66c2ae4a9a85afc93";
    assert_eq!(hash(SMALL).0, known);
    assert_eq!(good(SMALL).text, SMALL);
}

#[test]
fn syntax_errors_have_a_line_and_a_column() {
    let found = errors("name = \"small\"\nsource = [\n");
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("pipelines/small.toml: line "), "{}", found[0]);
    assert!(errors("a = 1\nb = é")[0].contains("line 2, column 5"), "{:?}", errors("a = 1\nb = é"));
    assert!(errors("a = 1\na = 2")[0].contains("line 2, column 1"));
}

#[test]
fn all_errors_are_found_at_once() {
    let text = SMALL.replace("kind = \"kind\"", "kind = \"knd\"").replace("count(*)", "size").replace("UTC", "Mars");
    assert_eq!(errors(&text).len(), 1, "what depends on the time zone waits for it");
    let text = text.replace("Mars", "UTC").replace("[measures]", "[where]\nsql = \"size\"\n[measure]");
    let found = errors(&text);
    let expected = [
        "measure: unknown key, expected one of name",
        "dimensions.kind: unknown column knd",
        "measures: is missing, expected a table [measures] with an aggregate",
        "where.sql: expected a condition, found an expression of type int8",
    ];
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.contains(expected), "{found}");
    }
    assert!(errors("").iter().any(|error| error.contains("source: is missing")));
}

#[test]
fn keys_and_values_are_checked_where_they_stand() {
    refused("name = \"small\"", "name = \"other\"", "name: expected the file's name \"small\", found \"other\"");
    refused("name = \"small\"", "name = \"Small\"", "name: expected a name of a to z");
    refused("name = \"small\"", "name = 5", "name: expected a text, found 5");
    refused(
        "max_rejected = 0.01",
        "max_rejected = 1.5",
        "max_rejected: expected a share of rows from 0 to 1, found 1.5",
    );
    refused("max_rejected = 0.01", "max_rejected = nan", "max_rejected: expected a share");
    refused("max_rejected = 0.01", "max_reject = 0.01", "max_reject: unknown key, expected one of name, description");
    refused("\"UTC\"", "\"Mars\"", "timezone: unknown time zone \"Mars\"");
    refused("\"parquet\"", "\"xml\"", "source.format: unknown format \"xml\", expected parquet, csv or ndjson");
    refused("\"in/*.parquet\"", "[]", "source.path: expected a path, or a list of paths, found an empty list");
    refused("\"in/*.parquet\"", "[\"a\", \"./a\"]", "source.path: ./a is listed twice");
    refused("\"in/*.parquet\"", "\"in/%b.parquet\"", "source.path: %b is no field");
    refused("[source.columns]", "neighbours = 1\n[source.columns]", "source.neighbours: needs a path with strftime");
    refused(
        "\"in/*.parquet\"",
        "\"%Y\"\nneighbours = 1001",
        "source.neighbours: expected a whole number from 0 to 1000",
    );
    refused("[measures]", "[retry]\nlost = {}\n[measures]", "retry.lost: unknown key, expected one of source, service");
    refused(
        "[measures]",
        "[limits]\ntimeout = 9\n[measures]",
        "limits.timeout: unknown key, expected one of timeout_seconds",
    );
    refused(
        "[measures]",
        "[limits]\ntimeout_seconds = 0\n[measures]",
        "limits.timeout_seconds: expected a whole number",
    );
    refused(
        "[measures]",
        "[table]\nforeign = \"fail\"\n[measures]",
        "table.foreign: unknown key, expected one of foreign_files, format",
    );
    refused(
        "[measures]",
        "[table]\nforeign_files = \"keep\"\n[measures]",
        "table.foreign_files: expected \"fail\" or \"replace\", found \"keep\"",
    );
    let known = "expected some of rejected, filtered, strays, found";
    for (rows, at) in [
        ("rows = [\"stray\"]", format!("quarantine.rows: {known} \"stray\"")),
        ("rows = []", format!("quarantine.rows: {known} none; max_rows = 0 keeps no row")),
        ("rows = 1", "quarantine.rows: expected a text or a list of texts, found 1".to_owned()),
        ("max_rows = 100001", "quarantine.max_rows: expected a whole number from 0 to 100000, found 100001".to_owned()),
        ("keep = true", "quarantine.keep: unknown key, expected one of rows, max_rows".to_owned()),
    ] {
        refused("[measures]", &format!("[quarantine]\n{rows}\n[measures]"), &at);
    }
    refused("[measures]", "[retry.source]\nattempts = 0\n[measures]", "retry.source.attempts: expected a whole number");
    refused("[measures]", "[retry.source]\ndelay_seconds = 900\n[measures]", "retry.source.delay_seconds: 900 is more");
    refused("[measures]", "[where]\n[measures]", "where.sql: is missing, expected a condition");
    refused("rows = \"count(*)\"", "", "measures: expected an aggregate such as");
    refused("p = { month_of = \"at\" }", "", "partition: expected a column such as");
}

#[test]
fn types_are_those_of_the_contract() {
    let typed =
        |written: &str| good(&SMALL.replace("\"int8\"", &format!("{written:?}"))).column("size").cloned().unwrap();
    for written in ["bool", "uint64", "float32", "decimal(38,38)", "datetime(UTC)", "int16", "string", "date"] {
        assert_eq!(typed(written).data_type.to_string(), written);
    }
    assert!(typed("decimal( 10 , 2 )  not  null").not_null);
    refused("\"int8\"", "\"int128\"", "source.columns.size: unknown type \"int128\", expected bool, int8");
    refused("\"int8\"", "\"decimal(39,2)\"", "source.columns.size: decimal(39,2) does not exist");
    refused("\"int8\"", "\"decimal(3,4)\"", "source.columns.size: decimal(3,4) does not exist");
    refused("\"int8\"", "\"datetime(Mars)\"", "source.columns.size: unknown time zone \"Mars\"");
    refused(
        "size = \"int8\"",
        "\"a b\" = 8",
        "source.columns.\"a b\": expected a type, or { type = \"…\", from = \"…\" }, found 8",
    );
}

#[test]
fn transforms_take_columns_that_have_what_they_need() {
    let column = |from: &str| good(&SMALL.replace("{ month_of = \"at\" }", from)).partition.columns()[0].clone();
    assert_eq!(column("{ month_of = \"zoned\" }").transform, Transform::MonthOf);
    assert_eq!(column("{ value_of = \"size\" }").kind, ValueKind::Int { min: -128, max: 127 });
    assert_eq!(column("{ value_of = \"price\" }").kind, ValueKind::Decimal { precision: 18, scale: 2 });
    assert_eq!(column("{ value_of = \"day\" }").kind, ValueKind::Date);
    assert_eq!(column("{ hour_of = \"zoned\" }").kind, ValueKind::Text);
    let at = "{ month_of = \"at\" }";
    refused(at, "{ month_of = \"kind\" }", "partition.p: month_of needs a date or datetime column, but kind is string");
    refused(at, "{ hour_of = \"day\" }", "partition.p: hour_of needs a datetime column, but day is date");
    refused(at, "{ hour_of_day = \"day\" }", "partition.p: hour_of_day needs a datetime column, but day is date");
    refused(at, "{ value_of = \"ratio\" }", "partition.p: value_of cannot take float64 (ratio)");
    refused(
        at,
        "{ month_of = \"nope\" }",
        "partition.p: unknown column nope, expected one of source.columns: at, zoned",
    );
    refused(at, "{ week_of = \"at\" }", "partition.p: unknown transform week_of, expected one of year_of");
    refused(at, "{ month_of = \"at\", day_of = \"at\" }", "partition.p: expected one transform");
    refused(at, "\"at\"", "partition.p: expected { transform = \"column\" }");
}

#[test]
fn zoned_hours_are_utc_only() {
    let berlin = |from: &str, to: &str| errors(&SMALL.replace("\"UTC\"", "\"Europe/Berlin\"").replace(from, to));
    let at = "{ month_of = \"at\" }";
    for transform in ["hour_of", "hour_of_day", "value_of"] {
        let found = berlin(at, &format!("{{ {transform} = \"zoned\" }}"));
        assert!(found[0].contains("zoned hours are UTC only"), "{found:?}");
    }
    assert_eq!(berlin(at, "{ hour_of = \"at\" }"), [""; 0]);
    assert_eq!(berlin(at, "{ day_of = \"zoned\" }"), [""; 0]);
    let found = berlin("kind = \"kind\"", "hour = { truncate = \"zoned\", to = \"hour\" }");
    assert!(found[0].contains("zoned hours are UTC only: truncate to hour"), "{found:?}");
    assert_eq!(berlin("kind = \"kind\"", "day = { truncate = \"zoned\", to = \"day\" }"), [""; 0]);
}

#[test]
fn dimensions_and_names_are_checked() {
    let kind = "kind = \"kind\"";
    assert_eq!(good(&SMALL.replace(kind, "")).dimensions, []);
    refused(kind, "kind = \"ratio\"", "dimensions.kind: a dimension cannot be float64");
    refused(kind, "kind = \"price / 2\"", "dimensions.kind: a dimension cannot be float64");
    refused(kind, "kind = 5", "dimensions.kind: expected an expression or { truncate");
    refused(
        kind,
        "k = { truncate = \"day\", to = \"hour\" }",
        "dimensions.k: truncate to hour needs a datetime column",
    );
    refused(kind, "k = { truncate = \"at\", to = \"second\" }", "dimensions.k: cannot truncate to \"second\"");
    refused(kind, "k = { truncate = \"at\" }", "dimensions.k: to is missing");
    refused(kind, "k = { truncate = \"at\", to = \"day\", of = 1 }", "dimensions.k: unknown key of");
    refused(kind, "P = \"kind\"", "dimensions.P: the table has a column of that name already, from partition.p");
    refused("rows =", "KIND =", "measures.KIND: the table has a column of that name already, from dimensions.kind");
    refused(kind, "\"a-b\" = \"kind\"", "dimensions.a-b: expected a name of letters");
    refused("p = {", "\"1p\" = {", "partition.1p: expected a name of letters");
    refused("count(*)", "sum(ratio)", "measures.rows: sum of float64 depends on the order");
}

#[test]
fn templates_need_the_time_of_one_column() {
    let template = SMALL.replace("in/*.parquet", "in/%Y-%m-%d.parquet");
    assert!(errors(&template).is_empty());
    assert!(errors(&template.replace("p = {", "y = { year_of = \"at\" }\np = {")).is_empty());
    let found = errors(&template.replace("{ month_of = \"at\" }", "{ hour_of_day = \"at\" }"));
    assert!(found[0].contains("source.path: in/%Y-%m-%d.parquet needs a partition column of year_of"), "{found:?}");
    let found = errors(&template.replace("p = {", "d = { day_of = \"day\" }\np = {"));
    assert!(found[0].contains("needs partition columns of one source column's time, found those of day and at"));
}
