//! Promises 2 and 4: exactly the named partitions, and the same input gives the same bytes.

use super::{
    MONTHS, Place, Server, Shape, Store, assert_totals, field_of, month_of_trips, summed, trips_of, trips_pipeline,
    write_quarter,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const TEMPLATE: &str = r#""raw/trips_%Y-%m.parquet""#;
const GLOB: &str = r#""raw/*.parquet""#;

/// Ways to name the quarter, each as a list of runs.
const WAYS: [(&str, &[&[&str]]); 5] = [
    ("all", &[&["2024-01", "2024-02", "2024-03"]]),
    ("singly", &[&["2024-01"], &["2024-02"], &["2024-03"]]),
    ("shuffled", &[&["2024-03"], &["2024-01"], &["2024-02"]]),
    ("backwards", &[&["2024-03"], &["2024-02"], &["2024-01"]]),
    ("paired", &[&["2024-03", "2024-02"], &["2024-01", "2024-03"]]),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_is_the_same_bytes_whatever_else_the_run_names() {
    let place = Place::new(Store::Sqlite).await;
    let trips = write_quarter(&place, 600);
    let sources = [("glob", GLOB, ""), ("own", TEMPLATE, "neighbours = 0"), ("near", TEMPLATE, "neighbours = 1")];
    for (source, path, line) in sources {
        for (way, _) in WAYS {
            let name = format!("{source}_{way}");
            place.pipeline(&name, &trips_pipeline(&name, path, line, ""));
        }
    }
    let server = place.start_with(&["--workers", "2"], &[]).await;

    let mut digests: BTreeMap<&str, BTreeMap<String, Value>> = BTreeMap::new();
    for (source, ..) in sources {
        for (way, runs) in WAYS {
            let name = format!("{source}_{way}");
            for (at, partitions) in runs.iter().enumerate() {
                server.run(&format!("{name}/{at}"), &json!({"pipeline": name, "partitions": partitions})).await;
            }
            let listed = server.partitions(&name).await;
            if source != "own" {
                assert_totals(&listed, &summed(&trips));
            }
            let found: BTreeMap<String, Value> = listed.into_iter().map(|(k, p)| (k, p["sha256"].clone())).collect();
            assert_eq!(found.len(), 3);
            assert_eq!(&found, digests.entry(source).or_insert_with(|| found.clone()), "{name}");
        }
    }
    assert_eq!(digests["glob"], digests["near"], "every late trip is next door");
    assert!(digests["glob"] != digests["own"], "without neighbours late trips are left out");
}

#[tokio::test]
async fn strays_are_counted_and_never_written() {
    let place = Place::new(Store::Sqlite).await;
    let trips = write_quarter(&place, 100);
    place.pipeline("own", &trips_pipeline("own", TEMPLATE, "neighbours = 0", ""));
    place.pipeline("near", &trips_pipeline("near", TEMPLATE, "neighbours = 1", ""));
    let server = place.start().await;

    let near = server.run("near", &json!({"pipeline": "near", "partitions": ["2024-02"]})).await;
    let rows = &near["rows"];
    assert_eq!((&rows["read"], &rows["in_scope"], &rows["out_of_scope"]), (&json!(300), &json!(100), &json!(200)));
    assert_eq!(
        rows["out_of_scope_by_partition"],
        json!({"pickup_month=2024-01": 100, "pickup_month=2024-03": 100}),
        "{near:#}"
    );
    assert_eq!(near["warnings"], json!([]));
    let mut february = summed(&trips);
    february.retain(|month, _| month == "pickup_month=2024-02");
    assert_totals(&server.partitions("near").await, &february);

    let own = server.run("own", &json!({"pipeline": "own", "partitions": MONTHS})).await;
    let rows = &own["rows"];
    assert_eq!((&rows["read"], &rows["in_scope"], &rows["out_of_scope"]), (&json!(300), &json!(285), &json!(15)));
    let warnings = own["warnings"].to_string();
    assert!(warnings.contains("neighbours"), "the setting to change is named: {warnings}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_runs_with_other_threads_and_file_orders_write_nothing() {
    let place = Place::new(Store::Sqlite).await;
    write_quarter(&place, 2_000);
    let orders = [[0, 1, 2], [2, 1, 0], [1, 0, 2], [2, 0, 1], [0, 2, 1]];
    let mut first: Option<(BTreeMap<String, Value>, _)> = None;
    for run in 0..11 {
        let files = orders[run % orders.len()].map(|at| format!("raw/trips_{}.parquet", MONTHS[at]));
        place.pipeline("trips", &trips_pipeline("trips", &json!(files).to_string(), "", ""));
        let threads = (run % 4 + 1).to_string();
        let server = place.start_with(&["--workers", "1"], &[("POLARS_MAX_THREADS", &threads)]).await;
        let ended = server.run(&format!("run-{run}"), &json!({"pipeline": "trips", "partitions": MONTHS})).await;
        assert!(server.stop().await.success());
        let now = (field_of(&ended, "sha256"), place.files_of("trips"));
        match &first {
            None => first = Some(now),
            Some(first) => {
                let outcomes: Vec<Value> = field_of(&ended, "outcome").into_values().collect();
                assert_eq!(outcomes, vec![json!("unchanged"); 3], "run {run}: {ended:#}");
                assert!(now == *first, "run {run} wrote a file: {:?}", now.0);
            }
        }
    }
}

async fn cleared(server: &Server, key: &str, partitions: &Value) -> BTreeMap<String, Value> {
    field_of(&server.run(key, &json!({"pipeline": "trips", "partitions": partitions})).await, "outcome")
}

#[tokio::test]
async fn a_named_partition_without_rows_is_cleared() {
    let place = Place::new(Store::Sqlite).await;
    let trips = write_quarter(&place, 60);
    let extra = month_of_trips("2023-06", 20);
    place.source("raw/late.parquet", trips_of(&extra, Shape::Wide));
    place.pipeline("trips", &trips_pipeline("trips", GLOB, "", ""));
    let server = place.start().await;
    let named = json!(["2023-06", "2023-05", "2024-01", "2024-02", "2024-03"]);
    let outcomes = cleared(&server, "first", &named).await;
    assert_eq!(
        (&outcomes["pickup_month=2023-06"], &outcomes["pickup_month=2023-05"]),
        (&json!("created"), &json!("empty"))
    );
    let before = place.files_of("trips");

    place.remove("raw/late.parquet");
    let outcomes = cleared(&server, "second", &json!(["2023-06", "2024-01"])).await;
    assert_eq!(
        (&outcomes["pickup_month=2023-06"], &outcomes["pickup_month=2024-01"]),
        (&json!("cleared"), &json!("unchanged"))
    );
    assert!(!place.table("trips").join("pickup_month=2023-06").exists(), "its folder goes too");
    assert_totals(&server.partitions("trips").await, &summed(&trips));
    let mut expected = before;
    expected.retain(|path, _| !path.starts_with("pickup_month=2023-06"));
    assert!(place.files_of("trips") == expected, "no other file was touched");

    let outcomes = cleared(&server, "third", &json!(["2023-06"])).await;
    assert_eq!(outcomes["pickup_month=2023-06"], "empty");
}

#[tokio::test]
async fn a_partition_whose_source_files_are_gone_stands() {
    let place = Place::new(Store::Sqlite).await;
    let trips = write_quarter(&place, 60);
    let once = "[retry]\nsource = { attempts = 1 }";
    place.pipeline("by_template", &trips_pipeline("by_template", TEMPLATE, "neighbours = 1", once));
    place.pipeline("by_glob", &trips_pipeline("by_glob", GLOB, "", once));
    let server = place.start().await;
    for name in ["by_template", "by_glob"] {
        server.run(name, &json!({"pipeline": name, "partitions": MONTHS})).await;
    }
    let before = ["by_template", "by_glob"].map(|name| place.files_of(name));

    place.remove("raw/trips_2024-02.parquet");
    let failed = server.run_to("failed", "a", &json!({"pipeline": "by_template", "partitions": ["2024-02"]})).await;
    assert_eq!(failed["error"]["class"], "source", "{failed:#}");
    assert!(failed["error"]["detail"].as_str().unwrap().contains("raw/trips_2024-02.parquet"), "{failed:#}");
    place.remove("raw/trips_2024-01.parquet");
    place.remove("raw/trips_2024-03.parquet");
    let failed = server.run_to("failed", "b", &json!({"pipeline": "by_glob", "partitions": ["2024-02"]})).await;
    assert!(failed["error"]["detail"].as_str().unwrap().contains("raw/*.parquet"), "{failed:#}");

    assert!(["by_template", "by_glob"].map(|name| place.files_of(name)) == before);
    for name in ["by_template", "by_glob"] {
        assert_totals(&server.partitions(name).await, &summed(&trips));
    }
}
