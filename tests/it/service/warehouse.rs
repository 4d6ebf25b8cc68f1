//! Warehouses that are not right, at start and while the service runs: refused with the reason, never made anew, never
//! taken for cleared, and taken up again when they are right.

use super::slow::{of_attempts, quick_pipeline, wait_for_error, wait_until_unwell, wait_until_well};
use super::{MONTHS, Place, Server, Shape, Store, assert_totals, month_of_trips, summed, trips_of};
use super::{trips_pipeline, write_quarter};
use rstest::rstest;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const WITHIN: Duration = Duration::from_secs(30);
const FLAGS: [&str; 2] = ["--workers", "1"];

/// What stands where the warehouse was.
#[derive(Debug, Clone, Copy)]
enum Instead {
    Nothing,
    AnEmptyFolder,
    AnotherDatabases,
}

impl Instead {
    fn put(self, root: &Path) {
        match self {
            Instead::Nothing => {}
            Instead::AnEmptyFolder => fs::create_dir(root).unwrap(),
            Instead::AnotherDatabases => {
                fs::create_dir(root).unwrap();
                let id = uuid::Uuid::new_v4();
                fs::write(root.join(".refrain-warehouse"), json!({"warehouse_id": id, "database_id": id}).to_string())
                    .unwrap();
            }
        }
    }
}

/// Root may write whatever the modes of files say, unless it gives that right away.
fn obeying_modes() -> &'static [&'static str] {
    const RIGHTS: &str = "-dac_override,-dac_read_search";
    match rustix::process::geteuid().is_root() {
        true => &["setpriv", "--bounding-set", RIGHTS, "--inh-caps", RIGHTS],
        false => &[],
    }
}

fn warehouse(place: &Place) -> PathBuf {
    place.path("refrain-data/warehouse")
}

/// Every path below a folder, with what is in the files.
fn tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let found = walkdir::WalkDir::new(folder).min_depth(1).into_iter().filter_map(Result::ok);
    found.map(|entry| (entry.path().to_owned(), fs::read(entry.path()).unwrap_or_default())).collect()
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A service that has made the table once.
async fn with_a_table(place: &Place) -> Server {
    write_quarter(place, 200);
    let retry = "[retry]\nservice = { attempts = 100, delay_seconds = 1, max_delay_seconds = 1 }\n";
    place.pipeline("trips", &format!("{}{retry}", trips_pipeline("trips", r#""raw/*.parquet""#, "", "")));
    quick_pipeline(place);
    let server = place.start_under(obeying_modes(), &FLAGS, &[]).await;
    server.run("first", &full()).await;
    server
}

fn full() -> Value {
    json!({"pipeline": "trips", "mode": "full"})
}

/// The worker has seen it, and says so once.
async fn no_run_is_claimed(server: &Server) {
    let end = Instant::now() + WITHIN;
    while !server.log().contains("no run is claimed until the warehouse can be used") {
        assert!(Instant::now() < end, "{}", server.log_tail());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// While it is not right: a run waits, the API answers, and readyz says why. Then it is put right, and the run ends well.
async fn a_run_waits(server: &Server, place: &Place, says: &[&str], put_right: impl FnOnce()) {
    let listed = server.partitions("trips").await;
    no_run_is_claimed(server).await;
    // By then the worker has cleared away what the first run staged.
    let found = tree(&warehouse(place));
    // All of its rows are of another month by now: nothing of the table stays.
    for month in MONTHS {
        place.remove(&format!("raw/trips_{month}.parquet"));
    }
    let april = month_of_trips("2024-04", 100);
    place.source("raw/april.parquet", trips_of(&april, Shape::Wide));
    let id = server.accept("second", &full()).await;
    wait_until_unwell(server, 503, &[&["\"warehouse\""], says].concat()).await;
    let run = server.get(&format!("/runs/{id}")).await.json();
    assert_eq!((&run["state"], of_attempts(&run, "outcome").len()), (&json!("queued"), 0), "{run:#}");
    assert_eq!(server.get("/healthz").await.status, 200);
    assert_eq!(server.partitions("trips").await, listed, "nothing counts as cleared");
    assert_eq!(tree(&warehouse(place)), found, "nothing is made there");
    put_right();
    let run = server.wait(&id).await;
    assert_eq!((&run["state"], of_attempts(&run, "outcome")), (&json!("succeeded"), vec!["succeeded"]), "{run:#}");
    assert_totals(&server.partitions("trips").await, &summed(&april));
    wait_until_well(server).await;
    assert_eq!(place.verify().await, None);
}

#[rstest]
#[case::absent(Instead::Nothing, "is absent, expected the one with id")]
#[case::unmounted(Instead::AnEmptyFolder, "holds no warehouse")]
#[case::another(Instead::AnotherDatabases, "belongs to the database")]
#[tokio::test(flavor = "multi_thread")]
async fn without_its_warehouse_the_service_refuses_and_waits(#[case] instead: Instead, #[case] says: &str) {
    let place = Place::new(Store::Sqlite).await;
    let server = with_a_table(&place).await;
    let (root, away) = (warehouse(&place), place.path("away"));
    let take_away = || {
        fs::rename(&root, &away).unwrap();
        instead.put(&root);
    };
    let bring_back = || {
        let _ = fs::remove_dir_all(&root);
        fs::rename(&away, &root).unwrap();
    };
    take_away();
    a_run_waits(&server, &place, &[says], bring_back).await;
    assert!(server.stop().await.success());

    take_away();
    let (there, gone) = (tree(&root), tree(&away));
    let said = place.launch_with(&FLAGS, &[]).refused().await;
    assert!(said.contains("cannot open the warehouse") && said.contains(says), "{said}");
    assert_eq!((tree(&root), tree(&away)), (there, gone));
    assert_eq!(root.exists(), !matches!(instead, Instead::Nothing), "not made anew");
    bring_back();
    let server = place.start().await;
    assert_eq!(server.partitions("trips").await.len(), 1);
}

/// What makes an attempt's folder is refused, at the root or in staging.
#[rstest]
#[case::the_root(".")]
#[case::staging(".staging")]
#[tokio::test(flavor = "multi_thread")]
async fn a_warehouse_that_cannot_be_written_is_refused_with_the_reason(#[case] folder: &str) {
    let place = Place::new(Store::Sqlite).await;
    let server = with_a_table(&place).await;
    let path = warehouse(&place).join(folder);
    set_mode(&path, 0o555);
    let says = ["cannot write in", "refrain-data/warehouse", "Permission denied"];
    a_run_waits(&server, &place, &says, || set_mode(&path, 0o755)).await;
    assert!(server.stop().await.success());

    set_mode(&path, 0o555);
    let before = tree(&warehouse(&place));
    let said = place.launch_under(obeying_modes(), &FLAGS, &[]).refused().await;
    assert!(said.contains("cannot open the warehouse") && said.contains("Permission denied"), "{said}");
    assert_eq!(tree(&warehouse(&place)), before);
    set_mode(&path, 0o755);
}

/// One table, or one partition of it, that cannot be written holds up its runs and no others.
#[rstest]
#[case::table("trips", 0o555, Some("cannot make the folder"))]
#[case::partition("trips/pickup_month=2024-02", 0o555, Some("cannot move a staged file to"))]
#[case::unreadable("trips/pickup_month=2024-02", 0o000, None)]
#[tokio::test(flavor = "multi_thread")]
async fn wrong_permissions_in_one_table_hold_up_that_table_alone(
    #[case] folder: &str,
    #[case] mode: u32,
    #[case] decided: Option<&str>,
) {
    let place = Place::new(Store::Sqlite).await;
    let server = with_a_table(&place).await;
    let (listed, files) = (server.partitions("trips").await, place.files_of("trips"));
    let late = [month_of_trips("2024-02", 10), month_of_trips("2024-04", 10)].concat();
    place.source("raw/late.parquet", trips_of(&late, Shape::Wide));
    let path = warehouse(&place).join(folder);
    set_mode(&path, mode);
    let body = json!({"pipeline": "trips", "partitions": ["2024-02", "2024-04"]});
    let id = server.accept("second", &body).await;
    let run = wait_for_error(&server, &id).await;
    let detail = run["error"]["detail"].as_str().unwrap();
    assert_eq!(run["error"]["type"], "urn:refrain:problem:warehouse-failed", "{run:#}");
    assert!(detail.contains(folder) && detail.contains("Permission denied"), "{detail}");
    if let Some(what) = decided {
        assert!(run["state"] == "committing" && detail.contains(what), "{run:#}");
        wait_until_unwell(&server, 200, &["\"publishing\"", what, folder, "Permission denied"]).await;
    }
    server.run("quick", &json!({"pipeline": "quick", "partitions": ["2024-02"]})).await;
    assert_eq!(server.partitions("trips").await, listed);
    set_mode(&path, 0o755);
    let run = server.wait(&id).await;
    assert_eq!(run["state"], "succeeded", "{run:#}");
    let changed = place.files_of("trips");
    let same = |month: &str| {
        changed[&format!("pickup_month={month}/part-0.parquet")]
            == files[&format!("pickup_month={month}/part-0.parquet")]
    };
    assert_eq!(["2024-01", "2024-02", "2024-03"].map(same), [true, false, true]);
    assert_eq!((changed.len(), place.verify().await), (files.len() + 1, None));
}
