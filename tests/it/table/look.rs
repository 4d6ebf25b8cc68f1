//! What lies in a table.

use super::*;
use refrain::table::ForeignFile;

fn below_table(f: &Fixture, files: Vec<ForeignFile>) -> Vec<String> {
    files.iter().map(|file| file.path.strip_prefix(f.table()).unwrap().to_str().unwrap().to_owned()).collect()
}

/// Ours, what readers pass over, and what they would count.
fn messy() -> Fixture {
    let f = Fixture::new();
    for path in [
        "month=2024-01/part-0.parquet",
        "month=2024-02/part-0.parquet",
        "month=2024-02/part-1.parquet",
        "month=2024-02/sub/part-0.parquet",
        "month=2024-02/.part-0.parquet.crc",
        "month=2024-02/part-0.parquet.crc",
        "month=2024-02/_temporary/0/part-9.parquet",
        "month=2024-02/.hidden/part-9.parquet",
        "month=2024-02/_x=1/part-9.parquet",
        "month=2024-020/part-1.parquet",
        "month=2024-3/part-0.parquet",
        "notes.csv",
        "part-0.parquet",
        "_SUCCESS",
    ] {
        f.put(path, path);
    }
    fs::create_dir_all(f.table().join("month=2024-04")).unwrap();
    f
}

#[test]
fn foreign_files_of_named_partitions() {
    let f = messy();
    let of = |keys: &[&str]| {
        let keys: Vec<PartitionKey> = keys.iter().map(|text| key(text)).collect();
        below_table(&f, f.warehouse.foreign_files(TABLE, &keys).unwrap())
    };
    assert!(of(&[]).is_empty());
    assert!(of(&["month=2024-01", "month=2024-04", "month=2025-01"]).is_empty());
    assert_eq!(
        of(&["month=2024-02", "month=2024-01"]),
        ["month=2024-02/_x=1/part-9.parquet", "month=2024-02/part-1.parquet", "month=2024-02/sub/part-0.parquet"]
    );
}

#[test]
fn foreign_files_of_a_whole_table() {
    let f = messy();
    let found =
        |known: &[PartitionKey]| below_table(&f, f.warehouse.foreign_files_of_table(TABLE, &monthly(), known).unwrap());
    let expected = [
        "month=2024-02/_x=1/part-9.parquet",
        "month=2024-02/part-1.parquet",
        "month=2024-02/sub/part-0.parquet",
        "month=2024-020/part-1.parquet",
        "month=2024-3/part-0.parquet",
        "notes.csv",
        "part-0.parquet",
    ];
    assert_eq!(found(&[]), expected);
    // Those that lie in the folder of a partition go with it, where the pipeline says so.
    let files = f.warehouse.foreign_files_of_table(TABLE, &monthly(), &[]).unwrap();
    let partitions: Vec<Option<String>> = files.iter().map(|f| f.partition.as_ref().map(ToString::to_string)).collect();
    let (february, none) = (Some("month=2024-02".to_owned()), None);
    assert_eq!(
        partitions,
        [february.clone(), february.clone(), february, none.clone(), none.clone(), none.clone(), none]
    );
    // A partition that an earlier definition made is ours.
    assert_eq!(
        found(&[key("month=2024-3")]),
        expected.into_iter().filter(|p| !p.contains("2024-3/")).collect::<Vec<_>>()
    );
    assert!(f.warehouse.foreign_files_of_table("never_written", &monthly(), &[]).unwrap().is_empty());
}

#[test]
fn links_in_a_table_are_foreign() {
    let f = Fixture::new();
    f.put("month=2024-01/part-0.parquet", "a");
    let target = f.table().join("month=2024-01");
    fs::create_dir(f.table().join("month=2024-02")).unwrap();
    std::os::unix::fs::symlink(&target, f.table().join("month=2024-03")).unwrap();
    std::os::unix::fs::symlink(target.join("part-0.parquet"), f.table().join("month=2024-02/part-0.parquet")).unwrap();
    let found = f.warehouse.foreign_files_of_table(TABLE, &monthly(), &[]).unwrap();
    assert_eq!(below_table(&f, found), ["month=2024-02/part-0.parquet", "month=2024-03"]);
    let found = f.warehouse.foreign_files(TABLE, &[key("month=2024-02")]).unwrap();
    assert_eq!(below_table(&f, found), ["month=2024-02/part-0.parquet"]);
    assert_eq!(f.warehouse.live_partitions(TABLE, &monthly()).unwrap(), [key("month=2024-01")]);
}

#[test]
fn live_partitions_are_the_folders_with_a_file() {
    let f = messy();
    assert_eq!(f.warehouse.live_partitions(TABLE, &monthly()).unwrap(), [key("month=2024-01"), key("month=2024-02")]);
    assert!(f.warehouse.live_partitions("never_written", &monthly()).unwrap().is_empty());

    let f = Fixture::new();
    for path in [
        "event_date=2015-01-02/hour=00/part-0.parquet",
        "event_date=2015-01-01/hour=15/part-0.parquet",
        "event_date=2015-01-01/hour=24/part-0.parquet",
        "event_date=2015-01-01/part-0.parquet",
        "hour=15/event_date=2015-01-01/part-0.parquet",
        "event_date=2015-01-01/hour=16/part-1.parquet",
        "event_date=2015-01-01/hour=17/x=1/part-0.parquet",
    ] {
        f.put(path, path);
    }
    assert_eq!(
        f.warehouse.live_partitions(TABLE, &hourly()).unwrap(),
        [key("event_date=2015-01-01/hour=15"), key("event_date=2015-01-02/hour=00")]
    );
}

#[test]
fn the_live_file_is_hashed_anew() {
    let f = Fixture::new();
    let live = || f.warehouse.live_sha256(TABLE, &key("month=2024-02"), PartFile::Parquet).unwrap();
    assert_eq!(live(), None);
    let path = f.put("month=2024-02/part-0.parquet", "abc");
    assert_eq!(live().as_deref(), Some("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    let long = "abd".repeat(400_000);
    fs::write(&path, &long).unwrap();
    fs::File::open(&path).unwrap().set_modified(time).unwrap();
    assert_eq!(live(), Some(sha256(&long)));
}

#[test]
fn the_partition_of_a_foreign_file_is_the_one_in_whose_folder_it_lies() {
    let f = Fixture::new();
    for path in [
        "event_date=2015-01-01/hour=15/a.parquet",
        "event_date=2015-01-01/hour=16/x=1/y=2/a.parquet",
        "event_date=2015-01-01/hour=24/a.parquet",
        "event_date=2015-01-01/a.parquet",
        "a.parquet",
    ] {
        f.put(path, path);
    }
    let files = f.warehouse.foreign_files_of_table(TABLE, &hourly(), &[]).unwrap();
    let found: Vec<_> = files.iter().map(|file| file.partition.as_ref().map(PartitionKey::as_str)).collect();
    assert_eq!(found, [None, None, Some("event_date=2015-01-01/hour=15"), Some("event_date=2015-01-01/hour=16"), None]);
}
