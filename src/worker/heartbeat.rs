//! The heartbeat of an attempt: it renews the lease, tells the progress, and stops the attempt when it must.

use super::metrics;
use crate::run::{ClaimToken, Pace, Progress, RunId};
use crate::store::{Change, Renewal, RunStore};
use chrono::Utc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

/// Why an attempt was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// Its lease is lost, or may be by now: it may not say anything about the run any more.
    LeaseLost,
    /// Somebody asked to cancel the run.
    CancelAsked,
    /// This process shuts down.
    Shutdown,
}

/// What is held: a run, under a token, for so long without a renewal.
pub(super) struct Hold {
    pub(super) id: RunId,
    pub(super) token: ClaimToken,
    pub(super) lease: Duration,
    /// When the claim was sent.
    pub(super) since: Instant,
}

/// A running heartbeat; it ends when this is dropped. A renewal that is under way then comes to its end, and nobody is told of it: to break
/// one off would cost a connection to the database, and the next run the time to make another.
pub(super) struct Heartbeat {
    /// Cancelled when the attempt must stop.
    pub(super) stop: CancellationToken,
    why: watch::Receiver<Option<Stop>>,
    over: CancellationToken,
}

impl Heartbeat {
    /// Starts to renew. `changes` were subscribed to before the claim, so that a cancellation right after it is heard;
    /// `shutdown` stops the attempt as [`Stop::Shutdown`].
    pub(super) fn start(
        store: Arc<dyn RunStore>,
        changes: broadcast::Receiver<Change>,
        hold: Hold,
        progress: watch::Receiver<Progress>,
        shutdown: CancellationToken,
    ) -> Self {
        let (stop, over) = (CancellationToken::new(), CancellationToken::new());
        let (tell, why) = watch::channel(None);
        let Hold { id, token, lease, since } = hold;
        let beat =
            Beat { changes, store, id, token, lease, since, progress, pace: Pace::default(), over: over.clone() };
        let stopping = stop.clone();
        let beating = async move {
            let reason = tokio::select! {
                reason = beat.run() => reason,
                () = shutdown.cancelled() => Some(Stop::Shutdown),
            };
            if reason.is_some() {
                tell.send_replace(reason);
                stopping.cancel();
            }
        };
        tokio::spawn(beating.in_current_span());
        Self { stop, why, over }
    }

    /// Why the attempt was told to stop.
    pub(super) fn why(&self) -> Stop {
        self.why.borrow().unwrap_or(Stop::LeaseLost)
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.over.cancel();
    }
}

struct Beat {
    store: Arc<dyn RunStore>,
    changes: broadcast::Receiver<Change>,
    id: RunId,
    token: ClaimToken,
    lease: Duration,
    since: Instant,
    progress: watch::Receiver<Progress>,
    pace: Pace,
    /// The attempt is over.
    over: CancellationToken,
}

impl Beat {
    /// Progress is told at most so often.
    const PROGRESS_EVERY: Duration = Duration::from_millis(500);
    /// A renewal that did not come through is tried again after this.
    const RETRY: Duration = Duration::from_millis(500);
    /// A renewal has a third of the lease, but not less than this, before another one is tried beside the lost answer.
    const LEAST_TRY: Duration = Duration::from_secs(1);

    /// Renews until the attempt must stop, or is over.
    ///
    /// Trust in the lease ends a lease after the last accepted renewal was *sent*, less a margin: however slowly the
    /// answer came, the database cannot have given the lease to another before that. It is a courtesy that saves work;
    /// what protects the table is the token and the publish lock.
    async fn run(mut self) -> Option<Stop> {
        let margin = self.lease / 10;
        let mut trusted_until = self.since + self.lease - margin;
        let mut next = self.since + self.lease / 3;
        loop {
            let over = self.over.clone();
            tokio::select! {
                biased;
                () = over.cancelled() => return None,
                () = self.wait(next) => {}
            }
            let sent = Instant::now();
            let mut progress = self.progress.borrow_and_update().clone();
            progress.estimated_end = self.pace.estimate(&progress, Utc::now());
            let left = trusted_until.saturating_duration_since(sent);
            // Not all of it for one try: a network that is back leads to an answer by another connection only.
            let a_try = left.min(Self::LEAST_TRY.max(self.lease / 3));
            let renewal = self.store.renew(self.id, self.token, self.lease, &progress);
            let answer = tokio::time::timeout(a_try, renewal).await;
            if self.over.is_cancelled() {
                return None;
            }
            match answer {
                Ok(Ok(Renewal::Held)) => {
                    trusted_until = sent + self.lease - margin;
                    next = sent + self.lease / 3;
                }
                Ok(Ok(Renewal::CancelAsked)) => return Some(Stop::CancelAsked),
                Ok(Ok(Renewal::Lost)) => {
                    metrics::renewal_refused();
                    return Some(Stop::LeaseLost);
                }
                Ok(Err(error)) => {
                    tracing::warn!(%error, "the lease could not be renewed, trying again");
                    next = sent + Self::RETRY;
                }
                Err(_) => {
                    tracing::warn!("the lease could not be renewed in time, trying again");
                    next = Instant::now();
                }
            }
            if Instant::now() >= trusted_until {
                return Some(Stop::LeaseLost);
            }
        }
    }

    /// Until the next renewal is due, there is progress to tell, or somebody else changed the run (a cancellation).
    async fn wait(&mut self, due: Instant) {
        let earliest = tokio::time::sleep(Self::PROGRESS_EVERY);
        let changed = async {
            loop {
                match self.changes.recv().await {
                    Ok(Change::Held(id)) if id == self.id => return,
                    Ok(_) => {}
                    // The cancellation may be among what was missed.
                    Err(broadcast::error::RecvError::Lagged(_)) => return,
                    Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
                }
            }
        };
        let progressed = async {
            earliest.await;
            if self.progress.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = tokio::time::sleep_until(due.into()) => {}
            () = changed => {}
            () = progressed => {}
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::run::Stage;
    use crate::store::{SqliteOptions, SqliteStore};
    use metrics_exporter_prometheus::PrometheusBuilder;

    #[tokio::test]
    async fn a_renewal_that_is_refused_stops_the_attempt_and_is_counted() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let _here = ::metrics::set_default_local_recorder(&recorder);
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&dir.path().join("db"), SqliteOptions::default()).await.unwrap();
        let changes = store.changes();
        let lease = Duration::from_secs(60);
        let since = Instant::now().checked_sub(lease / 2).unwrap();
        let nobodys = Hold { id: RunId::new(), token: ClaimToken::new(), lease, since };
        let (_progress, progress) = watch::channel(Progress::at(Stage::Claimed));
        let heartbeat = Heartbeat::start(Arc::new(store), changes, nobodys, progress, CancellationToken::new());
        tokio::time::timeout(lease / 6, heartbeat.stop.cancelled()).await.unwrap();
        let counted = recorder.handle().render();
        assert_eq!(heartbeat.why(), Stop::LeaseLost);
        assert!(counted.contains("refrain_refused_steps_total{step=\"renew\"} 1"), "{counted}");
    }
}
