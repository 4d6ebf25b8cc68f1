//! Clients that send or read a byte now and then are dropped, and others are served meanwhile.

use super::raw::{connect, connect_narrow, silent, trickle};
use super::{metric, place, wait_for_log};
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test(flavor = "multi_thread")]
async fn who_sends_slowly_is_dropped() {
    let place = place().await;
    let server = place.start_with(&["--header-timeout-seconds", "1", "--request-timeout-seconds", "1"], &[]).await;
    let address = server.address();
    let head = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-more: 0123456789\r\n";
    let body = [
        b"POST /runs HTTP/1.1\r\nhost: localhost\r\nidempotency-key: k\r\n",
        &b"content-type: application/json\r\n"[..],
    ];
    let sized = [&body.concat()[..], b"content-length: 1000\r\n\r\n"].concat();
    let chunked = [&body.concat()[..], b"transfer-encoding: chunked\r\n\r\n"].concat();
    let in_body = async |head: &[u8], bytes: &[u8]| {
        let mut stream = connect(address).await;
        stream.write_all(head).await.unwrap();
        trickle(stream, bytes).await
    };
    let (in_head, in_sized, in_chunked, nothing, half) = tokio::join!(
        async { trickle(connect(address).await, head).await },
        in_body(&sized, b" "),
        in_body(&chunked, b"1\r\n \r\n"),
        async { silent(connect(address).await, b"").await },
        async { silent(connect(address).await, &head[..20]).await },
    );
    for closed in [in_head, nothing, half] {
        closed.within(0.8, 4.0);
        assert_eq!(closed.answer, "");
    }
    for closed in [in_sized, in_chunked] {
        closed.within(0.8, 4.0);
        assert!(closed.answer.starts_with("HTTP/1.1 408 ") && closed.answer.contains("slow-body"), "{closed:?}");
    }
    let accepted = server.submit("k", &json!({"pipeline": "quick", "partitions": ["2024-02"]})).await;
    assert_eq!(accepted.status, 202, "{accepted:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_reads_slowly_is_dropped() {
    let place = place().await;
    let server = place.start_with(&["--write-timeout-seconds", "1"], &[]).await;
    let asked = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(300);
    for reads in [false, true] {
        let before = metric(&server, "refrain_http_connections ").await;
        let mut stream = connect_narrow(server.address()).await;
        stream.write_all(&asked).await.unwrap();
        let given_up = async {
            let told = if reads { 2 } else { 1 };
            while metric(&server, "refrain_http_connections ").await > before
                || server.log().matches("given up").count() < told
            {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let reading = async {
            // A byte now and then, which is no room for more.
            while reads && matches!(stream.read(&mut [0]).await, Ok(1)) {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = given_up => {}
            () = reading => {}
            () = tokio::time::sleep(Duration::from_secs(20)) => panic!("it is served: {}", server.log_tail()),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_are_bounded() {
    let place = place().await;
    let server = place.start_with(&["--max-header-bytes", "2048", "--max-headers", "20"], &[]).await;
    let long = format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "x".repeat(2048));
    let many = format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "x: y\r\n".repeat(20));
    let fits =
        format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{}\r\n", "x: y\r\n".repeat(18));
    for (head, status) in [(long, "431"), (many, "431"), (fits, "200")] {
        let closed = silent(connect(server.address()).await, head.as_bytes()).await;
        assert!(closed.answer.starts_with(&format!("HTTP/1.1 {status} ")), "{closed:?}");
        closed.within(0.0, 5.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_for_nothing_does_not_hold_up_the_end() {
    let place = place().await;
    let server = place.start_with(&["--shutdown-grace-seconds", "60"], &[]).await;
    let mut idle = connect(server.address()).await;
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    assert!(idle.read(&mut [0; 4096]).await.unwrap() > 0);
    let fresh = connect(server.address()).await;
    let mut half = connect(server.address()).await;
    half.write_all(b"GET /healthz HTTP/1.1\r\n").await.unwrap();
    // The three and the one of the test itself.
    let end = std::time::Instant::now() + super::SOON;
    while metric(&server, "refrain_http_connections ").await < 4.0 {
        assert!(std::time::Instant::now() < end, "{}", server.log_tail());
    }
    server.signal(rustix::process::Signal::TERM);
    let began = std::time::Instant::now();
    let (idle, fresh, half) = tokio::join!(silent(idle, b""), silent(fresh, b""), silent(half, b""));
    for closed in [idle, fresh, half] {
        closed.within(0.0, 3.0);
    }
    wait_for_log(&server, "shutting down").await;
    assert!(server.ended().await.success());
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}
