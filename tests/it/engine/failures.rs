//! Sources that are not as they should be, rejected rows, and sums that do not fit.

use super::bed::{Bed, Layout};
use super::cells::{Cell, column};
use polars::prelude::{Column, DataType, NamedFrom, Series};
use refrain::run::{FailureClass, Scalar};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

fn pipeline(path: &str, columns: &str, more: &str, measure: &str) -> String {
    format!(
        r#"
name = "t"
{more}
[source]
format = "parquet"
path = "{path}"
[source.columns]
p = "string"
{columns}
[partition]
p = {{ value_of = "p" }}
[measures]
m = "{measure}"
"#
    )
}

fn plain(path: &str) -> String {
    pipeline(path, "x = \"int64\"", "", "sum(x)")
}

fn rows(parts: &[&str], values: &[i64]) -> Vec<Column> {
    vec![Series::new("p".into(), parts).into(), Series::new("x".into(), values).into()]
}

async fn fails(bed: &Bed, definition: &str, class: FailureClass, kind: &str, words: &[&str]) {
    let failed = bed.fails(definition, &["a"]).await;
    assert_eq!((failed.class, failed.kind.as_str()), (class, kind), "{failed:?}");
    for word in words {
        assert!(failed.detail.contains(word), "{word}: {}", failed.detail);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_cannot_be_read_are_named() {
    let bed = Bed::new();
    let source = FailureClass::Source;
    fails(&bed, &plain("none.parquet"), source, "source-missing", &["none.parquet"]).await;
    std::fs::create_dir(bed.path("folder.parquet")).unwrap();
    fails(
        &bed,
        &plain("folder.parquet"),
        source,
        "source-unreachable",
        &["folder.parquet", "it is a folder, expected a file"],
    )
    .await;
    std::fs::write(bed.path("empty.parquet"), "").unwrap();
    std::fs::write(bed.path("text.parquet"), "p,x\na,1\n").unwrap();
    let values: Vec<i64> = (0..3000).map(|n| n * 7919).collect();
    bed.write("good.parquet", rows(&vec!["a"; 3000], &values));
    let bytes = std::fs::read(bed.path("good.parquet")).unwrap();
    std::fs::write(bed.path("cut.parquet"), &bytes[..bytes.len() / 2]).unwrap();
    for name in ["empty.parquet", "text.parquet", "cut.parquet"] {
        fails(&bed, &plain(name), source, "source-unreadable", &[name, "expected a Parquet file"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_files_that_cannot_be_read_the_first_is_named() {
    let bed = Bed::new();
    std::fs::create_dir(bed.path("raw")).unwrap();
    for number in 0..50 {
        let name = format!("raw/{number:02}.parquet");
        match number {
            ..7 => bed.write(&name, rows(&["a"], &[1])),
            _ => std::fs::write(bed.path(&name), "text").unwrap(),
        }
    }
    for _ in 0..5 {
        fails(&bed, &plain("raw/*.parquet"), FailureClass::Source, "source-unreadable", &["raw/07.parquet"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_data_is_the_sources_failure_and_names_the_file() {
    let bed = Bed::new();
    let values: Vec<i64> = (0..3000).map(|n| n * 7919).collect();
    let layout = Layout { row_group: 3000, statistics: true };
    for name in ["good", "more", "worse"] {
        bed.write_as(&format!("raw/{name}.parquet"), rows(&vec!["a"; 3000], &values), layout);
    }
    let damaged = OpenOptions::new().write(true).open(bed.path("raw/more.parquet")).unwrap();
    let length = damaged.metadata().unwrap().len();
    damaged.write_all_at(&vec![0xA5; usize::try_from(length).unwrap() / 2], 4).unwrap();
    fails(&bed, &plain("raw/*.parquet"), FailureClass::Source, "source-unreadable", &["raw/more.parquet"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_contract_names_column_found_and_expected() {
    let bed = Bed::new();
    bed.write("rows.parquet", rows(&["a"], &[1]));
    for (columns, words) in [
        ("y = \"int64\"", &["rows.parquet", "column y", "not found", "expected int64", "p, x"][..]),
        ("x = \"string\"", &["rows.parquet", "column x", "found int64", "expected string"]),
        ("x = \"date\"", &["column x", "found int64", "expected date"]),
        ("x = \"datetime(UTC)\"", &["column x", "found int64", "expected datetime(UTC)"]),
        ("x = \"bool\"", &["column x", "found int64", "expected bool"]),
    ] {
        let definition = pipeline("rows.parquet", columns, "", "count(*)");
        fails(&bed, &definition, FailureClass::Compute, "contract-broken", words).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_without_rows_are_read_and_give_none() {
    let bed = Bed::new();
    bed.write("raw/zero.parquet", rows(&[], &[]));
    let made = bed.made(&plain("raw/*.parquet"), &["a"]).await;
    assert_eq!((made.books(), made.files.len()), ([0; 5], 0));
    let made = bed.made(&plain("raw/*.parquet"), &[]).await;
    assert!(made.report.partitions.is_empty());
    bed.write("raw/some.parquet", rows(&["a", "b"], &[1, 2]));
    let made = bed.made(&plain("raw/*.parquet"), &["a", "c"]).await;
    assert_eq!(made.books(), [2, 1, 1, 0, 0]);
    assert_eq!(made.rows("p=a"), [["1e-0"]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_rows_are_counted_by_partition_and_exactly() {
    let bed = Bed::new();
    // 29 of 100 rows of `a` do not fit an int8; all of `b` do.
    let parts: Vec<&str> = (0..200).map(|n| if n < 100 { "a" } else { "b" }).collect();
    let values: Vec<i64> = (0..200).map(|n| if n < 29 { 1000 } else { 1 }).collect();
    bed.write("rows.parquet", rows(&parts, &values));
    let allowing = |share: &str| pipeline("rows.parquet", "x = \"int8\"", &format!("max_rejected = {share}"), "sum(x)");
    let exactly = bed.made(&allowing("0.29"), &["a", "b"]).await;
    assert_eq!(exactly.books(), [200, 171, 0, 0, 29]);
    assert_eq!(exactly.report.warnings[0].kind, "rows-rejected");
    for named in [&["a"][..], &["a", "b"], &["a", "c"]] {
        let failed = bed.run(&allowing("0.28"), named).await.unwrap_err();
        assert_eq!((failed.class, failed.kind.as_str()), (FailureClass::Compute, "too-many-rejected"));
        assert!(failed.detail.starts_with("p=a: 29 of 100 rows (29.00 %)"), "{}", failed.detail);
    }
    let other = bed.made(&allowing("0"), &["b"]).await;
    assert_eq!(other.books(), [200, 100, 100, 0, 0], "rows of another partition are not looked at");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_without_a_partition_are_counted_by_file() {
    let bed = Bed::new();
    let part = |nowhere: usize| -> Vec<Cell> {
        (0..50).map(|n| if n < nowhere { Cell::Null } else { Cell::Text("ab"[n % 2..=n % 2].to_owned()) }).collect()
    };
    for (name, nowhere) in [("raw/1.parquet", 5), ("raw/2.parquet", 0)] {
        let numbers: Vec<Cell> = (0..50).map(|_| Cell::Exact(1, 0)).collect();
        bed.write(name, vec![column("p", &DataType::String, &part(nowhere)), column("x", &DataType::Int64, &numbers)]);
    }
    let allowing =
        |share: &str| pipeline("raw/*.parquet", "x = \"int64\"", &format!("max_rejected = {share}"), "sum(x)");
    for named in [&["a"][..], &["a", "b"], &["c"], &[]] {
        let failed = bed.run(&allowing("0.09"), named).await.unwrap_err();
        assert!(failed.detail.starts_with("raw/1.parquet: 5 of 50 rows (10.00 %)"), "{}", failed.detail);
        let made = bed.made(&allowing("0.1"), named).await;
        assert_eq!(made.books()[4], 5, "{named:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_null_where_none_may_be_costs_its_row() {
    let bed = Bed::new();
    let texts = ["a", "a", "b"].map(|text| Cell::Text(text.to_owned()));
    let numbers = [Cell::Null, Cell::Exact(2, 0), Cell::Null];
    bed.write("rows.parquet", vec![column("p", &DataType::String, &texts), column("x", &DataType::Int64, &numbers)]);
    let definition = pipeline("rows.parquet", "x = \"int64 not null\"", "max_rejected = 0.5", "sum(x)");
    let made = bed.made(&definition, &["a"]).await;
    assert_eq!(made.books(), [3, 1, 1, 0, 1]);
    assert_eq!(bed.fails(&definition, &["b"]).await.kind, "too-many-rejected");
}

#[tokio::test(flavor = "multi_thread")]
async fn sums_past_their_type_fail_and_name_the_measure() {
    let bed = Bed::new();
    let most = 10i128.pow(38) - 1;
    let decimal = |values: &[i128], scale: usize| {
        let cells: Vec<Cell> = values.iter().map(|v| Cell::Exact(*v, u8::try_from(scale).unwrap())).collect();
        column("x", &DataType::Decimal(38, scale), &cells)
    };
    let unsigned = |values: &[i128]| {
        let cells: Vec<Cell> = values.iter().map(|v| Cell::Exact(*v, 0)).collect();
        column("x", &DataType::UInt64, &cells)
    };
    let signed = |values: &[i64]| Column::from(Series::new("x".into(), values));
    let cases = [
        ("int64", signed(&[i64::MAX, 1]), "sum(x)", "9223372036854775808", "int64"),
        ("int64", signed(&[i64::MIN, -1]), "sum(x)", "-9223372036854775809", "int64"),
        ("uint64", unsigned(&[i128::from(u64::MAX), 1]), "sum(x)", "18446744073709551616", "uint64"),
        (
            "decimal(38,2)",
            decimal(&[most, 1], 2),
            "sum(x)",
            "1000000000000000000000000000000000000.00",
            "decimal(38,2)",
        ),
        ("decimal(38,0)", decimal(&[-most, -most], 0), "sum(x)", "more than 128 bits", "decimal(38,0)"),
        ("int64", signed(&[i64::MAX, 1]), "sum(x * x)", "", ""),
    ];
    for (contract, values, measure, found, expected) in cases {
        let definition = pipeline("rows.parquet", &format!("x = \"{contract}\""), "", measure);
        bed.write("rows.parquet", vec![Series::new("p".into(), ["a", "a"]).into(), values]);
        if found.is_empty() {
            let made = bed.made(&definition, &["a"]).await;
            assert_eq!(made.column("p=a", "m"), [format!("{}e-0", i128::from(i64::MAX).pow(2) + 1)]);
            continue;
        }
        let words = ["measures.m", found, expected];
        fails(&bed, &definition, FailureClass::Compute, "sum-overflow", &words).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sums_at_the_edge_of_their_type_are_exact() {
    let bed = Bed::new();
    let most = 10i128.pow(38) - 1;
    let values = [most, -most, most, -1, 1].map(|v| Cell::Exact(v, 5));
    bed.write(
        "rows.parquet",
        vec![Series::new("p".into(), ["a"; 5]).into(), column("x", &DataType::Decimal(38, 5), &values)],
    );
    let made = bed.made(&pipeline("rows.parquet", "x = \"decimal(38,5)\"", "", "sum(x)"), &["a"]).await;
    assert_eq!(made.column("p=a", "m"), [format!("{most}e-5")]);
    assert_eq!(made.files["p=a"].column("m").unwrap().dtype(), &DataType::Decimal(38, 5));
}

#[tokio::test(flavor = "multi_thread")]
async fn infinity_is_a_greatest_value_and_a_total() {
    let bed = Bed::new();
    let doubles = [f64::INFINITY, 1.0, f64::NAN, f64::NAN];
    bed.write(
        "rows.parquet",
        vec![Series::new("p".into(), ["a", "a", "a", "b"]).into(), Series::new("x".into(), doubles).into()],
    );
    let made = bed.made(&pipeline("rows.parquet", "x = \"float64\"", "", "max(x)"), &[]).await;
    let totals: Vec<_> = made.report.partitions.iter().map(|p| p.totals.0[0].value.clone()).collect();
    assert_eq!(totals, [Some(Scalar::Float(f64::INFINITY)), None]);
    assert_eq!((made.column("p=a", "m"), made.column("p=b", "m")), (vec!["inf".to_owned()], vec!["NaN".to_owned()]));
}
