//! Faults at named steps: the real binary is killed, stopped and failed where it hurts, and each time there are exactly two
//! answers, before and after.

mod away;
mod checkpoints;
mod engine;
mod formats;
mod kills;
mod losing;
mod lost_answers;
mod merging;
mod order;
mod quarantine;
mod restored;
mod sweep;
mod unmounted;
mod webhooks;
mod zombies;

use crate::service::{Place, Server, Shape, Store, month_of_trips, trips_of, trips_pipeline};
use rustix::process::Pid;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

const TABLE: &str = "trips";
const PART: &str = "part-0.parquet";
const SOURCE: &str = "raw/trips.parquet";
/// Everything that any input has.
const MONTHS: [&str; 4] = ["2024-01", "2024-02", "2024-03", "2024-04"];
const WITHIN: Duration = Duration::from_secs(30);

/// How many trips each of the [`MONTHS`] has. From one of the first two to the other: the first month is replaced, the third
/// unchanged, and of the second and the fourth one is cleared and one created.
type Input = [u32; 4];
const OLD: Input = [300, 200, 250, 0];
const NEW: Input = [310, 0, 250, 150];
/// After both, for what a later run makes.
const LATER: Input = [320, 220, 250, 160];

/// A short lease, and never too many lost workers.
const FLAGS: [&str; 6] = ["--workers", "1", "--lease-seconds", "1", "--max-lost-workers", "1000"];

/// What a table is, by partition.
type Contents = BTreeMap<String, String>;

/// A working folder with the table's pipeline; the sources are those of [`OLD`].
async fn place(store: Store) -> Place {
    place_with(store, "").await
}

/// [`place`] with more in the pipeline's file.
async fn place_with(store: Store, more: &str) -> Place {
    let place = Place::new(store).await;
    let retry = "[retry]\nservice = { attempts = 9, delay_seconds = 0 }";
    let pipeline = trips_pipeline(TABLE, r#""raw/*.parquet""#, "", "");
    place.pipeline(TABLE, &format!("{pipeline}\n{retry}\n{more}\n"));
    write_input(&place, OLD);
    place
}

fn write_input(place: &Place, input: Input) {
    let trips = MONTHS.iter().zip(input).flat_map(|(month, count)| month_of_trips(month, count)).collect::<Vec<_>>();
    place.source(SOURCE, trips_of(&trips, Shape::Wide));
}

fn overwrite() -> Value {
    json!({"pipeline": TABLE, "partitions": MONTHS})
}

fn full() -> Value {
    json!({"pipeline": TABLE, "mode": "full"})
}

/// The sha256 of each partition's file; nothing else may be there but `_SUCCESS`.
fn live(place: &Place) -> Contents {
    let key = |path: &str| {
        let folder = path.strip_suffix(PART).and_then(|path| path.strip_suffix('/'));
        folder.unwrap_or_else(|| panic!("{path} is no partition's file")).to_owned()
    };
    data_files(place).into_iter().map(|(path, sha256)| (key(&path), sha256)).collect()
}

/// The sha256 of every file of the table but `_SUCCESS`, by its path.
fn data_files(place: &Place) -> Contents {
    let files = place.files_of(TABLE).into_iter().filter(|(path, _)| path != "_SUCCESS");
    files.map(|(path, (bytes, _))| (path, sha256_of(&bytes))).collect()
}

fn sha256_of(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// What the database says that each partition is, with its totals.
async fn catalog(place: &Place) -> BTreeMap<String, (String, String)> {
    let entries = place.store().await.entries(TABLE, None).await.unwrap();
    let said = |content: &refrain::run::Content| (content.sha256.clone(), format!("{:?}", content.totals));
    entries.iter().map(|entry| (entry.partition.as_str().to_owned(), said(&entry.content))).collect()
}

/// The catalog without its totals.
async fn catalogued(place: &Place) -> Contents {
    catalog(place).await.into_iter().map(|(key, (sha256, _))| (key, sha256)).collect()
}

/// Files and catalog agree, and nothing is staged.
async fn assert_well(place: &Place) {
    assert_eq!(place.verify().await, None, "`refrain verify` found something");
    assert_eq!(live(place), catalogued(place).await);
    until("staging is swept", || staged(place).is_empty()).await;
}

/// What is in the staging folder, at any depth.
fn staged(place: &Place) -> Vec<String> {
    let root = place.path("refrain-data/warehouse/.staging");
    let below = walkdir::WalkDir::new(&root).min_depth(1).into_iter().filter_map(Result::ok);
    below.map(|entry| entry.path().display().to_string()).collect()
}

/// Looks again and again until it is so.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + WITHIN;
    while !is_so() {
        assert!(Instant::now() < end, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// [`until`] of what has to be asked for.
pub(crate) async fn until_async(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + WITHIN;
    while !is_so().await {
        assert!(Instant::now() < end, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The state of a process as the kernel names it, such as `T` for stopped; none where it has ended.
fn process_state(pid: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    stat.rsplit_once(") ")?.1.chars().next().filter(|state| *state != 'Z')
}

/// Whether a process has ended, or is a child that only waits to be asked how.
pub(crate) fn has_ended(pid: Pid) -> bool {
    process_state(pid).is_none()
}

pub(crate) async fn stopped(server: &Server) {
    until("the server is stopped", || process_state(server.pid()) == Some('T')).await;
}

async fn made(mark: &Path) {
    until(&format!("{} is made", mark.display()), || mark.exists()).await;
}

/// The processes that a server has started.
fn children_of(server: &Server) -> Vec<Pid> {
    let parent = server.pid().as_raw_nonzero().to_string();
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter_map(Pid::from_raw);
    pids.filter(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.split(' ').nth(1) == Some(&parent))
    })
    .collect()
}
