//! A partition whose file gets another name, since it is of another format: its folder is swapped, and readers never find both.

use super::*;
use crate::engine::gzip;
use refrain::table::{FindingKind, Published};
use rstest::rstest;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;

const FEBRUARY: &str = "month=2024-02";

/// Stages `text` as a file of that name.
fn stage_as(f: &Fixture, text: &str, file: PartFile) -> Decided {
    let decided = f.stage(FEBRUARY, text);
    let content = decided.content.map(|content| Content { file, ..content });
    Decided { content, ..decided }
}

fn folder(f: &Fixture) -> Vec<String> {
    tree(&f.table().join(FEBRUARY))
}

#[rstest]
#[case::to_csv(PartFile::Parquet, PartFile::Csv)]
#[case::compressed(PartFile::Csv, PartFile::CsvZstd)]
#[case::and_back(PartFile::CsvGzip, PartFile::Parquet)]
fn another_format_takes_the_place_of_the_folder(#[case] before: PartFile, #[case] after: PartFile) {
    let f = Fixture::new();
    let lock = f.lock();
    assert_eq!(lock.publish(&f.staging(), &stage_as(&f, "old", before)).unwrap(), Published::Moved);
    let decided = stage_as(&f, "new", after);
    assert!(!f.warehouse.is_as_decided(TABLE, &decided).unwrap());
    lock.check_foreign_files(std::slice::from_ref(&decided)).unwrap();
    // What a publisher that died before its swap leaves.
    fs::create_dir(f.staging().join("swap-half")).unwrap();
    fs::write(f.staging().join("swap-half").join(after.as_str()), "half").unwrap();
    assert_eq!(lock.publish(&f.staging(), &decided).unwrap(), Published::Moved);
    assert_eq!(folder(&f), [after.as_str()]);
    assert_eq!(fs::read_to_string(f.table().join(FEBRUARY).join(after.as_str())).unwrap(), "new");
    assert!(f.warehouse.is_as_decided(TABLE, &decided).unwrap());
    // One that died after it, and then its staging went.
    for _ in 0..2 {
        assert_eq!(lock.publish(&f.staging(), &decided).unwrap(), Published::AlreadyLive);
        f.warehouse.remove_staging(f.run).unwrap();
    }
}

#[test]
fn without_the_decided_file_the_old_format_stays() {
    let f = Fixture::new();
    let lock = f.lock();
    f.put(&format!("{FEBRUARY}/part-0.parquet"), "old");
    let decided = stage_as(&f, "new", PartFile::Csv);
    fs::write(f.staging().join(decided.file.as_ref().unwrap()), "nEw").unwrap();
    assert_eq!(lock.publish(&f.staging(), &decided).unwrap(), Published::Gone);
    assert_eq!(folder(&f), ["part-0.parquet"]);
}

/// A file of ours that the catalog does not know: from before a database was restored, say.
#[test]
fn a_file_of_another_format_beside_the_live_one_goes_and_the_live_one_stays() {
    let f = Fixture::new();
    let lock = f.lock();
    let live = f.put(&format!("{FEBRUARY}/part-0.csv"), "same");
    f.put(&format!("{FEBRUARY}/part-0.parquet"), "unknown");
    let inode = fs::metadata(&live).unwrap().ino();
    let decided = stage_as(&f, "same", PartFile::Csv);
    assert!(!f.warehouse.is_as_decided(TABLE, &decided).unwrap());
    assert!(f.warehouse.has_other_part(TABLE, &key(FEBRUARY), PartFile::Csv).unwrap());
    assert_eq!(lock.publish(&f.staging(), &decided).unwrap(), Published::Moved);
    assert_eq!((folder(&f), fs::metadata(&live).unwrap().ino()), (vec!["part-0.csv".to_owned()], inode));
}

#[test]
fn clearing_takes_the_file_whatever_its_format() {
    for names in [&["part-0.csv"][..], &["part-0.csv.gz"], &["part-0.csv.zst", "part-0.parquet"]] {
        let f = Fixture::new();
        let lock = f.lock();
        names.iter().for_each(|name| drop(f.put(&format!("{FEBRUARY}/{name}"), "old")));
        assert!(!f.warehouse.is_as_decided(TABLE, &cleared(FEBRUARY)).unwrap());
        assert_eq!(lock.publish(&f.staging(), &cleared(FEBRUARY)).unwrap(), Published::Cleared);
        assert!(tree(&f.table()).is_empty(), "{names:?}");
        assert_eq!(lock.publish(&f.staging(), &cleared(FEBRUARY)).unwrap(), Published::AlreadyAbsent);
    }
}

#[test]
fn files_of_every_format_are_partitions_and_no_others() {
    let f = Fixture::new();
    for path in ["month=2024-01/part-0.csv", "month=2024-02/part-0.csv.gz", "month=2024-03/part-0.csv.zst"] {
        f.put(path, "a");
    }
    let theirs = ["month=2024-03/part-0.csv.bz2", "month=2024-04/part-00.csv"].map(|path| f.put(path, "b"));
    let live: Vec<String> =
        f.warehouse.live_partitions(TABLE, &monthly()).unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(live, ["month=2024-01", "month=2024-02", "month=2024-03"]);
    let foreign = f.warehouse.foreign_files_of_table(TABLE, &monthly(), &[]).unwrap();
    assert_eq!(foreign.into_iter().map(|file| file.path).collect::<Vec<_>>(), theirs);
}

#[test]
fn verify_tells_torn_files_of_every_format_and_those_beside_them() {
    let f = Fixture::new();
    let (gz, zst) = (gzip(b"a\n1\n"), zstd::encode_all(&b"a\n1\n"[..], 3).unwrap());
    let files: [(&str, &[u8], PartFile); 7] = [
        ("month=2024-01", b"a\n1\n", PartFile::Csv),
        ("month=2024-02", b"a\n1", PartFile::Csv),
        ("month=2024-03", b"", PartFile::Csv),
        ("month=2024-04", &gz, PartFile::CsvGzip),
        ("month=2024-05", &gz[..gz.len() - 1], PartFile::CsvGzip),
        ("month=2024-06", &zst, PartFile::CsvZstd),
        ("month=2024-07", &zst[..zst.len() - 1], PartFile::CsvZstd),
    ];
    let mut entries = Vec::new();
    for (partition, bytes, file) in files {
        let path = f.put(&format!("{partition}/{}", file.as_str()), "");
        fs::write(path, bytes).unwrap();
        let entry = entry(partition, "another");
        entries.push(CatalogEntry { content: Content { file, ..entry.content }, ..entry });
    }
    let mut beside = entry("month=2024-08", "text");
    beside.content.file = PartFile::Csv;
    entries.push(beside);
    f.put("month=2024-08/part-0.csv", "text");
    f.put("month=2024-08/part-0.parquet", "text");
    let found = f.warehouse.verify_files(TABLE, Some(&monthly()), &entries).unwrap();
    let kinds: Vec<_> = found.iter().map(|finding| finding.kind).collect();
    use FindingKind::{Changed, Torn, Unknown};
    assert_eq!(kinds, [Changed, Torn, Torn, Changed, Torn, Changed, Torn, Unknown], "{found:#?}");
    assert_eq!(found[7].partition, Some(key("month=2024-08")));
    assert!(found[7].detail.contains("the catalog has part-0.csv for this partition"), "{}", found[7].detail);
    assert!(found[4].detail.starts_with("it is no whole csv.gz file"), "{}", found[4].detail);
}

const CHANGES: u32 = 300;

/// While a partition goes from one format to the other and back, whoever lists its folder finds one file, of either.
#[test]
fn readers_never_find_two_formats() {
    let f = Fixture::new();
    let lock = f.lock();
    let path = f.table().join(FEBRUARY);
    f.put(&format!("{FEBRUARY}/part-0.parquet"), "parquet");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let read = || {
            let mut seen = BTreeSet::new();
            while !done.load(Ordering::SeqCst) {
                // An open folder stays itself, wherever it is by now: what it lists is of one time.
                let listed = fs::File::open(&path).unwrap();
                let names =
                    fs::read_dir(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&listed))).unwrap();
                let names: Vec<String> = names.map(|name| name.unwrap().file_name().into_string().unwrap()).collect();
                assert_eq!(names.len(), 1, "one file at each time: {names:?}");
                seen.extend(names);
            }
            seen.len()
        };
        let readers: Vec<_> = (0..2).map(|_| scope.spawn(read)).collect();
        for round in 0..CHANGES {
            let file = if round % 2 == 0 { PartFile::Csv } else { PartFile::Parquet };
            let decided = stage_as(&f, &round.to_string(), file);
            assert_eq!(lock.publish(&f.staging(), &decided).unwrap(), Published::Moved);
        }
        done.store(true, Ordering::SeqCst);
        let seen: Vec<usize> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        assert_eq!(seen, [2, 2], "each reader saw both formats");
    });
}
