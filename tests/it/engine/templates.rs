//! Templates: whose source a file is, rows next door, and what `full` makes.

use super::bed::Bed;
use chrono::NaiveDateTime;
use polars::prelude::{Column, DataType, NamedFrom, Series, TimeUnit};

pub(super) fn file(times: &[&str]) -> Vec<Column> {
    let micros: Vec<i64> =
        times.iter().map(|text| text.parse::<NaiveDateTime>().unwrap().and_utc().timestamp_micros()).collect();
    vec![Series::new("at".into(), micros).cast(&DataType::Datetime(TimeUnit::Microseconds, None)).unwrap().into()]
}

pub(super) fn pipeline(path: &str, neighbours: u32, partition: &str) -> String {
    format!(
        r#"
name = "t"
[source]
format = "parquet"
path = {path}
neighbours = {neighbours}
[source.columns]
at = "datetime"
[partition]
p = {{ {partition} = "at" }}
[measures]
n = "count(*)"
"#
    )
}

pub(super) const DAILY: &str = "\"raw/%Y-%m-%d.parquet\"";

/// A file for each day around February's end. In each: two rows of its own day, one of the day before, one of two days
/// before.
fn write_days(bed: &Bed) {
    for day in ["2024-02-27", "2024-02-28", "2024-02-29", "2024-03-01", "2024-03-02", "2024-03-03"] {
        let date: chrono::NaiveDate = day.parse().unwrap();
        let [one, two] = [1, 2].map(|days| format!("{}T12:00:00", date - chrono::Days::new(days)));
        let own = [format!("{day}T00:00:00"), format!("{day}T23:59:59.999999")];
        bed.write(&format!("raw/{day}.parquet"), file(&[&own[0], &own[1], &one, &two]));
    }
}

fn warnings(made: &super::bed::Made) -> Vec<String> {
    made.report.warnings.iter().map(|w| format!("{}: {}", w.kind, w.detail)).collect()
}

fn counts(made: &super::bed::Made) -> Vec<(String, u64)> {
    made.report.partitions.iter().map(|p| (p.partition.to_string(), p.source_rows)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn neighbours_take_in_the_rows_of_so_many_files_next_door() {
    let bed = Bed::new();
    write_days(&bed);
    // Of 2024-02-29: two in its own file, one in the next, one in the one after.
    for (neighbours, rows, read) in [(0, 2, 4), (1, 3, 12), (2, 4, 20)] {
        let made = bed.made(&pipeline(DAILY, neighbours, "day_of"), &["2024-02-29"]).await;
        assert_eq!(counts(&made), [("p=2024-02-29".to_owned(), rows)]);
        assert_eq!(made.books(), [read, rows, read - rows, 0, 0], "{neighbours}");
    }
    let own = bed.made(&pipeline(DAILY, 0, "day_of"), &["2024-02-29"]).await;
    let [warning] = &warnings(&own)[..] else { panic!("{:?}", own.report.warnings) };
    // In the one file read, the row of the day before is next door to its partition; that of two days before is not.
    assert!(warning.starts_with("strays-next-door: 1 rows"), "{warning}");
    assert!(warning.contains("(1 of p=2024-02-28)") && warning.contains("source.neighbours = 1"), "{warning}");
    let one = bed.made(&pipeline(DAILY, 1, "day_of"), &["2024-02-29"]).await;
    let [warning] = &warnings(&one)[..] else { panic!("{:?}", one.report.warnings) };
    // Files 28, 29 and 1: each has one row of two days before its own.
    assert!(warning.starts_with("strays-next-door: 3 rows"), "{warning}");
    assert!(warning.contains("1 of p=2024-02-26, 1 of p=2024-02-27, 1 of p=2024-02-28"), "{warning}");
    let wide = bed.made(&pipeline(DAILY, 2, "day_of"), &["2024-02-29"]).await;
    assert_eq!(warnings(&wide), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_counts_only_where_its_file_is_a_source_of_its_partition() {
    let bed = Bed::new();
    write_days(&bed);
    let both = bed.made(&pipeline(DAILY, 0, "day_of"), &["2024-02-29", "2024-03-01"]).await;
    // The file of March has a row of the 29th, which is named too, and stays out.
    assert_eq!(counts(&both), [("p=2024-02-29".to_owned(), 2), ("p=2024-03-01".to_owned(), 2)]);
    assert_eq!(both.report.rows.out_of_scope_by_partition["p=2024-02-29"], 1);
    for day in ["2024-02-29", "2024-03-01"] {
        let alone = bed.made(&pipeline(DAILY, 0, "day_of"), &[day]).await;
        let key = format!("p={day}");
        assert_eq!(alone.digests()[&key], both.digests()[&key]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_month_over_daily_files_needs_each_of_its_days() {
    let bed = Bed::new();
    write_days(&bed);
    let failed = bed.fails(&pipeline(DAILY, 0, "month_of"), &["2024-02"]).await;
    assert_eq!(failed.kind, "source-missing");
    assert!(
        failed.detail.contains("raw/2024-02-01.parquet") && failed.detail.contains("and 23 more"),
        "{}",
        failed.detail
    );
    let failed = bed.fails(&pipeline(DAILY, 0, "month_of"), &[]).await;
    assert!(failed.detail.contains("raw/2024-02-01.parquet does not exist"), "{}", failed.detail);
    for day in 1..=26 {
        bed.write(&format!("raw/2024-02-{day:02}.parquet"), file(&[&format!("2024-02-{day:02}T01:00:00")]));
    }
    let made = bed.made(&pipeline(DAILY, 0, "month_of"), &["2024-02"]).await;
    // 26 and three times two of their own day; the 28th and 29th bring two late ones each, the 27th too.
    assert_eq!(counts(&made), [("p=2024-02".to_owned(), 26 + 3 * 4)]);
    let near = bed.made(&pipeline(DAILY, 1, "month_of"), &["2024-02"]).await;
    assert_eq!(counts(&near), [("p=2024-02".to_owned(), 26 + 3 * 4 + 2)], "March 1st has two rows of February");
}

#[tokio::test(flavor = "multi_thread")]
async fn full_makes_what_has_its_own_files() {
    let bed = Bed::new();
    write_days(&bed);
    let days = ["2024-02-27", "2024-02-28", "2024-02-29", "2024-03-01", "2024-03-02", "2024-03-03"];
    for neighbours in 0..3u64 {
        let full = bed.made(&pipeline(DAILY, u32::try_from(neighbours).unwrap(), "day_of"), &[]).await;
        let made: Vec<String> = full.report.partitions.iter().map(|p| p.partition.to_string()).collect();
        assert_eq!(made, days.map(|day| format!("p={day}")));
        // The last two days have fewer files after them.
        let rows: Vec<u64> = full.report.partitions.iter().map(|p| p.source_rows).collect();
        let expected: Vec<u64> = (0..6).map(|at| 2 + neighbours.min(5 - at)).collect();
        assert_eq!(rows, expected);
        let named = bed.made(&pipeline(DAILY, u32::try_from(neighbours).unwrap(), "day_of"), &days).await;
        assert_eq!(full.digests(), named.digests());
    }
}

/// No setting takes in a row of a day that has no file, so no warning says that one would.
#[tokio::test(flavor = "multi_thread")]
async fn full_warns_of_strays_that_a_setting_takes_in_alone() {
    let bed = Bed::new();
    bed.write("raw/2024-02-28.parquet", file(&["2024-02-28T03:00:00", "2024-02-27T03:00:00"]));
    let without = bed.made(&pipeline(DAILY, 0, "day_of"), &[]).await;
    assert_eq!((without.books(), warnings(&without).len()), ([2, 1, 1, 0, 0], 0));
    bed.write("raw/2024-02-27.parquet", file(&["2024-02-27T04:00:00"]));
    let with = bed.made(&pipeline(DAILY, 0, "day_of"), &[]).await;
    assert_eq!((with.books(), warnings(&with).len()), ([3, 2, 1, 0, 0], 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn hourly_files_serve_hours_days_and_months() {
    let bed = Bed::new();
    for hour in 0..24 {
        let own = format!("2024-02-29T{hour:02}:30:00");
        let late = format!("2024-02-29T{:02}:59:00", (hour + 23) % 24);
        bed.write(&format!("raw/2024/02/29/{hour}.parquet"), file(&[&own, &late]));
    }
    let hourly = "\"raw/%Y/%m/%d/%-H.parquet\"";
    let hour = bed.made(&pipeline(hourly, 0, "hour_of"), &["2024-02-29T05"]).await;
    assert_eq!((hour.books(), warnings(&hour).len()), ([2, 1, 1, 0, 0], 1));
    let near = bed.made(&pipeline(hourly, 1, "hour_of"), &["2024-02-29T05"]).await;
    assert_eq!(counts(&near), [("p=2024-02-29T05".to_owned(), 2)]);
    let day = bed.made(&pipeline(hourly, 0, "day_of"), &["2024-02-29"]).await;
    assert_eq!(counts(&day), [("p=2024-02-29".to_owned(), 48)]);
    let month = bed.fails(&pipeline(hourly, 0, "month_of"), &["2024-02"]).await;
    assert!(month.detail.contains("raw/2024/02/01/0.parquet"), "{}", month.detail);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_glob_beside_a_template_serves_every_partition() {
    let bed = Bed::new();
    write_days(&bed);
    bed.write("late/1.parquet", file(&["2024-02-29T03:00:00", "2024-03-01T03:00:00", "2023-01-01T03:00:00"]));
    let both = format!("[{DAILY}, \"late/*.parquet\"]");
    let named = bed.made(&pipeline(&both, 0, "day_of"), &["2024-02-29", "2024-03-01"]).await;
    assert_eq!(counts(&named), [("p=2024-02-29".to_owned(), 3), ("p=2024-03-01".to_owned(), 3)]);
    let full = bed.made(&pipeline(&both, 0, "day_of"), &[]).await;
    assert!(!full.files.contains_key("p=2023-01-01"), "without an own file it is not made");
    assert_eq!(full.digests()["p=2024-02-29"], named.digests()["p=2024-02-29"]);
    // A file that both name serves every partition.
    let all = bed.made(&pipeline(&format!("[{DAILY}, \"raw/*.parquet\"]"), 0, "day_of"), &["2024-02-29"]).await;
    assert_eq!(counts(&all), [("p=2024-02-29".to_owned(), 4)]);
}
