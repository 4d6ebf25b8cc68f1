//! What servers and networks do wrong: a clear failure of the right class, soon.

use super::{FEBRUARY, JANUARY, csv, fails, listed};
use crate::site::{Body, Reply, Site, Stored};
use refrain::run::RunError;
use std::time::{Duration, Instant};

/// The failure over `/a.csv` of a server that answers so.
async fn failure(answer: impl Fn(&crate::site::Request) -> Reply + Send + Sync + 'static) -> (RunError, Site) {
    let site = Site::start(answer).await;
    (fails(&csv(&site.url("/a.csv")), &["2024-01"], listed(&[&site])).await, site)
}

fn assert_failed(error: &RunError, kind: &str, class: &str, says: &str) {
    assert_eq!((error.kind.as_str(), error.class.as_str()), (kind, class), "{error:?}");
    assert!(error.detail.contains(says) && error.detail.contains("/a.csv: "), "expected {says:?}: {error:?}");
}

fn whole() -> Reply {
    Reply::status(200).with("etag", "\"1\"").body(Body::Whole(JANUARY.as_bytes().to_vec()))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_answers_says_whether_and_when_to_come_back() {
    for (status, kind) in [
        (429, "source-unreachable"),
        (500, "source-unreachable"),
        (503, "source-unreachable"),
        (400, "source-refused"),
        (401, "source-refused"),
        (403, "source-refused"),
        (204, "source-refused"),
        (300, "source-refused"),
    ] {
        let (error, _) = failure(move |_| Reply::status(status).with("retry-after", "7")).await;
        assert_failed(&error, kind, "source", &format!("its server answers {status}"));
        assert_eq!(error.retry_after_seconds, Some(7), "{error:?}");
        // The same when it is only the download that is refused.
        let (error, _) =
            failure(move |request| if request.method == "HEAD" { whole() } else { Reply::status(status) }).await;
        assert_failed(&error, kind, "source", &format!("its server answers {status}"));
        assert_eq!(error.retry_after_seconds, None, "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_version_than_was_planned_with_is_not_read() {
    let version = |etag: Option<&str>, modified: Option<&str>, text: &str| Stored {
        bytes: text.as_bytes().to_vec(),
        etag: etag.map(ToOwned::to_owned),
        modified: modified.map(ToOwned::to_owned),
    };
    let first_day = Some("Mon, 05 Feb 2024 06:07:08 GMT");
    let next_day = Some("Tue, 06 Feb 2024 06:07:08 GMT");
    // The same length throughout, so that it alone tells nothing.
    let other = JANUARY.replace("1.50", "9.99");
    for (planned, read, says) in [
        (version(Some("\"1\""), None, JANUARY), version(Some("\"2\""), None, &other), "has another version now"),
        (
            version(Some("W/\"1\""), None, JANUARY),
            version(Some("W/\"2\""), None, &other),
            "it was W/\"1\" and is W/\"2\" now",
        ),
        (version(Some("W/\"1\""), first_day, JANUARY), version(None, first_day, &other), "and is not named now"),
        (version(None, first_day, JANUARY), version(None, next_day, &other), "and is Tue, 06 Feb 2024"),
        (version(None, None, JANUARY), version(None, None, &FEBRUARY[..40]), "it has 40 bytes now"),
        (
            version(Some("W/\"1\""), None, JANUARY),
            version(Some("W/\"1\""), None, &JANUARY[..40]),
            "it has 40 bytes now",
        ),
    ] {
        let (error, _) = failure(move |r| if r.method == "HEAD" { planned.answer(r) } else { read.answer(r) }).await;
        assert_failed(&error, "source-changed", "source", says);
    }
    let (error, _) = failure(|r| if r.method == "HEAD" { whole() } else { Reply::status(404) }).await;
    assert_failed(&error, "source-changed", "source", "it is gone");
    // A strong ETag lets the server refuse, also one that says nothing in its answer.
    let (_, site) = failure(|r| if r.method == "HEAD" { whole() } else { Reply::status(412) }).await;
    assert_eq!(site.requests()[1].headers["if-match"], "\"1\"");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_breaks_off_or_is_silent_is_unreachable_soon() {
    let bytes = || JANUARY.as_bytes().to_vec();
    let began = Instant::now();
    for (body, says) in [
        (Body::Cut(bytes(), 20), "after 20 bytes"),
        (Body::Stalled(bytes(), 20), "its server sent nothing for 1 s, after 20 bytes"),
        (Body::Silence, "its server sent nothing for 1 s"),
        (Body::SlowHead, "its server sent nothing for 1 s"),
    ] {
        let reply = Reply::status(200).with("etag", "\"1\"").body(body.clone());
        let late = reply.clone();
        let (error, _) = failure(move |request| if request.method == "HEAD" { whole() } else { late.clone() }).await;
        assert_failed(&error, "source-unreachable", "source", says);
        if matches!(body, Body::Silence | Body::SlowHead) {
            let (error, _) = failure(move |_| reply.clone()).await;
            assert_failed(&error, "source-unreachable", "source", says);
        }
    }
    let nobody = {
        let site = Site::start(|_| whole()).await;
        site.url("/a.csv")
    };
    let hosts = vec![nobody.split('/').nth(2).unwrap().to_owned()];
    let web = refrain::engine::WebSettings { hosts, ..listed(&[]) };
    assert_failed(&fails(&csv(&nobody), &["2024-01"], web).await, "source-unreachable", "source", "refused");
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn files_beyond_the_limit_are_not_read_on() {
    let says = "expected at most 1048576, which is --max-source-mb 1 (REFRAIN_MAX_SOURCE_MB)";
    let (error, site) = failure(|_| whole().with("content-length", "1048577")).await;
    assert_failed(&error, "source-too-large", "compute", says);
    assert_eq!(site.seen(), ["HEAD /a.csv"], "nothing was downloaded");
    let (error, _) = failure(|_| Reply::status(200).with("etag", "\"1\"").body(Body::Endless)).await;
    assert_failed(&error, "source-too-large", "compute", says);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_encodes_is_not_taken_for_the_file() {
    let (error, _) = failure(|_| whole().with("content-encoding", "gzip")).await;
    assert_failed(&error, "source-encoded", "compute", "its server encodes it as gzip");
    let stored = super::super::text::gzip(JANUARY.as_bytes());
    let site =
        Site::start(move |request| Stored::new(&stored, "\"1\"").answer(request).with("content-encoding", "gzip"))
            .await;
    let bed = super::super::bed::Bed::new();
    let job = super::job(&bed, &csv(&site.url("/a.csv.gz?x=1")), &["2024-01"], listed(&[&site]));
    assert_eq!(super::run(&bed, job).await.0.books(), [2, 2, 0, 0, 0]);
}
