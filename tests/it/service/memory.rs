//! Sources of twice the memory that the engine may have: tables of rows, and tables of groups.

use super::{Place, Store};
use polars::prelude::{DataFrame, NamedFrom, ParquetCompression, ParquetWriter, Series};
use serde_json::json;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

/// What the engine may have. Its process takes about 40 MB of it before it has read a row.
const MEMORY_MB: u64 = 256;
const FILES: u32 = 4;
const ROWS_OF_FILE: u64 = 1_200_000;
const DIFFERENT_ROWS: u64 = FILES as u64 * ROWS_OF_FILE / 2;

const SOURCE: &str = "[source]\nformat = \"csv\"\npath = \"raw/*.csv\"\n[source.columns]\nid = \"int64 not null\"\nat = \"datetime not null\"\n\
    note = \"string\"\namount = \"decimal(18,2)\"\n[partition]\nyear = { year_of = \"at\" }\n";

/// Every row is in two of the files, in an order that has nothing to do with that of the table.
fn write_rows(path: &Path, file: u32) {
    let mut out = BufWriter::new(File::create(path).unwrap());
    writeln!(out, "id,at,note,amount").unwrap();
    for row in 0..ROWS_OF_FILE {
        // The multiplier has no factor in common with the number of rows, so that each comes once in each half.
        let id = (u64::from(file) * ROWS_OF_FILE + row) * 7_919 % DIFFERENT_ROWS;
        let (day, hour) = (1 + id % 28, id / 28 % 24);
        let note = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        writeln!(
            out,
            "{id},2024-01-{day:02} {hour:02}:00:00,{note:016x} {note:020} of the made-up kind {note:024b},1.25"
        )
        .unwrap();
    }
    out.into_inner().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn sources_of_twice_the_memory_become_tables_of_rows_and_of_groups() {
    let place = Place::new(Store::Sqlite).await;
    fs::create_dir_all(place.path("raw")).unwrap();
    let mut bytes = 0;
    for file in 0..FILES {
        let path = place.path(&format!("raw/{file}.csv"));
        write_rows(&path, file);
        bytes += fs::metadata(&path).unwrap().len();
    }
    assert!(bytes > (2 * MEMORY_MB) << 20, "{bytes} bytes of sources");
    let kept = "[columns]\nid = \"id\"\nat = \"at\"\nnote = \"note\"\namount = \"amount\"\n";
    let dedupe = "dedupe = { key = [\"id\"], keep = \"last\", order_by = \"at\" }";
    place.pipeline("kept", &format!("name = \"kept\"\nsort_by = [\"at\", \"id\"]\n{dedupe}\n{SOURCE}{kept}"));
    let groups = "[dimensions]\nhour = { truncate = \"at\", to = \"hour\" }\n[measures]\nn = \"count(*)\"\n\
                  longest = \"max(note)\"\nrevenue = \"sum(amount)\"\n";
    place.pipeline("summed", &format!("name = \"summed\"\n{SOURCE}{groups}"));
    let memory = MEMORY_MB.to_string();
    let server = place.start_with(&["--workers", "1", "--engine-memory-mb", &memory], &[]).await;
    for (pipeline, rows) in [("kept", DIFFERENT_ROWS), ("summed", 28 * 24)] {
        let run = server.run(pipeline, &json!({"pipeline": pipeline, "partitions": ["2024"]})).await;
        assert_eq!(run["attempts"].as_array().unwrap().len(), 1, "{run:#}");
        assert_eq!(run["rows"]["read"], json!(u64::from(FILES) * ROWS_OF_FILE), "{run:#}");
        assert_eq!(server.partitions(pipeline).await["year=2024"]["rows"], json!(rows));
    }
    let totals = &server.partitions("summed").await["year=2024"]["totals"];
    assert_eq!((&totals["n"], &totals["revenue"]), (&json!(4_800_000), &json!("6000000.00")));
    crate::counted(format_args!("{} MB of sources in {MEMORY_MB} MB of memory", bytes >> 20));
}

/// Files whose row groups would not all fit, and one whose single row group does not fit by itself.
#[tokio::test(flavor = "multi_thread")]
async fn parquet_of_twice_the_memory_becomes_tables_of_rows_and_of_groups() {
    const ROWS: i64 = 200_000;
    let place = Place::new(Store::Sqlite).await;
    fs::create_dir_all(place.path("raw")).unwrap();
    let write = |name: &str, ids: std::ops::Range<i64>, group_rows: i64, compression: ParquetCompression| {
        let path = place.path(&format!("raw/{name}.parquet"));
        let group = usize::try_from(group_rows).unwrap();
        let writer = ParquetWriter::new(File::create(&path).unwrap()).with_compression(compression);
        let mut writer = writer.with_row_group_size(Some(group)).batched(wide_rows(0..1).schema()).unwrap();
        for first in ids.step_by(group) {
            writer.write_batch(&wide_rows(first..first + group_rows)).unwrap();
        }
        writer.finish().unwrap();
        fs::metadata(&path).unwrap().len()
    };
    let mut bytes = 0;
    for file in 0..i64::from(FILES) {
        let ids = file * ROWS..(file + 1) * ROWS;
        bytes += write(&format!("{file}"), ids, 10_000, ParquetCompression::Uncompressed);
    }
    assert!(bytes > (2 * MEMORY_MB) << 20, "{bytes} bytes of sources");
    let all = i64::from(FILES + 2) * ROWS;
    write("whole", i64::from(FILES) * ROWS..all, 2 * ROWS, ParquetCompression::Zstd(None));
    let source = "[source]\nformat = \"parquet\"\npath = \"raw/*.parquet\"\n[source.columns]\nid = \"int64 not null\"\n\
                  hour = \"int64\"\nhalf = \"int32\"\nnote = \"string\"\n[partition]\nhalf = { value_of = \"half\" }\n";
    let kept = "[columns]\nid = \"id\"\nnote = \"note\"\n[table]\nrow_group_rows = 16384\n";
    place.pipeline("kept", &format!("name = \"kept\"\nsort_by = [\"id\"]\n{source}{kept}"));
    let groups = "[dimensions]\nhour = \"hour\"\n[measures]\nn = \"count(*)\"\nlongest = \"max(note)\"\n";
    place.pipeline("summed", &format!("name = \"summed\"\n{source}{groups}"));
    let memory = MEMORY_MB.to_string();
    let server = place.start_with(&["--workers", "1", "--engine-memory-mb", &memory], &[]).await;
    for (pipeline, rows) in [("summed", 24), ("kept", all / 2)] {
        let run = server.run(pipeline, &json!({"pipeline": pipeline, "partitions": ["1"]})).await;
        assert_eq!(run["attempts"].as_array().unwrap().len(), 1, "{run:#}");
        assert_eq!(run["rows"]["read"], json!(all), "{run:#}");
        assert_eq!(server.partitions(pipeline).await["half=1"]["rows"], json!(rows));
    }
    assert_eq!(server.partitions("summed").await["half=1"]["totals"]["n"], json!(all / 2));
    crate::counted(format_args!("{} MB of Parquet in {MEMORY_MB} MB of memory", bytes >> 20));
}

/// Rows of some 700 bytes.
fn wide_rows(ids: std::ops::Range<i64>) -> DataFrame {
    let note = |id: i64| format!("{:016x}", id.unsigned_abs().wrapping_mul(0x9e37_79b9_7f4a_7c15)).repeat(44);
    let ids: Vec<i64> = ids.collect();
    let columns = [
        Series::new("hour".into(), ids.iter().map(|id| id / 2 % 24).collect::<Vec<_>>()),
        Series::new("half".into(), ids.iter().map(|id| i32::from(id % 2 == 1)).collect::<Vec<_>>()),
        Series::new("note".into(), ids.iter().map(|id| note(*id)).collect::<Vec<_>>()),
        Series::new("id".into(), ids.clone()),
    ];
    DataFrame::new(ids.len(), columns.map(Into::into).to_vec()).unwrap()
}

/// What was written where there was more memory is read where there is less.
#[tokio::test(flavor = "multi_thread")]
async fn a_merge_into_a_row_group_that_does_not_fit_the_memory() {
    const ROWS: usize = 180_000;
    let place = Place::new(Store::Sqlite).await;
    fs::create_dir_all(place.path("raw")).unwrap();
    let write = |rows: usize, text: &str| {
        let mut out = BufWriter::new(File::create(place.path("raw/notes.csv")).unwrap());
        writeln!(out, "id,month,note").unwrap();
        for row in 0..rows {
            let noise = (row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            writeln!(out, "{row},1,{text}{}", format!("{noise:016x}").repeat(100)).unwrap();
        }
        out.into_inner().unwrap();
    };
    let pipeline = "name = \"notes\"\nwrite = \"merge\"\nkey = \"id\"\n[source]\nformat = \"csv\"\npath = \"raw/notes.csv\"\n[source.columns]\n\
                    id = \"int64\"\nmonth = \"int32\"\nnote = \"string\"\n[partition]\nmonth = { value_of = \"month\" }\n[columns]\nid = \"id\"\n\
                    note = \"note\"\n[table]\nrow_group_rows = ";
    let body = json!({"pipeline": "notes", "partitions": ["1"]});
    write(ROWS, "");
    place.pipeline("notes", &format!("{pipeline}262144\n"));
    let server = place.start_with(&["--workers", "1"], &[]).await;
    server.run("all", &body).await;
    assert!(server.stop().await.success());
    write(3, "new ");
    place.pipeline("notes", &format!("{pipeline}4096\n"));
    let memory = MEMORY_MB.to_string();
    let server = place.start_with(&["--workers", "1", "--engine-memory-mb", &memory], &[]).await;
    let run = server.run("few", &body).await;
    assert_eq!(
        (&run["partitions"][0]["rows"], &run["partitions"][0]["source_rows"]),
        (&json!(ROWS), &json!(3)),
        "{run:#}"
    );
}

/// What is kept for people never decides whether a run can be computed.
#[tokio::test(flavor = "multi_thread")]
async fn wide_rows_that_are_kept_apart_fit_the_memory_too() {
    const COLUMNS: usize = 40;
    const ROWS: usize = 6_000;
    let place = Place::new(Store::Sqlite).await;
    fs::create_dir_all(place.path("raw")).unwrap();
    let names: Vec<String> = (0..COLUMNS).map(|at| format!("c{at}")).collect();
    let mut out = BufWriter::new(File::create(place.path("raw/wide.csv")).unwrap());
    writeln!(out, "id,month,{}", names.join(",")).unwrap();
    for row in 0..ROWS {
        let bad = if row % 2 == 0 { "x" } else { "" };
        let values = vec![format!("{row:0900}"); COLUMNS].join(",");
        writeln!(out, "{row}{bad},1,{values}").unwrap();
    }
    out.into_inner().unwrap();
    let contract: String = names.iter().map(|name| format!("{name} = \"string\"\n")).collect();
    let pipeline = "name = \"wide\"\nmax_rejected = 1.0\n[source]\nformat = \"csv\"\npath = \"raw/wide.csv\"\n[source.columns]\nid = \"int64\"\n\
                    month = \"int32\"\n";
    let table = "[partition]\nmonth = { value_of = \"month\" }\n[measures]\nn = \"count(id)\"\n";
    place.pipeline("wide", &format!("{pipeline}{contract}{table}"));
    let memory = MEMORY_MB.to_string();
    let server = place.start_with(&["--workers", "1", "--engine-memory-mb", &memory], &[]).await;
    let run = server.run("wide", &json!({"pipeline": "wide", "partitions": ["1"]})).await;
    assert_eq!(run["rows"]["rejected"], json!(ROWS / 2), "{run:#}");
    let kept = &run["quarantine"];
    assert_eq!((&kept["of"], &kept["capped"]), (&json!(ROWS / 2), &json!(true)), "{kept:#}");
    assert!(kept["rows"].as_u64() > Some(500), "{kept:#}");
}
