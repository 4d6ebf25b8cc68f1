//! Staging folders and their sweeping.

use super::*;
use refrain::table::TableError;
use rustix::fs::{FlockOperation, flock};

#[test]
fn a_claim_makes_its_folder_once() {
    let f = Fixture::new();
    assert_eq!(f.staging(), f.warehouse.root().join(".staging").join(f.run.to_string()).join(f.token.to_string()));
    assert!(f.staging().is_dir());
    assert!(
        matches!(f.warehouse.make_staging(f.run, f.token), Err(TableError::StagingTaken(path)) if path == f.staging())
    );
    let second = ClaimToken::new();
    f.warehouse.make_staging(f.run, second).unwrap();
    assert!(f.staging().is_dir() && f.warehouse.staging(f.run, second).is_dir());
}

#[test]
fn sweeping_takes_one_attempt_and_leaves_the_others() {
    let f = Fixture::new();
    f.stage("month=2024-02", "a");
    let (second, other) = (ClaimToken::new(), RunId::new());
    f.warehouse.make_staging(f.run, second).unwrap();
    f.warehouse.make_staging(other, f.token).unwrap();
    fs::create_dir(f.warehouse.checkpoints(f.run)).unwrap();
    let listed = || {
        let mut found: Vec<_> =
            f.warehouse.staged_folders().unwrap().into_iter().map(|(run, token)| (run.0, token.map(|t| t.0))).collect();
        found.sort();
        found
    };
    let folder = |run: RunId, token: ClaimToken| (run.0, Some(token.0));
    let mut expected = vec![folder(f.run, f.token), folder(f.run, second), folder(other, f.token), (f.run.0, None)];
    expected.sort();
    assert_eq!(listed(), expected);

    let remove = |run, token| f.warehouse.remove_staged(run, token).unwrap();
    remove(f.run, Some(f.token));
    expected.retain(|found| *found != folder(f.run, f.token));
    assert_eq!(listed(), expected);
    remove(f.run, None);
    expected.retain(|(_, token)| token.is_some());
    assert_eq!(listed(), expected);
    for (run, token) in [(f.run, f.token), (f.run, second), (other, f.token), (RunId::new(), f.token)] {
        remove(run, Some(token));
    }
    assert!(tree(&f.warehouse.root().join(".staging")).is_empty(), "empty folders of runs are left");
}

#[test]
fn a_runs_staging_goes_whole() {
    let f = Fixture::new();
    f.stage("month=2024-02", "a");
    f.warehouse.make_staging(f.run, ClaimToken::new()).unwrap();
    f.warehouse.remove_staging(f.run).unwrap();
    f.warehouse.remove_staging(f.run).unwrap();
    assert!(tree(&f.warehouse.root().join(".staging")).is_empty());
}

#[test]
fn what_is_not_an_attempts_is_reported_and_left() {
    let f = Fixture::new();
    let root = f.warehouse.root().join(".staging");
    let unhyphenated = RunId::new().0.simple().to_string();
    fs::create_dir_all(root.join(&unhyphenated).join(f.token.to_string())).unwrap();
    fs::create_dir_all(root.join(f.run.to_string()).join("mine")).unwrap();
    fs::write(root.join("note"), "").unwrap();
    let linked = RunId::new().to_string();
    std::os::unix::fs::symlink(root.join(f.run.to_string()), root.join(&linked)).unwrap();

    let listed = f.warehouse.staged_folders().unwrap();
    assert_eq!(listed, [(f.run, Some(f.token))]);
    let mut expected =
        vec![root.join(&unhyphenated), root.join(f.run.to_string()).join("mine"), root.join("note"), root.join(linked)];
    expected.sort();
    let mut unknown = f.warehouse.unknown_staging().unwrap();
    unknown.sort();
    assert_eq!(unknown, expected);

    f.warehouse.remove_staged(f.run, Some(f.token)).unwrap();
    f.warehouse.remove_leftovers().unwrap();
    assert!(expected.iter().all(|path| path.symlink_metadata().is_ok()), "{:?}", tree(&root));
}

#[test]
fn a_run_without_attempts_is_swept() {
    let f = Fixture::new();
    let empty = f.warehouse.root().join(".staging").join(RunId::new().to_string());
    fs::create_dir(&empty).unwrap();
    f.warehouse.remove_leftovers().unwrap();
    assert!(!empty.exists() && f.staging().is_dir());
}

/// A process that was killed while it looked whether names are kept leaves its folder behind.
#[test]
fn a_probe_of_the_dead_is_swept_and_one_that_goes_on_is_not() {
    let f = Fixture::new();
    let staging = f.warehouse.root().join(".staging");
    let (dead, alive) = (staging.join("probe-dead"), staging.join("probe-alive"));
    fs::create_dir_all(dead.join("probe=a")).unwrap();
    fs::create_dir_all(alive.join("probe=a")).unwrap();
    let held = fs::File::open(&alive).unwrap();
    flock(&held, FlockOperation::LockExclusive).unwrap();
    f.warehouse.remove_leftovers().unwrap();
    assert!(!dead.exists() && alive.join("probe=a").is_dir());
    drop(held);
    f.warehouse.remove_leftovers().unwrap();
    assert!(!alive.exists());
}

/// A server may start while another one sweeps.
#[test]
fn names_are_probed_beside_a_sweeper() {
    let f = Fixture::new();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::SeqCst) {
                f.warehouse.remove_leftovers().unwrap();
            }
        });
        let probed: Vec<_> = (0..100).map(|_| f.warehouse.probe_names().map_err(|e| e.to_string())).collect();
        done.store(true, std::sync::atomic::Ordering::SeqCst);
        assert!(probed.iter().all(Result::is_ok), "{probed:?}");
    });
}

/// A sweeper that takes a run's empty folder away at any moment costs no claim its folder.
#[test]
fn staging_is_made_beside_a_sweeper() {
    let f = Fixture::new();
    f.warehouse.remove_staged(f.run, Some(f.token)).unwrap();
    let of_run = f.warehouse.root().join(".staging").join(f.run.to_string());
    let made = beside_a_remover(&of_run, 100, |_| {
        let made = f.warehouse.make_staging(f.run, f.token).map(|folder| folder.is_dir());
        f.warehouse.remove_staged(f.run, Some(f.token)).unwrap();
        made.map_err(|e| e.to_string())
    });
    assert!(made.iter().all(|made| *made == Ok(true)), "{made:?}");
}
