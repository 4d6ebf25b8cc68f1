//! The HTTP client behind `refrain run` and `refrain status`.
//!
//! Asking again is safe: a submission carries its key and a GET changes nothing. So whatever may have been lost on the
//! way is asked again, a bounded number of times.

mod command;

pub use command::{IfFailedArg, RunArgs, ServerArgs, StatusArgs, healthcheck_command, run_command, status_command};

use reqwest::{Method, StatusCode, Url, header};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// How often one call is tried before its last error is given back.
const MAX_TRIES: u32 = 6;

/// The pause after the first try; doubled after each, up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// The longest pause between two tries.
const MAX_PAUSE: Duration = Duration::from_secs(3);

/// How long a call may take, beside the server's wait for a run.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// How long the server may keep a waiting call, so that progress is seen about as often.
const WAIT_SECONDS: u32 = 1;

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The URL cannot be called.
    #[error("{url:?} is no URL of a server, expected one such as http://127.0.0.1:8080: {detail}")]
    Url {
        /// As given.
        url: String,
        /// What is wrong with it.
        detail: String,
    },
    /// No answer came, however often it was tried.
    #[error("{url} does not answer: {cause}")]
    Unreachable {
        /// What was called.
        url: String,
        /// The last try's error.
        cause: String,
    },
    /// The server refused.
    #[error("{status}: {detail}")]
    Refused {
        /// The status.
        status: u16,
        /// The problem's detail, and its list of errors.
        detail: String,
        /// The problem details.
        problem: Value,
    },
    /// The answer is none of Refrain's.
    #[error("{url} does not answer as Refrain does: {detail}")]
    Unreadable {
        /// What was called.
        url: String,
        /// What was found.
        detail: String,
    },
}

/// A submission's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Submission {
    /// Whether the run was accepted before, under the same key.
    pub replayed: bool,
    /// The run.
    pub run: Value,
}

/// A client of one server.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base: String,
    token: Option<SecretString>,
}

struct Answer {
    status: StatusCode,
    replayed: bool,
    body: Value,
}

impl Client {
    /// A client of the server at `url`; `token` is sent as a bearer token.
    pub fn new(url: &str, token: Option<SecretString>) -> Result<Self, ClientError> {
        let wrong = |detail: String| ClientError::Url { url: url.to_owned(), detail };
        let parsed = Url::parse(url).map_err(|e| wrong(e.to_string()))?;
        let mut builder = reqwest::Client::builder().timeout(CALL_TIMEOUT + Duration::from_secs(WAIT_SECONDS.into()));
        if is_loopback(&parsed) {
            // A proxy of the environment does not lead to this machine.
            builder = builder.no_proxy();
        }
        match parsed.scheme() {
            // Certificates are not looked for where none is needed: small machines have none.
            "http" => builder = builder.tls_certs_only([]),
            "https" => {}
            other => return Err(wrong(format!("found the scheme {other:?}, expected http or https"))),
        }
        // Another part of the process may have installed it; either way there is one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = builder.build().map_err(|e| wrong(e.to_string()))?;
        Ok(Self { http, base: url.trim_end_matches('/').to_owned(), token })
    }

    /// Submits a run under a key.
    pub async fn submit(&self, key: &str, body: &Value) -> Result<Submission, ClientError> {
        let answer = self.call(Method::POST, "/runs", Some((key, body))).await?;
        Ok(Submission { replayed: answer.replayed, run: answer.body })
    }

    /// One run.
    pub async fn run(&self, id: &str) -> Result<Value, ClientError> {
        self.get(&format!("/runs/{}", encoded(id))).await
    }

    /// Whatever is at this path, which begins with a slash and is encoded already.
    pub async fn get(&self, path: &str) -> Result<Value, ClientError> {
        Ok(self.call(Method::GET, path, None).await?.body)
    }

    /// Waits until the run has ended; `on_progress` sees it about every second.
    pub async fn wait_for(&self, id: &str, mut on_progress: impl FnMut(&Value)) -> Result<Value, ClientError> {
        let path = format!("/runs/{}?wait={WAIT_SECONDS}", encoded(id));
        loop {
            let asked = Instant::now();
            let run = self.get(&path).await?;
            on_progress(&run);
            if has_ended(&run) {
                return Ok(run);
            }
            if asked.elapsed() < FIRST_PAUSE {
                // A server that shuts down answers at once.
                tokio::time::sleep(FIRST_PAUSE).await;
            }
        }
    }

    async fn call(&self, method: Method, path: &str, sent: Option<(&str, &Value)>) -> Result<Answer, ClientError> {
        let mut pause = FIRST_PAUSE;
        for _ in 1..MAX_TRIES {
            match self.try_once(&method, path, sent).await {
                Ok(answer) if !may_pass(answer.status) => return checked(answer),
                Err(error @ ClientError::Unreadable { .. }) => return Err(error),
                Ok(_) | Err(_) => tokio::time::sleep(pause).await,
            }
            pause = (pause * 2).min(MAX_PAUSE);
        }
        checked(self.try_once(&method, path, sent).await?)
    }

    async fn try_once(&self, method: &Method, path: &str, sent: Option<(&str, &Value)>) -> Result<Answer, ClientError> {
        let url = format!("{}{path}", self.base);
        let mut request = self.http.request(method.clone(), &url);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token.expose_secret());
        }
        if let Some((key, body)) = sent {
            request = request.header("idempotency-key", key).json(body);
        }
        let unreachable = |e: reqwest::Error| ClientError::Unreachable { url: url.clone(), cause: causes(&e) };
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let replayed = response.headers().get("idempotent-replayed").is_some_and(|value| value == "true");
        let kind = response.headers().get(header::CONTENT_TYPE).cloned();
        let bytes = response.bytes().await.map_err(unreachable)?;
        match serde_json::from_slice(&bytes) {
            Ok(body) => Ok(Answer { status, replayed, body }),
            // A proxy in front says in its own words that it cannot reach the server.
            Err(_) if may_pass(status) => Ok(Answer { status, replayed, body: Value::Null }),
            Err(_) => Err(ClientError::Unreadable { url, detail: format!("found {status} with {kind:?}") }),
        }
    }
}

/// Whether the same call may be answered otherwise in a moment.
fn may_pass(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 429 | 502 | 503 | 504)
}

fn checked(answer: Answer) -> Result<Answer, ClientError> {
    if answer.status.is_success() {
        return Ok(answer);
    }
    let mut detail = answer.body["detail"].as_str().unwrap_or("no reason was given").to_owned();
    let errors = answer.body["errors"].as_array().map_or(&[][..], Vec::as_slice);
    if errors.len() > 1 {
        for error in errors {
            let (pointer, text) = (error["pointer"].as_str(), error["detail"].as_str());
            let _ = write!(detail, "\n  {}: {}", pointer.unwrap_or_default(), text.unwrap_or_default());
        }
    }
    Err(ClientError::Refused { status: answer.status.as_u16(), detail, problem: answer.body })
}

/// An error with its causes, since the outermost says little.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let _ = write!(text, ": {cause}");
        next = cause.source();
    }
    text
}

fn encoded(segment: &str) -> String {
    percent_encoding::utf8_percent_encode(segment, percent_encoding::NON_ALPHANUMERIC).to_string()
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn state(run: &Value) -> &str {
    run["state"].as_str().unwrap_or_default()
}

fn has_ended(run: &Value) -> bool {
    matches!(state(run), "succeeded" | "failed" | "cancelled")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn only_this_machine_is_loopback() {
        let loopback = |text| is_loopback(&Url::parse(text).unwrap());
        for here in ["http://localhost:1", "http://127.0.0.1:8080", "http://[::1]:8080"] {
            assert!(loopback(here), "{here}");
        }
        for there in ["http://10.0.0.1", "http://localhost.example.org", "http://127.0.0.1.example.org"] {
            assert!(!loopback(there), "{there}");
        }
    }
}
