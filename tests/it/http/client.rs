//! The client against the router, over a socket.

use super::App;
use refrain::client::{Client, ClientError};
use serde_json::json;
use std::future::IntoFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Serves the router on a free port of this machine; answers its URL.
async fn serve(app: &App) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(axum::serve(listener, app.router.clone()).into_future());
    url
}

#[tokio::test]
async fn a_run_is_submitted_followed_and_submitted_again() {
    let app = App::new().await;
    let client = Client::new(&serve(&app).await, None, false).unwrap();
    let body = json!({"pipeline": "monthly", "partitions": ["2024-02"]});
    let first = client.submit("k", &body).await.unwrap();
    assert!(!first.replayed);
    let id = first.run["id"].as_str().unwrap();
    let mut seen = Vec::new();
    let followed = client.wait_for(id, |run| seen.push(run["state"].clone()));
    let (followed, ()) = tokio::join!(followed, app.succeed(3));
    assert_eq!(followed.unwrap()["state"], "succeeded");
    assert_eq!(seen.last(), Some(&json!("succeeded")));
    let again = client.submit("k", &body).await.unwrap();
    assert!(again.replayed && again.run["id"] == id);
    assert_eq!(client.run(id).await.unwrap()["id"], id);
    let table = client.get("/pipelines/monthly/partitions").await.unwrap();
    assert_eq!(table["total"]["totals"]["trips"], 3);
}

#[tokio::test]
async fn a_client_that_sends_first_and_reads_later_sees_that_its_body_is_too_large() {
    let app = App::new().await;
    let address = serve(&app).await.replace("http://", "");
    let mut socket = TcpStream::connect(address).await.unwrap();
    let length = 2_100_000;
    let head =
        format!("POST /runs HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
    socket.write_all(head.as_bytes()).await.unwrap();
    socket.write_all(&vec![b' '; length]).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[tokio::test]
async fn a_refusal_lists_what_is_wrong() {
    let app = App::new().await;
    let client = Client::new(&serve(&app).await, None, false).unwrap();
    let body = json!({"pipeline": "monthly", "partitions": ["2024-13", "24-02"]});
    let error = client.submit("k", &body).await.unwrap_err();
    assert!(matches!(&error, ClientError::Refused { status: 422, .. }), "{error}");
    assert!(error.to_string().contains("/partitions/1: "), "{error}");
    assert!(matches!(client.run("../pipelines").await, Err(ClientError::Refused { status: 404, .. })));
}

#[tokio::test]
async fn what_is_no_server_is_said() {
    for url in ["not a url", "ftp://127.0.0.1"] {
        assert!(matches!(Client::new(url, None, false), Err(ClientError::Url { .. })), "{url}");
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = Client::new(&url, None, false).unwrap().get("/healthz").await.unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
}
