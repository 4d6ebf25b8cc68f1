//! Questions that come together are asked together.
//!
//! Each way to the store and back costs about as much for many questions as for one. So while a look is under way, whoever comes
//! waits for the next one, which is for all who wait by then. A look begins after everybody came whom it is for: nobody is told
//! what was before his request. Who finds none under way waits for nobody, nor for long where one takes long.
//!
//! Where a look for many takes little longer than one for few, those whom the last one was for are waited for a moment, so that a
//! crowd that asks again and again is one look after the other, and not two halves that wait for each other.

use crate::store::{StoreError, StoreResult};
use futures::FutureExt;
use futures::future::BoxFuture;
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

/// Asks many questions: the answers are in their order.
type Ask<Q, A> = Box<dyn Fn(Vec<Q>) -> BoxFuture<'static, StoreResult<Vec<A>>> + Send + Sync>;

/// Where one kind of question is asked.
pub(super) struct Together<Q, A>(Arc<Counter<Q, A>>);

struct Counter<Q, A> {
    ask: Ask<Q, A>,
    bounds: Bounds,
    line: Mutex<Line<Q, A>>,
    /// As many wait as are waited for.
    gathered: Notify,
}

/// How much is asked at the same time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Looks under way, or waiting for more.
    pub(super) looks: usize,
    /// How long the last look may have been under way before another one begins beside it.
    pub(super) patience: Duration,
    /// Questions of one look.
    pub(super) questions: usize,
    /// The most that those whom a look for several was for are waited for; and not longer than half of what it took.
    pub(super) gathering: Duration,
}

struct Line<Q, A> {
    waiting: VecDeque<Waiting<Q, A>>,
    looks: usize,
    /// When the last look began, or it was last begun to wait for more.
    began: Instant,
    /// How many are to wait before the next look begins.
    awaited: usize,
}

struct Waiting<Q, A> {
    question: Q,
    tell: Tell<A>,
}

type Tell<A> = oneshot::Sender<Answer<A>>;

/// What is told to one of those who asked together.
pub(super) type Answer<A> = Result<A, Arc<StoreError>>;

impl<Q: Clone + Send + 'static, A: Send + 'static> Together<Q, A> {
    pub(super) fn new<F, L>(bounds: Bounds, ask: F) -> Self
    where
        F: Fn(Vec<Q>) -> L + Send + Sync + 'static,
        L: Future<Output = StoreResult<Vec<A>>> + Send + 'static,
    {
        let line = Mutex::new(Line { waiting: VecDeque::new(), looks: 0, began: Instant::now(), awaited: 0 });
        let ask: Ask<Q, A> = Box::new(move |questions| ask(questions).boxed());
        Self(Arc::new(Counter { ask, bounds, line, gathered: Notify::new() }))
    }

    /// The answer to a question. Whoever gives up on it takes nothing from the others.
    pub(super) async fn ask(&self, question: Q) -> Answer<A> {
        let (tell, told) = oneshot::channel();
        if self.0.take_in(Waiting { question, tell }) {
            tokio::spawn(Arc::clone(&self.0).answer());
        }
        told.await.unwrap_or_else(|_| Err(Arc::new(StoreError::Setup("a look at the database broke off".to_owned()))))
    }
}

impl<Q: Clone + Send + 'static, A: Send + 'static> Counter<Q, A> {
    fn line(&self) -> MutexGuard<'_, Line<Q, A>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether one look more is to begin.
    fn take_in(&self, one: Waiting<Q, A>) -> bool {
        let mut line = self.line();
        line.waiting.push_back(one);
        let is_long = line.began.elapsed() >= self.bounds.patience;
        let begins = line.looks == 0 || (is_long && line.looks < self.bounds.looks);
        line.looks += usize::from(begins);
        if line.waiting.len() >= line.awaited {
            self.gathered.notify_waiters();
        }
        begins
    }

    /// One look after the other, until nobody waits.
    async fn answer(self: Arc<Self>) {
        while let Some((questions, tells)) = self.next() {
            let began = Instant::now();
            // A look that breaks lets go of those whom it is for, and of nobody else.
            let Ok(answers) = AssertUnwindSafe(self.look(questions)).catch_unwind().await else { continue };
            let count = answers.len();
            // Whoever is gone by now needs no answer.
            tells.into_iter().zip(answers).for_each(|(tell, answer)| drop(tell.send(answer)));
            self.gather(count, self.bounds.gathering.min(began.elapsed() / 2)).await;
        }
    }

    /// Waits for as many more as a look was for, if it was for several.
    async fn gather(&self, count: usize, most: Duration) {
        // Timers go by the millisecond.
        if count < 2 || most < Duration::from_millis(1) {
            return;
        }
        let gathered = self.gathered.notified();
        if self.awaits(count) {
            // Where they do not come, it goes on with those who are there.
            let _ = tokio::time::timeout(most, gathered).await;
        }
    }

    /// Whether there is room for those who are waited for: so many, and those who wait already.
    fn awaits(&self, count: usize) -> bool {
        let mut line = self.line();
        line.awaited = self.bounds.questions.min(line.waiting.len() + count);
        // Who comes begins no look meanwhile.
        line.began = Instant::now();
        line.waiting.len() < line.awaited
    }

    /// Those who have waited longest, and still do. None ends the look.
    fn next(&self) -> Option<(Vec<Q>, Vec<Tell<A>>)> {
        let mut line = self.line();
        let (mut questions, mut tells) = (Vec::new(), Vec::new());
        while questions.len() < self.bounds.questions
            && let Some(Waiting { question, tell }) = line.waiting.pop_front()
        {
            if !tell.is_closed() {
                questions.push(question);
                tells.push(tell);
            }
        }
        if questions.is_empty() {
            line.looks -= 1;
            return None;
        }
        line.began = Instant::now();
        Some((questions, tells))
    }

    /// What the store says to each. One that cannot be answered does not stand in the way of the others.
    async fn look(&self, questions: Vec<Q>) -> Vec<Answer<A>> {
        match (self.ask)(questions.clone()).await {
            Err(StoreError::Corrupt(_) | StoreError::UnreadableRun(_) | StoreError::Refused(_))
                if questions.len() > 1 =>
            {
                let mut answers = Vec::new();
                for question in questions {
                    answers.append(&mut each((self.ask)(vec![question]).await, 1));
                }
                answers
            }
            found => each(found, questions.len()),
        }
    }
}

/// What so many are told.
fn each<A>(found: StoreResult<Vec<A>>, count: usize) -> Vec<Answer<A>> {
    match found.map_err(Arc::new) {
        Ok(answers) => answers.into_iter().map(Ok).collect(),
        Err(error) => (0..count).map(|_| Err(Arc::clone(&error))).collect(),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use crate::http::problem::Problem;
    use tokio::sync::{mpsc, oneshot};

    /// A look that is under way: what it is for, and how it ends.
    type Look = (Vec<u32>, oneshot::Sender<StoreResult<Vec<u32>>>);

    /// The answers are twice the questions, once the test lets a look end.
    fn counter(looks: usize, patience: Duration) -> (Arc<Together<u32, u32>>, mpsc::UnboundedReceiver<Look>) {
        gathering(Bounds { looks, patience, questions: 3, gathering: Duration::ZERO })
    }

    fn gathering(bounds: Bounds) -> (Arc<Together<u32, u32>>, mpsc::UnboundedReceiver<Look>) {
        let (begun, under_way) = mpsc::unbounded_channel();
        let together = Together::new(bounds, move |questions: Vec<u32>| {
            let (end, ended) = oneshot::channel();
            begun.send((questions, end)).unwrap();
            async move { ended.await.unwrap_or_else(|_| panic!("the look breaks")) }
        });
        (Arc::new(together), under_way)
    }

    /// Asks, and is in the line when this returns.
    fn ask(together: &Arc<Together<u32, u32>>, question: u32) -> tokio::task::JoinHandle<Result<u32, Problem>> {
        let (tell, told) = oneshot::channel();
        if together.0.take_in(Waiting { question, tell }) {
            tokio::spawn(Arc::clone(&together.0).answer());
        }
        tokio::spawn(async move { told.await.map_or(Err(Problem::Internal), |found| found.map_err(Problem::from)) })
    }

    async fn next(looks: &mut mpsc::UnboundedReceiver<Look>) -> Look {
        tokio::time::timeout(Duration::from_secs(10), looks.recv()).await.unwrap().unwrap()
    }

    fn end((questions, end): Look) {
        end.send(Ok(questions.iter().map(|n| n * 2).collect())).unwrap();
    }

    #[tokio::test]
    async fn those_who_come_during_a_look_share_the_next() {
        let (together, mut looks) = counter(1, Duration::ZERO);
        let mut asked = vec![ask(&together, 0)];
        let first = next(&mut looks).await;
        asked.extend((1..=4).map(|n| ask(&together, n)));
        assert_eq!(first.0, [0], "nobody waits for others to come");
        assert!(looks.try_recv().is_err(), "one look is under way, which is the most");
        end(first);
        for expected in [vec![1, 2, 3], vec![4]] {
            let look = next(&mut looks).await;
            assert_eq!(look.0, expected, "in the order in which they came, and no more than may be");
            end(look);
        }
        for (n, one) in (0..).zip(asked) {
            assert_eq!(one.await.unwrap(), Ok(n * 2));
        }
        end({
            let alone = ask(&together, 9);
            let look = next(&mut looks).await;
            drop(alone);
            look
        });
    }

    #[tokio::test]
    async fn those_who_asked_together_are_waited_for() {
        let long = Duration::from_secs(3600);
        let (together, mut looks) = gathering(Bounds { looks: 1, patience: long, questions: 4, gathering: long });
        let mut asked = vec![ask(&together, 0)];
        let alone = next(&mut looks).await;
        asked.extend((1..=2).map(|n| ask(&together, n)));
        end(alone);
        // After one alone nobody is waited for.
        let both = next(&mut looks).await;
        assert_eq!(both.0, [1, 2]);
        let took = Duration::from_secs(2);
        tokio::time::sleep(took).await;
        asked.push(ask(&together, 3));
        end(both);
        asked.push(ask(&together, 4));
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(looks.try_recv().is_err(), "there was one more, and two are to come again");
        asked.push(ask(&together, 5));
        let all = next(&mut looks).await;
        assert_eq!(all.0, [3, 4, 5], "it begins when they are there");
        // Of three only one comes again, and the look was short.
        end(all);
        asked.push(ask(&together, 6));
        let fewer = next(&mut looks).await;
        assert_eq!(fewer.0, [6]);
        // More than one look is for are not waited for.
        asked.extend((7..=11).map(|n| ask(&together, n)));
        end(fewer);
        let full = next(&mut looks).await;
        assert_eq!(full.0, [7, 8, 9, 10]);
        tokio::time::sleep(took).await;
        let ended = Instant::now();
        asked.extend((12..=14).map(|n| ask(&together, n)));
        end(full);
        let full = next(&mut looks).await;
        assert_eq!(full.0, [11, 12, 13, 14]);
        assert!(ended.elapsed() < took / 2);
        end(full);
        for (n, one) in (0..).zip(asked) {
            assert_eq!(one.await.unwrap(), Ok(n * 2));
        }
    }

    #[tokio::test]
    async fn one_slow_look_holds_up_nobody_while_another_may_begin() {
        let (together, mut looks) = counter(2, Duration::ZERO);
        let slow = ask(&together, 1);
        let slow_look = next(&mut looks).await;
        let fast = ask(&together, 2);
        end(next(&mut looks).await);
        assert_eq!(fast.await.unwrap(), Ok(4));
        end(slow_look);
        assert_eq!(slow.await.unwrap(), Ok(2));
    }

    #[tokio::test]
    async fn a_look_that_is_not_slow_yet_is_waited_for() {
        let (together, mut looks) = counter(2, Duration::from_secs(3600));
        let first = ask(&together, 1);
        let under_way = next(&mut looks).await;
        let second = ask(&together, 2);
        tokio::task::yield_now().await;
        assert!(looks.try_recv().is_err());
        end(under_way);
        end(next(&mut looks).await);
        assert_eq!((first.await.unwrap(), second.await.unwrap()), (Ok(2), Ok(4)));
    }

    #[tokio::test]
    async fn who_gives_up_takes_nothing_from_the_others() {
        let (together, mut looks) = counter(1, Duration::ZERO);
        let leader = tokio::spawn({
            let together = Arc::clone(&together);
            async move { together.ask(1).await }
        });
        let first = next(&mut looks).await;
        let (gone, stays) = (
            tokio::spawn({
                let together = Arc::clone(&together);
                async move { together.ask(2).await }
            }),
            ask(&together, 3),
        );
        while together.0.line().waiting.len() < 2 {
            tokio::task::yield_now().await;
        }
        leader.abort();
        gone.abort();
        assert!(leader.await.unwrap_err().is_cancelled() && gone.await.unwrap_err().is_cancelled());
        end(first);
        let second = next(&mut looks).await;
        assert_eq!(second.0, [3], "nothing is asked for who is gone");
        end(second);
        assert_eq!(stays.await.unwrap(), Ok(6));
    }

    #[tokio::test]
    async fn each_is_told_of_a_look_that_fails_or_breaks_and_the_next_goes_on() {
        let (together, mut looks) = counter(1, Duration::ZERO);
        let first = ask(&together, 0);
        let under_way = next(&mut looks).await;
        let asked = [ask(&together, 1), ask(&together, 2)];
        end(under_way);
        assert_eq!(first.await.unwrap(), Ok(0));
        let (questions, fail) = next(&mut looks).await;
        assert_eq!(questions, [1, 2]);
        fail.send(Err(StoreError::Unavailable(sqlx::Error::PoolTimedOut))).unwrap();
        for one in asked {
            assert_eq!(one.await.unwrap(), Err(Problem::Unavailable));
        }
        let breaks = ask(&together, 3);
        drop(next(&mut looks).await);
        assert_eq!(breaks.await.unwrap(), Err(Problem::Internal));
        let after = ask(&together, 4);
        end(next(&mut looks).await);
        assert_eq!(after.await.unwrap(), Ok(8));
    }

    #[tokio::test]
    async fn one_that_cannot_be_read_fails_alone() {
        let (together, mut looks) = counter(1, Duration::ZERO);
        let first = ask(&together, 0);
        let under_way = next(&mut looks).await;
        let asked = [ask(&together, 1), ask(&together, 2)];
        end(under_way);
        first.await.unwrap().unwrap();
        let unreadable = || Err(StoreError::Corrupt("one of them".to_owned()));
        next(&mut looks).await.1.send(unreadable()).unwrap();
        next(&mut looks).await.1.send(unreadable()).unwrap();
        end(next(&mut looks).await);
        let [bad, good] = asked;
        assert_eq!((bad.await.unwrap(), good.await.unwrap()), (Err(Problem::Internal), Ok(4)));
    }
}
