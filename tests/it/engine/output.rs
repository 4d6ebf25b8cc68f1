//! What tables are written as: csv that reads back as the same values, and Parquet as the pipeline says.

use super::bed::{Bed, Made};
use super::cells::{Cell, Dice, column};
use polars::prelude::{DataType as Physical, ParquetReader, SerReader, TimeUnit, TimeZone};
use refrain::run::Scope;
use std::fs::File;
use std::io::Read;

fn zoned() -> Physical {
    Physical::Datetime(TimeUnit::Microseconds, Some(TimeZone::opt_try_new(Some("UTC")).unwrap().unwrap()))
}

/// Each type of the contract, and how a file of its own has it.
fn types() -> Vec<(&'static str, Physical)> {
    vec![
        ("bool", Physical::Boolean),
        ("int8", Physical::Int8),
        ("int64", Physical::Int64),
        ("uint64", Physical::UInt64),
        ("float32", Physical::Float32),
        ("float64", Physical::Float64),
        ("decimal(9,2)", Physical::Decimal(9, 2)),
        ("decimal(38,10)", Physical::Decimal(38, 10)),
        ("string", Physical::String),
        ("date", Physical::Date),
        ("datetime", Physical::Datetime(TimeUnit::Microseconds, None)),
        ("datetime(America/New_York)", zoned()),
    ]
}

/// A table that keeps rows of all types; `p` is its partition.
fn rows_of(source: &str, p: &str, table: &str) -> String {
    let columns: String = types().iter().enumerate().map(|(at, (name, _))| format!("c{at} = \"{name}\"\n")).collect();
    let kept: String = (0..types().len()).map(|at| format!("c{at} = \"c{at}\"\n")).collect();
    format!(
        "name = \"t\"\nmax_rejected = 0.0\n[source]\n{source}\n[source.columns]\n{columns}p = {p}\n[partition]\np = {{ value_of = \"p\" }}\n\
         [columns]\n{kept}[table]\n{table}\n"
    )
}

fn text(made: &Made, partition: &str) -> String {
    String::from_utf8(made.bytes[partition].clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_csv_file_is_a_header_and_sorted_lines() {
    let bed = Bed::new();
    let rows: [[Cell; 12]; 3] = [
        [
            Cell::Bool(true),
            Cell::Exact(-128, 0),
            Cell::Exact(i64::MIN.into(), 0),
            Cell::Exact(u64::MAX.into(), 0),
            Cell::Float(0.1),
            Cell::Float(1e300),
            Cell::Exact(-5, 2),
            Cell::Exact(-1, 10),
            Cell::Text("a \"b\", c\r\nd".to_owned()),
            Cell::Date(-1),
            Cell::Time(-1),
            Cell::Time(-1_500_000),
        ],
        std::array::from_fn(|_| Cell::Null),
        [
            Cell::Bool(false),
            Cell::Exact(0, 0),
            Cell::Exact(7, 0),
            Cell::Exact(0, 0),
            Cell::Float(f64::NAN),
            Cell::Float(f64::NEG_INFINITY),
            Cell::Exact(100, 2),
            Cell::Exact(0, 10),
            Cell::Text(String::new()),
            Cell::Date(19_782),
            Cell::Time(1_709_210_096_000_000),
            Cell::Time(1_709_210_096_120_000),
        ],
    ];
    let mut columns: Vec<_> = (types().into_iter().enumerate())
        .map(|(at, (_, physical))| column(&format!("c{at}"), &physical, &rows.each_ref().map(|row| row[at].clone())))
        .collect();
    columns.push(column("p", &Physical::Int32, &[1, 1, 1].map(|p| Cell::Exact(p, 0))));
    bed.write("raw/a.parquet", columns);
    let definition = rows_of("format = \"parquet\"\npath = \"raw/a.parquet\"", "\"int32\"", "format = \"csv\"");
    let made = bed.made(&definition, &["1"]).await;
    assert_eq!(
        text(&made, "p=1"),
        "c0,c1,c2,c3,c4,c5,c6,c7,c8,c9,c10,c11\n\
         ,,,,,,,,,,,\n\
         false,0,7,0,NaN,-inf,1.00,0.0000000000,\"\",2024-02-29,2024-02-29T12:34:56,2024-02-29T12:34:56.120Z\n\
         true,-128,-9223372036854775808,18446744073709551615,0.1,1e300,-0.05,-0.0000000001,\"a \"\"b\"\", c\r\nd\",1969-12-31,\
         1969-12-31T23:59:59.999999,1969-12-31T23:59:58.500Z\n"
    );
}

/// A value of the type, or null; of texts those that readers of csv get wrong.
fn cell(dice: &mut Dice, physical: &Physical) -> Cell {
    if dice.one_in(6) {
        return Cell::Null;
    }
    const TEXTS: [&str; 14] =
        ["", "\"", "\"\"", ",", "\n", "\r\n", "\r", " x ", "null", "a,b", "é\"\n,", "'", "\\", "line\n\nline"];
    // From the year 1 to 9999.
    const DAYS: std::ops::Range<i64> = -719_162..2_932_896;
    let days = DAYS.start + i64::try_from(dice.below(usize::try_from(DAYS.end - DAYS.start).unwrap())).unwrap();
    let micros = days * 86_400_000_000 + i64::try_from(dice.below(86_400_000_000)).unwrap();
    let bits = dice.next();
    match physical {
        Physical::Boolean => Cell::Bool(bits.is_multiple_of(2)),
        Physical::Int8 => Cell::Exact(i128::from(bits as i8), 0),
        Physical::Int64 => Cell::Exact(i128::from(bits as i64), 0),
        Physical::UInt64 => Cell::Exact(bits.into(), 0),
        Physical::Float32 => Cell::Float(f64::from(f32::from_bits(bits as u32))),
        Physical::Float64 => Cell::Float(f64::from_bits(bits)),
        Physical::Decimal(9, 2) => Cell::Exact(dice.around(999_999_999), 2),
        Physical::Decimal(..) => Cell::Exact(dice.around(i64::MAX / 2) * 10i128.pow(18) + dice.around(1 << 40), 10),
        Physical::String => Cell::Text((0..dice.below(4)).map(|_| *dice.pick(&TEXTS)).collect()),
        Physical::Date => Cell::Date(i32::try_from(days).unwrap()),
        _ => Cell::Time(if dice.one_in(3) { micros - micros % 1_000_000 } else { micros }),
    }
}

fn write_random(bed: &Bed, rows: usize) {
    let mut dice = Dice(20_240_229);
    let cells = |dice: &mut Dice, physical: &Physical| (0..rows).map(|_| cell(dice, physical)).collect::<Vec<_>>();
    let mut columns: Vec<_> = (types().into_iter().enumerate())
        .map(|(at, (_, physical))| column(&format!("c{at}"), &physical, &cells(&mut dice, &physical)))
        .collect();
    let p: Vec<Cell> = (0..rows).map(|at| Cell::Exact((at % 2) as i128, 0)).collect();
    columns.push(column("p", &Physical::Int32, &p));
    bed.write("raw/a.parquet", columns);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_as_csv_reads_back_as_the_same_values() {
    let bed = Bed::new();
    write_random(&bed, 4_000);
    let parquet = "format = \"parquet\"\npath = \"raw/a.parquet\"";
    let direct = bed.made(&rows_of(parquet, "\"int32\"", ""), &["0", "1"]).await;
    for (compression, name) in [("none", "csv"), ("gzip", "csv.gz"), ("zstd", "csv.zst")] {
        let table = format!("format = \"csv\"\ncompression = \"{compression}\"");
        let made = bed.made(&rows_of(parquet, "\"int32\"", &table), &["0", "1"]).await;
        for (partition, bytes) in &made.bytes {
            let folder = bed.path(&format!("again-{compression}/{partition}"));
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(format!("part-0.{name}")), bytes).unwrap();
        }
        let source = format!("format = \"csv\"\npath = \"again-{compression}/*/*\"\ncsv = {{ quoted_nulls = false }}");
        let p = "{ type = \"int32\", folder = \"p\" }";
        let again = bed.made(&rows_of(&source, p, ""), &["0", "1"]).await;
        assert_eq!(again.digests(), direct.digests(), "{compression}: the same Parquet files as without the way round");
        assert_eq!(again.books(), direct.books(), "{compression}");
        // Where quoted texts can be null, empty ones are.
        let source = source.replace("quoted_nulls = false", "");
        let other = bed.made(&rows_of(&source, p, ""), &["0", "1"]).await;
        assert_ne!(other.digests(), direct.digests(), "{compression}");
    }
}

fn decoded(bytes: &[u8], compression: &str) -> Vec<u8> {
    let mut out = Vec::new();
    match compression {
        "gzip" => flate2::read::GzDecoder::new(bytes).read_to_end(&mut out).unwrap(),
        "zstd" => zstd::stream::read::Decoder::new(bytes).unwrap().read_to_end(&mut out).unwrap(),
        _ => return bytes.to_vec(),
    };
    out
}

#[tokio::test(flavor = "multi_thread")]
async fn however_much_memory_rows_had_the_bytes_are_the_same() {
    let bed = Bed::new();
    write_random(&bed, 12_000);
    let source = "format = \"parquet\"\npath = \"raw/a.parquet\"";
    let mut plain = Vec::new();
    for compression in ["none", "gzip", "zstd"] {
        let table = format!("format = \"csv\"\ncompression = \"{compression}\"");
        let definition = rows_of(source, "\"int32\"", &table);
        let mut digests = Vec::new();
        for sort_bytes in [1 << 30, 1 << 20] {
            let mut job = bed.job(&definition, Scope::Full);
            job.sort_bytes = sort_bytes;
            let (made, _) = Bed::compute(&bed.engine, job).await.unwrap();
            digests.push(made.digests());
            if sort_bytes == 1 << 30 {
                let bytes = &made.bytes["p=1"];
                if compression == "gzip" {
                    // No name, no time, no operating system.
                    assert_eq!(bytes[..10], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255]);
                }
                plain.push(decoded(bytes, compression));
            }
        }
        assert_eq!(digests[0], digests[1], "{compression}");
    }
    assert!(plain[0].len() > 1 << 19, "more than some blocks: {}", plain[0].len());
    assert!(plain.iter().all(|text| *text == plain[0]), "compressed text is the same text");
}

/// A line without anything is no row to readers.
#[tokio::test(flavor = "multi_thread")]
async fn a_null_that_is_alone_in_its_line_is_not_lost() {
    let bed = Bed::new();
    let of = |kind: &str| {
        format!(
            "name = \"t\"\n[source]\nformat = \"parquet\"\npath = \"raw/a.parquet\"\n[source.columns]\nn = \"int64\"\ns = \"string\"\n\
             p = \"int32\"\n[partition]\np = {{ value_of = \"p\" }}\n[columns]\nx = \"{kind}\"\n[table]\nformat = \"csv\"\n"
        )
    };
    bed.write(
        "raw/a.parquet",
        vec![
            column("n", &Physical::Int64, &[Cell::Null, Cell::Exact(5, 0)]),
            column("s", &Physical::String, &[Cell::Null, Cell::Text(String::new())]),
            column("p", &Physical::Int32, &[Cell::Exact(1, 0), Cell::Exact(1, 0)]),
        ],
    );
    assert_eq!(text(&bed.made(&of("n"), &["1"]).await, "p=1"), "x\n\"\"\n5\n");
    let error = bed.fails(&of("s"), &["1"]).await;
    assert_eq!((error.kind.as_str(), error.class.as_str()), ("value-not-written", "compute"));
    assert!(error.detail.contains("found a null in a csv table of one string column"), "{}", error.detail);
    assert!(error.detail.starts_with("partition p=1: column x: found a null"), "{}", error.detail);
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_are_written_as_csv_with_their_totals() {
    let bed = Bed::new();
    bed.write(
        "raw/a.parquet",
        vec![
            column("k", &Physical::String, &["b", "a", "b"].map(|k| Cell::Text(k.to_owned()))),
            column("amount", &Physical::Decimal(9, 2), &[150, -25, 1].map(|n| Cell::Exact(n, 2))),
        ],
    );
    let definition = |table: &str| {
        format!(
            "name = \"t\"\n[source]\nformat = \"parquet\"\npath = \"raw/a.parquet\"\n[source.columns]\nk = \"string\"\n\
             amount = \"decimal(9,2)\"\n[partition]\np = {{ value_of = \"k\" }}\n[dimensions]\nkind = \"upper(k)\"\n[measures]\n\
             events = \"count(*)\"\namount = \"sum(amount)\"\nmean = \"avg(amount)\"\n[table]\n{table}\n"
        )
    };
    let made = bed.made(&definition("format = \"csv\""), &["a", "b", "c"]).await;
    assert_eq!(text(&made, "p=b"), "kind,events,amount,mean\nB,2,1.51,0.755\n");
    assert_eq!(made.bytes.len(), 2, "no file where no row is");
    let parquet = bed.made(&definition(""), &["a", "b", "c"]).await;
    let totals = |made: &Made| made.report.partitions.iter().map(|p| (p.rows, p.totals.clone())).collect::<Vec<_>>();
    assert_eq!(totals(&made), totals(&parquet));
    assert_eq!(made.report.partitions[0].file.as_deref(), Some("00000.csv"));
}

#[tokio::test(flavor = "multi_thread")]
async fn parquet_is_compressed_and_cut_as_the_pipeline_says() {
    let bed = Bed::new();
    write_random(&bed, 1_000);
    let source = "format = \"parquet\"\npath = \"raw/a.parquet\"";
    let usual = bed.made(&rows_of(source, "\"int32\"", ""), &["0"]).await;
    let said = "format = \"parquet\"\ncompression = \"zstd\"\nrow_group_rows = 262144";
    assert_eq!(bed.made(&rows_of(source, "\"int32\"", said), &["0"]).await.digests(), usual.digests());
    let mut seen = vec![usual.digests()];
    for (table, codec, groups) in [
        ("compression = \"none\"", "Uncompressed", 1),
        ("compression = \"snappy\"", "Snappy", 1),
        ("compression = \"gzip\"", "Gzip", 1),
        ("compression = \"lz4\"", "Lz4Raw", 1),
        ("row_group_rows = 200", "Zstd", 3),
    ] {
        let definition = rows_of(source, "\"int32\"", table);
        let made = bed.made(&definition, &["0"]).await;
        assert_eq!(made.rows("p=0"), usual.rows("p=0"), "{table}");
        assert!(!seen.contains(&made.digests()), "{table}");
        seen.push(made.digests());
        let again = bed.made(&definition, &["0"]).await;
        assert_eq!(again.digests(), made.digests(), "{table}");
        let path = bed.path("written.parquet");
        std::fs::write(&path, &made.bytes["p=0"]).unwrap();
        let mut reader = ParquetReader::new(File::open(path).unwrap());
        let metadata = reader.get_metadata().unwrap();
        let compression = format!("{:?}", metadata.row_groups[0].parquet_columns()[0].compression());
        assert_eq!((compression.as_str(), metadata.row_groups.len()), (codec, groups), "{table}");
    }
}
