//! Folders in which others have put data files, swapped whole.

use super::*;
use refrain::table::{Published, TableError};
use rstest::rstest;
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, openat, renameat_with};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, symlink};

const FEBRUARY: &str = "month=2024-02";

fn replacing(decided: Decided) -> Decided {
    Decided { foreign_files: ForeignFiles::Replace, ..decided }
}

/// What Spark leaves in a partition's folder, and more.
fn put_foreign(f: &Fixture) {
    for path in [
        "part-00000-5c7a.c000.snappy.parquet",
        "sub/part-0.parquet",
        ".part-00000-5c7a.c000.snappy.parquet.crc",
        "_SUCCESS",
    ] {
        f.put(&format!("{FEBRUARY}/{path}"), "theirs");
    }
}

fn folder(f: &Fixture) -> Vec<String> {
    tree(&f.table().join(FEBRUARY))
}

#[rstest]
#[case::beside_another_file(Some("old"))]
#[case::beside_the_decided_file(Some("new"))]
#[case::alone(None)]
fn a_folder_with_files_of_others_goes_whole(#[case] live: Option<&str>) {
    let f = Fixture::new();
    let lock = f.lock();
    live.inspect(|text| drop(f.put(&format!("{FEBRUARY}/part-0.parquet"), text)));
    put_foreign(&f);
    let decided = replacing(f.stage(FEBRUARY, "new"));
    assert_eq!(lock.publish(&f.staging(), &decided).unwrap(), Published::Moved);
    assert_eq!((folder(&f), f.live(FEBRUARY).as_deref()), (vec!["part-0.parquet".to_owned()], Some("new")));
    assert!(f.warehouse.is_as_decided(TABLE, &decided).unwrap());
    let swapped_out = tree(&f.staging());
    assert!(
        swapped_out.iter().any(|path| path.ends_with("sub/part-0.parquet")),
        "they wait for the end: {swapped_out:?}"
    );
    assert_eq!(lock.publish(&f.staging(), &decided).unwrap(), Published::AlreadyLive);

    put_foreign(&f);
    let cleared = replacing(cleared(FEBRUARY));
    assert!(!f.warehouse.is_as_decided(TABLE, &cleared).unwrap());
    assert_eq!(lock.publish(&f.staging(), &cleared).unwrap(), Published::Cleared);
    assert!(tree(&f.table()).is_empty());
    assert_eq!(lock.publish(&f.staging(), &cleared).unwrap(), Published::AlreadyAbsent);
    f.warehouse.remove_staging(f.run).unwrap();
}

/// Whatever lies in staging after the swap, the next publisher sees that live is as decided.
#[rstest]
#[case::the_same_file("new")]
#[case::another_file("old")]
fn what_was_swapped_out_never_comes_back(#[case] before: &str) {
    let f = Fixture::new();
    f.put(&format!("{FEBRUARY}/part-0.parquet"), before);
    put_foreign(&f);
    // A publisher that died before its swap.
    fs::create_dir_all(f.staging().join("swap-half/sub")).unwrap();
    fs::write(f.staging().join("swap-half/part-0.parquet"), "half").unwrap();
    let decided = replacing(f.stage(FEBRUARY, "new"));
    let staged = f.staging().join(decided.file.as_ref().unwrap());
    assert_eq!(f.lock().publish(&f.staging(), &decided).unwrap(), Published::Moved);
    let inode = |f: &Fixture| fs::metadata(f.table().join(FEBRUARY).join("part-0.parquet")).unwrap().ino();
    let live = inode(&f);
    for _ in 0..2 {
        assert_eq!(f.lock().publish(&f.staging(), &decided).unwrap(), Published::AlreadyLive);
        let _ = fs::remove_file(&staged);
    }
    // Others write again, before the run is finished and after its staged file is gone.
    put_foreign(&f);
    assert_eq!(f.lock().publish(&f.staging(), &decided).unwrap(), Published::Moved);
    assert_eq!((folder(&f), f.live(FEBRUARY).as_deref()), (vec!["part-0.parquet".to_owned()], Some("new")));
    assert_eq!(inode(&f), live, "the live file is the same one all the while");
}

#[test]
fn without_the_decided_file_nothing_is_swapped() {
    let f = Fixture::new();
    let lock = f.lock();
    f.put(&format!("{FEBRUARY}/part-0.parquet"), "old");
    put_foreign(&f);
    let before = folder(&f);
    let decided = replacing(f.stage(FEBRUARY, "new"));
    let staged = f.staging().join(decided.file.as_ref().unwrap());
    fs::write(&staged, "nEw").unwrap();
    assert_eq!(lock.publish(&f.staging(), &decided).unwrap(), Published::Gone);
    fs::remove_file(&staged).unwrap();
    assert_eq!(lock.publish(&f.staging(), &decided).unwrap(), Published::Gone);
    f.warehouse.remove_staging(f.run).unwrap();
    assert_eq!(lock.publish(&f.staging(), &decided).unwrap(), Published::Gone);
    assert_eq!(lock.publish(&f.staging(), &replacing(cleared(FEBRUARY))).unwrap(), Published::Gone);
    assert_eq!((folder(&f), f.live(FEBRUARY).as_deref()), (before, Some("old")));
}

#[test]
fn hidden_files_are_no_reason_to_swap() {
    let f = Fixture::new();
    for path in [".part-00000.crc", "_SUCCESS", "_temporary/0/part-1.parquet", "x.parquet.crc"] {
        f.put(&format!("{FEBRUARY}/{path}"), "theirs");
    }
    let mut expected = folder(&f);
    let decided = replacing(f.stage(FEBRUARY, "new"));
    assert_eq!(f.lock().publish(&f.staging(), &decided).unwrap(), Published::Moved);
    expected.push("part-0.parquet".to_owned());
    expected.sort();
    let mut found = folder(&f);
    found.sort();
    assert_eq!(found, expected);
    assert!(tree(&f.staging()).is_empty());
}

#[test]
fn links_go_with_the_folder_and_are_not_followed() {
    let f = Fixture::new();
    let lock = f.lock();
    let theirs = f.folder.path().join("theirs");
    fs::write(&theirs, "new").unwrap();
    fs::create_dir_all(f.table().join(FEBRUARY)).unwrap();
    symlink(&theirs, f.table().join(FEBRUARY).join("part-0.parquet")).unwrap();
    let decided = replacing(f.stage(FEBRUARY, "new"));
    assert_eq!(lock.publish(&f.staging(), &decided).unwrap(), Published::Moved);
    assert!(fs::symlink_metadata(f.table().join(FEBRUARY).join("part-0.parquet")).unwrap().is_file());
    assert_eq!(fs::read_to_string(&theirs).unwrap(), "new");

    symlink(f.table().join(FEBRUARY), f.table().join("month=2024-03")).unwrap();
    for decided in [replacing(f.stage("month=2024-03", "new")), replacing(cleared("month=2024-03"))] {
        let error = lock.publish(&f.staging(), &decided).unwrap_err();
        assert!(matches!(error, TableError::NotOurs { found: "a symbolic link", .. }), "{error}");
    }
}

#[test]
fn with_fail_nothing_is_published_beside_files_of_others() {
    let f = Fixture::new();
    let lock = f.lock();
    let decided = [f.stage("month=2024-01", "new"), f.stage(FEBRUARY, "new"), cleared("month=2024-03")];
    lock.check_foreign_files(&decided).unwrap();
    f.put(&format!("{FEBRUARY}/part-0.parquet"), "old");
    f.put("month=2024-03/_SUCCESS", "");
    lock.check_foreign_files(&decided).unwrap();
    let theirs = [f.put("month=2024-02/late.csv", ""), f.put("month=2024-03/part-1.parquet", "")];
    match lock.check_foreign_files(&decided) {
        Err(TableError::ForeignFiles { table, paths }) => {
            assert_eq!((table.as_str(), &paths[..]), (TABLE, &theirs[..]))
        }
        other => unreachable!("{other:?}"),
    }
    assert!(!f.warehouse.is_as_decided(TABLE, &cleared("month=2024-03")).unwrap());
    lock.check_foreign_files(&decided.map(replacing)).unwrap();
}

/// A table that was cut otherwise has folders inside folders, of which both are decided.
#[test]
fn a_partition_inside_the_folder_of_another_is_not_foreign_to_it() {
    let f = Fixture::new();
    f.put("year=2024/part-0.parquet", "old");
    f.put("year=2024/month=02/part-0.parquet", "new");
    let decided = [cleared("year=2024"), f.stage("year=2024/month=02", "new")];
    f.lock().check_foreign_files(&decided).unwrap();
    assert!(f.lock().check_foreign_files(&decided[..1]).is_err());
}

#[test]
fn whether_folders_can_be_swapped_is_tried_in_staging() {
    let f = Fixture::new();
    f.warehouse.probe_exchange(&f.staging()).unwrap();
    assert!(tree(&f.staging()).is_empty());
    f.warehouse.remove_staging(f.run).unwrap();
    assert!(f.warehouse.probe_exchange(&f.staging()).unwrap_err().to_string().contains("make a folder in"));
}

const SWAPS: u32 = 300;

/// While folders of several files go and the one file comes, again and again, a reader has the one or the others of one
/// time, never both, never none. One that opens by path finds that a file it had listed is gone, and lists again.
#[rstest]
#[case::that_hold_the_folder_open(true)]
#[case::that_open_by_path(false)]
fn readers_find_the_old_files_or_the_new_one(#[case] held: bool) {
    let f = Fixture::new();
    let path = f.table().join(FEBRUARY);
    install(&f, 0, held);
    let done = AtomicBool::new(false);
    let lock = f.lock();
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3).map(|_| scope.spawn(|| read_until(&done, &path, held))).collect();
        for round in 1..=SWAPS {
            let decided = replacing(f.stage(FEBRUARY, &format!("new {round}")));
            assert_eq!(lock.publish(&f.staging(), &decided).unwrap(), Published::Moved);
            install(&f, round, held);
        }
        done.store(true, Ordering::SeqCst);
        let seen: Vec<(u32, u32)> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        assert!(seen.iter().all(|(ours, theirs)| *ours > 0 && *theirs > 0), "each saw both kinds: {seen:?}");
        let reads: u32 = seen.iter().map(|(ours, theirs)| ours + theirs).sum();
        crate::counted(format_args!("{SWAPS} swaps of a folder and back, {reads} reads, each of one time"));
    });
}

/// Puts a folder of three files there, as whole as we do: one that has a file by our name, or none.
fn install(f: &Fixture, round: u32, with_our_name: bool) {
    // What goes stays there to the end, so that nobody who holds it open sees it being emptied.
    let folder = f.folder.path().join(format!("theirs-{round}"));
    fs::create_dir(&folder).unwrap();
    let third = if with_our_name { "part-0.parquet".to_owned() } else { format!("part-2-{round}.parquet") };
    for name in [format!("part-0-{round}.parquet"), format!("part-1-{round}.parquet"), third] {
        fs::write(folder.join(name), format!("old {round}")).unwrap();
    }
    let live = f.table().join(FEBRUARY);
    fs::create_dir_all(&live).unwrap();
    renameat_with(CWD, &folder, CWD, &live, RenameFlags::EXCHANGE).unwrap();
}

/// How often the one file was read, and how often the three.
fn read_until(done: &AtomicBool, path: &Path, held: bool) -> (u32, u32) {
    let (mut ours, mut theirs) = (0, 0);
    while !done.load(Ordering::SeqCst) {
        let Some(found) = read(path, held) else { continue };
        let first = found.first().unwrap_or_else(|| unreachable!("an empty folder"));
        assert!(found.iter().all(|text| text == first), "of one time: {found:?}");
        match (found.len(), first.starts_with("new")) {
            (1, true) => ours += 1,
            (3, false) => theirs += 1,
            _ => unreachable!("half of it: {found:?}"),
        }
    }
    (ours, theirs)
}

/// The texts of all files; none where one that was listed is gone.
fn read(path: &Path, held: bool) -> Option<Vec<String>> {
    let folder = fs::File::open(path).unwrap();
    // What the open folder is, wherever it may be by now.
    let by_handle = PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&folder)));
    let listed = fs::read_dir(if held { &by_handle } else { path }).ok()?;
    let names: Vec<_> = listed.filter_map(|entry| Some(entry.ok()?.file_name())).collect();
    let open = |name: &std::ffi::OsString| -> Option<String> {
        let mut text = String::new();
        let file = match held {
            true => openat(&folder, name, OFlags::RDONLY, Mode::empty()).ok().map(fs::File::from),
            false => fs::File::open(path.join(name)).ok(),
        };
        file?.read_to_string(&mut text).unwrap();
        Some(text)
    };
    names.iter().map(open).collect()
}
