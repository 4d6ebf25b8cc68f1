//! Events of runs: what a stream tells, to whom, and how it ends; and the looks that all who wait share.

use super::faulty::{Fault, FaultyStore};
use super::{App, months, parsed, send};
use crate::sse::{Event, Reader};
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use chrono::{TimeDelta, Utc};
use http_body_util::BodyExt;
use refrain::http::{Limits, Watches, router};
use refrain::run::AttemptOutcome;
use refrain::store::Ended;
use rstest::rstest;
use serde_json::json;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Far longer than anything here takes.
const SOON: Duration = Duration::from_secs(20);

/// A stream that is being read.
struct Stream {
    headers: HeaderMap,
    body: Body,
    reader: Reader,
    here: VecDeque<Event>,
}

impl Stream {
    async fn of(router: &Router, id: &str, last: &str) -> Self {
        let request = Request::get(format!("/runs/{id}/events")).header("accept", "text/event-stream");
        let request = request.header("accept-encoding", "gzip").header("last-event-id", last);
        let answer = tower::ServiceExt::oneshot(router.clone(), request.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK, "{answer:?}");
        let (parts, body) = answer.into_parts();
        Self { headers: parts.headers, body, reader: Reader::default(), here: VecDeque::new() }
    }

    /// The next event; none where the stream is over.
    async fn next(&mut self) -> Option<Event> {
        while self.here.is_empty() {
            let frame = tokio::time::timeout(SOON, self.body.frame()).await.unwrap()?.unwrap();
            self.here.extend(self.reader.take(frame.data_ref().unwrap()));
        }
        self.here.pop_front()
    }

    async fn next_named(&mut self, name: &str) -> Event {
        loop {
            let event = self.next().await.unwrap_or_else(|| panic!("no {name}"));
            if event.name == name {
                return event;
            }
        }
    }

    /// Reads on until the run is in this state.
    async fn until(&mut self, state: &str) {
        while self.next_named("state").await.state() != Some(state) {}
    }

    /// The names of all that comes, and the last event's id.
    async fn rest(&mut self) -> (Vec<String>, String) {
        let (mut names, mut id, end) = (Vec::new(), String::new(), Instant::now() + SOON);
        while let Some(event) = self.next().await {
            assert!(Instant::now() < end, "it does not end: {names:?}");
            names.push(event.name);
            id = event.id;
        }
        (names, id)
    }
}

async fn status_of(router: &Router, id: &str, last: &str) -> StatusCode {
    let request = Request::get(format!("/runs/{id}/events")).header("last-event-id", last).body(Body::empty());
    tower::ServiceExt::oneshot(router.clone(), request.unwrap()).await.unwrap().status()
}

/// The service over a store with a fault, and that store.
fn over(app: &App, fault: Fault) -> (Router, Arc<FaultyStore>) {
    let store = Arc::new(FaultyStore::new(Arc::clone(&app.store), fault));
    let mut api = app.api.clone();
    api.store = Arc::<FaultyStore>::clone(&store);
    api.watches = Watches::new(Arc::clone(&api.store), 1000);
    (router(api), store)
}

/// Waits until runs were looked at so often.
async fn looked_at(store: &FaultyStore, looks: u32) {
    let end = Instant::now() + SOON;
    while store.looks() < looks {
        assert!(Instant::now() < end, "nobody looks");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_run_is_followed_to_its_end() {
    let app = App::new().await;
    let id = app.accepted("k", &months(&["2024-02"])).await;
    let mut stream = Stream::of(&app.router, &id, "").await;
    for (name, value) in
        [("content-type", "text/event-stream"), ("cache-control", "no-store"), ("x-accel-buffering", "no")]
    {
        assert_eq!(stream.headers[name], value);
    }
    assert!(!stream.headers.contains_key("content-encoding"), "a compressor would hold events back");
    let queued = stream.next().await.unwrap();
    assert_eq!(queued.data, json!({"state": "queued", "attempt": 0, "cancel_requested": false, "error": null}));
    let claimed = app.claim().await;
    assert_eq!(stream.next().await.unwrap().data["state"], "running");
    let mut progress = stream.next_named("progress").await;
    assert_eq!(progress.data["stage"], "claimed");
    let mut told = claimed.run.progress.clone().unwrap();
    (told.bytes, told.bytes_read) = (100, 40);
    let lease = Duration::from_secs(30);
    let _ = app.store.renew(claimed.run.id, claimed.token, lease, &told).await.unwrap();
    progress = stream.next_named("progress").await;
    assert_eq!((&progress.data["bytes_read"], &progress.data["bytes"]), (&json!(40), &json!(100)));
    app.decide(&claimed, 3).await;
    assert_eq!(stream.next_named("state").await.data["state"], "committing");
    let _ = app.store.finish(claimed.run.id, claimed.token).await.unwrap();
    assert_eq!(stream.next_named("state").await.data["state"], "succeeded");
    let end = stream.next_named("end").await;
    assert_eq!(end.data, app.get(&format!("/runs/{id}")).await.json());
    assert_eq!(stream.next().await, None, "it is over");
    assert_eq!(status_of(&app.router, &id, &end.id).await, StatusCode::NO_CONTENT, "nobody need come back");
}

#[tokio::test]
async fn an_estimate_that_has_passed_is_not_told() {
    let app = App::new().await;
    let id = app.accepted("k", &months(&["2024-02"])).await;
    let claimed = app.claim().await;
    let mut told = claimed.run.progress.clone().unwrap();
    for (minutes, is_told) in [(5, true), (-5, false)] {
        told.estimated_end = Some(Utc::now() + TimeDelta::minutes(minutes));
        let _ = app.store.renew(claimed.run.id, claimed.token, Duration::from_secs(30), &told).await.unwrap();
        let run = app.get(&format!("/runs/{id}")).await.json();
        assert_eq!(run["progress"]["estimated_end"].is_string(), is_told, "{run:#}");
        let progress = Stream::of(&app.router, &id, "").await.next_named("progress").await;
        assert_eq!(progress.data, run["progress"]);
    }
    told.estimated_end = Some(Utc::now() + TimeDelta::minutes(5));
    let _ = app.store.renew(claimed.run.id, claimed.token, Duration::from_secs(30), &told).await.unwrap();
    let ended = Ended {
        outcome: AttemptOutcome::Cancelled,
        error: None,
        retry_after: None,
        max_lost_workers: 5,
        quarantine: None,
    };
    let _ = app.store.end_attempt(claimed.run.id, claimed.token, &ended).await.unwrap();
    let run = app.get(&format!("/runs/{id}")).await.json();
    assert!(run["progress"].is_object() && run["progress"]["estimated_end"].is_null(), "it has ended: {run:#}");
}

#[tokio::test]
async fn who_comes_back_is_told_what_it_has_missed() {
    let app = App::new().await;
    let id = app.accepted("k", &months(&["2024-02"])).await;
    let queued = Stream::of(&app.router, &id, "").await.next().await.unwrap().id;
    app.fail(Some(Duration::ZERO)).await;
    let mut back = Stream::of(&app.router, &id, &queued).await;
    let again = back.next().await.unwrap();
    assert_eq!((again.state(), &again.data["attempt"]), (Some("queued"), &json!(1)), "it was tried meanwhile");
    assert_eq!(again.data["error"]["type"], "urn:refrain:problem:source-missing");
    app.succeed(3).await;
    drop(back);
    let (names, end) = Stream::of(&app.router, &id, &again.id).await.rest().await;
    assert_eq!(names, ["state", "progress", "end"]);
    let state = Stream::of(&app.router, &id, "").await.next().await.unwrap().id;
    assert_eq!(Stream::of(&app.router, &id, &state).await.rest().await.0, ["progress", "end"]);
    assert_eq!(Stream::of(&app.router, &id, "of another server").await.rest().await.0, names);
    assert_eq!(status_of(&app.router, &id, &end).await, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn a_run_that_is_tried_again_by_request_goes_on_after_its_end() {
    let app = App::new().await;
    let id = app.accepted("k", &months(&["2024-02"])).await;
    let cancel = async || app.post(&format!("/runs/{id}/cancel"), &json!({})).await;
    cancel().await;
    let (_, end) = Stream::of(&app.router, &id, "").await.rest().await;
    assert_eq!(status_of(&app.router, &id, &end).await, StatusCode::NO_CONTENT);
    app.post(&format!("/runs/{id}/retry"), &json!({})).await;
    let mut again = Stream::of(&app.router, &id, &end).await;
    assert_eq!(again.next().await.unwrap().state(), Some("queued"));
    cancel().await;
    assert_eq!(again.next().await.unwrap().state(), Some("cancelled"));
    assert_eq!(Stream::of(&app.router, &id, &end).await.rest().await.0, ["state", "end"], "cancelled once more");
}

#[tokio::test]
async fn what_cannot_be_followed_is_refused() {
    let app = App::new().await;
    let id = app.accepted("k", &months(&["2024-02"])).await;
    app.get("/runs/0199/events").await.problem(404, "run-not-found");
    app.get("/runs/01990000-0000-7000-8000-000000000000/events").await.problem(404, "run-not-found");
    let path = format!("/runs/{id}/events");
    app.get(&format!("{path}?wait=1")).await.problem(400, "invalid-parameter");
    let refused = Request::get(&path).header("accept", "application/json, text/event-stream;q=0").body(Body::empty());
    let refused = tokio::time::timeout(SOON, app.send(refused.unwrap())).await.unwrap();
    let refused = refused.problem(406, "not-acceptable");
    assert_eq!(refused["available"], json!(["text/event-stream"]));
    for taken in ["*/*", "text/*", "text/html, text/event-stream"] {
        let request = Request::get(&path).header("accept", taken).body(Body::empty()).unwrap();
        let answer = tower::ServiceExt::oneshot(app.router.clone(), request).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK, "{taken}");
    }
    let (away, _) = over(&app, Fault::Unavailable);
    let answer = send(&away, Request::get(&path).body(Body::empty()).unwrap()).await;
    answer.problem(503, "unavailable");
}

#[tokio::test]
async fn streams_are_bounded_in_number_and_in_time() {
    let limits =
        Limits { max_event_streams: 1, max_event_stream_seconds: 2, event_heartbeat_seconds: 1, ..Limits::default() };
    let app = App::with(limits, &[super::MONTHLY]).await;
    let id = app.accepted("k", &months(&["2024-02"])).await;
    let mut stream = Stream::of(&app.router, &id, "").await;
    let refused = app.get(&format!("/runs/{id}/events")).await;
    refused.problem(503, "too-many-streams");
    assert_eq!(refused.header("retry-after"), Some("1"));
    let (told, _) = stream.rest().await;
    // Where the machine is slow, another comment comes before its time is up.
    let comments = told.iter().skip(1).filter(|name| name.is_empty()).count();
    assert!(
        told[0] == "state" && comments >= 1 && comments == told.len() - 1,
        "a comment says that it is there: {told:?}"
    );
    drop(stream);
    let mut next = Stream::of(&app.router, &id, "").await;
    assert_eq!(next.next().await.unwrap().state(), Some("queued"), "there is a place again");
    app.api.shutdown.cancel();
    assert_eq!(next.next().await, None, "a service that goes ends its streams");
}

#[tokio::test]
async fn who_takes_nothing_more_loses_its_place() {
    let app =
        App::with(Limits { max_event_streams: 1, request_timeout_seconds: 1, ..Limits::default() }, &[super::MONTHLY])
            .await;
    let id = app.accepted("k", &months(&["2024-02"])).await;
    let _unread = Stream::of(&app.router, &id, "").await;
    let end = Instant::now() + SOON;
    loop {
        let request = Request::get(format!("/runs/{id}/events")).body(Body::empty()).unwrap();
        match tower::ServiceExt::oneshot(app.router.clone(), request).await.unwrap().status() {
            StatusCode::OK => return,
            status => assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE),
        }
        assert!(Instant::now() < end, "it has its place still");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn one_look_serves_all_who_wait() {
    const WAITING: usize = 300;
    let app = App::new().await;
    let id = app.accepted("k", &months(&["2024-02"])).await;
    let (router, store) = over(&app, Fault::OneRun);
    let ask = || {
        let (router, path) = (router.clone(), format!("/runs/{id}?wait=30"));
        tokio::spawn(async move { send(&router, Request::get(path).body(Body::empty()).unwrap()).await })
    };
    let waiting: Vec<_> = (0..WAITING).map(|_| ask()).collect();
    let mut stream = Stream::of(&router, &id, "").await;
    assert_eq!(stream.next().await.unwrap().state(), Some("queued"));
    // They are all there, and have been looked at for some seconds.
    looked_at(&store, 4).await;
    app.succeed(3).await;
    let mut answers = Vec::new();
    for answer in waiting {
        answers.push(answer.await.unwrap());
    }
    let tag = answers[0].header("etag").unwrap().to_owned();
    for answer in &answers {
        assert_eq!((answer.status, answer.header("etag")), (StatusCode::OK, Some(tag.as_str())), "it was read once");
        assert_eq!(answer.json()["state"], "succeeded");
    }
    assert_eq!(stream.next_named("end").await.data, answers[0].json());
    let looks = store.looks();
    assert!(looks < 30, "{looks} looks for {WAITING} who waited");
    crate::counted(format_args!("{WAITING} requests waited for one run: {looks} looks at it, read once"));
    // Who looks has the store too, and is over when nobody waits any more.
    drop((stream, router));
    let end = Instant::now() + SOON;
    while Arc::strong_count(&store) > 1 {
        assert!(Instant::now() < end, "it is still looked at");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[rstest]
#[case::it_fails(Fault::AwayAtSecondLook, 503, "unavailable")]
#[case::it_breaks(Fault::BreaksAtSecondLook, 500, "internal")]
#[tokio::test]
async fn a_look_that_fails_is_told_to_who_waits_and_outlasted_by_who_follows(
    #[case] fault: Fault,
    #[case] status: u16,
    #[case] problem: &str,
) {
    let app = App::new().await;
    let id = app.accepted("k", &months(&["2024-02"])).await;
    let (router, store) = over(&app, fault);
    let mut stream = Stream::of(&router, &id, "").await;
    assert_eq!(stream.next().await.unwrap().state(), Some("queued"));
    let following = tokio::spawn(async move {
        stream.until("succeeded").await;
        stream.rest().await.0.pop()
    });
    // Who comes is looked at anew, which is the second look.
    let asked = Request::get(format!("/runs/{id}?wait=30")).body(Body::empty()).unwrap();
    send(&router, asked).await.problem(status, problem);
    looked_at(&store, 3).await;
    app.succeed(3).await;
    assert_eq!(following.await.unwrap().as_deref(), Some("end"));
}

#[tokio::test]
async fn a_run_that_cannot_be_read_does_not_hide_the_others() {
    let app = App::new().await;
    let ids = [app.accepted("k", &months(&["2024-02"])).await, app.accepted("k2", &months(&["2024-03"])).await];
    let (router, store) = over(&app, Fault::OneByOne);
    let waiting = ids.clone().map(|id| {
        let router = router.clone();
        let asked = Request::get(format!("/runs/{id}?wait=30")).body(Body::empty()).unwrap();
        tokio::spawn(async move { send(&router, asked).await })
    });
    // Both are due at the same time once a second.
    looked_at(&store, 6).await;
    app.succeed(3).await;
    app.post(&format!("/runs/{}/cancel", ids[1]), &json!({})).await;
    for (answer, state) in waiting.into_iter().zip(["succeeded", "cancelled"]) {
        let answer = answer.await.unwrap();
        assert_eq!((answer.status, &answer.json()["state"]), (StatusCode::OK, &json!(state)), "{answer:?}");
    }
}

#[tokio::test]
async fn a_look_that_breaks_leaves_nobody_waiting() {
    let app = App::new().await;
    let id = app.accepted("k", &months(&["2024-02"])).await;
    let (router, _) = over(&app, Fault::Panic);
    for _ in 0..2 {
        let asked = Request::get(format!("/runs/{id}?wait=60")).body(Body::empty()).unwrap();
        let answer = tokio::time::timeout(SOON, send(&router, asked)).await.unwrap();
        answer.problem(500, "internal");
    }
}

#[tokio::test]
async fn a_run_that_is_queued_again_is_not_answered_with_its_old_end() {
    let app = App::new().await;
    let id = app.accepted("k", &months(&["2024-02"])).await;
    app.fail(None).await;
    // A stream that nobody reads keeps the look at the failed run.
    let kept = Stream::of(&app.router, &id, "").await;
    for _ in 0..20 {
        assert_eq!(app.get(&format!("/runs/{id}?wait=30")).await.json()["state"], "failed");
        let run = app.api.store.get(refrain::run::RunId(id.parse().unwrap())).await.unwrap().unwrap();
        let definition = parsed(&[super::MONTHLY]).remove("monthly").unwrap();
        let stored = refrain::store::StoredDefinition {
            hash: run.definition,
            pipeline: run.pipeline,
            text: definition.text.clone(),
        };
        // Beside the router, so that nothing but the request's own look can know.
        let _ = app.store.retry(run.id, None, &stored).await.unwrap();
        assert_eq!(app.get(&format!("/runs/{id}?wait=0.01")).await.json()["state"], "queued");
        app.fail(None).await;
    }
    drop(kept);
}
