//! How the gate stands over time: the first token, the last one, a database that is away, and those who are inside when a token ends.

use super::access::{MOMENT, SOON, gate, service};
use super::faulty::{Fault, FaultyStore};
use super::{App, months, send};
use axum::body::Body;
use axum::http::{Request, StatusCode};
use chrono::TimeDelta;
use http_body_util::BodyExt;
use refrain::access::TokenScope;
use refrain::http::{Check, Gate, OpenTo, router};
use rstest::rstest;
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
    app.api.gate = Gate::new(Arc::clone(&app.store) as _, MOMENT, OpenTo::Nobody);
    app.router = router(app.api.clone());
    app.get("/runs").await.problem(401, "missing-token");
    assert_eq!(app.get("/healthz").await.status, StatusCode::OK);
    let token = app.token("us", TokenScope::Read, &[]).await;
    app.until(Some(&token), 200).await;
}

/// What a page asks whose name a browser on this machine takes for 127.0.0.1, and what a page asks of another server.
#[rstest]
#[case(&[("host", "evil.example")], "Host")]
#[case(&[("host", "localhost:8080"), ("host", "evil.example")], "Host")]
#[case(&[("host", "127.0.0.1:8080"), ("origin", "http://evil.example")], "Origin")]
#[case(&[("host", "127.0.0.1:8080"), ("origin", "null")], "Origin")]
#[tokio::test]
async fn who_is_open_to_this_machine_refuses_pages_of_others(#[case] headers: &[(&str, &str)], #[case] named: &str) {
    let mut app = service().await;
    let id = app.accepted("key", &months(&["2024-01"])).await;
    app.checks.lock().unwrap().push(Check {
        name: "database".to_owned(),
        ok: true,
        essential: true,
        detail: "a detail".to_owned(),
    });
    let asked = |request: axum::http::request::Builder| {
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))
    };
    let ask = async |app: &App, method: &str, path: &str| {
        app.send(asked(Request::builder().method(method).uri(path)).body(Body::empty()).unwrap()).await
    };
    for (method, path) in
        [("GET", "/runs"), ("POST", "/runs"), ("GET", &format!("/runs/{id}?wait=60")), ("GET", "/metrics")]
    {
        let problem = ask(&app, method, path).await.problem(403, "foreign-request");
        assert_eq!(problem["header"], named, "{problem}");
    }
    for path in ["/healthz", "/readyz", "/openapi.json"] {
        let answer = ask(&app, "GET", path).await;
        assert_eq!(answer.status, StatusCode::OK);
        assert!(!String::from_utf8_lossy(&answer.body).contains("a detail"), "{answer:?}");
    }
    // Where it is open to everybody, or a token came, it does not matter by which name it is reached.
    app.api.gate = Gate::new(Arc::clone(&app.store) as _, MOMENT, OpenTo::Everybody);
    app.router = router(app.api.clone());
    assert_eq!(ask(&app, "GET", "/runs").await.status, StatusCode::OK);
    app.api.gate = gate(Arc::clone(&app.store) as _);
    app.router = router(app.api.clone());
    let token = app.token("us", TokenScope::Read, &[]).await;
    app.until(None, 401).await;
    let request = asked(Request::get("/runs")).header("authorization", format!("Bearer {token}"));
    assert_eq!(app.send(request.body(Body::empty()).unwrap()).await.status, StatusCode::OK);
}

#[tokio::test]
async fn who_is_open_to_this_machine_answers_it_by_each_of_its_names() {
    let app = service().await;
    let with = async |uri: &str, headers: &[(&str, &str)]| {
        let request = headers.iter().fold(Request::get(uri), |request, (name, value)| request.header(*name, *value));
        app.send(request.body(Body::empty()).unwrap()).await
    };
    for host in ["localhost:8080", "127.0.0.1", "127.0.0.2:1", "[::1]:8080"] {
        let origin = format!("http://{host}");
        assert_eq!(with("/runs", &[("host", host), ("origin", &origin)]).await.status, StatusCode::OK, "{host}");
    }
    assert_eq!(with("http://localhost/runs", &[]).await.status, StatusCode::OK);
    // The name may stand in the request's line.
    with("http://evil.example/runs", &[("host", "localhost")]).await.problem(403, "foreign-request");
}

/// Whether what was found is told, by the headers of whoever asks.
async fn tells(app: &App, token: Option<&str>) -> bool {
    let answer = app.ask(token, "GET", "/readyz", "", None).await;
    assert_eq!(answer.status, StatusCode::OK, "strangers are told how it is: {answer:?}");
    answer.json()["checks"][0]["detail"] == "what was found"
}

#[tokio::test]
async fn what_readyz_found_is_told_to_strangers_where_there_are_no_tokens_alone() {
    let mut app = service().await;
    let detail = "what was found".to_owned();
    app.checks.lock().unwrap().push(Check { name: "database".to_owned(), ok: true, essential: true, detail });
    assert!(tells(&app, None).await);
    // Also while the database is away, for this is when it is needed.
    let away = Arc::new(FaultyStore::new(Arc::clone(&app.store), Fault::Unavailable));
    let known = std::mem::replace(&mut app.api.gate, gate(away));
    app.router = router(app.api.clone());
    assert!(tells(&app, None).await);

    app.api.gate = known;
    app.router = router(app.api.clone());
    let all = app.token("us", TokenScope::Read, &[]).await;
    let some = app.token("us", TokenScope::Run, &["hourly"]).await;
    app.until(None, 401).await;
    assert!(tells(&app, Some(&all)).await);
    for stranger in [None, Some(some.as_str()), Some("rfr_0_0")] {
        assert!(!tells(&app, stranger).await, "{stranger:?}");
    }
    // A server that lets nobody in without a token tells nobody without one either, whatever becomes of its database.
    for fault in [Fault::Unavailable, Fault::Hang] {
        let store = Arc::new(FaultyStore::new(Arc::clone(&app.store), fault));
        app.api.gate = Gate::new(store, MOMENT, OpenTo::Nobody);
        app.router = router(app.api.clone());
        assert!(!tells(&app, None).await, "{fault:?}");
    }
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
    app.api.gate = Gate::new(store.clone(), Duration::from_secs(60), OpenTo::ThisMachine);
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

#[tokio::test]
async fn a_token_that_ended_long_ago_is_forgotten() {
    let app = service().await;
    let token = app.token("us", TokenScope::Read, &[]).await;
    app.revoke(&token).await;
    let told = app.until(Some(&token), 401).await.problem(401, "invalid-token");
    assert!(told["detail"].as_str().unwrap().contains("revoked at"), "{told}");
    *app.clock.lock().unwrap() += TimeDelta::days(91);
    app.token("us", TokenScope::Read, &[]).await;
    let end = Instant::now() + SOON;
    while app.get_as(&token, "/pipelines").await.json()["detail"].as_str().unwrap().contains("revoked at") {
        assert!(Instant::now() < end, "it is known still");
        tokio::time::sleep(MOMENT / 4).await;
    }
}
