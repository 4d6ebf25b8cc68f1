//! The tokens that there are, and whom they let in.
//!
//! One look at all of them serves every request for a moment. So a revocation counts within that moment, whatever comes costs no
//! question of its own, and what is in memory is bounded by what was made, not by what is tried.

use super::problem::{Denied, Problem};
use super::{Bearer, Caller, local};
use crate::access::{SecretDigest, Token, TokenEnd, TokenId, TokenRecord};
use crate::store::TokenStore;
use axum::http::{HeaderMap, Uri, header};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long whoever asks whether the service is ready waits for the tokens.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whom a service lets in while there are no tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenTo {
    /// Nobody.
    Nobody,
    /// Whoever asks on this machine, but no page of another site in a browser here.
    ThisMachine,
    /// Everybody who reaches it.
    Everybody,
}

/// Lets requests in, or not.
#[derive(Clone)]
pub struct Gate(Arc<Shared>);

struct Shared {
    store: Arc<dyn TokenStore>,
    fresh_for: Duration,
    /// Who may do everything where there are no tokens.
    open_to: OpenTo,
    /// There was a token once: a database that has lost all of them opens nothing.
    was_closed: AtomicBool,
    last: Mutex<Option<Look>>,
}

/// A look at all tokens.
struct Look {
    began: Instant,
    ended: Instant,
    found: Result<Arc<Known>, Problem>,
}

type Known = HashMap<TokenId, (TokenRecord, Option<TokenEnd>)>;

impl Gate {
    /// How long a look may serve: so long a token that was revoked may still be one, and a first one count for nothing.
    pub const FRESH_FOR: Duration = Duration::from_secs(2);

    /// By the tokens of this store, looked at anew after `fresh_for`. Where there are none, these are let in.
    pub fn new(store: Arc<dyn TokenStore>, fresh_for: Duration, open_to: OpenTo) -> Self {
        let (was_closed, last) = (AtomicBool::new(false), Mutex::new(None));
        Self(Arc::new(Shared { store, fresh_for, open_to, was_closed, last }))
    }

    /// Who asks for this with these headers.
    pub(super) async fn caller(&self, uri: &Uri, headers: &HeaderMap) -> Result<Caller, Problem> {
        let known = self.known().await?;
        if self.is_open(&known) {
            return self.check_site(uri, headers).map(|()| Caller::anybody()).map_err(Problem::Denied);
        }
        bearer(&known, headers).map(Caller::of).map_err(Problem::Denied)
    }

    /// Whether who asks may know of all pipelines. Where the database does not answer, it is as far as is known.
    pub(super) async fn tells_all(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        match tokio::time::timeout(PATIENCE, self.caller(uri, headers)).await {
            Ok(Ok(caller)) => caller.pipelines.is_none(),
            Ok(Err(Problem::Denied(_))) => false,
            _ => self.may_be_open() && self.check_site(uri, headers).is_ok(),
        }
    }

    /// Ends when somebody who was let in would not be any more, and says why. A database that does not answer changes nothing
    /// for who is in.
    pub(super) async fn ended(&self, caller: &Caller) -> Problem {
        loop {
            tokio::time::sleep(self.0.fresh_for).await;
            let Ok(known) = self.known().await else { continue };
            if let Some(denied) = self.end(&known, caller) {
                return Problem::Denied(denied);
            }
        }
    }

    fn end(&self, known: &Known, caller: &Caller) -> Option<Denied> {
        match &caller.token {
            None => (!self.is_open(known)).then_some(Denied::MissingToken),
            Some(id) => match known.get(id) {
                Some((_, None)) => None,
                Some((_, end)) => Some(Denied::InvalidToken(*end)),
                None => Some(Denied::InvalidToken(None)),
            },
        }
    }

    fn is_open(&self, known: &Known) -> bool {
        known.is_empty() && self.may_be_open()
    }

    fn may_be_open(&self) -> bool {
        self.0.open_to != OpenTo::Nobody && !self.0.was_closed.load(Ordering::Relaxed)
    }

    /// Where it is open to this machine, whether that is who asks.
    fn check_site(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Denied> {
        if self.0.open_to == OpenTo::ThisMachine { local::check(uri, headers) } else { Ok(()) }
    }

    /// The tokens as they were a moment ago. Of those who come while they are looked at, none asks again, whatever is found.
    async fn known(&self) -> Result<Arc<Known>, Problem> {
        let came = Instant::now();
        let mut last = self.0.last.lock().await;
        if let Some(look) = &*last
            && (look.ended >= came || (look.found.is_ok() && look.began.elapsed() < self.0.fresh_for))
        {
            return look.found.clone();
        }
        let began = Instant::now();
        let found = self.look().await;
        *last = Some(Look { began, ended: Instant::now(), found: found.clone() });
        found
    }

    async fn look(&self) -> Result<Arc<Known>, Problem> {
        let tokens = self.0.store.tokens().await?;
        if !tokens.records.is_empty() {
            self.0.was_closed.store(true, Ordering::Relaxed);
        }
        let known = tokens.records.into_iter().map(|record| {
            let end = record.end(tokens.now);
            (record.id.clone(), (record, end))
        });
        Ok(Arc::new(known.collect()))
    }
}

/// What the one bearer token in the headers says, if it is one. Who guesses learns nothing from the time that it takes.
fn bearer(known: &Known, headers: &HeaderMap) -> Result<Bearer, Denied> {
    let mut sent = headers.get_all(header::AUTHORIZATION).into_iter();
    let (first, second) = (sent.next(), sent.next());
    let first = first.and_then(|value| value.to_str().ok()).and_then(|value| value.split_once(' '));
    let Some((_, text)) = first.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")) else {
        return Err(Denied::MissingToken);
    };
    let Some(token) = Token::parse(text.trim()).filter(|_| second.is_none()) else {
        return Err(Denied::InvalidToken(None));
    };
    let found = known.get(token.id());
    let digest = found.map_or(&SecretDigest::NOBODYS, |(record, _)| &record.digest);
    let is_its = token.digest().is(digest);
    match found.filter(|_| is_its) {
        None => Err(Denied::InvalidToken(None)),
        Some((_, Some(end))) => Err(Denied::InvalidToken(Some(*end))),
        Some((record, None)) => Ok(Bearer {
            principal: record.principal.clone(),
            scope: record.scope,
            pipelines: record.pipelines.clone(),
            token: Some(record.id.clone()),
        }),
    }
}
