//! So many connections, and so many of one address.

use super::raw::{Closed, connect, silent};
use super::{SOON, place, wait_for_log};
use crate::service::Server;
use rustix::process::Signal;
use std::fs;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

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

/// Opens connections, each from where it is told, until one is refused; gives those that are open, and the refusal.
async fn until_refused(server: &Server, from_where: impl Fn(usize) -> String) -> (Vec<TcpStream>, Closed) {
    let mut open = Vec::new();
    loop {
        let address = from_where(open.len());
        let Some(stream) = answered(from(&address, server).await).await else {
            return (open, silent(from(&address, server).await, ASKED).await);
        };
        open.push(stream);
        assert!(open.len() <= 50, "none was refused");
    }
}

/// The test's own client, which has found the server ready, has a connection or two too; it has them from 127.0.0.1.
#[tokio::test(flavor = "multi_thread")]
async fn connections_are_bounded_and_of_one_address_too() {
    let place = place().await;
    let limits = ["--max-connections", "12", "--max-connections-per-address", "3", "--header-timeout-seconds", "60"];
    let server = place.start_with(&limits, &[]).await;
    let (of_one, refused) = until_refused(&server, |_| "127.0.0.2".to_owned()).await;
    assert_eq!(of_one.len(), 3);
    refused.within(0.0, 3.0);
    for expected in ["HTTP/1.1 503 ", "urn:refrain:problem:too-many-connections", "retry-after: 1", "connection: close"]
    {
        assert!(refused.answer.contains(expected), "{refused:?}");
    }
    let (mut of_others, refused) = until_refused(&server, |at| format!("127.0.1.{at}")).await;
    assert!((6..=9).contains(&of_others.len()), "{}", of_others.len());
    assert!(refused.answer.contains("too-many-connections"), "{refused:?}");
    let asked = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let metrics = silent(of_others.remove(0), asked).await.answer;
    assert!(metrics.contains("\nrefrain_http_connections 12\n"), "{metrics}");
    for by in ["connections", "connections_of_address"] {
        let refused = format!("\nrefrain_http_connections_refused_total{{by=\"{by}\"}} 0\n");
        assert!(!metrics.contains(&refused), "{metrics}");
    }
    drop((of_one, of_others));
    wait_for_place(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_proxy_all_have_one_address() {
    let place = place().await;
    let limits = ["--max-connections", "30", "--max-connections-per-address", "0"];
    let server = place.start_with(&limits, &[]).await;
    let (open, _) = until_refused(&server, |_| "127.0.0.1".to_owned()).await;
    assert!((20..=30).contains(&open.len()), "{}", open.len());
}

/// Those for whom there is no room are dropped by the system; of them who says nothing never learns of it.
#[tokio::test(flavor = "multi_thread")]
async fn who_comes_while_nothing_is_accepted_has_room_to_wait() {
    let allowed: usize = fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap().trim().parse().unwrap();
    let server = place().await.start_with(&["--workers", "0"], &[]).await;
    server.signal(Signal::STOP);
    let mut waiting = Vec::new();
    for _ in 0..allowed.min(4096) / 2 {
        let connected = timeout(Duration::from_millis(900), connect(server.address())).await;
        waiting.push(connected.unwrap_or_else(|_| panic!("{} wait, no more", waiting.len())));
    }
    server.signal(Signal::CONT);
    assert!(answered(waiting.pop().unwrap()).await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_refused_before_it_asks_is_told_once_it_does() {
    let server = place().await.start_with(&["--workers", "0", "--max-connections-per-address", "1"], &[]).await;
    let _only = answered(from("127.0.0.2", &server).await).await.unwrap();
    let refused = from("127.0.0.2", &server).await;
    let early = timeout(Duration::from_millis(200), refused.peek(&mut [0])).await;
    assert!(early.is_err(), "many a client takes an answer before its request for a broken connection");
    assert!(silent(refused, ASKED).await.answer.contains("too-many-connections"));
    let says_nothing = silent(from("127.0.0.2", &server).await, b"").await;
    assert!(says_nothing.answer.contains("too-many-connections"), "{says_nothing:?}");
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
