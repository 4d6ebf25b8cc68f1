//! The HTTP client behind the command line's verbs, and those verbs.
//!
//! Asking again is safe: a submission carries its key, a retry the attempt that it is about, and a GET or a cancellation
//! repeated changes nothing. So whatever may have been lost or held on the way is asked again, a bounded number of times.

mod args;
mod screen;
mod show;
mod table;
mod trust;
mod verbs;

pub use args::{
    CancelArgs, CredentialArgs, HealthcheckArgs, HistoryArgs, IfFailedArg, OnOverlapArg, PartitionsArgs, PipelinesArgs,
    RetryArgs, RunArgs, ServerArgs, StatusArgs,
};
pub use table::thousands;
pub use trust::Trust;
pub use verbs::{
    cancel_command, healthcheck_command, history_command, partitions_command, pipelines_command, retry_command,
    run_command, status_command,
};

use reqwest::{Method, StatusCode, Url, header};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How often one call is tried before its last error is given back.
const MAX_TRIES: u32 = 6;

/// The pause after the first try; doubled after each, up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// The longest pause between two tries.
const MAX_PAUSE: Duration = Duration::from_secs(3);

/// How long the first try at a call may take, beside the server's wait for a run: an answer that is held on the way is
/// noticed after it. Doubled with each try, up to [`LONGEST_TRY`], since a server may also be slow.
const FIRST_TRY: Duration = Duration::from_secs(5);

/// The longest that one try may take.
const LONGEST_TRY: Duration = Duration::from_secs(60);

/// How long a server may be away, as while it is started anew, before those who wait for a run give up.
const AWAY: Duration = Duration::from_secs(60);

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
    /// The certificates that are trusted cannot be read.
    #[error("cannot read certificates in {file:?}, expected some in PEM: {detail}")]
    Roots {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// The token cannot be sent.
    #[error("the token cannot stand in a header: expected visible ASCII characters")]
    Token,
    /// The token cannot be read.
    #[error("{0}")]
    TokenFile(String),
    /// The token would be sent so that others can read it.
    #[error(
        "a token is not sent to {server} over http, where whoever is between can read it: expected https, or --insecure"
    )]
    InClear {
        /// The server.
        server: String,
    },
    /// No answer came, however often it was tried.
    #[error("{server} does not answer: {cause}")]
    Unreachable {
        /// The server.
        server: String,
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

impl ClientError {
    /// Whether a later call may be answered.
    fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused { status, .. } => StatusCode::from_u16(*status).is_ok_and(may_pass),
            Self::Url { .. }
            | Self::Roots { .. }
            | Self::Token
            | Self::TokenFile(_)
            | Self::InClear { .. }
            | Self::Unreadable { .. } => false,
        }
    }
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

/// A request: its method, its path and what goes with it.
struct Call<'a> {
    method: Method,
    path: &'a str,
    key: Option<&'a str>,
    body: Option<&'a Value>,
}

struct Answer {
    status: StatusCode,
    replayed: bool,
    body: Value,
}

impl Client {
    /// A client of the server at `url`; `token` is sent as a bearer token, over http only to this machine or where it may be
    /// sent in clear.
    pub fn new(url: &str, token: Option<SecretString>, in_clear: bool) -> Result<Self, ClientError> {
        Self::trusting(url, token, in_clear, &Trust::Platform)
    }

    /// [`Client::new`] that takes these servers, where they speak TLS.
    pub fn trusting(
        url: &str,
        token: Option<SecretString>,
        in_clear: bool,
        trust: &Trust,
    ) -> Result<Self, ClientError> {
        let wrong = |detail: &str| ClientError::Url { url: without_user(url), detail: detail.to_owned() };
        let parsed = Url::parse(url).map_err(|e| wrong(&e.to_string()))?;
        if parsed.password().is_some() || !parsed.username().is_empty() {
            return Err(wrong("found a user in it, expected a token in REFRAIN_TOKEN instead"));
        }
        if token.as_ref().is_some_and(|token| !token.expose_secret().bytes().all(|b| b.is_ascii_graphic())) {
            return Err(ClientError::Token);
        }
        if token.is_some() && parsed.scheme() == "http" && !is_loopback(&parsed) && !in_clear {
            return Err(ClientError::InClear { server: url.to_owned() });
        }
        // A server of Refrain redirects nobody, and the submission is for this one.
        let mut builder = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
        if is_loopback(&parsed) {
            // A proxy of the environment does not lead to this machine.
            builder = builder.no_proxy();
        }
        match parsed.scheme() {
            // Certificates are not looked for where none is needed: small machines have none.
            "http" => builder = builder.tls_certs_only([]),
            "https" => builder = trust.of(builder)?,
            other => return Err(wrong(&format!("found the scheme {other:?}, expected http or https"))),
        }
        // Another part of the process may have installed it; either way there is one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = builder.build().map_err(|e| wrong(&e.to_string()))?;
        Ok(Self { http, base: url.trim_end_matches('/').to_owned(), token })
    }

    /// Submits a run under a key.
    pub async fn submit(&self, key: &str, body: &Value) -> Result<Submission, ClientError> {
        let call = Call { method: Method::POST, path: "/runs", key: Some(key), body: Some(body) };
        let answer = self.call(&call).await?;
        Ok(Submission { replayed: answer.replayed, run: answer.body })
    }

    /// One run.
    pub async fn run(&self, id: &str) -> Result<Value, ClientError> {
        self.get(&format!("/runs/{}", encoded(id))).await
    }

    /// Whatever is at this path, which begins with a slash and is encoded already.
    pub async fn get(&self, path: &str) -> Result<Value, ClientError> {
        Ok(self.call(&Call { method: Method::GET, path, key: None, body: None }).await?.body)
    }

    /// Cancels a run, or asks its worker to stop.
    pub async fn cancel(&self, id: &str) -> Result<Value, ClientError> {
        self.post(&format!("/runs/{}/cancel", encoded(id)), &json!({})).await
    }

    /// Queues a failed or cancelled run again; as it is now where somebody else has done so meanwhile.
    pub async fn retry(&self, id: &str) -> Result<Value, ClientError> {
        let run = self.run(id).await?;
        let attempts = run["attempts"].as_array().map_or(&[][..], Vec::as_slice);
        let last = attempts.last().and_then(|attempt| attempt["number"].as_u64()).unwrap_or(0);
        match self.post(&format!("/runs/{}/retry", encoded(id)), &json!({ "if_attempt": last })).await {
            // An answer to this very request may have been lost, so that it was sent twice.
            Err(ClientError::Refused { status: 409, problem, .. })
                if matches!(state(&run), "failed" | "cancelled") && problem["state"].is_string() =>
            {
                self.run(id).await
            }
            answer => answer,
        }
    }

    /// Waits until the run has ended; `on_progress` sees it about every second. A server that is away for a while is
    /// waited for.
    pub async fn wait_for(&self, id: &str, mut on_progress: impl FnMut(&Value)) -> Result<Value, ClientError> {
        let path = format!("/runs/{}?wait={WAIT_SECONDS}", encoded(id));
        let mut answered = Instant::now();
        loop {
            let asked = Instant::now();
            match self.get(&path).await {
                Ok(run) => {
                    answered = Instant::now();
                    on_progress(&run);
                    if has_ended(&run) {
                        return Ok(run);
                    }
                }
                Err(error) if error.may_pass() && answered.elapsed() < AWAY => {}
                Err(error) => return Err(error),
            }
            if asked.elapsed() < FIRST_PAUSE {
                // A server that shuts down answers at once.
                tokio::time::sleep(FIRST_PAUSE).await;
            }
        }
    }

    async fn post(&self, path: &str, body: &Value) -> Result<Value, ClientError> {
        Ok(self.call(&Call { method: Method::POST, path, key: None, body: Some(body) }).await?.body)
    }

    async fn call(&self, call: &Call<'_>) -> Result<Answer, ClientError> {
        let (mut pause, mut within) = (FIRST_PAUSE, FIRST_TRY);
        for _ in 1..MAX_TRIES {
            match self.try_once(call, within).await {
                Ok(answer) if !may_pass(answer.status) => return checked(answer),
                Err(error @ ClientError::Unreadable { .. }) => return Err(error),
                Ok(_) | Err(_) => tokio::time::sleep(pause).await,
            }
            pause = (pause * 2).min(MAX_PAUSE);
            within = (within * 2).min(LONGEST_TRY);
        }
        checked(self.try_once(call, within).await?)
    }

    async fn try_once(&self, call: &Call<'_>, within: Duration) -> Result<Answer, ClientError> {
        let url = format!("{}{}", self.base, call.path);
        let mut request = self.http.request(call.method.clone(), &url);
        request = request.timeout(within + Duration::from_secs(WAIT_SECONDS.into()));
        if let Some(token) = &self.token {
            request = request.bearer_auth(token.expose_secret());
        }
        if let Some(key) = call.key {
            request = request.header("idempotency-key", key);
        }
        if let Some(body) = call.body {
            request = request.json(body);
        }
        let unreachable =
            |e: reqwest::Error| ClientError::Unreachable { server: self.base.clone(), cause: causes(&e.without_url()) };
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

/// A URL as it may be shown, also one that cannot be read: what is before an `@` may be a password.
fn without_user(url: &str) -> String {
    match url.rsplit_once('@') {
        Some((before, after)) => {
            let scheme = before.find("://").map_or("", |at| &before[..at + 3]);
            format!("{scheme}…@{after}")
        }
        None => url.to_owned(),
    }
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
    fn what_may_be_a_password_is_not_told() {
        let token = || Some(SecretString::from("t-0 ken"));
        let told = |url: &str, token| Client::new(url, token, false).unwrap_err().to_string();
        for (url, token) in
            [("http://u:hunter2@127.0.0.1:1", None), ("u:hunter2@x", None), ("http://127.0.0.1", token())]
        {
            let told = told(url, token);
            assert!(!told.contains("hunter2") && !told.contains("ken\""), "{told}");
        }
        assert!(told("http://u:hunter2@127.0.0.1:1", None).contains("REFRAIN_TOKEN"));
        assert!(!told("http://127.0.0.1", token()).contains("t-0"));
    }

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
