//! The disk fills at a write. A limit on the size of files, which any process may be given at any time, makes each write
//! fail that goes beyond it; where a small disk can be mounted in a namespace, that fills too.

#![expect(clippy::print_stdout, reason = "where no disk can be mounted, the test says so")]

use super::crash::nothing_is_left_in_staging;
use super::slow::{of_attempts, stopped, wait_for_error, wait_until_unwell};
use super::{MONTHS, Place, Server, Shape, Store, assert_totals, month_of_trips, summed, trips_of, trips_pipeline};
use reqwest::Method;
use rstest::rstest;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

const TOO_LARGE: &str = "File too large";
const NO_SPACE: &str = "No space left on device";
const FULL: &str = "urn:refrain:problem:database-full";

/// From now on no file of the process grows beyond this.
fn limit_files(process: Pid, bytes: Option<u64>) {
    let maximum = getrlimit(Resource::Fsize).maximum;
    prlimit(Some(process), Resource::Fsize, Rlimit { current: bytes, maximum }).unwrap();
}

/// Writes so many trips of each month; answers what the table must hold.
fn write_months(place: &Place, counts: [u32; 3]) -> std::collections::BTreeMap<String, (i64, String)> {
    let trips: Vec<_> = MONTHS.iter().zip(counts).flat_map(|(month, count)| month_of_trips(month, count)).collect();
    place.source("raw/trips.parquet", trips_of(&trips, Shape::Wide));
    summed(&trips)
}

/// A pipeline whose runs fail with their first failure of the service, or go on trying.
fn pipeline(place: &Place, attempts: u32) {
    let retry = format!("[retry]\nservice = {{ attempts = {attempts}, delay_seconds = 1, max_delay_seconds = 1 }}\n");
    place.pipeline("trips", &format!("{}{retry}", trips_pipeline("trips", r#""raw/*.parquet""#, "", "")));
}

fn full() -> Value {
    json!({"pipeline": "trips", "mode": "full"})
}

/// A server that stops once at this step.
async fn stopping_at(place: &Place, wrapper: &[&str], step: &str) -> Server {
    let fault = format!("{step}=stop@{}", place.path("struck").display());
    place.start_under(wrapper, &["--workers", "1"], &[("REFRAIN_FAULT", &fault)]).await
}

#[rstest]
#[case::first(0)]
#[case::middle(1)]
#[case::last(2)]
#[tokio::test(flavor = "multi_thread")]
async fn a_staged_file_that_does_not_fit_fails_its_attempt_and_nothing_else(#[case] large: usize) {
    let place = Place::new(Store::Sqlite).await;
    pipeline(&place, 1);
    write_months(&place, [40; 3]);
    let server = place.start().await;
    server.run("first", &full()).await;
    let (files, listed) = (place.files_of("trips"), server.partitions("trips").await);
    assert!(server.stop().await.success());

    let mut counts = [50; 3];
    counts[large] = 4_000;
    let expected = write_months(&place, counts);
    let server = stopping_at(&place, &[], "scanned").await;
    let id = server.accept("second", &full()).await;
    for engine in stopped(&server).await {
        limit_files(engine.0, Some(8 * 1024));
        engine.signal(Signal::CONT);
    }
    let run = server.wait(&id).await;
    let (error, detail) = (&run["error"], run["error"]["detail"].as_str().unwrap());
    assert_eq!((&run["state"], of_attempts(&run, "outcome")), (&json!("failed"), vec!["failed"]), "{run:#}");
    assert_eq!(
        (error["type"].as_str(), &error["class"]),
        (Some("urn:refrain:problem:staging-write-failed"), &json!("service"))
    );
    assert!(detail.contains(TOO_LARGE) && detail.contains(&format!("{large:05}.parquet")), "{detail}");
    assert_eq!((place.files_of("trips"), server.partitions("trips").await), (files, listed), "as before");
    nothing_is_left_in_staging(&place).await;
    assert_eq!((server.get("/readyz").await.status, place.verify().await), (200, None));

    let again = server.call(Method::POST, &format!("/runs/{id}/retry"), None, None).await;
    assert_eq!(again.status, 202, "{again:?}");
    assert_eq!(server.wait(&id).await["state"], "succeeded");
    assert_totals(&server.partitions("trips").await, &expected);
    assert_eq!(place.verify().await, None);
}

/// The only thing that publishing writes is who holds the lock. Nor can the server write its log meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_publish_lock_that_cannot_be_written_holds_up_its_table() {
    let place = Place::new(Store::Postgres).await;
    pipeline(&place, 1);
    let expected = write_months(&place, [40; 3]);
    let server = stopping_at(&place, &[], "decided").await;
    let id = server.accept("first", &full()).await;
    stopped(&server).await;
    limit_files(server.pid(), Some(0));
    server.signal(Signal::CONT);
    let run = wait_for_error(&server, &id).await;
    let detail = run["error"]["detail"].as_str().unwrap();
    assert!(run["state"] == "committing" && detail.contains(".locks/trips") && detail.contains(TOO_LARGE), "{run:#}");
    wait_until_unwell(&server, 503, &["\"warehouse\"", ".locks/trips", TOO_LARGE]).await;
    assert!(server.partitions("trips").await.is_empty() && !place.table("trips").exists(), "nothing is published");
    limit_files(server.pid(), None);
    assert_eq!(server.wait(&id).await["state"], "succeeded");
    assert_totals(&server.partitions("trips").await, &expected);
    assert_eq!(place.verify().await, None);
}

/// A database that cannot grow: requests that write are refused and use nothing up, an attempt waits with its decision.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_cannot_grow_refuses_and_recovers() {
    let place = Place::new(Store::Sqlite).await;
    pipeline(&place, 1);
    let expected = write_months(&place, [40; 3]);
    let server = stopping_at(&place, &[], "staged").await;
    let first = server.accept("first", &full()).await;
    stopped(&server).await;
    limit_files(server.pid(), Some(0));
    server.signal(Signal::CONT);
    for _ in 0..3 {
        let refused = server.submit("second", &full()).await;
        assert_eq!((refused.status, refused.json()["type"].as_str()), (503, Some(FULL)), "{refused:?}");
        assert_eq!(refused.header("retry-after"), "1");
    }
    let run = server.get(&format!("/runs/{first}")).await.json();
    assert_eq!(run["state"], "running", "it is not decided: {run:#}");
    assert_eq!(server.get("/healthz").await.status, 200);
    assert_eq!(server.get("/runs").await.json()["runs"].as_array().unwrap().len(), 1);
    assert!(!place.table("trips").exists(), "nothing is published");
    limit_files(server.pid(), None);
    assert_eq!(server.wait(&first).await["state"], "succeeded", "{}", server.log_tail());
    let accepted = server.submit("second", &full()).await;
    assert_eq!(accepted.status, 202, "its key is as free as before: {accepted:?}");
    assert_eq!(server.wait(&accepted.run_id()).await["state"], "succeeded");
    assert_totals(&server.partitions("trips").await, &expected);
    assert_eq!(place.verify().await, None);
}

/// What there is none of any more.
#[derive(Debug, Clone, Copy)]
enum Fill {
    Bytes,
    Names,
}

/// A disk of 8 MB and 300 names in a mount namespace of the server's own; gone with it.
fn on_a_small_disk(at: &Path) -> Option<Vec<String>> {
    fs::create_dir_all(at).unwrap();
    let own_user: &[&str] = if rustix::process::geteuid().is_root() { &[] } else { &["--user", "--map-root-user"] };
    let mount = "mount -t tmpfs -o size=8m,nr_inodes=300 none \"$0\" && exec \"$@\"";
    let words = [&["unshare", "--mount"], own_user, &["sh", "-c", mount, at.to_str().unwrap()]].concat();
    let tried = std::process::Command::new(words[0]).args(&words[1..]).arg("true").output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        println!("this machine lets nobody mount a disk in a namespace: only limits on the size of files were tested");
        return None;
    }
    Some(words.into_iter().map(str::to_owned).collect())
}

/// Fills the disk that a server sees at a path; answers what to remove to have room again.
fn fill(server: &Server, at: &Path, fill: Fill) -> PathBuf {
    let filler = server_sees(server, at).join("lost+found");
    fs::create_dir_all(&filler).unwrap();
    let mut file = File::create(filler.join("first")).unwrap();
    let error = (0..)
        .find_map(|number| match fill {
            Fill::Bytes => file.write_all(&[1; 4096]).err(),
            Fill::Names => File::create(filler.join(number.to_string())).err(),
        })
        .unwrap();
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    filler
}

fn server_sees(server: &Server, path: &Path) -> PathBuf {
    PathBuf::from(format!("/proc/{}/root{}", server.pid().as_raw_nonzero(), path.display()))
}

#[rstest]
#[case::staging_folder("claimed", Fill::Names, ".staging/")]
#[case::staged_file("scanned", Fill::Bytes, "00000.parquet")]
#[case::partition_folder("locked", Fill::Names, "warehouse/trips")]
#[case::success("published-3", Fill::Names, "trips/_SUCCESS")]
#[tokio::test(flavor = "multi_thread")]
async fn on_a_full_disk_a_run_waits_for_room(#[case] step: &str, #[case] what: Fill, #[case] path: &str) {
    let place = Place::new(Store::Sqlite).await;
    pipeline(&place, 100);
    let expected = write_months(&place, [40; 3]);
    let disk = place.path("refrain-data/warehouse");
    let Some(wrapper) = on_a_small_disk(&disk) else { return };
    let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
    let server = stopping_at(&place, &wrapper, step).await;
    let id = server.accept("first", &full()).await;
    let engines = stopped(&server).await;
    let filler = fill(&server, &disk, what);
    engines.iter().for_each(|engine| engine.signal(Signal::CONT));
    server.signal(Signal::CONT);
    let run = wait_for_error(&server, &id).await;
    let detail = run["error"]["detail"].as_str().unwrap();
    assert!(detail.contains(NO_SPACE) && detail.contains(path), "{detail}");
    assert!(server.partitions("trips").await.is_empty());
    assert_eq!(server.get("/healthz").await.status, 200);
    fs::remove_dir_all(filler).unwrap();
    assert_eq!(server.wait(&id).await["state"], "succeeded", "{}", server.log_tail());
    assert_totals(&server.partitions("trips").await, &expected);
    let root = server_sees(&server, &disk);
    let files =
        walkdir::WalkDir::new(root.join("trips")).into_iter().filter(|e| e.as_ref().unwrap().file_type().is_file());
    assert_eq!(files.count(), 4, "three partitions and _SUCCESS");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_on_a_full_disk_refuses_and_recovers() {
    let place = Place::new(Store::Sqlite).await;
    pipeline(&place, 1);
    let expected = write_months(&place, [40; 3]);
    let disk = place.path("refrain-data");
    let Some(wrapper) = on_a_small_disk(&disk) else { return };
    let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
    let server = place.start_under(&wrapper, &["--workers", "1"], &[]).await;
    let filler = fill(&server, &disk, Fill::Bytes);
    // What its files have already is theirs.
    let mut refused = None;
    for number in 0..500 {
        let answer = server.submit(&format!("key-{number}"), &full()).await;
        if answer.status != 202 {
            refused = Some((number, answer));
            break;
        }
    }
    let (number, answer) = refused.unwrap();
    assert_eq!((answer.status, answer.json()["type"].as_str()), (503, Some(FULL)), "{answer:?}");
    assert_eq!(server.get("/runs").await.status, 200);
    fs::remove_dir_all(filler).unwrap();
    let id = server.accept(&format!("key-{number}"), &full()).await;
    assert_eq!(server.wait(&id).await["state"], "succeeded", "{}", server.log_tail());
    assert_totals(&server.partitions("trips").await, &expected);
}
