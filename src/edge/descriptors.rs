//! How many files and connections the process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What is kept for files, the database and engines.
const KEPT_BACK: u64 = 256;

/// The descriptors of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptors(Option<u64>);

impl Descriptors {
    /// Raises the limit of this process as far as it may itself: what shells and supervisors set is for programs that cannot
    /// have more than a thousand.
    pub fn raise() -> Self {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
            Ok(()) => Self(maximum),
            Err(_) => Self(current),
        }
    }

    /// How many connections they are enough for, of so many.
    pub fn connections(self, most: usize) -> usize {
        let Some(limit) = self.0 else { return most };
        // Where there are next to none, some are better than no service.
        let enough = usize::try_from(limit.saturating_sub(KEPT_BACK).max(limit / 2)).unwrap_or(most);
        if enough < most {
            tracing::warn!(
                limit,
                connections = enough,
                asked = most,
                "the limit on open files allows fewer connections"
            );
        }
        most.min(enough)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_are_kept_back() {
        assert_eq!(Descriptors(None).connections(9_000), 9_000);
        assert_eq!(Descriptors(Some(1_000_000)).connections(9_000), 9_000);
        assert_eq!(Descriptors(Some(1_024)).connections(9_000), 768);
        assert_eq!(Descriptors(Some(100)).connections(9_000), 50);
    }
}
