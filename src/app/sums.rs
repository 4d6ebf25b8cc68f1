//! At start, what tables sum up to is counted anew: where a version before has kept no sum, and to mend what is wrong.
//! Every server does so, whether it has workers or not: where several do at once, each finds what the one before has kept.

use crate::store::RunStore;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long after a failure it is tried again.
const AGAIN: Duration = Duration::from_secs(10);

/// Counts until it is done, then waits for `shutdown`.
pub(super) async fn run(store: Arc<dyn RunStore>, shutdown: CancellationToken) {
    let mut left = None;
    while let Err(error) = settle(store.as_ref(), &mut left, &shutdown).await {
        tracing::warn!(error = format!("{error:#}"), "the sums of tables could not be counted, trying again later");
        tokio::select! {
            () = tokio::time::sleep(AGAIN) => {}
            () = shutdown.cancelled() => return,
        }
    }
    shutdown.cancelled().await;
}

/// Counts those that are left, all of them at first. One that cannot be counted does not hold up the others.
async fn settle(
    store: &dyn RunStore,
    left: &mut Option<Vec<String>>,
    shutdown: &CancellationToken,
) -> anyhow::Result<()> {
    let pipelines = match left.take() {
        Some(left) => left,
        None => store.queue_depth().await?.pipelines.into_iter().map(|depth| depth.pipeline).collect(),
    };
    let (mut failed, mut why) = (Vec::new(), None);
    for pipeline in pipelines {
        if shutdown.is_cancelled() {
            return Ok(());
        }
        match store.settle_sum(&pipeline).await {
            Ok(false) => {}
            Ok(true) => tracing::error!(pipeline, "the sum of the table was wrong, it is mended"),
            Err(error) => {
                why.get_or_insert(anyhow::Error::new(error).context(format!("the table of {pipeline:?}")));
                failed.push(pipeline);
            }
        }
    }
    *left = Some(failed);
    why.map_or(Ok(()), Err)
}
