//! What surrounds every handler, and the answers that it makes.

use super::faulty::{Fault, FaultyStore};
use super::{App, json_request, months, send};
use axum::body::{Body, Bytes};
use axum::http::{Method, Request, StatusCode};
use futures::stream;
use metrics_exporter_prometheus::PrometheusBuilder;
use refrain::http::{Check, Limits, Watches, router};
use refrain::telemetry::{METRIC_REQUESTS, Metrics};
use rstest::rstest;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

#[tokio::test]
async fn a_path_that_is_not_there_is_a_problem() {
    let app = App::new().await;
    for path in ["/nowhere", "/", "/runs/", "/runs/a/b/c"] {
        app.get(path).await.problem(404, "not-found");
    }
}

#[rstest]
#[case(Method::DELETE, "/runs", "GET,HEAD,POST")]
#[case(Method::PUT, "/runs/0199", "GET,HEAD")]
#[case(Method::GET, "/runs/0199/cancel", "POST")]
#[case(Method::POST, "/healthz", "GET,HEAD")]
#[tokio::test]
async fn a_method_that_is_not_there_is_a_problem_that_lists_those(
    #[case] method: Method,
    #[case] path: &str,
    #[case] allow: &str,
) {
    let app = App::new().await;
    let answer = app.send(Request::builder().method(method).uri(path).body(Body::empty()).unwrap()).await;
    answer.problem(405, "method-not-allowed");
    let mut found: Vec<&str> = answer.header("allow").unwrap().split(',').collect();
    found.sort_unstable();
    assert_eq!(found.join(","), allow);
}

#[tokio::test]
async fn a_body_over_the_limit_is_read_before_it_is_refused() {
    let app = App::new().await;
    let text = "x".repeat(2_100_000);
    let request = json_request("/runs", text.clone()).header("idempotency-key", "k").body(Body::from(text)).unwrap();
    let answer = app.send(request).await;
    assert_eq!(answer.problem(413, "body-too-large")["max_body_bytes"], 1 << 20);
    assert_eq!(answer.header("connection"), None, "all of it was read, so the connection can stay");
}

#[tokio::test]
async fn a_body_without_a_length_or_an_end_is_refused_too() {
    let app = App::new().await;
    let chunks = stream::repeat_with(|| Ok::<_, Infallible>(Bytes::from(vec![b' '; 1 << 20])));
    let request = Request::post("/runs").header("content-type", "application/json").body(Body::from_stream(chunks));
    let answer = app.send(request.unwrap()).await;
    answer.problem(413, "body-too-large");
    assert_eq!(answer.header("connection"), Some("close"));
}

#[tokio::test]
async fn a_client_that_asks_first_is_told_at_once() {
    let app = App::new().await;
    let never = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
    let request = Request::post("/runs").header("expect", "100-continue").header("content-length", "99999999");
    app.send(request.body(never).unwrap()).await.problem(413, "body-too-large");
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_given_up() {
    let app = App::with(Limits { request_timeout_seconds: 1, ..Limits::default() }, &[]).await;
    let never = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
    let request = Request::post("/runs").header("content-type", "application/json").body(never).unwrap();
    let answer = app.send(request).await;
    answer.problem(408, "slow-body");
    assert_eq!(answer.header("connection"), Some("close"));
}

#[tokio::test]
async fn a_body_that_breaks_off_is_malformed() {
    let app = App::new().await;
    let broken = Body::from_stream(stream::iter([Ok(Bytes::from("{")), Err(std::io::Error::other("gone"))]));
    let request = Request::post("/runs").header("content-type", "application/json").body(broken).unwrap();
    app.send(request).await.problem(400, "malformed-request");
}

#[tokio::test]
async fn a_panic_is_a_500_without_its_words_and_with_the_request_id() {
    let app = App::new().await;
    let router = router_over(&app, Fault::Panic);
    let request = Request::get("/runs").header("x-request-id", "abc-1").body(Body::empty()).unwrap();
    let answer = send(&router, request).await;
    assert_eq!(answer.problem(500, "internal")["request_id"], "abc-1");
    assert_eq!(answer.header("x-request-id"), Some("abc-1"));
    assert!(!String::from_utf8_lossy(&answer.body).contains("secret"), "{answer:?}");
}

#[tokio::test]
async fn an_unreachable_database_is_a_503_without_its_words() {
    let app = App::new().await;
    let router = router_over(&app, Fault::Unavailable);
    for path in ["/runs", "/runs/01990000-0000-7000-8000-000000000000", "/pipelines/monthly/partitions"] {
        let answer = send(&router, Request::get(path).body(Body::empty()).unwrap()).await;
        let body = answer.problem(503, "unavailable");
        assert!(answer.header("retry-after").is_some() && body["request_id"].is_string(), "{body}");
        assert!(!body.to_string().contains("secret"), "{body}");
    }
    let corrupt = router_over(&app, Fault::Corrupt);
    let answer = send(&corrupt, Request::get("/runs").body(Body::empty()).unwrap()).await;
    assert!(!answer.problem(500, "internal").to_string().contains("secret"), "{answer:?}");
}

#[tokio::test]
async fn an_answer_that_takes_too_long_is_given_up() {
    let app = App::new().await;
    let router = router_over(&app, Fault::Hang);
    let answer = send(&router, Request::get("/runs").body(Body::empty()).unwrap()).await;
    answer.problem(503, "timed-out");
}

#[tokio::test]
async fn a_key_that_is_taken_meanwhile_is_looked_up_again() {
    let app = App::new().await;
    let first = app.accepted("k", &months(&["2024-02"])).await;
    let router = router_over(&app, Fault::KeyHiddenOnce);
    let text = months(&["2024-02"]).to_string();
    let request = json_request("/runs", text.clone()).header("idempotency-key", "k").body(Body::from(text)).unwrap();
    let answer = send(&router, request).await;
    assert_eq!((answer.status, answer.json()["id"].as_str()), (StatusCode::OK, Some(first.as_str())));
}

/// Of a key that a server has not met lately it accepts the run before it looks for one, where the table was seen a moment ago.
#[rstest]
#[case::it_is_taken(Fault::Nothing, true, StatusCode::ACCEPTED)]
#[case::nothing_can_be_written(Fault::ReadOnly, true, StatusCode::SERVICE_UNAVAILABLE)]
#[case::its_pipeline_is_gone(Fault::Nothing, false, StatusCode::UNPROCESSABLE_ENTITY)]
#[tokio::test]
async fn a_known_key_is_answered_by_a_server_that_has_not_met_it(
    #[case] fault: Fault,
    #[case] has_pipelines: bool,
    #[case] to_new_ones: StatusCode,
) {
    let app = App::new().await;
    let first = app.accepted("k", &months(&["2024-02"])).await;
    let store = Arc::new(FaultyStore::new(Arc::clone(&app.store), fault));
    let mut api = app.api.clone();
    api.store = store.clone();
    if !has_pipelines {
        api.pipelines = watch::channel(Arc::default()).1;
    }
    let router = router(api);
    let ask = async |key: &str| {
        let text = months(&["2024-02"]).to_string();
        let request = json_request("/runs", text.clone()).header("idempotency-key", key).body(Body::from(text));
        let before = store.asked();
        let answer = send(&router, request.unwrap()).await;
        (answer, store.asked() - before)
    };
    assert_eq!(ask("new").await.0.status, to_new_ones);
    for _ in 0..2 {
        let (answer, _) = ask("k").await;
        assert_eq!((answer.status, answer.json()["id"].as_str()), (StatusCode::OK, Some(first.as_str())));
        assert_eq!(answer.header("idempotent-replayed"), Some("true"));
    }
    // On a machine that stalls the look at the table is an old one by then.
    let mut fewest = u32::MAX;
    for n in 0..20 {
        let (answer, asked) = ask(&format!("new-{n}")).await;
        assert_eq!(answer.status, to_new_ones);
        fewest = fewest.min(asked);
    }
    if to_new_ones == StatusCode::ACCEPTED {
        assert_eq!(fewest, 1, "questions for a new key");
        tokio::time::sleep(Duration::from_millis(100)).await;
        let (answer, asked) = ask("new-later").await;
        assert_eq!(
            (answer.status, asked),
            (to_new_ones, 3),
            "the key and the table are looked at where that was long ago"
        );
    }
}

#[rstest]
#[case("abc-1", true)]
#[case("has blanks", false)]
#[case("\"quoted\"", false)]
#[case("", false)]
#[tokio::test]
async fn request_ids_are_taken_over_where_they_fit(#[case] id: &str, #[case] fits: bool) {
    let app = App::new().await;
    let request = Request::get("/healthz").header("x-request-id", id).body(Body::empty()).unwrap();
    let answer = app.send(request).await;
    let given = answer.header("x-request-id").unwrap();
    assert_eq!(given == id, fits, "{given}");
    assert!(!given.is_empty());
}

#[tokio::test]
async fn answers_are_compressed_for_those_who_ask() {
    let app = App::new().await;
    let request = Request::get("/openapi.json").header("accept-encoding", "gzip").body(Body::empty()).unwrap();
    let answer = app.send(request).await;
    assert_eq!(answer.header("content-encoding"), Some("gzip"));
    assert_eq!(app.get("/openapi.json").await.header("content-encoding"), None);
}

#[tokio::test]
async fn the_tag_of_a_compressed_answer_is_weak() {
    let app = App::new().await;
    let path = format!("/runs/{}", app.accepted("k", &months(&["2024-02"])).await);
    let zipped = |tag: Option<&str>| {
        let request = Request::get(&path).header("accept-encoding", "gzip");
        tag.iter().fold(request, |request, tag| request.header("if-none-match", *tag)).body(Body::empty()).unwrap()
    };
    let plain = app.get(&path).await;
    let compressed = app.send(zipped(None)).await;
    assert_eq!(compressed.header("content-encoding"), Some("gzip"));
    let (strong, weak) = (plain.header("etag").unwrap(), compressed.header("etag").unwrap());
    assert_eq!(weak, format!("W/{strong}"));
    for tag in [strong, weak] {
        for known in [app.get_if_changed(&path, tag).await, app.send(zipped(Some(tag))).await] {
            assert_eq!((known.status, known.header("etag")), (StatusCode::NOT_MODIFIED, Some(tag)));
            assert_eq!(known.header("vary"), Some("accept-encoding"));
        }
    }
    for answer in [&plain, &compressed] {
        assert_eq!(answer.headers.get_all("vary").iter().count(), 1, "{answer:?}");
    }
}

#[tokio::test]
async fn readiness_is_all_of_its_checks() {
    let app = App::new().await;
    let check =
        |name: &str, ok, essential| Check { name: name.to_owned(), ok, essential, detail: "as found".to_owned() };
    app.checks.lock().unwrap().push(check("database", true, true));
    let ready = app.get("/readyz").await;
    assert_eq!((ready.status, ready.json()["ready"] == true), (StatusCode::OK, true));
    assert_eq!(ready.json()["degraded"], false);
    app.checks.lock().unwrap().push(check("publishing", false, false));
    let degraded = app.get("/readyz").await;
    assert_eq!(degraded.status, StatusCode::OK, "what holds up some runs takes no server out of service");
    insta::assert_json_snapshot!("degraded", degraded.json());
    app.checks.lock().unwrap().push(check("warehouse", false, true));
    let unready = app.get("/readyz").await;
    insta::assert_json_snapshot!("unready", unready.problem(503, "not-ready"), {".request_id" => "[id]"});
    assert_eq!(app.get("/healthz").await.status, StatusCode::OK, "it lives all the same");
    app.checks.lock().unwrap().clear();
    app.api.shutdown.cancel();
    assert_eq!(app.get("/readyz").await.status, StatusCode::SERVICE_UNAVAILABLE, "it is going");
}

#[tokio::test]
async fn requests_are_counted_by_route_and_status() {
    let mut app = App::new().await;
    let recorder = PrometheusBuilder::new().build_recorder();
    app.api.metrics = Metrics::of(recorder.handle());
    let router = router(app.api.clone());
    let _here = metrics::set_default_local_recorder(&recorder);
    for path in ["/runs/a", "/runs/b", "/nowhere"] {
        send(&router, Request::get(path).body(Body::empty()).unwrap()).await;
    }
    let answer = send(&router, Request::get("/metrics").body(Body::empty()).unwrap()).await;
    let text = String::from_utf8(answer.body).unwrap();
    for (route, status, count) in [("/runs/{id}", "404", 2), ("unmatched", "404", 1)] {
        let line = format!("{METRIC_REQUESTS}{{method=\"GET\",route=\"{route}\",status=\"{status}\"}} {count}");
        assert!(text.contains(&line), "expected {line} in {text}");
    }
}

#[tokio::test]
async fn who_waits_or_knows_the_answer_costs_little() {
    let app = App::new().await;
    let run = app.accepted("k", &months(&["2024-02"])).await;
    let path = "/pipelines/monthly/partitions";
    let tag = app.get(path).await.header("etag").unwrap().to_owned();
    let router = router_over(&app, Fault::OneRun);
    let waited = send(&router, Request::get(format!("/runs/{run}?wait=0.2")).body(Body::empty()).unwrap()).await;
    assert_eq!(waited.json()["state"], "queued", "looked at more than once, read once");
    let known = Request::get(path).header("if-none-match", tag).body(Body::empty()).unwrap();
    assert_eq!(send(&router, known).await.status, StatusCode::NOT_MODIFIED, "nothing was listed for it");
}

#[tokio::test]
async fn those_who_come_together_ask_together() {
    let app = App::new().await;
    let run = app.accepted("k", &months(&["2024-02"])).await;
    let store = Arc::new(FaultyStore::new(Arc::clone(&app.store), Fault::Nothing));
    let mut api = app.api.clone();
    api.store = store.clone();
    let router = router(api);
    let get = || Request::get(format!("/runs/{run}")).body(Body::empty()).unwrap();
    let submit = |key: String| {
        let text = months(&["2024-02"]).to_string();
        json_request("/runs", text.clone()).header("idempotency-key", key).body(Body::from(text)).unwrap()
    };
    // Who asks is known from here on, so that all come as far as the store before anybody is answered.
    assert_eq!(send(&router, get()).await.status, StatusCode::OK);
    // A key that is met for the first time is for a run, and that is asked first.
    assert_eq!(send(&router, submit("k".to_owned())).await.status, StatusCode::OK);
    let requests: [(_, &dyn Fn(u32) -> Request<Body>, _, _); 3] = [
        ("a run", &|_| get(), StatusCode::OK, 1),
        ("a key", &|_| submit("k".to_owned()), StatusCode::OK, 1),
        ("submissions", &|n| submit(format!("new-{n}")), StatusCode::ACCEPTED, 2),
    ];
    for (what, request, status, questions) in requests {
        let before = store.asked();
        let answers = futures::future::join_all((0..32).map(|n| send(&router, request(n)))).await;
        assert!(answers.iter().all(|answer| answer.status == status), "{what}: {answers:?}");
        let asked = store.asked() - before;
        assert!(asked <= questions * 4, "{what}: the store was asked {asked} times");
    }
}

/// The service over a store with a fault.
fn router_over(app: &App, fault: Fault) -> axum::Router {
    let mut api = app.api.clone();
    api.store = Arc::new(FaultyStore::new(Arc::clone(&app.store), fault));
    api.watches = Watches::new(Arc::clone(&api.store), api.limits.max_event_streams);
    api.limits = Limits { request_timeout_seconds: if fault == Fault::Hang { 0 } else { 30 }, ..api.limits };
    router(api)
}

#[test]
fn limits_are_what_the_documents_say() {
    let limits = Limits::default();
    assert_eq!((limits.max_body_bytes, limits.max_partitions_per_run), (1 << 20, 10_000));
    assert_eq!(Duration::from_secs(limits.max_wait_seconds.into()), Duration::from_secs(60));
}
