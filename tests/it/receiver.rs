//! A receiver of webhooks on the loopback, which checks what it gets as the README says.

use crate::service::Place;
use crate::site::{Reply, Request, Site};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;
use std::time::{Duration, Instant};

/// What it is told by, and what it was told by before.
pub(crate) const SECRETS: [&str; 2] =
    ["whsec_bmV3IHNlY3JldCBvZiB0aGUgd2ViaG9va3Mh", "whsec_b2xkIHNlY3JldCBvZiB0aGUgd2ViaG9va3Mh"];
const WITHIN: Duration = Duration::from_secs(30);

/// The receiver; gone with the test.
pub(crate) struct Receiver {
    site: Site,
}

/// One request of a webhook, whose signatures are right.
#[derive(Debug, Clone)]
pub(crate) struct Heard {
    pub(crate) id: String,
    pub(crate) body: Value,
}

impl Heard {
    pub(crate) fn event(&self) -> &str {
        self.body["type"].as_str().unwrap()
    }

    pub(crate) fn run(&self) -> &str {
        self.body["data"]["run_id"].as_str().unwrap()
    }

    fn of(request: &Request) -> Self {
        let header =
            |name: &str| request.headers.get(name).unwrap_or_else(|| panic!("no {name}: {request:?}")).as_str();
        let (id, timestamp) = (header("webhook-id"), header("webhook-timestamp"));
        let age = chrono::Utc::now().timestamp() - timestamp.parse::<i64>().unwrap();
        assert!(age.abs() < 300, "sent {age} s ago");
        assert_eq!((request.method.as_str(), header("content-type")), ("POST", "application/json"));
        let signed = SECRETS.map(|secret| {
            let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
            let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
            mac.update(format!("{id}.{timestamp}.").as_bytes());
            mac.update(&request.body);
            format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
        });
        assert_eq!(header("webhook-signature"), signed.join(" "), "each secret signs");
        Self { id: id.to_owned(), body: serde_json::from_slice(&request.body).unwrap() }
    }
}

impl Receiver {
    pub(crate) async fn start(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self { site: Site::start(answer).await }
    }

    /// One that has whatever it is told.
    pub(crate) async fn willing() -> Self {
        Self::start(|_| Reply::status(204)).await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        self.site.url(path)
    }

    /// How an operator lists it.
    pub(crate) fn listed(&self) -> String {
        self.url("")
    }

    /// What it was told so far, repeats and all, in the order of their coming.
    pub(crate) fn heard(&self) -> Vec<Heard> {
        self.site.requests().iter().map(Heard::of).collect()
    }

    /// Waits until it was told so many times.
    pub(crate) async fn hears(&self, times: usize) -> Vec<Heard> {
        let end = Instant::now() + WITHIN;
        loop {
            let heard = self.heard();
            if heard.len() >= times {
                return heard;
            }
            assert!(Instant::now() < end, "told {} times, not {times}: {heard:#?}", heard.len());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// The flags of a server that tells these hosts, and tries again after these seconds.
pub(crate) fn telling(place: &Place, hosts: &str, retry_seconds: &str) -> Vec<String> {
    let secrets = place.path("webhook-secrets");
    std::fs::write(&secrets, SECRETS.join("\n")).unwrap();
    let flags = ["--workers", "1", "--webhook-hosts", hosts, "--notify-retry-seconds", retry_seconds];
    let mut flags: Vec<String> = flags.map(str::to_owned).into();
    flags.extend(["--webhook-secret-file".to_owned(), secrets.display().to_string()]);
    flags
}
