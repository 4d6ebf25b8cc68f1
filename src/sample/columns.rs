//! Trips as columns of a Parquet file, written one row group at a time.

use super::SampleError;
use super::trips::PricedTrip;
use polars::io::parquet::write::BatchedWriter;
use polars::prelude::{
    Column, DataFrame, Int64Chunked, IntoSeries, NamedFrom, NamedFromOwned, ParquetCompression, ParquetWriter,
    PolarsError, PolarsResult, Series, TimeUnit,
};
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

/// Rows of a row group, as in the commission's files.
const ROW_GROUP: usize = 1 << 20;

/// Writes trips into a file.
pub(super) struct FileWriter {
    path: PathBuf,
    writer: BatchedWriter<BufWriter<File>>,
    columns: Columns,
    written: u64,
    expected: u64,
}

impl FileWriter {
    /// A writer for so many rows. `path` is for messages.
    pub(super) fn new(file: File, path: &Path, rows: u64) -> Result<Self, SampleError> {
        let started = Columns::default().into_frame().and_then(|empty| {
            ParquetWriter::new(BufWriter::with_capacity(1 << 20, file))
                .with_compression(ParquetCompression::Zstd(None))
                .batched(empty.schema())
        });
        let writer = started.map_err(parquet_error(path))?;
        let columns = Columns::with_capacity(rows);
        Ok(Self { path: path.to_owned(), writer, columns, written: 0, expected: rows })
    }

    /// Takes a trip; true where that ended a row group.
    pub(super) fn push(&mut self, trip: &PricedTrip) -> Result<bool, SampleError> {
        self.columns.push(trip);
        let full = self.columns.vendor.len() == ROW_GROUP;
        if full {
            self.flush()?;
        }
        Ok(full)
    }

    /// Rows written so far.
    pub(super) fn rows(&self) -> u64 {
        self.written
    }

    /// Writes the rest and the end of the file; gives its rows and bytes.
    pub(super) fn finish(mut self) -> Result<(u64, u64), SampleError> {
        self.flush()?;
        let bytes = self.writer.finish().map_err(parquet_error(&self.path))?;
        Ok((self.written, bytes))
    }

    fn flush(&mut self) -> Result<(), SampleError> {
        let rows = self.columns.vendor.len() as u64;
        self.written += rows;
        let frame = std::mem::take(&mut self.columns).into_frame();
        let written = frame.and_then(|frame| self.writer.write_batch(&frame));
        self.columns = Columns::with_capacity(self.expected.saturating_sub(self.written));
        written.map_err(parquet_error(&self.path))
    }
}

fn parquet_error(path: &Path) -> impl FnOnce(PolarsError) -> SampleError {
    let path = path.to_owned();
    move |source| SampleError::Parquet { path, source }
}

#[derive(Default)]
struct Columns {
    vendor: Vec<i32>,
    pickup: Vec<i64>,
    dropoff: Vec<i64>,
    passengers: Vec<Option<i64>>,
    distance: Vec<f64>,
    rate_code: Vec<Option<i64>>,
    stored: Vec<Option<&'static str>>,
    from: Vec<i32>,
    to: Vec<i32>,
    payment: Vec<i64>,
    fare: Vec<f64>,
    extra: Vec<f64>,
    mta_tax: Vec<f64>,
    tip: Vec<f64>,
    tolls: Vec<f64>,
    improvement: Vec<f64>,
    total: Vec<f64>,
    congestion: Vec<Option<f64>>,
    airport_fee: Vec<Option<f64>>,
}

impl Columns {
    fn with_capacity(rows: u64) -> Self {
        let rows = (rows as usize).min(ROW_GROUP);
        Self {
            vendor: Vec::with_capacity(rows),
            pickup: Vec::with_capacity(rows),
            dropoff: Vec::with_capacity(rows),
            passengers: Vec::with_capacity(rows),
            distance: Vec::with_capacity(rows),
            rate_code: Vec::with_capacity(rows),
            stored: Vec::with_capacity(rows),
            from: Vec::with_capacity(rows),
            to: Vec::with_capacity(rows),
            payment: Vec::with_capacity(rows),
            fare: Vec::with_capacity(rows),
            extra: Vec::with_capacity(rows),
            mta_tax: Vec::with_capacity(rows),
            tip: Vec::with_capacity(rows),
            tolls: Vec::with_capacity(rows),
            improvement: Vec::with_capacity(rows),
            total: Vec::with_capacity(rows),
            congestion: Vec::with_capacity(rows),
            airport_fee: Vec::with_capacity(rows),
        }
    }

    fn push(&mut self, t: &PricedTrip) {
        let known = t.passengers.is_some();
        self.vendor.push(t.vendor);
        self.pickup.push(t.pickup * 1_000_000);
        self.dropoff.push(t.dropoff * 1_000_000);
        self.passengers.push(t.passengers);
        self.distance.push(f64::from(t.distance) / 100.0);
        self.rate_code.push(known.then_some(t.rate_code));
        self.stored.push(known.then_some(if t.stored { "Y" } else { "N" }));
        self.from.push(t.from);
        self.to.push(t.to);
        self.payment.push(t.payment);
        self.fare.push(dollars(t.fare));
        self.extra.push(dollars(t.extra));
        self.mta_tax.push(dollars(t.mta_tax));
        self.tip.push(dollars(t.tip));
        self.tolls.push(dollars(t.tolls));
        self.improvement.push(dollars(t.improvement));
        self.total.push(dollars(t.total()));
        self.congestion.push(known.then_some(dollars(t.congestion)));
        self.airport_fee.push(known.then_some(dollars(t.airport_fee)));
    }

    fn into_frame(self) -> PolarsResult<DataFrame> {
        let time = |name: &str, micros: Vec<i64>| {
            Int64Chunked::from_vec(name.into(), micros).into_datetime(TimeUnit::Microseconds, None).into_series()
        };
        let series = vec![
            Series::from_vec("VendorID".into(), self.vendor),
            time("tpep_pickup_datetime", self.pickup),
            time("tpep_dropoff_datetime", self.dropoff),
            Series::new("passenger_count".into(), self.passengers),
            Series::from_vec("trip_distance".into(), self.distance),
            Series::new("RatecodeID".into(), self.rate_code),
            Series::new("store_and_fwd_flag".into(), self.stored),
            Series::from_vec("PULocationID".into(), self.from),
            Series::from_vec("DOLocationID".into(), self.to),
            Series::from_vec("payment_type".into(), self.payment),
            Series::from_vec("fare_amount".into(), self.fare),
            Series::from_vec("extra".into(), self.extra),
            Series::from_vec("mta_tax".into(), self.mta_tax),
            Series::from_vec("tip_amount".into(), self.tip),
            Series::from_vec("tolls_amount".into(), self.tolls),
            Series::from_vec("improvement_surcharge".into(), self.improvement),
            Series::from_vec("total_amount".into(), self.total),
            Series::new("congestion_surcharge".into(), self.congestion),
            Series::new("Airport_fee".into(), self.airport_fee),
        ];
        DataFrame::new_infer_height(series.into_iter().map(Column::from).collect())
    }
}

/// The double nearest to an amount in cents.
fn dollars(cents: i64) -> f64 {
    cents as f64 / 100.0
}
