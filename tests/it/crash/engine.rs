//! The engine's process on its own: it must not work on for nobody.

use super::{OLD, made, place, write_input};
use crate::service::{Store, trips_pipeline};
use refrain::engine::Job;
use refrain::run::Scope;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

fn engine(fault: &str, job: &Job) -> Child {
    let mut child = Command::new(env!("CARGO_BIN_EXE_refrain"))
        .arg("engine")
        .env("REFRAIN_FAULT", fault)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(child.stdin.as_mut().unwrap(), "{}", json!({"job": job, "memory_mb": null})).unwrap();
    child
}

fn ended(child: &mut Child) -> ExitStatus {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > end {
            child.kill().unwrap();
            panic!("the engine did not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_ends_when_its_folder_vanishes_and_does_not_make_it_anew() {
    let place = place(Store::Sqlite).await;
    write_input(&place, OLD);
    let staging = place.path("staging");
    std::fs::create_dir(&staging).unwrap();
    let job = job(&place, &staging);
    let mark = place.path("struck");
    let mut child = engine(&format!("staged-1=delay:500@{}", mark.display()), &job);
    made(&mark).await;
    assert!(staging.join("00000.parquet").exists());
    std::fs::remove_dir_all(&staging).unwrap();
    let status = ended(&mut child);
    let lines: Vec<String> = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap).collect();
    let last: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
    assert_eq!(last["failed"]["type"], "staging-write-failed", "{status}: {lines:?}");
    assert!(!staging.exists(), "what was swept stays swept");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_ends_when_its_standard_input_does() {
    let place = place(Store::Sqlite).await;
    let staging = place.path("staging");
    std::fs::create_dir(&staging).unwrap();
    let mark = place.path("struck");
    let mut child = engine(&format!("scanned=delay:60000@{}", mark.display()), &job(&place, &staging));
    made(&mark).await;
    drop(child.stdin.take());
    assert_eq!(ended(&mut child).code(), Some(3));
    assert_eq!(std::fs::read_dir(&staging).unwrap().count(), 0);
}

fn job(place: &crate::service::Place, staging: &std::path::Path) -> Job {
    Job {
        definition: trips_pipeline("trips", r#""raw/*.parquet""#, "", ""),
        scope: Scope::Full,
        source_root: place.path(""),
        staging: staging.to_owned(),
        checkpoints: place.path("slices"),
        slice_source_bytes: u64::MAX,
        read_bytes: Some(1 << 20),
        sort_bytes: 1 << 20,
        web: refrain::engine::WebSettings::default(),
        bases: Vec::new(),
    }
}
