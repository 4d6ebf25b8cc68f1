//! Named steps of an attempt. In production nothing listens; tests stop, delay or kill there.

use async_trait::async_trait;

/// Where an attempt is, in the order of its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A run was claimed.
    Claimed,
    /// Every partition is computed and its file staged.
    Staged,
    /// What will be published is recorded.
    Decided,
    /// The publish lock is held, and the database said that this worker may publish.
    Locked,
    /// So many partitions are published.
    Published(usize),
    /// All of them are.
    PublishedAll,
    /// The run is finished in the database.
    Finished,
}

/// Hears of steps; the attempt goes on when it returns.
#[async_trait]
pub trait Probe: Send + Sync {
    /// The attempt is at `step`.
    async fn reached(&self, step: Step);
}

/// Nobody listens.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProbe;

#[async_trait]
impl Probe for NoProbe {
    async fn reached(&self, _: Step) {}
}
