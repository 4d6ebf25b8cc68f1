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
            let _ = self.payload(&change).map(|payload| others.try_send(payload));
        }
        let _ = self.local.send(change);
    }

    /// A change as the payload of a notification; none where others take it from another one.
    fn payload(&self, change: &Change) -> Option<String> {
        match change {
            Change::Run(id) => Some(format!("{} run {id}", self.origin)),
            Change::Held(_) => None,
            Change::Queue => Some(format!("{} queue", self.origin)),
        }
    }

    /// Tells this process's waiters what another process tells of. That one holds no run that is held here.
    pub(super) fn hear(&self, payload: &str) {
        let Some(change) = self.heard(payload) else { return };
        if let Change::Run(id) = change {
            let _ = self.local.send(Change::Held(id));
        }
        let _ = self.local.send(change);
    }

    /// The change in another process's payload; none in one's own and in what this version cannot read.
    fn heard(&self, payload: &str) -> Option<Change> {
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
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn others_are_heard_and_oneself_is_not() {
        let (mine, other) = (Bus::new(), Bus::new());
        let id = RunId::new();
        let heard = |bus: &Bus, payload: &str| {
            let mut changes = bus.local.subscribe();
            bus.hear(payload);
            std::iter::from_fn(|| changes.try_recv().ok()).collect::<Vec<_>>()
        };
        for (change, told) in
            [(Change::Queue, vec![Change::Queue]), (Change::Run(id), vec![Change::Held(id), Change::Run(id)])]
        {
            let payload = mine.payload(&change).unwrap();
            assert_eq!(heard(&other, &payload), told);
            assert_eq!(heard(&mine, &payload), []);
        }
        assert_eq!(mine.payload(&Change::Held(id)), None);
        assert_eq!(heard(&mine, "gibberish"), []);
    }
}
