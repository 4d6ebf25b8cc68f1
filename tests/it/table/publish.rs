//! Publishing, and doing it again from wherever a crash left it.

use super::*;
use refrain::table::{Published, TableError};
use std::collections::BTreeMap;
use std::os::unix::fs::symlink;

const FEBRUARY: &str = "month=2024-02";

#[test]
fn a_partition_is_made_replaced_and_cleared() {
    let f = Fixture::new();
    let lock = f.lock();
    assert_eq!(lock.publish(&f.staging(), &f.stage(FEBRUARY, "old")).unwrap(), Published::Moved);
    assert_eq!(f.live(FEBRUARY).as_deref(), Some("old"));
    assert_eq!(lock.publish(&f.staging(), &f.stage(FEBRUARY, "new")).unwrap(), Published::Moved);
    assert_eq!(f.live(FEBRUARY).as_deref(), Some("new"));
    assert!(tree(&f.staging()).is_empty());
    assert_eq!(lock.publish(&f.staging(), &cleared(FEBRUARY)).unwrap(), Published::Cleared);
    assert!(tree(&f.table()).is_empty());
    assert_eq!(lock.publish(&f.staging(), &cleared(FEBRUARY)).unwrap(), Published::AlreadyAbsent);
}

/// Publishing five partitions, broken off after every number of them, with what a crash inside the next one leaves.
#[test]
fn publishing_goes_on_from_every_point() {
    let crash_inside: [fn(&Fixture, &Decided); 3] = [
        |_, _| {},
        // The folders are made, the file is not moved.
        |f, next| {
            fs::create_dir_all(
                f.warehouse.live_path(TABLE, &next.partition, PartFile::Parquet).unwrap().parent().unwrap(),
            )
            .unwrap()
        },
        // The file of a clear is gone, its folder is not.
        |f, next| {
            if next.file.is_none() {
                fs::remove_file(f.warehouse.live_path(TABLE, &next.partition, PartFile::Parquet).unwrap()).unwrap();
            }
        },
    ];
    for (done, crash) in (0..5).flat_map(|done| crash_inside.map(|crash| (done, crash))) {
        let f = Fixture::new();
        for month in ["month=2024-02", "month=2024-03", "month=2024-05", "month=2024-09"] {
            f.put(&format!("{month}/part-0.parquet"), "old");
        }
        let decided = [
            f.stage("month=2024-01", "made"),
            f.stage("month=2024-02", "replaced"),
            cleared("month=2024-03"),
            f.stage("month=2024-04", "made too"),
            cleared("month=2024-05"),
        ];
        let first = f.lock();
        for partition in &decided[..done] {
            let _ = first.publish(&f.staging(), partition).unwrap();
        }
        crash(&f, &decided[done]);
        drop(first);

        let again = f.lock();
        let published = decided.each_ref().map(|partition| again.publish(&f.staging(), partition).unwrap());
        for (at, (decided, published)) in decided.iter().zip(published).enumerate() {
            let expected: &[Published] = match (at < done, decided.file.is_some()) {
                (true, true) => &[Published::AlreadyLive],
                (true, false) => &[Published::AlreadyAbsent],
                (false, true) => &[Published::Moved],
                (false, false) => &[Published::Cleared],
            };
            assert!(expected.contains(&published), "partition {at} after {done}: {published:?}");
        }
        let files: BTreeMap<_, _> =
            ["01", "02", "03", "04", "05", "09"].map(|m| (m, f.live(&format!("month=2024-{m}")))).into_iter().collect();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            files.into_values().collect::<Vec<_>>(),
            [some("made"), some("replaced"), None, some("made too"), None, some("old")]
        );
    }
}

#[test]
fn what_is_live_already_is_not_written() {
    let f = Fixture::new();
    let path = f.put("month=2024-02/part-0.parquet", "same");
    let before = fs::metadata(&path).unwrap();
    let decided = f.stage(FEBRUARY, "same");
    assert_eq!(f.lock().publish(&f.staging(), &decided).unwrap(), Published::AlreadyLive);
    let after = fs::metadata(&path).unwrap();
    use std::os::unix::fs::MetadataExt;
    assert_eq!((before.ino(), before.modified().unwrap()), (after.ino(), after.modified().unwrap()));
    // Nor is the staging needed for it.
    f.warehouse.remove_staging(f.run).unwrap();
    assert_eq!(f.lock().publish(&f.staging(), &decided).unwrap(), Published::AlreadyLive);
}

#[test]
fn a_decided_file_that_is_gone_or_damaged_changes_nothing() {
    let f = Fixture::new();
    let lock = f.lock();
    f.put("month=2024-02/part-0.parquet", "old");
    let decided = f.stage(FEBRUARY, "new");
    let staged = f.staging().join(decided.file.as_ref().unwrap());

    fs::write(&staged, "nEw").unwrap();
    assert_eq!(lock.publish(&f.staging(), &decided).unwrap(), Published::Gone);
    fs::remove_file(&staged).unwrap();
    assert_eq!(lock.publish(&f.staging(), &decided).unwrap(), Published::Gone);
    f.warehouse.remove_staging(f.run).unwrap();
    assert_eq!(lock.publish(&f.staging(), &decided).unwrap(), Published::Gone);
    assert_eq!(f.live(FEBRUARY).as_deref(), Some("old"));
}

#[test]
fn clearing_leaves_the_folders_above_and_what_is_not_ours() {
    let f = Fixture::new();
    let lock = f.lock();
    f.put("event_date=2015-01-01/hour=15/part-0.parquet", "a");
    f.put("event_date=2015-01-02/hour=00/part-0.parquet", "b");
    f.put("event_date=2015-01-02/hour=00/.note", "mine");
    for hour in ["event_date=2015-01-01/hour=15", "event_date=2015-01-02/hour=00"] {
        assert_eq!(lock.publish(&f.staging(), &cleared(hour)).unwrap(), Published::Cleared);
        assert_eq!(lock.publish(&f.staging(), &cleared(hour)).unwrap(), Published::AlreadyAbsent);
    }
    assert_eq!(
        tree(&f.table()),
        [
            "event_date=2015-01-01",
            "event_date=2015-01-02",
            "event_date=2015-01-02/hour=00",
            "event_date=2015-01-02/hour=00/.note"
        ]
    );
}

#[test]
fn strange_values_stay_inside_the_table() {
    let f = Fixture::new();
    let lock = f.lock();
    let spec = PartitionSpec::new(vec![column("name", Transform::ValueOf, ValueKind::Text)]);
    let values = ["a/b", "a:b", "a b", "a%2Fb", "..", "é", "/", "../../x", "."];
    let beside = tree(f.warehouse.root()).len();
    for value in values {
        let key = spec.parse_object(&BTreeMap::from([("name".to_owned(), value.to_owned())])).unwrap();
        let decided = f.stage(key.as_str(), value);
        assert_eq!(lock.publish(&f.staging(), &decided).unwrap(), Published::Moved, "{value}");
    }
    let found = f.warehouse.live_partitions(TABLE, &spec).unwrap();
    assert_eq!(found.len(), values.len(), "{found:?}");
    for folder in fs::read_dir(f.table()).unwrap() {
        assert_eq!(tree(&folder.unwrap().path()), ["part-0.parquet"]);
    }
    // The table's folder, and a folder and a file for each value: nothing else, anywhere.
    assert_eq!(tree(f.warehouse.root()).len(), beside + 1 + 2 * values.len());
    assert_eq!(tree(f.folder.path()).len(), 1 + tree(f.warehouse.root()).len());
    assert!(f.table().join("name=a%2Fb/part-0.parquet").exists() && f.table().join("name=..").exists());
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    let f = Fixture::new();
    let lock = f.lock();
    for bad in ["", "..", "../month=2024-02", "month=1/..", "month=1//day=2", "/month=1", "month=1/", "=x", "month=\0"]
    {
        assert!(
            matches!(f.warehouse.live_path(TABLE, &key(bad), PartFile::Csv), Err(TableError::Name { .. })),
            "{bad:?}"
        );
        assert!(matches!(lock.publish(&f.staging(), &cleared(bad)), Err(TableError::Name { .. })), "{bad:?}");
    }
    for bad in ["", "..", ".staging", "a/b", "Zone", "_x"] {
        assert!(matches!(f.warehouse.try_publish_lock(bad, &holder()), Err(TableError::Name { .. })), "{bad:?}");
    }
    for bad in ["", "..", ".", "a/b", "/etc/passwd", "a/", "a\0"] {
        let decided = Decided { file: Some(bad.to_owned()), ..f.stage(FEBRUARY, "new") };
        assert!(matches!(lock.publish(&f.staging(), &decided), Err(TableError::Name { .. })), "{bad:?}");
    }
}

#[test]
fn symbolic_links_are_not_followed() {
    let f = Fixture::new();
    let lock = f.lock();
    let elsewhere = f.folder.path().join("elsewhere");
    fs::create_dir_all(elsewhere.join("hour=15")).unwrap();
    fs::write(elsewhere.join("hour=15/part-0.parquet"), "theirs").unwrap();
    let refused = |partition: &str| {
        for decided in [f.stage(partition, "new"), cleared(partition)] {
            let error = lock.publish(&f.staging(), &decided).unwrap_err();
            assert!(matches!(error, TableError::NotOurs { found: "a symbolic link", .. }), "{partition}: {error}");
            assert!(!error.is_transient());
        }
        assert!(f.warehouse.live_sha256(TABLE, &key(partition), PartFile::Parquet).is_err(), "{partition}");
    };
    fs::create_dir_all(f.table().join("event_date=2015-01-02/hour=01")).unwrap();
    symlink(&elsewhere, f.table().join("event_date=2015-01-01")).unwrap();
    symlink(elsewhere.join("hour=15"), f.table().join("event_date=2015-01-02/hour=15")).unwrap();
    let file = f.table().join("event_date=2015-01-02/hour=01/part-0.parquet");
    symlink(elsewhere.join("hour=15/part-0.parquet"), file).unwrap();
    refused("event_date=2015-01-01/hour=15");
    refused("event_date=2015-01-02/hour=15");
    refused("event_date=2015-01-02/hour=01");

    fs::rename(f.table(), f.folder.path().join("away")).unwrap();
    symlink(&elsewhere, f.table()).unwrap();
    refused("hour=15");
    assert!(lock.mark_success().is_err() && lock.unmark_success().is_err());
    assert_eq!(tree(&elsewhere), ["hour=15", "hour=15/part-0.parquet"]);
    assert_eq!(fs::read_to_string(elsewhere.join("hour=15/part-0.parquet")).unwrap(), "theirs");
}

#[test]
fn a_folder_in_the_way_of_the_file_is_refused() {
    let f = Fixture::new();
    fs::create_dir_all(f.table().join("month=2024-02/part-0.parquet")).unwrap();
    let error = f.lock().publish(&f.staging(), &f.stage(FEBRUARY, "new")).unwrap_err();
    assert!(matches!(error, TableError::NotOurs { found: "a folder", .. }), "{error}");
    assert!(f.lock().publish(&f.staging(), &cleared(FEBRUARY)).is_err());
}

/// Folders that somebody takes away while they are empty are made again.
#[test]
fn a_folder_that_vanishes_before_the_move_is_made_again() {
    let f = Fixture::new();
    let lock = f.lock();
    let folder = f.table().join("month=2024-02");
    let moves = beside_a_remover(&folder, 100, |at| {
        let moved = lock.publish(&f.staging(), &f.stage(FEBRUARY, &at.to_string()));
        let _ = fs::remove_file(folder.join("part-0.parquet"));
        moved.map_err(|e| e.to_string())
    });
    assert!(moves.iter().all(|moved| *moved == Ok(Published::Moved)), "{moves:?}");
}

#[test]
fn success_is_taken_away_and_made() {
    let f = Fixture::new();
    let lock = f.lock();
    lock.unmark_success().unwrap();
    assert!(!f.table().exists());
    for _ in 0..2 {
        lock.mark_success().unwrap();
        assert_eq!(fs::read_to_string(f.table().join("_SUCCESS")).unwrap(), "");
    }
    for _ in 0..2 {
        lock.unmark_success().unwrap();
        assert!(tree(&f.table()).is_empty());
    }
    // A link is replaced, not written through.
    let theirs = f.folder.path().join("theirs");
    fs::write(&theirs, "text").unwrap();
    symlink(&theirs, f.table().join("_SUCCESS")).unwrap();
    lock.mark_success().unwrap();
    assert_eq!(fs::read_to_string(&theirs).unwrap(), "text");
    assert!(fs::symlink_metadata(f.table().join("_SUCCESS")).unwrap().is_file());
}
