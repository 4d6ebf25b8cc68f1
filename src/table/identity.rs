//! Whose warehouse a root is: a random id, in the root and in the database, and the database's own id in the root.

use super::{IdentityError, TableError, disk};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;
use uuid::Uuid;

const IDENTITY_FILE: &str = ".refrain-warehouse";

/// The identity while it is written. A maker that died leaves it; an otherwise empty root with it is empty.
const NEW_IDENTITY_FILE: &str = ".refrain-warehouse.new";

/// What the root of a fresh ext file system has.
const LOST_AND_FOUND: &str = "lost+found";

/// Names at the root that are no tables and no surprise.
pub(super) const KNOWN_NAMES: [&str; 3] = [IDENTITY_FILE, NEW_IDENTITY_FILE, LOST_AND_FOUND];

#[derive(Debug, Serialize, Deserialize)]
struct Identity {
    warehouse_id: Uuid,
    database_id: Uuid,
}

/// Checks that `root` is the warehouse `id` of this database.
pub(super) fn check(root: &Path, id: Uuid, database_id: Uuid) -> Result<(), TableError> {
    let Some(found) = read(root)? else {
        let root = root.to_owned();
        return Err(match root.is_dir() {
            true => IdentityError::NoWarehouse { root, expected: id },
            false => IdentityError::Absent { root, expected: id },
        }
        .into());
    };
    check_database(root, &found, database_id)?;
    if found.warehouse_id != id {
        let root = root.to_owned();
        return Err(IdentityError::OtherWarehouse { root, found: found.warehouse_id, expected: id }.into());
    }
    Ok(())
}

/// Makes the root of a database that has no warehouse, and answers its id. A root that was made for the same database
/// (by a process that died before it could bind it, or by another one just now) is taken as it is.
pub(super) fn adopt(root: &Path, database_id: Uuid) -> Result<Uuid, TableError> {
    make_root(root)?;
    let folder = File::open(root).map_err(|e| TableError::io("open", root, e))?;
    // Two processes that start at once must not both write an identity.
    rustix::io::retry_on_intr(|| rustix::fs::flock(&folder, FlockOperation::LockExclusive))
        .map_err(|e| TableError::io("lock", root, e.into()))?;
    let id = match read(root)? {
        Some(found) => {
            check_database(root, &found, database_id)?;
            found.warehouse_id
        }
        None => {
            check_empty(root)?;
            let identity = Identity { warehouse_id: Uuid::new_v4(), database_id };
            write(root, &identity)?;
            identity.warehouse_id
        }
    };
    disk::sync_folder(root)?;
    Ok(id)
}

fn check_database(root: &Path, found: &Identity, expected: Uuid) -> Result<(), TableError> {
    if found.database_id == expected {
        return Ok(());
    }
    Err(IdentityError::OtherDatabase { root: root.to_owned(), found: found.database_id, expected }.into())
}

fn read(root: &Path) -> Result<Option<Identity>, TableError> {
    let path = root.join(IDENTITY_FILE);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(e) => return Err(TableError::io("read", &path, e)),
    };
    serde_json::from_slice(&text)
        .map(Some)
        .map_err(|e| IdentityError::Unreadable { path, detail: e.to_string() }.into())
}

fn write(root: &Path, identity: &Identity) -> Result<(), TableError> {
    let (new, path) = (root.join(NEW_IDENTITY_FILE), root.join(IDENTITY_FILE));
    let text = serde_json::to_string_pretty(identity)
        .map_err(|e| IdentityError::Unreadable { path: path.clone(), detail: e.to_string() })?;
    File::create(&new)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.write_all(b"\n")?;
            file.sync_all()
        })
        .map_err(|e| TableError::io("write", &new, e))?;
    fs::rename(&new, &path).map_err(|e| TableError::io("rename to", &path, e))
}

fn check_empty(root: &Path) -> Result<(), TableError> {
    let entries = fs::read_dir(root).map_err(|e| TableError::io("list", root, e))?;
    for entry in entries {
        let name = entry.map_err(|e| TableError::io("list", root, e))?.file_name();
        if !KNOWN_NAMES.iter().any(|known| name == *known) {
            let found = name.to_string_lossy().into_owned();
            return Err(IdentityError::NotEmpty { root: root.to_owned(), found }.into());
        }
    }
    Ok(())
}

/// Makes the root and the folders above it that are missing, each with its parent synced. Symbolic links above the
/// root, and the root being one, are the operator's choice.
fn make_root(root: &Path) -> Result<(), TableError> {
    let mut missing: Vec<&Path> = root.ancestors().take_while(|path| !path.exists()).collect();
    missing.reverse();
    for path in missing {
        disk::make_folder(path)?;
    }
    Ok(())
}
