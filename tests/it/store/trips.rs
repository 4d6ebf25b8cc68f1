//! How often each business step asks Postgres. A step that needs one more fails here: who adds it says why.

use super::bed::PostgresDatabase;
use super::make::{claim_request, decided, decision, progress, request};
use super::reading::everything;
use crate::proxy::Proxy;
use refrain::run::Outcome;
use refrain::store::{Begun, Fenced, PostgresOptions, PostgresStore, RunStore, Submitted};
use secrecy::ExposeSecret;
use std::time::Duration;

/// How often each step is done: what is asked for the first time over a connection takes a trip more.
const TIMES: u32 = 10;

/// The steps of a run in their order, and of whoever looks at it.
const LIMITS: [(&str, u32); 15] = [
    ("a key is looked up", 1),
    ("the layout is looked at", 1),
    ("nothing is found to claim", 1),
    ("a run is accepted", 1),
    ("a key that is known is looked up", 1),
    ("a run is told", 1),
    ("runs are glanced at", 1),
    ("a run is claimed", 13),
    ("a lease is renewed", 5),
    ("a run is decided", 9),
    ("a worker asks whether it may publish", 3),
    ("a run is finished", 18),
    ("what stands behind no run is freed", 3),
    ("a version is told", 1),
    ("totals are told", 5),
];

/// What each step took the last time.
struct Count<'a> {
    proxy: &'a Proxy,
    found: Vec<(&'static str, u32)>,
}

impl Count<'_> {
    async fn of<T>(&mut self, name: &'static str, step: impl Future<Output = T>) -> T {
        let before = self.proxy.round_trips();
        let answer = step.await;
        let trips = self.proxy.round_trips() - before;
        match self.found.iter_mut().find(|(known, _)| *known == name) {
            Some((_, last)) => *last = trips,
            None => self.found.push((name, trips)),
        }
        answer
    }
}

#[tokio::test]
async fn each_step_makes_so_many_round_trips() {
    let database = PostgresDatabase::create().await;
    let proxy = Proxy::before(database.url().expose_secret()).await;
    // One connection, so that each statement is prepared once.
    let options = PostgresOptions { max_connections: 1, max_queued_runs: Some(100), ..PostgresOptions::default() };
    let store = PostgresStore::connect(&proxy.url().to_owned().into(), options).await.unwrap();
    store.migrate().await.unwrap();
    let mut count = Count { proxy: &proxy, found: Vec::new() };
    for n in 0..TIMES {
        one_run(&store, &mut count, n).await;
    }
    assert_eq!(count.found, LIMITS, "found, and expected");
    drop(store);
    database.drop().await;
}

async fn one_run(store: &dyn RunStore, count: &mut Count<'_>, n: u32) {
    let asked = request("trips", &format!("run-{n}"), &["month=2024-01", "month=2024-02"]);
    let known = store.known_key(&asked.principal, &asked.idempotency_key);
    assert_eq!(count.of("a key is looked up", known).await.unwrap(), None);
    count.of("the layout is looked at", store.table_definitions("trips")).await.unwrap();
    let claims = claim_request();
    assert!(count.of("nothing is found to claim", store.claim(&claims)).await.unwrap().is_none());
    let submitted = count.of("a run is accepted", store.submit(&asked)).await.unwrap();
    assert!(matches!(submitted, Submitted::New(_)), "{submitted:?}");
    let known = store.known_key(&asked.principal, &asked.idempotency_key);
    assert!(count.of("a key that is known is looked up", known).await.unwrap().is_some());
    count.of("a run is told", store.get(asked.id)).await.unwrap().unwrap();
    count.of("runs are glanced at", store.glances(&[asked.id])).await.unwrap();
    let claimed = count.of("a run is claimed", store.claim(&claim_request())).await.unwrap().unwrap();
    let (id, token) = (claimed.run.id, claimed.token);
    let progress = progress();
    let renewed = store.renew(id, token, Duration::from_secs(30), &progress);
    let _ = count.of("a lease is renewed", renewed).await.unwrap();
    let outcome = if n == 0 { Outcome::Created } else { Outcome::Replaced };
    let decision = decision(["month=2024-01", "month=2024-02"].map(|p| decided(p, outcome, 5)).into());
    let begun = count.of("a run is decided", store.begin_commit(id, token, &decision)).await.unwrap();
    assert_eq!(begun, Begun::Committing);
    let may = count.of("a worker asks whether it may publish", store.may_publish(id, token)).await.unwrap();
    let finished = count.of("a run is finished", store.finish(id, token)).await.unwrap();
    assert_eq!((may, finished), (Fenced::Done, Fenced::Done));
    assert_eq!(count.of("what stands behind no run is freed", store.free_stranded()).await.unwrap(), 0);
    count.of("a version is told", store.table_version("trips")).await.unwrap();
    count.of("totals are told", store.partitions("trips", &everything())).await.unwrap();
}
