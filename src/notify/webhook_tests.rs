//! Tries against a receiver on the loopback, with a resolver that the test holds.

#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::run::{DefinitionHash, Mode, Occasion, PartitionCounts, RunId, State};
use std::sync::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

pub(in crate::notify) fn notice() -> Notice {
    let at = "2024-03-01T06:00:00Z".parse().unwrap();
    Notice {
        occasion: Occasion::RunEnded,
        at,
        run_id: RunId::new(),
        principal: "default".to_owned(),
        idempotency_key: "key".to_owned(),
        pipeline: "trips".to_owned(),
        mode: Mode::Overwrite,
        state: State::Succeeded,
        attempt: 1,
        labels: Default::default(),
        definition: DefinitionHash("abc".to_owned()),
        created_at: at,
        started_at: Some(at),
        error: None,
        rows: None,
        partitions: PartitionCounts::default(),
        sources: Vec::new(),
    }
}

/// Counts its requests, and answers 204.
async fn receiver() -> (u16, Arc<Mutex<u32>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, asked) = (listener.local_addr().unwrap().port(), Arc::new(Mutex::new(0)));
    let seen = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            *seen.lock().unwrap() += 1;
            let mut request = vec![0; 64 << 10];
            let _ = client.read(&mut request).await;
            let _ = client.write_all(b"HTTP/1.1 204 x\r\nconnection: close\r\n\r\n").await;
        }
    });
    (port, asked)
}

/// Answers with these addresses, one look after the other; the last one for good.
fn answering(addresses: &[&str]) -> (Lookup, Arc<Mutex<Vec<String>>>) {
    let left: Vec<IpAddr> = addresses.iter().rev().map(|address| address.parse().unwrap()).collect();
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let (seen, left) = (Arc::clone(&asked), Mutex::new(left));
    let lookup: Lookup = Arc::new(move |name| {
        seen.lock().unwrap().push(name);
        let mut left = left.lock().unwrap();
        let found = if left.len() > 1 { left.pop() } else { left.last().copied() };
        Box::pin(async move { Ok(found.into_iter().collect()) })
    });
    (lookup, asked)
}

fn webhooks(hosts: &[String], lookup: Lookup) -> Webhooks {
    let secrets = Secrets::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
    Webhooks::new(AllowedHosts::parse(hosts).unwrap(), secrets, lookup).unwrap()
}

async fn send(webhooks: &Webhooks, url: &str) -> Answer {
    webhooks.send(url, Uuid::nil(), &notice(), Utc::now()).await
}

#[tokio::test]
async fn a_name_that_leads_to_this_network_is_not_asked() {
    let (port, asked) = receiver().await;
    let (lookup, looked) = answering(&["127.0.0.1"]);
    let host = format!("http://hooks.example.org:{port}");
    let answer = send(&webhooks(std::slice::from_ref(&host), lookup), &format!("{host}/a")).await;
    let error = answer.error.unwrap();
    assert!(error.contains("leads to no public address"), "{error}");
    assert_eq!((looked.lock().unwrap().clone(), *asked.lock().unwrap()), (vec!["hooks.example.org".to_owned()], 0));
}

#[tokio::test]
async fn what_a_name_leads_to_is_looked_at_each_time() {
    let (port, asked) = receiver().await;
    // The second address is one that nobody has listed; the third is again one that is.
    let (lookup, looked) = answering(&["127.0.0.1", "127.0.0.2", "127.0.0.1"]);
    let host = format!("http://hooks.example.org:{port}");
    let webhooks = webhooks(&[host.clone(), "127.0.0.1".to_owned()], lookup);
    let url = format!("{host}/a");
    assert_eq!(send(&webhooks, &url).await, Answer::told(Some(204)));
    assert!(send(&webhooks, &url).await.error.unwrap().contains("leads to no public address"));
    assert_eq!(send(&webhooks, &url).await, Answer::told(Some(204)));
    assert_eq!((looked.lock().unwrap().len(), *asked.lock().unwrap()), (3, 2), "and looked up once for each try");
}

#[tokio::test]
async fn a_name_that_leads_to_another_port_of_a_listed_address_is_not_asked() {
    let (port, asked) = receiver().await;
    let (lookup, _) = answering(&["127.0.0.1"]);
    let host = format!("http://hooks.example.org:{port}");
    let webhooks = webhooks(&[host.clone(), "http://127.0.0.1:9999".to_owned()], lookup);
    let error = send(&webhooks, &format!("{host}/a")).await.error.unwrap();
    assert!(error.contains("leads to no public address") && *asked.lock().unwrap() == 0, "{error}");
}

#[tokio::test]
async fn an_address_that_is_not_listed_is_not_asked_and_needs_no_lookup() {
    let (port, asked) = receiver().await;
    let (lookup, looked) = answering(&["127.0.0.1"]);
    let webhooks = webhooks(&[format!("http://127.0.0.2:{port}")], lookup);
    for url in [format!("http://127.0.0.1:{port}/"), format!("http://[::ffff:127.0.0.1]:{port}/")] {
        assert!(send(&webhooks, &url).await.error.is_some());
    }
    assert_eq!((looked.lock().unwrap().len(), *asked.lock().unwrap()), (0, 0));
}
