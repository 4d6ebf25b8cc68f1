//! When what could not be told is tried again.

use std::time::Duration;

/// The delays after each failed try; after the last one it is given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule(Vec<Duration>);

/// The longest that a receiver may ask to be left alone.
const MAX_ASKED: Duration = Duration::from_secs(24 * 60 * 60);

impl Schedule {
    /// In seconds: those that Standard Webhooks suggests. All in all they are three days.
    pub const USUAL_SECONDS: [u32; 9] = [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400];

    /// These delays, in seconds.
    pub fn of_seconds(delays: &[u32]) -> Self {
        Self(delays.iter().map(|seconds| Duration::from_secs((*seconds).into())).collect())
    }

    /// The delay after so many failed tries and one more; none where it is given up. `jitter` in 0..1 adds up to a tenth, so
    /// that those that failed together are not tried together; a receiver that asked to be left alone for longer is.
    pub(super) fn after(&self, tries: u32, jitter: f64, asked: Option<Duration>) -> Option<Duration> {
        let delay = self.0.get(usize::try_from(tries).ok()?)?;
        let spread = delay.mul_f64(1.0 + 0.1 * jitter.clamp(0.0, 1.0));
        Some(spread.max(asked.unwrap_or_default().min(MAX_ASKED)))
    }
}

impl Default for Schedule {
    fn default() -> Self {
        Self::of_seconds(&Self::USUAL_SECONDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_those_of_the_list_and_end_with_it() {
        let schedule = Schedule::of_seconds(&[5, 300]);
        let seconds = |tries, asked: Option<u64>| {
            schedule.after(tries, 0.0, asked.map(Duration::from_secs)).map(|delay| delay.as_secs())
        };
        assert_eq!([seconds(0, None), seconds(1, None), seconds(2, None)], [Some(5), Some(300), None]);
        assert_eq!([seconds(0, Some(60)), seconds(1, Some(60))], [Some(60), Some(300)]);
        assert_eq!(seconds(0, Some(10 * 86_400)), Some(86_400), "nobody is left alone for longer than a day");
        assert_eq!(seconds(2, Some(60)), None, "what is over is over");
        assert!(schedule.after(1, 0.0, None) < schedule.after(1, 1.0, None), "jitter spreads the tries");
    }
}
