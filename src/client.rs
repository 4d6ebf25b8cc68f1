//! The HTTP client behind `refrain run` and `refrain status`.
//!
//! Asking again is safe: a submission carries its key and a GET changes nothing. So whatever may have been lost on the
//! way is asked again, a bounded number of times.

use clap::{Args, ValueEnum};
use reqwest::{Method, StatusCode, Url, header};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
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

/// How long a health check may take.
const HEALTHCHECK_TIMEOUT: Duration = Duration::from_secs(4);

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

/// Where the server is, and how to print.
#[derive(Debug, Clone, Args)]
pub struct ServerArgs {
    /// The server.
    #[arg(long, env = "REFRAIN_URL", default_value = "http://127.0.0.1:8080")]
    pub url: String,
    /// Print the run as JSON.
    #[arg(long)]
    pub json: bool,
}

/// What `--if-failed` may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum IfFailedArg {
    /// Give the failed or cancelled run back.
    Return,
    /// Queue it again.
    Retry,
}

/// `refrain run`: submits a run.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// The pipeline.
    pub pipeline: String,
    /// Partitions: canonical keys, bare values, or ranges such as 2024-01..2024-03.
    #[arg(required_unless_present = "full", conflicts_with = "full")]
    pub partitions: Vec<String>,
    /// The idempotency key: the same key and request give the same run, however often it is sent.
    #[arg(long)]
    pub key: String,
    /// Rebuild the whole table.
    #[arg(long)]
    pub full: bool,
    /// What a failed or cancelled run under this key becomes.
    #[arg(long, value_enum)]
    pub if_failed: Option<IfFailedArg>,
    /// Wait until the run has ended.
    #[arg(long)]
    pub wait: bool,
    /// Where the server is.
    #[command(flatten)]
    pub server: ServerArgs,
}

/// `refrain status`: shows a run.
#[derive(Debug, Clone, Args)]
pub struct StatusArgs {
    /// The run's id.
    pub run_id: String,
    /// Wait until the run has ended.
    #[arg(long)]
    pub wait: bool,
    /// Where the server is.
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Submits a run and prints it. Ends with 0 unless the run failed or was cancelled (1), or there is no run to show (2).
pub async fn run_command(args: RunArgs) -> ExitCode {
    let submitted = async {
        let client = Client::new(&args.server.url, None)?;
        let submission = client.submit(&args.key, &request(&args)).await?;
        if submission.replayed {
            note("the run was accepted before, under the same key");
        }
        settle(&client, submission.run, args.wait).await
    };
    conclude(submitted.await, args.server.json)
}

/// Prints a run, with the exit codes of [`run_command`].
pub async fn status_command(args: StatusArgs) -> ExitCode {
    let found = async {
        let client = Client::new(&args.server.url, None)?;
        let run = client.run(&args.run_id).await?;
        settle(&client, run, args.wait).await
    };
    conclude(found.await, args.server.json)
}

/// Asks the server that listens at `listen` whether it lives: 0 where it does, 1 where it does not.
pub async fn healthcheck_command(mut listen: SocketAddr) -> ExitCode {
    if listen.ip().is_unspecified() {
        // A server that listens everywhere is asked where it is nearest.
        listen.set_ip(if listen.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    }
    let asked = async { Client::new(&format!("http://{listen}"), None)?.get("/healthz").await };
    match tokio::time::timeout(HEALTHCHECK_TIMEOUT, asked).await {
        Ok(Ok(_)) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            note(&error.to_string());
            ExitCode::FAILURE
        }
        Err(_) => {
            note(&format!("{listen} did not answer within {} s", HEALTHCHECK_TIMEOUT.as_secs()));
            ExitCode::FAILURE
        }
    }
}

/// The body of the submission that the arguments describe.
fn request(args: &RunArgs) -> Value {
    let mut body = json!({ "pipeline": args.pipeline });
    if args.full {
        body["mode"] = "full".into();
    } else {
        body["partitions"] = args.partitions.iter().map(|text| partition(text)).collect();
    }
    if let Some(IfFailedArg::Retry) = args.if_failed {
        body["if_failed"] = "retry".into();
    }
    body
}

/// `a..b` without an `=` is a range; whatever else is the text of one partition.
fn partition(text: &str) -> Value {
    match text.split_once("..") {
        Some((from, to)) if !from.is_empty() && !to.is_empty() && !text.contains('=') => {
            json!({ "from": from, "to": to })
        }
        _ => text.into(),
    }
}

async fn settle(client: &Client, run: Value, wait: bool) -> Result<Value, ClientError> {
    let id = match run["id"].as_str() {
        Some(id) if wait && !has_ended(&run) => id.to_owned(),
        _ => return Ok(run),
    };
    let mut last = String::new();
    let tell = |run: &Value| {
        let now = progress(run);
        if now != last && !has_ended(run) {
            note(&now);
            last = now;
        }
    };
    client.wait_for(&id, tell).await
}

/// One line that says what a run is doing.
fn progress(run: &Value) -> String {
    let mut line = state(run).to_owned();
    let count = |name: &str| run["progress"][name].as_u64().unwrap_or(0);
    if let Some(stage) = run["progress"]["stage"].as_str().filter(|_| state(run) != "queued") {
        let _ = write!(line, ": {stage}, {} of {} rows read", count("rows_read"), count("rows"));
        let _ = write!(line, ", {} of {} partitions staged", count("partitions_staged"), count("partitions"));
    }
    if let Some(why) = run["error"]["detail"].as_str() {
        let _ = write!(line, " (the last attempt failed: {why})");
    }
    line
}

fn conclude(result: Result<Value, ClientError>, as_json: bool) -> ExitCode {
    let run = match result {
        Ok(run) => run,
        Err(error) => {
            note(&error.to_string());
            return ExitCode::from(2);
        }
    };
    let text = if as_json { format!("{run:#}\n") } else { summary(&run) };
    // A reader that went away does not change how the run went.
    let _ = std::io::stdout().write_all(text.as_bytes());
    if matches!(state(&run), "failed" | "cancelled") { ExitCode::from(1) } else { ExitCode::SUCCESS }
}

fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "refrain: {text}");
}

/// A run for people: its state, a line for each partition, the books, and what to look at.
fn summary(run: &Value) -> String {
    let mut out = format!("run {} of {}: {}\n", plain(&run["id"]), plain(&run["pipeline"]), state(run));
    for p in run["partitions"].as_array().into_iter().flatten() {
        let _ = write!(out, "  {}", plain(&p["partition"]));
        if let Some(outcome) = p["outcome"].as_str() {
            let _ = write!(out, "  {outcome}");
        }
        if let Some(rows) = p["rows"].as_u64() {
            let _ = write!(out, "  {rows} rows");
        }
        for (measure, total) in p["totals"].as_object().into_iter().flatten() {
            let _ = write!(out, "  {measure} {}", plain(total));
        }
        out.push('\n');
    }
    let rows = &run["rows"];
    if rows.is_object() {
        let [read, inside, outside, filtered, rejected] =
            ["read", "in_scope", "out_of_scope", "filtered", "rejected"].map(|name| plain(&rows[name]));
        let _ = writeln!(
            out,
            "  {read} rows read: {inside} in scope, {outside} out of scope, {filtered} filtered, {rejected} rejected"
        );
    }
    for warning in run["warnings"].as_array().into_iter().flatten() {
        let _ = writeln!(out, "  warning: {}", plain(&warning["detail"]));
    }
    if run["error"].is_object() {
        let _ = writeln!(out, "  error: {}: {}", plain(&run["error"]["title"]), plain(&run["error"]["detail"]));
    }
    out
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn two_dots_make_a_range_unless_the_text_is_a_key() {
        assert_eq!(partition("2024-01..2024-03"), json!({"from": "2024-01", "to": "2024-03"}));
        for text in ["2024-02", "..", "a..", "kind=a..b", "pickup_month=2024-02"] {
            assert_eq!(partition(text), json!(text), "{text}");
        }
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

    #[test]
    fn a_run_is_summed_up_for_people() {
        let run = json!({
            "id": "0199", "pipeline": "zone_hour", "state": "succeeded",
            "partitions": [
                {"partition": "m=2024-02", "outcome": "replaced", "rows": 7, "totals": {"trips": 3, "revenue": "1.50"}},
                {"partition": "m=2024-03", "outcome": null},
            ],
            "rows": {"read": 5, "in_scope": 3, "out_of_scope": 1, "filtered": 1, "rejected": 0},
            "warnings": [{"type": "w", "detail": "look here"}], "error": null,
        });
        insta::assert_snapshot!(summary(&run), @"
        run 0199 of zone_hour: succeeded
          m=2024-02  replaced  7 rows  trips 3  revenue 1.50
          m=2024-03
          5 rows read: 3 in scope, 1 out of scope, 1 filtered, 0 rejected
          warning: look here
        ");
    }
}
