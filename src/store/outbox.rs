//! What is to be told of runs: messages, who takes one in hand, and how a try ended.

use crate::run::Notice;
use std::time::Duration;
use uuid::Uuid;

/// Who a message is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recipient {
    /// The receiver at this URL.
    Webhook(String),
    /// The operator's lineage.
    Lineage,
}

/// A message that somebody has in hand now.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Its place in the outbox, by which a try is noted.
    pub position: i64,
    /// The same for each try.
    pub id: Uuid,
    /// Who it is for.
    pub to: Recipient,
    /// The host of its URL, as [`MessageClaim::busy`] has it.
    pub host: String,
    /// What it says.
    pub notice: Notice,
    /// Tries before this one of which it is known how they ended.
    pub tries: u32,
}

/// What was found when a message was taken in hand.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub enum Taken {
    /// It can be told.
    Message(Box<Message>),
    /// It cannot be read. Whoever has it in hand notes that as a try, so that it is in nobody's way.
    Unreadable(UnreadableMessage),
}

/// A message that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableMessage {
    /// Its place in the outbox, by which a try is noted.
    pub position: i64,
    /// The same for each try; none where it is what cannot be read.
    pub id: Option<Uuid>,
    /// Who it is for.
    pub to: Recipient,
    /// Tries before this one of which it is known how they ended.
    pub tries: u32,
    /// What was found, and what was expected.
    pub why: String,
}

/// What somebody can deliver now.
#[derive(Debug, Clone)]
pub struct MessageClaim {
    /// The new token.
    pub token: Uuid,
    /// After this time somebody else may try.
    pub lease: Duration,
    /// Whether webhooks are taken.
    pub webhooks: bool,
    /// Whether lineage is.
    pub lineage: bool,
    /// The hosts, each with its port where its URL has one, that have enough to do; lineage has none and is the empty text.
    pub busy: Vec<String>,
    /// The principals whose webhooks have enough to do.
    pub busy_principals: Vec<String>,
}

/// How a try ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    /// What the receiver answered, where it did.
    pub status: Option<u16>,
    /// Why it failed, where it did.
    pub error: Option<String>,
    /// What follows.
    pub then: Then,
}

/// What follows a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Nothing: it was told.
    Delivered,
    /// Another try, after so long.
    Again(Duration),
    /// Nothing: it is not tried any more.
    GiveUp,
}

/// How many messages wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutboxDepth {
    /// Webhooks.
    pub webhooks: Waiting,
    /// Lineage events.
    pub lineage: Waiting,
}

/// Messages of one kind that were not delivered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Those that are tried, or will be again.
    pub pending: u64,
    /// For how long the oldest of them has been waiting.
    pub oldest: Option<Duration>,
    /// Those that are not tried any more.
    pub gave_up: u64,
}
