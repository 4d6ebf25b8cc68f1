//! A pipeline that places rows otherwise than the table's partitions were made: the same row would be counted twice.

use super::{Place, Server, Store, field_of};
use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use std::collections::BTreeMap;
use std::fs;

/// Picked up at the end of January and dropped off in February, in Berlin already at the pickup.
const RIDE: &str = "picked,dropped,amount\n2024-01-31T23:30:00+00:00,2024-02-01T00:10:00+00:00,10.00\n\
                    2024-02-15T12:00:00+00:00,2024-02-15T12:30:00+00:00,5.00\n";

/// What a pipeline may say otherwise: a text of [`define`]'s, and what takes its place.
const CHANGES: [(&str, &str, &str); 4] = [
    ("another-column", "month_of = \"picked\"", "month_of = \"dropped\""),
    ("another-field", "picked = \"datetime(UTC)\"", "picked = { type = \"datetime(UTC)\", from = \"dropped\" }"),
    ("another-zone", "name = \"rides\"", "name = \"rides\"\ntimezone = \"Europe/Berlin\""),
    (
        "another-reading",
        "picked = \"datetime(UTC)\"",
        "picked = { type = \"datetime(UTC)\", format = \"%Y-%m-%dT%H:%M:%S%z\" }",
    ),
];

fn define(place: &Place, from: &str, to: &str, more: &str) {
    let text = format!(
        "name = \"rides\"\n{more}\n[source]\nformat = \"csv\"\npath = \"raw/*.csv\"\n[source.columns]\npicked = \"datetime(UTC)\"\n\
         dropped = \"datetime(UTC)\"\namount = \"decimal(9,2)\"\n[partition]\nmonth = {{ month_of = \"picked\" }}\n[measures]\n\
         rides = \"count(*)\"\nrevenue = \"sum(amount)\"\n"
    );
    assert!(text.contains(from), "{text}");
    place.pipeline("rides", &text.replace(from, to));
}

async fn bed(store: Store) -> Place {
    let place = Place::new(store).await;
    fs::create_dir(place.path("raw")).unwrap();
    fs::write(place.path("raw/rides.csv"), RIDE).unwrap();
    define(&place, "", "", "");
    place
}

fn of(months: &[&str]) -> Value {
    json!({"pipeline": "rides", "partitions": months})
}

async fn revenue(server: &Server) -> BTreeMap<String, Value> {
    let listed = server.partitions("rides").await;
    listed.into_iter().map(|(key, entry)| (key, entry["totals"]["revenue"].clone())).collect()
}

fn refused(answer: &super::Answer) -> String {
    let problem = answer.json();
    assert_eq!((answer.status, &problem["type"]), (409, &json!("urn:refrain:problem:layout-changed")), "{problem:#}");
    problem["detail"].as_str().unwrap().to_owned()
}

#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn rows_that_would_be_in_two_partitions_need_a_full_run(#[case] store: Store) {
    let place = bed(store).await;
    let server = place.start().await;
    server.run("first", &of(&["2024-01", "2024-02"])).await;
    let (before, files) = (revenue(&server).await, place.files_of("rides"));
    assert!(server.stop().await.success());
    for (what, from, to) in CHANGES {
        define(&place, from, to, "");
        // Accepted behind a full run that then rebuilds nothing.
        let server = place.start_with(&["--workers", "0"], &[]).await;
        let detail = refused(&server.submit(what, &of(&["2024-02"])).await);
        for part in ["month=2024-01", "no row is in two partitions", "month = month_of", "run mode full once"] {
            assert!(detail.contains(part), "{what}: {detail}");
        }
        let rebuild = server.accept(&format!("{what}/full"), &json!({"pipeline": "rides", "mode": "full"})).await;
        let behind = server.accept(what, &of(&["2024-02"])).await;
        assert_eq!(server.call(Method::POST, &format!("/runs/{rebuild}/cancel"), None, None).await.status, 200);
        assert!(server.stop().await.success());
        let server = place.start().await;
        let run = server.wait(&behind).await;
        assert_eq!(run["error"]["type"], "urn:refrain:problem:partition-columns-changed", "{what}: {run:#}");
        refused(&server.call(Method::POST, &format!("/runs/{behind}/retry"), None, None).await);
        assert_eq!((revenue(&server).await, place.files_of("rides")), (before.clone(), files.clone()), "{what}");
        assert!(server.stop().await.success());
    }
    let (_, from, to) = CHANGES[0];
    define(&place, from, to, "");
    let server = place.start().await;
    let run = server.run("full", &json!({"pipeline": "rides", "mode": "full"})).await;
    assert_eq!(field_of(&run, "outcome")["month=2024-01"], "cleared", "{run:#}");
    server.run("after", &of(&["2024-02"])).await;
    assert_eq!(revenue(&server).await, BTreeMap::from([("month=2024-02".to_owned(), json!("15.00"))]));
}

/// A merge looks before it computes, too.
#[tokio::test(flavor = "multi_thread")]
async fn what_moves_no_row_is_no_change_of_the_layout() {
    let place = bed(Store::Sqlite).await;
    let server = place.start().await;
    server.run("first", &of(&["2024-01", "2024-02"])).await;
    assert!(server.stop().await.success());
    let picked = "picked = \"datetime(UTC)\"";
    for (round, to) in [
        "picked = \"datetime(UTC) not null\"",
        "picked = { type = \"datetime(UTC)\", from = [\"picked\", \"Picked_At\"] }",
        "picked = \"datetime(America/New_York)\"",
    ]
    .into_iter()
    .enumerate()
    {
        define(&place, picked, to, "max_rejected = 0.5");
        let server = place.start().await;
        let run = server.run(&round.to_string(), &of(&["2024-02"])).await;
        assert_eq!(field_of(&run, "outcome")["month=2024-02"], "unchanged", "{run:#}");
        assert!(server.stop().await.success());
    }
    // What the contract calls the column tells nothing of where its values are.
    let file = place.path("pipelines/rides.toml");
    let text = fs::read_to_string(&file).unwrap().replace("picked =", "at =").replace("\"picked\"", "\"at\"");
    let text =
        text.replace("at = \"datetime(America/New_York)\"", "at = { type = \"datetime(UTC)\", from = \"picked\" }");
    fs::write(&file, text).unwrap();
    let server = place.start().await;
    server.run("renamed", &of(&["2024-02"])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_cannot_be_read_is_no_reason_to_go_on() {
    let place = bed(Store::Postgres).await;
    let server = place.start().await;
    server.run("first", &of(&["2024-01", "2024-02"])).await;
    define(&place, "", "", "max_rejected = 0.5");
    assert!(server.stop().await.success());
    let server = place.start_with(&["--workers", "0"], &[]).await;
    let queued = server.accept("second", &of(&["2024-02"])).await;
    assert!(server.stop().await.success());
    let mut database = PgConnection::connect(place.database_url().unwrap()).await.unwrap();
    let old = "update definitions set text = 'language = ' where hash in (select definition from catalog)";
    assert_eq!(sqlx::query(old).execute(&mut database).await.unwrap().rows_affected(), 1);
    let server = place.start().await;
    let run = server.wait(&queued).await;
    let detail = run["error"]["detail"].as_str().unwrap();
    assert!(detail.contains("month=2024-01") && detail.contains("which this version cannot read"), "{run:#}");
    let detail = refused(&server.submit("third", &of(&["2024-02"])).await);
    assert!(detail.contains("which this version cannot read"), "{detail}");
}
