//! So many connections, and so many of one address.

use super::raw::{connect, silent};
use super::{SOON, metric, place, wait_for_log};
use crate::service::Server;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

const ASKED: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// A connection that has been answered and stays.
async fn answered(mut stream: TcpStream) -> Option<TcpStream> {
    stream.write_all(ASKED).await.ok()?;
    let mut answer = [0; 4096];
    let read = stream.read(&mut answer).await.ok()?;
    String::from_utf8_lossy(&answer[..read]).starts_with("HTTP/1.1 200 ").then_some(stream)
}

/// A connection from another address of this machine.
async fn from(address: &str, server: &Server) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{address}:0").parse().unwrap()).unwrap();
    socket.connect(server.address().parse().unwrap()).await.unwrap()
}

/// Waits until a new connection is answered.
async fn wait_for_place(server: &Server) {
    let end = Instant::now() + SOON;
    while answered(connect(server.address()).await).await.is_none() {
        assert!(Instant::now() < end, "{}", server.log_tail());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_bounded_and_of_one_address_too() {
    let place = place().await;
    let limits = ["--max-connections", "5", "--max-connections-per-address", "3", "--header-timeout-seconds", "60"];
    let server = place.start_with(&limits, &[]).await;
    let mut open = Vec::new();
    // The one of the test's own client, which has found the server ready, is of this address too.
    for _ in 0..2 {
        open.push(answered(connect(server.address()).await).await.unwrap());
    }
    let refused = silent(connect(server.address()).await, ASKED).await;
    refused.within(0.0, 3.0);
    for expected in ["HTTP/1.1 503 ", "urn:refrain:problem:too-many-connections", "retry-after: 1", "connection: close"]
    {
        assert!(refused.answer.contains(expected), "{refused:?}");
    }
    for _ in 0..2 {
        open.push(answered(from("127.0.0.2", &server).await).await.unwrap());
    }
    let refused = silent(from("127.0.0.3", &server).await, ASKED).await;
    assert!(refused.answer.contains("too-many-connections"), "{refused:?}");
    assert_eq!(metric(&server, "refrain_http_connections ").await, 5.0);
    assert!(metric(&server, "refrain_http_connections_refused_total").await >= 1.0);
    open.clear();
    wait_for_place(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_proxy_all_have_one_address() {
    let place = place().await;
    let limits = ["--max-connections", "30", "--max-connections-per-address", "0"];
    let server = place.start_with(&limits, &[]).await;
    let mut open = Vec::new();
    for _ in 0..29 {
        open.push(answered(connect(server.address()).await).await.unwrap());
    }
    assert!(answered(connect(server.address()).await).await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_without_descriptors_serves_again_when_it_has_some() {
    let place = place().await;
    let server = place.start_under(&["prlimit", "--nofile=60:60"], &["--workers", "0"], &[]).await;
    wait_for_log(&server, "the limit on open files allows fewer connections").await;
    let mut open = Vec::new();
    let end = Instant::now() + SOON;
    while !server.log().contains("a connection cannot be accepted") {
        assert!(Instant::now() < end && open.len() < 1000, "{}", server.log_tail());
        open.push(connect(server.address()).await);
    }
    open.clear();
    wait_for_place(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_on_open_files_is_raised_as_far_as_it_goes() {
    let place = place().await;
    let server = place.start_under(&["prlimit", "--nofile=80:4000"], &["--workers", "0"], &[]).await;
    let mut open = Vec::new();
    for _ in 0..200 {
        open.push(answered(connect(server.address()).await).await.unwrap());
    }
}
