//! What metrics say of the connections.

use crate::telemetry::{InUse, METRIC_CONNECTION_WAITERS, METRIC_CONNECTIONS, METRIC_CONNECTIONS_MAX};
use sqlx::{Database, Pool};

/// Counts who waits for a connection.
pub(super) async fn in_queue<T>(waiting: impl Future<Output = T>) -> T {
    let _one_more = InUse::of(METRIC_CONNECTION_WAITERS);
    waiting.await
}

/// Tells how the connections are used. Of the SQLite file these are the ones that read; another one writes.
pub(super) fn tell_of<D: Database>(pool: &Pool<D>) {
    let (open, idle) = (f64::from(pool.size()), pool.num_idle() as f64);
    metrics::gauge!(METRIC_CONNECTIONS, "state" => "idle").set(idle);
    metrics::gauge!(METRIC_CONNECTIONS, "state" => "used").set((open - idle).max(0.0));
    metrics::gauge!(METRIC_CONNECTIONS_MAX).set(f64::from(pool.options().get_max_connections()));
}
