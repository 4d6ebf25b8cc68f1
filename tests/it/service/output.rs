//! What a table is written as, from the pipeline's file to the answers; and changes of its layout, which only `mode: "full"` makes.

use super::{MONTHS, Place, Server, Store, assert_totals, field_of, summed, trips_pipeline, write_quarter};
use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

const LAYOUT: &str = "urn:refrain:problem:layout-changed";

fn define(place: &Place, table: &str) {
    place.pipeline("trips", &format!("{}\n[table]\n{table}\n", trips_pipeline("trips", r#""raw/*.parquet""#, "", "")));
}

fn quarter() -> Value {
    json!({"pipeline": "trips", "partitions": MONTHS})
}

fn full() -> Value {
    json!({"pipeline": "trips", "mode": "full"})
}

async fn restarted(place: &Place, server: Server, table: &str) -> Server {
    assert!(server.stop().await.success());
    define(place, table);
    place.start().await
}

/// The names of a table's files, in the order of their paths.
fn names(place: &Place) -> Vec<String> {
    place.files_of("trips").into_keys().collect()
}

#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn another_format_needs_a_full_run(#[case] store: Store) {
    let place = Place::new(store).await;
    let trips = write_quarter(&place, 200);
    define(&place, "");
    let server = place.start().await;
    let first = server.run("first", &quarter()).await;
    assert_eq!(field_of(&first, "file")["pickup_month=2024-02"], "part-0.parquet");
    let parquet = place.files_of("trips");

    let csv = "format = \"csv\"\ncompression = \"zstd\"\nmanifest = true";
    let server = restarted(&place, server, csv).await;
    let shown = server.get("/pipelines/trips").await.json()["output"].clone();
    assert_eq!(shown, json!({"format": "csv", "compression": "zstd", "manifest": true}));
    let refused = server.submit("second", &quarter()).await;
    assert_eq!((refused.status, &refused.json()["type"]), (409, &json!(LAYOUT)), "{refused:?}");
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    for part in ["table trips", "found part-0.parquet", "writes part-0.csv.zst", "run mode full once"] {
        assert!(detail.contains(part), "{detail}");
    }
    assert_eq!(place.files_of("trips"), parquet);
    // A known key is answered as before, and what was refused used nothing up.
    let again = server.submit("first", &quarter()).await;
    assert_eq!((again.status, again.run_id()), (200, first["id"].as_str().unwrap().to_owned()));

    let run = server.run("second", &full()).await;
    let outcomes = field_of(&run, "outcome");
    assert!(outcomes.values().all(|outcome| outcome == "replaced"), "{run:#}");
    let expected: Vec<String> = ["_SUCCESS".to_owned(), "_manifest.json".to_owned()]
        .into_iter()
        .chain(MONTHS.map(|month| format!("pickup_month={month}/part-0.csv.zst")))
        .collect();
    assert_eq!(names(&place), expected);
    let listed = server.partitions("trips").await;
    assert_totals(&listed, &summed(&trips));
    assert!(listed.values().all(|entry| entry["file"] == "part-0.csv.zst" && entry["definition_current"] == true));
    let february = server.get("/pipelines/trips/partitions/pickup_month=2024-02").await.json();
    let files: Vec<&Value> = february["history"].as_array().unwrap().iter().map(|change| &change["file"]).collect();
    assert_eq!(files, ["part-0.csv.zst", "part-0.parquet"], "newest first");
    let before = place.files_of("trips");
    let run = server.run("third", &quarter()).await;
    assert!(field_of(&run, "outcome").values().all(|outcome| outcome == "unchanged"), "{run:#}");
    assert_eq!(place.files_of("trips"), before, "the manifest is as it was too");
    assert_eq!(place.verify().await, None);
}

/// What does not move files or cut partitions otherwise may change at any time, partition by partition.
#[tokio::test(flavor = "multi_thread")]
async fn other_changes_show_in_definition_current() {
    let place = Place::new(Store::Sqlite).await;
    write_quarter(&place, 200);
    define(&place, "");
    let server = place.start().await;
    server.run("first", &quarter()).await;
    let server = restarted(&place, server, "compression = \"snappy\"\nrow_group_rows = 10").await;
    let run = server.run("second", &json!({"pipeline": "trips", "partitions": ["2024-02"]})).await;
    assert_eq!(field_of(&run, "outcome")["pickup_month=2024-02"], "replaced", "{run:#}");
    let current: Vec<Value> =
        server.partitions("trips").await.into_values().map(|entry| entry["definition_current"].clone()).collect();
    assert_eq!(current, [false, true, false]);
    assert_eq!(place.verify().await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_partition_columns_need_a_full_run() {
    let place = Place::new(Store::Sqlite).await;
    let trips = write_quarter(&place, 200);
    define(&place, "");
    let server = place.start().await;
    server.run("first", &quarter()).await;
    assert!(server.stop().await.success());
    let pipeline = trips_pipeline("trips", r#""raw/*.parquet""#, "", "");
    place.pipeline("trips", &pipeline.replace("pickup_month = {", "trip_month = {"));
    let server = place.start().await;
    let refused = server.submit("second", &quarter()).await;
    assert_eq!((refused.status, &refused.json()["type"]), (409, &json!(LAYOUT)), "{refused:?}");
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("pickup_month=2024-01, which is none of the definition's partition columns (trip_month)"));
    server.run("second", &full()).await;
    let keys: Vec<String> = server.partitions("trips").await.into_keys().collect();
    assert_eq!(keys, MONTHS.map(|month| format!("trip_month={month}")));
    server.run("third", &quarter()).await;
    let months = summed(&trips).into_iter().map(|(key, sum)| (key.replace("pickup", "trip"), sum)).collect();
    assert_totals(&server.partitions("trips").await, &months);
    assert_eq!(place.verify().await, None);
}

/// Accepted since a full run was to go before it, which then did not: the decision looks again.
#[rstest]
#[case::format("format = \"csv\"", "pickup_month", "output-format-changed")]
#[case::columns("", "trip_month", "partition-columns-changed")]
#[tokio::test(flavor = "multi_thread")]
async fn what_counts_is_the_look_at_the_decision(#[case] table: &str, #[case] column: &str, #[case] kind: &str) {
    let place = Place::new(Store::Sqlite).await;
    write_quarter(&place, 200);
    define(&place, "");
    let server = place.start().await;
    server.run("first", &quarter()).await;
    assert!(server.stop().await.success());
    let pipeline = trips_pipeline("trips", r#""raw/*.parquet""#, "", "");
    let pipeline = pipeline.replace("pickup_month = {", &format!("{column} = {{"));
    place.pipeline("trips", &format!("{pipeline}\n[table]\n{table}\n"));
    let before = place.files_of("trips");

    let server = place.start_with(&["--workers", "0"], &[]).await;
    let rebuild = server.accept("rebuild", &full()).await;
    let second = server.accept("second", &quarter()).await;
    assert_eq!(server.call(Method::POST, &format!("/runs/{rebuild}/cancel"), None, None).await.status, 200);
    assert!(server.stop().await.success());
    let server = place.start().await;
    let run = server.wait(&second).await;
    let error = &run["error"];
    assert_eq!(
        (&run["state"], &error["type"]),
        (&json!("failed"), &json!(format!("urn:refrain:problem:{kind}"))),
        "{run:#}"
    );
    assert!(error["detail"].as_str().unwrap().contains("run mode full once to rebuild it"), "{run:#}");
    assert_eq!(place.files_of("trips"), before);
    // Nor is it tried again in vain.
    let again = server.call(Method::POST, &format!("/runs/{second}/retry"), None, None).await;
    assert_eq!((again.status, &again.json()["type"]), (409, &json!(LAYOUT)), "{again:?}");
}

/// The catalog knows csv; somebody has put a file of ours of another format beside it.
#[tokio::test(flavor = "multi_thread")]
async fn a_folder_in_the_place_of_the_manifest_fails_a_run_before_its_decision() {
    let place = Place::new(Store::Sqlite).await;
    write_quarter(&place, 200);
    define(&place, "manifest = true");
    let server = place.start().await;
    let folder = place.table("trips").join("_manifest.json");
    std::fs::create_dir_all(&folder).unwrap();
    let run = server.run_to("failed", "first", &quarter()).await;
    let why = run["error"]["detail"].as_str().unwrap();
    assert!(why.contains("_manifest.json is a folder, expected a manifest or nothing"), "{run:#}");
    assert_eq!(place.parquet_files().iter().filter(|path| path.contains("part-0")).count(), 0, "nothing was published");
    std::fs::remove_dir(&folder).unwrap();
    server.run("second", &quarter()).await;
    assert!(folder.is_file());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_file_of_another_format_is_found_and_goes() {
    let place = Place::new(Store::Sqlite).await;
    write_quarter(&place, 200);
    define(&place, "format = \"csv\"\nmanifest = true");
    let server = place.start().await;
    server.run("first", &quarter()).await;
    let good = place.files_of("trips");
    let beside = place.table("trips").join("pickup_month=2024-02/part-0.parquet");
    std::fs::write(&beside, "PAR1").unwrap();
    let manifest = place.table("trips").join("_manifest.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, text.replace("2024-03", "2024-04")).unwrap();
    let said = place.verify().await.unwrap();
    assert!(said.contains("unknown:") && said.contains("the catalog has part-0.csv"), "{said}");
    assert!(said.contains("manifest:") && said.contains("first at partition pickup_month=2024-03"), "{said}");
    let run = server.run("second", &quarter()).await;
    let outcomes: Vec<Value> = field_of(&run, "outcome").into_values().collect();
    assert_eq!(outcomes, ["unchanged", "replaced", "unchanged"], "{run:#}");
    let warned = run["warnings"].to_string();
    assert!(warned.contains("unknown-files-replaced") && warned.contains("pickup_month=2024-02"), "{run:#}");
    let bytes = |place: &Place| {
        let files = place.files_of("trips").into_iter().filter(|(path, _)| path != "_manifest.json");
        files.map(|(path, (bytes, _))| (path, bytes)).collect::<Vec<_>>()
    };
    let expected: Vec<_> =
        good.into_iter().filter(|(path, _)| path != "_manifest.json").map(|(p, (b, _))| (p, b)).collect();
    assert_eq!(bytes(&place), expected);
    assert_eq!(place.verify().await, None, "the manifest is right again too");
}
