//! Black-box tests: the real binary, started as an operator would, over both stores.

mod access;
mod backfill;
mod backup;
mod bad_input;
mod cancel;
mod cli;
mod connections;
mod crash;
mod data;
mod database;
mod edge;
mod files;
mod follow;
mod foreign;
mod full_disk;
mod idempotency;
mod keeping;
mod layout;
mod lineage;
mod memory;
mod mend;
mod merge;
mod names;
mod nets;
mod numbers;
mod options;
mod order;
mod output;
mod partitions;
mod place;
mod plan;
mod poison;
mod restoring;
mod server;
mod settings;
mod shutdown;
mod slow;
mod warehouse;
mod web;
mod webhooks;

pub(crate) use backup::Backup;
use files::{Column, Trip, summed, write_parquet};
pub(crate) use files::{Shape, month_of_trips, trips_of};
pub(crate) use place::Place;
use serde_json::Value;
use server::field_of;
pub(crate) use server::{Answer, Server};
use std::collections::BTreeMap;

/// Which database the service runs over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    /// The default, a file in the data folder.
    Sqlite,
    /// A database of the test's own in the cluster that `REFRAIN_TEST_DATABASE_URL` names.
    Postgres,
}

/// The months of [`write_quarter`].
const MONTHS: [&str; 3] = ["2024-01", "2024-02", "2024-03"];

/// Writes `raw/trips_2024-01.parquet` to `-03`, of three physical shapes, some late trips in the file of the month next
/// door; answers all the trips.
fn write_quarter(place: &Place, trips_per_month: u32) -> Vec<Trip> {
    let [mut january, mut february, mut march] = MONTHS.map(|month| month_of_trips(month, trips_per_month));
    let all = [january.clone(), february.clone(), march.clone()].concat();
    february.extend(january.drain(..7));
    february.extend(march.drain(..5));
    march.extend(february.drain(..3));
    for ((month, trips), shape) in
        MONTHS.iter().zip([january, february, march]).zip([Shape::Wide, Shape::Narrow, Shape::Floating])
    {
        place.source(&format!("raw/trips_{month}.parquet"), trips_of(&trips, shape));
    }
    all
}

/// Checks what a table lists against the trips that went in.
fn assert_totals(listed: &BTreeMap<String, Value>, expected: &BTreeMap<String, (i64, String)>) {
    let totals = |entry: &Value| {
        let totals = &entry["totals"];
        (totals["trips"].as_i64().unwrap(), totals["revenue"].as_str().unwrap().to_owned())
    };
    let listed: BTreeMap<_, _> = listed.iter().map(|(key, entry)| (key.clone(), totals(entry))).collect();
    assert_eq!(&listed, expected);
}

/// The trips pipeline: trips and revenue per zone and hour, by the month of the pickup.
pub(crate) fn trips_pipeline(name: &str, path: &str, source: &str, more: &str) -> String {
    format!(
        r#"
name = "{name}"
description = "Trips and revenue per zone and hour"
{more}

[source]
format = "parquet"
path = {path}
{source}

[source.columns]
pickup = "datetime"
zone = "int32"
amount = "decimal(18,2)"

[partition]
pickup_month = {{ month_of = "pickup" }}

[dimensions]
zone = "zone"
pickup_hour = {{ truncate = "pickup", to = "hour" }}

[measures]
trips = "count(*)"
revenue = "sum(amount)"
"#
    )
}
