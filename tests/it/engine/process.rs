//! The engine's process: stopped, limited, orphaned, talkative.

use super::bed::Bed;
use polars::prelude::{NamedFrom, Series};
use refrain::engine::{ChildEngine, Engine, EngineError, Job};
use refrain::partition::PartitionKey;
use refrain::run::{FailureClass, Progress, Scope, Stage};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const PIPELINE: &str = r#"
name = "t"
[source]
format = "parquet"
path = "raw/*.parquet"
[source.columns]
p = "int32"
n = "int64"
[partition]
p = { value_of = "p" }
[dimensions]
n = "n"
[measures]
rows = "count(*)"
different = "count(distinct n * n)"
"#;

/// So many names of one file of a million groups: more than any test waits for.
fn write_much(bed: &Bed, names: u32) {
    let rows = 1_000_000;
    let layout = super::bed::Layout { row_group: 200_000, statistics: true };
    let numbers: Vec<i64> = (0..rows).collect();
    let parts = vec![1i32; numbers.len()];
    bed.write_as(
        "raw/0.parquet",
        vec![Series::new("p".into(), parts).into(), Series::new("n".into(), numbers).into()],
        layout,
    );
    for name in 1..names {
        std::fs::hard_link(bed.path("raw/0.parquet"), bed.path(&format!("raw/{name}.parquet"))).unwrap();
    }
}

fn scope() -> Scope {
    Scope::Partitions(vec![PartitionKey::from_canonical("p=1")])
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_ends_the_process_at_once() {
    let bed = Bed::new();
    write_much(&bed, 300);
    let (progress, mut seen) = watch::channel(Progress::at(Stage::Claimed));
    let cancel = CancellationToken::new();
    let (engine, job, stop) = (bed.engine.clone(), bed.job(PIPELINE, scope()), cancel.clone());
    let computing = tokio::spawn(async move { engine.compute(job, progress, stop).await });
    let scanning = seen.wait_for(|now| now.stage == Stage::Scanning && now.rows_read > 0);
    tokio::time::timeout(Duration::from_secs(60), scanning).await.unwrap().unwrap();
    let asked = Instant::now();
    cancel.cancel();
    assert_eq!(computing.await.unwrap().unwrap_err(), EngineError::Cancelled);
    // A fraction of a second where the machine is free; the job itself would take minutes.
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_beyond_the_limit_loses_the_process_and_says_why() {
    let bed = Bed::new();
    write_much(&bed, 40);
    for memory_mb in [64, 128] {
        let engine = ChildEngine { memory_mb: Some(memory_mb), ..bed.engine.clone() };
        let error = bed.run_with(&engine, PIPELINE, &["1"]).await.unwrap_err();
        assert_eq!((error.class, error.kind.as_str()), (FailureClass::Lost, "engine-lost"), "{error:?}");
        assert!(error.detail.contains("memory"), "{memory_mb}: {}", error.detail);
    }
}

/// A shell that starts the engine, holds its input open as a worker does, and is killed.
#[tokio::test(flavor = "multi_thread")]
async fn the_process_ends_when_its_parent_dies() {
    let bed = Bed::new();
    write_much(&bed, 300);
    let request = serde_json::json!({"job": bed.job(PIPELINE, scope()), "memory_mb": null});
    std::fs::write(bed.path("request"), format!("{request}\n")).unwrap();
    let script =
        r#"mkfifo in; "$0" engine < in > out & echo $! > pid.new; exec 3> in; cat request >&3; mv pid.new pid; wait"#;
    let mut shell = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_refrain")])
        .current_dir(bed.path("."))
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let reading = || std::fs::read_to_string(bed.path("out")).is_ok_and(|out| out.contains("scanning"));
    until("the engine reads", reading).await;
    let pid = std::fs::read_to_string(bed.path("pid")).unwrap();
    let process = PathBuf::from("/proc").join(pid.trim());
    assert!(is_alive(&process));
    shell.kill().unwrap();
    shell.wait().unwrap();
    until("the engine ends", || !is_alive(&process)).await;
}

/// A zombie, which nobody may have waited for, is dead.
fn is_alive(process: &Path) -> bool {
    let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|state| !state.is_empty() && !state.starts_with('Z'))
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(30), "waited in vain until {what}");
        ticks.tick().await;
    }
}

fn stand_in(bed: &Bed, body: &str) -> ChildEngine {
    let script = bed.path("stand-in");
    // Written by another process, so that no fork of this one holds it open for writing when it is started.
    let wrote = Command::new("sh")
        .args(["-c", "printf '#!/bin/sh\\n%s' \"$1\" > \"$0\" && chmod +x \"$0\""])
        .arg(&script)
        .arg(body)
        .status();
    assert!(wrote.unwrap().success());
    ChildEngine { program: script, memory_mb: None }
}

fn small_job(bed: &Bed) -> Job {
    bed.write(
        "raw/0.parquet",
        vec![Series::new("p".into(), [1i32, 2]).into(), Series::new("n".into(), [1i64, 2]).into()],
    );
    bed.job(PIPELINE, scope())
}

async fn compute(engine: &ChildEngine, job: Job) -> Result<refrain::engine::Report, EngineError> {
    let (progress, _) = watch::channel(Progress::at(Stage::Claimed));
    let computing = engine.compute(job, progress, CancellationToken::new());
    tokio::time::timeout(Duration::from_secs(30), computing).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_talks_much_on_its_standard_error_is_not_held_up() {
    let bed = Bed::new();
    let job = small_job(&bed);
    let talk = "head -c 1000000 /dev/zero | tr '\\0' x >&2";
    let engine = stand_in(&bed, &format!("{talk}; exec '{}' \"$@\"", env!("CARGO_BIN_EXE_refrain")));
    let report = compute(&engine, job).await.unwrap();
    assert_eq!((report.rows.read, report.rows.in_scope), (2, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_process_is_lost_with_its_signal_and_last_words() {
    let bed = Bed::new();
    for (body, words) in [
        ("echo no more >&2; kill -9 $$", ["killed by signal 9", "no more"]),
        ("read line; echo at last >&2; exit 7", ["7", "at last"]),
        ("read line; exec >&-; sleep 0.3; kill -6 $$", ["killed by signal 6", ""]),
        ("read line; echo not json; echo why >&2", ["could not be read", ""]),
    ] {
        std::fs::remove_dir_all(bed.path("raw")).ok();
        let error = compute(&stand_in(&bed, body), small_job(&bed)).await.unwrap_err();
        let EngineError::Failed(error) = error else { panic!("{body}: {error:?}") };
        assert_eq!(error.class, FailureClass::Lost, "{body}: {error:?}");
        for word in words {
            assert!(error.detail.contains(word), "{body}: {}", error.detail);
        }
    }
    let engine = ChildEngine { program: bed.path("nothing"), memory_mb: None };
    let EngineError::Failed(error) = compute(&engine, small_job(&bed)).await.unwrap_err() else { panic!("no start") };
    assert_eq!((error.class, error.kind.as_str()), (FailureClass::Service, "engine-not-started"));
}
