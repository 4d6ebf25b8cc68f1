//! The made-up quarter, read back from its files.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use polars::prelude::*;
use refrain::sample::{self, MonthTotals, SampleFile};
use std::path::Path;

/// What a query finds per file and pickup month: buckets, trips, cents.
fn by_month(files: &[&Path]) -> Vec<(String, u64, u64, i64)> {
    let scans = files.iter().map(|file| {
        let scan =
            LazyFrame::scan_parquet(PlRefPath::try_from_path(file).unwrap(), ScanArgsParquet::default()).unwrap();
        scan.select([
            col("PULocationID"),
            col("tpep_pickup_datetime").dt().truncate(lit("1h")).alias("hour"),
            (col("total_amount") * lit(100.0)).round(0, RoundMode::HalfToEven).cast(DataType::Int64).alias("cents"),
        ])
    });
    let buckets = concat(scans.collect::<Vec<_>>(), UnionArgs::default())
        .unwrap()
        .group_by([col("PULocationID"), col("hour")])
        .agg([len().cast(DataType::UInt64).alias("trips"), col("cents").sum()]);
    let months = buckets
        .group_by([col("hour").dt().strftime("%Y-%m").alias("month")])
        .agg([len().cast(DataType::UInt64).alias("buckets"), col("trips").sum(), col("cents").sum()])
        .sort(["month"], SortMultipleOptions::default())
        .collect_with_engine(Engine::Streaming)
        .unwrap()
        .unwrap_single();
    let u64s = |name: &str| months.column(name).unwrap().u64().unwrap().clone();
    let (names, cents) = (months.column("month").unwrap(), months.column("cents").unwrap());
    (0..months.height())
        .map(|i| {
            let name = names.str().unwrap().get(i).unwrap().to_owned();
            let sum = cents.i64().unwrap().get(i).unwrap();
            (name, u64s("buckets").get(i).unwrap(), u64s("trips").get(i).unwrap(), sum)
        })
        .collect()
}

fn expected(months: &[MonthTotals]) -> Vec<(String, u64, u64, i64)> {
    months.iter().map(|m| (m.month.to_owned(), m.buckets, m.trips, m.cents)).collect()
}

fn paths(files: &[SampleFile]) -> Vec<&Path> {
    files.iter().map(|f| f.path.as_path()).collect()
}

#[test]
fn the_quarter_at_scale_1_has_exactly_the_totals_of_the_lesson() {
    let dir = tempfile::tempdir().unwrap();
    let files = sample::generate(dir.path(), 1.0, &mut |_| ()).unwrap();
    assert_eq!(files.iter().map(|f| f.rows).collect::<Vec<_>>(), [2_964_624, 3_007_526, 3_582_628]);

    let found = by_month(&paths(&files));
    let (quarter, outside): (Vec<_>, Vec<_>) = found.into_iter().partition(|m| m.0.starts_with("2024"));
    let lesson = [
        ("2024-01".to_owned(), 77_530, 2_964_617, 7_945_619_867),
        ("2024-02".to_owned(), 74_376, 3_007_533, 8_007_379_721),
        ("2024-03".to_owned(), 89_011, 3_582_607, 9_716_237_726),
    ];
    assert_eq!(quarter, lesson);
    assert_eq!(quarter, expected(&sample::contents(1.0).unwrap().months));
    assert_eq!(outside.iter().map(|m| m.2).sum::<u64>(), 21);
    assert_eq!(outside.iter().map(|m| m.0.as_str()).collect::<Vec<_>>(), ["2002-12", "2008-12", "2009-01", "2023-06"]);

    let february = by_month(&[&files[1].path]);
    let in_february: Vec<_> = february.iter().map(|m| (m.0.as_str(), m.1, m.2)).collect();
    assert_eq!(in_february[2..], [("2024-01", 10, 11), ("2024-02", 74_376, 3_007_511), ("2024-03", 2, 2)]);
}

#[test]
fn a_small_quarter_is_in_proportion_and_keeps_its_strays() {
    let dir = tempfile::tempdir().unwrap();
    let contents = sample::contents(0.01).unwrap();
    let files = sample::generate(dir.path(), 0.01, &mut |_| ()).unwrap();
    assert_eq!(contents.months[1].trips, 30_075);
    assert_eq!(by_month(&paths(&files))[4..], expected(&contents.months));
    for (i, file) in files.iter().enumerate() {
        assert_eq!(file.rows, contents.file_rows[i]);
        let own = by_month(&[&file.path]).into_iter().find(|m| m.0 == contents.own_files[i].month).unwrap();
        assert_eq!(vec![own], expected(&contents.own_files[i..=i]));
    }
}

#[test]
fn the_columns_are_those_of_the_commission() {
    let dir = tempfile::tempdir().unwrap();
    let files = sample::generate(dir.path(), 0.01, &mut |_| ()).unwrap();
    let frame = ParquetReader::new(std::fs::File::open(&files[2].path).unwrap()).finish().unwrap();
    let micros = DataType::Datetime(TimeUnit::Microseconds, None);
    let (int, long, double) = (DataType::Int32, DataType::Int64, DataType::Float64);
    let schema: Vec<(&str, DataType)> = vec![
        ("VendorID", int.clone()),
        ("tpep_pickup_datetime", micros.clone()),
        ("tpep_dropoff_datetime", micros),
        ("passenger_count", long.clone()),
        ("trip_distance", double.clone()),
        ("RatecodeID", long.clone()),
        ("store_and_fwd_flag", DataType::String),
        ("PULocationID", int.clone()),
        ("DOLocationID", int),
        ("payment_type", long),
        ("fare_amount", double.clone()),
        ("extra", double.clone()),
        ("mta_tax", double.clone()),
        ("tip_amount", double.clone()),
        ("tolls_amount", double.clone()),
        ("improvement_surcharge", double.clone()),
        ("total_amount", double.clone()),
        ("congestion_surcharge", double.clone()),
        ("Airport_fee", double),
    ];
    let found: Vec<_> = frame.columns().iter().map(|c| (c.name().as_str(), c.dtype().clone())).collect();
    assert_eq!(found, schema);

    let nulls = |name: &str| frame.column(name).unwrap().null_count();
    let unknown = nulls("passenger_count");
    assert!(unknown * 100 / frame.height() >= 3, "{unknown} nulls");
    for name in ["RatecodeID", "store_and_fwd_flag", "congestion_surcharge", "Airport_fee"] {
        assert_eq!(nulls(name), unknown, "{name}");
    }
    assert_eq!(nulls("total_amount") + nulls("PULocationID") + nulls("tpep_pickup_datetime"), 0);
}
