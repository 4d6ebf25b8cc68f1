//! At start, what tables sum up to is counted anew: where a version before has kept no sum, and to mend what is wrong.
//! Every server does so, whether it has workers or not: where several do at once, each finds what the one before has kept.

use crate::store::{RunStore, StoreResult};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long after a failure it is tried again.
const AGAIN: Duration = Duration::from_secs(10);

/// Counts until it is done, then waits for `shutdown`.
pub(super) async fn run(store: Arc<dyn RunStore>, shutdown: CancellationToken) {
    while let Err(error) = settle(store.as_ref(), &shutdown).await {
        tracing::warn!(%error, "the sums of tables could not be counted, trying again later");
        tokio::select! {
            () = tokio::time::sleep(AGAIN) => {}
            () = shutdown.cancelled() => return,
        }
    }
    shutdown.cancelled().await;
}

async fn settle(store: &dyn RunStore, shutdown: &CancellationToken) -> StoreResult<()> {
    for depth in store.queue_depth().await?.pipelines {
        if shutdown.is_cancelled() {
            break;
        }
        if store.settle_sum(&depth.pipeline).await? {
            tracing::error!(pipeline = depth.pipeline, "the sum of the table was wrong, it is mended");
        }
    }
    Ok(())
}
