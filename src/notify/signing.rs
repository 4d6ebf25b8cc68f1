//! Signatures of Standard Webhooks: HMAC-SHA256 over the id, the time and the body (<https://www.standardwebhooks.com>).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;
use std::ops::RangeInclusive;

/// What a secret begins with.
const PREFIX: &str = "whsec_";
/// How many bytes a secret has.
const BYTES: RangeInclusive<usize> = 24..=64;

/// The secrets that webhooks are signed with: all of them sign, so that receivers can go from one to the next.
#[derive(Clone)]
pub struct Secrets(Vec<Vec<u8>>);

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secrets", self.0.len())
    }
}

/// A list of secrets that cannot be read; it never says what it found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// Nothing in it.
    #[error("found no secret, expected one a line")]
    Empty,
    /// A line is no secret.
    #[error(
        "line {0} is no secret, expected whsec_ and 24 to 64 bytes in base64, as `openssl rand -base64 32` makes them"
    )]
    Line(usize),
}

impl Secrets {
    /// Reads secrets, one a line, the newest first; empty lines mean nothing.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        let lines = text.lines().map(str::trim).enumerate().filter(|(_, line)| !line.is_empty());
        let secrets = lines.map(|(at, line)| secret(line).ok_or(SecretError::Line(at + 1)));
        let secrets = secrets.collect::<Result<Vec<_>, _>>()?;
        if secrets.is_empty() { Err(SecretError::Empty) } else { Ok(Self(secrets)) }
    }

    /// The header `webhook-signature`.
    pub fn signature(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let signed = |secret: &Vec<u8>| {
            // A key of any length is one.
            let mut mac = Hmac::<Sha256>::new_from_slice(secret).ok()?;
            mac.update(format!("{id}.{timestamp}.").as_bytes());
            mac.update(body);
            Some(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
        };
        self.0.iter().filter_map(signed).collect::<Vec<_>>().join(" ")
    }
}

fn secret(line: &str) -> Option<Vec<u8>> {
    STANDARD.decode(line.strip_prefix(PREFIX)?).ok().filter(|bytes| BYTES.contains(&bytes.len()))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";

    /// The example of the libraries of Standard Webhooks.
    #[test]
    fn signatures_are_those_of_standard_webhooks() {
        let secrets = Secrets::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
        let signature = secrets.signature(ID, 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn every_secret_signs() {
        let line = |byte: u8| format!("whsec_{}", STANDARD.encode([byte; 32]));
        let one = |byte| Secrets::parse(&line(byte)).unwrap().signature(ID, 1, b"{}");
        let both = Secrets::parse(&format!("{}\n\n  {}\r\n", line(1), line(2))).unwrap();
        assert_eq!(both.signature(ID, 1, b"{}"), format!("{} {}", one(1), one(2)));
        assert_eq!(format!("{both:?}"), "2 secrets");
        for other in [(ID, 2, &b"{}"[..]), (ID, 1, b"{ }"), ("msg", 1, b"{}")] {
            assert_ne!(Secrets::parse(&line(1)).unwrap().signature(other.0, other.1, other.2), one(1));
        }
    }

    #[test]
    fn what_is_no_secret_is_refused_and_not_shown() {
        let good = format!("whsec_{}", STANDARD.encode([1; 24]));
        let short = format!("whsec_{}", STANDARD.encode([1; 23]));
        let long = format!("whsec_{}", STANDARD.encode([1; 65]));
        for wrong in ["hunter2", "whsec_hunter2!", "whsec_", &short, &long] {
            let error = Secrets::parse(&format!("{good}\n{wrong}\n")).unwrap_err();
            assert_eq!(error, SecretError::Line(2));
            assert!(!error.to_string().contains("hunter2"));
        }
        assert_eq!(Secrets::parse("\n\n").unwrap_err(), SecretError::Empty);
    }
}
