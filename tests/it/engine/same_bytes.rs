//! Promise 4, and 2: the same bytes whatever the threads, the files, their row groups and types, and what else is named.

use super::bed::{Bed, Layout};
use super::cells::{Cell, Dice, column};
use polars::prelude::{Column, DataType, TimeUnit};
use refrain::engine::ChildEngine;
use std::collections::BTreeMap;
use std::process::Command;

const DAYS: [&str; 4] = ["2024-02-28", "2024-02-29", "2024-03-01", "2024-03-02"];

fn pipeline(paths: &str) -> String {
    format!(
        r#"
name = "t"
[source]
format = "parquet"
path = {paths}
[source.columns]
at = "datetime"
zone = "int32"
amount = "decimal(18,2)"
tag = "string"
weight = "float64"
[partition]
day = {{ day_of = "at" }}
[dimensions]
zone = "zone"
hour = {{ truncate = "at", to = "hour" }}
[measures]
rows = "count(*)"
revenue = "sum(amount)"
mean = "avg(amount)"
tags = "count(distinct tag)"
last = "max(tag)"
lightest = "min(weight)"
heaviest = "max(weight)"
"#
    )
}

/// Rows of four days, in cells of the contract's own types.
pub(super) fn rows(count: usize) -> Vec<[Cell; 5]> {
    let mut dice = Dice(11);
    let weights = [0.0, -0.0, f64::NAN, 1.5, -2.25];
    let row = |dice: &mut Dice| {
        let at = 1_709_078_400_000_000 + i64::try_from(dice.below(4 * 86_400)).unwrap() * 1_000_000;
        [
            Cell::Time(at),
            if dice.one_in(20) { Cell::Null } else { Cell::Exact(dice.around(3), 0) },
            Cell::Exact(dice.around(100_000), 2),
            Cell::Text(format!("tag {}", dice.below(40))),
            if dice.one_in(3) { Cell::Null } else { Cell::Float(*dice.pick(&weights)) },
        ]
    };
    (0..count).map(|_| row(&mut dice)).collect()
}

/// The rows as columns of a file; `narrow` is another choice of physical types.
pub(super) fn columns(rows: &[[Cell; 5]], narrow: bool) -> Vec<Column> {
    let at =
        |place: usize, change: fn(&Cell) -> Cell| -> Vec<Cell> { rows.iter().map(|row| change(&row[place])).collect() };
    let millis = |cell: &Cell| if let Cell::Time(v) = cell { Cell::Time(v / 1000) } else { Cell::Null };
    let dollars = |cell: &Cell| if let Cell::Exact(v, _) = cell { Cell::Float(*v as f64 / 100.0) } else { Cell::Null };
    let (time, zone, amount, weight) = match narrow {
        true => (TimeUnit::Milliseconds, DataType::Int8, DataType::Float64, DataType::Float32),
        false => (TimeUnit::Microseconds, DataType::Int64, DataType::Decimal(18, 2), DataType::Float64),
    };
    vec![
        column("at", &DataType::Datetime(time, None), &at(0, if narrow { millis } else { Cell::clone })),
        column("zone", &zone, &at(1, Cell::clone)),
        column("amount", &amount, &at(2, if narrow { dollars } else { Cell::clone })),
        column("tag", &DataType::String, &at(3, Cell::clone)),
        column("weight", &weight, &at(4, Cell::clone)),
    ]
}

pub(super) fn digests(bed: &Bed, engine: &ChildEngine, definition: &str, named: &[&str]) -> BTreeMap<String, String> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let made = runtime.block_on(bed.run_with(engine, definition, named));
    made.unwrap_or_else(|e| panic!("{e:?}")).digests()
}

/// The engine's binary behind a script that sets the count of its threads.
pub(super) fn with_threads(bed: &Bed, threads: u32) -> ChildEngine {
    let script = bed.path(&format!("threads-{threads}"));
    let text = format!("#!/bin/sh\nPOLARS_MAX_THREADS={threads} exec '{}' \"$@\"\n", env!("CARGO_BIN_EXE_refrain"));
    // Written by another process, so that no fork of this one holds it open for writing when it is started.
    let wrote =
        Command::new("sh").args(["-c", "printf %s \"$1\" > \"$0\" && chmod +x \"$0\""]).arg(&script).arg(text).status();
    assert!(wrote.unwrap().success());
    ChildEngine { program: script, memory_mb: None }
}

#[test]
fn threads_files_groups_types_and_company_make_no_difference() {
    let rows = rows(20_000);
    let bed = Bed::new();
    bed.write_as("one/all.parquet", columns(&rows, false), Layout { row_group: 50_000, statistics: true });
    let mut sorted = rows.clone();
    sorted.sort_by_key(|row| if let Cell::Time(at) = row[0] { at } else { 0 });
    for (number, part) in sorted.chunks(3_100).enumerate() {
        let layout = Layout { row_group: 300 + 211 * number, statistics: number % 2 == 0 };
        bed.write_as(&format!("many/{number}.parquet"), columns(part, number % 3 == 1), layout);
    }
    let mut backwards = rows;
    backwards.reverse();
    let (first, second) = backwards.split_at(7_777);
    bed.write_as("two/a.parquet", columns(first, true), Layout { row_group: 1000, statistics: false });
    bed.write_as("two/b.parquet", columns(second, false), Layout { row_group: 4096, statistics: true });

    let expected = digests(&bed, &bed.engine, &pipeline("\"one/*.parquet\""), &DAYS);
    assert_eq!(expected.len(), 4);
    for threads in [1, 2, 7] {
        let engine = with_threads(&bed, threads);
        for paths in [
            "\"one/*.parquet\"",
            "\"many/*.parquet\"",
            "[\"two/a.parquet\", \"two/b.parquet\"]",
            "[\"two/b.parquet\", \"two/a.parquet\"]",
        ] {
            assert_eq!(digests(&bed, &engine, &pipeline(paths), &DAYS), expected, "{threads} threads, {paths}");
        }
        assert_eq!(digests(&bed, &engine, &pipeline("\"many/*.parquet\""), &[]), expected, "full, {threads} threads");
    }
    for named in [&DAYS[..1], &DAYS[1..2], &DAYS[2..], &[DAYS[3], DAYS[0]], &DAYS[1..3]] {
        for path in ["\"one/*.parquet\"", "\"many/*.parquet\""] {
            let mut some = expected.clone();
            some.retain(|key, _| named.iter().any(|day| key.ends_with(day)));
            assert_eq!(digests(&bed, &bed.engine, &pipeline(path), named), some, "{named:?} of {path}");
        }
    }
}

#[test]
fn folders_named_like_partitions_are_no_columns() {
    let bed = Bed::new();
    let rows = rows(50);
    bed.write("raw/zone=99/tag=x%3A/all.parquet", columns(&rows, false));
    bed.write("plain/all.parquet", columns(&rows, false));
    let [hive, plain] = ["\"raw/**/*.parquet\"", "\"plain/all.parquet\""]
        .map(|path| digests(&bed, &bed.engine, &pipeline(path), &DAYS));
    assert_eq!(hive, plain);
}
