//! The trace of a caller goes on in the run, on whatever server; and a collector that is away is nobody's trouble.

use super::collector::{Collector, Span};
use super::{Place, Server, Store, WITHIN, of_month, pipeline, scrape, scrape_until};
use std::time::{Duration, Instant};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";
/// The kinds of OTLP.
const SERVER: u64 = 2;
const CONSUMER: u64 = 5;

/// Submits a run as a caller with this `traceparent`.
async fn submit(server: &Server, key: &str, traceparent: &str) -> String {
    let request = reqwest::Client::new().post(format!("{}/runs", server.url()));
    let request = request.header("idempotency-key", key).header("traceparent", traceparent);
    let answer = request.json(&of_month("2024-02")).send().await.unwrap();
    assert_eq!(answer.status(), 202);
    let run: serde_json::Value = answer.json().await.unwrap();
    run["id"].as_str().unwrap().to_owned()
}

fn one<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let found: Vec<&Span> = spans.iter().filter(|span| span.name == name).collect();
    assert_eq!(found.len(), 1, "{name}: {spans:#?}");
    found[0]
}

#[tokio::test(flavor = "multi_thread")]
async fn the_callers_trace_goes_on_in_an_attempt_on_another_server() {
    let place = Place::new(Store::Postgres).await;
    pipeline(&place);
    let collector = Collector::start().await;
    std::fs::write(place.path("headers"), "Authorization: Bearer hunter2\n").unwrap();
    let headers = place.path("headers");
    let flags = |workers| {
        ["--otlp-endpoint", &collector.url, "--workers", workers, "--otlp-headers-file", headers.to_str().unwrap()]
    };
    let worker = place.start_with(&flags("1"), &[("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")]).await;
    let http = place.start_with(&flags("0"), &[]).await;
    let id = submit(&http, "first", &format!("00-{TRACE}-{CALLER}-01")).await;
    assert_eq!(http.wait(&id).await["state"], "succeeded");

    let names =
        ["POST /runs", "submit", "attempt", "claim", "compute", "listing", "decide", "lock", "publish", "finish"];
    let spans = collector.trace(TRACE, |spans| names.iter().all(|name| spans.iter().any(|s| s.name == *name))).await;
    let (request, submit, attempt) = (one(&spans, "POST /runs"), one(&spans, "submit"), one(&spans, "attempt"));
    assert_eq!((request.parent.as_str(), request.kind), (CALLER, SERVER));
    assert_eq!(request.attributes["http.response.status_code"], "202");
    assert_eq!((&submit.parent, &attempt.parent, attempt.kind), (&request.id, &submit.id, CONSUMER));
    assert_eq!(attempt.attributes["run.id"], id);
    assert_eq!((attempt.attributes["pipeline"].as_str(), attempt.attributes["run.attempt"].as_str()), ("trips", "1"));
    let by = format!("/{}/1", worker.pid().as_raw_nonzero());
    assert!(attempt.attributes["worker"].ends_with(&by), "another server's: {attempt:#?}");
    for child in ["claim", "compute", "decide", "lock", "publish", "finish"] {
        assert_eq!(one(&spans, child).parent, attempt.id, "{child}");
    }
    assert_eq!(one(&spans, "listing").parent, one(&spans, "compute").id);
    assert!(attempt.nanoseconds >= one(&spans, "compute").nanoseconds);
    assert_eq!(attempt.resource["service.name"], "refrain");
    assert_eq!(attempt.resource["deployment.environment"], "test");

    let sent = collector.header("authorization");
    assert!(!sent.is_empty() && sent.iter().all(|value| value == "Bearer hunter2"), "{sent:?}");
    assert!([&worker, &http].iter().all(|server| !server.log().contains("hunter2")), "it is a secret");
    scrape_until(&worker, &[("refrain_trace_spans_total", &[("outcome", "exported")], 1.0)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_traceparent_passes_through_a_server_without_traces() {
    let place = Place::new(Store::Postgres).await;
    pipeline(&place);
    let collector = Collector::start().await;
    let worker = place.start_with(&["--otlp-endpoint", &collector.url, "--workers", "1"], &[]).await;
    let http = place.start_with(&["--workers", "0"], &[]).await;
    let id = submit(&http, "first", &format!("00-{TRACE}-{CALLER}-01")).await;
    http.wait(&id).await;
    let spans = collector.trace(TRACE, |spans| spans.iter().any(|span| span.name == "attempt")).await;
    assert_eq!(one(&spans, "attempt").parent, CALLER);

    // A caller that does not want its trace to be kept.
    let unsampled = submit(&http, "second", &format!("00-{}-{CALLER}-00", TRACE.replace('0', "1"))).await;
    http.wait(&unsampled).await;
    let bad = submit(&http, "third", "00-nonsense-01").await;
    http.wait(&bad).await;
    // What is left is sent before the process ends.
    assert!(worker.stop().await.success());
    let attempts: Vec<Span> = collector.spans().into_iter().filter(|span| span.name == "attempt").collect();
    let of = |id: &str| attempts.iter().find(|span| span.attributes["run.id"] == id);
    let own = of(&bad).unwrap_or_else(|| panic!("no span of it: {attempts:#?}"));
    assert!(own.trace != TRACE && own.parent.is_empty(), "a trace of its own: {own:#?}");
    assert!(of(&unsampled).is_none(), "{attempts:#?}");
}

/// It takes the connections, and never answers.
#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_hangs_holds_up_nothing() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let place = Place::new(Store::Sqlite).await;
    pipeline(&place);
    let server = place.start_with(&["--otlp-endpoint", &url, "--workers", "1"], &[]).await;
    server.run("first", &of_month("2024-02")).await;
    // More of them than there is room for, while each batch takes its time to fail.
    let end = Instant::now() + WITHIN;
    loop {
        futures::future::join_all((0..200).map(|_| server.get("/healthz"))).await;
        let counted = &scrape(&server).await["refrain_trace_spans_total"];
        let [failed, dropped] = ["failed", "dropped"].map(|outcome| counted.sum(&[("outcome", outcome)]));
        if failed > Some(0.0) && dropped > Some(0.0) {
            break;
        }
        assert!(Instant::now() < end, "{counted:?}");
    }
    let since = Instant::now();
    assert!(server.stop().await.success());
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
}
