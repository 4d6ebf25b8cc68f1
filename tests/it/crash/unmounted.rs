//! The warehouse's disk is unmounted in the middle of an attempt, so that an empty folder is in its place, and comes back.

use super::{Contents, FLAGS, NEW, OLD, TABLE, assert_well, catalogued, full, live, place, stopped, write_input};
use crate::service::{Place, Server, Store};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Before staging; between staging and the decision; before the lock; inside it before the first, the second and the third
/// move, and before `_SUCCESS`.
const STEPS: [&str; 7] = ["claimed", "staged", "decided", "locked", "published-1", "published-2", "published-4"];

#[tokio::test(flavor = "multi_thread")]
async fn unmounted_at_any_step_nothing_is_made_and_nothing_is_taken_for_cleared() {
    let place = place(Store::Sqlite).await;
    let server = place.start_with(&FLAGS, &[]).await;
    let mut contents = Vec::new();
    for (key, input) in [("other", NEW), ("first", OLD)] {
        write_input(&place, input);
        server.run(key, &full()).await;
        contents.insert(0, (input, live(&place)));
    }
    assert!(server.stop().await.success());
    for (number, step) in STEPS.into_iter().enumerate() {
        let (old, (input, new)) = (&contents[number % 2].1, &contents[(number + 1) % 2]);
        write_input(&place, *input);
        let fault = format!("{step}=stop@{}", place.path(&format!("struck-{step}")).display());
        let flags = ["--workers", "1", "--lease-seconds", "60"];
        let server = place.start_with(&flags, &[("REFRAIN_FAULT", &fault)]).await;
        let id = server.accept(step, &full()).await;
        stopped(&server).await;
        away_and_back(&place, &server, &id, old, step).await;
        let run = server.wait(&id).await;
        assert_eq!(run["state"], "succeeded", "{step}: {run:#}");
        assert_eq!(&live(&place), new, "{step}");
        assert!(place.table(TABLE).join("_SUCCESS").exists(), "{step}");
        assert_well(&place).await;
        assert!(server.stop().await.success());
    }
}

/// Takes the warehouse away from a stopped server, wakes it, and brings the warehouse back when it has said so.
async fn away_and_back(place: &Place, server: &Server, id: &str, old: &Contents, step: &str) {
    let (root, away) = (place.path("refrain-data/warehouse"), place.path("away"));
    let before = tree(&root);
    fs::rename(&root, &away).unwrap();
    fs::create_dir(&root).unwrap();
    server.signal(Signal::CONT);
    let run = failed_once(server, id).await;
    let said = run["error"]["detail"].as_str().unwrap_or_default();
    assert!(said.contains("holds no warehouse"), "{step}: {run:#}");
    assert_eq!(
        run["state"] != "committing",
        ["claimed", "staged"].contains(&step),
        "nothing is decided by what is not there"
    );
    assert_eq!(tree(&root), [""; 0], "{step}: something is made where no warehouse is");
    assert_eq!(tree(&away), before, "{step}: nor is anything done elsewhere");
    assert_eq!(&catalogued(place).await, old, "{step}");
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let ready = server.get("/readyz").await;
        if ready.status == 503 && ready.body.contains("holds no warehouse") {
            break;
        }
        assert!(Instant::now() < end, "{step}: {ready:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    fs::remove_dir(&root).unwrap();
    fs::rename(&away, &root).unwrap();
}

async fn failed_once(server: &Server, id: &str) -> Value {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let run = server.get(&format!("/runs/{id}")).await.json();
        if !run["error"].is_null() {
            return run;
        }
        assert!(Instant::now() < end && run["ended_at"].is_null(), "no error: {run:#}\n{}", server.log_tail());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Every path below the warehouse, without what says who holds a lock.
fn tree(root: &Path) -> Vec<String> {
    let found = walkdir::WalkDir::new(root).min_depth(1).sort_by_file_name().into_iter().map(Result::unwrap);
    found.map(|entry| entry.path().strip_prefix(root).unwrap().display().to_string()).collect()
}
