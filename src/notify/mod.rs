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
mod tries;
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
use crate::store::{
    Change, Fenced, Message, MessageClaim, Recipient, RunStore, StoreResult, Taken, Then, Tried, UnreadableMessage,
};
use crate::telemetry::{METRIC_NOTIFICATION_OLDEST_SECONDS, METRIC_NOTIFICATION_TRIES, METRIC_NOTIFICATIONS};
use answer::Answer;
use chrono::Utc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tries::{Place, Tries};
use uuid::Uuid;

/// How long one try may take, to the head of the answer.
const TRY_WITHIN: Duration = Duration::from_secs(15);
/// After this time another process may try: longer than a try with what is noted of it.
const LEASE: Duration = Duration::from_secs(30);
/// How long a message that cannot be read is left alone.
const UNREADABLE_PAUSE: Duration = Duration::from_secs(60);
/// How often to look for messages when nothing says that there are any.
const POLL: Duration = Duration::from_secs(1);
/// How often the gauges are set.
const OBSERVE_EVERY: Duration = Duration::from_secs(15);
/// How long tries that are under way may go on after the shutdown began.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
/// How tries end, as the metric has it.
const OUTCOMES: [&str; 3] = ["delivered", "failed", "gave_up"];
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

impl Notifier {
    /// Delivers until `shutdown`; then nothing more is taken in hand, and tries that are under way have a moment to end.
    pub async fn run(self, shutdown: CancellationToken) {
        self.count_from_zero();
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
            while tries.count() > 0 {
                tries.ended().await;
            }
        };
        if tokio::time::timeout(SHUTDOWN_GRACE, ending).await.is_err() {
            tracing::info!(tries = tries.count(), "tries are given up: they are made again, under the same ids");
        }
    }

    /// Takes in hand what is due, as far as there is room.
    async fn take(self: &Arc<Self>, tries: &mut Tries) -> StoreResult<()> {
        while tries.has_room() {
            let claim = MessageClaim {
                token: Uuid::new_v4(),
                lease: LEASE,
                webhooks: self.webhooks.is_some(),
                lineage: self.lineage.is_some(),
                busy: tries.busy_hosts(),
                busy_principals: tries.busy_principals(),
            };
            match self.store.claim_message(&claim).await? {
                Some(Taken::Message(message)) => {
                    let notifier = Arc::clone(self);
                    tries.start(Place::of(&message), async move { notifier.attempt(*message, claim.token).await });
                }
                Some(Taken::Unreadable(message)) => self.put_off(&message, claim.token).await?,
                None => break,
            }
        }
        Ok(())
    }

    /// What cannot be read was not told; it has as many tries as what can, since another version may be able to read it.
    async fn put_off(&self, message: &UnreadableMessage, token: Uuid) -> StoreResult<()> {
        let then = match self.schedule.after(message.tries, 0.0, None) {
            Some(_) => Then::Again(UNREADABLE_PAUSE),
            None => Then::GiveUp,
        };
        count(&message.to, then);
        let error = format!("the message cannot be read: {}", message.why);
        let id = message.id.as_ref().map(tracing::field::display);
        tracing::error!(
            message.id = id,
            message.position = message.position,
            kind = kind(&message.to),
            error,
            gave_up = then == Then::GiveUp,
            "could not be told"
        );
        let tried = Tried { status: None, error: Some(error), then };
        // Where somebody else has it by now, that is noted there.
        let _ = self.store.message_tried(message.position, token, &tried).await?;
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
            match self.store.message_tried(message.position, token, tried).await {
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

    /// The first one that is given up is an increase too.
    fn count_from_zero(&self) {
        for (kind, is_told) in [("webhook", self.webhooks.is_some()), ("lineage", self.lineage.is_some())] {
            for outcome in OUTCOMES.into_iter().filter(|_| is_told) {
                metrics::counter!(METRIC_NOTIFICATION_TRIES, "kind" => kind, "outcome" => outcome).increment(0);
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

fn kind(to: &Recipient) -> &'static str {
    match to {
        Recipient::Webhook(_) => "webhook",
        Recipient::Lineage => "lineage",
    }
}

/// Says in the metrics how a try ended.
fn count(to: &Recipient, then: Then) {
    let [delivered, failed, gave_up] = OUTCOMES;
    let outcome = match then {
        Then::Delivered => delivered,
        Then::Again(_) => failed,
        Then::GiveUp => gave_up,
    };
    metrics::counter!(METRIC_NOTIFICATION_TRIES, "kind" => kind(to), "outcome" => outcome).increment(1);
}

/// Says in the log and in the metrics how a try ended.
fn told(message: &Message, tried: &Tried) {
    count(&message.to, tried.then);
    let (run, id, event, kind) = (message.notice.run_id, message.id, message.notice.event(), kind(&message.to));
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
            Ok(Change::Held(_) | Change::Queue) => {}
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// A random number in 0..1 from a random id.
fn jitter() -> f64 {
    f64::from(Uuid::new_v4().as_fields().0) / f64::from(u32::MAX)
}
