//! Whether the database is written, or for a while at least read.

use crate::http::Check;
use crate::store::{RunStore, StoreError};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// For how long the database may take no write while it is read. A request waits so long for its turn to write, and then it is
/// refused: until then nobody is, and to leave the server out would help nobody; from then on what writes fails, as where the
/// database is away.
pub(super) const BUSY_FOR: Duration = Duration::from_secs(30);

/// The database, and when it last took a write.
pub(super) struct Database {
    store: Arc<dyn RunStore>,
    /// How long it may take to answer.
    patience: Duration,
    busy_for: Duration,
    written: Instant,
}

impl Database {
    /// One that was written just now, as it is at the start.
    pub(super) fn new(store: Arc<dyn RunStore>, patience: Duration) -> Self {
        Self { store, patience, busy_for: BUSY_FOR, written: Instant::now() }
    }

    /// Writes into it; where that takes too long, reads it at least.
    pub(super) async fn look(&mut self) -> Check {
        match timeout(self.patience, self.store.ping()).await {
            Ok(Ok(())) => {
                self.written = Instant::now();
                check(true, true, "it answers and can be written".to_owned())
            }
            Ok(Err(error)) => check(false, true, trouble(error)),
            Err(_) if self.is_busy().await => {
                let seconds = self.written.elapsed().as_secs();
                check(
                    false,
                    false,
                    format!("it is busy: it was last written {seconds} s ago, and what is read is answered"),
                )
            }
            Err(_) => check(false, true, format!("no answer within {} s", self.patience.as_secs())),
        }
    }

    /// Whether somebody else writes, and not yet for too long.
    async fn is_busy(&self) -> bool {
        self.written.elapsed() < self.busy_for
            && matches!(timeout(self.patience, self.store.database_id()).await, Ok(Ok(_)))
    }
}

fn check(ok: bool, essential: bool, detail: String) -> Check {
    Check { name: "database".to_owned(), ok, essential, detail }
}

/// What is wrong, in words for strangers too; the log has what the database said.
fn trouble(error: StoreError) -> String {
    if error.is_for_want_of_room() {
        tracing::warn!(%error, "the database has no room");
        return "it has no room to write".to_owned();
    }
    if error.is_read_only() {
        tracing::warn!(%error, "the database only reads");
        return "it answers, but it is read-only".to_owned();
    }
    match error {
        // In words for the operator: a later version has changed it.
        StoreError::Setup(why) => why,
        error => {
            tracing::warn!(%error, "the database does not answer");
            "it does not answer".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::store::{SqliteOptions, SqliteStore};
    use sqlx::{Connection, SqliteConnection};

    #[tokio::test]
    async fn who_else_writes_is_borne_for_a_while() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db");
        let store = Arc::new(SqliteStore::open(&path, SqliteOptions::default()).await.unwrap());
        let patience = Duration::from_millis(200);
        let mut database = Database { busy_for: Duration::from_secs(2), ..Database::new(store, patience) };
        assert!(database.look().await.ok);

        let mut other = SqliteConnection::connect(&format!("sqlite://{}", path.display())).await.unwrap();
        sqlx::raw_sql("begin immediate").execute(&mut other).await.unwrap();
        let busy = database.look().await;
        assert_eq!((busy.ok, busy.essential), (false, false), "{busy:?}");
        assert!(busy.detail.starts_with("it is busy: "), "{busy:?}");
        let began = Instant::now();
        let stuck = loop {
            let found = database.look().await;
            if found.essential {
                break found;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "it is busy for ever: {found:?}");
        };
        assert!(began.elapsed() > Duration::from_secs(1), "{:?}", began.elapsed());
        assert_eq!((stuck.ok, stuck.detail.as_str()), (false, "no answer within 0 s"));

        sqlx::raw_sql("rollback").execute(&mut other).await.unwrap();
        let freed = Instant::now();
        while !database.look().await.ok {
            assert!(freed.elapsed() < Duration::from_secs(20), "it does not come back");
        }
    }
}
