//! `GET /runs/{id}/events`: a run's way to its end as server-sent events.
//!
//! There is no log of events. What a stream tells is how the run is now, where that is not what its client was told last; the
//! id of each event says what that was, so that any server of the fleet can go on from there.

use super::watch::{Look, Watcher};
use super::{check_seen, parse_id};
use crate::http::accept::Accept;
use crate::http::answer::digest;
use crate::http::fair::Place;
use crate::http::params::Params;
use crate::http::problem::{Problem, ProblemDetails};
use crate::http::wire::{EventView, ProgressView, StateView};
use crate::http::{Caller, Server};
use crate::store::Glance;
use crate::telemetry::{InUse, METRIC_EVENT_STREAMS};
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::error::SendTimeoutError;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::Instant;

const MEDIA_TYPE: &str = "text/event-stream";
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Asks proxies of a well-known kind to pass on what they get at once.
const NO_BUFFERING: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));

/// When a client comes back whose stream has broken off.
const RETRY: &[u8] = b"retry: 2000\n\n";

/// A comment, which says that the stream is there.
const HEARTBEAT: &[u8] = b":\n\n";

/// Before a run is looked at anew whose looks have broken.
const AFTER_A_BREAK: Duration = Duration::from_secs(1);

/// Follows a run to its end by server-sent events.
///
/// `state` comes first and whenever the run's state, attempt or error is another; `progress` as the run gets on, about once a second;
/// `end`, whose data is the run as `GET /runs/{id}` shows it (or the problem, with its `state`, where it cannot be read), when it has ended, and then the stream is over. A comment comes
/// where nothing else has for 15 seconds. A client that comes back with `Last-Event-ID`, to whatever server, is told what it has not been told:
/// the state where it is not the one that it knows, and always the last one and the end. Progress in between, and states that the
/// run has left again by then, are not told one by one. An id that is not known is as none.
#[utoipa::path(get, path = "/runs/{id}/events", operation_id = "follow_run", tag = "runs",
    params(
        ("id" = Uuid, Path, description = "The run's id"),
        ("Last-Event-ID" = Option<String>, Header, description = "The id of the last event that the client was told"),
    ),
    responses(
        (status = 200, description = "The events, one after the other", body = EventView<'_>, content_type = "text/event-stream", headers(
            ("Cache-Control" = String, description = "`no-store`"),
            ("X-Accel-Buffering" = String, description = "`no`"),
        )),
        (status = 204, description = "The client was told the run's end: it need not come back"),
        (status = 400, description = "The query cannot be read", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 404, description = "There is no such run", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 406, description = "`Accept` does not have `text/event-stream`", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 429, description = "As many streams of the principal are open as may be, or it asks too often; `Retry-After` says when \
            to come back", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 503, description = "Too many streams are open, or the database does not answer", body = ProblemDetails,
            content_type = "application/problem+json"),
    ),
)]
pub(super) async fn events(
    State(api): State<Server>,
    Path(id): Path<String>,
    caller: Caller,
    params: Params,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    params.only(&[])?;
    let id = parse_id(&id)?;
    if Accept::of(&headers).weight(MEDIA_TYPE) == 0.0 {
        return Err(Problem::NotAcceptable { available: vec![MEDIA_TYPE] });
    }
    check_seen(&api, &caller, id).await?;
    let told = Told::by(headers.get(&LAST_EVENT_ID));
    let mut watcher = api.watches.watch(id);
    let first = watcher.next().await?;
    let no_store = (header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if told.is_over(first.events()?) {
        return Ok((StatusCode::NO_CONTENT, [no_store]).into_response());
    }
    let places = (api.watches.place()?, api.fairness.stream(&caller)?);
    let until = Instant::now() + Duration::from_secs(api.limits.max_event_stream_seconds);
    let frames = VecDeque::from([Bytes::from_static(RETRY)]);
    let telling = Telling {
        api,
        watcher,
        look: Some(first),
        told,
        frames,
        is_over: false,
        until,
        _places: places,
        _counted: InUse::of(METRIC_EVENT_STREAMS),
    };
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    let (client, mut taken) = mpsc::channel(1);
    tokio::spawn(telling.tell(client));
    let body = Body::from_stream(futures::stream::poll_fn(move |context| taken.poll_recv(context)));
    Ok(([kind, no_store, NO_BUFFERING], body).into_response())
}

/// What a look at a run has to tell, as it is sent.
pub(super) struct Events {
    state: Event,
    progress: Option<Event>,
    /// The last event without its data and the empty line after it.
    end: Bytes,
}

struct Event {
    /// What tells it from others of its kind.
    tag: String,
    frame: Bytes,
}

impl Events {
    /// Of the run as it is.
    pub(super) fn of(glance: &Glance) -> Result<Self, Problem> {
        let encode = |error: serde_json::Error| {
            tracing::error!(%error, "an event cannot be written as JSON");
            Problem::Internal
        };
        let data = serde_json::to_string(&StateView::from(glance)).map_err(encode)?;
        // A retry by request is another way through the same states.
        let tag = short(&format!("{} {data}", glance.sequence));
        let state = Event { frame: EventView { event: "state", id: &tag, data: &data }.frame().into(), tag };
        let progress = match &glance.progress {
            Some(progress) => {
                let data = serde_json::to_string(&ProgressView::from(progress)).map_err(encode)?;
                let tag = short(&data);
                let id = format!("{}.{tag}", state.tag);
                Some(Event { frame: EventView { event: "progress", id: &id, data: &data }.frame().into(), tag })
            }
            None => None,
        };
        let end = format!("event: end\nid: {}.{END}\ndata: ", state.tag);
        Ok(Self { progress, end: end.into(), state })
    }
}

fn short(text: &str) -> String {
    let mut digest = digest(text.as_bytes());
    digest.truncate(16);
    digest
}

/// Stands in an id for the tag of a progress once the end was told.
const END: &str = "end";

/// What a client was told last.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    state: String,
    /// Of that state the progress, or [`END`].
    progress: String,
}

impl Told {
    /// By the id of the last event; another one that we did not give is like nothing.
    fn by(id: Option<&HeaderValue>) -> Self {
        let id = id.and_then(|id| id.to_str().ok()).unwrap_or_default();
        let (state, progress) = id.split_once('.').unwrap_or((id, ""));
        Self { state: state.to_owned(), progress: progress.to_owned() }
    }

    /// Whether nothing more will be told of a run that is so.
    fn is_over(&self, events: &Events) -> bool {
        self.state == events.state.tag && self.progress == END
    }

    /// Takes what was not told yet, but for the end.
    fn take(&mut self, events: &Events, frames: &mut VecDeque<Bytes>) {
        if self.state != events.state.tag {
            frames.push_back(events.state.frame.clone());
            *self = Self { state: events.state.tag.clone(), progress: String::new() };
        }
        if let Some(progress) = events.progress.as_ref().filter(|progress| progress.tag != self.progress) {
            frames.push_back(progress.frame.clone());
            self.progress.clone_from(&progress.tag);
        }
    }
}

/// A stream that is told.
struct Telling {
    api: Server,
    watcher: Watcher,
    /// What is to be told next.
    look: Option<Arc<Look>>,
    told: Told,
    frames: VecDeque<Bytes>,
    is_over: bool,
    until: Instant,
    _places: (OwnedSemaphorePermit, Place),
    _counted: InUse,
}

impl Telling {
    /// Tells all, until it is over, the client goes away, or it takes nothing for so long that its place is another's.
    async fn tell(mut self, client: mpsc::Sender<io::Result<Bytes>>) {
        let patience = Duration::from_secs(self.api.limits.request_timeout_seconds);
        loop {
            let next = tokio::select! {
                next = self.next() => next,
                () = client.closed() => return,
            };
            // Its place is free before its client knows that it is over.
            let Some(frame) = next else { return drop(self) };
            match client.send_timeout(Ok(frame), patience).await {
                Ok(()) => {}
                Err(SendTimeoutError::Closed(_)) => return,
                Err(SendTimeoutError::Timeout(_)) => break,
            }
        }
        tracing::info!("a client took no more of a run's events and was given up");
        drop(self);
        // Told once there is room for it: the events must not look whole.
        let _ = client.send(Err(io::ErrorKind::TimedOut.into())).await;
    }

    /// What is sent next; none at the end.
    async fn next(&mut self) -> Option<Bytes> {
        let heartbeat = Instant::now() + Duration::from_secs(self.api.limits.event_heartbeat_seconds);
        loop {
            if let Some(look) = self.look.take() {
                self.take(&look).await?;
            }
            if let Some(frame) = self.frames.pop_front() {
                return Some(frame);
            }
            if self.is_over {
                return None;
            }
            tokio::select! {
                look = self.watcher.next() => match look {
                    Ok(look) => self.look = Some(look),
                    Err(Problem::NoSuchRun(_)) => return None,
                    // A client would not come back where it is refused; so it is kept until the database is back.
                    Err(_) if self.watcher.is_cut_off() => {
                        tokio::time::sleep(AFTER_A_BREAK).await;
                        self.watcher = self.api.watches.watch(self.watcher.run());
                    }
                    Err(_) => {}
                },
                () = tokio::time::sleep_until(heartbeat) => return Some(Bytes::from_static(HEARTBEAT)),
                () = tokio::time::sleep_until(self.until) => return None,
                () = self.api.shutdown.cancelled() => return None,
            }
        }
    }

    async fn take(&mut self, look: &Look) -> Option<()> {
        let events = look.events().ok()?;
        self.told.take(events, &mut self.frames);
        let end = match look.ended(&*self.api.store).await {
            Ok(Some(shown)) => shown.body().clone(),
            // It has ended, and no further look would tell more.
            Err(problem @ Problem::UnreadableRun(_)) => problem.json(),
            // Where it cannot be read now, it is looked at again.
            Ok(None) | Err(_) => return Some(()),
        };
        self.frames.extend([events.end.clone(), end, Bytes::from_static(b"\n\n")]);
        self.is_over = true;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::run::{Progress, RunId, Stage, State as RunState};

    fn glance(state: RunState, sequence: i64, rows_read: u64) -> Glance {
        let progress = Progress { rows_read, ..Progress::at(Stage::Scanning) };
        let due_at = chrono::DateTime::UNIX_EPOCH;
        let (id, progress) = (RunId::default(), (rows_read > 0).then_some(progress));
        Glance { id, state, attempt: 1, sequence, cancel_requested: false, progress, error: None, due_at }
    }

    /// The names of the events that a client is told who was told `last`, and the id of the last one.
    fn told(last: &str, glance: &Glance) -> (Vec<String>, String) {
        let (events, mut frames) = (Events::of(glance).unwrap(), VecDeque::new());
        let mut told = Told::by(Some(&HeaderValue::from_str(last).unwrap()));
        told.take(&events, &mut frames);
        let (mut names, mut id) = (Vec::new(), last.to_owned());
        for frame in frames {
            let text = String::from_utf8(frame.to_vec()).unwrap();
            let lines: Vec<&str> = text.split('\n').collect();
            assert_eq!((lines.len(), lines[3], lines[4]), (5, "", ""), "{text:?}");
            names.push(lines[0].strip_prefix("event: ").unwrap().to_owned());
            id = lines[1].strip_prefix("id: ").unwrap().to_owned();
        }
        (names, id)
    }

    #[test]
    fn who_comes_back_is_told_what_is_new() {
        use RunState::{Cancelled, Queued, Running};
        let (names, queued) = told("", &glance(Queued, 1, 0));
        assert_eq!(names, ["state"]);
        assert_eq!(told(&queued, &glance(Queued, 1, 0)).0, [""; 0]);
        let (names, running) = told(&queued, &glance(Running, 1, 5));
        assert_eq!(names, ["state", "progress"]);
        assert_eq!(told(&running, &glance(Running, 1, 5)).0, [""; 0]);
        assert_eq!(told(&running, &glance(Running, 1, 6)).0, ["progress"]);
        assert_eq!(told("something else", &glance(Running, 1, 6)).0, ["state", "progress"]);
        let (_, cancelled) = told(&running, &glance(Cancelled, 1, 6));
        assert_eq!(
            told(&cancelled, &glance(Cancelled, 2, 6)).0,
            ["state", "progress"],
            "cancelled, retried and cancelled"
        );
    }

    #[test]
    fn only_the_end_is_the_end() {
        let ended = Events::of(&glance(RunState::Succeeded, 1, 6)).unwrap();
        let id = |text: String| Told::by(Some(&HeaderValue::from_str(&text).unwrap()));
        assert!(id(format!("{}.end", ended.state.tag)).is_over(&ended));
        assert!(!id(ended.state.tag.clone()).is_over(&ended));
        let again = Events::of(&glance(RunState::Queued, 2, 0)).unwrap();
        assert!(!id(format!("{}.end", ended.state.tag)).is_over(&again), "it was retried");
        assert!(String::from_utf8(ended.end.to_vec()).unwrap().contains(&format!("id: {}.end\n", ended.state.tag)));
    }
}
