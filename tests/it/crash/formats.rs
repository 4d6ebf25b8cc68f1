//! The server killed by SIGKILL while a full run takes a table from one format to the other, and around the manifest's move: each
//! partition is one whole file of one format, and the manifest is the old one or the new one.

use super::{FLAGS, Input, MONTHS, NEW, OLD, TABLE, data_files, full, overwrite, staged, until, write_input};
use crate::service::{Place, Store, trips_pipeline};
use rstest::rstest;
use serde_json::Value;
use std::collections::BTreeMap;

const MANIFEST: &str = "_manifest.json";

/// The path of each partition's file, and its sha256.
type Files = BTreeMap<String, (String, String)>;

/// What a table is made of, and what it is then.
struct State {
    input: Input,
    table: &'static str,
    files: Files,
}

fn define(place: &Place, table: &str) {
    let pipeline = trips_pipeline(TABLE, r#""raw/*.parquet""#, "", "");
    place.pipeline(TABLE, &format!("{pipeline}\n[retry]\nservice = {{ delay_seconds = 0 }}\n[table]\n{table}\n"));
}

/// The files of the table, by their partition: one each.
fn live(place: &Place) -> Files {
    let mut found = Files::new();
    for (path, sha256) in data_files(place).into_iter().filter(|(path, _)| path != MANIFEST) {
        let key = path.rsplit_once('/').unwrap().0.to_owned();
        let before = found.insert(key, (path, sha256));
        assert!(before.is_none(), "two files of one partition: {found:?} {before:?}");
    }
    found
}

/// What the manifest says; none where there is none.
fn manifest(place: &Place) -> Option<Files> {
    let text = std::fs::read(place.table(TABLE).join(MANIFEST)).ok()?;
    let said: Value = serde_json::from_slice(&text).unwrap();
    let text = |one: &Value, name: &str| one[name].as_str().unwrap().to_owned();
    let partitions = said["partitions"].as_array().unwrap().iter();
    Some(partitions.map(|one| (text(one, "partition"), (text(one, "file"), text(one, "sha256")))).collect())
}

async fn catalogued(place: &Place) -> Files {
    let entries = place.store().await.entries(TABLE, None).await.unwrap().into_iter();
    let of = |key: &str, content: refrain::run::Content| (format!("{key}/{}", content.file.as_str()), content.sha256);
    entries.map(|entry| (entry.partition.to_string(), of(entry.partition.as_str(), entry.content))).collect()
}

/// A table that goes from one state to the other and back.
struct Bed {
    place: Place,
    states: [State; 2],
    now: usize,
    kills: usize,
}

impl Bed {
    async fn new(store: Store, tables: [&'static str; 2]) -> Self {
        let place = Place::new(store).await;
        let mut states = Vec::new();
        for (key, input, table) in [("other", NEW, tables[1]), ("first", OLD, tables[0])] {
            define(&place, table);
            write_input(&place, input);
            let server = place.start_with(&FLAGS, &[]).await;
            server.run(key, &full()).await;
            assert!(server.stop().await.success());
            let files = live(&place);
            assert_eq!(files.len(), 3);
            states.insert(0, State { input, table, files });
        }
        assert_eq!(manifest(&place).as_ref(), Some(&states[0].files));
        Self { place, states: states.try_into().unwrap_or_else(|_| unreachable!()), now: 0, kills: 0 }
    }

    /// One run from one state to the other, with the servers killed one after the other at these steps.
    async fn go_through(&mut self, deaths: &[&str], full_run: bool) {
        let what = format!("{}{full_run}{}", deaths.join(","), self.kills);
        let body = if full_run { full() } else { overwrite() };
        define(&self.place, self.states[1 - self.now].table);
        write_input(&self.place, self.states[1 - self.now].input);
        for (number, step) in deaths.iter().enumerate() {
            let fault = format!("{step}=kill");
            let environment = [("REFRAIN_FAULT", fault.as_str())];
            if number == 0 {
                let server = self.place.start_with(&FLAGS, &environment).await;
                let _ = server.submit_to_the_dying(&what, &body).await;
                server.died().await;
            } else {
                self.place.launch_with(&FLAGS, &environment).died().await;
            }
            self.assert_before_or_after(step, full_run).await;
            self.kills += 1;
        }
        let server = self.place.start_with(&FLAGS, &[]).await;
        let run = server.wait(&server.submit(&what, &body).await.run_id()).await;
        assert_eq!(run["state"], "succeeded", "{what}: {run:#}");
        self.now = 1 - self.now;
        let state = &self.states[self.now];
        assert_eq!(
            (live(&self.place), catalogued(&self.place).await),
            (state.files.clone(), state.files.clone()),
            "{what}"
        );
        assert_eq!(manifest(&self.place).as_ref(), Some(&state.files), "{what}");
        assert!(self.place.table(TABLE).join("_SUCCESS").exists(), "{what}");
        // It has the catalog's runs too.
        assert_eq!(self.place.verify().await, None, "{what}");
        until("staging is swept", || staged(&self.place).is_empty()).await;
        server.kill().await;
    }

    async fn assert_before_or_after(&self, step: &str, full_run: bool) {
        let published = match step {
            "manifested" | "published" | "finished" => 4,
            step => step.strip_prefix("published-").map_or(0, |number| number.parse().unwrap()),
        };
        let (old, new) = (&self.states[self.now].files, &self.states[1 - self.now].files);
        let mut expected = Files::new();
        for (number, month) in MONTHS.iter().enumerate() {
            let key = format!("pickup_month={month}");
            let side = if number < published { new } else { old };
            expected.extend(side.get(&key).map(|file| (key, file.clone())));
        }
        assert_eq!(live(&self.place), expected, "{step}: the files");
        let listed = if matches!(step, "manifested" | "published" | "finished") { new } else { old };
        assert_eq!(manifest(&self.place).as_ref(), Some(listed), "{step}: the manifest");
        let told = if step == "finished" { new } else { old };
        assert_eq!(&catalogued(&self.place).await, told, "{step}: the catalog");
        let unmarked = full_run && (step.starts_with("published-") || step == "manifested");
        assert_eq!(self.place.table(TABLE).join("_SUCCESS").exists(), !unmarked, "{step}: _SUCCESS");
    }
}

const PARQUET: &str = "manifest = true";
const CSV: &str = "format = \"csv\"\ncompression = \"gzip\"\nmanifest = true";

#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn killed_while_the_format_changes_no_partition_has_two(#[case] store: Store) {
    let mut bed = Bed::new(store, [PARQUET, CSV]).await;
    for step in [
        "staged",
        "decided",
        "locked",
        "published-1",
        "published-2",
        "published-4",
        "manifested",
        "published",
        "finished",
    ] {
        bed.go_through(&[step], true).await;
    }
    bed.go_through(&["published-1", "published-2", "published-3", "manifested", "published"], true).await;
    crate::counted(format_args!("{} kills while formats change over {store:?}, 0 violations", bed.kills));
}

#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn killed_around_the_manifest_it_is_the_old_one_or_the_new_one(#[case] store: Store) {
    let mut bed = Bed::new(store, [CSV, CSV]).await;
    for step in ["locked", "published-4", "manifested", "published", "finished"] {
        bed.go_through(&[step], false).await;
    }
    bed.go_through(&["published-4", "manifested", "manifested"], false).await;
}

/// A pipeline that is to have no manifest any more: no reader finds the old one beside new files.
#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_is_not_wanted_goes_before_the_first_file_moves() {
    let bed = Bed::new(Store::Sqlite, [PARQUET, PARQUET]).await;
    let place = &bed.place;
    define(place, "");
    write_input(place, NEW);
    let old = bed.states[0].files.clone();
    let server = place.start_with(&FLAGS, &[("REFRAIN_FAULT", "locked=kill")]).await;
    let _ = server.submit_to_the_dying("again", &overwrite()).await;
    server.died().await;
    assert_eq!((live(place), manifest(place)), (old.clone(), Some(old.clone())));
    place.launch_with(&FLAGS, &[("REFRAIN_FAULT", "published-1=kill")]).died().await;
    assert_eq!((live(place).len(), manifest(place)), (3, None));
    let server = place.start_with(&FLAGS, &[]).await;
    let run = server.wait(&server.submit("again", &overwrite()).await.run_id()).await;
    assert_eq!(run["state"], "succeeded", "{run:#}");
    assert_eq!((live(place), manifest(place)), (bed.states[1].files.clone(), None));
    assert_eq!(place.verify().await, None);
    server.kill().await;
}
