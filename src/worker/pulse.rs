//! Whether a worker goes round: for readyz, which has no other way to see a loop that hangs.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What a worker is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// It looks for a run, and came round in time.
    Idle,
    /// It works on one; its heartbeat, or the database, tells whether it gets on.
    Busy,
    /// It should have looked for a run again, so long ago.
    Stuck(Duration),
}

/// Noted by a worker each time that it looks for a run.
#[derive(Debug, Clone)]
pub struct Pulse(Arc<Mutex<Noted>>);

#[derive(Debug)]
struct Noted {
    since: Instant,
    busy: bool,
}

impl Default for Pulse {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Noted { since: Instant::now(), busy: false })))
    }
}

impl Pulse {
    /// The worker is about to look for a run.
    pub(super) fn comes_round(&self) {
        self.note(false);
    }

    /// It has one.
    pub(super) fn has_a_run(&self) {
        self.note(true);
    }

    fn note(&self, busy: bool) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Noted { since: Instant::now(), busy };
    }

    /// How the worker is, where a round may take so long.
    pub fn condition(&self, patience: Duration) -> Condition {
        let noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match (noted.busy, noted.since.elapsed()) {
            (true, _) => Condition::Busy,
            (false, since) if since > patience => Condition::Stuck(since),
            (false, _) => Condition::Idle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_works_is_well_and_who_does_not_come_round_is_not() {
        let pulse = Pulse::default();
        assert_eq!(pulse.condition(Duration::from_secs(60)), Condition::Idle);
        assert!(matches!(pulse.condition(Duration::ZERO), Condition::Stuck(_)));
        pulse.has_a_run();
        assert_eq!(pulse.condition(Duration::ZERO), Condition::Busy);
        pulse.comes_round();
        assert!(matches!(pulse.condition(Duration::ZERO), Condition::Stuck(_)));
    }
}
