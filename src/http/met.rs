//! Whether something was met lately: a guess that costs little, about the past of this process alone.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::sync::{Mutex, PoisonError};

/// How many are remembered at least, and at most twice as many.
const REMEMBERED: usize = 1 << 14;

/// The last ones that were noted, by their hashes: of two that share one the second is taken for met.
pub(super) struct Met<T> {
    hashes: RandomState,
    noted: Mutex<Noted>,
    of: PhantomData<fn(&T)>,
}

#[derive(Default)]
struct Noted {
    now: HashSet<u64>,
    before: HashSet<u64>,
}

impl<T> Default for Met<T> {
    fn default() -> Self {
        Self { hashes: RandomState::new(), noted: Mutex::default(), of: PhantomData }
    }
}

impl<T: Hash> Met<T> {
    /// Whether it was noted before; it is from now on.
    pub(super) fn note(&self, one: &T) -> bool {
        let hash = self.hashes.hash_one(one);
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.now.len() >= REMEMBERED {
            noted.before = std::mem::take(&mut noted.now);
        }
        !noted.now.insert(hash) || noted.before.contains(&hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_remembered_and_the_first_ones_are_not() {
        let met = Met::default();
        assert_eq!([met.note(&0), met.note(&1), met.note(&0)], [false, false, true]);
        for n in 2..=REMEMBERED {
            assert!(!met.note(&n), "{n}");
        }
        assert!(met.note(&1), "so many are remembered");
        for n in REMEMBERED + 1..4 * REMEMBERED {
            assert!(!met.note(&n), "{n}");
        }
        assert!(!met.note(&0), "not for ever");
    }
}
