//! The data of partitions, as clients download it from the real binary.

use super::access::told;
use super::slow::engines_of;
use super::{MONTHS, Place, Server, Store, trips_pipeline, write_quarter};
use crate::crash::until;
use reqwest::header::HeaderMap;
use rstest::rstest;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

const CSV: &str = "text/csv";
const JSON: &str = "application/json";
const NDJSON: &str = "application/x-ndjson";
const FEBRUARY: &str = "/data/pickup_month=2024-02";

/// A download.
struct Download {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Download {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    fn rows(&self) -> Vec<Value> {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&self.body)))
    }

    fn kind(&self) -> String {
        let body: Value = serde_json::from_slice(&self.body).unwrap();
        format!("{} {}", self.status, body["type"].as_str().unwrap().trim_start_matches("urn:refrain:problem:"))
    }
}

async fn started(server: &Server, path: &str, accept: &str) -> reqwest::Response {
    let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(60)).build().unwrap();
    client.get(format!("{}/pipelines/{path}", server.url())).header("accept", accept).send().await.unwrap()
}

async fn download(server: &Server, path: &str, accept: &str) -> Download {
    let answer = started(server, path, accept).await;
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    Download { status, headers, body: answer.bytes().await.unwrap().to_vec() }
}

fn define(place: &Place, name: &str, table: &str) {
    // Longer than the arguments of a process may be.
    let long = "#".repeat(200_000);
    let text = trips_pipeline(name, r#""raw/*.parquet""#, "", "");
    place
        .pipeline(name, &format!("{text}\nmean = \"avg(amount)\"\nlast = \"max(pickup)\"\n[table]\n{table}\n{long}\n"));
}

fn live(place: &Place, name: &str, file: &str) -> PathBuf {
    place.table(name).join("pickup_month=2024-02").join(file)
}

#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn the_same_rows_come_of_every_table_in_every_form(#[case] store: Store) {
    let place = Place::new(store).await;
    write_quarter(&place, 300);
    let tables = [
        ("trips", "row_group_rows = 50", "part-0.parquet", "application/vnd.apache.parquet"),
        ("plain", "format = \"csv\"", "part-0.csv", "text/csv; charset=utf-8; header=present"),
        ("gzip", "format = \"csv\"\ncompression = \"gzip\"", "part-0.csv.gz", "application/gzip"),
        ("zstd", "format = \"csv\"\ncompression = \"zstd\"", "part-0.csv.zst", "application/zstd"),
    ];
    for (name, table, ..) in tables {
        define(&place, name, table);
    }
    let server = place.start().await;
    let mut of_parquet = None;
    for (name, _, file, kind) in tables {
        server.run(name, &json!({"pipeline": name, "partitions": MONTHS})).await;
        let entry = server.partitions(name).await["pickup_month=2024-02"].clone();
        let path = format!("{name}{FEBRUARY}");
        let as_it_is = download(&server, &path, "*/*").await;
        assert_eq!(as_it_is.body, std::fs::read(live(&place, name, file)).unwrap(), "{name}");
        assert_eq!(as_it_is.headers["content-type"], kind);
        assert_eq!(as_it_is.headers["etag"], format!("\"{}\"", entry["sha256"].as_str().unwrap()));
        let csv = download(&server, &path, CSV).await.text().to_owned();
        let rows = download(&server, &path, JSON).await.rows();
        let lines: Vec<Value> = download(&server, &path, NDJSON).await.text().lines().map(read).collect();
        assert_eq!(lines, rows, "{name}");
        assert_eq!(rows.len() as u64, entry["rows"].as_u64().unwrap(), "{name}");
        let trips: i64 = rows.iter().map(|row| row["trips"].as_i64().unwrap()).sum();
        assert_eq!(entry["totals"]["trips"], trips, "{name}");
        assert!(rows.iter().all(|row| row["revenue"].is_string() && row["mean"].is_f64()), "{:?}", rows[0]);
        let first = rows[0].as_object().unwrap();
        assert!(first["pickup_hour"].as_str().unwrap().starts_with("2024-02-"), "{first:?}");
        // csv says the same: the header, and each row's values in its order.
        let header = csv.lines().next().unwrap();
        assert_eq!(header, "zone,pickup_hour,trips,revenue,mean,last", "{name}");
        let told = |row: &Value| {
            let value = |name: &str| row[name].as_str().map_or_else(|| row[name].to_string(), str::to_owned);
            header.split(',').map(value).collect::<Vec<_>>().join(",")
        };
        assert!(csv.lines().skip(1).eq(rows.iter().map(told)), "{name}");
        let expected = of_parquet.get_or_insert_with(|| (csv.clone(), rows.clone()));
        assert_eq!((&csv, &rows), (&expected.0, &expected.1), "{name} has what the Parquet table has");
        // 70 rows are of two row groups.
        let cut = download(&server, &format!("{path}?columns=revenue,zone&limit=70"), CSV).await;
        let some = |row: &Value| format!("{},{}", row["revenue"].as_str().unwrap(), row["zone"]);
        let expected: Vec<String> = rows.iter().take(70).map(some).collect();
        assert_eq!(cut.text().lines().skip(1).collect::<Vec<_>>(), expected, "{name}");
        assert_eq!(cut.text().lines().next(), Some("revenue,zone"));
        let unknown = download(&server, &format!("{path}?columns=zone,fare"), JSON).await;
        assert_eq!(unknown.kind(), "400 invalid-parameter", "{name}");
        let detail = read(unknown.text())["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains("fare") && detail.contains("pickup_hour"), "{detail}");
    }
}

fn read(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

/// A table whose one partition is too large for pipes and sockets to hold.
async fn large(place: &Place, flags: &[&str]) -> Server {
    let trips = super::month_of_trips("2024-02", 200_000);
    place.source("raw/a.parquet", super::trips_of(&trips, super::Shape::Wide));
    let text = trips_pipeline("rows", r#""raw/*.parquet""#, "", "");
    let text = text.replace("zone = \"zone\"", "zone = \"zone\"\npickup = \"pickup\"\namount = \"amount\"");
    place.pipeline("rows", &format!("{text}\nmean = \"avg(amount)\"\n"));
    let server = place.start_with(flags, &[("REFRAIN_TOKEN", "rfr_canary")]).await;
    server.run("rows", &json!({"pipeline": "rows", "partitions": ["2024-02"]})).await;
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_are_bounded_and_end_with_their_clients() {
    let place = Place::new(Store::Sqlite).await;
    let server = large(&place, &["--max-readers", "1"]).await;
    let path = format!("rows{FEBRUARY}");
    let whole = download(&server, &path, NDJSON).await;
    let mut reading = started(&server, &path, NDJSON).await;
    let first = reading.chunk().await.unwrap().unwrap();
    let readers = engines_of(&server);
    let said = std::fs::read_to_string(format!("/proc/{}/cmdline", readers[0].0)).unwrap();
    assert!(!told(&readers[0]).contains("canary"), "{}", told(&readers[0]));
    assert!(readers.len() == 1 && said.ends_with("\0extract\0"), "what is asked is not told to all: {said:?}");
    assert_eq!(download(&server, &path, NDJSON).await.kind(), "503 too-many-readers");
    assert_eq!(download(&server, &path, "*/*").await.status, 200, "the file as it is needs no reader");
    drop(reading);
    until("the reader of a client that is gone ends", || engines_of(&server).is_empty()).await;

    // What was opened is read to its end while a run replaces it.
    let mut reading = started(&server, &path, NDJSON).await;
    let mut body = reading.chunk().await.unwrap().unwrap().to_vec();
    assert!(body.starts_with(&first[..first.len().min(body.len())]));
    let trips = super::month_of_trips("2024-02", 50);
    place.source("raw/a.parquet", super::trips_of(&trips, super::Shape::Wide));
    server.run("again", &json!({"pipeline": "rows", "partitions": ["2024-02"]})).await;
    match rest(reading).await {
        Ok(more) => {
            body.extend_from_slice(&more);
            assert!(body == whole.body, "what was opened is read");
        }
        // It was given up while the run was at work, and told so.
        Err(_) => assert!(whole.body.starts_with(&body)),
    }
    assert!(download(&server, &path, NDJSON).await.body.len() < whole.body.len(), "now it is the new one");
    assert!(server.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_takes_nothing_is_given_up() {
    let place = Place::new(Store::Sqlite).await;
    let server = large(&place, &["--max-readers", "1", "--request-timeout-seconds", "1"]).await;
    let path = format!("rows{FEBRUARY}");
    let idle = started(&server, &path, NDJSON).await;
    until("the reader is given up", || engines_of(&server).is_empty()).await;
    assert_eq!(download(&server, &path, NDJSON).await.status, 200, "its place is free");
    assert!(rest(idle).await.is_err(), "what was cut short must not look whole");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_catalogs_file_is_given() {
    let place = Place::new(Store::Sqlite).await;
    write_quarter(&place, 50);
    define(&place, "trips", "");
    let server = place.start().await;
    server.run("k", &json!({"pipeline": "trips", "partitions": MONTHS})).await;
    let path = format!("trips{FEBRUARY}");
    let file = live(&place, "trips", "part-0.parquet");
    let good = std::fs::read(&file).unwrap();
    for forms in ["*/*", JSON] {
        assert_eq!(download(&server, &path, forms).await.status, 200);
        std::fs::write(&file, "torn").unwrap();
        assert_eq!(download(&server, &path, forms).await.kind(), "503 file-differs");
        std::fs::remove_file(&file).unwrap();
        assert_eq!(download(&server, &path, forms).await.kind(), "503 file-differs");
        let aside = place.path("aside");
        std::fs::write(&aside, &good).unwrap();
        std::os::unix::fs::symlink(&aside, &file).unwrap();
        assert_eq!(download(&server, &path, forms).await.kind(), "503 files-unavailable", "a link is not followed");
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, &good).unwrap();
        let (folder, elsewhere) = (file.parent().unwrap(), place.path("elsewhere"));
        std::fs::rename(folder, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, folder).unwrap();
        assert_eq!(download(&server, &path, forms).await.kind(), "503 files-unavailable", "nor one to a folder");
        std::fs::remove_file(folder).unwrap();
        std::fs::rename(&elsewhere, folder).unwrap();
        assert_eq!(download(&server, &path, forms).await.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_workers_gives_data_too() {
    let place = Place::new(Store::Postgres).await;
    write_quarter(&place, 50);
    define(&place, "trips", "");
    let serving = place.start_with(&["--workers", "0"], &[]).await;
    let path = format!("trips{FEBRUARY}");
    assert_eq!(download(&serving, &path, "*/*").await.kind(), "404 partition-not-found");
    let server = place.start().await;
    server.run("k", &json!({"pipeline": "trips", "partitions": MONTHS})).await;
    for form in ["*/*", CSV] {
        assert_eq!(download(&serving, &path, form).await.body, download(&server, &path, form).await.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_dies_leaves_nothing_that_looks_whole() {
    let place = Place::new(Store::Sqlite).await;
    let server = large(&place, &[]).await;
    let mut reading = started(&server, &format!("rows{FEBRUARY}"), NDJSON).await;
    assert!(reading.chunk().await.unwrap().is_some());
    let readers = engines_of(&server);
    assert_eq!(readers.len(), 1);
    readers[0].signal(rustix::process::Signal::KILL);
    assert!(rest(reading).await.is_err());
    assert!(server.log().contains("signal: 9"), "{}", server.log_tail());
}

/// What is left of a download; an error where it is not whole.
async fn rest(mut download: reqwest::Response) -> reqwest::Result<Vec<u8>> {
    let mut rest = Vec::new();
    while let Some(chunk) = download.chunk().await? {
        rest.extend_from_slice(&chunk);
    }
    Ok(rest)
}
