//! From one version to the next: a database that the version before left, and a database that a later one has brought along.
//!
//! The folders of fixtures are what `tests/upgrade/make` made with the binary of that version, named after its last migration.

mod beside;
mod locks;

use crate::service::{Place, Server, Store};
use rstest::rstest;
use serde_json::{Value, json};
use sqlx::migrate::Migrator;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The last migration of the version before.
const BEFORE: i64 = 8;
/// The number of the run `decided` there.
const DECIDED: i64 = 7;
/// Leases are short, so that what was held is taken over at once.
const FLAGS: [&str; 4] = ["--workers", "2", "--lease-seconds", "1"];

/// Minutes from now on, as SQLite and as Postgres say it.
fn minutes(store: Store, from_now: i64) -> String {
    match store {
        Store::Sqlite => format!("(unixepoch() + {from_now} * 60) * 1000000"),
        Store::Postgres => format!("now() + interval '{from_now} minutes'"),
    }
}

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn fixture(path: &str) -> PathBuf {
    root("tests/it/upgrade").join(format!("{BEFORE:04}")).join(path)
}

/// What the version before answered.
fn said() -> Value {
    serde_json::from_str(&fs::read_to_string(fixture("answers.json")).unwrap()).unwrap()
}

fn copy_folder(from: &Path, to: &Path) {
    for entry in walkdir::WalkDir::new(from) {
        let entry = entry.unwrap();
        let to = to.join(entry.path().strip_prefix(from).unwrap());
        match entry.file_type().is_dir() {
            true => fs::create_dir_all(to).unwrap(),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

/// Puts something for each `{mark:number}`.
fn fill(text: &str, mark: &str, with: impl Fn(&str) -> String) -> String {
    let mark = format!("{{{mark}:");
    let mut parts = text.split(&mark);
    let mut filled = parts.next().unwrap().to_owned();
    for part in parts {
        let (number, rest) = part.split_once('}').unwrap();
        filled += &with(number);
        filled += rest;
    }
    filled
}

/// The rows of the fixture, with the leases over, what is due due, and what was put off still to come.
fn rows(store: Store) -> String {
    let text = fs::read_to_string(fixture("database.sql")).unwrap();
    let text = match store {
        Store::Sqlite => {
            let text = fill(&text, "time", str::to_owned);
            let text = fill(&text, "flag", str::to_owned);
            fill(&text, "sequence", |n| format!("update run_sequence set last = {n}"))
        }
        Store::Postgres => {
            let text = fill(&text, "time", |n| format!("timestamptz 'epoch' + interval '{n} microseconds'"));
            let text = fill(&text, "flag", |n| (n == "1").to_string());
            fill(&text, "sequence", |n| format!("select setval('run_sequence', {n})"))
        }
    };
    let (past, future) = (minutes(store, -1), minutes(store, 600));
    format!(
        "{text}
        update runs set lease_until = {past} where lease_until is not null;
        update runs set due_at = {past} where state = 'queued';
        update runs set due_at = {future} where idempotency_key = 'far';"
    )
}

/// What the version before left.
async fn left_behind(store: Store) -> Place {
    let place = Place::new(store).await;
    for part in ["raw", "pipelines"] {
        copy_folder(&fixture(part), &place.path(part));
    }
    copy_folder(&fixture("warehouse"), &place.path("refrain-data/warehouse"));
    let rows = AssertSqlSafe(rows(store));
    match place.database_url() {
        None => {
            let path = SqliteConnectOptions::new().filename(place.path("refrain-data/refrain.db"));
            let mut database = SqliteConnection::connect_with(&path.create_if_missing(true)).await.unwrap();
            let migrator = Migrator::new(root("migrations/sqlite")).await.unwrap();
            migrator.run_to(BEFORE, &mut database).await.unwrap();
            sqlx::raw_sql(rows).execute(&mut database).await.unwrap();
            database.close().await.unwrap();
        }
        Some(url) => {
            let mut database = PgConnection::connect(url).await.unwrap();
            let migrator = Migrator::new(root("migrations/postgres")).await.unwrap();
            migrator.run_to(BEFORE, &mut database).await.unwrap();
            sqlx::raw_sql(rows).execute(&mut database).await.unwrap();
            database.close().await.unwrap();
        }
    }
    place
}

/// Whether all that was said is said still; more may be.
fn assert_still(now: &Value, then: &Value, of: &str) {
    match (now, then) {
        (Value::Object(now), Value::Object(then)) => {
            for (name, then) in then {
                let now = now.get(name).unwrap_or_else(|| panic!("{of}: {name} is not told any more"));
                assert_still(now, then, &format!("{of}/{name}"));
            }
        }
        (Value::Array(now), Value::Array(then)) if now.len() == then.len() => {
            for (n, (now, then)) in now.iter().zip(then).enumerate() {
                assert_still(now, then, &format!("{of}/{n}"));
            }
        }
        _ => assert_eq!(now, then, "{of}"),
    }
}

/// The old keys show the old runs.
async fn assert_replayed(server: &Server, said: &Value) {
    for (key, asked) in said["keys"].as_object().unwrap() {
        let answer = server.submit(key, &asked["body"]).await;
        assert_eq!(answer.status, 200, "{key}: {answer:?}");
        assert_eq!(
            (answer.header("idempotent-replayed"), answer.run_id()),
            ("true", asked["id"].as_str().unwrap().to_owned())
        );
    }
}

/// Who stands behind another run, by its key, and that one's number.
async fn standing(place: &Place) -> Vec<(String, i64)> {
    let query = "select idempotency_key, behind from runs where behind is not null";
    match place.database_url() {
        None => {
            let path = SqliteConnectOptions::new().filename(place.path("refrain-data/refrain.db"));
            let mut database = SqliteConnection::connect_with(&path).await.unwrap();
            sqlx::query_as(query).fetch_all(&mut database).await.unwrap()
        }
        Some(url) => {
            let mut database = PgConnection::connect(url).await.unwrap();
            sqlx::query_as(query).fetch_all(&mut database).await.unwrap()
        }
    }
}

/// Waits for what was in the queue.
async fn assert_worked_off(server: &Server, said: &Value) {
    for (key, outcomes) in [
        ("decided", vec!["lost", "succeeded"]),
        ("running", vec!["lost", "succeeded"]),
        ("waits", vec!["succeeded"]),
        ("urgent", vec!["succeeded"]),
        ("soon", vec!["succeeded"]),
    ] {
        let run = server.wait(said["keys"][key]["id"].as_str().unwrap()).await;
        let attempts: Vec<&str> =
            run["attempts"].as_array().unwrap().iter().filter_map(|a| a["outcome"].as_str()).collect();
        assert_eq!((&run["state"], attempts), (&json!("succeeded"), outcomes), "{key}: {run:#}\n{}", server.log_tail());
    }
}

fn trips(listed: &BTreeMap<String, Value>) -> Vec<(&str, u64)> {
    listed.iter().map(|(key, entry)| (key.as_str(), entry["totals"]["trips"].as_u64().unwrap())).collect()
}

/// What the version before left in every state: told as before, worked off, and under the same keys.
#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn what_the_version_before_left_goes_on(#[case] store: Store) {
    let (place, said) = (left_behind(store).await, said());
    let server = place.start_with(&["--workers", "0"], &[]).await;
    assert_eq!(
        standing(&place).await,
        [("waits".to_owned(), DECIDED)],
        "it waits for a partition that `decided` holds"
    );
    for (path, then) in said["answers"].as_object().unwrap() {
        assert_still(&server.get(path).await.json(), then, path);
    }
    for (key, asked) in said["keys"].as_object().unwrap() {
        let mut then = asked["run"].clone();
        if ["soon", "far"].contains(&key.as_str()) {
            // The test has moved their times.
            then.as_object_mut().unwrap().remove("next_attempt_at");
        }
        assert_still(&server.get(&format!("/runs/{}", asked["id"].as_str().unwrap())).await.json(), &then, key);
    }
    assert_replayed(&server, &said).await;
    assert!(server.stop().await.success());

    let server = place.start_with(&FLAGS, &[]).await;
    assert_worked_off(&server, &said).await;
    assert_eq!(
        trips(&server.partitions("trips").await),
        [
            ("pickup_month=2024-01", 11),
            ("pickup_month=2024-02", 22),
            ("pickup_month=2024-03", 33),
            ("pickup_month=2024-05", 50)
        ]
    );
    let then = said["answers"].as_object().unwrap().iter().filter(|(path, _)| path.contains("as_of="));
    for (path, then) in then {
        let mut now = server.get(path).await.json();
        // Who confirms an entry is no part of a version.
        for (now, then) in
            now["partitions"].as_array_mut().unwrap().iter_mut().zip(then["partitions"].as_array().unwrap())
        {
            now["confirmed_by"] = then["confirmed_by"].clone();
        }
        assert_still(&now, then, path);
    }
    let far = server.get(&format!("/runs/{}", said["keys"]["far"]["id"].as_str().unwrap())).await.json();
    assert_eq!(far["state"], "queued", "{far:#}");
    assert_replayed(&server, &said).await;
    let again =
        server.run("of-this-version", &json!({"pipeline": "trips", "partitions": ["2024-01", "2024-05"]})).await;
    assert_eq!(again["partitions"][0]["outcome"], "unchanged", "{again:#}");
    assert!(server.stop().await.success());
    assert_eq!(place.verify().await, None);
}

/// Two servers that start at once, over a database that is empty and over one of the version before.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn of_two_servers_that_start_at_once_one_brings_the_database_along(#[values(true, false)] is_new: bool) {
    let place = if is_new { Place::new(Store::Postgres).await } else { left_behind(Store::Postgres).await };
    if is_new {
        for part in ["raw", "pipelines"] {
            copy_folder(&fixture(part), &place.path(part));
        }
    }
    let (one, two) = tokio::join!(place.start_with(&FLAGS, &[]), place.start_with(&FLAGS, &[]));
    if !is_new {
        assert_worked_off(&two, &said()).await;
    }
    let body = json!({"pipeline": "trips", "partitions": ["2024-01", "2024-02"]});
    one.run("one", &body).await;
    two.run("two", &body).await;
    assert_eq!(place.verify().await, None);
}
