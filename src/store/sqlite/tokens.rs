//! The statements about tokens in SQLite's dialect.

use crate::store::tokens::TokenStatements;

pub(super) const TOKENS: TokenStatements = TokenStatements {
    list: r"
        select id, name, principal, digest, scope, pipelines, created_at, expires_at, revoked_at
        from tokens
        order by created_at, id",
    insert: r"
        insert into tokens (id, name, principal, digest, scope, pipelines, created_at, expires_at)
        values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    forget: r"delete from tokens where revoked_at < ?1 or expires_at < ?1",
    revoke: r"update tokens set revoked_at = coalesce(revoked_at, ?2) where id = ?1 returning revoked_at",
};
