//! Overlapping runs of the real binary go in their order, or are refused where they are not to wait.

use super::slow::{engines_of, quick_pipeline, slow_pipeline, stopped_engine, stopping};
use super::{Place, Shape, Store, month_of_trips, trips_of, trips_pipeline};
use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

const ROUNDS: u32 = 4;

#[rstest]
#[case::sqlite(Store::Sqlite, 1)]
#[case::two_servers_over_postgres(Store::Postgres, 2)]
#[tokio::test(flavor = "multi_thread")]
async fn overlapping_runs_go_one_after_the_other_in_their_order(#[case] store: Store, #[case] servers: usize) {
    let place = Place::new(store).await;
    place.pipeline("trips", &trips_pipeline("trips", r#""raw/*.parquet""#, "", ""));
    let workers = (4 / servers).to_string();
    let mut running = Vec::new();
    for _ in 0..servers {
        running.push(place.start_with(&["--workers", &workers], &[]).await);
    }
    for round in 1..=ROUNDS {
        let trips = ["2024-01", "2024-02", "2024-03"].map(|month| month_of_trips(month, round * 100)).concat();
        place.source("raw/trips.parquet", trips_of(&trips, Shape::Wide));
        let mut ids = Vec::new();
        for (at, partitions) in [&["2024-01", "2024-02"][..], &["2024-02"], &["2024-02", "2024-03"]].iter().enumerate()
        {
            let body = json!({"pipeline": "trips", "partitions": partitions});
            ids.push(running[at % servers].accept(&format!("{round}/{at}"), &body).await);
        }
        let mut runs = Vec::new();
        for id in &ids {
            runs.push(running[0].wait(id).await);
        }
        for pair in runs.windows(2) {
            assert_eq!(pair[0]["state"], "succeeded", "{pair:#?}");
            assert!(pair[0]["ended_at"].as_str() <= pair[1]["started_at"].as_str(), "{pair:#?}");
        }
        let february = running[0].get("/pipelines/trips/partitions/pickup_month=2024-02").await.json();
        assert_eq!(february["totals"]["trips"], round * 100, "{february:#}");
        let (wrote, confirmed) = (&february["run_id"], &february["confirmed_by"]);
        assert_eq!((wrote, confirmed), (&json!(ids[0]), &json!(ids[2])), "the first wrote, the last found it so");
        assert_eq!(february["history"].as_array().unwrap().len(), round as usize, "{february:#}");
        assert_eq!(february["history"][0]["run_id"], json!(ids[0]), "{february:#}");
    }
}

#[rstest]
#[case::sqlite(Store::Sqlite, 1)]
#[case::two_servers_over_postgres(Store::Postgres, 2)]
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_not_to_wait_is_refused_while_another_is_in_its_way(
    #[case] store: Store,
    #[case] servers: usize,
) {
    let place = Place::new(store).await;
    slow_pipeline(&place, 20, "");
    quick_pipeline(&place);
    let mut running = Vec::new();
    for _ in 0..servers {
        running.push(place.start_with(&["--workers", "3"], &[("REFRAIN_FAULT", &stopping(&place))]).await);
    }
    let not_to_wait = |pipeline: &str, partitions: &[&str]| json!({"pipeline": pipeline, "partitions": partitions, "on_overlap": "refuse"});
    let asked = not_to_wait("slow", &["2024-01", "2024-02"]);
    let keys: Vec<String> = (0..8).map(|n| format!("at-once-{n}")).collect();
    let answers =
        futures::future::join_all(keys.iter().enumerate().map(|(n, key)| running[n % servers].submit(key, &asked)))
            .await;
    let (accepted, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 202);
    assert_eq!((accepted.len(), refused.len()), (1, 7), "{answers:?}");
    let id = accepted[0].run_id();
    for answer in refused {
        let problem = answer.json();
        assert_eq!((answer.status, &problem["run_ids"]), (409, &json!([id])), "{problem:#}");
        assert!(problem["type"].as_str().unwrap().ends_with("overlapping-runs"), "{problem:#}");
        assert!(problem["detail"].as_str().unwrap().contains(&id), "{problem:#}");
    }
    assert_eq!(running[0].get("/runs").await.json()["runs"].as_array().unwrap().len(), 1);

    let server = &running[0];
    // Whichever server's worker has it.
    let mut its = running.iter().find(|server| !engines_of(server).is_empty());
    while its.is_none() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        its = running.iter().find(|server| !engines_of(server).is_empty());
    }
    stopped_engine(its.unwrap()).await;
    assert_eq!(server.submit("march", &not_to_wait("slow", &["2024-03"])).await.status, 202, "it overlaps nothing");
    server.run("quick", &not_to_wait("quick", &["2024-02"])).await;
    let winner = &keys[answers.iter().position(|answer| answer.status == 202).unwrap()];
    let replayed = server.submit(winner, &asked).await;
    assert_eq!((replayed.status, replayed.run_id()), (200, id.clone()), "its own run is not in its way");
    let mut waits = asked.clone();
    waits["on_overlap"] = json!("wait");
    let other = server.submit(winner, &waits).await;
    assert_eq!((other.status, &other.json()["fields"]), (422, &json!(["on_overlap"])), "{other:?}");
    let refused = server.submit("free", &asked).await;
    assert_eq!(refused.status, 409, "{refused:?}");

    let cancelled = server.call(Method::POST, &format!("/runs/{id}/cancel"), None, None).await;
    assert_eq!(cancelled.status, 202, "{cancelled:?}");
    assert_eq!(server.wait(&id).await["state"], "cancelled");
    // The key that was refused is as free as before, for another request too.
    let run: Value = server.run("free", &waits).await;
    let retried = server.call(Method::POST, &format!("/runs/{id}/retry"), None, None).await;
    assert_eq!(retried.status, 202, "nothing is in the way any more: {retried:?} after {run:#}");
}

/// A run waits for its time without being in anybody's way, and takes its place in the order then.
#[rstest]
#[case::sqlite(Store::Sqlite, 1)]
#[case::two_servers_over_postgres(Store::Postgres, 2)]
#[tokio::test(flavor = "multi_thread")]
async fn a_run_begins_when_its_time_has_come(#[case] store: Store, #[case] servers: usize) {
    let place = Place::new(store).await;
    place.pipeline("trips", &trips_pipeline("trips", r#""raw/*.parquet""#, "", ""));
    place.source("raw/trips.parquet", trips_of(&month_of_trips("2024-02", 50), Shape::Wide));
    let mut running = Vec::new();
    for _ in 0..servers {
        running.push(place.start_with(&["--workers", "2"], &[]).await);
    }
    let body = json!({"pipeline": "trips", "partitions": ["2024-02"]});
    let at = |seconds| (chrono::Utc::now() + chrono::TimeDelta::seconds(seconds)).to_rfc3339();
    let waiting =
        |time: &str| json!({"pipeline": "trips", "partitions": ["2024-02"], "not_before": time, "priority": 100});
    let far = running[0].submit("far", &waiting(&at(3600))).await;
    assert_eq!((far.status, far.header("retry-after")), (202, "60"), "{far:?}");
    let (second, first) = (at(3), at(2));
    let second = running[0].accept("second", &waiting(&second)).await;
    let first = running[servers - 1].accept("first", &waiting(&first)).await;
    let now = running[0].run_to("succeeded", "now", &body).await;
    let first = running[0].wait(&first).await;
    let second = running[servers - 1].wait(&second).await;
    for (earlier, later) in [(&now, &first), (&first, &second)] {
        assert!(earlier["ended_at"].as_str() <= later["started_at"].as_str(), "{earlier:#}\n{later:#}");
        let time = |name: &str| chrono::DateTime::parse_from_rfc3339(later[name].as_str().unwrap()).unwrap();
        assert!(time("not_before") <= time("started_at"), "{later:#}");
    }
    let shown = running[0].call(Method::POST, &format!("/runs/{}/cancel", far.run_id()), None, None).await;
    assert_eq!((shown.status, &shown.json()["state"]), (200, &json!("cancelled")), "{shown:?}");
}

/// Marked past the database's triggers as behind a run that has ended: nobody would look at it again.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_nothing_would_let_go_is_freed_by_the_sweeper(
    #[values(Store::Sqlite, Store::Postgres)] store: Store,
) {
    let place = Place::new(store).await;
    quick_pipeline(&place);
    let server = place.start_with(&["--workers", "0"], &[]).await;
    let id = server.accept("stranded", &json!({"pipeline": "quick", "partitions": ["2024-02"]})).await;
    assert!(server.stop().await.success());
    place.execute("update runs set behind = 1000000").await;
    let server = place.start().await;
    assert_eq!(server.wait(&id).await["state"], "succeeded");
    assert!(server.log().contains("queued runs stood behind runs that have ended"), "{}", server.log_tail());
}
