//! Rows kept apart: moved out of staging, listed and swept.

use super::*;

#[test]
fn they_are_moved_listed_and_removed_with_what_is_empty_then() {
    let f = Fixture::new();
    let staged = f.staging().join("q.parquet");
    let keep = |token| {
        let _ = f.warehouse.make_staging(f.run, token);
        let staging = f.warehouse.staging(f.run, token);
        fs::write(staging.join("q.parquet"), "rows").unwrap();
        f.warehouse.quarantine(TABLE, f.run, token, "q.parquet").unwrap()
    };
    let (first, second) = (keep(f.token), keep(ClaimToken::new()));
    assert_eq!(first, format!("_quarantine/{TABLE}/{}/{}.parquet", f.run, f.token));
    assert!(!staged.exists());
    assert_eq!(fs::read_to_string(f.warehouse.root().join(&first)).unwrap(), "rows");
    // What others put there is nobody's to sweep, and readers of tables find none of it.
    let folder = f.warehouse.root().join("_quarantine").join(TABLE);
    fs::write(folder.join(f.run.to_string()).join("notes.txt"), "theirs").unwrap();
    fs::create_dir(folder.join("theirs")).unwrap();
    assert_eq!(f.warehouse.names_at_root().unwrap(), Vec::<String>::new());

    let paths = || f.warehouse.quarantined().unwrap().into_iter().map(|file| file.path).collect::<Vec<_>>();
    let mut expected = vec![first.clone(), second.clone()];
    expected.sort();
    assert_eq!(paths(), expected);
    let listed = f.warehouse.quarantined().unwrap();
    let file = listed.iter().find(|file| file.path == first).unwrap();
    assert_eq!((file.run, file.token), (f.run, f.token));
    f.warehouse.remove_quarantined(&file.path).unwrap();
    f.warehouse.remove_quarantined(&file.path).unwrap();
    assert_eq!(paths(), [second]);
    fs::remove_file(folder.join(f.run.to_string()).join("notes.txt")).unwrap();
    fs::remove_dir(folder.join("theirs")).unwrap();
    let last = f.warehouse.quarantined().unwrap().remove(0);
    f.warehouse.remove_quarantined(&last.path).unwrap();
    assert!(tree(&f.warehouse.root().join("_quarantine")).is_empty(), "empty folders are left");
    // What a record that somebody has changed names.
    let others = f.warehouse.root().join("others");
    fs::write(&others, "theirs").unwrap();
    for path in ["others", "_quarantine/../others", others.to_str().unwrap()] {
        f.warehouse.remove_quarantined(path).unwrap();
    }
    assert!(others.exists());
}

#[test]
fn what_is_not_staged_or_not_ours_is_refused() {
    let f = Fixture::new();
    let error = f.warehouse.quarantine(TABLE, f.run, f.token, "q.parquet").unwrap_err();
    assert!(error.is_transient(), "{error}");
    fs::write(f.staging().join("q.parquet"), "rows").unwrap();
    assert!(f.warehouse.quarantine("../out", f.run, f.token, "q.parquet").is_err());
    fs::rename(f.warehouse.root(), f.folder.path().join("away")).unwrap();
    fs::create_dir(f.warehouse.root()).unwrap();
    assert!(f.warehouse.quarantine(TABLE, f.run, f.token, "q.parquet").is_err());
    assert!(tree(f.warehouse.root()).is_empty(), "nothing is made in a root that is not ours");
}
