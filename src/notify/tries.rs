//! The tries under way, and who has enough of them: no host and no principal takes the places of all others.

use crate::store::{Message, Recipient};
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use tokio::task::{self, JoinSet};

/// How many tries are under way at the same time.
const AT_ONCE: usize = 32;
/// How many of them with one host, so that a slow receiver does not keep the others waiting.
const AT_ONCE_PER_HOST: usize = 4;
/// How many webhooks of a principal are under way for each place that is free. So one alone has three quarters of the places, and
/// the more principals there are the less each has: there is a place for who comes next, whatever the others have waiting.
const PER_FREE_PLACE: usize = 3;

/// The tries under way. Each is a task of its own: one that holds the database must go on while the next message is asked for.
#[derive(Default)]
pub(super) struct Tries {
    set: JoinSet<()>,
    places: HashMap<task::Id, Place>,
}

/// Whom a try is with.
pub(super) struct Place {
    host: String,
    /// Whose webhook it is; none where it is lineage, which all goes to the operator.
    principal: Option<String>,
}

impl Place {
    pub(super) fn of(message: &Message) -> Self {
        let is_webhook = matches!(message.to, Recipient::Webhook(_));
        Self { host: message.host.clone(), principal: is_webhook.then(|| message.notice.principal.clone()) }
    }
}

impl Tries {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.places.len()
    }

    /// Whether there is room for another one.
    pub(super) fn has_room(&self) -> bool {
        self.count() < AT_ONCE
    }

    pub(super) fn start(&mut self, place: Place, attempt: impl Future<Output = ()> + Send + 'static) {
        let id = self.set.spawn(attempt).id();
        self.places.insert(id, place);
    }

    /// Waits for the next one to end; for ever where there is none.
    pub(super) async fn ended(&mut self) {
        let id = match self.set.join_next_with_id().await {
            Some(Ok((id, ()))) => id,
            Some(Err(error)) => {
                tracing::error!(%error, "a try broke; it is made again");
                error.id()
            }
            None => return std::future::pending().await,
        };
        self.places.remove(&id);
    }

    /// The hosts that have enough to do.
    pub(super) fn busy_hosts(&self) -> Vec<String> {
        having(AT_ONCE_PER_HOST, self.places.values().map(|place| &place.host))
    }

    /// The principals whose webhooks have enough to do.
    pub(super) fn busy_principals(&self) -> Vec<String> {
        let free = AT_ONCE.saturating_sub(self.count());
        having(PER_FREE_PLACE * free, self.places.values().filter_map(|place| place.principal.as_ref()))
    }
}

/// Those that are there so often.
fn having<'a>(limit: usize, all: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut tries: BTreeMap<&String, usize> = BTreeMap::new();
    for one in all {
        *tries.entry(one).or_default() += 1;
    }
    tries.into_iter().filter(|(_, tries)| *tries >= limit).map(|(one, _)| one.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notify::webhook::tests::notice;
    use uuid::Uuid;

    /// A principal that has any number of messages, for any number of hosts, takes in hand what it may.
    async fn takes(tries: &mut Tries, principal: &str) -> usize {
        let mut taken = 0;
        while tries.has_room() && !tries.busy_principals().contains(&principal.to_owned()) {
            let mut notice = notice();
            notice.principal = principal.to_owned();
            let (id, host) = (Uuid::new_v4(), format!("{principal}-{taken}"));
            let to = Recipient::Webhook(format!("https://{host}/"));
            tries.start(Place::of(&Message { position: 1, id, to, host, notice, tries: 0 }), std::future::pending());
            taken += 1;
        }
        taken
    }

    #[tokio::test]
    async fn a_principal_alone_has_most_places_and_leaves_some_to_the_next_ones() {
        let mut tries = Tries::default();
        assert_eq!(takes(&mut tries, "first").await, 24);
        let next = [takes(&mut tries, "second").await, takes(&mut tries, "third").await];
        assert_eq!(next, [6, 2], "of what is free each leaves some too, as long as it can be divided");
        assert!(tries.busy_hosts().is_empty());
    }
}
