//! The server killed by SIGKILL at every named step, and again while it recovers.

use super::{
    Contents, FLAGS, Input, NEW, OLD, PART, TABLE, assert_well, catalog, catalogued, children_of, data_files, full,
    live, made, overwrite, place, place_with, process_state, sha256_of, until, write_input,
};
use crate::service::{Place, Server, Store};
use rstest::rstest;
use serde_json::Value;
use std::collections::BTreeMap;

/// Where the server is killed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum At {
    /// At this step of its own.
    Step(&'static str),
    /// While its engine is at this step.
    Engine(&'static str),
}
use At::{Engine, Step};

/// In the order of an attempt's way.
const STEPS: [At; 15] = [
    Step("answering"),
    Step("claimed"),
    Engine("scanned"),
    Engine("staged-1"),
    Engine("staged-2"),
    Engine("staged-3"),
    Step("staged"),
    Step("decided"),
    Step("locked"),
    Step("published-1"),
    Step("published-2"),
    Step("published-3"),
    Step("published-4"),
    Step("published"),
    Step("finished"),
];

/// How many partitions of the four are published there, in the order of their keys.
fn published(at: At) -> usize {
    match at {
        Step("published" | "finished") => 4,
        Step(step) => step.strip_prefix("published-").map_or(0, |number| number.parse().unwrap()),
        Engine(_) => 0,
    }
}

/// The sha256 and the totals of each partition.
type Catalog = BTreeMap<String, (String, String)>;

/// A table that goes from one known content to the other and back.
struct Bed {
    place: Place,
    store: Store,
    /// What the table is by each of the two inputs, and what the catalog says then.
    states: [(Input, Contents, Catalog); 2],
    /// Which of them it is now.
    now: usize,
    runs: usize,
    kills: usize,
    /// Before each run somebody puts a file of theirs into each partition's folder, and the pipeline says that such files go.
    foreign: bool,
}

/// What somebody else puts into a partition's folder.
const THEIRS: &str = "part-00000-theirs.parquet";

impl Bed {
    async fn new(store: Store, foreign: bool) -> Self {
        let place = place_with(store, if foreign { "[table]\nforeign_files = \"replace\"" } else { "" }).await;
        let server = place.start_with(&FLAGS, &[]).await;
        let mut states = Vec::new();
        for (key, input) in [("other", NEW), ("first", OLD)] {
            write_input(&place, input);
            server.run(key, &full()).await;
            states.insert(0, (input, live(&place), catalog(&place).await));
        }
        assert!(server.stop().await.success());
        let states: [_; 2] = states.try_into().unwrap();
        let keys = states.each_ref().map(|(_, live, _)| live.keys().map(|k| &k[k.len() - 2..]).collect::<Vec<_>>());
        assert_eq!(keys, [vec!["01", "02", "03"], vec!["01", "03", "04"]]);
        Self { place, store, states, now: 0, runs: 2, kills: 0, foreign }
    }

    /// Submits a run that the server does not survive.
    async fn kill_at(&self, server: Server, at: At, key: &str, body: &Value) {
        let _ = server.submit_to_the_dying(key, body).await;
        match at {
            Step(_) => server.died().await,
            Engine(_) => self.kill_at_the_engine(server).await,
        }
    }

    /// The engine waits for a minute at its step. It must not outlive its parent.
    async fn kill_at_the_engine(&self, server: Server) {
        made(&self.place.path("struck")).await;
        let engines = children_of(&server);
        assert_eq!(engines.len(), 1, "one engine is at work");
        server.kill().await;
        until("the engine ends with its parent", || engines.iter().all(|pid| process_state(*pid).is_none())).await;
    }

    fn fault(&self, at: At) -> String {
        let mark = self.place.path("struck");
        let _ = std::fs::remove_file(&mark);
        match at {
            Step(step) => format!("{step}=kill"),
            Engine(step) => format!("{step}=delay:60000@{}", mark.display()),
        }
    }

    /// Files: as many partitions as were published are new, all else is old. The catalog: all old until the run finished.
    async fn assert_before_or_after(&self, at: At, what: &str) {
        let (old, new) = (&self.states[self.now], &self.states[1 - self.now]);
        let keys: std::collections::BTreeSet<&String> = old.1.keys().chain(new.1.keys()).collect();
        let mut expected = Contents::new();
        for (number, key) in keys.into_iter().enumerate() {
            let is_published = number < published(at);
            let side = if is_published { new } else { old };
            expected.extend(side.1.get(key).map(|sha256| (format!("{key}/{PART}"), sha256.clone())));
            if self.foreign && !is_published {
                expected.insert(format!("{key}/{THEIRS}"), sha256_of(THEIRS.as_bytes()));
            }
        }
        assert_eq!(data_files(&self.place), expected, "{what}: the files");
        let side = if at == Step("finished") { new } else { old };
        assert_eq!(catalog(&self.place).await, side.2, "{what}: the catalog");
        let (full, marked) = (what.contains("full"), self.place.table(TABLE).join("_SUCCESS").exists());
        let unmarked = full && published(at) > 0 && at != Step("published") && at != Step("finished");
        assert_eq!(marked, !unmarked, "{what}: _SUCCESS is there unless a full run changes the table");
    }

    fn told(&self) {
        let what = if self.foreign { " and folders to swap" } else { "" };
        crate::counted(format_args!("{} kills at named steps over {:?}{what}, 0 violations", self.kills, self.store));
    }

    /// One run from one content to the other, with the servers killed one after the other at these steps.
    async fn go_through(&mut self, deaths: &[At], full_run: bool) {
        let body = if full_run { full() } else { overwrite() };
        let with = if self.foreign { "theirs" } else { "" };
        let what = format!("{:?} {deaths:?} {with} {}", self.store, if full_run { "full" } else { "overwrite" });
        // It is the key as well, and a key has no blanks.
        let what = what.replace(' ', "");
        write_input(&self.place, self.states[1 - self.now].0);
        if self.foreign {
            for month in super::MONTHS {
                let folder = self.place.table(TABLE).join(format!("pickup_month={month}"));
                std::fs::create_dir_all(&folder).unwrap();
                std::fs::write(folder.join(THEIRS), THEIRS).unwrap();
            }
        }
        for (number, at) in deaths.iter().enumerate() {
            let fault = self.fault(*at);
            let environment = [("REFRAIN_FAULT", fault.as_str())];
            if number == 0 {
                let server = self.place.start_with(&FLAGS, &environment).await;
                self.kill_at(server, *at, &what, &body).await;
            } else {
                self.place.launch_with(&FLAGS, &environment).died().await;
            }
            self.assert_before_or_after(*at, &what).await;
            self.kills += 1;
        }
        self.runs += 1;
        let server = self.place.start_with(&FLAGS, &[]).await;
        let again = server.submit(&what, &body).await;
        assert_eq!(again.status, 200, "{what}: {again:?}");
        let run = server.wait(&again.run_id()).await;
        assert_eq!(run["state"], "succeeded", "{what}: {run:#}");
        let outcomes: Vec<&Value> = run["attempts"].as_array().unwrap().iter().map(|a| &a["outcome"]).collect();
        assert_eq!(outcomes.iter().filter(|outcome| **outcome == "succeeded").count(), 1, "{what}: {run:#}");
        assert!(outcomes.iter().all(|o| *o == "lost" || *o == "succeeded"), "{what}: {run:#}");
        assert_eq!(server.submit(&what, &body).await.run_id(), again.run_id(), "{what}");
        let listed = server.get("/runs?limit=1000").await.json();
        assert_eq!(listed["runs"].as_array().unwrap().len(), self.runs, "{what}: one run for each key");
        self.now = 1 - self.now;
        assert_eq!(live(&self.place), self.states[self.now].1, "{what}");
        assert_eq!(catalog(&self.place).await, self.states[self.now].2, "{what}");
        assert!(self.place.table(TABLE).join("_SUCCESS").exists(), "{what}");
        assert_well(&self.place).await;
        server.kill().await;
    }
}

#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_step_a_run_ends_as_if_nothing_was(#[case] store: Store) {
    let mut bed = Bed::new(store, false).await;
    for at in STEPS {
        bed.go_through(&[at], false).await;
    }
    for at in STEPS.into_iter().filter(|at| *at == Step("locked") || published(*at) > 0) {
        bed.go_through(&[at], true).await;
    }
    bed.told();
}

#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn killed_again_while_it_recovers_it_recovers_from_that(#[case] store: Store) {
    let mut bed = Bed::new(store, false).await;
    bed.go_through(&[Step("claimed"), Step("staged"), Step("decided")], false).await;
    bed.go_through(&[Step("staged"), Step("locked"), Step("published-1")], true).await;
    bed.go_through(&[Step("published-1"), Step("published-2"), Step("published-3")], false).await;
    bed.go_through(&[Step("published-2"), Step("published-3"), Step("published")], true).await;
    bed.go_through(&[Step("published"), Step("finished")], false).await;
    bed.told();
}

/// With files of others in every folder, which go: killed at each step, and again while it recovers.
#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn killed_while_it_swaps_folders_it_never_swaps_back(#[case] store: Store) {
    let mut bed = Bed::new(store, true).await;
    for at in STEPS.into_iter().filter(|at| matches!(at, Step(_))) {
        bed.go_through(&[at], false).await;
    }
    bed.go_through(&[Step("locked"), Step("published-1"), Step("published-2"), Step("published-3")], false).await;
    bed.go_through(&[Step("published-2"), Step("published"), Step("published")], true).await;
    bed.told();
}

#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_fails_is_done_again(#[case] store: Store) {
    let place = place(store).await;
    let server = place.start_with(&FLAGS, &[]).await;
    server.run("first", &full()).await;
    assert!(server.stop().await.success());
    let steps =
        ["claimed", "scanned", "staged-2", "staged", "decided", "locked", "published-2", "published", "finished"];
    let faults = steps.map(|step| format!("{step}=fail@{}", place.path(step).display())).join(",");
    let faults = format!("{faults},answering=fail@{}", place.path("answering").display());
    write_input(&place, NEW);
    let flags = [&FLAGS[..], &["--sweep-seconds", "1"]].concat();
    let server = place.start_with(&flags, &[("REFRAIN_FAULT", &faults)]).await;
    assert_eq!(server.submit("second", &full()).await.status, 500, "its answer is lost");
    let again = server.submit("second", &full()).await;
    assert_eq!(again.status, 200, "{again:?}");
    let run = server.wait(&again.run_id()).await;
    assert_eq!(run["state"], "succeeded", "{run:#}");
    let failed = run["attempts"].as_array().unwrap().iter().filter(|a| a["outcome"] == "failed").count();
    // The last step's failure has no attempt of its own: the run is finished by then.
    assert_eq!(failed, steps.len() - 1, "{run:#}");
    until("each step has failed once", || steps.iter().all(|step| place.path(step).exists())).await;
    assert_eq!(catalogued(&place).await.len(), 3);
    assert_well(&place).await;
}
