//! `refrain verify --fix`: what is damaged is made again by runs, what is not Refrain's is left with a reason.

use super::{MONTHS, Place, Server, Store, assert_totals, summed, trips_pipeline, write_quarter};
use crate::crash::until_async;
use rstest::rstest;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Output;

fn file_of(place: &Place, table: &str, month: &str) -> PathBuf {
    place.table(table).join(format!("pickup_month={month}/part-0.parquet"))
}

/// Runs `refrain verify --fix`, by the server where the database is a file that it holds.
async fn fix(place: &Place, store: Store, server: &Server) -> Output {
    let by_server = ["--fix", "--json", "--url", server.url()];
    place.verify_with(if store == Store::Sqlite { &by_server } else { &by_server[..2] }).await
}

fn findings(output: &Output) -> Vec<Value> {
    let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    found["findings"].as_array().unwrap().clone()
}

/// The runs that are to rebuild something, by the partition.
fn runs(output: &Output) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let rebuilt = findings(output).into_iter().filter(|found| found["fix"]["run_id"].is_string());
    rebuilt.map(|found| (text(&found["partition"]), text(&found["fix"]["run_id"]))).collect()
}

#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn what_is_damaged_is_made_again_and_the_rest_is_left_with_a_reason(#[case] store: Store) {
    let place = Place::new(store).await;
    let trips = write_quarter(&place, 200);
    for table in ["trips", "other"] {
        place.pipeline(table, &trips_pipeline(table, r#""raw/*.parquet""#, "", ""));
    }
    let server = place.start().await;
    for table in ["trips", "other"] {
        server.run(table, &json!({"pipeline": table, "partitions": MONTHS})).await;
    }
    assert!(server.stop().await.success());
    let good = place.files_of("trips");

    // One of each kind. The other table's pipeline is gone.
    let february = fs::read(file_of(&place, "trips", "2024-02")).unwrap();
    fs::remove_file(file_of(&place, "trips", "2024-01")).unwrap();
    fs::write(file_of(&place, "trips", "2024-02"), &february[..february.len() / 2]).unwrap();
    fs::write(file_of(&place, "trips", "2024-03"), &february).unwrap();
    fs::create_dir(place.table("trips").join("pickup_month=2023-12")).unwrap();
    fs::write(file_of(&place, "trips", "2023-12"), &february).unwrap();
    fs::write(place.table("trips").join("mine.parquet"), &february).unwrap();
    fs::remove_file(file_of(&place, "other", "2024-01")).unwrap();
    place.remove("pipelines/other.toml");

    let server = place.start_with(&["--workers", "0"], &[]).await;
    if store == Store::Sqlite {
        let refused = place.verify_with(&["--fix"]).await;
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains("expected --url"), "{refused:?}");
    }
    let first = fix(&place, store, &server).await;
    assert_eq!(first.status.code(), Some(1), "for some of it there is no run: {first:?}");
    let found: Vec<(Value, bool)> =
        findings(&first).iter().map(|f| (f["kind"].clone(), f["fix"]["queued_now"] == true)).collect();
    let kinds = ["missing", "missing", "torn", "changed", "foreign", "unknown"];
    let expected: Vec<_> =
        kinds.iter().zip([false, true, true, true, false, false]).map(|(k, q)| (json!(k), q)).collect();
    assert_eq!(found, expected, "{first:?}");
    for left in findings(&first).iter().filter(|found| found["fix"]["run_id"].is_null()) {
        assert!(left["fix"]["left_alone"].as_str().is_some_and(|why| !why.is_empty()), "{left:#}");
    }
    let queued = runs(&first);
    assert_eq!(queued.len(), 3);

    // Nothing twice while it has not ended; one that was cancelled is queued again.
    let cancelled = &queued["pickup_month=2024-03"];
    assert_eq!(server.call(reqwest::Method::POST, &format!("/runs/{cancelled}/cancel"), None, None).await.status, 200);
    let second = fix(&place, store, &server).await;
    assert_eq!(runs(&second), queued);
    assert_eq!(server.get("/runs").await.json()["runs"].as_array().unwrap().len(), 5);
    assert!(server.stop().await.success());

    let server = place.start().await;
    for run in queued.values() {
        let run = server.wait(run).await;
        assert_eq!(
            (&run["state"], &run["partitions"][0]["outcome"]),
            (&json!("succeeded"), &json!("replaced")),
            "{run:#}"
        );
    }
    let after = fix(&place, store, &server).await;
    assert_eq!(after.status.code(), Some(1), "{after:?}");
    assert_eq!(
        findings(&after).iter().map(|found| &found["kind"]).collect::<Vec<_>>(),
        ["missing", "foreign", "unknown"]
    );
    fs::remove_dir_all(place.table("trips").join("pickup_month=2023-12")).unwrap();
    fs::remove_file(place.table("trips").join("mine.parquet")).unwrap();
    fs::remove_dir_all(place.table("other")).unwrap();
    place.pipeline("other", &trips_pipeline("other", r#""raw/*.parquet""#, "", ""));
    let bytes = |files: BTreeMap<String, (Vec<u8>, _)>| files.into_values().map(|(bytes, _)| bytes).collect::<Vec<_>>();
    assert_eq!(bytes(place.files_of("trips")), bytes(good));
    assert_totals(&server.partitions("trips").await, &summed(&trips));
    assert!(server.stop().await.success());

    // The same damage again, and a table that is gone: made again by other runs, queued while nobody serves.
    fs::remove_file(file_of(&place, "trips", "2024-01")).unwrap();
    let again = place.verify_with(&["--fix", "--json"]).await;
    assert_eq!(again.status.code(), Some(3), "a run is queued for all of it: {again:?}");
    let more = runs_of_both(&again);
    assert_eq!(more.len(), 4, "{again:?}");
    assert!(more.iter().all(|run| !queued.values().any(|before| before == run)), "{again:?}");
    let server = place.start().await;
    for run in &more {
        assert_eq!(server.wait(run).await["state"], "succeeded");
    }
    let well = fix(&place, store, &server).await;
    assert_eq!((well.status.code(), findings(&well)), (Some(0), Vec::new()), "{well:?}");
}

/// The runs of more than one table.
fn runs_of_both(output: &Output) -> Vec<String> {
    findings(output).iter().filter_map(|found| found["fix"]["run_id"].as_str().map(str::to_owned)).collect()
}

#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn a_kept_sum_that_is_wrong_is_told_and_counted_anew_at_the_next_start_with_workers_or_without(
    #[case] store: Store,
) {
    let place = Place::new(store).await;
    let trips = write_quarter(&place, 200);
    place.pipeline("trips", &trips_pipeline("trips", r#""raw/*.parquet""#, "", ""));
    let server = place.start().await;
    server.run("trips", &json!({"pipeline": "trips", "partitions": MONTHS})).await;
    assert!(server.stop().await.success());
    let well = place.verify_with(&["--json"]).await;
    assert_eq!((well.status.code(), findings(&well)), (Some(0), Vec::new()), "{well:?}");

    let of_two = of_two(store);
    place.execute(&format!("update sums set sum = {of_two}")).await;
    let told = place.verify_with(&["--fix", "--json"]).await;
    assert_eq!(told.status.code(), Some(1), "{told:?}");
    let found = findings(&told);
    assert_eq!((found.len(), &found[0]["kind"]), (1, &json!("sum")), "{found:?}");
    assert!(found[0]["detail"].as_str().is_some_and(|detail| detail.contains("2 partitions")), "{found:?}");
    assert!(found[0]["fix"]["left_alone"].as_str().is_some_and(|why| why.contains("starts")), "{found:?}");

    for workers in ["1", "0"] {
        place.execute(&format!("update sums set sum = {of_two}")).await;
        let server = place.start_with(&["--workers", workers], &[]).await;
        until_async("the sum is counted anew", async || place.verify_with(&["--json"]).await.status.code() == Some(0))
            .await;
        assert_totals(&server.partitions("trips").await, &summed(&trips));
        assert!(server.stop().await.success());
    }
}

/// A kept sum, but for the number of its partitions.
fn of_two(store: Store) -> &'static str {
    match store {
        Store::Sqlite => "json_set(sum, '$.partitions', 2)",
        Store::Postgres => "jsonb_set(sum::jsonb, '{partitions}', '2')::json",
    }
}

#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_cannot_be_counted_does_not_keep_others_from_it(#[case] store: Store) {
    let place = Place::new(store).await;
    let trips = write_quarter(&place, 200);
    for name in ["before", "trips"] {
        place.pipeline(name, &trips_pipeline(name, r#""raw/*.parquet""#, "", ""));
    }
    let server = place.start().await;
    for name in ["before", "trips"] {
        server.run(name, &json!({"pipeline": name, "partitions": MONTHS})).await;
    }
    assert!(server.stop().await.success());
    place.execute(&format!("update sums set sum = {}", of_two(store))).await;
    place.execute("update catalog set content = '7' where pipeline = 'before'").await;
    let server = place.start().await;
    until_async("the other one is counted", async || {
        server.get("/pipelines/trips/partitions").await.json()["total"]["partitions"] == 3
    })
    .await;
    until_async("it is said which cannot be", async || {
        server.log().contains("the sums of tables could not be counted") && server.log().contains("the table of")
    })
    .await;
    assert_totals(&server.partitions("trips").await, &summed(&trips));
}
