//! Text files as sources: the same books and bytes as from Parquet, and what is wrong with one line costs its row.

use super::bed::{Bed, Made};
use polars::prelude::{NamedFrom, Series};
use std::io::Write;
use std::process::{Command, Stdio};

pub(super) const COLUMNS: &str = "at = \"datetime\"\nzone = \"int32\"\nfare = \"decimal(9,2)\"\n";
pub(super) const TABLE: &str = "[partition]\nmonth = { month_of = \"at\" }\n[dimensions]\nzone = \"zone\"\n[measures]\nn = \"count(*)\"\n\
                     fare = \"sum(fare)\"\n";

pub(super) fn definition(format: &str, path: &str, columns: &str, table: &str) -> String {
    format!(
        "name = \"t\"\nmax_rejected = 0.5\n[source]\nformat = \"{format}\"\npath = \"{path}\"\n[source.columns]\n{columns}{table}"
    )
}

pub(super) fn write(bed: &Bed, name: &str, text: &str) {
    let path = bed.path(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let bytes = if name.ends_with(".gz") { gzip(text.as_bytes()) } else { text.as_bytes().to_vec() };
    std::fs::write(path, bytes).unwrap();
}

/// As another program does it.
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = Command::new("gzip").arg("-c").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = gzip.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || input.write_all(bytes).unwrap());
        gzip.wait_with_output().unwrap().stdout
    })
}

const CSV: &str = "fare, zone ,at\n\
                   10.50,1,2024-01-31 23:59:59\n\
                   \n\
                   \"0.1\",1,2024-01-01T00:00:00\r\n\
                   9.0999999999999996,2,2024-02-01 00:00:00\n\
                   ,2,2024-02-01 00:00:00\n";

pub(super) const NDJSON: &str = r#"{"at": "2024-01-31T23:59:59", "zone": 1, "fare": 10.50, "other": {"fare": [1]}}
{"zone": 1, "at": "2024-01-01 00:00:00", "fare": 1e-1}
{"at": "2024-02-01 00:00:00", "zone": 2, "fare": 9.0999999999999996}
{"at": "2024-02-01 00:00:00", "zone": 2, "fare": null}
"#;

fn warnings(made: &Made) -> String {
    made.report.warnings.iter().map(|w| w.detail.as_str()).collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn csv_ndjson_and_parquet_give_the_same_bytes() {
    let bed = Bed::new();
    write(&bed, "raw/a.csv", CSV);
    write(&bed, "raw/a.csv.gz", CSV);
    write(&bed, "raw/a.json", NDJSON);
    write(&bed, "raw/a.json.gz", NDJSON);
    let fares = [Some(10.5), Some(0.1), Some(9.1), None];
    let times = ["2024-01-31 23:59:59", "2024-01-01 00:00:00", "2024-02-01 00:00:00", "2024-02-01 00:00:00"];
    bed.write(
        "raw/a.parquet",
        vec![
            Series::new("at".into(), times).into(),
            Series::new("zone".into(), [1i64, 1, 2, 2]).into(),
            Series::new("fare".into(), fares).into(),
        ],
    );
    let text_time = COLUMNS.replace("\"datetime\"", "{ type = \"datetime\", format = \"%Y-%m-%d %H:%M:%S\" }");
    let expected = bed.made(&definition("parquet", "raw/a.parquet", &text_time, TABLE), &[]).await;
    assert_eq!(expected.books(), [4, 4, 0, 0, 0]);
    for (format, file) in
        [("csv", "raw/a.csv"), ("csv", "raw/a.csv.gz"), ("ndjson", "raw/a.json"), ("ndjson", "raw/a.json.gz")]
    {
        let made = bed.made(&definition(format, file, COLUMNS, TABLE), &[]).await;
        assert_eq!(made.digests(), expected.digests(), "{file}");
        assert_eq!(
            (made.books(), made.report.rows.clone()),
            (expected.books(), expected.report.rows.clone()),
            "{file}"
        );
        let said = std::fs::metadata(bed.path(file)).unwrap().len();
        assert_eq!((made.report.sources[0].path.as_str(), made.report.sources[0].bytes), (file, said));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_line_costs_its_row_and_is_told() {
    let bed = Bed::new();
    let broken = "1.00,x,2024-01-01 00:00:00\n1.00,1\n1.00,1,2024-01-32 00:00:00\n1.00,1,2024-01-01\n";
    write(&bed, "raw/a.csv", &format!("{CSV}{broken}"));
    let made = bed.made(&definition("csv", "raw/a.csv", COLUMNS, TABLE), &[]).await;
    assert_eq!(made.books(), [8, 5, 0, 0, 3]);
    let told = warnings(&made);
    for part in [
        "raw/a.csv: line 7: column zone: \"x\" does not fit, expected int32",
        "raw/a.csv: line 8: ",
        "raw/a.csv: line 9: column at: ",
    ] {
        assert!(told.contains(part), "{told}");
    }
    let strict = definition("csv", "raw/a.csv", COLUMNS, TABLE).replace("0.5", "0.1");
    let error = bed.fails(&strict, &["2024-01"]).await;
    assert_eq!(error.kind, "too-many-rejected");
    assert!(error.detail.contains("raw/a.csv: line 8: "), "{}", error.detail);
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_files_and_folders_are_columns_of_text_too() {
    let bed = Bed::new();
    for (shop, n) in [("a", 1), ("b%3Dc", 2)] {
        write(&bed, &format!("raw/shop={shop}/x.json.gz"), &format!("{{\"n\": {n}}}\n\n{{\"n\": {n}0}}\n"));
    }
    write(&bed, "raw/shop=a/_SUCCESS", "");
    write(&bed, "raw/shop=a/.x.json.gz.crc", "?");
    let columns = "shop = { type = \"string\", folder = \"shop\" }\nn = \"int64\"\n";
    let table = "[partition]\nshop = { value_of = \"shop\" }\n[dimensions]\nfile = \"source_file\"\nline = \"source_line\"\n\
                 [measures]\nn = \"sum(n)\"\n";
    let made = bed.made(&definition("ndjson", "raw/**/*", columns, table), &[]).await;
    let file = "'raw/shop=b%3Dc/x.json.gz'";
    assert_eq!(
        made.rows("shop=b%3Dc"),
        [[file, "1e-0", "2e-0"], [file, "3e-0", "20e-0"]].map(|row| row.map(str::to_owned))
    );
    assert_eq!(made.books(), [4, 4, 0, 0, 0]);
}

/// Several files of several batches, in slices and at once, in whatever order: the same bytes.
#[tokio::test(flavor = "multi_thread")]
async fn text_in_slices_is_the_same() {
    let bed = Bed::new();
    for day in 1..=6 {
        let lines = (0..70_000)
            .map(|row| format!("{{\"at\": \"2024-01-0{day}T00:00:00\", \"zone\": {}, \"fare\": {row}.5}}\n", row % 7));
        write(&bed, &format!("raw/2024-01-0{day}.json"), &lines.collect::<String>());
    }
    let table = TABLE.replace("month_of", "day_of");
    let definition = definition("ndjson", "raw/%Y-%m-%d.json", COLUMNS, &table);
    let days: Vec<String> = (1..=6).map(|day| format!("2024-01-0{day}")).collect();
    let days: Vec<&str> = days.iter().map(String::as_str).collect();
    let whole = bed.made(&definition, &days).await;
    assert_eq!(whole.books(), [420_000, 420_000, 0, 0, 0]);
    let job = bed.job_over(&definition, &days);
    let staging = job.staging.clone();
    let job = refrain::engine::Job { slice_source_bytes: 0, ..job };
    let (sliced, progress) = Bed::compute(&bed.engine, job).await.unwrap();
    assert_eq!((sliced.digests(), sliced.books()), (whole.digests(), whole.books()));
    assert_eq!((progress.rows, progress.rows_read), (420_000, 420_000));
    assert_eq!((progress.files, progress.files_read), (sliced.report.sources.len() as u64, progress.files));
    let bytes: u64 = sliced.report.sources.iter().map(|source| source.bytes).sum();
    assert_eq!((progress.bytes, progress.bytes_read), (bytes, bytes));
    let left = std::fs::read_dir(staging).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(
        left.filter(|name| !name.ends_with(".parquet")).collect::<Vec<_>>(),
        Vec::<String>::new(),
        "what was written aside is gone"
    );
}

/// What is wrong with a file as a whole fails the run, says where, and stages nothing.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_file_fails_the_run() {
    let long = format!("{{\"at\": \"{}\"}}\n", "x".repeat(100 << 20));
    let cut = {
        let whole = gzip(NDJSON.repeat(1000).as_bytes());
        whole[..whole.len() / 2].to_vec()
    };
    let cases: [(&str, &str, Vec<u8>, &str, &str); 8] = [
        ("csv", "a.csv", b"".to_vec(), "source-unreadable", "a.csv: is empty"),
        ("ndjson", "a.json", b"".to_vec(), "source-unreadable", "a.json: is empty"),
        ("ndjson", "a.json.gz", cut, "source-unreadable", "a.json.gz: cannot be read beyond"),
        (
            "csv",
            "a.csv",
            CSV.replace(',', ";").into(),
            "contract-broken",
            "a.csv: line 1: column at: expected datetime, not found as at; the header has",
        ),
        ("csv", "a.csv", CSV.replace("10.50", "10\0").into(), "too-many-rejected", "line 2: "),
        (
            "csv",
            "a.csv",
            [&b"fare,zone,at\n1,\xff\xfe,2024-01-01\n"[..]].concat(),
            "too-many-rejected",
            "a.csv: line 2: ",
        ),
        ("ndjson", "a.json", long.into_bytes(), "too-many-rejected", "a.json: line 1: "),
        ("parquet", "a.parquet", b"PAR1 cut".to_vec(), "source-unreadable", "a.parquet: expected a Parquet file"),
    ];
    for (format, file, bytes, kind, detail) in cases {
        let bed = Bed::new();
        std::fs::write(bed.path(file), bytes).unwrap();
        let strict = definition(format, file, COLUMNS, TABLE).replace("0.5", "0.1");
        let error = bed.fails(&strict, &["2024-01"]).await;
        assert_eq!(error.kind, kind, "{format} {file}: {}", error.detail);
        assert!(error.detail.contains(detail), "{format} {file}: {}", error.detail);
        assert!(error.detail.len() < 2_000, "{format} {file}: {} bytes", error.detail.len());
    }
}
