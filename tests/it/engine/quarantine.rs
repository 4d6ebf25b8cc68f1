//! Rows kept apart: which, in what order, and what is said of them.

use super::bed::{Bed, Layout};
use super::text::{definition, write};
use polars::prelude::{Column, DataFrame, DataType, NamedFrom, ParquetReader, SerReader, Series, TimeUnit};
use refrain::engine::{Engine, EngineError, Job};
use refrain::run::{Progress, Quarantine, RunError, Stage};
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// What a job kept apart, and why it failed if it did.
struct Kept {
    record: Option<Quarantine>,
    /// `reason | detail | partition | file:line | text | fields`, `-` for null.
    rows: Vec<String>,
    failed: Option<RunError>,
    taken_over: u64,
}

impl Kept {
    async fn of(bed: &Bed, job: Job) -> Self {
        let staging = job.staging.clone();
        let (progress, told) = watch::channel(Progress::at(Stage::Claimed));
        let (record, failed) = match bed.engine.compute(job, progress, CancellationToken::new()).await {
            Ok(report) => (report.quarantine, None),
            Err(EngineError::Rejected { error, quarantine }) => (Some(*quarantine), Some(error)),
            Err(other) => panic!("{other:?}"),
        };
        let rows = record.iter().flat_map(|record| {
            let bytes = std::fs::read(staging.join(&record.path)).unwrap();
            let digest: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!((bytes.len() as u64, &digest), (record.bytes, &record.sha256));
            let rows = rows(&ParquetReader::new(std::io::Cursor::new(bytes)).finish().unwrap());
            assert_eq!(rows.len() as u64, record.rows);
            rows
        });
        let rows = rows.collect();
        let taken_over = told.borrow().partitions_taken_over;
        Self { record, rows, failed, taken_over }
    }

    /// Rows of the file, and rows that there were.
    fn counts(&self) -> (u64, u64) {
        self.record.as_ref().map_or((0, 0), |record| (record.rows, record.of))
    }
}

fn rows(frame: &DataFrame) -> Vec<String> {
    let names: Vec<&str> = frame.get_column_names().into_iter().map(|name| name.as_str()).collect();
    assert_eq!(names[..6], ["reason", "detail", "partition", "source_file", "source_line", "source_text"]);
    let text = |column: &Column, at: usize| match column.dtype() {
        DataType::Int64 => column.i64().unwrap().get(at).unwrap().to_string(),
        _ => column.str().unwrap().get(at).unwrap_or("-").to_owned(),
    };
    let row = |at: usize| {
        let cells: Vec<String> = frame.columns().iter().map(|column| text(column, at)).collect();
        let [reason, detail, partition, file, line, text] = &cells[..6] else { unreachable!() };
        format!("{reason} | {detail} | {partition} | {file}:{line} | {text} | {}", cells[6..].join(" "))
    };
    (0..frame.height()).map(row).collect()
}

const COLUMNS: &str = "at = \"datetime\"\nzone = \"int32 not null\"\nfare = \"decimal(9,2)\"\n";
const TABLE: &str =
    "[partition]\nmonth = { month_of = \"at\" }\n[measures]\nn = \"count(*)\"\n[where]\nsql = \"fare >= 0\"\n";
const ALL: &str = "[quarantine]\nrows = [\"rejected\", \"filtered\", \"strays\"]\n";

const CSV: &str = "at,zone,fare\n\
                   2024-01-01 00:00:00,1,1.00\n\
                   2024-01-01 00:00:00, x ,1.00\n\
                   2024-01-32 00:00:00,1,1.00\n\
                   2024-01-01 00:00:00,,1.00\n\
                   ,2,\"1,5\"\n\
                   2024-01-02 00:00:00,3\n\
                   2024-01-01 00:00:00,\"4\nfive,1.00\n\
                   2024-01-01 00:00:00,5,-0.01\n\
                   2024-02-01 00:00:00,6,6.0\n\
                   2024-01-31 00:00:00,7,nan\n";

#[tokio::test(flavor = "multi_thread")]
async fn csv_rows_are_told_as_they_stand_in_the_file() {
    let bed = Bed::new();
    write(&bed, "a.csv.gz", CSV);
    let lax = definition("csv", "a.csv.gz", COLUMNS, &format!("{TABLE}{ALL}")).replace("0.5", "1");
    let kept = Kept::of(&bed, bed.job_over(&lax, &["2024-01"])).await;
    let day = "2024-01-01 00:00:00";
    let expected = [
        format!("rejected | column zone: \"x\" does not fit, expected int32 | month=2024-01 | a.csv.gz:3 | - | {day}  x  1.00"),
        "rejected | column at: \"2024-01-32 00:00:00\" does not fit, expected datetime | - | a.csv.gz:4 | - | \
         2024-01-32 00:00:00 1 1.00".to_owned(),
        format!(
            "rejected | column zone: found \"\", expected int32 not null | month=2024-01 | a.csv.gz:5 | - | {day}  1.00"
        ),
        "rejected | column fare: \"1,5\" does not fit, expected decimal(9,2); column at: found \"\", expected what has a value of \
         partition column month | - | a.csv.gz:6 | - |  2 1,5".to_owned(),
        "rejected | the line has 2 fields, the header has 3 | - | a.csv.gz:7 | 2024-01-02 00:00:00,3 | - - -".to_owned(),
        format!("rejected | the line has a quote in field 2 that is not closed | - | a.csv.gz:8 | {day},\"4 | - - -"),
        "rejected | the line has 2 fields, the header has 3 | - | a.csv.gz:9 | five,1.00 | - - -".to_owned(),
        format!("filtered | where is not true for it | month=2024-01 | a.csv.gz:10 | - | {day} 5 -0.01"),
        "stray | the run does not make its partition | month=2024-02 | a.csv.gz:11 | - | 2024-02-01 00:00:00 6 6.0".to_owned(),
        "rejected | column fare: \"nan\" does not fit, expected decimal(9,2) | month=2024-01 | a.csv.gz:12 | - | \
         2024-01-31 00:00:00 7 nan".to_owned(),
    ];
    assert_eq!(kept.rows, expected);
    assert_eq!(kept.counts(), (10, 10));

    // Without a word about it the rejected ones alone, and of them the first ones, or none.
    let usual = lax.replace(ALL, "");
    let kept = Kept::of(&bed, bed.job_over(&usual, &["2024-01"])).await;
    let rejected: Vec<String> = expected.into_iter().filter(|row| row.starts_with("rejected")).collect();
    assert_eq!((&kept.rows, kept.counts()), (&rejected, (8, 8)));
    let kept = Kept::of(&bed, bed.job_over(&format!("{usual}[quarantine]\nmax_rows = 3\n"), &["2024-01"])).await;
    assert_eq!((&kept.rows[..], kept.counts()), (&rejected[..3], (3, 8)));
    let kept = Kept::of(&bed, bed.job_over(&format!("{usual}[quarantine]\nmax_rows = 0\n"), &["2024-01"])).await;
    assert_eq!(kept.record, None);
    let good = usual.replace("a.csv.gz", "b.csv");
    write(&bed, "b.csv", CSV.split_inclusive('\n').take(2).collect::<String>().as_str());
    assert_eq!(Kept::of(&bed, bed.job_over(&good, &["2024-01"])).await.record, None, "there are none");
}

#[tokio::test(flavor = "multi_thread")]
async fn ndjson_rows_are_told_as_they_stand_in_the_file() {
    let bed = Bed::new();
    let long = "ä".repeat(3000);
    let lines = format!(
        r#"{{"at": "2024-01-01", "zone": 1, "fare": {{"x": [1]}}}}
{{"at": "2024-01-01", "zone": null, "fare": 1}}
{{"at": "2024-01-01", "zone": "1", "fare": 1e0}}
["{long}"]

{{"at": "a\"b", "zone": 1}}
{{"at": "2024-01-01", "zone": 1, "fare": -1}}
"#
    );
    write(&bed, "shop=a/a.json", &lines);
    let columns = format!("{COLUMNS}shop = {{ type = \"string\", folder = \"shop\" }}\n");
    let lax = definition("ndjson", "shop=a/a.json", &columns, &format!("{TABLE}{ALL}")).replace("0.5", "1");
    let kept = Kept::of(&bed, bed.job_over(&lax, &["2024-01"])).await;
    let expected = [
        "rejected | column fare: an object, expected decimal(9,2) | month=2024-01 | shop=a/a.json:1 | - | 2024-01-01 1 {\"x\": [1]} a",
        "rejected | column zone: found null, expected int32 not null | month=2024-01 | shop=a/a.json:2 | - | 2024-01-01 - 1 a",
        "rejected | column zone: \"1\" is a text, expected int32 | month=2024-01 | shop=a/a.json:3 | - | 2024-01-01 1 1e0 a",
    ];
    assert_eq!(kept.rows[..3], expected);
    assert!(kept.rows[3].starts_with("rejected | the line is no JSON object: "), "{}", kept.rows[3]);
    // Four kibibytes of a line, and no half character.
    let start = format!("| - | shop=a/a.json:4 | [\"{}… | - - - a", "ä".repeat((4096 - 2) / 2));
    assert!(kept.rows[3].ends_with(&start), "{}", kept.rows[3]);
    let expected = [
        r#"rejected | column at: "a\"b" does not fit, expected datetime | - | shop=a/a.json:6 | - | a"b 1 - a"#,
        "filtered | where is not true for it | month=2024-01 | shop=a/a.json:7 | - | 2024-01-01 1 -1 a",
    ];
    assert_eq!(kept.rows[4..], expected);
}

fn trips(times: &[Option<i64>], zones: &[Option<f64>], notes: &[Option<&str>]) -> Vec<Column> {
    let times = Series::new("at".into(), times).cast(&DataType::Datetime(TimeUnit::Milliseconds, None)).unwrap();
    vec![times.into(), Series::new("zone".into(), zones).into(), Series::new("reason".into(), notes).into()]
}

#[tokio::test(flavor = "multi_thread")]
async fn parquet_rows_have_their_numbers_and_values() {
    let bed = Bed::new();
    let (january, february) = (1_704_067_200_000, 1_706_745_600_500);
    let times = [Some(january), Some(january), Some(i64::MAX), None, Some(february), Some(january), Some(january)];
    let zones = [Some(1.0), Some(1.5), Some(2.0), Some(3.0), Some(4.0), None, Some(1e300)];
    let notes = [None, Some("a"), None, None, Some("é"), Some("b"), None];
    // Row groups of two, of which the first reading leaves out those of other months.
    bed.write_as("a.parquet", trips(&times, &zones, &notes), Layout { row_group: 2, statistics: true });
    bed.write_as(
        "b.parquet",
        trips(&[Some(february); 4], &[Some(1.0); 4], &[None; 4]),
        Layout { row_group: 2, statistics: true },
    );
    let columns = "at = \"datetime\"\nzone = \"int32 not null\"\nreason = \"string\"\n";
    let table = "[partition]\nmonth = { month_of = \"at\" }\n[measures]\nn = \"count(*)\"\n";
    let lax = definition("parquet", "*.parquet", columns, &format!("{table}{ALL}")).replace("0.5", "1");
    let kept = Kept::of(&bed, bed.job_over(&lax, &["2024-01"])).await;
    let said = "2024-02-01 00:00:00.500";
    let mut expected = vec![
        "rejected | column zone: found 1.5 (float64), expected int32 not null | month=2024-01 | a.parquet:2 | - | \
         2024-01-01 00:00:00 1.5 a".to_owned(),
        "rejected | column at: found 9223372036854775807 milliseconds since 1970-01-01 (datetime), expected datetime | - | \
         a.parquet:3 | - | 9223372036854775807 milliseconds since 1970-01-01 2.0 -".to_owned(),
        "rejected | column at: found null, expected what has a value of partition column month | - | a.parquet:4 | - | - 3.0 -"
            .to_owned(),
        format!("stray | the run does not make its partition | month=2024-02 | a.parquet:5 | - | {said} 4.0 é"),
        "rejected | column zone: found null, expected int32 not null | month=2024-01 | a.parquet:6 | - | 2024-01-01 00:00:00 - b"
            .to_owned(),
        "rejected | column zone: found 1e300 (float64), expected int32 not null | month=2024-01 | a.parquet:7 | - | \
         2024-01-01 00:00:00 1e300 -".to_owned(),
    ];
    expected.extend((1..=4).map(|line| {
        format!("stray | the run does not make its partition | month=2024-02 | b.parquet:{line} | - | {said} 1.0 -")
    }));
    assert_eq!((&kept.rows, kept.counts()), (&expected, (10, 10)));
}

/// A file for each day with rows of the days around it, some of them wrong, in slices and at once: the same rows; and a later
/// attempt takes them over.
#[tokio::test(flavor = "multi_thread")]
async fn slices_and_their_checkpoints_bring_the_same_rows() {
    let bed = Bed::new();
    for day in 1..=20 {
        let row = |of: i64, zone: &str, fare: &str| format!("2024-01-{:02} 00:00:00,{zone},{fare}\n", of.clamp(1, 31));
        let mut text = "at,zone,fare\n".to_owned();
        for of in day - 2..=day + 2 {
            text += &row(of, "1", "1");
        }
        text += &[row(day, "x", "1"), row(day + 1, "y", "1"), row(day, "1", "-1"), ",1,1\n".to_owned()].concat();
        write(&bed, &format!("raw/2024-01-{day:02}.csv"), &text);
    }
    let named: Vec<String> = (3..=18).map(|day| format!("2024-01-{day:02}")).collect();
    let named: Vec<&str> = named.iter().map(String::as_str).collect();
    let table = TABLE.replace("month_of", "day_of");
    for (rule, neighbours, rows, slices) in
        [("", 0, 32, 16), (ALL, 0, 128, 16), (ALL, 1, 114, 2), ("[quarantine]\nmax_rows = 31\n", 0, 31, 16)]
    {
        let text = definition("csv", "raw/%Y-%m-%d.csv", COLUMNS, &format!("{table}{rule}")).replace("0.5", "1");
        let text = text.replace("[source.columns]", &format!("neighbours = {neighbours}\n[source.columns]"));
        let what = format!("{rule:?} {neighbours}");
        let whole = Kept::of(&bed, bed.job_over(&text, &named)).await;
        assert_eq!(whole.rows.len(), rows, "{what}: {:#?}", whole.rows);
        let sliced = || {
            let checkpoints = bed.path(&format!("slices {what}"));
            Job { slice_source_bytes: 0, checkpoints, ..bed.job_over(&text, &named) }
        };
        for taken_over in [0, 16] {
            let parts = Kept::of(&bed, sliced()).await;
            assert_eq!((&parts.rows, &parts.record), (&whole.rows, &whole.record), "{what}, {taken_over} taken over");
            assert_eq!(parts.taken_over, taken_over, "{what}");
        }
        let records = std::fs::read_dir(bed.path(&format!("slices {what}"))).unwrap();
        let is_record = |entry: &std::fs::DirEntry| entry.path().extension().is_some_and(|e| e == "json");
        assert!(records.filter(|entry| is_record(entry.as_ref().unwrap())).count() >= slices, "{what}");
    }
}

/// In as many batches as there are, whatever the order in which they are read.
#[tokio::test(flavor = "multi_thread")]
async fn many_rows_are_the_first_ones_in_order() {
    let bed = Bed::new();
    for file in 0..4 {
        let line = |row: usize| match row % 1000 {
            7 => format!("2024-01-01 00:00:00,bad {row},1\n"),
            _ => format!("2024-01-01 00:00:00,{row},1\n"),
        };
        let text: String = (0..100_000).map(line).collect();
        write(&bed, &format!("{file}.csv"), &format!("at,zone,fare\n{text}"));
    }
    let text = definition("csv", "*.csv", COLUMNS, &format!("{TABLE}[quarantine]\nmax_rows = 250\n"));
    let kept = Kept::of(&bed, bed.job_over(&text, &["2024-01"])).await;
    assert_eq!(kept.counts(), (250, 400));
    let place = |at: usize| {
        format!("| {}.csv:{} | - | 2024-01-01 00:00:00 bad {}", at / 100, at % 100 * 1000 + 9, at % 100 * 1000 + 7)
    };
    for (at, row) in kept.rows.iter().enumerate() {
        assert!(row.contains(&place(at)), "{at}: {row}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_fails_of_them_has_them_too() {
    let bed = Bed::new();
    for (day, bad) in [(1, 1), (2, 3), (3, 1)] {
        let good = (bad..4).map(|_| format!("2024-01-0{day} 00:00:00,1,1\n"));
        let bad = (0..bad).map(|_| format!("2024-01-0{day} 00:00:00,x,1\n"));
        let text: String = good.chain(bad).collect();
        write(&bed, &format!("raw/2024-01-0{day}.csv"), &format!("at,zone,fare\n{text}"));
    }
    let text = definition("csv", "raw/%Y-%m-%d.csv", COLUMNS, &TABLE.replace("month_of", "day_of"));
    let all = ["2024-01-01", "2024-01-02", "2024-01-03"];
    // At once, and in slices up to the one that fails.
    for (slice_source_bytes, counts) in [(u64::MAX, (5, 5)), (0, (4, 4))] {
        let kept = Kept::of(&bed, Job { slice_source_bytes, ..bed.job_over(&text, &all) }).await;
        assert_eq!(kept.failed.as_ref().unwrap().kind, "too-many-rejected");
        assert_eq!(kept.counts(), counts, "{:#?}", kept.rows);
        assert!(kept.rows[3].contains("raw/2024-01-02.csv:5"), "{:#?}", kept.rows);
    }
}
