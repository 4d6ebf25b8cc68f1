//! docs/backup.md: its commands, and what it says of a restore of both, and of one without the other.

use super::{Place, Server, Store};
use rstest::rstest;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PAGE: &str = include_str!("../../../docs/backup.md");
const PIPELINE: &str = r#"
name = "trips"
[source]
format = "csv"
path = "raw/%Y-%m.csv"
[source.columns]
at = "datetime"
[partition]
month = { month_of = "at" }
[measures]
trips = "count(*)"
"#;

/// The commands of the page under this mark.
fn commands(mark: &str) -> &'static str {
    let mark = format!("<!-- {mark} -->\n```sh\n");
    let from = PAGE.find(&mark).unwrap_or_else(|| panic!("the page has no {mark}")) + mark.len();
    PAGE[from..].split("```").next().unwrap()
}

/// Runs commands of the page as an operator does.
fn run(place: &Place, mark: &str) {
    let (data, backup) = (place.path("refrain-data"), place.path("backup"));
    fs::create_dir_all(&backup).unwrap();
    let binary = Path::new(env!("CARGO_BIN_EXE_refrain")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("bash");
    shell.args(["-euo", "pipefail", "-c", commands(mark)]).env("PATH", path);
    shell.env("WAREHOUSE", data.join("warehouse")).env("DATA", data).env("BACKUP", backup);
    if let Some(url) = place.database_url() {
        let (server, name) = url.rsplit_once('/').unwrap();
        shell.env("REFRAIN_DATABASE_URL", url).env("ADMIN_URL", format!("{server}/postgres")).env("DATABASE", name);
    }
    let said = shell.output().unwrap();
    assert!(said.status.success(), "{mark}: {said:?}");
}

fn database(place: &Place, verb: &str) -> String {
    format!("{verb} {}", if place.database_url().is_some() { "postgres" } else { "sqlite" })
}

fn write(place: &Place, month: &str, trips: usize) {
    fs::create_dir_all(place.path("raw")).unwrap();
    let rows = format!("{month}-01\n").repeat(trips);
    fs::write(place.path(&format!("raw/{month}.csv")), format!("at\n{rows}")).unwrap();
}

fn months(months: &[&str]) -> Value {
    json!({"pipeline": "trips", "partitions": months})
}

fn trips(listed: &BTreeMap<String, Value>) -> Vec<(&str, u64)> {
    listed.iter().map(|(key, entry)| (key.as_str(), entry["totals"]["trips"].as_u64().unwrap())).collect()
}

/// The content of each file.
fn bytes(place: &Place) -> BTreeMap<String, Vec<u8>> {
    place.files_of("trips").into_iter().map(|(path, (bytes, _))| (path, bytes)).collect()
}

const AFTER: [(&str, u64); 3] = [("month=2024-01", 12), ("month=2024-02", 21), ("month=2024-03", 30)];

/// A service that was backed up, the database before a run and the files after it, and has gone on since.
async fn backed_up(store: Store) -> Place {
    let place = Place::new(store).await;
    place.pipeline("trips", PIPELINE);
    write(&place, "2024-01", 10);
    write(&place, "2024-02", 20);
    write(&place, "2024-03", 30);
    let server = place.start().await;
    server.run("before", &months(&["2024-01", "2024-02"])).await;
    run(&place, &database(&place, "backup"));
    write(&place, "2024-02", 21);
    server.run("between", &months(&["2024-02", "2024-03"])).await;
    run(&place, "backup files");
    write(&place, "2024-01", 12);
    server.run("after", &months(&["2024-01"])).await;
    assert_eq!(trips(&server.partitions("trips").await), AFTER);
    assert!(server.stop().await.success());
    assert_eq!(place.verify().await, None);
    place
}

/// What `refrain verify` finds, by kind.
async fn found(place: &Place) -> Vec<(String, String)> {
    let said = place.verify_with(&["--json"]).await;
    let said: Value = serde_json::from_slice(&said.stdout).unwrap();
    let of = |finding: &Value, name: &str| finding[name].as_str().unwrap_or_default().to_owned();
    said["findings"].as_array().unwrap().iter().map(|f| (of(f, "kind"), of(f, "partition"))).collect()
}

fn findings(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(kind, month)| ((*kind).to_owned(), format!("month={month}"))).collect()
}

/// Sends again what came after the backup; it is new, and comes to the same bytes.
async fn sent_again(server: &Server, place: &Place) {
    let newer: Vec<_> =
        bytes(place).into_iter().filter(|(path, _)| path.contains("2024-02") || path.contains("2024-03")).collect();
    server.run("between", &months(&["2024-02", "2024-03"])).await;
    server.run("after", &months(&["2024-01"])).await;
    assert_eq!(trips(&server.partitions("trips").await), AFTER);
    let now = bytes(place);
    assert!(
        newer.iter().all(|(path, then)| &now[path] == then),
        "what was there before its run was known is made anew to the byte"
    );
}

#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn both_are_restored(#[case] store: Store) {
    let place = backed_up(store).await;
    run(&place, &database(&place, "restore"));
    run(&place, "restore files");
    assert_eq!(found(&place).await, findings(&[("changed", "2024-02"), ("unknown", "2024-03")]));
    let server = place.start().await;
    assert_eq!(trips(&server.partitions("trips").await), [("month=2024-01", 10), ("month=2024-02", 20)]);
    assert_eq!(server.submit("before", &months(&["2024-01", "2024-02"])).await.status, 200, "its key is known");
    sent_again(&server, &place).await;
    assert_eq!(place.verify().await, None);
}

#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn the_database_alone_is_restored(#[case] store: Store) {
    let place = backed_up(store).await;
    run(&place, &database(&place, "restore"));
    let expected = findings(&[("changed", "2024-01"), ("changed", "2024-02"), ("unknown", "2024-03")]);
    assert_eq!(found(&place).await, expected);
    let server = place.start().await;
    sent_again(&server, &place).await;
    assert_eq!(place.verify().await, None);
}

#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn the_files_alone_are_restored(#[case] store: Store) {
    let place = backed_up(store).await;
    run(&place, "restore files");
    assert_eq!(found(&place).await, findings(&[("changed", "2024-01")]));
    let server = place.start().await;
    let again = server.submit("after", &months(&["2024-01"])).await;
    assert_eq!(again.status, 200, "the database has its key: {again:?}");
    assert_eq!(found(&place).await, findings(&[("changed", "2024-01")]), "and a replay mends nothing");
    let fixed = place.verify_with(&["--fix", "--json", "--url", server.url()]).await;
    assert_eq!(fixed.status.code(), Some(3), "{fixed:?}");
    let said: Value = serde_json::from_slice(&fixed.stdout).unwrap();
    let run = server.wait(said["findings"][0]["fix"]["run_id"].as_str().unwrap_or_else(|| panic!("{said:#}"))).await;
    assert_eq!(run["state"], "succeeded", "{run:#}");
    assert_eq!(place.verify().await, None);
    assert_eq!(trips(&server.partitions("trips").await), AFTER);
}

/// A copy over a copied warehouse is a service of its own; over the original's, nothing refuses it, and `verify` tells.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_needs_a_warehouse_of_its_own() {
    let place = backed_up(Store::Sqlite).await;
    let backup = place.path("backup");
    let of_backup = |warehouse: PathBuf| {
        [("--data-dir", backup.clone()), ("--warehouse", warehouse)]
            .map(|(flag, path)| format!("{flag}={}", path.display()))
    };
    let before = bytes(&place);
    let flags = of_backup(backup.join("warehouse"));
    let copy = place.start_with_folders(&flags.each_ref().map(String::as_str)).await;
    write(&place, "2024-01", 99);
    copy.run("rehearsal", &months(&["2024-01"])).await;
    assert!(copy.stop().await.success());
    assert_eq!((bytes(&place), place.verify().await), (before, None), "the original is as it was");

    let original = place.start().await;
    let flags = of_backup(place.path("refrain-data/warehouse"));
    let copy = place.start_with_folders(&flags.each_ref().map(String::as_str)).await;
    copy.run("beside", &months(&["2024-01"])).await;
    assert_eq!(found(&place).await, findings(&[("changed", "2024-01")]));
    assert_eq!(trips(&original.partitions("trips").await), AFTER);
}

#[tokio::test]
async fn a_backup_takes_no_others_place() {
    let place = backed_up(Store::Sqlite).await;
    let backup = place.path("backup");
    let again = place.verb(&["backup", "--to", backup.to_str().unwrap()]).await;
    assert!(String::from_utf8_lossy(&again.stderr).contains("is there already"), "{again:?}");
    // What one that was killed has left is no backup.
    fs::rename(backup.join("refrain.db"), backup.join("refrain.db.new")).unwrap();
    fs::write(backup.join("refrain.db.new"), "half of it").unwrap();
    assert!(place.verb(&["backup", "--to", backup.to_str().unwrap()]).await.status.success());
    assert!(backup.join("refrain.db").exists() && !backup.join("refrain.db.new").exists());
    let none =
        place.verb(&["backup", "--to", backup.to_str().unwrap(), "--database-url", "postgres://127.0.0.1/x"]).await;
    assert!(String::from_utf8_lossy(&none.stderr).contains("pg_dump"), "{none:?}");
}
