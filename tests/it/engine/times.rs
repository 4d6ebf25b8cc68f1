//! Times that are hard: clocks that leap, the ends of the calendar, and statistics of row groups.

use super::bed::{Bed, Layout};
use polars::prelude::{Column, DataType, NamedFrom, Series, TimeUnit, TimeZone};

fn times(name: &str, zone: Option<&str>, micros: &[Option<i64>]) -> Column {
    let zone = TimeZone::opt_try_new(zone).unwrap();
    Series::new(name.into(), micros).cast(&DataType::Datetime(TimeUnit::Microseconds, zone)).unwrap().into()
}

fn micros(text: &str) -> Option<i64> {
    Some(text.parse::<chrono::NaiveDateTime>().unwrap().and_utc().timestamp_micros())
}

fn pipeline(timezone: &str, contract: &str, partition: &str, dimension: &str) -> String {
    format!(
        r#"
name = "t"
timezone = "{timezone}"
max_rejected = 1
[source]
format = "parquet"
path = "rows.parquet"
[source.columns]
at = "{contract}"
[partition]
{partition}
[dimensions]
x = {dimension}
[measures]
n = "count(*)"
"#
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_day_whose_midnight_is_leapt_over_starts_later() {
    let bed = Bed::new();
    let at = ["2017-10-15T02:30:00", "2017-10-15T03:00:00", "2017-10-15T20:00:00"].map(micros);
    bed.write("rows.parquet", vec![times("at", Some("UTC"), &at)]);
    let day = "{ truncate = \"at\", to = \"day\" }";
    let definition = pipeline("America/Sao_Paulo", "datetime(UTC)", "d = { day_of = \"at\" }", day);
    let made = bed.made(&definition, &[]).await;
    assert_eq!(
        made.rows("d=2017-10-14"),
        [[format!("time {}", micros("2017-10-14T03:00:00").unwrap()), "1e-0".to_owned()]]
    );
    assert_eq!(
        made.rows("d=2017-10-15"),
        [[format!("time {}", micros("2017-10-15T03:00:00").unwrap()), "2e-0".to_owned()]]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn times_beyond_the_calendar_cost_their_row_and_not_the_run() {
    let bed = Bed::new();
    let at = [Some(i64::MAX), Some(i64::MIN), micros("2024-05-05T05:05:05"), None];
    for (contract, zone) in
        [("datetime", None), ("datetime(UTC)", Some("UTC")), ("datetime(Europe/Berlin)", Some("UTC"))]
    {
        bed.write("rows.parquet", vec![times("at", zone, &at)]);
        for timezone in ["UTC", "Europe/Berlin"] {
            for dimension in ["year(at)", "day(at)", "cast(at as date)"] {
                let definition = pipeline(timezone, contract, "m = { month_of = \"at\" }", &format!("\"{dimension}\""));
                let made = bed.made(&definition, &[]).await;
                assert_eq!(made.books(), [4, 1, 0, 0, 3], "{contract} {timezone} {dimension}");
                assert_eq!(made.files.keys().collect::<Vec<_>>(), ["m=2024-05"]);
            }
        }
    }
}

/// The same rows without statistics, in one group and in many: groups that statistics place are never read, and counted
/// all the same.
#[tokio::test(flavor = "multi_thread")]
async fn statistics_change_no_count() {
    let hour = 3_600_000_000i64;
    let start = micros("2024-03-30T20:00:00").unwrap();
    let mut at: Vec<Option<i64>> = (0..400).map(|n| Some(start + n * hour / 4)).collect();
    // A whole group of nulls, nulls among others, and a group with the same hour of two days.
    at.splice(40..50, [None; 10]);
    at[75] = None;
    at.splice(100..110, (0..10).map(|n| Some(start + (n % 2) * 24 * hour)));
    let layouts = [(10, true), (10, false), (1000, true), (1, true), (37, true)];
    for (timezone, contract, zone) in [
        ("UTC", "datetime", None),
        ("Europe/Berlin", "datetime(UTC)", Some("UTC")),
        ("UTC", "datetime(UTC)", Some("UTC")),
    ] {
        let mut partitions = vec![
            ("d = { day_of = \"at\" }", vec!["d=2024-03-31"]),
            ("d = { year_of = \"at\" }\nm = { month_of = \"at\" }", vec!["d=2024/m=2024-04"]),
        ];
        if timezone == "UTC" {
            partitions.push(("h = { hour_of_day = \"at\" }", vec!["h=03", "h=20"]));
            partitions.push(("d = { day_of = \"at\" }\nh = { hour_of_day = \"at\" }", vec!["d=2024-04-01/h=05"]));
            partitions.push(("h = { hour_of = \"at\" }", vec!["h=2024-04-01T05", "h=2023-01-01T00"]));
            partitions.push(("v = { value_of = \"at\" }", vec!["v=2024-04-01 05%3A00%3A00"]));
        }
        for (partition, named) in partitions {
            let definition = pipeline(timezone, contract, partition, "\"at\"");
            let mut first = None;
            for (row_group, statistics) in layouts {
                bed_and_compare(&definition, &named, &at, zone, Layout { row_group, statistics }, &mut first).await;
            }
        }
    }
}

type Seen = ([u64; 5], std::collections::BTreeMap<String, u64>, std::collections::BTreeMap<String, String>);

async fn bed_and_compare(
    definition: &str,
    named: &[&str],
    at: &[Option<i64>],
    zone: Option<&str>,
    layout: Layout,
    first: &mut Option<Seen>,
) {
    let bed = Bed::new();
    bed.write_as("rows.parquet", vec![times("at", zone, at)], layout);
    let made = bed.made(definition, named).await;
    let now = (made.books(), made.report.rows.out_of_scope_by_partition.clone(), made.digests());
    assert!(now.0[1] > 0 && now.0[2] > 0, "some rows are in scope, some not: {:?}\n{definition}", now.0);
    assert_eq!(&now, first.get_or_insert_with(|| now.clone()), "{layout:?}\n{definition}");
}
