//! Tells others what becomes of runs: webhooks at their ends, lineage of their attempts.
//!
//! What is to be told stands in the outbox, written in the transaction in which it happened. Any process that can tell it takes
//! a message in hand, tries, and notes how that ended. Nothing here changes a run.
//!
//! ```text
//!   store (outbox) ──claim──> Notifier ──> webhook.rs: hosts.rs and address.rs say who may be asked, signing.rs signs
//!         ^                      │   └───> lineage.rs makes the event, sink.rs appends or posts it
//!         └──────noted───────────┘
//! ```

mod address;
mod answer;
mod audience;
mod body;
mod hosts;
mod lineage;
mod schedule;
mod signing;
mod sink;
mod webhook;

pub use audience::Audiences;
pub use body::WebhookBody;
pub use hosts::{AllowedHosts, HostError};
pub use lineage::Lineage;
pub use schedule::Schedule;
pub use signing::{SecretError, Secrets};
pub use sink::Sink;
pub use webhook::{Lookup, Webhooks};

use crate::fault::Faults;
use crate::pipeline::url::server_of;
use crate::run::Notice;
use crate::store::{Change, Fenced, Message, MessageClaim, Recipient, RunStore, StoreResult, Then, Tried};
use crate::telemetry::{METRIC_NOTIFICATION_OLDEST_SECONDS, METRIC_NOTIFICATION_TRIES, METRIC_NOTIFICATIONS};
use answer::Answer;
use chrono::Utc;
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast;
use tokio::task::{self, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// How long one try may take, to the head of the answer.
const TRY_WITHIN: Duration = Duration::from_secs(15);
/// After this time another process may try: longer than a try with what is noted of it.
const LEASE: Duration = Duration::from_secs(30);
/// How many tries are under way at the same time.
const AT_ONCE: usize = 32;
/// How many of them with one host, so that a slow receiver does not keep the others waiting.
const AT_ONCE_PER_HOST: usize = 4;
/// How often to look for messages when nothing says that there are any.
const POLL: Duration = Duration::from_secs(1);
/// How often the gauges are set.
const OBSERVE_EVERY: Duration = Duration::from_secs(15);
/// How long tries that are under way may go on after the shutdown began.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
/// How often what is known of a try is written, where the database does not answer.
const NOTES: u32 = 5;

/// Delivers the messages of the outbox.
pub struct Notifier {
    /// Where the outbox is.
    pub store: Arc<dyn RunStore>,
    /// How webhooks are told; none where this process tells none.
    pub webhooks: Option<Webhooks>,
    /// How lineage is told; none where this process tells none.
    pub lineage: Option<Lineage>,
    /// When what failed is tried again.
    pub schedule: Schedule,
    /// What happens on purpose around a try.
    pub faults: Faults,
}

/// The tries under way. Each is a task of its own: one that holds the database must go on while the next message is asked for.
#[derive(Default)]
struct Tries {
    set: JoinSet<()>,
    hosts: HashMap<task::Id, String>,
}

impl Tries {
    fn start(&mut self, host: String, attempt: impl Future<Output = ()> + Send + 'static) {
        let id = self.set.spawn(attempt).id();
        self.hosts.insert(id, host);
    }

    /// Waits for the next one to end; for ever where there is none.
    async fn ended(&mut self) {
        let id = match self.set.join_next_with_id().await {
            Some(Ok((id, ()))) => id,
            Some(Err(error)) => {
                tracing::error!(%error, "a try broke; it is made again");
                error.id()
            }
            None => return std::future::pending().await,
        };
        self.hosts.remove(&id);
    }

    /// The hosts that have enough to do.
    fn busy(&self) -> Vec<String> {
        let mut tries: BTreeMap<&String, usize> = BTreeMap::new();
        for host in self.hosts.values() {
            *tries.entry(host).or_default() += 1;
        }
        tries.into_iter().filter(|(_, tries)| *tries >= AT_ONCE_PER_HOST).map(|(host, _)| host.clone()).collect()
    }
}

impl Notifier {
    /// Delivers until `shutdown`; then nothing more is taken in hand, and tries that are under way have a moment to end.
    pub async fn run(self, shutdown: CancellationToken) {
        let notifier = Arc::new(self);
        let mut tries = Tries::default();
        let mut observed = None;
        while !shutdown.is_cancelled() {
            let mut changes = notifier.store.changes();
            if observed.is_none_or(|at: Instant| at.elapsed() >= OBSERVE_EVERY) {
                notifier.observe().await;
                observed = Some(Instant::now());
            }
            if let Err(error) = notifier.take(&mut tries).await {
                tracing::warn!(%error, "no message could be taken in hand, trying again");
            }
            tokio::select! {
                () = tries.ended() => {}
                () = changed(&mut changes) => {}
                () = tokio::time::sleep(POLL) => {}
                () = shutdown.cancelled() => {}
            }
        }
        let ending = async {
            while !tries.hosts.is_empty() {
                tries.ended().await;
            }
        };
        if tokio::time::timeout(SHUTDOWN_GRACE, ending).await.is_err() {
            tracing::info!(tries = tries.hosts.len(), "tries are given up: they are made again, under the same ids");
        }
    }

    /// Takes in hand what is due, as far as there is room.
    async fn take(self: &Arc<Self>, tries: &mut Tries) -> StoreResult<()> {
        while tries.hosts.len() < AT_ONCE {
            let claim = MessageClaim {
                token: Uuid::new_v4(),
                lease: LEASE,
                webhooks: self.webhooks.is_some(),
                lineage: self.lineage.is_some(),
                busy: tries.busy(),
            };
            let Some(message) = self.store.claim_message(&claim).await? else { break };
            let notifier = Arc::clone(self);
            let host = message.host.clone();
            tries.start(host, async move { notifier.attempt(message, claim.token).await });
        }
        Ok(())
    }

    /// One try: sends, and notes how that ended.
    async fn attempt(&self, message: Message, token: Uuid) {
        let answer = match self.faults.reached("delivering").await {
            Ok(()) => tokio::time::timeout(TRY_WITHIN, self.send(&message)).await,
            Err(failed) => Ok(Answer::failed(failed.to_string())),
        };
        let answer =
            answer.unwrap_or_else(|_| Answer::failed(format!("it did not answer within {} s", TRY_WITHIN.as_secs())));
        if self.faults.reached("delivered").await.is_err() {
            return;
        }
        let tried = self.judge(&message, answer);
        told(&message, &tried);
        self.note(&message, token, &tried).await;
    }

    async fn send(&self, message: &Message) -> Answer {
        match (&message.to, &self.webhooks, &self.lineage) {
            (Recipient::Webhook(url), Some(webhooks), _) => {
                webhooks.send(url, message.id, &message.notice, Utc::now()).await
            }
            (Recipient::Lineage, _, Some(lineage)) => {
                lineage.send(&message.notice, self.definition(&message.notice).await).await
            }
            _ => Answer::failed("this process does not tell it".to_owned()),
        }
    }

    /// The text of the definition that a run was executed with, where it can be had.
    async fn definition(&self, notice: &Notice) -> Option<String> {
        let found = self.store.definitions(std::slice::from_ref(&notice.definition)).await.ok()?;
        found.into_iter().next().map(|definition| definition.text)
    }

    /// What follows an answer, after <https://www.standardwebhooks.com>: 2xx is a success, 410 says that nobody wants to be told
    /// any more, and everything else, redirects too, is tried again.
    fn judge(&self, message: &Message, answer: Answer) -> Tried {
        let Answer { status, error, retry_after } = answer;
        let is_gone = status == Some(410) && matches!(message.to, Recipient::Webhook(_));
        let then = match error {
            None => Then::Delivered,
            Some(_) if is_gone => Then::GiveUp,
            Some(_) => self.schedule.after(message.tries, jitter(), retry_after).map_or(Then::GiveUp, Then::Again),
        };
        Tried { status, error, then }
    }

    /// Writes down how a try ended. Where that cannot be done, it is made again under the same id.
    async fn note(&self, message: &Message, token: Uuid, tried: &Tried) {
        for _ in 0..NOTES {
            match self.store.message_tried(message.id, token, tried).await {
                Ok(Fenced::Done) => return,
                Ok(Fenced::Lost) => {
                    tracing::warn!(message.id = %message.id, "another process has the message in hand by now");
                    return;
                }
                Err(error) => {
                    tracing::warn!(%error, message.id = %message.id, "how a try ended could not be noted");
                    tokio::time::sleep(POLL).await;
                }
            }
        }
    }

    async fn observe(&self) {
        let Ok(depth) = self.store.outbox_depth().await else { return };
        for (kind, waiting) in [("webhook", depth.webhooks), ("lineage", depth.lineage)] {
            let oldest = waiting.oldest.unwrap_or_default().as_secs_f64();
            metrics::gauge!(METRIC_NOTIFICATIONS, "kind" => kind, "state" => "pending").set(waiting.pending as f64);
            metrics::gauge!(METRIC_NOTIFICATIONS, "kind" => kind, "state" => "gave_up").set(waiting.gave_up as f64);
            metrics::gauge!(METRIC_NOTIFICATION_OLDEST_SECONDS, "kind" => kind).set(oldest);
        }
    }
}

fn kind(message: &Message) -> &'static str {
    match message.to {
        Recipient::Webhook(_) => "webhook",
        Recipient::Lineage => "lineage",
    }
}

/// Says in the log and in the metrics how a try ended.
fn told(message: &Message, tried: &Tried) {
    let outcome = match tried.then {
        Then::Delivered => "delivered",
        Then::Again(_) => "failed",
        Then::GiveUp => "gave_up",
    };
    metrics::counter!(METRIC_NOTIFICATION_TRIES, "kind" => kind(message), "outcome" => outcome).increment(1);
    let (run, id, event, kind) = (message.notice.run_id, message.id, message.notice.event(), kind(message));
    let url = match &message.to {
        Recipient::Webhook(url) => server_of(url),
        Recipient::Lineage => "",
    };
    let error = tried.error.as_deref().unwrap_or_default();
    match tried.then {
        Then::Delivered => tracing::info!(run.id = %run, message.id = %id, event, kind, url, "told"),
        Then::Again(delay) => tracing::warn!(
            run.id = %run, message.id = %id, event, kind, url, error, again_in_seconds = delay.as_secs(), "could not be told"
        ),
        Then::GiveUp => {
            tracing::error!(run.id = %run, message.id = %id, event, kind, url, error, "it is not told any more")
        }
    }
}

/// Waits until a run has changed. Of changes that were missed only that there were some is known, so it has.
async fn changed(changes: &mut broadcast::Receiver<Change>) {
    loop {
        match changes.recv().await {
            Ok(Change::Run(_)) | Err(broadcast::error::RecvError::Lagged(_)) => return,
            Ok(Change::Queue) => {}
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// A random number in 0..1 from a random id.
fn jitter() -> f64 {
    f64::from(Uuid::new_v4().as_fields().0) / f64::from(u32::MAX)
}
