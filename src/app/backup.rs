//! The copy of the embedded database. Of Postgres its own tools make one, of the warehouse those of the file system.

use crate::config::DatabaseSettings;
use crate::store::SqliteStore;
use anyhow::{Context, bail};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The copy while it is written.
const NEW: &str = "refrain.db.new";

/// Copies the database into a folder, whole and on the disk before it has its name; answers where it is.
pub async fn backup(database: &DatabaseSettings, to: &Path) -> anyhow::Result<PathBuf> {
    if database.url()?.is_some() {
        bail!("the database is Postgres, expected the embedded one: copy it with pg_dump");
    }
    fs::create_dir_all(to).with_context(|| format!("cannot make the folder {}", to.display()))?;
    let (new, copy) = (to.join(NEW), to.join("refrain.db"));
    if copy.exists() {
        bail!("{} is there already, expected a folder without one: each backup needs its own", copy.display());
    }
    // What a backup that was killed has left.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot remove {}", new.display()));
        }
        _ => {}
    }
    let store = SqliteStore::open_read_only(&database.sqlite_path()).await?;
    store.copy_to(&new).await.with_context(|| format!("cannot copy the database to {}", new.display()))?;
    let renamed = File::open(&new).and_then(|file| file.sync_all()).and_then(|()| fs::rename(&new, &copy));
    renamed.and_then(|()| File::open(to)?.sync_all()).with_context(|| format!("cannot write {}", copy.display()))?;
    Ok(copy)
}
