//! Telling those who wait of what has changed.

use super::Change;
use crate::run::RunId;
use tokio::sync::{broadcast, mpsc};
use uuid::Uuid;

/// Tells this process's and, on Postgres, the other processes' waiters what has changed.
#[derive(Debug, Clone)]
pub(super) struct Bus {
    /// Waiters in this process.
    pub(super) local: broadcast::Sender<Change>,
    /// Names this process in notifications, so that it does not hear itself.
    pub(super) origin: Uuid,
    /// Payloads for other processes; none where there are no others.
    pub(super) others: Option<mpsc::Sender<String>>,
}

impl Bus {
    /// How many changes a slow waiter may be behind.
    const CAPACITY: usize = 1024;

    /// The channel of Postgres.
    pub(super) const CHANNEL: &'static str = "refrain";

    pub(super) fn new() -> Self {
        Self { local: broadcast::channel(Self::CAPACITY).0, origin: Uuid::new_v4(), others: None }
    }

    /// Tells waiters of a change that is committed. No receiver is no error: nobody waits. Nor is a full channel: whoever misses a
    /// wake-up polls.
    pub(super) fn tell(&self, change: Change) {
        if let Some(others) = &self.others {
            let _ = others.try_send(self.payload(&change));
        }
        let _ = self.local.send(change);
    }

    /// A change as the payload of a notification.
    pub(super) fn payload(&self, change: &Change) -> String {
        match change {
            Change::Run(id) => format!("{} run {id}", self.origin),
            Change::Queue => format!("{} queue", self.origin),
        }
    }

    /// The change in another process's payload; none in one's own and in what this version cannot read.
    pub(super) fn heard(&self, payload: &str) -> Option<Change> {
        let (origin, change) = payload.split_once(' ')?;
        if Uuid::parse_str(origin).ok()? == self.origin {
            return None;
        }
        match change.split_once(' ') {
            None if change == "queue" => Some(Change::Queue),
            Some(("run", id)) => Uuid::parse_str(id).ok().map(|id| Change::Run(RunId(id))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_heard_and_oneself_is_not() {
        let (mine, other) = (Bus::new(), Bus::new());
        for change in [Change::Queue, Change::Run(RunId::new())] {
            assert_eq!(other.heard(&mine.payload(&change)), Some(change.clone()));
            assert_eq!(mine.heard(&mine.payload(&change)), None);
        }
        assert_eq!(mine.heard("gibberish"), None);
    }
}
