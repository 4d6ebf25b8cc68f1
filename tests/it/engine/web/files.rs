//! What is read, and which version of it.

use super::super::bed::Bed;
use super::super::text::{COLUMNS, NDJSON, TABLE, definition, gzip};
use super::{FEBRUARY, JANUARY, csv, job, listed, run, with_neighbours};
use crate::site::{Body, Reply, Site, Stored};
use polars::prelude::{NamedFrom, Series};
use refrain::engine::Job;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

const MODIFIED: &str = "Mon, 05 Feb 2024 06:07:08 GMT";

/// The months of `data/` in every format, as a disk has them.
fn write_months(bed: &Bed) {
    std::fs::create_dir(bed.path("data")).unwrap();
    let february = NDJSON.replace("2024-01", "2024-02");
    for (name, bytes) in [
        ("2024-01.csv", JANUARY.as_bytes().to_vec()),
        ("2024-02.csv", FEBRUARY.as_bytes().to_vec()),
        ("2024-01.json.gz", gzip(NDJSON.as_bytes())),
        ("2024-02.json.gz", gzip(february.as_bytes())),
    ] {
        std::fs::write(bed.path("data").join(name), bytes).unwrap();
    }
    for (month, fare) in [("01", 1.5), ("02", 2.5)] {
        let day = format!("2024-{month}-03 00:00:00");
        bed.write(
            &format!("data/2024-{month}.parquet"),
            vec![
                Series::new("at".into(), [day.as_str(), "2024-01-31 00:00:00"]).into(),
                Series::new("zone".into(), [1i64, 2]).into(),
                Series::new("fare".into(), [fare, 0.25]).into(),
            ],
        );
    }
}

/// The files of `data/`, each with its name as ETag.
fn served(bed: &Bed) -> BTreeMap<String, Stored> {
    let files = std::fs::read_dir(bed.path("data")).unwrap().map(|entry| entry.unwrap());
    let stored = files.map(|entry| {
        let (name, bytes) = (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap());
        let modified = Some(MODIFIED.to_owned());
        (format!("/data/{name}"), Stored { bytes, etag: Some(format!("\"{name}\"")), modified })
    });
    stored.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_server_give_the_bytes_that_they_give_from_the_disk() {
    let bed = Bed::new();
    write_months(&bed);
    let site = Site::of(served(&bed)).await;
    let text_time = COLUMNS.replace("\"datetime\"", "{ type = \"datetime\", format = \"%Y-%m-%d %H:%M:%S\" }");
    for (format, ending, columns) in
        [("csv", "csv", COLUMNS), ("ndjson", "json.gz", COLUMNS), ("parquet", "parquet", &text_time)]
    {
        for (file, neighbours, named) in [
            (format!("data/%Y-%m.{ending}"), false, &["2024-02"][..]),
            (format!("data/%Y-%m.{ending}"), true, &["2024-01", "2024-02"]),
            (format!("data/2024-01.{ending}"), false, &[]),
        ] {
            let pipeline = |path: &str| match definition(format, path, columns, TABLE) {
                pipeline if neighbours => with_neighbours(&pipeline),
                pipeline => pipeline,
            };
            let (disk, _) = run(&bed, job(&bed, &pipeline(&file), named, listed(&[]))).await;
            let url = site.url(&format!("/{file}"));
            let of_site = job(&bed, &pipeline(&url), named, listed(&[&site]));
            let staging = of_site.staging.clone();
            let (made, progress) = run(&bed, of_site).await;
            let books = |made: &super::Made| (made.digests(), made.books());
            assert_eq!(books(&made), books(&disk), "{url} {neighbours}");
            assert_eq!((progress.rows, progress.files), (made.books()[0], made.report.sources.len() as u64), "{url}");
            let left = std::fs::read_dir(staging).unwrap().count();
            let staged = made.files.len() + usize::from(made.quarantine.is_some());
            assert_eq!(left, staged, "{url}: what was downloaded is gone");
            for (read, on_disk) in made.report.sources.iter().zip(&disk.report.sources) {
                assert_eq!(read.path, site.url(&format!("/{}", on_disk.path)));
                assert_eq!((read.bytes, read.rows), (on_disk.bytes, on_disk.rows), "{}", read.path);
                let name = read.path.rsplit_once('/').unwrap().1;
                assert_eq!(read.etag.as_deref(), Some(format!("\"{name}\"").as_str()));
                assert_eq!(read.modified.unwrap().to_rfc3339(), "2024-02-05T06:07:08+00:00");
            }
        }
    }
    let requests = site.requests();
    assert!(requests.iter().all(|r| r.headers["accept-encoding"] == "identity"), "{requests:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_are_sent_and_not_shown() {
    let bed = Bed::new();
    let site =
        Site::of([("/a.csv".to_owned(), Stored::new(format!("{JANUARY}x,1\n").as_bytes(), "\"1\""))].into()).await;
    let by_file = TABLE.replace("zone = \"zone\"", "file = \"source_file\"");
    let pipeline =
        definition("csv", &site.url("/a.csv?sig=secret/%Y&m=%m").replacen("http:", "Http:", 1), COLUMNS, &by_file);
    let (made, _) = run(&bed, job(&bed, &pipeline, &["2024-01"], listed(&[&site]))).await;
    assert_eq!(site.seen(), ["HEAD /a.csv?sig=secret/2024&m=01", "GET /a.csv?sig=secret/2024&m=01"]);
    assert_eq!(made.rows("month=2024-01")[0][0], format!("'{}'", site.url("/a.csv")));
    let report = format!("{:?}", made.report);
    assert!(!report.contains("secret") && report.contains("/a.csv: line 4: "), "{report}");
    let kept = made.quarantine.unwrap();
    let of = |name: &str| kept.column(name).unwrap().get(0).unwrap().get_str().map(str::to_owned);
    assert_eq!((of("source_file"), of("source_text")), (Some(site.url("/a.csv")), Some("x,1".to_owned())));
    for (pipeline, web) in [
        (pipeline.replace("a.csv", "b.csv"), listed(&[&site])),
        (pipeline.replacen("fare =", "fear =", 1).replace("sum(fare)", "sum(fear)"), listed(&[&site])),
        (pipeline.clone(), listed(&[])),
        (pipeline.replace("0.5", "0.1"), listed(&[&site])),
    ] {
        let error = super::fails(&pipeline, &["2024-01"], web).await;
        assert!(!error.detail.contains("secret") && error.detail.contains(&site.host()), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn own_files_must_be_there_and_those_next_door_may_be_absent() {
    for gone in [404, 410] {
        let site = Site::start(move |request| match request.path.as_str() {
            "/2024-02.csv" => Stored::new(FEBRUARY.as_bytes(), "\"2\"").answer(request),
            _ => Reply::status(gone),
        })
        .await;
        let bed = Bed::new();
        let pipeline = with_neighbours(&csv(&site.url("/%Y-%m.csv")));
        let (made, _) = run(&bed, job(&bed, &pipeline, &["2024-02"], listed(&[&site]))).await;
        assert_eq!((made.books(), made.report.sources.len()), ([2, 1, 1, 0, 0], 1));
        let error = super::fails(&pipeline, &["2024-01", "2024-02"], listed(&[&site])).await;
        assert_eq!((error.kind.as_str(), error.class.as_str()), ("source-missing", "source"));
        assert!(error.detail.contains("/2024-01.csv does not exist, and month=2024-01 needs it"), "{}", error.detail);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn full_takes_plain_urls_and_no_templates() {
    let bed = Bed::new();
    let stored = |text: &str| Stored::new(text.as_bytes(), "\"1\"");
    let files = [("/a.csv".to_owned(), stored(JANUARY)), ("/b.csv".to_owned(), stored(FEBRUARY))];
    let site = Site::of(files.into()).await;
    let both = csv("X").replace("\"X\"", &format!("[\"{}\", \"{}\"]", site.url("/a.csv"), site.url("/b.csv")));
    let (made, _) = run(&bed, job(&bed, &both, &[], listed(&[&site]))).await;
    assert_eq!(made.books(), [4, 4, 0, 0, 0]);
    let error = super::fails(&csv(&site.url("/%Y-%m.csv")), &[], listed(&[&site])).await;
    assert_eq!((error.kind.as_str(), error.class.as_str()), ("source-not-listed", "compute"), "{error:?}");
}

/// Signed URLs let only GET pass; some servers know no HEAD, or no length without the body.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_answers_no_head_is_asked_for_a_byte() {
    for (head, with_length) in [(403, true), (405, true), (501, true), (200, false), (200, true)] {
        let site = Site::start(move |request| match request.method.as_str() {
            "HEAD" if with_length => Reply::status(head),
            "HEAD" => Reply::status(head).body(Body::Endless),
            _ => Stored::new(JANUARY.as_bytes(), "\"1\"").answer(request),
        })
        .await;
        let bed = Bed::new();
        let (made, _) = run(&bed, job(&bed, &csv(&site.url("/a.csv")), &["2024-01"], listed(&[&site]))).await;
        assert_eq!(made.books(), [2, 2, 0, 0, 0]);
        assert_eq!(site.seen(), ["HEAD /a.csv", "GET /a.csv", "GET /a.csv"]);
        let sent: Vec<_> = site.requests().iter().map(|r| r.headers.get("range").cloned()).collect();
        assert_eq!(sent, [None, Some("bytes=0-0".to_owned()), None]);
    }
    let site = Site::of([("/a.csv".to_owned(), Stored::new(b"", "\"1\""))].into()).await;
    let error = super::fails(&csv(&site.url("/a.csv")), &["2024-01"], listed(&[&site])).await;
    assert!(error.kind == "source-unreadable" && error.detail.contains("/a.csv: is empty"), "{error:?}");
}

/// Each day a file, each day a slice.
#[tokio::test(flavor = "multi_thread")]
async fn slices_are_taken_over_while_their_files_are_the_same_version() {
    let day = |day: usize| format!("at,zone,fare\n2024-01-0{day}T12:00:00,{day},1.00\n");
    let days: Vec<String> = (1..=6).map(|day| format!("2024-01-0{day}")).collect();
    let names: Vec<&str> = days.iter().map(String::as_str).collect();
    let file = |text: &str, etag: Option<&str>| Stored {
        bytes: text.as_bytes().to_vec(),
        etag: etag.map(ToOwned::to_owned),
        modified: None,
    };
    let first: BTreeMap<String, Stored> =
        (1..=6).map(|n| (format!("/2024-01-0{n}.csv"), file(&day(n), Some("W/\"1\"")))).collect();
    let files = Arc::new(Mutex::new(first));
    let now = Arc::clone(&files);
    let site = Site::start(move |request| now.lock().unwrap()[&request.path].answer(request)).await;
    let bed = Bed::new();
    let pipeline = csv(&site.url("/%Y-%m-%d.csv")).replace("month_of", "day_of");
    let next = || async {
        let job = Job { slice_source_bytes: 0, ..job(&bed, &pipeline, &names, listed(&[&site])) };
        let (made, progress) = run(&bed, job).await;
        (made.digests(), progress.partitions_taken_over)
    };
    let (digests, taken) = next().await;
    assert_eq!((digests.len(), taken), (6, 0));
    let asked = site.seen().len();
    assert_eq!(next().await, (digests.clone(), 6));
    assert!(site.seen()[asked..].iter().all(|seen| seen.starts_with("HEAD ")), "nothing was downloaded again");

    let change = |n: usize, text: &str, etag: Option<&str>| {
        files.lock().unwrap().insert(format!("/2024-01-0{n}.csv"), file(text, etag));
    };
    change(2, &day(2), Some("W/\"2\""));
    assert_eq!(next().await, (digests.clone(), 5), "another ETag");
    change(3, &format!("{}2024-01-03,1,1\n", day(3)), Some("W/\"1\""));
    let (changed, taken) = next().await;
    assert_eq!((taken, changed != digests), (5, true), "another length");
    change(4, &day(4), None);
    assert_eq!(next().await, (changed.clone(), 5));
    assert_eq!(next().await, (changed, 5), "without a name each time is another version");
}
