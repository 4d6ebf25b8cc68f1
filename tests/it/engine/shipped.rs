//! The pipelines that ship, as they are, over made-up files of the shape that people download.

use super::bed::{Bed, Made};
use super::text::write;
use crate::service::{Place, Store};
use refrain::pipeline;
use std::fs;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("pipelines")
}

fn shipped(name: &str) -> String {
    fs::read_to_string(folder().join(format!("{name}.toml"))).unwrap()
}

/// A partition's rows, numbers and texts as they are read.
fn rows(made: &Made, partition: &str) -> Vec<String> {
    let plain = |cell: String| cell.trim_end_matches("e-0").trim_matches('\'').to_owned();
    made.rows(partition).into_iter().map(|row| row.into_iter().map(plain).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn each_loads_and_is_named_like_its_file_and_in_the_readme() {
    let readme = fs::read_to_string(folder().with_file_name("README.md")).unwrap();
    let mut names: Vec<String> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| {
            let file = entry.unwrap().file_name().into_string().unwrap();
            let name = file.strip_suffix(".toml").unwrap_or_else(|| panic!("{file} is no pipeline"));
            let definition = pipeline::parse(&shipped(name), &file).unwrap_or_else(|errors| panic!("{errors:?}"));
            assert_eq!(definition.name, name);
            assert!(readme.contains(&format!("[{name}](pipelines/{file})")), "the README does not name {name}");
            definition.name
        })
        .collect();
    names.sort();
    assert_eq!(
        names,
        ["github_events_by_type", "github_stars", "green_zone_hour", "zone_hour", "zone_hour_by_file"],
        "a new one needs a test of its own"
    );
}

const GREEN_2013: &str = "VendorID,lpep_pickup_datetime,Lpep_dropoff_datetime,Store_and_fwd_flag,RateCodeID,Pickup_longitude,\
    Pickup_latitude,Dropoff_longitude,Dropoff_latitude,Passenger_count,Trip_distance,Fare_amount,Extra,MTA_tax,Tip_amount,\
    Tolls_amount,Ehail_fee,Total_amount,Payment_type,Trip_type \n\r\n\
    2,2013-08-01 08:14:37,2013-08-01 09:09:06,N,1,0,0,0,0,1,.00,21.25,0,0,0,0,,21.25,2,,,\r\n\
    2,2013-08-01 08:59:59,2013-08-01 09:38:00,N,1,0,0,0,0,2,.00,74.5,0,0.5,0,0,,75,2,,,\r\n";
const GREEN_2015: &str = "VendorID,lpep_pickup_datetime,Lpep_dropoff_datetime,Store_and_fwd_flag,RateCodeID,Pickup_longitude,\
    Pickup_latitude,Dropoff_longitude,Dropoff_latitude,Passenger_count,Trip_distance,Fare_amount,Extra,MTA_tax,Tip_amount,\
    Tolls_amount,Ehail_fee,improvement_surcharge,Total_amount,Payment_type,Trip_type \r\n\
    2,2015-01-01 00:34:42,2015-01-01 00:38:34,N,1,-73.92,40.75,-73.91,40.76,1,.88,5,0.5,0.5,0,0,,0.3,6.3,2,1,,\r\n";
const GREEN_2016: &str = "VendorID,lpep_pickup_datetime,lpep_dropoff_datetime,store_and_fwd_flag,RatecodeID,PULocationID,\
    DOLocationID,passenger_count,trip_distance,fare_amount,extra,mta_tax,tip_amount,tolls_amount,ehail_fee,\
    improvement_surcharge,total_amount,payment_type,trip_type\n\r\n\
    2,2016-07-01 00:01:22,2016-07-01 00:38:57,N,1,7,41,1,7.14,28,0,0.5,5.76,0,,0.3,34.56,1,1,,\r\n";
const GREEN_2019: &str = "VendorID,lpep_pickup_datetime,lpep_dropoff_datetime,store_and_fwd_flag,RatecodeID,PULocationID,\
    DOLocationID,passenger_count,trip_distance,fare_amount,extra,mta_tax,tip_amount,tolls_amount,ehail_fee,\
    improvement_surcharge,total_amount,payment_type,trip_type,congestion_surcharge\r\n";

fn green_2019(at: &str, zone: u32, total: &str) -> String {
    format!("2,{at},{at},N,1,{zone},264,5,.00,3,0.5,0.5,0,0,,0.3,{total},2,1,\r\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn green_zone_hour_reads_the_csv_files_of_all_years() {
    let bed = Bed::new();
    let january = [
        green_2019("2018-12-31 23:59:59", 1, "1"),
        green_2019("2019-01-01 00:10:16", 97, "4.3"),
        green_2019("2019-01-01 00:59:00", 97, "-0.80"),
    ];
    // A late row, and one of a month whose file is not there.
    let february = [green_2019("2019-01-31 23:00:00", 97, "7"), green_2019("2009-01-01 00:00:00", 97, "9")];
    for (month, text) in [
        ("2013-08", GREEN_2013.to_owned()),
        ("2015-01", GREEN_2015.to_owned()),
        ("2016-07", GREEN_2016.to_owned()),
        ("2019-01", format!("{GREEN_2019}{}", january.concat())),
        ("2019-02", format!("{GREEN_2019}{}", february.concat())),
    ] {
        write(&bed, &format!("data/green_tripdata_{month}.csv"), &text);
    }
    let green = shipped("green_zone_hour");
    let made = bed.made(&green, &["2013-08", "2015-01", "2016-07", "2019-01"]).await;
    assert_eq!(made.books(), [9, 7, 2, 0, 0]);
    let hour = |day: &str, hour: u32| {
        let micros: chrono::NaiveDateTime = format!("{day}T{hour:02}:00:00").parse().unwrap();
        format!("time {}", micros.and_utc().timestamp_micros())
    };
    for (month, expected) in [
        ("2013-08", vec![format!("null {} 2 9625e-2", hour("2013-08-01", 8))]),
        ("2015-01", vec![format!("null {} 1 63e-1", hour("2015-01-01", 0))]),
        ("2016-07", vec![format!("7 {} 1 3456e-2", hour("2016-07-01", 0))]),
        (
            "2019-01",
            vec![format!("97 {} 2 35e-1", hour("2019-01-01", 0)), format!("97 {} 1 7", hour("2019-01-31", 23))],
        ),
    ] {
        assert_eq!(rows(&made, &format!("pickup_month={month}")), expected, "{month}");
    }
    let whole = bed.made(&green, &[]).await;
    assert_eq!(whole.digests().len(), 4, "no partition of a month without a file, and none of one without a row");
    assert_eq!(whole.digests(), made.digests());
}

/// One event as GH Archive writes it, its payload of a shape of its own.
fn event(id: u32, kind: &str, at: &str, repo: u32) -> String {
    let payload = if id.is_multiple_of(2) {
        "{\"commits\":[{\"message\":\"a\\\"}\"}],\"ref\":null}"
    } else {
        "{\"ref\":{\"id\":1.5}}"
    };
    format!(
        "{{\"id\":\"{id}\",\"type\":\"{kind}\",\"actor\":{{\"id\":1,\"login\":\"a\"}},\"repo\":{{\"id\":{repo},\"name\":\"r/{repo}\"}},\
         \"payload\":{payload},\"public\":true,\"created_at\":\"{at}\"}}\n"
    )
}

/// A day of GH Archive: in each hour a push, and at 07 stars too.
fn day(bed: &Bed) {
    for hour in 0..24 {
        let at = |minute: u32| format!("2015-01-01T{hour:02}:{minute:02}:59Z");
        let mut lines = event(hour, "PushEvent", &at(0), 1);
        if hour == 7 {
            for (id, minute, repo) in [(100, 1, 7), (101, 2, 7), (101, 2, 7), (102, 3, 6)] {
                lines += &event(id, "WatchEvent", &at(minute), repo);
            }
        }
        write(bed, &format!("data/2015-01-01-{hour}.json.gz"), &lines);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn github_events_by_type_counts_each_hour_from_its_file() {
    let bed = Bed::new();
    day(&bed);
    let events = shipped("github_events_by_type");
    let made = bed.made(&events, &["event_date=2015-01-01/hour=07", "event_date=2015-01-01/hour=23"]).await;
    assert_eq!(made.books(), [6, 6, 0, 0, 0]);
    assert_eq!(made.report.sources.len(), 2, "the files of other hours are not read");
    assert_eq!(rows(&made, "event_date=2015-01-01/hour=07"), ["PushEvent 1", "WatchEvent 4"]);
    assert_eq!(rows(&made, "event_date=2015-01-01/hour=23"), ["PushEvent 1"]);
    let whole = bed.made(&events, &[]).await;
    assert_eq!(whole.digests().len(), 24);
    let digest = |made: &Made| made.digests()["event_date=2015-01-01/hour=07"].clone();
    assert_eq!(digest(&whole), digest(&made));
    let error = bed.fails(&events, &["event_date=2015-01-02/hour=00"]).await;
    assert!(error.detail.contains("data/2015-01-02-0.json.gz does not exist"), "{}", error.detail);
}

/// As its file says how.
#[tokio::test(flavor = "multi_thread")]
async fn github_events_by_type_can_be_csv() {
    let bed = Bed::new();
    day(&bed);
    let events = shipped("github_events_by_type");
    let csv = events.replace("# [table]", "[table]").replace("# format = \"csv\"", "format = \"csv\"");
    let made = bed.made(&csv, &["event_date=2015-01-01/hour=07", "event_date=2015-01-01/hour=23"]).await;
    let text =
        |hour: &str| String::from_utf8(made.bytes[&format!("event_date=2015-01-01/hour={hour}")].clone()).unwrap();
    assert_eq!(text("07"), "event_type,events\nPushEvent,1\nWatchEvent,4\n");
    assert_eq!(text("23"), "event_type,events\nPushEvent,1\n");
    let parquet = bed.made(&events, &["event_date=2015-01-01/hour=07"]).await;
    assert_eq!(made.report.partitions[0].totals, parquet.report.partitions[0].totals);
}

#[tokio::test(flavor = "multi_thread")]
async fn github_stars_counts_each_event_once() {
    let bed = Bed::new();
    day(&bed);
    let stars = shipped("github_stars");
    let made = bed.made(&stars, &["2015-01-01"]).await;
    assert_eq!(made.books(), [28, 4, 0, 24, 0]);
    assert_eq!(rows(&made, "event_date=2015-01-01"), ["6 r/6 1", "7 r/7 2"]);
    fs::remove_file(bed.path("data/2015-01-01-13.json.gz")).unwrap();
    let error = bed.fails(&stars, &["2015-01-01"]).await;
    assert!(error.detail.contains("data/2015-01-01-13.json.gz does not exist"), "{}", error.detail);
}

/// What `refrain serve` and the demo do with the folder: it is loaded, though not one source file is there.
#[tokio::test(flavor = "multi_thread")]
async fn they_are_served_where_their_sources_are_absent() {
    let place = Place::new(Store::Sqlite).await;
    for entry in fs::read_dir(folder()).unwrap() {
        let name = entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned();
        place.pipeline(&name, &shipped(&name));
    }
    let server = place.start().await;
    let listed = server.get("/pipelines").await.json()["pipelines"].as_array().unwrap().clone();
    assert_eq!(listed.len(), fs::read_dir(folder()).unwrap().count());
    let ready = server.get("/readyz").await;
    assert_eq!((ready.status, &ready.json()["degraded"]), (200, &false.into()), "{ready:?}");
}
