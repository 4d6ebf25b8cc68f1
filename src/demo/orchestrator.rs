//! The orchestrator's side of the HTTP interface: submit under a key, wait, ask for totals.

use super::screen::Screen;
use anyhow::{Context, bail};
use reqwest::{Client, RequestBuilder, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Speaks to one service.
pub(super) struct Orchestrator {
    client: Client,
    url: String,
}

/// An answer to a request for a run.
#[derive(Debug)]
pub(super) struct Submitted {
    pub(super) status: StatusCode,
    pub(super) replayed: bool,
    pub(super) run: Run,
}

/// A run, as far as the tour looks at it.
#[derive(Debug, Deserialize)]
pub(super) struct Run {
    pub(super) id: String,
    pub(super) state: String,
    pub(super) partitions: Vec<RunPartition>,
    pub(super) rows: Option<Rows>,
    pub(super) attempts: Vec<Value>,
    pub(super) progress: Option<Progress>,
    pub(super) warnings: Vec<Warning>,
    pub(super) error: Option<Problem>,
}

#[derive(Debug, Deserialize)]
pub(super) struct RunPartition {
    pub(super) partition: String,
    pub(super) outcome: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Rows {
    pub(super) read: u64,
    pub(super) in_scope: u64,
    pub(super) out_of_scope: u64,
    pub(super) filtered: u64,
    pub(super) rejected: u64,
    pub(super) out_of_scope_by_partition: BTreeMap<String, u64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Progress {
    pub(super) stage: String,
    pub(super) rows: u64,
    pub(super) rows_read: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Warning {
    pub(super) detail: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Problem {
    pub(super) title: String,
    pub(super) detail: Option<String>,
}

/// The current totals of a table.
#[derive(Debug, Deserialize)]
pub(super) struct Listing {
    pub(super) version: u64,
    pub(super) partitions: Vec<Partition>,
    pub(super) total: Total,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Partition {
    pub(super) partition: String,
    pub(super) rows: u64,
    pub(super) totals: Amounts,
    pub(super) sha256: String,
    pub(super) run_id: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Total {
    pub(super) rows: u64,
    pub(super) totals: Amounts,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Amounts {
    pub(super) trips: u64,
    pub(super) revenue: String,
}

/// How long the service may keep one request open while a run goes on.
const WAIT_SECONDS: u64 = 1;
/// How long any answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

impl Orchestrator {
    /// Speaks to the service at `url`.
    pub(super) fn new(url: &str) -> anyhow::Result<Self> {
        // Somebody else in this process may have chosen one already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().no_proxy().timeout(ANSWER_WITHIN).build();
        let client = client.context("cannot make an HTTP client")?;
        Ok(Self { client, url: url.trim_end_matches('/').to_owned() })
    }

    /// `POST /runs`
    pub(super) async fn submit(&self, key: &str, pipeline: &str, partitions: Value) -> anyhow::Result<Submitted> {
        let body = json!({"pipeline": pipeline, "partitions": partitions});
        let request = self.client.post(format!("{}/runs", self.url)).header("Idempotency-Key", key).json(&body);
        let response = request.send().await.context("POST /runs")?;
        let (status, headers) = (response.status(), response.headers().clone());
        let replayed = headers.get("Idempotent-Replayed").is_some_and(|v| v.as_bytes() == b"true");
        let run = read(response, "POST /runs").await?;
        Ok(Submitted { status, replayed, run })
    }

    /// Asks for the run until it ends, and shows how far it is. A run that does not succeed is an error.
    pub(super) async fn wait(&self, id: &str, screen: &mut Screen) -> anyhow::Result<Run> {
        screen.run_starts();
        let ended = loop {
            let path = format!("/runs/{id}?wait={WAIT_SECONDS}");
            match self.get::<Run>(&path).await {
                Ok(run) if matches!(run.state.as_str(), "succeeded" | "failed" | "cancelled") => break Ok(run),
                Ok(run) => screen.run_goes_on(&run.state, run.progress.as_ref())?,
                Err(e) => break Err(e),
            }
        };
        screen.run_ends();
        let run = ended?;
        if run.state != "succeeded" {
            let why = run.error.as_ref().map(Problem::text).unwrap_or_default();
            bail!("run {id} ended as {}, expected succeeded: {why}", run.state);
        }
        Ok(run)
    }

    /// `GET /pipelines/{name}/partitions`
    pub(super) async fn totals(&self, pipeline: &str) -> anyhow::Result<Listing> {
        self.get(&format!("/pipelines/{pipeline}/partitions")).await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let request: RequestBuilder = self.client.get(format!("{}{path}", self.url));
        let response = request.send().await.with_context(|| format!("GET {path}"))?;
        read(response, &format!("GET {path}")).await
    }
}

impl Problem {
    fn text(&self) -> String {
        let detail = self.detail.as_deref().unwrap_or_default();
        format!("{}: {detail}", self.title)
    }
}

/// The body of a good answer; of another one what its problem says.
async fn read<T: DeserializeOwned>(response: reqwest::Response, call: &str) -> anyhow::Result<T> {
    let status = response.status();
    let body = response.bytes().await.with_context(|| call.to_owned())?;
    if !status.is_success() {
        let text = String::from_utf8_lossy(&body);
        let said = serde_json::from_slice::<Problem>(&body).map_or_else(|_| text.into_owned(), |p| p.text());
        bail!("{call} answered {status}: {said}");
    }
    serde_json::from_slice(&body).with_context(|| format!("{call} answered something unexpected"))
}
