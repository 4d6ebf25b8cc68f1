//! Bearer tokens: `rfr_<id>_<secret>`, both in hexadecimal digits. Whoever sees one knows it by its beginning, which those who
//! search for lost secrets look for.

use super::TokenScope;
use crate::run::{Principal, hex};
use chrono::{DateTime, Utc};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fmt;
use subtle::ConstantTimeEq;

/// What tokens begin with.
const PREFIX: &str = "rfr_";

/// The digits of an id, of 8 random bytes.
const ID_DIGITS: usize = 16;

/// The digits of a secret, of 32 random bytes.
const SECRET_DIGITS: usize = 64;

/// Names a token. It is no secret, and stands in logs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId(String);

impl TokenId {
    /// The id that a text is.
    pub fn parse(text: &str) -> Option<Self> {
        is_hex(text, ID_DIGITS).then(|| Self(text.to_owned()))
    }

    /// The id as it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A token as its bearer has it.
#[derive(Debug)]
pub struct Token {
    id: TokenId,
    secret: SecretString,
}

impl Token {
    /// How many random bytes a token is made of.
    pub const RANDOM_BYTES: usize = 40;

    /// The token of these random bytes.
    pub fn of(random: &[u8; Self::RANDOM_BYTES]) -> Self {
        let (id, secret) = random.split_at(ID_DIGITS / 2);
        Self { id: TokenId(hex(id)), secret: hex(secret).into() }
    }

    /// The token that a text is.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        let id = TokenId::parse(id)?;
        is_hex(secret, SECRET_DIGITS).then(|| Self { id, secret: secret.to_owned().into() })
    }

    /// Its id.
    pub fn id(&self) -> &TokenId {
        &self.id
    }

    /// The digest of its secret. There is no salt: nobody can try 256 random bits one after the other.
    pub fn digest(&self) -> SecretDigest {
        SecretDigest(Sha256::digest(self.secret.expose_secret()).into())
    }

    /// The text that its bearer sends.
    pub fn text(&self) -> SecretString {
        format!("{PREFIX}{}_{}", self.id, self.secret.expose_secret()).into()
    }
}

/// The sha256 of a token's secret.
#[derive(Clone)]
pub struct SecretDigest([u8; 32]);

impl SecretDigest {
    /// A digest that no token has: what there is to compare with where nothing is known.
    pub const NOBODYS: Self = Self([0; 32]);

    /// The digest that hexadecimal digits are.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = is_hex(text, 64).then_some(text)?;
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok()?;
        }
        Some(Self(bytes))
    }

    /// Its hexadecimal digits.
    pub fn digits(&self) -> String {
        hex(&self.0)
    }

    /// Whether both are the same; this takes as long wherever they differ.
    pub fn is(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Debug for SecretDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretDigest(…)")
    }
}

/// A token as it is kept.
#[derive(Debug, Clone)]
pub struct TokenRecord {
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
    /// The only pipelines that there are for its bearer; none for all.
    pub pipelines: Option<BTreeSet<String>>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// From when on it is none any more.
    pub expires_at: Option<DateTime<Utc>>,
    /// When it was revoked.
    pub revoked_at: Option<DateTime<Utc>>,
}

/// Why a token is none any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenEnd {
    /// It was revoked, then.
    Revoked(DateTime<Utc>),
    /// It expired, then.
    Expired(DateTime<Utc>),
}

impl TokenRecord {
    /// Why it is no token any more at this time.
    pub fn end(&self, now: DateTime<Utc>) -> Option<TokenEnd> {
        let expired = self.expires_at.filter(|at| *at <= now).map(TokenEnd::Expired);
        self.revoked_at.map(TokenEnd::Revoked).or(expired)
    }
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn token(filled_with: u8) -> Token {
        Token::of(&[filled_with; Token::RANDOM_BYTES])
    }

    #[test]
    fn a_token_is_read_as_it_was_written() {
        let (token, text) = (token(0xa5), token(0xa5).text());
        assert_eq!(text.expose_secret(), &format!("rfr_{}_{}", "a5".repeat(8), "a5".repeat(32)));
        let read = Token::parse(text.expose_secret()).unwrap();
        assert_eq!(read.id(), token.id());
        assert!(read.digest().is(&token.digest()));
        assert!(SecretDigest::parse(&token.digest().digits()).unwrap().is(&token.digest()));
    }

    #[test]
    fn what_is_no_token_is_none() {
        let good = token(1).text().expose_secret().to_owned();
        let (longer, upper) = (format!("{good}0"), good.to_uppercase());
        for bad in ["", "rfr_", "rfr__", &good[..good.len() - 1], &longer, &upper, &good[1..], &good.replace('_', "-")]
        {
            assert!(Token::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn every_bit_of_a_digest_counts() {
        let digest = token(1).digest();
        for bit in 0..256 {
            let mut other = digest.clone();
            other.0[bit / 8] ^= 1 << (bit % 8);
            assert!(!digest.is(&other), "{bit}");
        }
        assert!(!SecretDigest::NOBODYS.is(&digest));
    }

    #[test]
    fn neither_secret_nor_digest_is_shown() {
        let shown = format!("{:?} {:?}", token(0xa5), token(0xa5).digest());
        assert!(!shown.contains(&"a5".repeat(9)) && !shown.contains(&token(0xa5).digest().digits()[..8]), "{shown}");
    }

    #[test]
    fn a_token_ends_when_it_expires_or_is_revoked() {
        let at = |seconds| DateTime::from_timestamp(seconds, 0).unwrap();
        let record = |expires_at, revoked_at| TokenRecord {
            id: token(1).id().clone(),
            name: String::new(),
            principal: Principal::default(),
            digest: token(1).digest(),
            scope: TokenScope::Read,
            pipelines: None,
            created_at: at(0),
            expires_at,
            revoked_at,
        };
        assert_eq!(record(None, None).end(at(1_000)), None);
        assert_eq!(record(Some(at(10)), None).end(at(9)), None);
        assert_eq!(record(Some(at(10)), None).end(at(10)), Some(TokenEnd::Expired(at(10))));
        assert_eq!(record(Some(at(10)), Some(at(5))).end(at(6)), Some(TokenEnd::Revoked(at(5))));
    }
}
