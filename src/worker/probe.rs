//! Named steps of an attempt. In production nothing listens; tests stop, delay, kill or fail there.

use super::ending::service_error;
use crate::fault::Faults;
use crate::run::RunError;
use async_trait::async_trait;
use std::borrow::Cow;

/// Where an attempt is, or a worker that looks for one, in the order of its way. Between claimed and staged come the engine's steps, which it tells
/// itself: scanned, and staged one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A run is about to be looked for.
    Claiming,
    /// A run was claimed.
    Claimed,
    /// Every partition is computed and its file staged.
    Staged,
    /// Rows that went into no partition, where there are any to be kept apart, lie where people look for them.
    Quarantined,
    /// What will be published is recorded.
    Decided,
    /// The publish lock is held, and the database said that this worker may publish.
    Locked,
    /// So many partitions are published.
    Published(usize),
    /// The table's manifest is as it will be, where it has one.
    Manifested,
    /// All of them are, and a full run's `_SUCCESS` is there.
    PublishedAll,
    /// The run is finished in the database.
    Finished,
}

impl Step {
    /// Its name, as faults are asked for by.
    pub fn name(self) -> Cow<'static, str> {
        match self {
            Self::Claiming => "claiming".into(),
            Self::Claimed => "claimed".into(),
            Self::Staged => "staged".into(),
            Self::Quarantined => "quarantined".into(),
            Self::Decided => "decided".into(),
            Self::Locked => "locked".into(),
            Self::Published(number) => format!("published-{number}").into(),
            Self::Manifested => "manifested".into(),
            Self::PublishedAll => "published".into(),
            Self::Finished => "finished".into(),
        }
    }
}

/// Hears of steps; the attempt goes on when it returns.
#[async_trait]
pub trait Probe: Send + Sync {
    /// The attempt is at `step`; an error makes the step fail.
    async fn reached(&self, step: Step) -> Result<(), RunError>;
}

/// Nobody listens.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProbe;

#[async_trait]
impl Probe for NoProbe {
    async fn reached(&self, _: Step) -> Result<(), RunError> {
        Ok(())
    }
}

/// Does at each step what [`crate::fault`] was asked for.
#[async_trait]
impl Probe for Faults {
    async fn reached(&self, step: Step) -> Result<(), RunError> {
        let reached = Faults::reached(self, &step.name()).await;
        reached.map_err(|failed| service_error("fault", "A fault was asked for", format!("{failed}: {}", step.name())))
    }
}
