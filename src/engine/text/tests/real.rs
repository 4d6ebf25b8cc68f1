//! Real files, where `shared/data` lies beside this repository; it is said where they do not.

use super::*;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The folder of real files.
fn data() -> Option<PathBuf> {
    let around = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().skip(1);
    let found = around.map(|folder| folder.join("shared/data")).find(|data| data.is_dir());
    if found.is_none() {
        let mut err = io::stderr();
        io::Write::write_all(&mut err, b"NOT TESTED: there is no ../shared/data with real files\n").unwrap();
    }
    found
}

fn batches(source: &Source, path: &Path) -> Result<Vec<Batch>, TextError> {
    let mut file = TextFile::open(Box::new(File::open(path).unwrap()), &path.to_string_lossy(), source)?;
    let mut out = Vec::new();
    while let Some(batch) = file.next(4096)? {
        out.push(batch);
    }
    Ok(out)
}

fn texts(batches: &[Batch], column: usize) -> Vec<Option<String>> {
    batches.iter().flat_map(|batch| batch.columns[column].texts()).collect()
}

/// The contract that reads all eras of both cabs, and what the last line of each file, which is cut short, makes of it.
const CABS: &str = "at = { type = \"datetime\", from = [\"tpep_pickup_datetime\", \"lpep_pickup_datetime\", \"pickup_datetime\", \
     \"Trip_Pickup_DateTime\"] }\ntotal = { type = \"decimal(18,2)\", from = [\"total_amount\", \"Total_amount\", \"Total_Amt\"] }\n\
     zone = { type = \"int32\", from = \"PULocationID\", optional = true }\n\
     distance = { type = \"decimal(9,2)\", from = [\"trip_distance\", \"Trip_distance\", \"Trip_Distance\"] }";

#[test]
fn every_old_head_is_read_by_its_aliases() {
    let Some(data) = data() else { return };
    let source = csv_of("empty_tail = true", CABS);
    let mut told = Vec::new();
    let mut names: Vec<_> =
        std::fs::read_dir(data.join("nyc-tlc-old-heads")).unwrap().map(|e| e.unwrap().path()).collect();
    names.sort();
    assert_eq!(names.len(), 17);
    for path in names.iter().filter(|path| !path.to_string_lossy().contains("/fhv")) {
        let batches = batches(&source, path).unwrap();
        let (rows, faults) = (texts(&batches, 0).len(), batches.iter().flat_map(|b| &b.faults).collect::<Vec<_>>());
        // The cut line alone is malformed, or its last value is cut.
        assert!(faults.iter().all(|fault| fault.row == rows - 1), "{}: {faults:?}", path.display());
        let whole = rows - 1;
        for column in [0, 1, 3] {
            assert!(texts(&batches, column)[..whole].iter().all(Option::is_some), "{}", path.display());
        }
        told.push(format!(
            "{} {rows} {}",
            path.file_name().unwrap().to_string_lossy(),
            texts(&batches, 1)[0].as_deref().unwrap()
        ));
    }
    assert_eq!(
        told,
        [
            "green_tripdata_2013-08.head1024.csv 8 2125",
            "green_tripdata_2015-01.head1024.csv 5 630",
            "green_tripdata_2016-07.head1024.csv 9 3456",
            "green_tripdata_2019-01.head1024.csv 9 430",
            "yellow_tripdata_2009-01.head1024.csv 5 940",
            "yellow_tripdata_2010-01.head1024.csv 5 500",
            "yellow_tripdata_2014-01.head1024.csv 5 890",
            "yellow_tripdata_2015-01.head1024.csv 5 1705",
            "yellow_tripdata_2016-07.head1024.csv 10 900",
            "yellow_tripdata_2017-01.head1024.csv 10 1530",
            "yellow_tripdata_2018-01.head1024.csv 9 580",
            "yellow_tripdata_2019-01.head1024.csv 9 995",
            "yellow_tripdata_2020-01.head1024.csv 9 1127",
        ]
    );
}

#[test]
fn a_head_with_more_fields_than_names_is_refused_line_by_line() {
    let Some(data) = data() else { return };
    let path = data.join("nyc-tlc-old-heads/yellow_tripdata_2016-07.head1024.csv");
    let batches = batches(&csv_of("", CABS), &path).unwrap();
    let faults: Vec<_> = batches.iter().flat_map(|batch| &batch.faults).collect();
    assert_eq!((faults.len(), faults[0].column), (texts(&batches, 0).len(), None));
    assert_eq!((batches[0].lines[0], faults[0].reason.as_str()), (2, "has 19 fields, the header has 17"));
}

#[test]
fn a_head_of_other_columns_is_refused_with_its_names() {
    let Some(data) = data() else { return };
    let path = data.join("nyc-tlc-old-heads/fhv_tripdata_2015-01.head1024.csv");
    let detail = batches(&csv_of("", CABS), &path).unwrap_err().to_string();
    let expected = "fhv_tripdata_2015-01.head1024.csv: line 1: column at: expected datetime, not found as tpep_pickup_datetime or \
                    lpep_pickup_datetime or pickup_datetime or Trip_Pickup_DateTime; the header has \"Dispatching_base_num\", \
                    \"Pickup_date\", \"locationID\"";
    assert!(detail.ends_with(expected), "{detail}");
}

#[test]
fn for_hire_heads_are_read_by_their_aliases() {
    let Some(data) = data() else { return };
    let columns = "at = { type = \"datetime\", from = [\"pickup_datetime\", \"Pickup_DateTime\", \"Pickup_date\"] }\n\
                   base = { type = \"string\", from = [\"dispatching_base_num\", \"Dispatching_base_num\"] }\n\
                   zone = { type = \"int32\", from = [\"PULocationID\", \"PUlocationID\", \"locationID\"] }";
    let source = csv_of("", columns);
    let mut told = Vec::new();
    for name in ["fhv_tripdata_2015-01", "fhv_tripdata_2017-01", "fhv_tripdata_2018-01", "fhvhv_tripdata_2019-02"] {
        let batches = batches(&source, &data.join(format!("nyc-tlc-old-heads/{name}.head1024.csv"))).unwrap();
        let faults = batches.iter().flat_map(|batch| &batch.faults).count();
        let first = rows_of(&batches[0], source.columns.len()).swap_remove(0);
        told.push(format!("{} {faults} {first}", texts(&batches, 0).len()));
    }
    assert_eq!(
        told,
        [
            "34 1 2: 1420072200000000|B00013|-",
            "31 1 2: 1483230600000000|B00001|-",
            "13 1 2: 1517346410000000|-|56",
            "15 1 2: 1548979518000000|B02867|245"
        ],
        "the line that is cut short is the one fault of each"
    );
}

#[test]
fn the_zones_are_read_as_they_are() {
    let Some(data) = data() else { return };
    let columns = "id = { type = \"int32 not null\", from = \"LocationID\" }\nborough = { type = \"string\", from = \"Borough\" }\n\
                   zone = { type = \"string\", from = \"Zone\" }\nservice = { type = \"string\", from = \"service_zone\" }";
    for name in ["taxi_zone_lookup.csv", "taxi_zone_lookup.newer.csv"] {
        let batches = batches(&csv_of("", columns), &data.join("nyc-tlc-zones").join(name)).unwrap();
        assert_eq!((texts(&batches, 0).len(), batches[0].faults.len()), (265, 0), "{name}");
        assert_eq!(texts(&batches, 0)[264].as_deref(), Some("265"));
    }
}

#[test]
fn the_green_april_of_2020_has_its_totals() {
    let Some(data) = data() else { return };
    let columns = "at = { type = \"datetime\", from = \"lpep_pickup_datetime\" }\ntotal = { type = \"decimal(18,2)\", from = \"total_amount\" }";
    let batches =
        batches(&csv_of("", columns), &data.join("nyc-tlc-green-2020-csv/green_tripdata_2020-04.csv.gz")).unwrap();
    assert!(batches.iter().all(|batch| batch.faults.is_empty()));
    let micros = |text| TimeFormat::Iso.micros(text, false).unwrap();
    let april = micros("2020-04-01")..micros("2020-05-01");
    let (mut trips, mut cents) = (0, 0i64);
    for (at, total) in texts(&batches, 0).iter().zip(texts(&batches, 1)) {
        if april.contains(&at.as_deref().unwrap().parse().unwrap()) {
            trips += 1;
            cents += total.unwrap().parse::<i64>().unwrap();
        }
    }
    assert_eq!((trips, cents), (35_606, 70_094_730));
}

#[test]
fn the_folders_that_spark_wrote_give_their_columns() {
    let Some(data) = data() else { return };
    let columns = "k = { type = \"int32\", folder = \"trip_year\" }\nmonth = { type = \"int32\", folder = \"trip_month\" }\n\
                   total = { type = \"decimal(18,2)\", from = \"total_amount\" }";
    let source = csv_of("", columns);
    let root = data.join("spark-hive-layout/green-taxi-csv-by-month");
    let pattern = format!("{}/*/*/*.csv", glob::Pattern::escape(&root.to_string_lossy()));
    let (mut rows, mut cents, mut folders) = (0, 0i64, 0);
    for path in glob::glob(&pattern)
        .unwrap()
        .map(Result::unwrap)
        .filter(|path| !path.file_name().unwrap().to_string_lossy().starts_with('.'))
    {
        let batches = batches(&source, &path).unwrap();
        assert!(batches.iter().all(|batch| batch.faults.is_empty()), "{}", path.display());
        let folder = format!(
            "trip_year={}/trip_month={:0>2}",
            texts(&batches, 0)[0].as_deref().unwrap(),
            texts(&batches, 1)[0].as_deref().unwrap()
        );
        assert!(path.to_string_lossy().contains(&folder), "{folder}");
        folders += 1;
        rows += texts(&batches, 0).len();
        cents += texts(&batches, 2).iter().map(|total| total.as_deref().unwrap().parse::<i64>().unwrap()).sum::<i64>();
    }
    assert_eq!((folders, rows, cents), (47, 4606, 6_531_126));
}

const EVENTS: &str = "id = \"string not null\"\nkind = { type = \"string not null\", from = \"type\" }\n\
     at = { type = \"datetime(UTC)\", from = \"created_at\" }\nrepo_id = { type = \"int64\", from = \"repo.id\" }\n\
     repo = { type = \"string\", from = \"repo.name\" }\npublic = \"bool\"\norg = { type = \"string\", from = \"org.login\" }";

#[test]
fn two_hours_of_github_have_their_counts() {
    let Some(data) = data() else { return };
    let source = source("ndjson", "", EVENTS);
    let (mut kinds, mut stars) = (BTreeMap::new(), BTreeMap::new());
    for file in ["2015-01-01-0.json.gz", "2015-01-01-1.json.gz"] {
        let batches = batches(&source, &data.join("gharchive").join(file)).unwrap();
        assert!(batches.iter().all(|batch| batch.faults.is_empty()));
        for (kind, (id, name)) in
            texts(&batches, 1).into_iter().zip(texts(&batches, 3).into_iter().zip(texts(&batches, 4)))
        {
            let kind = kind.unwrap();
            if kind == "WatchEvent" {
                *stars.entry(format!("{file},{},{}", id.unwrap(), name.unwrap())).or_insert(0) += 1;
            }
            *kinds.entry(format!("{file},{kind}")).or_insert(0) += 1;
        }
    }
    let lines = |name: &str| {
        let text = std::fs::read_to_string(data.join("expected").join(name)).unwrap();
        text.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    let expected = lines("gharchive_type_counts.csv")
        .into_iter()
        .map(|line| (format!("{},{}", line[0], line[2]), line[3].parse().unwrap()));
    assert_eq!(kinds, expected.collect::<BTreeMap<String, i32>>());
    let expected =
        lines("gharchive_stars_per_repo.csv").into_iter().map(|line| (line[..3].join(","), line[3].parse().unwrap()));
    assert_eq!(stars, expected.collect::<BTreeMap<String, i32>>());
}
