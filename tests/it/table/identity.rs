//! Whose warehouse a root is.

use super::*;
use refrain::table::{IdentityError, TableError};

fn refusal(root: &Path, bound: Option<Uuid>, database: Uuid) -> IdentityError {
    match Warehouse::open(root, bound, database) {
        Err(TableError::Identity(error)) => error,
        other => unreachable!("expected a refusal, found {other:?}"),
    }
}

#[test]
fn a_new_database_makes_its_root_and_finds_it_again() {
    let folder = tempfile::tempdir().unwrap();
    let (root, database) = (folder.path().join("deep/er/warehouse"), Uuid::new_v4());
    let made = Warehouse::open(&root, None, database).unwrap();
    assert_eq!(tree(&root), [".refrain-warehouse"]);
    let text: serde_json::Value = serde_json::from_slice(&fs::read(root.join(".refrain-warehouse")).unwrap()).unwrap();
    assert_eq!(text, serde_json::json!({"warehouse_id": made.id(), "database_id": database}));

    let bound = Warehouse::open(&root, Some(made.id()), database).unwrap();
    assert_eq!((bound.id(), bound.root()), (made.id(), root.as_path()));
    // A process that died before it bound the id: the next one takes the same root.
    assert_eq!(Warehouse::open(&root, None, database).unwrap().id(), made.id());
    bound.check_identity().unwrap();
}

#[test]
fn processes_that_start_at_once_make_one_identity() {
    let folder = tempfile::tempdir().unwrap();
    let (root, database) = (folder.path().join("warehouse"), Uuid::new_v4());
    let open = || Warehouse::open(&root, None, database).unwrap().id();
    let ids: Vec<Uuid> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(open)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}

#[test]
fn what_a_dead_maker_and_a_fresh_disk_leave_counts_as_empty() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(".refrain-warehouse.new"), "{\"ware").unwrap();
    fs::create_dir(folder.path().join("lost+found")).unwrap();
    Warehouse::open(folder.path(), None, Uuid::new_v4()).unwrap();
    assert_eq!(tree(folder.path()), [".refrain-warehouse", "lost+found"]);
}

#[test]
fn a_new_database_refuses_a_folder_with_something_in_it() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("thesis.doc"), "").unwrap();
    let error = refusal(folder.path(), None, Uuid::new_v4());
    assert!(matches!(&error, IdentityError::NotEmpty { found, .. } if found == "thesis.doc"), "{error}");
    assert_eq!(tree(folder.path()), ["thesis.doc"]);
}

#[test]
fn a_bound_database_makes_no_root_anew() {
    let folder = tempfile::tempdir().unwrap();
    let (root, database, id) = (folder.path().join("warehouse"), Uuid::new_v4(), Uuid::new_v4());
    assert!(matches!(refusal(&root, Some(id), database), IdentityError::Absent { expected, .. } if expected == id));
    assert!(!root.exists());

    fs::create_dir(&root).unwrap();
    assert!(
        matches!(refusal(&root, Some(id), database), IdentityError::NoWarehouse { expected, .. } if expected == id)
    );
    assert!(tree(&root).is_empty());
}

#[test]
fn another_warehouse_and_another_database_are_refused() {
    let f = Fixture::new();
    let (root, id) = (f.warehouse.root(), f.warehouse.id());
    let other = Uuid::new_v4();
    let error = refusal(root, Some(other), f.database);
    assert!(matches!(error, IdentityError::OtherWarehouse { found, expected, .. } if (found, expected) == (id, other)));
    for bound in [Some(id), None] {
        let error = refusal(root, bound, other);
        assert!(
            matches!(error, IdentityError::OtherDatabase { found, expected, .. } if (found, expected) == (f.database, other))
        );
    }
}

#[test]
fn an_identity_that_cannot_be_read_is_refused_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(".refrain-warehouse");
    fs::write(&path, "{").unwrap();
    assert!(matches!(refusal(folder.path(), None, Uuid::new_v4()), IdentityError::Unreadable { .. }));
    assert_eq!(fs::read_to_string(path).unwrap(), "{");
}

#[test]
fn nothing_is_made_on_a_disk_that_was_unmounted_since() {
    let f = Fixture::new();
    let away = f.folder.path().join("away");
    let lock = f.lock();
    let decided = f.stage("month=2024-02", "new");
    fs::rename(f.warehouse.root(), &away).unwrap();
    fs::create_dir(f.warehouse.root()).unwrap();

    let is_identity = |error: TableError| matches!(error, TableError::Identity(_)) && error.is_transient();
    assert!(is_identity(f.warehouse.check_identity().unwrap_err()));
    assert!(is_identity(f.warehouse.make_staging(RunId::new(), ClaimToken::new()).unwrap_err()));
    assert!(is_identity(f.warehouse.try_publish_lock("other", &holder()).unwrap_err()));
    // The staged file is not there, but that proves nothing.
    assert!(is_identity(lock.publish(&f.staging(), &decided).unwrap_err()));
    assert!(is_identity(f.warehouse.verify(TABLE, None, &[entry("month=2024-02", "old")]).unwrap_err()));
    assert!(tree(f.warehouse.root()).is_empty());
}

#[test]
fn a_file_system_that_keeps_names_is_taken() {
    let f = Fixture::new();
    f.warehouse.probe_names().unwrap();
    f.warehouse.probe_names().unwrap();
    assert!(f.warehouse.unknown_staging().unwrap().is_empty());
}
