//! The data of partitions: conditions, ranges and forms, over files of the test's own.

use super::{Answer, App, months};
use async_trait::async_trait;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use futures::StreamExt;
use refrain::http::{FilesError, OpenedFile, PartitionFiles, RowStream, RowsAsked};
use refrain::partition::PartitionKey;
use refrain::run::PartFile;
use rstest::rstest;
use std::io::{Seek, SeekFrom, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What is in the file: enough to be compressed, where that were right.
const BYTES: &[u8] = b"0123456789012345678901234567890123456789";

/// One file for every partition, whose digests are as they are told, one for each look; the last stays.
#[derive(Default)]
pub(crate) struct Shelf {
    digests: Mutex<Vec<String>>,
    looks: AtomicUsize,
    asked: Mutex<Vec<RowsAsked>>,
}

impl Shelf {
    fn put(&self, digests: &[&str]) {
        *self.digests.lock().unwrap() = digests.iter().map(|digest| (*digest).to_owned()).collect();
    }
}

#[async_trait]
impl PartitionFiles for Shelf {
    async fn open(&self, _: &str, _: &PartitionKey, _: PartFile) -> Result<Option<OpenedFile>, FilesError> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        let mut digests = self.digests.lock().unwrap();
        let sha256 = if digests.len() > 1 { digests.remove(0) } else { digests[0].clone() };
        if sha256 == "none" {
            return Ok(None);
        }
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(BYTES).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        Ok(Some(OpenedFile { file, bytes: BYTES.len() as u64, sha256 }))
    }

    async fn rows(&self, _: std::fs::File, asked: RowsAsked) -> Result<RowStream, FilesError> {
        let refused = asked.columns.iter().flatten().any(|name| name == "nowhere");
        let busy = asked.limit == Some(77);
        self.asked.lock().unwrap().push(asked);
        match () {
            () if refused => Err(FilesError::UnknownColumns("found nowhere".to_owned())),
            () if busy => Err(FilesError::Busy("4 files are being read".to_owned())),
            () => Ok(futures::stream::iter([Ok("rows".into())]).boxed()),
        }
    }
}

const PATH: &str = "/pipelines/monthly/data/month=2024-02";

/// An application with February, three trips in it; its digest.
async fn with_february() -> (App, String) {
    let app = App::new().await;
    app.accepted("k", &months(&["2024-02"])).await;
    app.succeed(3).await;
    let sha256 = format!("{:064x}", 3);
    app.shelf.put(&[&sha256]);
    (app, sha256)
}

async fn asked(app: &App, method: Method, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    app.send(request.body(Body::empty()).unwrap()).await
}

#[tokio::test]
async fn the_file_comes_as_it_is_under_its_digest() {
    let (app, sha256) = with_february().await;
    for method in [Method::GET, Method::HEAD] {
        let answer = asked(&app, method.clone(), PATH, &[("accept-encoding", "gzip")]).await;
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
        assert_eq!(answer.body, if method == Method::GET { BYTES } else { b"" });
        for (name, value) in [
            ("etag", format!("\"{sha256}\"").as_str()),
            ("content-type", "application/vnd.apache.parquet"),
            ("content-length", "40"),
            ("accept-ranges", "bytes"),
            ("cache-control", "no-cache"),
            ("last-modified", "Fri, 01 Mar 2024 06:00:00 GMT"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{method} {answer:?}");
        }
        assert!(answer.header("content-encoding").is_none(), "{answer:?}");
        let name = answer.header("content-disposition").unwrap();
        assert!(name.starts_with("attachment; filename=\"monthly.month=2024-02.parquet\""), "{name}");
    }
    let tag = format!("\"{sha256}\"");
    assert_eq!(app.get_if_changed(PATH, &tag).await.status, StatusCode::NOT_MODIFIED);
    assert_eq!(app.get_if_changed(PATH, "\"other\"").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_part_of_the_file_comes_for_a_range() {
    let (app, sha256) = with_february().await;
    let tag = format!("\"{sha256}\"");
    let part = asked(&app, Method::GET, PATH, &[("range", "bytes=2-4"), ("if-range", &tag)]).await;
    assert_eq!((part.status, part.body.as_slice()), (StatusCode::PARTIAL_CONTENT, b"234".as_slice()));
    assert_eq!(part.header("content-range"), Some("bytes 2-4/40"));
    let other = asked(&app, Method::GET, PATH, &[("range", "bytes=2-4"), ("if-range", "\"before\"")]).await;
    assert_eq!((other.status, other.body.as_slice()), (StatusCode::OK, BYTES), "the file was replaced since");
    let beyond = asked(&app, Method::GET, PATH, &[("range", "bytes=40-")]).await;
    assert_eq!(beyond.problem(416, "range-not-satisfiable")["bytes"], 40);
    assert_eq!(beyond.header("content-range"), Some("bytes */40"));
}

#[tokio::test]
async fn rows_come_in_the_form_that_is_asked_for() {
    let (app, sha256) = with_february().await;
    let path = format!("{PATH}?columns=trips,hour&limit=5");
    let mut tags = vec![format!("\"{sha256}\"")];
    for (accept, kind) in [
        ("application/json", "application/json"),
        ("text/csv", "text/csv; charset=utf-8; header=present"),
        ("application/x-ndjson", "application/x-ndjson"),
    ] {
        let answer = asked(&app, Method::GET, &path, &[("accept", accept)]).await;
        assert_eq!((answer.status, answer.body.as_slice()), (StatusCode::OK, b"rows".as_slice()), "{answer:?}");
        assert_eq!(answer.header("content-type"), Some(kind));
        assert_eq!(answer.header("vary"), Some("accept, accept-encoding"));
        tags.push(answer.header("etag").unwrap().to_owned());
        let tag = tags[tags.len() - 1].clone();
        let known = asked(&app, Method::GET, &path, &[("accept", accept), ("if-none-match", &tag)]).await;
        assert_eq!(known.status, StatusCode::NOT_MODIFIED);
    }
    tags.push(app.get(&format!("{PATH}?limit=6")).await.header("etag").unwrap().to_owned());
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), 5, "each has a tag of its own: {tags:?}");
    let before = app.shelf.asked.lock().unwrap().len();
    let head = asked(&app, Method::HEAD, &path, &[]).await;
    assert_eq!((head.status, head.header("content-type")), (StatusCode::OK, Some("application/json")));
    let asked_of_rows = app.shelf.asked.lock().unwrap().clone();
    assert_eq!(asked_of_rows.len(), before, "nobody reads rows for a HEAD");
    assert_eq!(asked_of_rows[0].columns, Some(vec!["trips".to_owned(), "hour".to_owned()]));
    assert_eq!(asked_of_rows[0].limit, Some(5));

    let refused = asked(&app, Method::GET, PATH, &[("accept", "text/html, image/*;q=0.5")]).await;
    let available = refused.problem(406, "not-acceptable")["available"].clone();
    assert_eq!(available.as_array().unwrap().len(), 4, "{available}");
    let busy = app.get(&format!("{PATH}?limit=77")).await;
    busy.problem(503, "too-many-readers");
    assert_eq!(busy.header("retry-after"), Some("1"));
}

#[rstest]
#[case("limit=0", "limit")]
#[case("limit=-1", "limit")]
#[case("columns=", "columns")]
#[case("columns=trips,,hour", "columns")]
#[case("columns=trips,trips", "columns")]
#[case("columns=nowhere", "columns")]
#[case("format=csv", "format")]
#[tokio::test]
async fn a_cut_that_cannot_be_is_refused(#[case] query: &str, #[case] parameter: &str) {
    let (app, _) = with_february().await;
    let answer = app.get(&format!("{PATH}?{query}")).await;
    assert_eq!(answer.problem(400, "invalid-parameter")["parameter"], parameter);
}

#[tokio::test]
async fn a_file_that_is_not_the_catalogs_is_looked_at_again_and_never_given() {
    let (app, sha256) = with_february().await;
    app.shelf.put(&["a run is publishing", "none", &sha256]);
    let answer = app.get(PATH).await;
    assert_eq!(answer.header("etag"), Some(format!("\"{sha256}\"").as_str()), "{answer:?}");
    assert_eq!(app.shelf.looks.load(Ordering::SeqCst), 3);
    app.shelf.put(&["torn"]);
    let answer = app.get(PATH).await;
    answer.problem(503, "file-differs");
    assert_eq!(answer.header("retry-after"), Some("1"));
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let (app, _) = with_february().await;
    app.get("/pipelines/monthly/data/month=2024-03").await.problem(404, "partition-not-found");
    app.get("/pipelines/monthly/data/month=%00").await.problem(404, "partition-not-found");
    app.get("/pipelines/yearly/data/month=2024-02").await.problem(404, "pipeline-not-found");
    app.accepted("k2", &months(&["2024-02"])).await;
    app.succeed(0).await;
    app.get(PATH).await.problem(404, "partition-not-found");
}
