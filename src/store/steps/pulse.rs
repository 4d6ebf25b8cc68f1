//! Whether the database can be written.

use crate::store::StoreResult;
use crate::store::tx::{Tx, values};
use uuid::Uuid;

/// Writes a row and takes it away again: that is committed, so a server that only reads, or has no room, shows.
pub(super) async fn write(tx: &mut Tx) -> StoreResult<()> {
    let (id, now) = (Uuid::new_v4(), tx.now().await?);
    tx.execute(tx.sql.put_pulse, values![id, now]).await?;
    tx.execute(tx.sql.remove_pulse, values![id]).await.map(drop)
}
