//! Rows kept apart: linked from their run, whoever dies on the way, and nobody's files are left.

use super::{FLAGS, TABLE, assert_well, until};
use crate::service::{Place, Server, Store};
use rstest::rstest;
use serde_json::{Value, json};
use std::path::PathBuf;

const PIPELINE: &str = r#"
name = "trips"
max_rejected = 0.5
[source]
format = "csv"
path = "raw/*.csv"
[source.columns]
at = "datetime"
zone = "int32"
[partition]
month = { month_of = "at" }
[measures]
trips = "count(*)"
[quarantine]
max_rows = 2
[retry]
service = { attempts = 9, delay_seconds = 0 }
"#;

/// So many good and bad rows of January.
fn write(place: &Place, good: usize, bad: usize) {
    let rows = "2024-01-01,1\n".repeat(good) + &"2024-01-01,x\n".repeat(bad);
    std::fs::create_dir_all(place.path("raw")).unwrap();
    std::fs::write(place.path("raw/trips.csv"), format!("at,zone\n{rows}")).unwrap();
}

async fn place(store: Store) -> Place {
    let place = Place::new(store).await;
    place.pipeline(TABLE, PIPELINE);
    place
}

fn january() -> Value {
    json!({"pipeline": TABLE, "partitions": ["2024-01"]})
}

fn warehouse(place: &Place) -> PathBuf {
    place.path("refrain-data/warehouse")
}

/// The files of rows kept apart, and the folders in which there are none.
fn kept(place: &Place) -> Vec<String> {
    let root = warehouse(place).join("_quarantine");
    let below = walkdir::WalkDir::new(&root).min_depth(1).into_iter().filter_map(Result::ok);
    let alone =
        below.filter(|entry| std::fs::read_dir(entry.path()).map_or(true, |mut inside| inside.next().is_none()));
    let relative = |path: &std::path::Path| path.strip_prefix(warehouse(place)).unwrap().display().to_string();
    alone.map(|entry| relative(entry.path())).collect()
}

/// The run's record is right, and names the one file that there is.
fn assert_recorded(place: &Place, run: &Value, of: usize) {
    let record = &run["quarantine"];
    let path = record["path"].as_str().unwrap_or_else(|| panic!("{run:#}"));
    assert!(path.starts_with(&format!("_quarantine/trips/{}/", run["id"].as_str().unwrap())), "{run:#}");
    assert_eq!(kept(place), [path], "{run:#}");
    let bytes = std::fs::read(warehouse(place).join(path)).unwrap();
    let expected = json!({
        "path": path, "rows": of.min(2), "of": of, "capped": of > 2, "bytes": bytes.len(), "sha256": super::sha256_of(&bytes),
    });
    assert_eq!(*record, expected, "{run:#}");
}

async fn start(place: &Place, fault: &str) -> Server {
    let flags = [&FLAGS[..], &["--sweep-seconds", "1"]].concat();
    place.start_with(&flags, &[("REFRAIN_FAULT", fault)]).await
}

#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn a_run_links_the_rows_that_it_kept_apart(#[case] store: Store) {
    let place = place(store).await;
    let server = start(&place, "").await;
    write(&place, 5, 2);
    let run = server.run("some", &january()).await;
    assert_recorded(&place, &run, 2);
    let path = run["quarantine"]["path"].as_str().unwrap();
    let warning = run["warnings"][0]["detail"].as_str().unwrap();
    assert!(warning.ends_with(&format!("; {path} has the rows that were kept apart")), "{warning}");
    std::fs::remove_dir_all(warehouse(&place).join("_quarantine")).unwrap();
    assert_well(&place).await;

    // A run that fails of them has them, and says where.
    write(&place, 2, 3);
    let failed = server.run_to("failed", "many", &january()).await;
    assert!(failed["error"]["type"].as_str().unwrap().ends_with("too-many-rejected"), "{failed:#}");
    assert_recorded(&place, &failed, 3);
    let (id, path) = (failed["id"].as_str().unwrap(), failed["quarantine"]["path"].as_str().unwrap());
    let detail = failed["error"]["detail"].as_str().unwrap();
    assert!(detail.ends_with(&format!("; the first 2 of 3 rows that were kept apart are in {path}")), "{detail}");

    // What the next attempt keeps apart takes its place, be it nothing.
    for (good, bad) in [(3, 1), (4, 0)] {
        write(&place, 1, 2);
        let key = format!("then-{good}");
        let failed = server.run_to("failed", &key, &january()).await;
        let id = failed["id"].as_str().unwrap();
        write(&place, good, bad);
        assert_eq!(server.call(reqwest::Method::POST, &format!("/runs/{id}/retry"), None, None).await.status, 202);
        let run = server.wait(id).await;
        let named = run["quarantine"]["path"].as_str().map(str::to_owned);
        assert_eq!(named.is_some(), bad > 0, "{run:#}");
        until("only what a record names is left", || {
            let of_run: Vec<String> = kept(&place).into_iter().filter(|path| path.contains(id)).collect();
            of_run == named.iter().cloned().collect::<Vec<_>>()
        })
        .await;
    }
    assert!(kept(&place).iter().any(|kept| kept.contains(id)), "what other runs have stays: {:?}", kept(&place));
    assert_well(&place).await;
}

/// Killed at each step from the staged file on, also when the attempt is to fail; and again while it recovers.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn whoever_dies_leaves_one_file_for_one_record(
    #[values(Store::Sqlite, Store::Postgres)] store: Store,
    #[values((5, 4, "succeeded"), (2, 5, "failed"))] (good, bad, state): (usize, usize, &str),
) {
    let place = place(store).await;
    write(&place, good, bad);
    let steps: &[&str] = match state {
        "failed" => &["quarantined", "quarantined"],
        _ => &["staged", "quarantined", "decided", "published-1", "finished"],
    };
    let marks: Vec<PathBuf> = (0..steps.len()).map(|number| place.path(&format!("struck-{number}"))).collect();
    let faults: Vec<String> =
        steps.iter().zip(&marks).map(|(step, mark)| format!("{step}=kill@{}", mark.display())).collect();
    let mut server = start(&place, &faults[0]).await;
    let _ = server.submit_to_the_dying("the-run", &january()).await;
    for fault in &faults[1..] {
        server.died().await;
        server = place.launch_with(&FLAGS, &[("REFRAIN_FAULT", fault)]);
    }
    server.died().await;
    assert!(marks.iter().all(|mark| mark.exists()), "each step was reached");
    let server = start(&place, "").await;
    let run = server.wait(&server.submit("the-run", &january()).await.run_id()).await;
    assert_eq!(run["state"], state, "{run:#}");
    until("what nobody names is swept", || kept(&place).len() == 1).await;
    assert_recorded(&place, &run, bad);
    assert_well(&place).await;
}

/// Where the rows cannot be moved, the attempt fails as of any write, and is tried again.
#[tokio::test(flavor = "multi_thread")]
async fn rows_that_cannot_be_kept_fail_the_attempt_of_the_service() {
    let place = place(Store::Sqlite).await;
    write(&place, 5, 1);
    let once = place.path("struck");
    let server = start(&place, &format!("quarantined=fail@{}", once.display())).await;
    let run = server.run("some", &january()).await;
    let outcomes: Vec<&Value> = run["attempts"].as_array().unwrap().iter().map(|attempt| &attempt["outcome"]).collect();
    assert_eq!(outcomes, ["failed", "succeeded"], "{run:#}");
    until("what nobody names is swept", || kept(&place).len() == 1).await;
    assert_recorded(&place, &run, 1);

    std::fs::remove_dir_all(warehouse(&place).join("_quarantine")).unwrap();
    std::fs::write(warehouse(&place).join("_quarantine"), "in the way").unwrap();
    let run = server.run_to("failed", "other", &january()).await;
    assert!(run["error"]["detail"].as_str().unwrap().contains("_quarantine is a regular file"), "{run:#}");
    assert_eq!(run["quarantine"], Value::Null);
}
