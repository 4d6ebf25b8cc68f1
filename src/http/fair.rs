//! How much one principal may ask for, so that it does not take what others need: requests and submissions by time, and places
//! for those that wait.

use super::problem::{Limited, Problem};
use super::{Caller, Limits};
use crate::run::Principal;
use axum::http::Method;
use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// For how many seconds requests may be saved up: a backfill sends what it has at once.
const SAVED_SECONDS: u32 = 10;

/// Where the requests of a second that count are: those to runs and tables. Whether the service lives may always be asked.
const COUNTED: [&str; 2] = ["/runs", "/pipelines"];

/// The routes that queue runs.
const SUBMISSIONS: [&str; 2] = ["/runs", "/runs/{id}/retry"];

/// What each principal has taken.
#[derive(Clone)]
pub struct Fairness(Arc<Taken>);

struct Taken {
    requests: Option<Rate>,
    submissions: Option<Rate>,
    waits: Places,
    streams: Places,
    readers: Places,
    limits: Limits,
}

/// So many, by time.
struct Rate {
    /// As many principals as there are tokens for, so none is ever forgotten.
    limiter: DefaultKeyedRateLimiter<String>,
    limit: String,
}

impl Rate {
    fn new(quota: Quota, limit: String) -> Self {
        Self { limiter: RateLimiter::keyed(quota), limit }
    }

    fn check(&self, principal: &Principal) -> Result<(), Problem> {
        self.limiter.check_key(&principal.0).map_err(|not_until| {
            let wait = not_until.wait_time_from(DefaultClock::default().now());
            let retry_after = u32::try_from(wait.as_secs()).unwrap_or(u32::MAX).saturating_add(1);
            let (principal, limit) = (principal.0.clone(), self.limit.clone());
            Problem::Limited(Limited::Requests { principal, limit, retry_after })
        })
    }
}

/// How many places each principal has of one kind.
struct Places {
    what: &'static str,
    taken: Arc<Mutex<HashMap<String, usize>>>,
}

/// A place of a principal's, until it is dropped.
pub(super) struct Place {
    taken: Arc<Mutex<HashMap<String, usize>>>,
    principal: String,
}

impl Places {
    fn of(what: &'static str) -> Self {
        Self { what, taken: Arc::default() }
    }

    fn take(&self, principal: &Principal, most: usize) -> Result<Place, Problem> {
        let principal = principal.0.clone();
        let mut taken = locked(&self.taken);
        let mine = taken.get(&principal).copied().unwrap_or(0);
        if mine >= most {
            return Err(Problem::Limited(Limited::Waiting { principal, what: self.what, limit: most }));
        }
        taken.insert(principal.clone(), mine + 1);
        Ok(Place { taken: Arc::clone(&self.taken), principal })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = locked(&self.taken);
        match taken.get_mut(&self.principal) {
            Some(mine) if *mine > 1 => *mine -= 1,
            _ => drop(taken.remove(&self.principal)),
        }
    }
}

fn locked(taken: &Mutex<HashMap<String, usize>>) -> MutexGuard<'_, HashMap<String, usize>> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fairness {
    /// Nobody has taken anything.
    pub fn new(limits: &Limits) -> Self {
        let requests = NonZeroU32::new(limits.max_requests_per_second).map(|most| {
            let quota = Quota::per_second(most)
                .allow_burst(most.saturating_mul(NonZeroU32::MIN.saturating_add(SAVED_SECONDS - 1)));
            Rate::new(quota, format!("{most} requests a second, and what {SAVED_SECONDS} seconds allow at once"))
        });
        let submissions = NonZeroU32::new(limits.max_submissions_per_minute)
            .map(|most| Rate::new(Quota::per_minute(most), format!("{most} submissions a minute")));
        Self(Arc::new(Taken {
            requests,
            submissions,
            waits: Places::of("clients that wait for runs"),
            streams: Places::of("streams of events"),
            readers: Places::of("readers of partition files"),
            limits: limits.clone(),
        }))
    }

    /// A place for a request that waits for a run.
    pub(super) fn wait(&self, caller: &Caller) -> Result<Place, Problem> {
        let most = match self.0.limits.max_waiting_clients {
            0 => usize::MAX,
            most => most as usize,
        };
        self.0.waits.take(&caller.principal, most)
    }

    /// A place among the streams of events.
    pub(super) fn stream(&self, caller: &Caller) -> Result<Place, Problem> {
        self.0.streams.take(&caller.principal, self.share(caller, self.0.limits.max_event_streams))
    }

    /// A place among those whose rows are read.
    pub(super) fn reader(&self, caller: &Caller) -> Result<Place, Problem> {
        self.0.readers.take(&caller.principal, self.share(caller, self.0.limits.max_readers as usize))
    }

    /// What a principal may have of so many. Where there are no tokens there is nobody else, and the server's own limit says it.
    fn share(&self, caller: &Caller, of: usize) -> usize {
        match caller.token {
            None => usize::MAX,
            Some(_) => (of * self.0.limits.principal_share_percent as usize / 100).max(1),
        }
    }
}

impl Fairness {
    /// Refuses what a principal asks too often.
    pub(super) fn check(&self, caller: &Caller, method: &Method, route: &str) -> Result<(), Problem> {
        if COUNTED.iter().any(|counted| route.starts_with(counted))
            && let Some(requests) = &self.0.requests
        {
            requests.check(&caller.principal)?;
        }
        if method == Method::POST
            && SUBMISSIONS.contains(&route)
            && let Some(submissions) = &self.0.submissions
        {
            submissions.check(&caller.principal)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use crate::access::TokenId;
    use crate::http::Bearer;

    fn caller(principal: &str, is_known: bool) -> Caller {
        let anybody = Caller::anybody();
        let token = is_known.then(|| TokenId::parse("0123456789abcdef").unwrap());
        let (scope, pipelines) = (anybody.scope, None);
        Caller::of(Bearer { principal: Principal(principal.to_owned()), scope, pipelines, token })
    }

    #[test]
    fn one_principal_leaves_places_to_others() {
        let limits = Limits { max_event_streams: 4, max_readers: 1, max_waiting_clients: 3, ..Limits::default() };
        let fairness = Fairness::new(&limits);
        let (a, b) = (caller("a", true), caller("b", true));
        let first = fairness.stream(&a).unwrap();
        let _second = fairness.stream(&a).unwrap();
        let refused = fairness.stream(&a).err();
        let (principal, what) = ("a".to_owned(), "streams of events");
        assert_eq!(refused, Some(Problem::Limited(Limited::Waiting { principal, what, limit: 2 })));
        let _others = fairness.stream(&b).unwrap();
        drop(first);
        let _again = fairness.stream(&a).unwrap();
        assert!(fairness.reader(&a).is_ok(), "the half of one is one");
        let waits: Vec<_> = (0..4).map(|_| fairness.wait(&a)).collect();
        assert_eq!(waits.iter().filter(|wait| wait.is_ok()).count(), 3);
        assert!(fairness.wait(&b).is_ok());
    }

    #[test]
    fn without_tokens_there_is_nobody_else() {
        let fairness = Fairness::new(&Limits { max_event_streams: 4, ..Limits::default() });
        let anybody = caller("default", false);
        let places: Vec<_> = (0..5).map(|_| fairness.stream(&anybody)).collect();
        assert!(places.iter().all(Result::is_ok), "how many there may be is the server's own limit");
    }

    #[test]
    fn rates_are_each_principals_own() {
        let rate = Rate::new(Quota::per_minute(NonZeroU32::MIN.saturating_add(1)), "2 a minute".to_owned());
        let (a, b) = (Principal("a".to_owned()), Principal("b".to_owned()));
        assert!(rate.check(&a).is_ok() && rate.check(&a).is_ok());
        let Err(Problem::Limited(Limited::Requests { retry_after, .. })) = rate.check(&a) else {
            panic!("a third one was let through")
        };
        assert!((28..=31).contains(&retry_after), "{retry_after}");
        assert!(rate.check(&b).is_ok());
    }
}
