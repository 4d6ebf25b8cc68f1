//! Integers are grouped in a way of their own. It gives what the general way gives, which a definition takes as soon as it has a
//! `count(distinct …)`.

use super::bed::{Bed, Layout, Made};
use super::cells::{Cell, Dice};
use super::random::{case, check_all};
use super::same_bytes::{columns, digests, rows, with_threads};
use chrono_tz::Tz;
use polars::prelude::Column;
use refrain::pipeline::{self, DataType};
use refrain::run::RunError;
use std::collections::BTreeSet;

/// A type whose values are integers of up to 64 bits inside.
fn integers(dice: &mut Dice) -> DataType {
    let types = [
        DataType::Bool,
        DataType::Int(8),
        DataType::Int(16),
        DataType::Int(32),
        DataType::Int(64),
        DataType::UInt(8),
        DataType::UInt(16),
        DataType::UInt(32),
        DataType::Decimal { precision: 5, scale: 2 },
        DataType::Decimal { precision: 18, scale: 2 },
        DataType::Date,
        DataType::Datetime(None),
        DataType::Datetime(Some(*dice.pick(&[Tz::UTC, Tz::Europe__Berlin]))),
    ];
    dice.pick(&types).clone()
}

/// Holds what came of a definition against what came of it with one more measure at the end.
fn assert_same(narrow: Result<Made, RunError>, general: Result<Made, RunError>, what: &str) {
    let (narrow, general) = match (narrow, general) {
        (Ok(narrow), Ok(general)) => (narrow, general),
        (Err(narrow), Err(general)) => return assert_eq!(narrow.kind, general.kind, "{what}"),
        (narrow, general) => panic!("{what}\n{:?}\n{:?}", narrow.map(|m| m.report), general.map(|m| m.report)),
    };
    assert_eq!(format!("{:?}", narrow.report.rows), format!("{:?}", general.report.rows), "{what}");
    assert_eq!(format!("{:?}", narrow.report.warnings), format!("{:?}", general.report.warnings), "{what}");
    assert_eq!(narrow.report.partitions.len(), general.report.partitions.len(), "{what}");
    for (narrow, general) in narrow.report.partitions.iter().zip(&general.report.partitions) {
        let counts = |p: &refrain::run::StagedPartition| (p.partition.clone(), p.rows, p.source_rows);
        assert_eq!(counts(narrow), counts(general), "{what}");
        let totals = general.totals.0.iter().take(narrow.totals.0.len());
        assert!(totals.eq(narrow.totals.0.iter()), "{:?}\n{:?}\n{what}", narrow.totals, general.totals);
    }
    for (partition, narrow) in &narrow.files {
        let general = &general.files[partition];
        assert_eq!(narrow.width() + 1, general.width(), "{partition} of {what}");
        for (narrow, general) in narrow.columns().iter().zip(general.columns()) {
            let name = |column: &Column| (column.name().clone(), column.dtype().clone());
            assert_eq!(name(narrow), name(general), "{partition} of {what}");
            assert!(narrow.equals_missing(general), "{partition} of {what}\n{narrow:?}\n{general:?}");
        }
    }
}

/// Made-up pipelines over integers; answers how many of them are accepted.
async fn both_ways(seeds: std::ops::Range<u64>) -> usize {
    let mut accepted = 0;
    for seed in seeds {
        let mut dice = Dice(seed);
        let mut case = case(&mut dice, integers);
        case.measures.retain(|(function, _)| *function != "distinct");
        let narrow = case.toml();
        case.measures.push(("distinct", 0));
        let general = case.toml();
        if pipeline::parse(&narrow, "test").is_err() {
            continue;
        }
        accepted += 1;
        let bed = Bed::new();
        case.write(&bed, &mut dice);
        let named: BTreeSet<String> = case.partitions().into_iter().filter(|_| !dice.one_in(3)).collect();
        let named: Vec<&str> = if dice.one_in(4) { Vec::new() } else { named.iter().map(String::as_str).collect() };
        let (narrow, general) = (bed.run(&narrow, &named).await, bed.run(&general, &named).await);
        assert_same(narrow, general, &format!("seed {seed}\n{}", case.toml()));
    }
    accepted
}

#[tokio::test(flavor = "multi_thread")]
async fn integers_are_grouped_as_everything_is() {
    let accepted = both_ways(3000..3040).await;
    assert!(accepted > 25, "{accepted}");
}

#[tokio::test(flavor = "multi_thread")]
async fn made_up_pipelines_over_integers_come_out_as_row_by_row() {
    check_all(2000..2030, integers).await;
}

fn many(more: &str) -> String {
    format!(
        r#"
name = "t"
max_rejected = 1
[source]
format = "parquet"
path = "many/*.parquet"
[source.columns]
at = "datetime"
zone = "int32"
amount = "decimal(6,2)"
tag = "string not null"
[partition]
day = {{ day_of = "at" }}
[dimensions]
zone = "zone"
minute = {{ truncate = "at", to = "minute" }}
cheap = "amount < 10"
[measures]
rows = "count(*)"
revenue = "sum(amount)"
mean = "avg(amount)"
least = "min(amount)"
last = "max(at)"
zones = "count(zone)"
{more}
[where]
sql = "amount > -900 or zone is null"
"#
    )
}

/// Far more groups than a table begins with, in many batches of rows that are rejected, filtered, out of scope and in it.
#[tokio::test(flavor = "multi_thread")]
async fn many_groups_of_many_batches_are_the_same() {
    let bed = Bed::new();
    let mut rows = rows(60_000);
    rows.iter_mut().step_by(37).for_each(|row| row[2] = Cell::Exact(100_000_000, 2));
    for (number, part) in rows.chunks(23_000).enumerate() {
        let layout = Layout { row_group: 1_500 + 700 * number, statistics: number != 1 };
        bed.write_as(&format!("many/{number}.parquet"), columns(part, number == 2), layout);
    }
    for named in [&["2024-02-29", "2024-03-01"][..], &[]] {
        let narrow = bed.run(&many(""), named).await;
        let made = narrow.as_ref().unwrap();
        assert!(made.report.partitions.iter().map(|p| p.rows).sum::<u64>() > 20_000, "{:?}", made.report);
        let [_, in_scope, out_of_scope, filtered, rejected] = made.books();
        assert!(in_scope > 0 && filtered > 0 && rejected > 0 && (out_of_scope > 0) != named.is_empty(), "{made:?}");
        let general = bed.run(&many("tags = \"count(distinct tag)\""), named).await;
        assert_same(narrow, general, &format!("{named:?}"));
    }
}

#[test]
fn threads_and_chunks_make_no_difference() {
    let bed = Bed::new();
    let rows = rows(20_000);
    for (number, part) in rows.chunks(6_100).enumerate() {
        let layout = Layout { row_group: 300 + 211 * number, statistics: true };
        bed.write_as(&format!("many/{number}.parquet"), columns(part, false), layout);
    }
    let expected = digests(&bed, &bed.engine, &many(""), &[]);
    bed.write_as("many/0.parquet", columns(&rows, false), Layout { row_group: 50_000, statistics: true });
    for number in 1..4 {
        std::fs::remove_file(bed.path(&format!("many/{number}.parquet"))).unwrap();
    }
    for threads in [1, 2, 7] {
        assert_eq!(digests(&bed, &with_threads(&bed, threads), &many(""), &[]), expected, "{threads} threads");
    }
}
