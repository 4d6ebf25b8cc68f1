//! Who may do what: the names of principals, scopes and tokens; pure.

mod token;

pub use token::{SecretDigest, Token, TokenEnd, TokenId, TokenRecord};

use crate::run::Principal;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a token lets its bearer do. Each has what the ones before it have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenScope {
    /// See runs, pipelines, partitions and their data.
    Read,
    /// Submit runs; cancel and retry one's own.
    Run,
    /// Cancel and retry everybody's runs, of all pipelines.
    Admin,
}

impl TokenScope {
    /// All of them, from the least on.
    pub const ALL: [Self; 3] = [Self::Read, Self::Run, Self::Admin];

    /// The scope as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Run => "run",
            Self::Admin => "admin",
        }
    }

    /// The scope that a text names.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == text)
    }
}

impl fmt::Display for TokenScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The most characters of a principal's name.
const MAX_PRINCIPAL_CHARS: usize = 64;

/// The principal of this name: letters, digits and `. _ - @` in ASCII, a letter or digit first, at most 64.
///
/// # Errors
///
/// What was found, and what is expected.
pub fn principal(name: &str) -> Result<Principal, String> {
    let expected = "expected a principal of 1 to 64 letters, digits and . _ - @, the first a letter or digit";
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-@".contains(c);
    match name.chars().find(|c| !fits(*c)) {
        Some(other) => Err(format!("found {other:?} in {name:?}, {expected}")),
        None if name.len() > MAX_PRINCIPAL_CHARS => Err(format!("found {} characters, {expected}", name.len())),
        None if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) => Err(format!("found {name:?}, {expected}")),
        None => Ok(Principal(name.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scope_has_those_before_it() {
        assert!(TokenScope::Read < TokenScope::Run && TokenScope::Run < TokenScope::Admin);
        assert!(TokenScope::ALL.iter().all(|scope| TokenScope::parse(scope.as_str()) == Some(*scope)));
        assert_eq!(TokenScope::parse("write"), None);
    }

    #[test]
    fn principals_have_a_closed_alphabet() {
        for good in ["default", "airflow", "Team.A_1-x@example.org", "0"] {
            assert_eq!(principal(good), Ok(Principal(good.to_owned())));
        }
        for (bad, found) in [("a b", "' '"), ("", "\"\""), (".a", "\".a\""), ("é", "'é'"), ("a\n", "'\\n'")] {
            let error = principal(bad).map(|_| ()).map_err(|error| error.contains(found) && error.contains("expected"));
            assert_eq!(error, Err(true), "{bad:?}");
        }
        assert!(principal(&"a".repeat(64)).is_ok() && principal(&"a".repeat(65)).is_err());
    }
}
