//! Requests of those who are not known, or may not do what they ask.

use crate::access::{TokenEnd, TokenScope};
use crate::run::{Principal, RunId};
use serde_json::{Value, json};

/// Why somebody was not let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denied {
    /// No bearer token came.
    MissingToken,
    /// What came is no token, or is none any more, which only who has the whole of it is told.
    InvalidToken(Option<TokenEnd>),
    /// The token does not let its bearer do this.
    InsufficientScope {
        /// What is needed.
        needed: TokenScope,
        /// What the token has.
        had: TokenScope,
    },
    /// The answer would tell of all pipelines, and the token is for some.
    SomePipelines,
    /// The service is open to this machine alone, and the request is not one of it.
    ForeignRequest {
        /// The header that says so.
        header: &'static str,
        /// What it says.
        found: String,
    },
    /// The run is another principal's.
    NotYourRun {
        /// The run.
        run_id: RunId,
        /// Whose it is.
        owner: Principal,
        /// Who asked.
        caller: Principal,
    },
}

impl Denied {
    pub(super) fn detail(&self) -> String {
        match self {
            Self::MissingToken => {
                "found no bearer token, expected the header `Authorization: Bearer rfr_…`; `refrain token new` makes one".to_owned()
            }
            Self::InvalidToken(None) => "found a bearer token that this service does not know, expected one of its own".to_owned(),
            Self::InvalidToken(Some(TokenEnd::Revoked(at))) => format!("the token was revoked at {}", at.to_rfc3339()),
            Self::InvalidToken(Some(TokenEnd::Expired(at))) => format!("the token expired at {}", at.to_rfc3339()),
            Self::InsufficientScope { needed, had } => {
                format!("found a token with the scope {had}, expected one with the scope {needed}")
            }
            Self::SomePipelines => {
                "found a token for some pipelines, expected one for all: the answer tells of all of them".to_owned()
            }
            Self::ForeignRequest { header, found } => format!(
                "found the {header} {found:?}, expected localhost or an address of the loopback: without tokens this server is for its \
                 own machine; make one by `refrain token new`, or have the proxy before it send `Host: localhost`"
            ),
            Self::NotYourRun { run_id, owner, caller } => format!(
                "the run {run_id} is {}'s and the token {}'s, expected a token of the same principal or with the scope admin",
                owner.0, caller.0
            ),
        }
    }

    pub(super) fn members(&self) -> Value {
        match self {
            Self::InsufficientScope { needed, had } => json!({ "needed": needed, "had": had }),
            Self::ForeignRequest { header, .. } => json!({ "header": header }),
            Self::NotYourRun { run_id, owner, .. } => json!({ "run_id": run_id, "principal": owner }),
            Self::MissingToken | Self::InvalidToken(_) | Self::SomePipelines => Value::Null,
        }
    }

    /// What the header `WWW-Authenticate` says, after RFC 6750; nothing where another token of the same kind would not help.
    pub(super) fn challenge(&self) -> Option<String> {
        let realm = "Bearer realm=\"refrain\"";
        match self {
            Self::MissingToken => Some(realm.to_owned()),
            Self::InvalidToken(_) => {
                Some(format!("{realm}, error=\"invalid_token\", error_description=\"{}\"", self.detail()))
            }
            Self::InsufficientScope { needed, .. } => {
                Some(format!("{realm}, error=\"insufficient_scope\", scope=\"{needed}\""))
            }
            Self::SomePipelines | Self::ForeignRequest { .. } | Self::NotYourRun { .. } => None,
        }
    }
}
