//! When a failed attempt is tried again.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What kind of failure it was; decided where it arises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// A source is missing, unreachable, or changed while it was read.
    Source,
    /// The database or the disk.
    Service,
    /// The contract, an expression, an overflow, too many rejected rows: trying again changes nothing.
    Compute,
    /// The worker or its engine died; these have a count of their own.
    Lost,
}

impl FailureClass {
    /// The class's name on the wire and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            FailureClass::Source => "source",
            FailureClass::Service => "service",
            FailureClass::Compute => "compute",
            FailureClass::Lost => "lost",
        }
    }
}

/// How one class of failure is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RetryRule {
    /// Attempts in all, the first included.
    pub attempts: u32,
    /// The delay before the second attempt; none takes the server's setting.
    pub delay_seconds: Option<u32>,
    /// The longest delay.
    pub max_delay_seconds: u32,
}

impl RetryRule {
    /// The delay after the `failures`-th failure of this class, doubled each time up to the longest, or none where the
    /// attempts are used up. `jitter` in 0..1 spreads it over the upper half. Where the other side asked for so many
    /// seconds, it is at least as long, but never longer than the longest.
    pub fn delay(
        &self,
        failures: u32,
        default_delay_seconds: u32,
        jitter: f64,
        asked_seconds: Option<u32>,
    ) -> Option<Duration> {
        if failures >= self.attempts {
            return None;
        }
        let first = f64::from(self.delay_seconds.unwrap_or(default_delay_seconds));
        let doubled = first * 2f64.powi(i32::try_from(failures.saturating_sub(1).min(30)).unwrap_or(30));
        let capped = doubled.min(f64::from(self.max_delay_seconds));
        let asked = Duration::from_secs(asked_seconds.unwrap_or(0).min(self.max_delay_seconds).into());
        Some(Duration::from_secs_f64(capped * (0.75 + 0.25 * jitter.clamp(0.0, 1.0))).max(asked))
    }
}

/// The retry rules of a pipeline. Compute failures are not retried unless the pipeline says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// For [`FailureClass::Source`].
    pub source: RetryRule,
    /// For [`FailureClass::Service`].
    pub service: RetryRule,
    /// For [`FailureClass::Compute`].
    pub compute: RetryRule,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        let patient = RetryRule { attempts: 4, delay_seconds: None, max_delay_seconds: 600 };
        Self {
            source: patient,
            service: patient,
            compute: RetryRule { attempts: 1, delay_seconds: None, max_delay_seconds: 600 },
        }
    }
}

impl RetryPolicy {
    /// The rule for a class; lost workers and engines are counted by the store and have no rule.
    pub fn rule(&self, class: FailureClass) -> RetryRule {
        match class {
            FailureClass::Source => self.source,
            FailureClass::Service | FailureClass::Lost => self.service,
            FailureClass::Compute => self.compute,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest_and_stop_with_the_attempts() {
        let rule = RetryRule { attempts: 4, delay_seconds: None, max_delay_seconds: 100 };
        let seconds = |n| rule.delay(n, 30, 1.0, None).map(|d| d.as_secs());
        assert_eq!([seconds(1), seconds(2), seconds(3), seconds(4)], [Some(30), Some(60), Some(100), None]);
        assert!(rule.delay(1, 30, 0.0, None) < rule.delay(1, 30, 1.0, None), "jitter spreads the retries");
        let asked = |n, seconds| rule.delay(n, 30, 0.0, Some(seconds)).map(|d| d.as_secs());
        assert_eq!([asked(1, 5), asked(1, 70), asked(1, 1000), asked(4, 5)], [Some(22), Some(70), Some(100), None]);
    }
}
