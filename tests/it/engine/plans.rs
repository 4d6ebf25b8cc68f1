//! Integers are grouped in a way of their own. It gives what the general way gives, which a definition takes as soon as it has a
//! `count(distinct …)`.

use super::bed::{Bed, Layout, Made};
use super::cells::{Cell, Dice, column};
use super::random::{case, check_all};
use super::same_bytes::{columns, digests, rows, with_threads};
use chrono_tz::Tz;
use polars::prelude::{Column, DataType as Physical, ParquetReader, SerReader, TimeUnit};
use refrain::engine::Job;
use refrain::pipeline::{self, DataType};
use refrain::run::RunError;
use std::collections::BTreeSet;
use std::fs::File;

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

/// Overwrites a column of a row group of a file, so that it cannot be read.
fn damage(bed: &Bed, file: &str, row_group: usize, column: usize) {
    let mut reader = ParquetReader::new(File::open(bed.path(file)).unwrap());
    let metadata = reader.get_metadata().unwrap().clone();
    let range = metadata.row_groups[row_group].parquet_columns()[column].byte_range();
    let mut bytes = std::fs::read(bed.path(file)).unwrap();
    bytes[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()].fill(0xAB);
    std::fs::write(bed.path(file), bytes).unwrap();
}

#[tokio::test]
async fn of_row_groups_that_turn_out_to_have_no_row_in_scope_only_the_partition_values_are_read() {
    const GROUP: usize = 1 << 16;
    const DAY: i64 = 86_400_000_000;
    let of_day =
        |days_after: i64, row: usize| 1_709_164_800_000_000 + days_after * DAY + i64::try_from(row).unwrap() * 1000;
    // Of 2024-02-29, the first: none, the second: the even rows, the third: all. A row of 2002 and one of March in each of the first
    // two, so that statistics say nothing; and one without a time.
    let time = |row: usize| match (row / GROUP, row % GROUP) {
        (0 | 1, 0) => Cell::Time(of_day(-8000, 0)),
        (0 | 1, 1) | (0, _) => Cell::Time(of_day(1, row)),
        (1, place) if place % 2 == 1 => Cell::Time(of_day(2, 5)),
        (_, _) => Cell::Time(of_day(0, row - 2 * (row / 2 % 2))),
    };
    let rows = 3 * GROUP;
    let times: Vec<Cell> = (0..rows).map(time).collect();
    let cents: Vec<Cell> = (0..rows).map(|row| Cell::Exact(i128::try_from(row).unwrap(), 2)).collect();
    let bed = Bed::new();
    let columns = vec![
        column("at", &Physical::Datetime(TimeUnit::Microseconds, None), &times),
        column("amount", &Physical::Decimal(18, 2), &cents),
    ];
    bed.write_as("a.parquet", columns, Layout { row_group: GROUP, statistics: true });
    let texts = "[dimensions]\nhour = { truncate = \"at\", to = \"hour\" }\n[measures]\nrows = \"count(*)\"\nsum = \"sum(amount)\"\n";
    let narrow = format!(
        "name = \"t\"\n[source]\nformat = \"parquet\"\npath = \"a.parquet\"\n[source.columns]\nat = \"datetime\"\n\
         amount = \"decimal(18,2)\"\n[partition]\nday = {{ day_of = \"at\" }}\n{texts}"
    );
    let general = format!("{narrow}amounts = \"count(distinct amount)\"\n");
    let run = async |definition: &str| {
        let job = Job { read_bytes: None, ..bed.job_over(definition, &["2024-02-29"]) };
        Bed::compute(&bed.engine, job).await.map(|(made, _)| made)
    };
    let (before, of_general) = (run(&narrow).await.unwrap(), run(&general).await.unwrap());
    let in_scope = (GROUP + GROUP / 2 - 1) as u64;
    assert_eq!(before.books(), [rows as u64, in_scope, rows as u64 - in_scope, 0, 0]);
    assert_eq!(before.books(), of_general.books());

    damage(&bed, "a.parquet", 0, 1);
    let (after, general_after) = (run(&narrow).await.unwrap(), run(&general).await.unwrap());
    assert_eq!((after.digests(), after.books()), (before.digests(), before.books()));
    assert_eq!((general_after.digests(), general_after.books()), (of_general.digests(), of_general.books()));
    assert_eq!(format!("{:?}", after.report.warnings), format!("{:?}", before.report.warnings));
    // The times of it are read, and of the others all.
    damage(&bed, "a.parquet", 1, 1);
    assert_eq!(run(&narrow).await.unwrap_err().kind, "source-unreadable");
}
