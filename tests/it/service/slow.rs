//! Work that takes a while, and the engine's process that does it.

use super::{Place, Server, Shape, month_of_trips, trips_of, trips_pipeline};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(30);

/// A pipeline named `slow` over so many names of one file, so that a small file makes much work. `more` goes into the
/// definition.
pub(super) fn slow_pipeline(place: &Place, names: u32, more: &str) {
    place.source("slow/0000.parquet", trips_of(&month_of_trips("2024-02", 50_000), Shape::Wide));
    for name in 1..names {
        fs::hard_link(place.path("slow/0000.parquet"), place.path(&format!("slow/{name:04}.parquet"))).unwrap();
    }
    let text = trips_pipeline("slow", r#""slow/*.parquet""#, "", "");
    place.pipeline("slow", &format!("{text}amounts = \"count(distinct amount)\"\n{more}"));
}

/// A pipeline named `quick` over a small file of its own.
pub(super) fn quick_pipeline(place: &Place) {
    place.source("quick/trips.parquet", trips_of(&month_of_trips("2024-02", 500), Shape::Wide));
    place.pipeline("quick", &trips_pipeline("quick", r#""quick/*.parquet""#, "", ""));
}

/// The fault by which the first engine of a server stops itself when it has read its rows, before it says what they came to:
/// a signal from outside may come when the work is done.
pub(super) fn stopping(place: &Place) -> String {
    format!("scanned=stop@{}", place.path("stopped").display())
}

/// The engine that has stopped itself so.
pub(super) async fn stopped_engine(server: &Server) -> Engine {
    stopped(server).await.pop().unwrap_or_else(|| panic!("no engine: {}", server.log_tail()))
}

/// The engine of a run, as soon as it reads rows. It may have read them all by the time that this answers: the run must be a
/// long one.
pub(super) async fn engine_at_work(server: &Server, run: &str) -> Engine {
    let end = Instant::now() + SOON;
    loop {
        let found = server.get(&format!("/runs/{run}")).await.json();
        if found["progress"]["stage"] == "scanning" && found["progress"]["rows_read"].as_u64() > Some(0) {
            return engines_of(server).pop().unwrap_or_else(|| panic!("no engine: {found:#}"));
        }
        assert!(Instant::now() < end && found["ended_at"].is_null(), "{found:#}\n{}", server.log_tail());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until a run is in this state.
pub(super) async fn wait_for_state(server: &Server, run: &str, state: &str) -> Value {
    let end = Instant::now() + SOON;
    loop {
        let found = server.get(&format!("/runs/{run}")).await.json();
        if found["state"] == state {
            return found;
        }
        assert!(Instant::now() < end, "not {state}: {found:#}\n{}", server.log_tail());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until a run says why it does not get on; it need not have ended.
pub(super) async fn wait_for_error(server: &Server, run: &str) -> Value {
    let end = Instant::now() + SOON;
    loop {
        let found = server.get(&format!("/runs/{run}")).await.json();
        if !found["error"].is_null() {
            return found;
        }
        assert!(Instant::now() < end, "no error: {found:#}\n{}", server.log_tail());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until readyz says all of this: with a 503 where the server itself is not well, else as degraded.
pub(super) async fn wait_until_unwell(server: &Server, status: u16, says: &[&str]) {
    let end = Instant::now() + SOON;
    loop {
        let ready = server.get("/readyz").await;
        let degraded = status == 503 || ready.json()["degraded"] == true;
        if ready.status == status && degraded && says.iter().all(|text| ready.body.contains(text)) {
            return;
        }
        assert!(Instant::now() < end, "it does not say {says:?}: {ready:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until readyz says that all is well.
pub(super) async fn wait_until_well(server: &Server) {
    let end = Instant::now() + SOON;
    loop {
        let ready = server.get("/readyz").await;
        if ready.status == 200 && ready.json()["degraded"] == false {
            return;
        }
        assert!(Instant::now() < end, "it is not well: {ready:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until a server, or an engine of it, has stopped itself.
pub(super) async fn stopped(server: &Server) -> Vec<Engine> {
    let end = Instant::now() + SOON;
    let is_stopped = |pid: Pid| stat(pid.as_raw_nonzero().get()).is_some_and(|(state, _)| state == "T");
    loop {
        let engines = engines_of(server);
        if is_stopped(server.pid()) || engines.iter().any(|engine| is_stopped(engine.0)) {
            return engines;
        }
        assert!(Instant::now() < end, "nothing stopped: {}", server.log_tail());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A process that computes an attempt.
pub(super) struct Engine(pub(super) Pid);

impl Engine {
    pub(super) fn signal(&self, signal: Signal) {
        kill_process(self.0, signal).unwrap();
    }

    /// Whether it still runs; one that only waits to be reaped does not.
    pub(super) fn is_alive(&self) -> bool {
        stat(self.0.as_raw_nonzero().get()).is_some_and(|(state, _)| state != "Z" && state != "X")
    }

    pub(super) async fn gone(&self) {
        let end = Instant::now() + SOON;
        while self.is_alive() {
            assert!(Instant::now() < end, "the engine still runs");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// The children of the server: its engines, and those that read partitions for clients.
pub(super) fn engines_of(server: &Server) -> Vec<Engine> {
    let parent = server.pid().as_raw_nonzero().get();
    let ids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let children = ids.filter(|id: &i32| stat(*id).is_some_and(|(state, of)| of == parent && state != "Z"));
    children.map(|id| Engine(Pid::from_raw(id).unwrap())).collect()
}

/// A process's state and its parent.
fn stat(id: i32) -> Option<(String, i32)> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name before them may hold anything but ends with the last bracket.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

/// One field of each of a run's attempts.
pub(super) fn of_attempts<'a>(run: &'a Value, field: &str) -> Vec<&'a str> {
    run["attempts"].as_array().unwrap().iter().map(|attempt| attempt[field].as_str().unwrap_or("")).collect()
}
