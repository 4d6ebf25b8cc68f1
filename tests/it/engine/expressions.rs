//! Every operator and function, each over a few rows, with the values that it must give.

use super::bed::{Bed, Layout};
use polars::prelude::{
    Column, DataType, Int128Chunked, IntoColumn, NamedFrom, NewChunkedArray, Series, TimeUnit, TimeZone,
};

/// `id` 0, 1, 2, ... and columns of every kind, the last row null in all.
fn rows() -> Vec<Column> {
    let decimal = |name: &str, values: [Option<i128>; 4], precision, scale| {
        let values = Int128Chunked::from_iter_options(name.into(), values.into_iter());
        values.into_decimal(precision, scale).unwrap().into_column()
    };
    let time = |name: &str, zone: Option<&str>| {
        let zone = TimeZone::opt_try_new(zone).unwrap();
        // 2024-02-29T23:30:15.5, 1969-12-31T23:59:59.999999, 2024-10-27T00:30 (two days in Berlin's summer and winter).
        let micros = [Some(1_709_249_415_500_000i64), Some(-1), Some(1_729_989_000_000_000), None];
        Series::new(name.into(), micros).cast(&DataType::Datetime(TimeUnit::Microseconds, zone)).unwrap().into()
    };
    vec![
        Series::new("id".into(), [0i32, 1, 2, 3]).into(),
        Series::new("n".into(), [Some(7i64), Some(-7), Some(i64::MIN), None]).into(),
        Series::new("small".into(), [Some(127i8), Some(-128), Some(0), None]).into(),
        Series::new("u".into(), [Some(u64::MAX), Some(0), Some(1), None]).into(),
        decimal("d", [Some(12345), Some(-12350), Some(5), None], 10, 2),
        decimal("wide", [Some(10i128.pow(38) - 1), Some(-(10i128.pow(38) - 1)), Some(1), None], 38, 0),
        Series::new("f".into(), [Some(1.5f64), Some(f64::NAN), Some(-0.0), None]).into(),
        Series::new("single".into(), [Some(0.1f32), Some(1e30), Some(-2.0), None]).into(),
        Series::new("s".into(), [Some("  Größe <b> 50%"), Some("a.c"), Some(""), None]).into(),
        Series::new("b".into(), [Some(true), Some(false), Some(true), None]).into(),
        Series::new("day".into(), [Some(19_782i32), Some(-1), Some(0), None]).cast(&DataType::Date).unwrap().into(),
        time("t", None),
        time("z", Some("UTC")),
    ]
}

fn pipeline(timezone: &str, dimension: &str, measure: &str, filter: &str) -> String {
    format!(
        r#"
name = "t"
timezone = "{timezone}"
max_rejected = 0
[source]
format = "parquet"
path = "rows.parquet"
[source.columns]
id = "int32"
n = "int64"
small = "int8"
u = "uint64"
d = "decimal(10,2)"
wide = "decimal(38,0)"
f = "float64"
single = "float32"
s = "string"
b = "bool"
day = "date"
t = "datetime"
z = "datetime(America/New_York)"
[partition]
p = {{ value_of = "id" }}
[dimensions]
x = "{dimension}"
[measures]
y = "{measure}"
[where]
sql = "{filter}"
"#
    )
}

/// What an expression is in each row, as a dimension where it can be one, else as a measure.
async fn values(bed: &Bed, timezone: &str, expression: &str, is_float: bool) -> Vec<String> {
    let definition = match is_float {
        true => pipeline(timezone, "id", &format!("max({expression})"), "true"),
        false => pipeline(timezone, expression, "count(*)", "true"),
    };
    let made = bed.made(&definition, &[]).await;
    let name = if is_float { "y" } else { "x" };
    (0..4).map(|id| made.column(&format!("p={id}"), name).concat()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn exact_numbers_and_conditions() {
    let bed = Bed::new();
    bed.write("rows.parquet", rows());
    for (expression, expected) in [
        ("n + 1", ["8e-0", "-6e-0", "-9223372036854775807e-0", "null"]),
        ("-n", ["-7e-0", "7e-0", "9223372036854775808e-0", "null"]),
        ("-small", ["-127e-0", "128e-0", "0e-0", "null"]),
        ("abs(small)", ["127e-0", "128e-0", "0e-0", "null"]),
        ("abs(n)", ["7e-0", "7e-0", "9223372036854775808e-0", "null"]),
        ("abs(d)", ["12345e-2", "1235e-1", "5e-2", "null"]),
        ("small * small", ["16129e-0", "16384e-0", "0e-0", "null"]),
        ("u + u", ["36893488147419103230e-0", "0e-0", "2e-0", "null"]),
        ("u - 1", ["18446744073709551614e-0", "-1e-0", "0e-0", "null"]),
        ("d * 1.5", ["185175e-3", "-18525e-2", "75e-3", "null"]),
        ("d - 0.005", ["123445e-3", "-123505e-3", "45e-3", "null"]),
        ("round(d)", ["123e-0", "-124e-0", "0e-0", "null"]),
        ("round(d, 1)", ["1235e-1", "-1235e-1", "1e-1", "null"]),
        ("floor(d)", ["123e-0", "-124e-0", "0e-0", "null"]),
        ("ceil(d)", ["124e-0", "-123e-0", "1e-0", "null"]),
        ("cast(d as decimal(20,4))", ["12345e-2", "-1235e-1", "5e-2", "null"]),
        ("case when d > 100 then n when d < 0 then -1 else 0 end", ["7e-0", "-1e-0", "0e-0", "0e-0"]),
        ("case when b then small end", ["127e-0", "null", "0e-0", "null"]),
        ("case small when 127 then 'top' when 0 then 'nil' end", ["'top'", "null", "'nil'", "null"]),
        ("coalesce(n, small, -3)", ["7e-0", "-7e-0", "-9223372036854775808e-0", "-3e-0"]),
        ("coalesce(d, 0.5)", ["12345e-2", "-1235e-1", "5e-2", "5e-1"]),
        ("nullif(small, 0)", ["127e-0", "-128e-0", "null", "null"]),
        ("n = 7.0", ["true", "false", "false", "null"]),
        ("d > n", ["true", "false", "true", "null"]),
        ("wide > 99999999999999999999999999999999999998", ["true", "false", "false", "null"]),
        ("wide <> n", ["true", "true", "true", "null"]),
        ("u > n", ["true", "true", "true", "null"]),
        ("n between -7 and 7", ["true", "true", "false", "null"]),
        ("n not in (7, 8)", ["false", "true", "true", "null"]),
        ("d in (123.45, 0.050)", ["true", "false", "true", "null"]),
        ("b and n > 0", ["true", "false", "false", "null"]),
        ("b or n is null", ["true", "false", "true", "true"]),
        ("not b or f is null", ["false", "true", "false", "true"]),
        ("f = f", ["true", "true", "true", "null"]),
        ("f > 1", ["true", "true", "false", "null"]),
        ("f = 0", ["false", "false", "true", "null"]),
        ("single = 0.1", ["false", "false", "false", "null"]),
        ("12.50", ["125e-1", "125e-1", "125e-1", "125e-1"]),
        ("'x'", ["'x'", "'x'", "'x'", "'x'"]),
    ] {
        assert_eq!(values(&bed, "UTC", expression, false).await, expected, "{expression}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn texts() {
    let bed = Bed::new();
    bed.write("rows.parquet", rows());
    for (expression, expected) in [
        ("upper(s)", ["'  GRÖSSE <B> 50%'", "'A.C'", "''", "null"]),
        ("lower(s)", ["'  größe <b> 50%'", "'a.c'", "''", "null"]),
        ("trim(s)", ["'Größe <b> 50%'", "'a.c'", "''", "null"]),
        ("length(s)", ["15e-0", "3e-0", "0e-0", "null"]),
        ("substr(s, 3, 4)", ["'Größ'", "'c'", "''", "null"]),
        ("substr(s, 2)", ["' Größe <b> 50%'", "'.c'", "''", "null"]),
        ("substr(s, 1, 0)", ["''", "''", "''", "null"]),
        ("substr(s, 1, 999999999999999999)", ["'  Größe <b> 50%'", "'a.c'", "''", "null"]),
        ("s || '!' || 'é'", ["'  Größe <b> 50%!é'", "'a.c!é'", "'!é'", "null"]),
        ("starts_with(s, '  G')", ["true", "false", "false", "null"]),
        ("ends_with(s, '%')", ["true", "false", "false", "null"]),
        ("replace(s, '.', '$0')", ["'  Größe <b> 50%'", "'a$0c'", "''", "null"]),
        ("s like 'a.c'", ["false", "true", "false", "null"]),
        ("s like 'a_c'", ["false", "true", "false", "null"]),
        ("s like 'a[.]c'", ["false", "false", "false", "null"]),
        ("s like '%<b>%'", ["true", "false", "false", "null"]),
        ("s like '%<'", ["false", "false", "false", "null"]),
        ("s like '__Gr__e%'", ["true", "false", "false", "null"]),
        ("s like '%\\\\%'", ["false", "false", "false", "null"]),
        ("s not like ''", ["true", "true", "false", "null"]),
        ("s < 'b'", ["true", "true", "true", "null"]),
    ] {
        assert_eq!(values(&bed, "UTC", expression, false).await, expected, "{expression}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn times_and_their_parts() {
    let bed = Bed::new();
    bed.write("rows.parquet", rows());
    for (zone, expression, expected) in [
        ("UTC", "year(t)", ["2024e-0", "1969e-0", "2024e-0", "null"]),
        ("UTC", "extract(month from t)", ["2e-0", "12e-0", "10e-0", "null"]),
        ("UTC", "day(t)", ["29e-0", "31e-0", "27e-0", "null"]),
        ("UTC", "hour(t)", ["23e-0", "23e-0", "0e-0", "null"]),
        ("UTC", "minute(t)", ["30e-0", "59e-0", "30e-0", "null"]),
        ("UTC", "second(t)", ["15e-0", "59e-0", "0e-0", "null"]),
        ("UTC", "dayofweek(t)", ["4e-0", "3e-0", "7e-0", "null"]),
        ("UTC", "dayofweek(day)", ["4e-0", "3e-0", "4e-0", "null"]),
        ("UTC", "cast(t as date)", ["day 19782", "day -1", "day 20023", "null"]),
        // Zoned times are in the pipeline's zone, not in their column's.
        ("UTC", "cast(z as date)", ["day 19782", "day -1", "day 20023", "null"]),
        ("Europe/Berlin", "cast(z as date)", ["day 19783", "day 0", "day 20023", "null"]),
        ("Europe/Berlin", "day(z)", ["1e-0", "1e-0", "27e-0", "null"]),
        ("Europe/Berlin", "hour(z)", ["0e-0", "0e-0", "2e-0", "null"]),
        ("Europe/Berlin", "hour(t)", ["23e-0", "23e-0", "0e-0", "null"]),
        ("Asia/Kolkata", "minute(z)", ["0e-0", "29e-0", "0e-0", "null"]),
        ("Europe/Berlin", "z >= '2024-03-01'", ["true", "false", "true", "null"]),
        ("Europe/Berlin", "z = '2024-02-29T23:30:15.5Z'", ["true", "false", "false", "null"]),
        ("UTC", "day = '2024-02-29'", ["true", "false", "false", "null"]),
        ("UTC", "t < '1970-01-01'", ["false", "true", "false", "null"]),
        ("UTC", "coalesce(day, '2000-01-01')", ["day 19782", "day -1", "day 0", "day 10957"]),
    ] {
        assert_eq!(values(&bed, zone, expression, false).await, expected, "{expression} in {zone}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn floats_are_the_same_in_batches_of_one_row() {
    let (bed, singly) = (Bed::new(), Bed::new());
    bed.write("rows.parquet", rows());
    singly.write_as("rows.parquet", rows(), Layout { row_group: 1, statistics: true });
    for (expression, expected) in [
        ("d / (n + 3)", ["12.345", "30.875", "-5.4210108624275225e-21", "null"]),
        ("n / 2", ["3.5", "-3.5", "-4.611686018427388e18", "null"]),
        ("small / 0", ["inf", "-inf", "NaN", "null"]),
        ("d / 10", ["12.345", "-12.35", "0.005", "null"]),
        ("f * 2", ["3.0", "NaN", "0.0", "null"]),
        ("abs(f)", ["1.5", "NaN", "0.0", "null"]),
        ("-single", ["-0.10000000149011612", "-1.0000000150474662e30", "2.0", "null"]),
        ("single + 0.5", ["0.6000000014901161", "1.0000000150474662e30", "-1.5", "null"]),
        ("cast(wide as float64)", ["1e38", "-1e38", "1.0", "null"]),
        ("cast(d as double precision)", ["123.45", "-123.5", "0.05", "null"]),
        ("1e-3", ["0.001", "0.001", "0.001", "0.001"]),
    ] {
        assert_eq!(values(&bed, "UTC", expression, true).await, expected, "{expression}");
        assert_eq!(values(&singly, "UTC", expression, true).await, expected, "{expression}, row by row");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_constant_counts_for_every_row() {
    let bed = Bed::new();
    let mut twice = rows();
    for (column, more) in twice.iter_mut().zip(rows()) {
        column.append(&more).unwrap();
    }
    bed.write("rows.parquet", twice);
    for (measure, expected) in [
        ("count(1)", "2e-0"),
        ("count('x')", "2e-0"),
        ("sum(1)", "2e-0"),
        ("sum(0.25)", "5e-1"),
        ("avg(3)", "3.0"),
        ("count(distinct 7)", "1e-0"),
        ("max('x')", "'x'"),
        ("sum(case when true then 2 end)", "4e-0"),
    ] {
        let made = bed.made(&pipeline("UTC", "id", measure, "true"), &[]).await;
        assert_eq!(made.column("p=0", "y"), [expected], "{measure}");
    }
    let none = bed.made(&pipeline("UTC", "id", "count(*)", "1 > 2"), &[]).await;
    assert_eq!(none.books(), [8, 0, 0, 8, 0]);
}
