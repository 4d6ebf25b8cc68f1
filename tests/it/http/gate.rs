//! How the gate stands over time: the first token, the last one, a database that is away, and those who are inside when a token ends.

use super::access::{MOMENT, SOON, gate, service};
use super::faulty::{Fault, FaultyStore};
use super::{App, months, send};
use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use refrain::access::TokenScope;
use refrain::http::{Gate, router};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[tokio::test]
async fn the_first_token_closes_the_service_for_good() {
    let app = service().await;
    app.until(None, 200).await;
    let token = app.token("us", TokenScope::Read, &[]).await;
    app.until(None, 401).await.problem(401, "missing-token");
    app.until(Some(&token), 200).await;
    app.revoke(&token).await;
    app.until(Some(&token), 401).await;
    app.until(None, 401).await;
    // Nor does a database that has lost its tokens open it.
    let empty = App::new().await;
    let lost = Arc::new(FaultyStore::new(Arc::clone(&app.store), Fault::TokensLost));
    let mut api = empty.api.clone();
    api.gate = gate(lost.clone());
    let router = router(api);
    let end = Instant::now() + SOON;
    while lost.token_looks() < 4 {
        let answer = send(&router, Request::get("/pipelines").body(Body::empty()).unwrap()).await;
        answer.problem(401, "missing-token");
        assert!(Instant::now() < end, "it has looked {} times", lost.token_looks());
        tokio::time::sleep(MOMENT / 4).await;
    }
}

#[tokio::test]
async fn where_nobody_is_to_be_let_in_without_a_token_nobody_is() {
    let mut app = App::new().await;
    app.api.gate = Gate::new(Arc::clone(&app.store) as _, MOMENT, false);
    app.router = router(app.api.clone());
    app.get("/runs").await.problem(401, "missing-token");
    assert_eq!(app.get("/healthz").await.status, StatusCode::OK);
    let token = app.token("us", TokenScope::Read, &[]).await;
    app.until(Some(&token), 200).await;
}

#[tokio::test]
async fn a_database_that_is_away_lets_nobody_in() {
    let mut app = App::new().await;
    let token = app.token("us", TokenScope::Admin, &[]).await;
    app.api.gate = gate(Arc::new(FaultyStore::new(Arc::clone(&app.store), Fault::Unavailable)));
    app.router = router(app.api.clone());
    for token in [None, Some(token.as_str())] {
        let answer = app.ask(token, "GET", "/pipelines", "", None).await;
        answer.problem(503, "unavailable");
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
    assert_eq!(app.get("/healthz").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_flood_of_wrong_tokens_costs_few_questions() {
    let mut app = App::new().await;
    app.token("us", TokenScope::Admin, &[]).await;
    let store = Arc::new(FaultyStore::new(Arc::clone(&app.store), Fault::KeyHiddenOnce));
    app.api.gate = Gate::new(store.clone(), Duration::from_secs(60), true);
    app.router = router(app.api.clone());
    let knocks = (0..500).map(|n| {
        let (app, token) = (&app, format!("rfr_{n:016x}_{:064x}", n));
        async move { app.get_as(&token, "/runs").await.status.as_u16() }
    });
    let statuses = futures::future::join_all(knocks).await;
    assert!(statuses.iter().all(|status| *status == 401));
    assert_eq!(store.token_looks(), 1);
}

#[tokio::test]
async fn who_waits_is_told_when_the_token_ends() {
    let app = service().await;
    let token = app.token("us", TokenScope::Run, &[]).await;
    app.until(None, 401).await;
    let id = app.submit_as(&token, "key", &months(&["2024-01"])).await.json()["id"].as_str().unwrap().to_owned();
    let waiting = async |path: String| {
        let answer = app.get_as(&token, &path).await;
        answer.problem(401, "invalid-token")["detail"].as_str().unwrap().to_owned()
    };
    let revoking = async {
        // The other one has been let in by then, or is refused at once; either way it is told the same.
        tokio::time::sleep(MOMENT).await;
        app.revoke(&token).await;
    };
    let began = Instant::now();
    let (told, ()) = tokio::join!(waiting(format!("/runs/{id}?wait=60")), revoking);
    assert!(told.contains("revoked at"), "{told}");
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_stream_breaks_off_when_the_token_ends() {
    let app = service().await;
    let token = app.token("us", TokenScope::Run, &[]).await;
    app.until(None, 401).await;
    let id = app.submit_as(&token, "key", &months(&["2024-01"])).await.json()["id"].as_str().unwrap().to_owned();
    let request = Request::get(format!("/runs/{id}/events")).header("authorization", format!("Bearer {token}"));
    let answer = tower::ServiceExt::oneshot(app.router.clone(), request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let mut body = answer.into_body();
    let mut frames = 0;
    while frames < 2 {
        tokio::time::timeout(SOON, body.frame()).await.unwrap().unwrap().unwrap();
        frames += 1;
    }
    app.revoke(&token).await;
    // It must not look whole.
    let end = tokio::time::timeout(SOON, async {
        loop {
            match body.frame().await {
                Some(Ok(_)) => {}
                Some(Err(error)) => return Some(error.to_string()),
                None => return None,
            }
        }
    });
    assert!(end.await.unwrap().is_some(), "it ended as if it were whole");
}

#[tokio::test]
async fn who_is_refused_has_sent_the_body_before() {
    let app = service().await;
    app.token("us", TokenScope::Run, &[]).await;
    app.until(None, 401).await;
    let refused = app.post("/runs", &months(&["2024-01"])).await;
    refused.problem(401, "missing-token");
    assert_eq!(refused.header("connection"), None, "all of it was read, so the connection can stay");
    let chunks =
        futures::stream::repeat_with(|| Ok::<_, std::convert::Infallible>(bytes::Bytes::from(vec![b' '; 1 << 20])));
    let endless = Request::post("/runs").header("content-type", "application/json").body(Body::from_stream(chunks));
    let refused = app.send(endless.unwrap()).await;
    refused.problem(401, "missing-token");
    assert_eq!(refused.header("connection"), Some("close"));
}

#[tokio::test]
async fn who_waits_without_a_token_is_told_of_the_first_one() {
    let app = service().await;
    let id = app.accepted("key", &months(&["2024-01"])).await;
    let waiting = async { app.get(&format!("/runs/{id}?wait=60")).await.problem(401, "missing-token") };
    let making = async {
        tokio::time::sleep(MOMENT).await;
        app.token("us", TokenScope::Run, &[]).await;
    };
    let began = Instant::now();
    tokio::join!(waiting, making);
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}
