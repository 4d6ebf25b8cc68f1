//! What is asked of the store so often that those who ask do so together.

use super::met::Met;
use super::together::{Answer, Bounds, Together};
use crate::run::{IdempotencyKey, Principal, Run, RunId};
use crate::store::{KnownKey, NewRun, RunStore, StoredDefinition, Submitted};
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Whole runs can be long, so there are few of them in memory.
const OF_RUNS: Bounds = bounds(16);
const OF_KEYS: Bounds = bounds(16);
/// Those of one pipeline are asked for once, those of several one after the other.
const OF_TABLES: Bounds = bounds(64);
/// Most of what one for few takes is not for each of them.
const OF_SUBMISSIONS: Bounds =
    Bounds { patience: Duration::from_millis(25), gathering: Duration::from_millis(5), ..bounds(64) };

/// How old a look at a table may be that spares submissions one of their own. None of them depends on it: what counts is the look at
/// the decision.
const TABLE_AGE: Duration = Duration::from_millis(50);

/// A look that takes longer than most holds up those who come for no longer than that.
const fn bounds(questions: usize) -> Bounds {
    Bounds { looks: 4, patience: Duration::from_millis(5), questions, gathering: Duration::ZERO }
}

type Key = (Principal, IdempotencyKey);
/// The definitions that the entries of a table are right for.
pub(super) type Written = Arc<Vec<StoredDefinition>>;

/// The questions that are asked together.
pub(super) struct Questions {
    runs: Together<RunId, Option<Arc<Run>>>,
    keys: Together<Key, Option<Arc<KnownKey>>>,
    tables: Together<String, Written>,
    /// When tables were last looked at, and what was seen.
    lately: Mutex<HashMap<String, (Instant, Written)>>,
    met: Met<Key>,
    accepts_at_once: bool,
    submissions: Together<Arc<NewRun>, Submitted>,
}

impl Questions {
    pub(super) fn of(store: &Arc<dyn RunStore>) -> Self {
        let accepts_at_once = store.accepts_at_once();
        let [of_runs, of_keys, of_tables, of_submissions] = std::array::from_fn(|_| Arc::clone(store));
        let runs = Together::new(OF_RUNS, move |ids: Vec<RunId>| {
            let store = Arc::clone(&of_runs);
            async move {
                let found = store.runs(&different(&ids)).await?;
                let found: HashMap<RunId, Arc<Run>> = found.into_iter().map(|run| (run.id, Arc::new(run))).collect();
                Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
            }
        });
        let keys = Together::new(OF_KEYS, move |keys: Vec<Key>| {
            let store = Arc::clone(&of_keys);
            async move {
                let found = store.known_keys(&different(&keys)).await?.into_iter().map(|known| {
                    let key = (known.principal.clone(), known.idempotency_key.clone());
                    (key, Arc::new(known))
                });
                let found: HashMap<Key, Arc<KnownKey>> = found.collect();
                Ok(keys.iter().map(|key| found.get(key).cloned()).collect())
            }
        });
        let tables = Together::new(OF_TABLES, move |pipelines: Vec<String>| {
            let store = Arc::clone(&of_tables);
            async move {
                let mut found = HashMap::new();
                for pipeline in different(&pipelines) {
                    let definitions = Arc::new(store.table_definitions(&pipeline).await?);
                    found.insert(pipeline, definitions);
                }
                Ok(pipelines.iter().filter_map(|pipeline| found.get(pipeline).cloned()).collect())
            }
        });
        let submissions = Together::new(OF_SUBMISSIONS, move |runs: Vec<Arc<NewRun>>| {
            let store = Arc::clone(&of_submissions);
            async move { store.submit_together(&runs.iter().map(|run| &**run).collect::<Vec<_>>()).await }
        });
        Self { runs, keys, tables, lately: Mutex::default(), met: Met::default(), accepts_at_once, submissions }
    }

    /// The run of this id, if there is one.
    pub(super) async fn run(&self, id: RunId) -> Answer<Option<Arc<Run>>> {
        self.runs.ask(id).await
    }

    /// What is known of a principal's key.
    pub(super) async fn known_key(&self, principal: &Principal, key: &IdempotencyKey) -> Answer<Option<Arc<KnownKey>>> {
        self.keys.ask((principal.clone(), key.clone())).await
    }

    /// What the table of a pipeline was written by, as seen [a moment ago](TABLE_AGE), where to accept a run under this key is to find
    /// out whether the key is new: most are that were not met lately.
    pub(super) fn spares_a_look(&self, of: &Principal, key: &IdempotencyKey, pipeline: &str) -> Option<Written> {
        let is_met = self.met.note(&(of.clone(), key.clone()));
        let lately = self.lately.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, written) = lately.get(pipeline).filter(|_| !is_met && self.accepts_at_once)?;
        (at.elapsed() < TABLE_AGE).then(|| Arc::clone(written))
    }

    /// The definitions that the entries of this table are right for.
    pub(super) async fn table_definitions(&self, pipeline: &str) -> Answer<Written> {
        let now = Instant::now();
        let written = self.tables.ask(pipeline.to_owned()).await?;
        let mut lately = self.lately.lock().unwrap_or_else(PoisonError::into_inner);
        lately.retain(|_, (at, _)| at.elapsed() < TABLE_AGE);
        lately.insert(pipeline.to_owned(), (now, Arc::clone(&written)));
        Ok(written)
    }

    /// Submits a run that [`NewRun::is_plain`].
    pub(super) async fn submit(&self, run: NewRun) -> Answer<Submitted> {
        self.submissions.ask(Arc::new(run)).await
    }
}

/// Each of them once.
fn different<T: Clone + Eq + Hash>(asked: &[T]) -> Vec<T> {
    asked.iter().collect::<HashSet<_>>().into_iter().cloned().collect()
}
