//! Only listed hosts are asked.

use super::super::bed::Bed;
use super::{JANUARY, csv, fails, job, listed, run};
use crate::site::{Reply, Site, Stored};
use refrain::engine::WebSettings;

async fn january() -> Site {
    Site::of([("/a.csv".to_owned(), Stored::new(JANUARY.as_bytes(), "\"1\""))].into()).await
}

/// A server whose every path is redirected there.
async fn redirecting(to: String) -> Site {
    Site::start(move |_| Reply::redirect(&to)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_not_listed_is_not_asked() {
    let (site, other) = (january().await, january().await);
    let port = site.host().rsplit_once(':').unwrap().1.to_owned();
    for (hosts, listed) in [
        (vec![], "no host".to_owned()),
        (vec![other.host()], other.host()),
        // The name without a port is for the scheme's own, and no name is another one.
        (vec!["127.0.0.1".to_owned()], "127.0.0.1".to_owned()),
        (vec![format!("localhost:{port}")], format!("localhost:{port}")),
        (vec![format!("27.0.0.1:{port}")], format!("27.0.0.1:{port}")),
    ] {
        let web = WebSettings { hosts, ..WebSettings::default() };
        let error = fails(&csv(&site.url("/a.csv")), &["2024-01"], web).await;
        assert_eq!((error.kind.as_str(), error.class.as_str()), ("source-host-not-listed", "compute"), "{error:?}");
        let said =
            format!("the host {} is asked for, but --source-hosts (REFRAIN_SOURCE_HOSTS) lists {listed}", site.host());
        assert!(error.detail.ends_with(&said), "{}", error.detail);
    }
    assert_eq!(site.seen(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_are_followed_to_listed_hosts_alone() {
    let target = january().await;
    let site = redirecting(target.url("/a.csv")).await;
    let bed = Bed::new();
    let pipeline = csv(&site.url("/z.csv"));
    let (made, _) = run(&bed, job(&bed, &pipeline, &["2024-01"], listed(&[&site, &target]))).await;
    assert_eq!((made.books(), made.report.sources[0].path.clone()), ([2, 2, 0, 0, 0], site.url("/z.csv")));
    assert_eq!(target.seen(), ["HEAD /a.csv", "GET /a.csv"]);

    let error = fails(&pipeline, &["2024-01"], listed(&[&site])).await;
    assert_eq!((error.kind.as_str(), error.class.as_str()), ("source-host-not-listed", "compute"), "{error:?}");
    assert!(error.detail.contains(&target.host()) && error.detail.contains(&site.url("/z.csv")), "{}", error.detail);
    assert_eq!(target.seen().len(), 2, "it was not asked again");
}

/// The first answer leads to the file, a later one away.
#[tokio::test(flavor = "multi_thread")]
async fn each_request_is_checked_by_itself() {
    let (target, away) = (january().await, january().await);
    let (to, then) = (target.url("/a.csv"), away.url("/a.csv"));
    let site = Site::start(move |request| Reply::redirect(if request.method == "HEAD" { &to } else { &then })).await;
    let error = fails(&csv(&site.url("/a.csv")), &["2024-01"], listed(&[&site, &target])).await;
    assert_eq!((error.kind.as_str(), away.seen()), ("source-host-not-listed", vec![]), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_end_and_take_no_password_along() {
    let circle = Site::start(|request| Reply::redirect(&format!("/{}", request.path.len() % 2))).await;
    let error = fails(&csv(&circle.url("/a.csv")), &["2024-01"], listed(&[&circle])).await;
    assert_eq!((error.kind.as_str(), error.class.as_str()), ("source-unreachable", "source"), "{error:?}");
    assert_eq!(circle.seen().len(), 6, "itself and five redirects");

    let target = january().await;
    for to in [target.url("/a.csv").replace("http://", "http://ann:secret@"), "ftp://127.0.0.1/a.csv".to_owned()] {
        let site = redirecting(to).await;
        let error = fails(&csv(&site.url("/a.csv")), &["2024-01"], listed(&[&site, &target])).await;
        assert_eq!((error.kind.as_str(), error.class.as_str()), ("source-redirect-refused", "compute"), "{error:?}");
        assert!(!error.detail.contains("secret"), "{}", error.detail);
    }
    assert_eq!(target.seen(), Vec::<String>::new());
}
