//! Keeping, listing and revoking tokens.

use crate::access::{SecretDigest, TokenId, TokenRecord, TokenScope};
use crate::run::Principal;
use crate::store::tokens::{NewToken, Tokens};
use crate::store::tx::{Row, Tx, json, unreadable, values};
use crate::store::{StoreError, StoreResult};
use chrono::{DateTime, TimeDelta, Utc};

/// How many tokens there may be: each server has all of them in memory.
const MAX_TOKENS: usize = 10_000;

/// How long ago a token must have ended to be forgotten when another is made.
const FORGOTTEN_AFTER: TimeDelta = TimeDelta::days(90);

pub(super) async fn list(tx: &mut Tx) -> StoreResult<Tokens> {
    let now = tx.now().await?;
    let records = tx.rows(tx.sql.tokens.list, Vec::new()).await?.iter().map(record).collect::<StoreResult<_>>()?;
    Ok(Tokens { records, now })
}

pub(super) async fn put(tx: &mut Tx, token: &NewToken) -> StoreResult<TokenRecord> {
    let now = tx.now().await?;
    tx.execute(tx.sql.tokens.forget, values![now - FORGOTTEN_AFTER]).await?;
    if tx.rows(tx.sql.tokens.list, Vec::new()).await?.len() >= MAX_TOKENS {
        return Err(StoreError::Setup(format!("there are {MAX_TOKENS} tokens, which is the most that there may be")));
    }
    let record = TokenRecord {
        id: token.id.clone(),
        name: token.name.clone(),
        principal: token.principal.clone(),
        digest: token.digest.clone(),
        scope: token.scope,
        pipelines: token.pipelines.clone(),
        created_at: now,
        expires_at: token.lifetime.map(|lifetime| now + lifetime),
        revoked_at: None,
    };
    let row = values![
        record.id.as_str(),
        record.name.as_str(),
        record.principal.0.as_str(),
        record.digest.digits(),
        record.scope.as_str(),
        record.pipelines.as_ref().map(json).transpose()?,
        record.created_at,
        record.expires_at,
    ];
    tx.execute(tx.sql.tokens.insert, row).await?;
    Ok(record)
}

pub(super) async fn revoke(tx: &mut Tx, id: &TokenId) -> StoreResult<Option<DateTime<Utc>>> {
    let now = tx.now().await?;
    let revoked = tx.optional(tx.sql.tokens.revoke, values![id.as_str(), now]).await?;
    revoked.map(|row| row.time("revoked_at")).transpose()
}

fn record(row: &Row) -> StoreResult<TokenRecord> {
    let (id, scope) = (row.text("id")?, row.text("scope")?);
    Ok(TokenRecord {
        id: TokenId::parse(&id).ok_or_else(|| unreadable("id", &id, "the id of a token"))?,
        name: row.text("name")?,
        principal: Principal(row.text("principal")?),
        // What was found is not told: it may be a secret that somebody put there by hand.
        digest: SecretDigest::parse(&row.text("digest")?).ok_or_else(|| unreadable("digest", "…", "a sha256"))?,
        scope: TokenScope::parse(&scope).ok_or_else(|| unreadable("scope", &scope, "a scope"))?,
        pipelines: row.optional_json("pipelines")?,
        created_at: row.time("created_at")?,
        expires_at: row.optional_time("expires_at")?,
        revoked_at: row.optional_time("revoked_at")?,
    })
}
