//! `--keep-runs-days`: what ended long ago is forgotten, with its key, and the table stays.

use super::{Place, Server, Store};
use crate::crash::{until, until_async};
use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};
use std::fs;

const PIPELINE: &str = r#"
name = "trips"
max_rejected = 0.3
[source]
format = "csv"
path = "raw/%Y-%m.csv"
[source.columns]
at = "datetime"
zone = "int32"
[partition]
month = { month_of = "at" }
[measures]
trips = "count(*)"
[quarantine]
[retry]
source = { attempts = 1 }
"#;

fn write(place: &Place, month: &str, good: usize, bad: usize) {
    let rows = format!("{month}-01,1\n").repeat(good) + &format!("{month}-01,x\n").repeat(bad);
    fs::create_dir_all(place.path("raw")).unwrap();
    fs::write(place.path(&format!("raw/{month}.csv")), format!("at,zone\n{rows}")).unwrap();
}

fn months(months: &[&str]) -> Value {
    json!({"pipeline": "trips", "partitions": months})
}

/// Makes all that is recorded two days older.
async fn age(place: &Place) {
    let days = if place.database_url().is_some() { "interval '2 days'" } else { "172800000000" };
    place
        .execute(&format!(
            "update runs set created_at = created_at - {days}, started_at = started_at - {days}, ended_at = ended_at - {days};
             update history set committed_at = committed_at - {days}"
        ))
        .await;
}

async fn pruned(server: &Server, runs: u64) {
    let metric = format!("refrain_runs_pruned_total {runs}");
    until_async(&metric, async || server.get("/metrics").await.body.contains(&metric)).await;
}

#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn what_is_old_is_forgotten_and_the_table_stays(#[case] store: Store) {
    let place = Place::new(store).await;
    place.pipeline("trips", PIPELINE);
    write(&place, "2024-01", 10, 2);
    write(&place, "2024-02", 20, 0);
    let server = place.start().await;
    let replaced = server.run("replaced", &months(&["2024-01"])).await;
    let kept_apart = place.path("refrain-data/warehouse").join(replaced["quarantine"]["path"].as_str().unwrap());
    assert!(kept_apart.exists());
    let current = server.run("current", &months(&["2024-02"])).await;
    write(&place, "2024-01", 11, 0);
    let newer = server.run("newer", &months(&["2024-01"])).await;
    let failed = server.run_to("failed", "failed", &months(&["2024-09"])).await;
    let listed = server.partitions("trips").await;
    assert!(server.stop().await.success());
    age(&place).await;

    let server = place.start_with(&["--workers", "1", "--keep-runs-days", "1", "--sweep-seconds", "1"], &[]).await;
    pruned(&server, 2).await;
    assert!(server.log().contains("pruned what ended longer ago than runs are kept"), "{}", server.log_tail());
    let id = |run: &Value| run["id"].as_str().unwrap().to_owned();
    for (run, status) in [(&replaced, 404), (&failed, 404), (&current, 200), (&newer, 200)] {
        assert_eq!(server.get(&format!("/runs/{}", id(run))).await.status, status, "{run:#}");
    }
    assert_eq!(server.call(Method::POST, &format!("/runs/{}/retry", id(&failed)), None, None).await.status, 404);
    assert!(!kept_apart.exists(), "the rows that it kept apart go with it");
    assert_eq!(server.partitions("trips").await, listed);
    let path = "/pipelines/trips/partitions";
    for gone in ["1", "2", "2001-01-01T00:00:00Z"] {
        let answer = server.get(&format!("{path}?as_of={gone}")).await;
        assert_eq!((answer.status, &answer.json()["oldest_version"]), (410, &json!(3)), "{gone}: {answer:?}");
    }
    assert_eq!(
        server.get(&format!("{path}?as_of={}", id(&current))).await.status,
        410,
        "it is there, its version is not"
    );
    for kept in ["3", &id(&newer)] {
        let answer = server.get(&format!("{path}?as_of={kept}")).await.json();
        assert_eq!(answer["partitions"].as_array().unwrap().len(), 2, "{answer:#}");
    }
    // A key lives as long as its run: the same request is a new one, and comes to what is there already.
    assert_eq!(server.submit("current", &months(&["2024-02"])).await.status, 200);
    let again = server.run("replaced", &months(&["2024-01"])).await;
    assert_eq!((&again["partitions"][0]["outcome"], id(&again) == id(&replaced)), (&json!("unchanged"), false));
    assert_eq!(place.verify().await, None);
}

/// Two servers at once, over runs of which each has an attempt's staging and rows kept apart.
#[tokio::test(flavor = "multi_thread")]
async fn servers_prune_beside_each_other_and_beside_runs() {
    let place = Place::new(Store::Postgres).await;
    place.pipeline("trips", PIPELINE);
    let server = place.start().await;
    for n in 0..12 {
        write(&place, "2024-01", 20 + n, 1);
        server.run(&format!("run-{n}"), &months(&["2024-01"])).await;
    }
    age(&place).await;
    let flags = ["--workers", "1", "--keep-runs-days", "1", "--sweep-seconds", "1"];
    let (one, two) = tokio::join!(place.start_with(&flags, &[]), place.start_with(&flags, &[]));
    for n in 12..18 {
        write(&place, "2024-01", 20 + n, 1);
        let run = server.run(&format!("run-{n}"), &months(&["2024-01"])).await;
        assert_eq!(run["partitions"][0]["outcome"], "replaced");
    }
    let folder = place.path("refrain-data/warehouse/_quarantine/trips");
    until("the rows that old runs kept apart are gone", || fs::read_dir(&folder).unwrap().count() == 7).await;
    until_async("old runs are gone", async || {
        let runs = server.get("/runs?limit=100").await.json()["runs"].as_array().unwrap().len();
        runs == 7
    })
    .await;
    let count = async |server: &Server| {
        let metrics = server.get("/metrics").await.body;
        let line = metrics.lines().find_map(|line| line.strip_prefix("refrain_runs_pruned_total "));
        line.map_or(0, |count| count.parse::<u64>().unwrap())
    };
    assert_eq!(count(&one).await + count(&two).await, 11, "each is counted once; the last one made what was there");
    assert_eq!(place.verify().await, None);
}
