//! The database goes away: the network before it is cut, holds everything up or swallows it, and comes back.

use super::{
    FLAGS, NEW, TABLE, assert_well, catalogued, children_of, full, live, made, overwrite, place, process_state, until,
    write_input,
};
use crate::proxy::{Network, Proxy};
use crate::service::{Answer, Place, Server, Store};
use rstest::rstest;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// A request gets its answer within this time while the database is away; with what a busy machine takes.
const AN_ANSWER: Duration = Duration::from_secs(12);

/// A table with the old content, the new input before it, and a server behind a network, which waits at a step of its next
/// run.
struct Bed {
    place: Place,
    proxy: Proxy,
    server: Server,
}

impl Bed {
    async fn new(lease: &str, fault: &str) -> Self {
        let place = place(Store::Postgres).await;
        let server = place.start_with(&FLAGS, &[]).await;
        server.run("first", &full()).await;
        assert!(server.stop().await.success());
        write_input(&place, NEW);
        let proxy = place.proxy().await;
        let fault = format!("{fault}@{}", place.path("struck").display());
        let flags = ["--workers", "1", "--lease-seconds", lease, "--max-lost-workers", "1000"];
        let server = place.start_behind(&proxy, &flags, &[("REFRAIN_FAULT", &fault)]).await;
        Self { place, proxy, server }
    }

    /// Submits a run and waits until it is held up at its step.
    async fn begin(&self) -> String {
        let id = self.server.accept("second", &full()).await;
        made(&self.place.path("struck")).await;
        id
    }

    /// The attempts' outcomes of a run that must succeed.
    async fn outcomes(&self, id: &str) -> Vec<String> {
        let run = self.server.wait(id).await;
        assert_eq!(run["state"], "succeeded", "{run:#}");
        outcomes(&run)
    }

    /// The server is what it was before: it serves, works, and leaves files and catalog the same.
    async fn recovers(&self) {
        self.ready().await;
        write_input(&self.place, super::LATER);
        self.server.run("later", &overwrite()).await;
        assert_eq!(catalogued(&self.place).await.len(), 4);
        assert_well(&self.place).await;
    }

    async fn ready(&self) {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let ready = self.server.get("/readyz").await;
            if ready.status == 200 {
                return;
            }
            assert!(Instant::now() < end, "it does not come back: {ready:?}\n{}", self.server.log_tail());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

fn outcomes(run: &Value) -> Vec<String> {
    run["attempts"].as_array().unwrap().iter().map(|a| a["outcome"].as_str().unwrap_or("-").to_owned()).collect()
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn away_for_less_than_the_lease_the_work_goes_on(
    #[values(Network::Cut, Network::Held, Network::Swallowed)] network: Network,
) {
    let bed = Bed::new("5", "scanned=delay:4500").await;
    let id = bed.begin().await;
    let engines = children_of(&bed.server);
    bed.proxy.set(network);
    // A renewal is due in this time, and does not come through.
    tokio::time::sleep(Duration::from_secs(3)).await;
    bed.proxy.set(Network::Open);
    assert!(engines.iter().all(|pid| process_state(*pid).is_some()), "the engine works on");
    bed.ready().await;
    assert_eq!(bed.outcomes(&id).await, ["succeeded"], "{}", bed.server.log_tail());
    assert!(bed.server.log().contains("the lease could not be renewed"), "the cut was felt");
    bed.recovers().await;
}

/// Another worker, whose network is well, takes the run over when the lease is over. By then the first one has stopped.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn away_for_longer_than_the_lease_the_attempt_stops_before_it_is_anothers(
    #[values(Network::Cut, Network::Held, Network::Swallowed)] network: Network,
) {
    let bed = Bed::new("3", "scanned=delay:60000").await;
    let id = bed.begin().await;
    let engines = children_of(&bed.server);
    assert_eq!(engines.len(), 1);
    let (old, store) = (live(&bed.place), bed.place.store().await);
    bed.proxy.set(network);
    let other = bed.place.start_with(&FLAGS, &[]).await;
    let run_id = refrain::run::RunId(id.parse().unwrap());
    let end = Instant::now() + super::WITHIN;
    loop {
        let attempts = store.get(run_id).await.unwrap().unwrap().attempts.len();
        let works = engines.iter().any(|pid| process_state(*pid).is_some());
        if !works {
            break;
        }
        assert_eq!(attempts, 1, "another has the run, and the first still works on it");
        assert!(Instant::now() < end, "the first works on: {}", bed.server.log_tail());
        assert_eq!(live(&bed.place), old);
    }
    let run = other.wait(&id).await;
    assert_eq!((&run["state"], outcomes(&run)), (&json!("succeeded"), vec!["lost".to_owned(), "succeeded".to_owned()]));
    let workers: Vec<&Value> = run["attempts"].as_array().unwrap().iter().map(|a| &a["worker"]).collect();
    assert_ne!(workers[0], workers[1]);
    bed.proxy.set(Network::Open);
    bed.recovers().await;
    assert!(!decided(&bed.server, &id), "{}", bed.server.log_tail());
}

/// Whether a server's log says that it decided a run.
fn decided(server: &Server, id: &str) -> bool {
    server.log().lines().any(|line| line.contains(id) && (line.contains("decided") || line.contains("succeeded")))
}

/// The only server is cut off for longer than its lease: at a step before the decision, after it, and inside the lock before
/// the run is finished.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn the_only_server_goes_on_when_the_database_is_back(
    #[values("scanned=delay:60000", "decided=delay:500", "published=delay:500")] fault: &str,
    #[values(Network::Cut, Network::Swallowed)] network: Network,
) {
    let bed = Bed::new("2", fault).await;
    let id = bed.begin().await;
    let old = catalogued(&bed.place).await;
    bed.proxy.set(network);
    until("the attempt stops", || bed.server.log().contains("the lease is lost")).await;
    assert_eq!(catalogued(&bed.place).await, old);
    bed.proxy.set(Network::Open);
    bed.ready().await;
    let outcomes = bed.outcomes(&id).await;
    // A claim that met connections which the network forgot may find its short lease over.
    let (last, before) = outcomes.split_last().unwrap();
    assert_eq!(last, "succeeded");
    assert!(!before.is_empty() && before.iter().all(|o| o == "lost"), "{outcomes:?} {}", bed.server.log_tail());
    bed.recovers().await;
}

/// What is asked meanwhile is answered with 503, soon; whoever waits for a run is told too.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn while_it_is_away_every_request_is_answered_soon(
    #[values(Network::Cut, Network::Held, Network::Swallowed)] network: Network,
) {
    let bed = Bed::new("30", "scanned=delay:60000").await;
    let id = bed.begin().await;
    let waiting = format!("/runs/{id}?wait=60");
    let (waited, ()) = tokio::join!(in_time(bed.server.get(&waiting)), async {
        // It is being waited for by now, or will find the database away at once.
        bed.ready().await;
        bed.proxy.set(network);
    });
    unavailable(&waited);
    let body = overwrite();
    let partitions = format!("/pipelines/{TABLE}/partitions");
    let run = format!("/runs/{id}");
    for _ in 0..2 {
        let answers = tokio::join!(
            in_time(bed.server.submit("meanwhile", &body)),
            in_time(bed.server.get(&run)),
            in_time(bed.server.get("/runs")),
            in_time(bed.server.get(&partitions)),
        );
        for answer in [answers.0, answers.1, answers.2, answers.3] {
            unavailable(&answer);
        }
        // A good answer is given again for a second.
        let end = Instant::now() + AN_ANSWER;
        let ready = loop {
            let ready = in_time(bed.server.get("/readyz")).await;
            if ready.status != 200 || Instant::now() > end {
                break ready;
            }
        };
        assert_eq!((ready.status, ready.header("retry-after")), (503, "1"), "{ready:?}");
        assert!(ready.json()["detail"].as_str().unwrap().starts_with("database: "), "{ready:?}");
        let since = Instant::now();
        assert_eq!(bed.server.get("/healthz").await.status, 200);
        assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
    }
    bed.proxy.set(Network::Open);
    bed.ready().await;
    for path in [&run, &partitions, &"/runs".to_owned()] {
        let answer = bed.server.get(path).await;
        assert_eq!(answer.status, 200, "{answer:?}\n{}", bed.server.log_tail());
    }
    let again = bed.server.submit("meanwhile", &body).await;
    assert!(matches!(again.status, 200 | 202), "{again:?}");
    assert_eq!(bed.server.submit("meanwhile", &body).await.run_id(), again.run_id());
    let listed = bed.server.get("/runs").await.json();
    assert_eq!(listed["runs"].as_array().unwrap().len(), 3, "one run for each key: {listed:#}");
}

async fn in_time(answer: impl Future<Output = Answer>) -> Answer {
    let since = Instant::now();
    let answer = answer.await;
    assert!(since.elapsed() < AN_ANSWER, "{:?}: {answer:?}", since.elapsed());
    answer
}

fn unavailable(answer: &Answer) {
    assert_eq!((answer.status, answer.header("retry-after")), (503, "1"), "{answer:?}");
    assert_eq!(answer.json()["type"], "urn:refrain:problem:unavailable", "{answer:?}");
}

/// The run is accepted, and the connection ends before it is said: asked once more, the database has the key, and the client is shown
/// the run that is its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_whose_answer_was_lost_after_the_commit_finds_its_run() {
    let bed = Bed::new("30", "scanned=delay:1").await;
    let body = json!({"pipeline": TABLE, "partitions": ["2024-03"]});
    bed.proxy.lose_the_commit_of("pickup_month=2024-03");
    let first = bed.server.submit("second", &body).await;
    assert!(bed.proxy.has_lost_it());
    let again = bed.server.submit("second", &body).await;
    for answer in [&first, &again] {
        assert_eq!((answer.status, answer.header("idempotent-replayed")), (200, "true"), "{answer:?}");
    }
    assert_eq!(first.run_id(), again.run_id());
    let listed = bed.server.get("/runs").await.json();
    assert_eq!(listed["runs"].as_array().unwrap().len(), 2, "one run for each key: {listed:#}");
    assert_eq!(bed.outcomes(&again.run_id()).await, ["succeeded"]);
    bed.recovers().await;
}
