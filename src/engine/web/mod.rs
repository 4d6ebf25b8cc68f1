//! Files of other servers: asked for when a run is planned, and downloaded whole when they are read.
//!
//! Only listed hosts are asked, redirects included. Nothing is tried again here: that is for the pipeline's retry policy.
//! Knows no query engine.

mod answer;
mod download;
mod stamp;

pub(crate) use stamp::WebStamp;

use super::EngineError;
use super::error::service_failure;
use crate::pipeline::url::{causes, shown};
use crate::run::{FailureClass, RunError};
use answer::{length_of, unexpected};
use futures::stream::{self, StreamExt, TryStreamExt};
use reqwest::header::{self, HeaderMap, HeaderValue};
use reqwest::{Client, Method, Response, StatusCode, Url, redirect};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::runtime::Runtime;

/// How many files are asked for at the same time.
const ASKED_AT_ONCE: usize = 8;
/// How often one request may be redirected.
const MAX_REDIRECTS: usize = 5;
/// How long it may take until a server is connected to.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// What may be read by HTTP.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WebSettings {
    /// The servers that may be asked, in lower case: `host` for the scheme's own port, or `host:port`.
    pub hosts: Vec<String>,
    /// The longest file, in bytes.
    pub max_bytes: u64,
    /// How long a server may send nothing, in seconds.
    pub timeout_seconds: u32,
}

impl Default for WebSettings {
    fn default() -> Self {
        Self { hosts: Vec::new(), max_bytes: 10 << 30, timeout_seconds: 30 }
    }
}

/// The way to other servers.
pub(crate) struct Web<'a> {
    settings: &'a WebSettings,
    runtime: Runtime,
    /// By whether they speak TLS, and whether they are for this machine.
    clients: RefCell<BTreeMap<(bool, bool), Client>>,
}

impl<'a> Web<'a> {
    /// Asks nobody yet.
    pub(crate) fn new(settings: &'a WebSettings) -> Result<Self, EngineError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| {
            service_failure("engine-not-started", "The engine's network could not be started", e.to_string())
        })?;
        Ok(Self { settings, runtime, clients: RefCell::default() })
    }

    /// The stamps of these files, none for one that is not there; in their order.
    pub(crate) fn ask(&self, urls: &[&str]) -> Result<Vec<Option<WebStamp>>, RunError> {
        let asked = stream::iter(urls).map(|url| self.ask_for(url)).buffered(ASKED_AT_ONCE);
        self.runtime.block_on(asked.try_collect())
    }

    async fn ask_for(&self, url: &str) -> Result<Option<WebStamp>, RunError> {
        let mut answer = self.request(Method::HEAD, url, HeaderMap::new()).await?;
        // Some servers let no HEAD pass where they let a GET pass (signed URLs), or do not know the length then.
        let no_answer = matches!(answer.status().as_u16(), 403 | 405 | 501);
        if no_answer || (answer.status().is_success() && length_of(&answer).is_none_or(|bytes| bytes == 0)) {
            let first_byte = HeaderMap::from_iter([(header::RANGE, HeaderValue::from_static("bytes=0-0"))]);
            answer = self.request(Method::GET, url, first_byte).await?;
        }
        match answer.status() {
            StatusCode::NOT_FOUND | StatusCode::GONE => Ok(None),
            // An empty file has no first byte.
            StatusCode::OK | StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => {
                Ok(Some(WebStamp::of(url, &answer)))
            }
            _ => Err(unexpected(url, &answer)),
        }
    }

    /// The answer to a request, redirects followed.
    async fn request(&self, method: Method, url: &str, headers: HeaderMap) -> Result<Response, RunError> {
        let mut to = Url::parse(url).map_err(|e| refused_redirect(url, &format!("it is no URL: {e}")))?;
        for _ in 0..=MAX_REDIRECTS {
            self.check_host(url, &to)?;
            let request = self.client(&to)?.request(method.clone(), to.clone()).headers(headers.clone());
            let answer = request.send().await.map_err(|e| self.unreachable(url, &e))?;
            let Some(location) = answer::location(&answer) else { return Ok(answer) };
            to = redirected(url, &to, &location)?;
        }
        let detail = format!("{}: redirected more than {MAX_REDIRECTS} times, expected the file", shown(url));
        Err(RunError::new(FailureClass::Source, "source-unreachable", "A source cannot be read", detail))
    }

    /// Fails unless the operator has listed the host.
    fn check_host(&self, url: &str, to: &Url) -> Result<(), RunError> {
        let host = to.host_str().unwrap_or_default();
        let with_port = format!("{host}:{}", to.port_or_known_default().unwrap_or_default());
        let listed = &self.settings.hosts;
        if listed.contains(&with_port) || (to.port().is_none() && listed.iter().any(|known| known == host)) {
            return Ok(());
        }
        let host = if to.port().is_some() { &with_port } else { host };
        let listed = if listed.is_empty() { "no host".to_owned() } else { listed.join(", ") };
        let detail = format!(
            "{}: the host {host} is asked for, but --source-hosts (REFRAIN_SOURCE_HOSTS) lists {listed}",
            shown(url)
        );
        Err(RunError::new(
            FailureClass::Compute,
            "source-host-not-listed",
            "The host of a source is not listed",
            detail,
        ))
    }

    fn client(&self, to: &Url) -> Result<Client, RunError> {
        let kind = (to.scheme() == "https", is_loopback(to));
        if let Some(client) = self.clients.borrow().get(&kind) {
            return Ok(client.clone());
        }
        // Another part of the process may have installed it; either way there is one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .user_agent(concat!("refrain/", env!("CARGO_PKG_VERSION")))
            // The bytes as they are stored: their length and digest are what is compared.
            .default_headers(HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"))]))
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECT_WITHIN)
            .read_timeout(self.timeout());
        if kind.1 {
            // A proxy of the environment does not lead to this machine.
            builder = builder.no_proxy();
        }
        if !kind.0 {
            // Certificates are not looked for where none is needed: small machines have none.
            builder = builder.tls_certs_only([]);
        }
        let client = builder.build().map_err(|e| {
            let detail = format!("no client of {} could be made: {}", to.scheme(), why(&e));
            RunError::new(
                FailureClass::Service,
                "engine-not-started",
                "The engine's network could not be started",
                detail,
            )
        })?;
        self.clients.borrow_mut().insert(kind, client.clone());
        Ok(client)
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(self.settings.timeout_seconds.into())
    }

    /// No answer came, or it broke off.
    fn unreachable(&self, url: &str, error: &reqwest::Error) -> RunError {
        let why = match error.is_timeout() && !error.is_connect() {
            true => format!("its server sent nothing for {} s", self.settings.timeout_seconds),
            false => why(error),
        };
        let detail = format!("{}: {why}", shown(url));
        RunError::new(FailureClass::Source, "source-unreachable", "A source cannot be read", detail)
    }
}

/// Where a redirect leads.
fn redirected(url: &str, from: &Url, location: &str) -> Result<Url, RunError> {
    let to = from.join(location).map_err(|e| refused_redirect(url, &format!("it is redirected to no URL: {e}")))?;
    let wrong = match to.scheme() {
        "https" => None,
        "http" if from.scheme() == "http" => None,
        other => Some(format!("it is redirected from {} to {other}, expected https", from.scheme())),
    };
    let wrong = wrong.or_else(|| {
        let named = !to.username().is_empty() || to.password().is_some();
        named.then(|| "it is redirected to a URL with a user or password, expected none".to_owned())
    });
    wrong.map_or(Ok(to), |wrong| Err(refused_redirect(url, &wrong)))
}

fn refused_redirect(url: &str, why: &str) -> RunError {
    let detail = format!("{}: {why}", shown(url));
    RunError::new(FailureClass::Compute, "source-redirect-refused", "A source is redirected elsewhere", detail)
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Why a server was not asked.
fn why(error: &reqwest::Error) -> String {
    causes(error).unwrap_or_else(|| "it cannot be asked for".to_owned())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn redirects_never_leave_tls() {
        let to = |from: &str, location: &str| {
            let to = redirected("https://h/x?k=secret", &Url::parse(from).unwrap(), location);
            to.map(String::from).map_err(|error| error.detail)
        };
        assert_eq!(to("https://h/a/b", "c").unwrap(), "https://h/a/c");
        assert_eq!(to("http://h/a", "//i/b").unwrap(), "http://i/b");
        assert_eq!(to("http://h/a", "https://h/a").unwrap(), "https://h/a");
        let error = to("https://h/a", "http://h/a").unwrap_err();
        assert_eq!(error, "https://h/x: it is redirected from https to http, expected https");
        assert!(to("https://h/a", "https://h:no/").unwrap_err().contains("to no URL"));
    }

    #[test]
    fn hosts_are_listed_with_the_port_that_is_asked() {
        let settings = WebSettings {
            hosts: ["data.example.org", "other.example.org:8443", "[::1]:80"].map(ToOwned::to_owned).to_vec(),
            ..WebSettings::default()
        };
        let web = Web::new(&settings).unwrap();
        let is_listed = |url: &str| web.check_host(url, &Url::parse(url).unwrap()).is_ok();
        for listed in [
            "https://data.example.org/a",
            "http://data.example.org:80/a",
            "https://other.example.org:8443/",
            "http://[::1]/",
        ] {
            assert!(is_listed(listed), "{listed}");
        }
        for other in [
            "https://data.example.org:8443/a",
            "https://other.example.org/",
            "https://x.data.example.org/",
            "https://data.example.org.example.com/",
            "https://data.example.org@example.com/",
            "https://[::1]/",
        ] {
            assert!(!is_listed(other), "{other}");
        }
    }
}
