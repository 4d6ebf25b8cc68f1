//! Workers that are stopped for longer than their lease and wake up when their run is another's, or long done.

use super::{
    FLAGS, LATER, NEW, TABLE, assert_well, catalogued, full, live, overwrite, place, stopped, until, write_input,
};
use crate::service::{Place, Server, Store};
use rstest::rstest;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// What a worker logs that finds that its run is another's.
const LOST: &str = "the lease is lost";

/// A table with the old content, the new input before it, and a server that will be stopped at a step.
async fn with_a_server_stopped_at(step: &str, body: &Value) -> (Place, Server, String) {
    let place = place(Store::Postgres).await;
    let server = place.start_with(&FLAGS, &[]).await;
    server.run("first", &full()).await;
    assert!(server.stop().await.success());
    write_input(&place, NEW);
    let server = stopping_at(&place, step).await;
    let id = server.accept("second", body).await;
    stopped(&server).await;
    (place, server, id)
}

async fn stopping_at(place: &Place, step: &str) -> Server {
    let fault = format!("{step}=stop@{}", place.path(&format!("struck-{step}")).display());
    place.start_with(&FLAGS, &[("REFRAIN_FAULT", &fault)]).await
}

async fn run_of(server: &Server, id: &str) -> Value {
    server.get(&format!("/runs/{id}")).await.json()
}

/// Wakes stopped servers, whose run has ended since, and a later one after it: they change nothing.
async fn wake_in_vain(place: &Place, zombies: &[&Server], alive: &Server, runs: &[&str]) {
    let files = place.files_of(TABLE);
    let mut said = Vec::new();
    for id in runs {
        said.push(run_of(alive, id).await);
    }
    let listed = alive.partitions(TABLE).await;
    for zombie in zombies {
        assert!(!zombie.log().contains(LOST), "it is stopped");
        zombie.signal(Signal::CONT);
    }
    for zombie in zombies {
        until("the zombie says that its lease is lost", || zombie.log().contains(LOST)).await;
    }
    // A later run by anybody, of which the zombie hears too: what it does on its own account is over by then.
    assert_eq!(place.files_of(TABLE), files, "not a byte and not a time of a file has changed");
    assert_eq!(alive.partitions(TABLE).await, listed);
    for (id, before) in runs.iter().zip(said) {
        assert_eq!(run_of(alive, id).await, before, "the zombie changed nothing in the database");
    }
    assert_well(place).await;
    for zombie in zombies {
        assert_eq!(zombie.get("/readyz").await.status, 200, "it is a worker like any other again");
        assert!(!zombie.log().contains("succeeded"), "the zombie says that it finished the run");
    }
    assert_eq!(place.files_of(TABLE), files);
}

/// Stopped before deciding, and between deciding and the publish lock: another takes over, a later run rewrites the
/// same partitions from other sources, and then the first wakes up.
#[rstest]
#[case::before_deciding("staged")]
#[case::between_deciding_and_the_lock("decided")]
#[tokio::test(flavor = "multi_thread")]
async fn a_zombie_outside_the_lock_changes_nothing(#[case] step: &str, #[values(true, false)] full_run: bool) {
    let body = if full_run { full() } else { overwrite() };
    let (place, zombie, second) = with_a_server_stopped_at(step, &body).await;
    let alive = place.start_with(&FLAGS, &[]).await;
    let run = alive.wait(&second).await;
    assert_eq!(run["state"], "succeeded", "{run:#}");
    let outcomes: Vec<&Value> = run["attempts"].as_array().unwrap().iter().map(|a| &a["outcome"]).collect();
    assert_eq!(outcomes, ["lost", "succeeded"]);
    let became: Vec<&Value> = run["partitions"].as_array().unwrap().iter().map(|p| &p["outcome"]).collect();
    assert_eq!(became, ["replaced", "cleared", "unchanged", "created"], "all four kinds are among the decisions");
    write_input(&place, LATER);
    let later = alive.run("later", &body).await;
    wake_in_vain(&place, &[&zombie], &alive, &[&second, later["id"].as_str().unwrap()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_takeovers_one_after_the_other_leave_two_zombies_that_change_nothing() {
    let (place, first, second_run) = with_a_server_stopped_at("staged", &full()).await;
    let second = stopping_at(&place, "decided").await;
    stopped(&second).await;
    let alive = place.start_with(&FLAGS, &[]).await;
    let run = alive.wait(&second_run).await;
    let outcomes: Vec<&Value> = run["attempts"].as_array().unwrap().iter().map(|a| &a["outcome"]).collect();
    assert_eq!(outcomes, ["lost", "lost", "succeeded"]);
    write_input(&place, LATER);
    let later = alive.run("later", &full()).await;
    wake_in_vain(&place, &[&first, &second], &alive, &[&second_run, later["id"].as_str().unwrap()]).await;
}

/// Stopped inside the lock, between two moves: its table waits, and says for whom. It is waked or killed, and all ends right.
#[rstest]
#[case::waked(Signal::CONT)]
#[case::killed(Signal::KILL)]
#[tokio::test(flavor = "multi_thread")]
async fn a_zombie_inside_the_lock_holds_up_its_table_only_as_long_as_it_is_there(#[case] signal: Signal) {
    let (place, zombie, second) = with_a_server_stopped_at("published-2", &full()).await;
    let worker = format!("/{}/1", zombie.pid().as_raw_nonzero());
    let alive = place.start_with(&FLAGS, &[]).await;
    let old = catalogued(&place).await;
    let half = live(&place);
    assert_eq!(half.len(), 2, "one is replaced, one cleared, one still to be made: {half:?}");
    waits_for(&alive, &second, &worker).await;
    write_input(&place, LATER);
    let later = alive.accept("later", &full()).await;
    if signal == Signal::KILL {
        says_for_whom(&alive, &worker, &second).await;
    }
    assert_eq!(run_of(&alive, &second).await["state"], "committing");
    assert_eq!(run_of(&alive, &later).await["state"], "queued");
    assert_eq!(live(&place), half, "nobody else touches the table");
    assert_eq!(catalogued(&place).await, old);
    zombie.signal(signal);
    for id in [&second, &later] {
        let run = alive.wait(id).await;
        assert_eq!(run["state"], "succeeded", "{run:#}");
    }
    let run = run_of(&alive, &second).await;
    let attempts = run["attempts"].as_array().unwrap();
    let (first, rest) = attempts.split_first().unwrap();
    let (last, waiting) = rest.split_last().unwrap();
    assert_eq!((&first["outcome"], &last["outcome"]), (&json!("lost"), &json!("succeeded")), "{run:#}");
    for attempt in waiting {
        // A worker waits for a lease at most, then hands the run back and says who has the lock.
        assert_eq!(attempt["error"]["type"], "urn:refrain:problem:publish-lock-held", "{run:#}");
        assert!(attempt["error"]["detail"].as_str().unwrap().contains(&worker), "{run:#}");
    }
    if signal == Signal::CONT {
        until("the zombie says that its lease is lost", || zombie.log().contains(LOST)).await;
    }
    assert_eq!(catalogued(&place).await.len(), 4);
    assert!(place.table(TABLE).join("_SUCCESS").exists());
    assert_well(&place).await;
}

/// The run's progress names the worker that holds the lock.
async fn waits_for(server: &Server, id: &str, worker: &str) {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let run = run_of(server, id).await;
        if run["progress"]["waiting_for"].as_str().is_some_and(|holder| holder.ends_with(worker)) {
            return;
        }
        assert!(Instant::now() < end, "it does not say that it waits for {worker}: {run:#}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// After its patience, readyz names the holder and its run; the metric has how long the table waits.
async fn says_for_whom(server: &Server, worker: &str, run: &str) {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let ready = server.get("/readyz").await;
        let metrics = server.get("/metrics").await.body;
        let held = metrics.lines().find_map(|line| {
            line.strip_prefix("refrain_publish_lock_held_seconds{pipeline=\"trips\"} ")?.parse::<f64>().ok()
        });
        assert_eq!(ready.status, 200, "one table that waits takes no server out of service: {ready:?}");
        let named = ready.body.contains(worker) && ready.body.contains(run);
        if ready.json()["degraded"] == true && named && held > Some(0.0) {
            return;
        }
        assert!(Instant::now() < end, "readyz or the metric ({held:?}) does not say for whom: {ready:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
