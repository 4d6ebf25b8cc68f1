//! Who asks: what the token of a request says.

use super::problem::Problem;
use crate::access::{TokenId, TokenScope};
use crate::run::Principal;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Who asks; an extension of each request that was let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller(Arc<Bearer>);

/// What a token says of its bearer.
#[derive(Debug, PartialEq, Eq)]
pub struct Bearer {
    /// Whose keys and runs these are.
    pub principal: Principal,
    /// What they may do.
    pub scope: TokenScope,
    /// The only pipelines that there are for them; none for all.
    pub pipelines: Option<BTreeSet<String>>,
    /// The token; none where the server has no tokens and everybody may do everything.
    pub token: Option<TokenId>,
}

impl Caller {
    /// Somebody who came without a token, to a server that has none.
    pub(super) fn anybody() -> Self {
        Self::of(Bearer { principal: Principal::default(), scope: TokenScope::Admin, pipelines: None, token: None })
    }

    /// The bearer of a token.
    pub(super) fn of(bearer: Bearer) -> Self {
        Self(Arc::new(bearer))
    }

    /// Whether there is a pipeline of this name for them, where the server has it.
    pub(super) fn sees(&self, pipeline: &str) -> bool {
        self.pipelines.as_ref().is_none_or(|listed| listed.contains(pipeline))
    }

    /// Whether they may cancel and retry runs of this principal.
    pub(super) fn may_change(&self, principal: &Principal) -> bool {
        self.scope == TokenScope::Admin || self.principal == *principal
    }

    /// The token's id, as logs have it.
    pub(super) fn token_id(&self) -> &str {
        self.token.as_ref().map_or("none", TokenId::as_str)
    }
}

impl std::ops::Deref for Caller {
    type Target = Bearer;

    fn deref(&self) -> &Bearer {
        &self.0
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        parts.extensions.get::<Self>().cloned().ok_or_else(|| {
            tracing::error!(path = parts.uri.path(), "a request came to a handler and nobody knows whose it is");
            Problem::Internal
        })
    }
}
