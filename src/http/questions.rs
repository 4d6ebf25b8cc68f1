//! What is asked of the store so often that those who ask do so together.

use super::met::Met;
use super::together::{Answer, Bounds, Together};
use crate::run::{IdempotencyKey, Principal, Run, RunId};
use crate::store::{KnownKey, NewRun, RunStore, StoredDefinition, Submitted};
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    tables: Arc<Tables>,
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
        Self { runs, keys, tables: Tables::of(tables), met: Met::default(), accepts_at_once, submissions }
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
        if is_met || !self.accepts_at_once {
            return None;
        }
        self.tables.lately(pipeline, Instant::now())
    }

    /// The definitions that the entries of this table are right for.
    pub(super) async fn table_definitions(&self, pipeline: &str) -> Answer<Written> {
        self.tables.look(pipeline, Instant::now()).await
    }

    /// Submits a run that [`NewRun::is_plain`].
    pub(super) async fn submit(&self, run: NewRun) -> Answer<Submitted> {
        self.submissions.ask(Arc::new(run)).await
    }
}

/// What tables were written by.
struct Tables {
    looks: Together<String, Written>,
    lately: Mutex<HashMap<String, Seen>>,
}

/// What a table was written by, when somebody last looked.
struct Seen {
    at: Instant,
    written: Written,
    /// Another look has begun since.
    is_renewed: bool,
}

impl Tables {
    fn of(looks: Together<String, Written>) -> Arc<Self> {
        Arc::new(Self { looks, lately: Mutex::default() })
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<String, Seen>> {
        self.lately.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn look(&self, pipeline: &str, now: Instant) -> Answer<Written> {
        let written = self.looks.ask(pipeline.to_owned()).await?;
        let mut seen = self.seen();
        seen.retain(|_, seen| now.duration_since(seen.at) < TABLE_AGE);
        // A look that took long may come after a later one.
        if seen.get(pipeline).is_none_or(|seen| seen.at <= now) {
            seen.insert(pipeline.to_owned(), Seen { at: now, written: Arc::clone(&written), is_renewed: false });
        }
        Ok(written)
    }

    /// What was seen a moment ago. Half of that moment later another look begins, so that of those who go on coming nobody waits for one.
    fn lately(self: &Arc<Self>, pipeline: &str, now: Instant) -> Option<Written> {
        let mut all = self.seen();
        let seen = all.get_mut(pipeline)?;
        let age = now.duration_since(seen.at);
        if age >= TABLE_AGE {
            return None;
        }
        if !seen.is_renewed && age >= TABLE_AGE / 2 {
            seen.is_renewed = true;
            let (tables, pipeline) = (Arc::clone(self), pipeline.to_owned());
            // Where it fails, those who come after this moment look for themselves, and are told.
            tokio::spawn(async move { tables.look(&pipeline, now).await });
        }
        Some(Arc::clone(&seen.written))
    }
}

/// Each of them once.
fn different<T: Clone + Eq + Hash>(asked: &[T]) -> Vec<T> {
    asked.iter().collect::<HashSet<_>>().into_iter().cloned().collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::store::{StoreError, StoreResult};
    use tokio::sync::{mpsc, oneshot};

    type Look = oneshot::Sender<StoreResult<Vec<Written>>>;

    /// What the test lets looks find.
    fn tables() -> (Arc<Tables>, mpsc::UnboundedReceiver<Look>) {
        let (begun, under_way) = mpsc::unbounded_channel();
        let bounds = Bounds { patience: Duration::ZERO, ..OF_TABLES };
        let together = Together::new(bounds, move |_: Vec<String>| {
            let (end, ended) = oneshot::channel();
            begun.send(end).unwrap();
            async move { ended.await.unwrap() }
        });
        (Tables::of(together), under_way)
    }

    async fn end(look: Look, found: &Written) {
        look.send(Ok(vec![Arc::clone(found)])).unwrap();
        settle().await;
    }

    /// What is under way goes as far as it can.
    async fn settle() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    fn is(found: Option<Written>, expected: &Written) -> bool {
        found.is_some_and(|found| Arc::ptr_eq(&found, expected))
    }

    /// A look of somebody who waits for it, which is under way when this returns.
    async fn begin(tables: &Arc<Tables>, now: Instant, looks: &mut mpsc::UnboundedReceiver<Look>) -> Look {
        let tables = Arc::clone(tables);
        tokio::spawn(async move { tables.look("one", now).await });
        looks.recv().await.unwrap()
    }

    #[tokio::test]
    async fn of_those_who_go_on_coming_nobody_waits_for_a_look() {
        let (tables, mut looks) = tables();
        let mut now = Instant::now();
        assert!(tables.lately("one", now).is_none());
        let mut found = Written::default();
        end(begin(&tables, now, &mut looks).await, &found).await;
        for nth in 1..100 {
            now += TABLE_AGE / 10;
            assert!(is(tables.lately("one", now), &found) && tables.lately("two", now).is_none());
            settle().await;
            if nth % 5 == 0 {
                found = Written::default();
                end(looks.try_recv().unwrap(), &found).await;
            }
            assert!(looks.try_recv().is_err(), "one in half of the time");
        }
        assert!(tables.lately("one", now + TABLE_AGE).is_none(), "nobody came, and nobody looked");
    }

    #[tokio::test]
    async fn what_could_not_be_seen_again_is_not_told_for_longer() {
        let (tables, mut looks) = tables();
        let (start, found) = (Instant::now(), Written::default());
        end(begin(&tables, start, &mut looks).await, &found).await;
        for tenth in 1..10 {
            assert!(is(tables.lately("one", start + TABLE_AGE / 10 * tenth), &found));
            settle().await;
            if tenth == 5 {
                let away = StoreError::Unavailable(sqlx::Error::PoolTimedOut);
                looks.try_recv().unwrap().send(Err(away)).unwrap();
            }
            assert!(looks.try_recv().is_err(), "one look more, which failed");
        }
        assert!(tables.lately("one", start + TABLE_AGE).is_none());
    }

    #[tokio::test]
    async fn a_look_that_comes_after_a_later_one_changes_nothing() {
        let (tables, mut looks) = tables();
        let (start, [before, after]) = (Instant::now(), [Written::default(), Written::default()]);
        let slow = begin(&tables, start, &mut looks).await;
        end(begin(&tables, start + TABLE_AGE / 5, &mut looks).await, &after).await;
        end(slow, &before).await;
        assert!(is(tables.lately("one", start + TABLE_AGE), &after));
    }
}
