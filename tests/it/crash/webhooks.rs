//! Webhooks through kills: a receiver that errs, and servers that are killed at any moment and around each try. Each run's end is
//! told at least once, and, repeats dropped by their ids, exactly once.

use super::{FLAGS, MONTHS, TABLE, place};
use crate::counted;
use crate::receiver::{Heard, Receiver, telling};
use crate::service::{Place, Server, Store, trips_pipeline};
use crate::site::{Body, Reply};
use rstest::rstest;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// For a longer form of the tests: how many kills there are.
const KILLS: &str = "REFRAIN_TEST_WEBHOOK_KILLS";
const DRAINED_WITHIN: Duration = Duration::from_secs(90);

/// Steps at which a server kills itself; around the try, and where the run ends.
const STEPS: [&str; 4] = ["delivering=kill", "delivered=kill", "finished=kill", "published=kill"];

/// Numbers that look random, one after the other.
struct Chance(AtomicU64);

impl Chance {
    fn new() -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(u64::from(uuid::Uuid::new_v4().as_fields().0))))
    }

    /// One below `limit`.
    fn below(&self, limit: u64) -> u64 {
        let step = |x: u64| x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let last = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |x| Some(step(x))).unwrap();
        (step(last) >> 33) % limit
    }
}

/// Errs half the time, in each way, until it is told to be good.
async fn moody(chance: Arc<Chance>, is_good: Arc<AtomicBool>) -> Receiver {
    Receiver::start(move |_| {
        if is_good.load(Ordering::SeqCst) {
            return Reply::status(204);
        }
        match chance.below(12) {
            0 | 1 => Reply::status(500),
            2 => Reply::status(503).with("retry-after", "0"),
            // What it was told is with it, and the sender does not learn so.
            3 | 4 => Reply::status(204).body(Body::Cut(vec![0; 8], 0)).with("content-length", "x"),
            5 => Reply { body: Body::Silence, ..Reply::status(204) },
            6 => Reply { body: Body::SlowHead, ..Reply::status(204) },
            _ => Reply::status(204),
        }
    })
    .await
}

/// What a client asks for: runs that succeed, fail and are cancelled.
fn wanted(number: usize) -> (String, Value) {
    let body = match number % 3 {
        0 => json!({"pipeline": TABLE, "partitions": [MONTHS[number % 4]]}),
        1 => json!({"pipeline": "broken", "partitions": ["2024-01"]}),
        _ => json!({"pipeline": TABLE, "partitions": ["2024-02"],
            "not_before": (chrono::Utc::now() + chrono::TimeDelta::days(1)).to_rfc3339()}),
    };
    (format!("run-{number}"), body)
}

/// Servers over one place, and what was asked of them.
struct Bed {
    place: Place,
    flags: Vec<String>,
    chance: Arc<Chance>,
    asked: Vec<(String, Value)>,
}

impl Bed {
    fn launch(&self, fault: Option<&str>) -> Server {
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        let environment: Vec<(&str, &str)> = fault.map(|fault| ("REFRAIN_FAULT", fault)).into_iter().collect();
        self.place.launch_with(&flags, &environment)
    }

    /// Asks for three more runs, and cancels the third, while the server may die.
    async fn ask(&mut self, server: &Server) {
        for _ in 0..3 {
            let (key, body) = wanted(self.asked.len());
            self.asked.push((key.clone(), body.clone()));
            let Some(accepted) = server.submit_to_the_dying(&key, &body).await else { continue };
            if body.get("not_before").is_some() && accepted.status < 300 {
                server.cancel_of_the_dying(&accepted.run_id()).await;
            }
        }
    }

    /// A server that is killed: at a step of its own, or some time after it is ready.
    async fn kill_one(&mut self, round: usize) {
        let step = round.is_multiple_of(3).then(|| STEPS[(round / 3) % STEPS.len()]);
        let server = self.launch(step);
        if !server.is_ready_or_dead().await {
            return server.died().await;
        }
        self.ask(&server).await;
        tokio::time::sleep(Duration::from_millis(self.chance.below(500))).await;
        server.kill().await;
    }

    /// Everything that was asked for, ended and told; each run as it is.
    async fn drained(&self, server: &Server) -> Vec<Value> {
        let mut runs = Vec::new();
        for (key, body) in &self.asked {
            let answer = server.submit(key, body).await;
            assert!(answer.status == 200 || answer.status == 202, "{answer:?}");
            let id = answer.run_id();
            if body.get("not_before").is_some() {
                server.cancel_of_the_dying(&id).await;
            }
            server.wait(&id).await;
            runs.push(id);
        }
        let (mut ended, end) = (Vec::new(), Instant::now() + DRAINED_WITHIN);
        for id in runs {
            loop {
                let run = server.get(&format!("/runs/{id}")).await.json();
                if run["deliveries"][0]["state"] == "delivered" {
                    ended.push(run);
                    break;
                }
                assert!(Instant::now() < end, "not told: {run:#}\n{}", server.log_tail());
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        ended
    }
}

#[rstest]
#[case::sqlite(Store::Sqlite, 50)]
#[case::postgres(Store::Postgres, 14)]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_end_is_told_once_when_repeats_are_dropped(#[case] store: Store, #[case] kills: usize) {
    let kills = std::env::var(KILLS).map_or(kills, |kills| kills.parse().unwrap());
    let (chance, is_good) = (Chance::new(), Arc::new(AtomicBool::new(false)));
    let receiver = moody(Arc::clone(&chance), Arc::clone(&is_good)).await;
    let place = place(store).await;
    place.pipeline("broken", &format!("{}\n{RETRY}", trips_pipeline("broken", r#""gone/*.parquet""#, "", "")));
    // Any number of tries: half of them fail, and each kill may cost one.
    let mut flags = telling(&place, &receiver.listed(), &["0"; 200].join(","));
    flags.extend(["--webhook-url".to_owned(), receiver.url("/hook")]);
    flags.extend(FLAGS[2..].iter().map(|flag| (*flag).to_owned()));
    let mut bed = Bed { place, flags, chance, asked: Vec::new() };
    // Where servers share the database, another one works and tells meanwhile.
    let other = (store == Store::Postgres).then(|| bed.launch(None));
    for round in 0..kills {
        bed.kill_one(round).await;
    }
    is_good.store(true, Ordering::SeqCst);
    if let Some(other) = other {
        other.kill().await;
    }
    let server = bed.launch(None);
    assert!(server.is_ready_or_dead().await, "{}", server.log_tail());
    let runs = bed.drained(&server).await;
    check(&runs, &receiver.heard(), kills);
}

const RETRY: &str = "[retry]\nsource = { attempts = 1 }\n";

/// Every run's end was told, under one id, and as it was.
fn check(runs: &[Value], heard: &[Heard], kills: usize) {
    let mut told: BTreeMap<&str, Vec<&Heard>> = BTreeMap::new();
    for one in heard {
        told.entry(one.id.as_str()).or_default().push(one);
    }
    for repeats in told.values() {
        assert!(repeats.iter().all(|one| one.body == repeats[0].body), "one id says two things: {repeats:#?}");
    }
    assert_eq!(told.len(), runs.len(), "as many ids as runs that have ended");
    let mut states: BTreeMap<&str, usize> = BTreeMap::new();
    for run in runs {
        let deliveries = run["deliveries"].as_array().unwrap();
        assert_eq!(deliveries.len(), 1, "{run:#}");
        let one = told[deliveries[0]["id"].as_str().unwrap()][0];
        let state = run["state"].as_str().unwrap();
        assert_eq!((one.run(), one.event()), (run["id"].as_str().unwrap(), format!("run.{state}").as_str()));
        assert_eq!((&one.body["timestamp"], &one.body["data"]["state"]), (&run["ended_at"], &run["state"]));
        assert_eq!(one.body["data"]["error"]["detail"], run["error"]["detail"]);
        *states.entry(state).or_default() += 1;
    }
    assert_eq!(states.len(), 3, "{states:?}");
    let (ends, times) = (told.len(), heard.len());
    counted(format_args!("{kills} kills, {ends} runs ended {states:?}, told {times} times under {ends} ids"));
    assert!(times > ends, "nothing was told twice, so the test has shown nothing");
}
