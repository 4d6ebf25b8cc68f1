//! Source files: made-up trips, written with the physical types that a test asks for.

use chrono::{NaiveDate, NaiveDateTime, TimeDelta};
use polars::prelude::{DataFrame, DataType, NamedFrom, ParquetWriter, Series, TimeUnit};
use std::collections::BTreeMap;
use std::path::Path;

/// A column of a source file.
pub(crate) use polars::prelude::Column;

/// One source row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trip {
    pub(crate) pickup: NaiveDateTime,
    pub(crate) zone: i32,
    pub(crate) cents: i64,
}

/// The physical types of a file of trips; the contract brings them together.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape {
    /// int64 zones, microseconds.
    Wide,
    /// int32 zones, milliseconds.
    Narrow,
    /// Zones as doubles, nanoseconds.
    Floating,
}

/// As many trips of a month (`2024-02`), always the same for the same month.
pub(crate) fn month_of_trips(month: &str, count: u32) -> Vec<Trip> {
    let first = NaiveDate::parse_from_str(&format!("{month}-01"), "%Y-%m-%d").unwrap().and_hms_opt(0, 0, 0).unwrap();
    let mut state: u64 = month.bytes().fold(count.into(), |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    let mut next = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut trip = || Trip {
        pickup: first + TimeDelta::seconds(i64::try_from(next(28 * 86_400)).unwrap()),
        zone: i32::try_from(next(9)).unwrap() + 1,
        cents: i64::try_from(next(10_000)).unwrap() - 500,
    };
    (0..count).map(|_| trip()).collect()
}

/// The columns of a file of trips.
pub(crate) fn trips_of(trips: &[Trip], shape: Shape) -> Vec<Column> {
    let micros: Vec<i64> = trips.iter().map(|t| t.pickup.and_utc().timestamp_micros()).collect();
    let zones: Vec<i32> = trips.iter().map(|t| t.zone).collect();
    let dollars: Vec<f64> = trips.iter().map(|t| t.cents as f64 / 100.0).collect();
    let (zone, unit) = match shape {
        Shape::Wide => (DataType::Int64, TimeUnit::Microseconds),
        Shape::Narrow => (DataType::Int32, TimeUnit::Milliseconds),
        Shape::Floating => (DataType::Float64, TimeUnit::Nanoseconds),
    };
    let pickup = Series::new("pickup".into(), micros).cast(&DataType::Datetime(TimeUnit::Microseconds, None)).unwrap();
    vec![
        pickup.cast(&DataType::Datetime(unit, None)).unwrap().into(),
        Series::new("zone".into(), zones).cast(&zone).unwrap().into(),
        Series::new("amount".into(), dollars).into(),
    ]
}

/// What each month's partition must hold: trips and revenue, as answers write them.
pub(crate) fn summed<'a>(trips: impl IntoIterator<Item = &'a Trip>) -> BTreeMap<String, (i64, String)> {
    let mut months: BTreeMap<String, (i64, i64)> = BTreeMap::new();
    for trip in trips {
        let month = months.entry(format!("pickup_month={}", trip.pickup.format("%Y-%m"))).or_default();
        *month = (month.0 + 1, month.1 + trip.cents);
    }
    let text =
        |cents: i64| format!("{}{}.{:02}", if cents < 0 { "-" } else { "" }, cents.abs() / 100, cents.abs() % 100);
    months.into_iter().map(|(month, (count, cents))| (month, (count, text(cents)))).collect()
}

/// Writes a Parquet file in several row groups.
pub(crate) fn write_parquet(path: &Path, columns: Vec<Column>) {
    let mut frame = DataFrame::new_infer_height(columns).unwrap();
    let file = std::fs::File::create(path).unwrap();
    ParquetWriter::new(file).with_row_group_size(Some(500)).finish(&mut frame).unwrap();
}
