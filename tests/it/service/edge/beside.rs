//! The address for those who watch over the service: plain HTTP, with limits of its own.

use super::certificates::Authority;
use super::raw::{connect, silent};
use super::{SOON, place};
use crate::service::server::free_port;
use std::time::Instant;

/// The most connections at the same time.
const PLACES: usize = 100;

#[tokio::test(flavor = "multi_thread")]
async fn it_speaks_no_tls() {
    let (place, authority) = (place().await, Authority::new());
    let (cert, key) = authority.sign(2090).mount(&place.path("tls"), "1");
    let address = format!("127.0.0.1:{}", free_port());
    let tls = ["--tls-cert-file", cert.to_str().unwrap(), "--tls-key-file", key.to_str().unwrap()];
    let server = place.start_with(&[&tls[..], &["--metrics-listen", &address]].concat(), &[]).await;
    assert!(server.url().starts_with("https://"));
    for path in ["/healthz", "/readyz", "/metrics"] {
        let asked = format!("GET {path} HTTP/1.1\r\nhost: refrain\r\nconnection: close\r\n\r\n");
        let closed = silent(connect(&address).await, asked.as_bytes()).await;
        assert!(closed.answer.starts_with("HTTP/1.1 200 "), "{closed:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_has_limits() {
    let place = place().await;
    let address = format!("127.0.0.1:{}", free_port());
    let _server = place.start_with(&["--metrics-listen", &address], &[]).await;
    let long =
        format!("GET /healthz HTTP/1.1\r\nhost: refrain\r\nconnection: close\r\nx: {}\r\n\r\n", "x".repeat(40_000));
    let closed = silent(connect(&address).await, long.as_bytes()).await;
    assert!(closed.answer.starts_with("HTTP/1.1 431 "), "{closed:?}");

    let asked = b"GET /healthz HTTP/1.1\r\nhost: refrain\r\nconnection: close\r\n\r\n";
    let mut idle = Vec::new();
    for _ in 0..PLACES {
        idle.push(connect(&address).await);
    }
    let refused = silent(connect(&address).await, asked).await;
    assert!(
        refused.answer.starts_with("HTTP/1.1 503 ") && refused.answer.contains("too-many-connections"),
        "{refused:?}"
    );
    // Whoever does not say what it wants is dropped.
    let held = idle.pop().unwrap();
    silent(held, b"").await.within(5.0, 15.0);
    let end = Instant::now() + SOON;
    while !silent(connect(&address).await, asked).await.answer.starts_with("HTTP/1.1 200 ") {
        assert!(Instant::now() < end, "there is no place again");
    }
}
