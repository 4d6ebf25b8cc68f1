//! `write = "merge"`, as somebody who sends requests sees it.

use super::{Place, Server, Store, field_of};
use rstest::rstest;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;

const EVENTS: &str = include_str!("../../../README.md");

/// The pipeline file that README shows.
fn shown() -> &'static str {
    let from = EVENTS.find("name = \"events\"").unwrap();
    EVENTS[from..].split("```").next().unwrap()
}

/// A batch of lines such as `5 2024-03-01 open`: id, day and status.
fn batch(place: &Place, lines: &[&str]) {
    let event = |line: &&str| {
        let words: Vec<&str> = line.split(' ').collect();
        let (id, at, status) = (words[0].parse::<i64>().unwrap(), format!("{}T12:00:00Z", words[1]), words[2]);
        format!("{}\n", json!({"event_id": id, "created_at": at, "status": status}))
    };
    fs::create_dir_all(place.path("inbox")).unwrap();
    fs::write(place.path("inbox/batch.ndjson"), lines.iter().map(event).collect::<String>()).unwrap();
}

fn days(days: &[&str]) -> Value {
    json!({"pipeline": "events", "partitions": days})
}

/// Rows by partition, as the interface lists them.
async fn listed(server: &Server) -> BTreeMap<String, u64> {
    let listed = server.partitions("events").await;
    listed.into_iter().map(|(key, entry)| (key, entry["rows"].as_u64().unwrap())).collect()
}

fn fields<'a>(run: &Value, keys: &[&'a str], field: &str) -> Vec<(&'a str, Value)> {
    let found = field_of(run, field);
    keys.iter().map(|key| (*key, found[&format!("event_date={key}")].clone())).collect()
}

#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn batches_are_put_in_by_key(#[case] store: Store) {
    let place = Place::new(store).await;
    place.pipeline("events", shown());
    let server = place.start().await;
    let both = ["2024-03-01", "2024-03-02"];
    batch(&place, &["1 2024-03-01 open", "2 2024-03-01 open", "3 2024-03-02 open"]);
    let first = server.run("batch-1", &days(&both)).await;
    assert_eq!(fields(&first, &both, "outcome"), both.map(|day| (day, json!("created"))));
    assert_eq!(fields(&first, &both, "base"), both.map(|day| (day, json!("none"))));
    let after_first = place.files_of("events");

    // One is new, one is another by now, one comes twice; the second day has nothing new, the third was never there.
    let three = ["2024-03-01", "2024-03-02", "2024-03-03"];
    batch(&place, &["2 2024-03-01 closed", "4 2024-03-01 open", "4 2024-03-01 open", "9 2024-04-01 elsewhere"]);
    let second = server.run("batch-2", &days(&three)).await;
    let outcomes = ["replaced", "unchanged", "empty"];
    assert_eq!(fields(&second, &three, "outcome"), [0, 1, 2].map(|at| (three[at], json!(outcomes[at]))));
    let bases = field_of(&first, "sha256");
    let of = |day: &str| bases.get(&format!("event_date={day}")).cloned().unwrap_or(json!("none"));
    assert_eq!(fields(&second, &three, "base"), three.map(|day| (day, of(day))));
    assert_eq!(fields(&second, &both, "source_rows"), [("2024-03-01", json!(3)), ("2024-03-02", json!(0))]);
    assert_eq!(second["rows"]["out_of_scope"], 1);
    let expected = BTreeMap::from([("event_date=2024-03-01".to_owned(), 3), ("event_date=2024-03-02".to_owned(), 1)]);
    assert_eq!(listed(&server).await, expected);
    let files = place.files_of("events");
    let kept = "event_date=2024-03-02/part-0.parquet";
    assert_eq!(files[kept], after_first[kept], "not even its time has changed");

    // Sent again it is the same run, and run again it changes nothing.
    assert_eq!(server.submit("batch-2", &days(&three)).await.run_id(), second["id"].as_str().unwrap());
    let version = server.get("/pipelines/events/partitions").await.json()["version"].clone();
    let again = server.run("batch-2-again", &days(&three)).await;
    assert_eq!(fields(&again, &both, "outcome"), both.map(|day| (day, json!("unchanged"))));
    assert_eq!(place.files_of("events"), files);
    assert_eq!(server.get("/pipelines/events/partitions").await.json()["version"], version);

    // Nothing at all clears nothing.
    batch(&place, &["9 2024-04-01 elsewhere"]);
    let empty = server.run("batch-3", &days(&both)).await;
    assert_eq!(fields(&empty, &both, "outcome"), both.map(|day| (day, json!("unchanged"))));
    assert_eq!((place.files_of("events"), listed(&server).await), (files, expected));

    let shown = server.get("/pipelines/events").await.json();
    assert_eq!(shown["rows"]["merge"], json!({"key": ["event_id"], "on_conflict": "replace"}));

    // A full run makes it of the sources alone.
    let full = server.run("full", &json!({"pipeline": "events", "mode": "full"})).await;
    let warned = full["warnings"].to_string();
    assert!(warned.contains("merged-rows-removed") && warned.contains("2 partitions of a merged table"), "{full:#}");
    assert_eq!(full["partitions"].as_array().unwrap().iter().map(|p| p.get("base")).collect::<Vec<_>>(), [None; 3]);
    assert_eq!(listed(&server).await, BTreeMap::from([("event_date=2024-04-01".to_owned(), 1)]));
    assert_eq!(place.verify().await, None);
}

/// What was merged cannot be made again from the sources: `verify --fix` says so and what can be done, and does it not.
#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn what_is_damaged_is_not_mended_by_merging(#[case] store: Store) {
    let place = Place::new(store).await;
    place.pipeline("events", shown());
    batch(&place, &["1 2024-03-01 open", "3 2024-03-02 open", "5 2024-03-03 open"]);
    let server = place.start().await;
    server.run("batch-1", &days(&["2024-03-01", "2024-03-02", "2024-03-03"])).await;
    let file = |day: &str| place.table("events").join(format!("event_date={day}/part-0.parquet"));
    let whole = ["2024-03-01", "2024-03-02"].map(|day| fs::read(file(day)).unwrap());
    fs::remove_file(file("2024-03-01")).unwrap();
    fs::write(file("2024-03-02"), &whole[0]).unwrap();
    fs::write(file("2024-03-03"), &whole[0][..20]).unwrap();
    fs::create_dir(place.table("events").join("event_date=2024-02-29")).unwrap();
    fs::write(file("2024-02-29"), &whole[0]).unwrap();
    let fixed = place.verify_with(&["--fix", "--json", "--url", server.url()]).await;
    assert_eq!(fixed.status.code(), Some(1), "{fixed:?}");
    let findings = serde_json::from_slice::<Value>(&fixed.stdout).unwrap()["findings"].as_array().unwrap().clone();
    assert_eq!(findings.len(), 4, "{findings:#?}");
    for found in findings {
        let why = found["fix"]["left_alone"].as_str().unwrap_or_else(|| panic!("{found:#}"));
        let says = if found["kind"] == "unknown" { "none merges into it: take it away" } else { "restore the file" };
        assert!(why.contains(says) && why.contains("mode full"), "{why}");
    }
    assert_eq!(server.get("/runs").await.json()["runs"].as_array().unwrap().len(), 1, "no run is queued");
    // One of the two ways out, and the other.
    fs::write(file("2024-03-01"), &whole[0]).unwrap();
    let restored = server.run("again", &days(&["2024-03-01"])).await;
    assert_eq!(fields(&restored, &["2024-03-01"], "outcome"), [("2024-03-01", json!("unchanged"))]);
    server.run("full", &json!({"pipeline": "events", "mode": "full"})).await;
    assert_eq!(fs::read(file("2024-03-02")).unwrap(), whole[1]);
    assert_eq!(place.verify().await, None);
}
