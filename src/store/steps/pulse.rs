//! Whether the database is one for this version, and can be written.

use crate::store::tx::{Tx, values};
use crate::store::{StoreResult, schema};
use sqlx::migrate::Migrator;
use uuid::Uuid;

/// Writes a row and takes it away again: that is committed, so a server that only reads, or has no room, shows.
pub(super) async fn write(tx: &mut Tx, migrations: &Migrator) -> StoreResult<()> {
    schema::still_accepts(tx, migrations).await?;
    let (id, now) = (Uuid::new_v4(), tx.now().await?);
    tx.execute(tx.sql.put_pulse, values![id, now]).await?;
    tx.execute(tx.sql.remove_pulse, values![id]).await.map(drop)
}
