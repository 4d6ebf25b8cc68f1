//! The tokens of those who may use the service.

use super::StoreResult;
use crate::access::{SecretDigest, TokenId, TokenRecord, TokenScope};
use crate::run::Principal;
use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use std::collections::BTreeSet;

/// A token to be kept.
#[derive(Debug, Clone)]
pub struct NewToken {
    /// Its id.
    pub id: TokenId,
    /// What its maker calls it by; empty for nothing.
    pub name: String,
    /// Whose keys and runs those of its bearer are.
    pub principal: Principal,
    /// The digest of its secret.
    pub digest: SecretDigest,
    /// What it lets its bearer do.
    pub scope: TokenScope,
    /// The only pipelines that there are for its bearer; none for all, which admins must have.
    pub pipelines: Option<BTreeSet<String>>,
    /// How long it is one; none for ever.
    pub lifetime: Option<TimeDelta>,
}

/// All tokens at a moment.
#[derive(Debug)]
pub struct Tokens {
    /// In the order of their making.
    pub records: Vec<TokenRecord>,
    /// The moment, by the database's clock, which also says when a token was made and revoked.
    pub now: DateTime<Utc>,
}

/// Keeping tokens; each step is one transaction.
#[async_trait]
pub trait TokenStore: Send + Sync {
    /// All tokens, also those that have ended: while there is any, nobody is let in without one.
    async fn tokens(&self) -> StoreResult<Tokens>;

    /// Keeps a token, and forgets those that have ended long ago. So there is always one where there ever was.
    async fn put_token(&self, token: &NewToken) -> StoreResult<TokenRecord>;

    /// Revokes a token, for good; answers when that was, which may be before now. None where it is not known.
    async fn revoke_token(&self, id: &TokenId) -> StoreResult<Option<DateTime<Utc>>>;
}

/// One database's dialect, as [`super::statements::Statements`] are.
#[derive(Debug)]
#[cfg_attr(test, derive(serde::Serialize))]
pub(super) struct TokenStatements {
    /// In the order of their making.
    pub(super) list: &'static str,
    /// 1 id, 2 name, 3 principal, 4 digest, 5 scope, 6 list of pipelines or null, 7 now, 8 when it expires or null.
    pub(super) insert: &'static str,
    /// Those that ended before. 1 time.
    pub(super) forget: &'static str,
    /// Unless it was before; answers when. 1 id, 2 now.
    pub(super) revoke: &'static str,
}
