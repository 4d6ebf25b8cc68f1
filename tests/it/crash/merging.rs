//! Merges and crashes: what a run makes depends on what the table was, so each run has a twin that nothing befalls, over the same
//! sources, and both tables must be the same to the byte.

use super::{FLAGS, Input, MONTHS, PART, children_of, made, process_state, staged, stopped, until, write_input};
use crate::service::{Place, Server, Store};
use rstest::rstest;
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};
use std::fs;
use std::path::PathBuf;

/// The table that things happen to, and the one that they do not.
const TABLES: [&str; 2] = [super::TABLE, "twin"];

/// Where the server or its engine is killed, in the order of an attempt's way. Two partitions change, one is kept, one is made
/// anew or is not there.
const STEPS: [&str; 14] = [
    "answering",
    "claimed",
    "scanned",
    "staged-1",
    "staged-2",
    "staged-3",
    "staged",
    "decided",
    "locked",
    "published-1",
    "published-2",
    "published-3",
    "published",
    "finished",
];

fn pipeline(name: &str) -> String {
    format!(
        r#"
name = "{name}"
write = "merge"
key = ["zone", "day"]
sort_by = ["amount"]

[source]
format = "parquet"
path = "raw/*.parquet"

[source.columns]
pickup = "datetime"
zone = "int32"
amount = "decimal(18,2)"

[partition]
pickup_month = {{ month_of = "pickup" }}

[columns]
zone = "zone"
day = {{ truncate = "pickup", to = "day" }}
amount = "amount"

[retry]
service = {{ attempts = 9, delay_seconds = 0 }}
"#
    )
}

/// A batch of its own for each round; the third month has rows in the first alone, the fourth from the second on.
fn batch(round: u32) -> Input {
    [60 + round, 50 + round, if round == 0 { 70 } else { 0 }, 40 * round.min(1) + round]
}

fn body(table: &str) -> Value {
    json!({"pipeline": table, "partitions": MONTHS})
}

/// A place whose two tables have the first batch.
async fn bed(store: Store) -> Place {
    let place = Place::new(store).await;
    for table in TABLES {
        place.pipeline(table, &pipeline(table));
    }
    write_input(&place, batch(0));
    let server = place.start_with(&FLAGS, &[]).await;
    for table in TABLES {
        let run = server.run(&format!("first-{table}"), &body(table)).await;
        assert_eq!(fields(&run, "outcome"), ["created", "created", "created", "empty"]);
        assert_eq!(fields(&run, "base"), ["none"; 4]);
    }
    assert!(server.stop().await.success());
    assert_alike(&place, "at first");
    place
}

fn fields(run: &Value, field: &str) -> Vec<String> {
    let partitions = run["partitions"].as_array().unwrap();
    partitions.iter().map(|p| p[field].as_str().unwrap_or("-").to_owned()).collect()
}

/// The sha256 of each month's file, or `none`.
fn now(place: &Place, table: &str) -> Vec<String> {
    let files = data_files_of(place, table);
    let of = |month: &str| files.get(&format!("pickup_month={month}/{PART}")).cloned();
    MONTHS.iter().map(|month| of(month).unwrap_or_else(|| "none".to_owned())).collect()
}

fn data_files_of(place: &Place, table: &str) -> super::Contents {
    place.files_of(table).into_iter().map(|(path, (bytes, _))| (path, super::sha256_of(&bytes))).collect()
}

fn assert_alike(place: &Place, what: &str) {
    assert_eq!(data_files_of(place, TABLES[0]), data_files_of(place, TABLES[1]), "{what}");
}

/// The twin's run of a round, which nothing befalls.
async fn twin(place: &Place, server: &Server, key: &str) {
    let run = server.run(&format!("{key}-twin"), &body(TABLES[1])).await;
    assert_eq!(run["attempts"].as_array().unwrap().len(), 1, "{run:#}");
    assert_alike(place, key);
}

#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_step_a_merge_is_made_once(#[case] store: Store) {
    let place = bed(store).await;
    // Over Postgres the steps around the decision are enough: before it nothing is of the database, after it is as without merges.
    let steps = if store == Store::Sqlite { &STEPS[..] } else { &["staged", "decided", "published-1", "finished"] };
    for (round, step) in (1..).zip(steps.iter().copied()) {
        write_input(&place, batch(round));
        let (before, twins) = (now(&place, TABLES[0]), now(&place, TABLES[1]));
        let mark = place.path(&format!("struck-{step}"));
        let dying = place.start_with(&FLAGS, &[("REFRAIN_FAULT", &format!("{step}=kill@{}", mark.display()))]).await;
        let _ = dying.submit_to_the_dying(step, &body(TABLES[0])).await;
        let in_engine = step == "scanned" || step.starts_with("staged-");
        let server = if in_engine {
            // Its server lives, and has it computed again.
            made(&mark).await;
            dying
        } else {
            dying.died().await;
            place.start_with(&FLAGS, &[]).await
        };
        let again = server.submit(step, &body(TABLES[0])).await;
        assert_eq!(again.status, 200, "{step}: {again:?}");
        let run = server.wait(&again.run_id()).await;
        assert_eq!(run["state"], "succeeded", "{step}: {run:#}");
        assert_eq!(fields(&run, "base"), before, "{step}");
        assert_eq!(now(&place, TABLES[1]), twins, "{step}");
        twin(&place, &server, step).await;
        let after = now(&place, TABLES[0]);
        let changed: Vec<bool> = before.iter().zip(&after).map(|(before, after)| before != after).collect();
        assert_eq!(changed, [true, true, false, true], "{step}");
        // The same batch once more changes nothing.
        let again = server.run(&format!("{step}-again"), &body(TABLES[0])).await;
        assert_eq!(fields(&again, "outcome"), ["unchanged"; 4], "{step}");
        assert_eq!((fields(&again, "base"), now(&place, TABLES[0])), (after.clone(), after), "{step}");
        server.kill().await;
    }
    assert_eq!(place.verify().await, None);
    let _server = place.start_with(&FLAGS, &[]).await;
    until("staging is swept", || staged(&place).is_empty()).await;
}

/// Two servers: one is stopped before it decides, or before the lock; the other takes its run over, and merges another batch
/// after it. The one that wakes puts neither back.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_zombie_merges_nothing_into_what_came_after_it(#[values("claimed", "staged", "decided")] step: &str) {
    let place = bed(Store::Postgres).await;
    write_input(&place, batch(1));
    let fault = format!("{step}=stop@{}", place.path("struck").display());
    let zombie = place.start_with(&FLAGS, &[("REFRAIN_FAULT", &fault)]).await;
    let id = zombie.accept("second", &body(TABLES[0])).await;
    stopped(&zombie).await;
    let alive = place.start_with(&FLAGS, &[]).await;
    assert_eq!(alive.wait(&id).await["state"], "succeeded");
    twin(&place, &alive, "second").await;
    write_input(&place, batch(2));
    alive.run("third", &body(TABLES[0])).await;
    twin(&place, &alive, "third").await;
    let (files, run) = (place.files_of(TABLES[0]), alive.get(&format!("/runs/{id}")).await.json());
    zombie.signal(Signal::CONT);
    until("the zombie says that its lease is lost", || zombie.log().contains("the lease is lost")).await;
    assert_eq!(place.files_of(TABLES[0]), files);
    assert_eq!(alive.get(&format!("/runs/{id}")).await.json(), run);
    // It merges like any other again.
    assert!(alive.stop().await.success());
    write_input(&place, batch(3));
    zombie.run("fourth", &body(TABLES[0])).await;
    twin(&place, &zombie, "fourth").await;
    assert_eq!(place.verify().await, None);
}

/// The staged files are lost after one partition went live. It is in the catalog then, and the base of what is computed again.
#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn a_merge_whose_staging_is_lost_goes_on_from_what_is_live(#[case] store: Store) {
    let place = bed(store).await;
    write_input(&place, batch(1));
    let before = now(&place, TABLES[0]);
    let server = place.start_with(&FLAGS, &[("REFRAIN_FAULT", "published-1=kill")]).await;
    let _ = server.submit_to_the_dying("second", &body(TABLES[0])).await;
    server.died().await;
    let half = now(&place, TABLES[0]);
    assert_eq!((half[0] != before[0], &half[1..]), (true, &before[1..]), "one is published");
    for file in staged(&place).into_iter().map(PathBuf::from).filter(|path| path.is_file()) {
        fs::remove_file(file).unwrap();
    }
    let server = place.start_with(&FLAGS, &[]).await;
    let id = server.submit("second", &body(TABLES[0])).await.run_id();
    let run = server.wait(&id).await;
    let outcomes: Vec<&Value> = run["attempts"].as_array().unwrap().iter().map(|a| &a["outcome"]).collect();
    assert_eq!(outcomes, ["lost", "staging_lost", "succeeded"], "{run:#}");
    assert_eq!(fields(&run, "outcome"), ["unchanged", "replaced", "unchanged", "created"]);
    assert_eq!(fields(&run, "base"), half);
    twin(&place, &server, "second").await;
    assert_eq!(place.verify().await, None);
}

/// Somebody's hand in the database has let a run of the same partitions through while an attempt of an older one was at work.
/// What was put into the older base is not published over what the other has made.
#[tokio::test(flavor = "multi_thread")]
async fn a_base_that_changed_before_the_decision_is_merged_again() {
    let place = bed(Store::Postgres).await;
    write_input(&place, batch(1));
    let flags = ["--workers", "1", "--lease-seconds", "60"];
    let fault = format!("staged=stop@{}", place.path("struck").display());
    let paused = place.start_with(&flags, &[("REFRAIN_FAULT", &fault)]).await;
    let id = paused.accept("second", &body(TABLES[0])).await;
    stopped(&paused).await;

    let mut database = PgConnection::connect(place.database_url().unwrap()).await.unwrap();
    let held = format!("select claim_token::text as token from runs where id = '{id}'");
    let token: String = sqlx::query(AssertSqlSafe(held)).fetch_one(&mut database).await.unwrap().get("token");
    let mut said = async |statement: String| {
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut database).await.unwrap();
    };
    said(format!(
        "create table kept as select * from reservations where run_id = '{id}';
         update runs set state = 'failed', claim_token = null, lease_until = null, ended_at = now() where id = '{id}'"
    ))
    .await;
    write_input(&place, batch(2));
    let other = place.start_with(&FLAGS, &[]).await;
    other.run("third", &body(TABLES[0])).await;
    twin(&place, &other, "third").await;
    assert!(other.stop().await.success());
    said(format!(
        "update runs set state = 'running', claim_token = '{token}', lease_until = now() + interval '1 minute', ended_at = null
         where id = '{id}';
         insert into reservations select * from kept"
    ))
    .await;

    let between = now(&place, TABLES[0]);
    write_input(&place, batch(1));
    paused.signal(Signal::CONT);
    let run = paused.wait(&id).await;
    assert_eq!(run["state"], "succeeded", "{run:#}");
    let error = &run["attempts"][0]["error"];
    assert_eq!(
        (&error["type"], &error["class"]),
        (&json!("urn:refrain:problem:merge-base-changed"), &json!("service"))
    );
    assert!(error["detail"].as_str().unwrap().contains("partition pickup_month=2024-01 of table trips"), "{run:#}");
    assert_eq!(run["attempts"].as_array().unwrap().len(), 2, "{run:#}");
    assert_eq!(fields(&run, "base"), between);
    twin(&place, &paused, "second").await;
}

/// A backup of the database, and merges after it: what the catalog does not know is not merged over. The way out is one full run.
#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn files_younger_than_the_catalog_are_merged_into_by_nobody(#[case] store: Store) {
    let place = bed(store).await;
    let backup = place.backup().await;
    write_input(&place, batch(1));
    let server = place.start_with(&FLAGS, &[]).await;
    server.run("second", &body(TABLES[0])).await;
    assert!(server.stop().await.success());
    place.restore(&backup).await;
    let files = place.files_of(TABLES[0]);
    let server = place.start_with(&FLAGS, &[]).await;
    for (partition, kind, says) in
        [("2024-01", "merge-base-damaged", "restore the file"), ("2024-04", "merge-base-unknown", "take it away")]
    {
        let body = json!({"pipeline": TABLES[0], "partitions": [partition]});
        let run = server.run_to("failed", partition, &body).await;
        assert_eq!(run["error"]["type"], format!("urn:refrain:problem:{kind}"), "{run:#}");
        let detail = run["error"]["detail"].as_str().unwrap();
        assert!(detail.contains(says) && detail.contains("mode full") && detail.contains(partition), "{detail}");
        assert_eq!(place.files_of(TABLES[0]), files, "nothing is changed");
    }
    let kept = server.run("2024-03", &json!({"pipeline": TABLES[0], "partitions": ["2024-03"]})).await;
    assert_eq!(fields(&kept, "outcome"), ["unchanged"]);
    let full = server.run("full", &json!({"pipeline": TABLES[0], "mode": "full"})).await;
    assert_eq!(fields(&full, "outcome"), ["replaced", "replaced", "cleared", "created"]);
    assert!(full["partitions"].as_array().unwrap().iter().all(|p| p.get("base").is_none()), "{full:#}");
    server.run("after", &body(TABLES[0])).await;
    assert_eq!(place.verify().await, None);
}

/// The warehouse's disk is away when the engine looks for the bases: that is no damage.
#[tokio::test(flavor = "multi_thread")]
async fn bases_on_a_disk_that_is_away_are_waited_for() {
    let place = bed(Store::Sqlite).await;
    write_input(&place, batch(1));
    let fault = format!("scanned=stop@{}", place.path("struck").display());
    let server = place.start_with(&FLAGS, &[("REFRAIN_FAULT", &fault)]).await;
    let id = server.accept("second", &body(TABLES[0])).await;
    let stopped = || children_of(&server).into_iter().find(|engine| process_state(*engine) == Some('T'));
    until("the engine has stopped itself", || stopped().is_some()).await;
    let engine = stopped().unwrap();
    let (table, away) = (place.table(TABLES[0]), place.path("away"));
    fs::rename(place.path("refrain-data/warehouse"), &away).unwrap();
    kill_process(engine, Signal::CONT).unwrap();
    until("the attempt has failed", || server.log().contains("the attempt ended")).await;
    fs::rename(&away, place.path("refrain-data/warehouse")).unwrap();
    let run = server.wait(&id).await;
    assert_eq!(run["state"], "succeeded", "{run:#}");
    assert!(table.exists());
    twin(&place, &server, "second").await;
}
