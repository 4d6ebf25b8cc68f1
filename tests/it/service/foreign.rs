//! Data files of others in a table's folders: they fail a run, or go where the pipeline says so.

use super::slow::{of_attempts, stopped, wait_for_error, wait_until_unwell};
use super::{Column, MONTHS, Place, Store, assert_totals, field_of, summed, trips_pipeline, write_quarter};
use polars::prelude::{NamedFrom, Series};
use rstest::rstest;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const FOREIGN: &str = "urn:refrain:problem:foreign-files";
const REPLACE: &str = "\n[table]\nforeign_files = \"replace\"\n";

fn pipeline(place: &Place, rule: &str) {
    place.pipeline("trips", &format!("{}{rule}", trips_pipeline("trips", r#""raw/*.parquet""#, "", "")));
}

fn quarter() -> Value {
    json!({"pipeline": "trips", "partitions": MONTHS})
}

/// Puts a data file and what goes with it into the folder of a month.
fn put_theirs(place: &Place, month: &str) {
    let folder = place.table("trips").join(format!("pickup_month={month}"));
    fs::create_dir_all(folder.join("sub")).unwrap();
    for name in ["part-00000-x.snappy.parquet", ".part-00000-x.snappy.parquet.crc", "sub/more.csv"] {
        fs::write(folder.join(name), "theirs").unwrap();
    }
}

#[rstest]
#[case::named(false)]
#[case::full(true)]
#[tokio::test(flavor = "multi_thread")]
async fn files_of_others_fail_a_run_or_go_with_their_folder(#[case] full: bool) {
    let place = Place::new(Store::Sqlite).await;
    let trips = write_quarter(&place, 200);
    let body = if full { json!({"pipeline": "trips", "mode": "full"}) } else { quarter() };
    pipeline(&place, "");
    let server = place.start().await;
    server.run("first", &quarter()).await;
    // The last has no rows, so nothing of it stays.
    for month in ["2024-02", "2024-03", "2024-04"] {
        put_theirs(&place, month);
    }
    let before = place.files_of("trips");
    let run = server.run_to("failed", "second", &body).await;
    let error = &run["error"];
    assert_eq!((&error["type"], &error["class"]), (&json!(FOREIGN), &json!("compute")), "{run:#}");
    assert!(error["detail"].as_str().unwrap().contains("pickup_month=2024-02/part-00000-x.snappy.parquet"), "{run:#}");
    assert_eq!((place.files_of("trips"), of_attempts(&run, "outcome")), (before, vec!["failed"]));
    assert!(server.stop().await.success());

    pipeline(&place, REPLACE);
    let server = place.start().await;
    assert_eq!(server.get("/pipelines/trips").await.json()["foreign_files"], "replace");
    let run = server.run("third", &body).await;
    let outcomes: Vec<Value> = field_of(&run, "outcome").into_values().collect();
    // What readers found in the other two was not what the catalog says.
    assert_eq!(outcomes[..3], ["unchanged", "replaced", "replaced"], "{run:#}");
    assert_eq!(run["warnings"][0]["type"], "foreign-files-replaced", "{run:#}");
    assert_totals(&server.partitions("trips").await, &summed(&trips));
    let left: Vec<String> =
        place.files_of("trips").into_keys().filter(|path| !path.ends_with("part-0.parquet")).collect();
    match full {
        true => assert_eq!(left, ["_SUCCESS"], "nothing of theirs"),
        false => assert_eq!(left.len(), 3, "a partition that was not named is as it was: {left:?}"),
    }
    if full {
        assert_eq!(place.verify().await, None);
    }
}

/// Files that others put there after the decision: what was decided waits for their end, or takes them away.
#[rstest]
#[case::fail("")]
#[case::replace(REPLACE)]
#[tokio::test(flavor = "multi_thread")]
async fn files_that_come_after_the_decision_are_seen_before_anything_moves(#[case] rule: &str) {
    let place = Place::new(Store::Sqlite).await;
    let trips = write_quarter(&place, 200);
    pipeline(&place, rule);
    let fault = format!("decided=stop@{}", place.path("struck").display());
    let server = place.start_with(&["--workers", "1"], &[("REFRAIN_FAULT", &fault)]).await;
    let id = server.accept("first", &quarter()).await;
    stopped(&server).await;
    // The last of the three: the first two are not moved before it is looked at.
    put_theirs(&place, "2024-03");
    server.signal(Signal::CONT);
    if rule.is_empty() {
        let run = wait_for_error(&server, &id).await;
        assert_eq!((&run["state"], &run["error"]["type"]), (&json!("committing"), &json!(FOREIGN)), "{run:#}");
        assert!(run["error"]["detail"].as_str().unwrap().contains("sub/more.csv"), "{run:#}");
        wait_until_unwell(&server, 200, &["sub/more.csv"]).await;
        let ours = place.files_of("trips").into_keys().filter(|path| path.ends_with("part-0.parquet")).count();
        assert_eq!((ours, server.partitions("trips").await.len()), (0, 0), "nothing was moved");
        fs::remove_dir_all(place.table("trips").join("pickup_month=2024-03")).unwrap();
    }
    assert_eq!(server.wait(&id).await["state"], "succeeded", "{}", server.log_tail());
    assert_totals(&server.partitions("trips").await, &summed(&trips));
    assert_eq!(place.verify().await, None);
}

/// The partitions of the source below; of a table by year and month.
const REBUILT: [(&str, &str, &str); 3] = [("2013", "08", "1.50"), ("2014", "02", "2.25"), ("2018", "01", "4.00")];

/// A table that Spark wrote: a run of some of its partitions takes over those, a full run all of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_spark_wrote_is_taken_over() {
    let place = Place::new(Store::Sqlite).await;
    let text = |of: fn(&(&'static str, &'static str, &'static str)) -> &'static str| {
        REBUILT.iter().map(of).collect::<Vec<_>>()
    };
    let column = |name: &str, values: Vec<&str>| -> Column { Series::new(name.into(), values).into() };
    let amounts: Vec<f64> = REBUILT.iter().map(|(.., amount)| amount.parse().unwrap()).collect();
    place.source(
        "raw/green.parquet",
        vec![
            column("year", text(|one| one.0)),
            column("month", text(|one| one.1)),
            Series::new("amount".into(), amounts).into(),
        ],
    );
    place.pipeline("green", &format!("{GREEN}{REPLACE}"));
    // Only an absent or empty root becomes a warehouse, so the table comes into one that is there.
    let server = place.start().await;
    spark_table(&place.table("green"));
    let csv_files = || place.files_of("green").into_keys().filter(|path| path.ends_with(".csv")).count();
    let before = csv_files();
    assert!(before > 2, "{before}");

    let some =
        json!({"pipeline": "green", "partitions": ["trip_year=2013/trip_month=08", "trip_year=2014/trip_month=02"]});
    server.run("some", &some).await;
    assert_eq!(csv_files(), before - 2, "only those of the named partitions went");
    let run = server.run("all", &json!({"pipeline": "green", "mode": "full"})).await;
    assert_eq!(run["partitions"].as_array().unwrap().len(), before + 1, "each of theirs, and one that is new");
    let mut expected: Vec<String> =
        REBUILT.iter().map(|(year, month, _)| format!("trip_year={year}/trip_month={month}/part-0.parquet")).collect();
    expected.insert(0, "_SUCCESS".to_owned());
    let shown = |path: &String| !path.starts_with('.');
    assert_eq!(place.files_of("green").into_keys().filter(shown).collect::<Vec<_>>(), expected);
    let listed = server.partitions("green").await;
    let amounts: Vec<&str> = listed.values().map(|entry| entry["totals"]["amount"].as_str().unwrap()).collect();
    assert_eq!(amounts, text(|one| one.2));
    assert_eq!(place.verify().await, None);
}

const GREEN: &str = r#"
name = "green"
[source]
format = "parquet"
path = "raw/green.parquet"
[source.columns]
year = "string"
month = "string"
amount = "decimal(9,2)"
[partition]
trip_year = { value_of = "year" }
trip_month = { value_of = "month" }
[measures]
amount = "sum(amount)"
"#;

/// A real one where the shared data is, else one that is made up as Spark lays it out.
fn spark_table(to: &Path) {
    let real = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/spark-hive-layout/green-taxi-csv-by-month");
    if real.is_dir() {
        for entry in walkdir::WalkDir::new(&real) {
            let entry = entry.unwrap();
            let copy = to.join(entry.path().strip_prefix(&real).unwrap());
            match entry.file_type().is_dir() {
                true => fs::create_dir_all(copy).unwrap(),
                // Not with its mode: the shared data may be read-only.
                false => fs::write(copy, fs::read(entry.path()).unwrap()).unwrap(),
            }
        }
        return;
    }
    for month in ["trip_year=2013/trip_month=08", "trip_year=2013/trip_month=09", "trip_year=2014/trip_month=02"] {
        fs::create_dir_all(to.join(month)).unwrap();
        for name in ["part-00000-91f3.c000.csv", ".part-00000-91f3.c000.csv.crc"] {
            fs::write(to.join(month).join(name), "theirs").unwrap();
        }
    }
    fs::write(to.join("_SUCCESS"), "").unwrap();
}
