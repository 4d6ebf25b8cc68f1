//! Wake-ups from other processes. They hurry, polling decides: what is missed while the connection is down costs time only.

use crate::store::bus::Bus;
use crate::store::{Change, StoreResult, tx::within};
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use std::time::Duration;

/// How long the listener waits before it connects again.
const RECONNECT: Duration = Duration::from_secs(1);

/// How long silence is believed before the connection is tried: a cut cable says nothing.
const SILENCE: Duration = Duration::from_secs(30);

/// How long the server has to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// Forwards the changes that other processes tell of, for ever.
pub(super) async fn forward(connect: PgConnectOptions, bus: Bus) {
    loop {
        if let Err(error) = listen(&connect, &bus).await {
            tracing::warn!(error = %error, "the connection that listens for changes is down, polling goes on");
        }
        tokio::time::sleep(RECONNECT).await;
    }
}

async fn listen(connect: &PgConnectOptions, bus: &Bus) -> StoreResult<()> {
    let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(ANSWER).idle_timeout(None).max_lifetime(None);
    let pool = pool.connect_lazy_with(connect.clone());
    let mut listener = PgListener::connect_with(&pool).await?;
    within(ANSWER, listener.listen(Bus::CHANNEL)).await?;
    // Whatever was told before is missed: let everybody look once.
    let _ = bus.local.send(Change::Queue);
    loop {
        match tokio::time::timeout(SILENCE, listener.try_recv()).await {
            Ok(Ok(Some(heard))) => bus.hear(heard.payload()),
            Ok(Ok(None)) => return Ok(()),
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => {
                within(ANSWER, sqlx::query("select 1").execute(&mut listener)).await?;
            }
        }
    }
}
