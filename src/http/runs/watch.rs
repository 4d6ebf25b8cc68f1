//! Looking at runs for all who wait for them: one look of the server serves every request and every stream of events.

use super::events::Events;
use super::shown::Shown;
use crate::http::problem::Problem;
use crate::run::RunId;
use crate::store::{Change, Glance, RunStore, StoreError};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{Notify, OnceCell, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

/// How long wake-ups are relied on before all runs that are waited for are looked at anyhow.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How many runs one question to the database is about.
const RUNS_AT_ONCE: usize = 1000;

/// The runs that somebody waits for. One task looks at them, while there are any: at a run that has changed, at one that
/// somebody new waits for, and at all of them once a second.
#[derive(Clone)]
pub struct Watches {
    looking: Arc<Looking>,
    places: Arc<Semaphore>,
    max_streams: usize,
}

struct Looking {
    store: Arc<dyn RunStore>,
    watched: Mutex<Watched>,
    /// Somebody new waits.
    asked: Notify,
    /// The last round that is over.
    rounds: watch::Sender<u64>,
}

#[derive(Default)]
struct Watched {
    runs: HashMap<RunId, watch::Sender<Option<Found>>>,
    /// Those to be looked at in the next round.
    due: HashSet<RunId>,
    /// The last round that has begun.
    round: u64,
    /// Whether the task runs.
    is_looked_at: bool,
}

/// What a look found.
#[derive(Clone)]
enum Found {
    Run(Arc<Look>),
    NoRun,
    Failed(Problem),
}

impl Found {
    /// Whether it tells nothing that the one before did not. Of an ended run more may be told than a glance sees: what has
    /// superseded it since, or that it can be read again.
    fn is_as(&self, before: &Self) -> bool {
        match (self, before) {
            (Found::Run(now), Found::Run(before)) => now.glance == before.glance && !now.glance.state.is_ended(),
            (Found::NoRun, Found::NoRun) => true,
            (Found::Failed(now), Found::Failed(before)) => now == before,
            _ => false,
        }
    }
}

/// A run as it was looked at, and what is made of that for all who wait.
pub(super) struct Look {
    glance: Glance,
    whole: OnceCell<Result<Arc<Shown>, Problem>>,
    events: OnceLock<Result<Events, Problem>>,
}

impl Look {
    fn new(glance: Glance) -> Self {
        Self { glance, whole: OnceCell::new(), events: OnceLock::new() }
    }

    /// The whole run where it has ended: read once, whoever asks.
    pub(super) async fn ended(&self, store: &dyn RunStore) -> Result<Option<Arc<Shown>>, Problem> {
        if !self.glance.state.is_ended() {
            return Ok(None);
        }
        let id = self.glance.id;
        let read = async || {
            let run = store.get(id).await?.ok_or_else(|| Problem::NoSuchRun(id.to_string()))?;
            Shown::of(&run).map(Arc::new)
        };
        // It may have been queued again since.
        Ok(Some(self.whole.get_or_init(read).await.clone()?).filter(|shown| shown.state.is_ended()))
    }

    /// What it has to tell as events.
    pub(super) fn events(&self) -> Result<&Events, Problem> {
        self.events.get_or_init(|| Events::of(&self.glance)).as_ref().map_err(Clone::clone)
    }
}

/// Somebody who waits for a run.
pub(super) struct Watcher {
    id: RunId,
    seen: watch::Receiver<Option<Found>>,
    rounds: watch::Receiver<u64>,
    /// The round that had begun when this one came; what it finds may be older than the request.
    after: Option<u64>,
}

impl Watcher {
    /// The run as it is now; each further time, once it is not as it was. Nothing is lost where this is given up on.
    pub(super) async fn next(&mut self) -> Result<Arc<Look>, Problem> {
        match self.after {
            Some(after) => {
                let _ = self.rounds.wait_for(|round| *round > after).await;
                self.after = None;
            }
            None => self.seen.changed().await.map_err(|_| Problem::Internal)?,
        }
        let problem = match &*self.seen.borrow_and_update() {
            Some(Found::Run(look)) => return Ok(Arc::clone(look)),
            Some(Found::NoRun) => return Err(Problem::NoSuchRun(self.id.to_string())),
            Some(Found::Failed(problem)) => problem.clone(),
            None => Problem::Internal,
        };
        // The cause was logged by who looked, which was for no request.
        tracing::warn!(run.id = %self.id, "the look at the run failed that this request shares");
        Err(problem)
    }
}

impl Watcher {
    /// Whether whoever looked has broken: only another one of these hears more.
    pub(super) fn is_cut_off(&self) -> bool {
        self.seen.has_changed().is_err()
    }

    /// The run that it waits for.
    pub(super) fn run(&self) -> RunId {
        self.id
    }
}

impl Watches {
    /// Nobody waits. At most `max_streams` streams of events are given places.
    pub fn new(store: Arc<dyn RunStore>, max_streams: usize) -> Self {
        let looking = Looking { store, watched: Mutex::default(), asked: Notify::new(), rounds: watch::Sender::new(0) };
        let max_streams = max_streams.min(Semaphore::MAX_PERMITS);
        Self { looking: Arc::new(looking), places: Arc::new(Semaphore::new(max_streams)), max_streams }
    }

    /// A place for a stream, until it is dropped.
    pub(super) fn place(&self) -> Result<OwnedSemaphorePermit, Problem> {
        Arc::clone(&self.places).try_acquire_owned().map_err(|_| Problem::TooManyStreams(self.max_streams))
    }

    /// Begins to wait for a run.
    pub(super) fn watch(&self, id: RunId) -> Watcher {
        let mut watched = self.looking.watched();
        let after = Some(watched.round);
        let seen = watched.runs.entry(id).or_insert_with(|| watch::Sender::new(None)).subscribe();
        watched.due.insert(id);
        let is_looked_at = std::mem::replace(&mut watched.is_looked_at, true);
        drop(watched);
        match is_looked_at {
            true => self.looking.asked.notify_one(),
            false => drop(tokio::spawn(Arc::clone(&self.looking).look_while_watched())),
        }
        Watcher { id, seen, rounds: self.looking.rounds.subscribe(), after }
    }
}

impl Looking {
    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn look_while_watched(self: Arc<Self>) {
        let mut broken = Broken(Some(&self));
        // Before the first look: what changes after it is heard.
        let mut changes = self.store.changes();
        let mut again = Instant::now() + LOOK_EVERY;
        loop {
            let (round, due) = {
                let mut watched = self.watched();
                watched.round += 1;
                (watched.round, std::mem::take(&mut watched.due).into_iter().collect::<Vec<_>>())
            };
            for ids in due.chunks(RUNS_AT_ONCE) {
                self.look_at(ids).await;
            }
            self.rounds.send_replace(round);
            if !self.wait(&mut changes, &mut again).await {
                broken.0 = None;
                return;
            }
        }
    }

    /// Until a run is to be looked at; false where nobody waits for any.
    async fn wait(&self, changes: &mut broadcast::Receiver<Change>, again: &mut Instant) -> bool {
        loop {
            let heard = tokio::select! {
                () = self.asked.notified() => return true,
                () = tokio::time::sleep_until(*again) => {
                    *again = Instant::now() + LOOK_EVERY;
                    return self.all_are_due();
                }
                heard = changes.recv() => heard,
            };
            let mut is_due = self.heard(heard);
            loop {
                is_due |= match changes.try_recv() {
                    Ok(change) => self.heard(Ok(change)),
                    Err(TryRecvError::Lagged(missed)) => self.heard(Err(RecvError::Lagged(missed))),
                    Err(TryRecvError::Empty | TryRecvError::Closed) => break,
                };
            }
            if is_due {
                return true;
            }
        }
    }

    /// Whether what was heard is about a run that somebody waits for.
    fn heard(&self, heard: Result<Change, RecvError>) -> bool {
        match heard {
            Ok(Change::Run(id)) => {
                let mut watched = self.watched();
                let is_watched = watched.runs.contains_key(&id);
                if is_watched {
                    watched.due.insert(id);
                }
                is_watched
            }
            Ok(Change::Held(_) | Change::Queue) => false,
            // Among what was missed may be any of them. (The store tells for as long as it is there, and it is there.) Only once a
            // second the task may find that it is over: whoever comes at that moment starts another.
            Err(RecvError::Lagged(_) | RecvError::Closed) => {
                let watched = &mut *self.watched();
                watched.due.extend(watched.runs.keys());
                !watched.due.is_empty()
            }
        }
    }

    /// Forgets the runs that nobody waits for any more. False where none is left, and then the task is over.
    fn all_are_due(&self) -> bool {
        let watched = &mut *self.watched();
        watched.runs.retain(|_, told| told.receiver_count() > 0);
        watched.due = watched.runs.keys().copied().collect();
        watched.is_looked_at = !watched.runs.is_empty();
        watched.is_looked_at
    }

    async fn look_at(&self, ids: &[RunId]) {
        match self.store.glances(ids).await {
            Ok(glances) => {
                let mut found: HashMap<RunId, Glance> = glances.into_iter().map(|glance| (glance.id, glance)).collect();
                for id in ids {
                    let glance = found.remove(id);
                    self.tell(*id, &glance.map_or(Found::NoRun, |glance| Found::Run(Arc::new(Look::new(glance)))));
                }
            }
            // One that cannot be read does not stand in the way of the others.
            Err(StoreError::Corrupt(_)) if ids.len() > 1 => {
                for id in ids {
                    Box::pin(self.look_at(std::slice::from_ref(id))).await;
                }
            }
            Err(error) => {
                let problem = Problem::from(error);
                ids.iter().for_each(|id| self.tell(*id, &Found::Failed(problem.clone())));
            }
        }
    }

    fn tell(&self, id: RunId, found: &Found) {
        if let Some(told) = self.watched().runs.get(&id) {
            told.send_if_modified(|before| {
                let is_new = !before.as_ref().is_some_and(|before| found.is_as(before));
                if is_new {
                    *before = Some(found.clone());
                }
                is_new
            });
        }
    }
}

/// Where the task breaks, whoever waits is told, and the next one who comes starts another.
struct Broken<'a>(Option<&'a Looking>);

impl Drop for Broken<'_> {
    fn drop(&mut self) {
        let Some(looking) = self.0 else { return };
        let mut watched = looking.watched();
        let runs = std::mem::take(&mut watched.runs);
        watched.due.clear();
        watched.round += 1;
        watched.is_looked_at = false;
        let round = watched.round;
        drop(watched);
        runs.values().for_each(|told| drop(told.send_replace(Some(Found::Failed(Problem::Internal)))));
        looking.rounds.send_replace(round);
    }
}
