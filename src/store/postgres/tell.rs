//! Wake-ups for other processes, told once what they are about is committed. They hurry, polling decides.
//!
//! They are not told in the transactions themselves: Postgres lets those that notify commit one after the other only, each with a wait
//! for the disk of its own.

use crate::store::bus::Bus;
use sqlx::PgPool;
use tokio::sync::mpsc;

/// How many wake-ups may wait to be told; more are not told.
pub(super) const CAPACITY: usize = 10_000;

/// How many are told at once.
const AT_ONCE: usize = 1_000;

/// Nobody waits for the disk either. 1 channel, 2 payloads.
const NOTIFY: &str = r"
    select set_config('synchronous_commit', 'off', true), count(pg_notify($1, payload)) from unnest($2::text[]) as told(payload)";

/// Tells what comes, for ever.
pub(super) async fn tell(pool: PgPool, mut payloads: mpsc::Receiver<String>) {
    let mut told = Vec::new();
    while payloads.recv_many(&mut told, AT_ONCE).await > 0 {
        let batch = std::mem::take(&mut told);
        if let Err(error) = sqlx::query(NOTIFY).bind(Bus::CHANNEL).bind(batch).execute(&pool).await {
            tracing::debug!(error = %error, "other processes were not told of changes, their polling goes on");
        }
    }
}
