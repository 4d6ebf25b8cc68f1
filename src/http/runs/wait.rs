//! Waiting for a run's end: `?wait=30`, or `Prefer: wait=30`.

use super::shown::Shown;
use super::stored_run;
use crate::http::fair::Place;
use crate::http::params::Params;
use crate::http::problem::Problem;
use crate::http::{Api, Caller, Limits, Server};
use crate::run::RunId;
use crate::telemetry::{InUse, METRIC_WAITERS};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;
use std::sync::Arc;
use std::time::Duration;

const PREFER: HeaderName = HeaderName::from_static("prefer");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// How long a request waits for a run's end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    time: Duration,
    /// The seconds of the preference, where it was that and no parameter.
    preferred: Option<u32>,
}

impl Wait {
    /// What the parameter says, or else the preference; either is cut to the limit.
    pub(super) fn asked(params: &Params, headers: &HeaderMap, limits: &Limits) -> Result<Self, Problem> {
        let max = limits.max_wait_seconds;
        let asked = params.read("wait", |text| match text.parse::<f64>() {
            Ok(seconds) if seconds >= 0.0 && seconds.is_finite() => {
                Ok(Duration::from_secs_f64(seconds.min(f64::from(max))))
            }
            _ => Err(format!("found {text:?}, expected seconds, 0 or more")),
        })?;
        let preferred = preferred_wait(headers).map(|seconds| seconds.min(max)).filter(|_| asked.is_none());
        let time = asked.unwrap_or_else(|| Duration::from_secs(preferred.unwrap_or(0).into()));
        Ok(Self { time, preferred })
    }

    /// Whether there is nothing to wait for.
    pub(super) fn is_none(&self) -> bool {
        self.time.is_zero()
    }

    /// A place for who waits; none where there is nothing to wait for.
    pub(super) fn place(&self, api: &Api, caller: &Caller) -> Result<Option<Place>, Problem> {
        if self.is_none() { Ok(None) } else { api.fairness.wait(caller).map(Some) }
    }

    /// The same with a place, or else no wait at all: what is asked beside it is done all the same.
    pub(super) fn if_there_is_room(self, api: &Api, caller: &Caller) -> (Self, Option<Place>) {
        match self.place(api, caller) {
            Ok(place) => (self, place),
            Err(_) => (Self { time: Duration::ZERO, preferred: None }, None),
        }
    }

    /// The run when it has ended, when the time is up or when the service shuts down.
    pub(super) async fn for_end(&self, api: &Server, id: RunId) -> Result<Arc<Shown>, Problem> {
        if !self.is_none() && !api.shutdown.is_cancelled() {
            let _one_more = InUse::of(METRIC_WAITERS);
            tokio::select! {
                ended = end(api, id) => return ended,
                () = tokio::time::sleep(self.time) => {}
                () = api.shutdown.cancelled() => {}
            }
        }
        Shown::of(&*stored_run(api, id).await?).map(Arc::new)
    }

    /// Says in the answer that the preference was heeded.
    pub(super) fn mark(&self, response: &mut Response) {
        let applied = self.preferred.map(|seconds| HeaderValue::from_str(&format!("wait={seconds}")));
        if let Some(Ok(applied)) = applied {
            response.headers_mut().insert(PREFERENCE_APPLIED, applied);
        }
    }
}

/// The run, once it has ended.
async fn end(api: &Api, id: RunId) -> Result<Arc<Shown>, Problem> {
    let mut watcher = api.watches.watch(id);
    loop {
        if let Some(shown) = watcher.next().await?.ended(&*api.store).await? {
            return Ok(shown);
        }
    }
}

/// The wait of a `Prefer` header (RFC 7240); what cannot be read is ignored, as preferences are.
fn preferred_wait(headers: &HeaderMap) -> Option<u32> {
    let values = headers.get_all(PREFER).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split([',', ';'])).find_map(|preference| {
        let (name, value) = preference.split_once('=')?;
        name.trim().eq_ignore_ascii_case("wait").then(|| value.trim().trim_matches('"').parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preference_is_found_among_others() {
        let with = |value: &'static str| HeaderMap::from_iter([(PREFER, HeaderValue::from_static(value))]);
        assert_eq!(preferred_wait(&with("respond-async, wait=10")), Some(10));
        assert_eq!(preferred_wait(&with("Wait = \"7\"")), Some(7));
        assert_eq!(preferred_wait(&with("wait=soon")), None);
        assert_eq!(preferred_wait(&HeaderMap::new()), None);
    }
}
