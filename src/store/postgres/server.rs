//! Waiting for the server's answers, and telling one that is slow from one that is out of reach.

use crate::store::{StoreError, StoreResult, tx::within};
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, PgConnection};
use std::time::Duration;

/// How long silence is put down to a long statement, before the server is looked for.
const SILENCE: Duration = Duration::from_secs(2);

/// How long the server may take to show that it is there.
const SIGN: Duration = Duration::from_secs(3);

/// The server, and how long it may take over a statement.
pub(in crate::store) struct Server {
    /// How it is reached.
    pub(super) connect: PgConnectOptions,
    /// Somewhat longer than the server's own limit, so that its word comes first.
    pub(super) limit: Duration,
}

impl Server {
    /// Waits for an answer of the server, within its limit and only while the server can be reached: a network that
    /// swallows what is sent breaks no connection, and whoever asked would wait for nothing.
    pub(in crate::store) async fn answer<T>(
        &self,
        running: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> StoreResult<T> {
        tokio::select! {
            answer = within(self.limit, running) => answer,
            () = self.out_of_reach() => Err(StoreError::timed_out("the database is out of reach")),
        }
    }

    /// Returns when the server cannot be reached, looking for it after each silence.
    async fn out_of_reach(&self) {
        loop {
            tokio::time::sleep(SILENCE).await;
            match tokio::time::timeout(SIGN, PgConnection::connect_with(&self.connect)).await {
                // Closed by being dropped: nothing of it needs an answer.
                Ok(Ok(connection)) => drop(connection),
                // It is there to refuse.
                Ok(Err(sqlx::Error::Database(_))) => {}
                Ok(Err(_)) | Err(_) => return,
            }
        }
    }
}
