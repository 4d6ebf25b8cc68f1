//! The file table on a real disk.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod format;
mod identity;
mod lock;
mod look;
mod manifest;
mod publish;
mod quarantine;
mod staging;
mod swap;
mod verify;

use chrono::Utc;
use refrain::partition::{PartitionColumn, PartitionKey, PartitionSpec, Transform, ValueKind};
use refrain::run::{
    CatalogEntry, ClaimToken, Content, Decided, DefinitionHash, ForeignFiles, Outcome, PartFile, RunId, Totals,
};
use refrain::table::{Holder, PublishLock, Warehouse};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use tempfile::TempDir;
use uuid::Uuid;

const TABLE: &str = "zone_hour";

/// A new warehouse, a run and the claim that decides.
struct Fixture {
    folder: TempDir,
    warehouse: Warehouse,
    database: Uuid,
    run: RunId,
    token: ClaimToken,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database = Uuid::new_v4();
        let warehouse = Warehouse::open(&folder.path().join("warehouse"), None, database).unwrap();
        let (run, token) = (RunId::new(), ClaimToken::new());
        warehouse.make_staging(run, token).unwrap();
        Self { folder, warehouse, database, run, token }
    }

    fn lock(&self) -> PublishLock {
        self.warehouse.try_publish_lock(TABLE, &holder()).unwrap().unwrap()
    }

    fn staging(&self) -> PathBuf {
        self.warehouse.staging(self.run, self.token)
    }

    /// Stages `text` for a partition and decides it.
    fn stage(&self, partition: &str, text: &str) -> Decided {
        let file = format!("{}.parquet", sha256(partition));
        fs::write(self.staging().join(&file), text).unwrap();
        Decided {
            partition: key(partition),
            outcome: Outcome::Created,
            content: Some(content(text)),
            file: Some(file),
            previous: None,
            foreign_files: ForeignFiles::Fail,
            base: None,
        }
    }

    fn table(&self) -> PathBuf {
        self.warehouse.root().join(TABLE)
    }

    /// Writes a file below the table, with the folders above it.
    fn put(&self, below_table: &str, text: &str) -> PathBuf {
        let path = self.table().join(below_table);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn live(&self, partition: &str) -> Option<String> {
        fs::read_to_string(self.warehouse.live_path(TABLE, &key(partition), PartFile::Parquet).unwrap()).ok()
    }
}

fn holder() -> Holder {
    Holder { worker: "worker-1".to_owned(), pid: std::process::id(), run: Some(RunId::new()), since: Utc::now() }
}

fn key(text: &str) -> PartitionKey {
    PartitionKey::from_canonical(text)
}

fn cleared(partition: &str) -> Decided {
    Decided {
        partition: key(partition),
        outcome: Outcome::Cleared,
        content: None,
        file: None,
        previous: None,
        foreign_files: ForeignFiles::Fail,
        base: None,
    }
}

fn content(text: &str) -> Content {
    let (bytes, sha256) = (text.len() as u64, sha256(text));
    Content { rows: 1, totals: Totals::default(), source_rows: 1, bytes, sha256, file: PartFile::Parquet }
}

fn entry(partition: &str, text: &str) -> CatalogEntry {
    CatalogEntry {
        partition: key(partition),
        content: content(text),
        run_id: RunId::new(),
        committed_at: Utc::now(),
        definition: DefinitionHash("d".to_owned()),
        confirmed_by: None,
        confirmed_at: None,
    }
}

fn sha256(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn column(name: &str, transform: Transform, kind: ValueKind) -> PartitionColumn {
    PartitionColumn { name: name.to_owned(), transform, kind, source: "at".to_owned() }
}

fn monthly() -> PartitionSpec {
    PartitionSpec::new(vec![column("month", Transform::MonthOf, ValueKind::Text)])
}

fn hourly() -> PartitionSpec {
    PartitionSpec::new(vec![
        column("event_date", Transform::DayOf, ValueKind::Text),
        column("hour", Transform::HourOfDay, ValueKind::Text),
    ])
}

/// Does `step` so many times while another thread removes `folder` whenever it is empty, a few times for each step.
fn beside_a_remover<T>(folder: &Path, times: u32, mut step: impl FnMut(u32) -> T) -> Vec<T> {
    const REMOVALS_PER_STEP: u32 = 5;
    let (left, done) = (AtomicU32::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                if left.load(Ordering::SeqCst) > 0 && fs::remove_dir(folder).is_ok() {
                    left.fetch_sub(1, Ordering::SeqCst);
                }
                std::hint::spin_loop();
            }
        });
        let stepped = |at| {
            left.store(REMOVALS_PER_STEP, Ordering::SeqCst);
            step(at)
        };
        let steps = (0..times).map(stepped).collect();
        done.store(true, Ordering::SeqCst);
        steps
    })
}

/// Every path below a folder, relative to it and sorted.
fn tree(folder: &Path) -> Vec<String> {
    let paths = walkdir::WalkDir::new(folder).min_depth(1).sort_by_file_name().into_iter();
    paths.map(|e| e.unwrap().path().strip_prefix(folder).unwrap().to_str().unwrap().to_owned()).collect()
}
