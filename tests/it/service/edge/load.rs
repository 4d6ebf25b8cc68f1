//! The service under load of one principal: another one is answered meanwhile.

use super::super::cli::refrain_with;
use super::super::{Place, Server, Store};
use super::quick_pipeline;
use super::raw::{connect, connect_narrow};
use crate::counted;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// How much of each there is.
struct Load {
    /// Clients that send a byte of a head, and a byte of a body, now and then, and that read a byte now and then; so many each.
    slow: usize,
    /// Connections that ask for nothing.
    idle: usize,
    /// Clients that ask as fast as they are answered.
    flood: usize,
    /// For how long it is measured, without it and with it.
    time: Duration,
}

/// What the other principal saw.
struct Seen {
    looks: Vec<Duration>,
    submissions: Vec<Duration>,
}

const HEAD: &[u8] = b"GET /runs HTTP/1.1\r\nhost: localhost\r\nx-more: 0123456789012345678901234567890123456789\r\n";

/// Each comes back as soon as it is dropped.
async fn bytes_now_and_then(address: String, before: Vec<u8>, bytes: &'static [u8]) {
    loop {
        let Ok(mut stream) = TcpStream::connect(&address).await else { continue };
        let _ = stream.write_all(&before).await;
        for byte in bytes.iter().cycle() {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if stream.write_all(&[*byte]).await.is_err() {
                break;
            }
        }
    }
}

async fn reads_now_and_then(address: String, asked: Vec<u8>) {
    loop {
        let mut stream = connect_narrow(&address).await;
        let _ = stream.write_all(&asked).await;
        while matches!(stream.read(&mut [0]).await, Ok(1)) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

async fn asks_for_nothing(address: String) {
    loop {
        let mut stream = connect(&address).await;
        let _ = stream.read(&mut [0; 1024]).await;
    }
}

async fn floods(url: String, token: String, asked: Arc<AtomicU64>, number: usize) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    for at in 0_u64.. {
        let request = match at % 2 {
            0 => client.get(format!("{url}/runs?limit=100")),
            _ => client
                .post(format!("{url}/runs"))
                .header("idempotency-key", format!("flood-{number}-{at}"))
                .json(&month(1)),
        };
        if let Ok(answer) = request.bearer_auth(&token).send().await {
            let _ = answer.bytes().await;
        }
        asked.fetch_add(1, Ordering::Relaxed);
    }
}

fn month(month: u64) -> serde_json::Value {
    json!({"pipeline": "quick", "partitions": [format!("2024-{:02}", 1 + month % 12)]})
}

/// Looks at a run and submits another one, over and over.
async fn watch(server: &Server, token: &str, name: &str, time: Duration) -> Seen {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let sent = async |request: reqwest::RequestBuilder| {
        let since = Instant::now();
        let answer = request.bearer_auth(token).send().await.unwrap();
        let status = answer.status().as_u16();
        let body: serde_json::Value = answer.json().await.unwrap();
        assert!(matches!(status, 200 | 202), "{status}: {body:#}\n{}", server.log_tail());
        (since.elapsed(), body["id"].as_str().unwrap_or_default().to_owned())
    };
    let (mut seen, since) = (Seen { looks: Vec::new(), submissions: Vec::new() }, Instant::now());
    for at in 0.. {
        let request = client.post(format!("{}/runs", server.url())).header("idempotency-key", format!("{name}-{at}"));
        let (took, id) = sent(request.json(&month(at))).await;
        seen.submissions.push(took);
        for _ in 0..4 {
            seen.looks.push(sent(client.get(format!("{}/runs/{id}", server.url()))).await.0);
        }
        if since.elapsed() > time {
            break;
        }
        // As somebody who polls, and not another flood.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    seen
}

fn at(share: f64, times: &mut [Duration]) -> Duration {
    times.sort();
    times[((times.len() - 1) as f64 * share) as usize]
}

/// A token of a principal, made before the server has the database.
async fn token(place: &Place, principal: &str, scope: &str) -> String {
    let data = place.path("refrain-data");
    let made = ["token", "new", "--principal", principal, "--scope", scope, "--data-dir", data.to_str().unwrap()];
    let said = refrain_with(&made, &[]).await;
    assert_eq!(said.code, 0, "{said:?}");
    said.out.trim().to_owned()
}

/// The open connections of clients.
async fn connections(server: &Server, token: &str) -> f64 {
    let asked = reqwest::Client::new().get(format!("{}/metrics", server.url())).bearer_auth(token).send();
    let text = asked.await.unwrap().text().await.unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("refrain_http_connections "));
    line.map_or(0.0, |value| value.parse().unwrap())
}

async fn under(load: &Load) -> (Seen, Seen) {
    let place = Place::new(Store::Sqlite).await;
    quick_pipeline(&place);
    let (noisy, quiet) = (token(&place, "noisy", "run").await, token(&place, "quiet", "run").await);
    let server = place.start_with(&["--workers", "0"], &[]).await;
    let alone = watch(&server, &quiet, "alone", load.time).await;
    let (address, asked) = (server.address().to_owned(), Arc::new(AtomicU64::new(0)));
    let mut clients = JoinSet::new();
    let body =
        b"POST /runs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n\r\n";
    let answers = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(50);
    for _ in 0..load.slow {
        clients.spawn(bytes_now_and_then(address.clone(), Vec::new(), HEAD));
        clients.spawn(bytes_now_and_then(address.clone(), body.to_vec(), b" "));
        clients.spawn(reads_now_and_then(address.clone(), answers.clone()));
    }
    for _ in 0..load.idle {
        clients.spawn(asks_for_nothing(address.clone()));
    }
    for number in 0..load.flood {
        clients.spawn(floods(server.url().to_owned(), noisy.clone(), Arc::clone(&asked), number));
    }
    let expected = (3 * load.slow + load.idle) as f64;
    let end = Instant::now() + super::SOON;
    while connections(&server, &quiet).await < expected {
        assert!(Instant::now() < end, "not {expected} connections: {}", server.log_tail());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let before = asked.load(Ordering::Relaxed);
    let beside = watch(&server, &quiet, "beside", load.time).await;
    let flood = (asked.load(Ordering::Relaxed) - before) as f64 / load.time.as_secs_f64();
    counted(format_args!("{expected} connections held, {flood:.0} requests a second of the flood"));
    (alone, beside)
}

fn compared(what: &str, alone: &mut [Duration], beside: &mut [Duration]) -> f64 {
    let (median, slowest) = ((at(0.5, alone), at(0.5, beside)), (at(0.99, alone), at(0.99, beside)));
    let ratio = median.1.as_secs_f64() / median.0.as_secs_f64();
    counted(format_args!(
        "{what}: p50 {:.1?} alone and {:.1?} beside, {ratio:.1} times; p99 {:.1?} and {:.1?}",
        median.0, median.1, slowest.0, slowest.1
    ));
    ratio
}

#[tokio::test(flavor = "multi_thread")]
async fn others_are_answered_beside_slow_clients_and_a_flood() {
    let load = Load { slow: 50, idle: 200, flood: 4, time: Duration::from_secs(2) };
    let (mut alone, mut beside) = under(&load).await;
    compared("a look", &mut alone.looks, &mut beside.looks);
    compared("a submission", &mut alone.submissions, &mut beside.submissions);
    assert!(at(0.9, &mut beside.looks) < Duration::from_secs(1), "{:?}", at(0.9, &mut beside.looks));
    assert!(at(0.9, &mut beside.submissions) < Duration::from_secs(2), "{:?}", at(0.9, &mut beside.submissions));
}

/// `cargo test --release --test it edge::load -- --ignored --nocapture`
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a minute of load, for its figures"]
async fn figures_of_a_large_load() {
    let load = Load { slow: 500, idle: 2_000, flood: 16, time: Duration::from_secs(20) };
    let (mut alone, mut beside) = under(&load).await;
    compared("a look", &mut alone.looks, &mut beside.looks);
    compared("a submission", &mut alone.submissions, &mut beside.submissions);
}
