//! Waiting for a run's end: `?wait=30`, or `Prefer: wait=30`.

use super::find;
use crate::http::params::Params;
use crate::http::problem::Problem;
use crate::http::{Api, Limits};
use crate::run::{Run, RunId};
use crate::store::Change;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;
use std::time::Duration;
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio::time::Instant;
use uuid::Uuid;

const PREFER: HeaderName = HeaderName::from_static("prefer");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// How long a wait relies on wake-ups before it looks again by itself, on average.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long a request waits for a run's end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    time: Duration,
    /// The seconds of the preference, where it was that and no parameter.
    preferred: Option<u32>,
}

impl Wait {
    /// What the parameter says, or else the preference, which is cut to the limit as preferences may be.
    pub(super) fn asked(params: &Params, headers: &HeaderMap, limits: &Limits) -> Result<Self, Problem> {
        let max = limits.max_wait_seconds;
        let asked = params.read("wait", |text| match text.parse::<f64>() {
            Ok(seconds) if (0.0..=f64::from(max)).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
            _ => Err(format!("found {text:?}, expected seconds from 0 to {max}")),
        })?;
        let preferred = preferred_wait(headers).map(|seconds| seconds.min(max)).filter(|_| asked.is_none());
        let time = asked.unwrap_or_else(|| Duration::from_secs(preferred.unwrap_or(0).into()));
        Ok(Self { time, preferred })
    }

    /// Whether there is nothing to wait for.
    pub(super) fn is_none(&self) -> bool {
        self.time.is_zero()
    }

    /// The run when it has ended, when the time is up or when the service shuts down.
    pub(super) async fn for_end(&self, api: &Api, id: RunId) -> Result<Run, Problem> {
        let deadline = Instant::now() + self.time;
        let mut changes = api.store.changes();
        while !self.is_none() {
            // The state alone: the whole run may be large, and is read once at the end.
            let state = api.store.state(id).await?.ok_or_else(|| Problem::NoSuchRun(id.to_string()))?;
            let left = deadline.saturating_duration_since(Instant::now());
            if state.is_ended() || left.is_zero() || api.shutdown.is_cancelled() {
                break;
            }
            tokio::select! {
                () = change_of(&mut changes, id) => {}
                () = tokio::time::sleep(left.min(look_after())) => {}
                () = api.shutdown.cancelled() => {}
            }
        }
        find(api, &id.to_string()).await
    }

    /// Says in the answer that the preference was heeded.
    pub(super) fn mark(&self, response: &mut Response) {
        let applied = self.preferred.map(|seconds| HeaderValue::from_str(&format!("wait={seconds}")));
        if let Some(Ok(applied)) = applied {
            response.headers_mut().insert(PREFERENCE_APPLIED, applied);
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

/// Spread over half of the time either side, so that those who wait do not look all at once.
fn look_after() -> Duration {
    let random = f64::from(Uuid::new_v4().as_fields().0) / f64::from(u32::MAX);
    LOOK_EVERY.mul_f64(0.5 + random)
}

/// Returns when this run may have changed.
async fn change_of(changes: &mut Receiver<Change>, id: RunId) {
    loop {
        match changes.recv().await {
            Ok(Change::Run(changed)) if changed == id => return,
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => return,
            // Nobody sends any more; the caller's timer goes on.
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
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
