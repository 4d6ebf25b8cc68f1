//! `refrain verify --fix`: runs for the partitions whose files are not those of the catalog.

use super::inspect::Inspected;
use crate::client::{Client, ClientError, CredentialArgs};
use crate::config::DatabaseSettings;
use crate::http::Pipelines;
use crate::partition::PartitionKey;
use crate::pipeline::{Definition, Merge};
use crate::run::{Asked, AskedPartitions, Audience, IdempotencyKey, Mode, PartFile, Principal, RunId, State, hex};
use crate::store::{
    NewRun, PostgresOptions, PostgresStore, RunStore, SqliteOptions, SqliteStore, StoredDefinition, Submitted,
};
use crate::table::{Finding, FindingKind};
use anyhow::{Context, anyhow, bail};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::fmt;
use std::path::Path;

/// How often one partition is rebuilt for `--fix`, ever: each time has a key of its own, and they are looked through.
const MAX_TIMES: u32 = 1000;

/// Who queues the runs.
#[derive(Debug, Clone)]
pub enum FixBy {
    /// This process, in the database.
    Database,
    /// A server.
    Server {
        /// Where it is.
        url: String,
        /// What it is shown.
        credential: CredentialArgs,
    },
}

/// What was done about a finding.
#[derive(Debug, serde::Serialize)]
#[serde(untagged)]
pub enum Fix {
    /// A run rebuilds the partition.
    Rebuilt {
        /// The run.
        run_id: RunId,
        /// Whether it was queued just now; otherwise an earlier `--fix` did so, and it has not ended.
        queued_now: bool,
    },
    /// Nothing.
    LeftAlone {
        /// Why.
        left_alone: String,
    },
}

impl fmt::Display for Fix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fix::Rebuilt { run_id, queued_now: true } => write!(f, "queued run {run_id} to rebuild it"),
            Fix::Rebuilt { run_id, queued_now: false } => write!(f, "run {run_id} is to rebuild it"),
            Fix::LeftAlone { left_alone } => write!(f, "left alone: {left_alone}"),
        }
    }
}

/// Queues a run for each partition that must be rebuilt, and says of the rest why it is left alone.
pub(super) async fn all(
    by: FixBy,
    database: &DatabaseSettings,
    pipelines: &Pipelines,
    findings: &mut [Inspected],
) -> anyhow::Result<()> {
    let mut queue = None;
    for found in findings {
        let fix = match to_rebuild(found, pipelines) {
            Ok((definition, partition)) => {
                // Opened for the first one, so that nothing is asked for where there is nothing to fix.
                let queue = match &queue {
                    Some(queue) => queue,
                    None => queue.insert(Queue::open(&by, database).await?),
                };
                rebuild(queue, definition, partition).await?
            }
            Err(why) => Fix::LeftAlone { left_alone: why },
        };
        found.fix = Some(fix);
    }
    Ok(())
}

/// What is to be rebuilt, or why nothing is.
fn to_rebuild<'a>(
    found: &'a Inspected,
    pipelines: &'a Pipelines,
) -> Result<(&'a Definition, &'a PartitionKey), String> {
    let Finding { kind, partition, .. } = &found.finding;
    let name = found.pipeline.as_deref().unwrap_or_default();
    let definition = pipelines.get(name).ok_or_else(|| format!("there is no pipeline {name}"));
    let is_merged = definition.as_ref().is_ok_and(|definition| definition.merge().is_some());
    match kind {
        FindingKind::Missing | FindingKind::Changed | FindingKind::Torn if is_merged => {
            return Err(format!(
                "its rows were merged into what it was before, which no run makes again: restore the file, or {}",
                Merge::WAY_OUT
            ));
        }
        FindingKind::Missing | FindingKind::Changed | FindingKind::Torn => {}
        FindingKind::Unknown if is_merged => {
            return Err(format!(
                "no run is known to have made it, and none merges into it: take it away, or {}",
                Merge::WAY_OUT
            ));
        }
        FindingKind::Unknown => {
            return Err("no run is known to have made it; a run that names it replaces or clears it".to_owned());
        }
        FindingKind::Foreign => return Err("refrain removes only what it has made".to_owned()),
        FindingKind::Manifest => {
            return Err(
                "the next run of the pipeline writes it anew, or removes it where it is to have none".to_owned()
            );
        }
        FindingKind::Sum => return Err("a server counts it anew when it starts".to_owned()),
        FindingKind::Staging => return Err("nothing of it is in a table".to_owned()),
    }
    let definition = definition?;
    let key = partition.as_ref().ok_or("it is no partition's")?;
    let file = Path::new(&found.finding.path).file_name().and_then(|name| name.to_str()).and_then(PartFile::parse);
    let output = definition.output.part_file();
    if file.is_some_and(|file| file != output) {
        return Err(format!("the pipeline writes {} by now: run mode full once", output.as_str()));
    }
    match definition.partition.parse_key(key.as_str()) {
        Ok(_) => Ok((definition, key)),
        Err(error) => Err(format!("the pipeline has other partition columns by now ({error}): run mode full once")),
    }
}

/// The run that rebuilds a partition: the first one for it that has not succeeded, whatever is wrong with the file by now. So
/// it is queued once, however often it is asked for before it has ended.
async fn rebuild(queue: &Queue, definition: &Definition, partition: &PartitionKey) -> anyhow::Result<Fix> {
    for time in 1..=MAX_TIMES {
        let key = key(&definition.name, partition, time)?;
        match queue.submit(definition, partition, key).await? {
            // It mended an earlier damage.
            Accepted::Run { state: State::Succeeded, now: false, .. } => {}
            Accepted::Run { run_id, now, .. } => return Ok(Fix::Rebuilt { run_id, queued_now: now }),
            Accepted::Refused(why) => return Ok(Fix::LeftAlone { left_alone: why }),
        }
    }
    bail!("{partition} of {} was rebuilt {MAX_TIMES} times and is not as the catalog says", definition.name)
}

/// Partitions may be longer than keys, and of any characters.
fn key(pipeline: &str, partition: &PartitionKey, time: u32) -> anyhow::Result<IdempotencyKey> {
    let digest = hex(&Sha256::digest(partition.as_str()));
    Ok(IdempotencyKey::parse(&format!("verify/{pipeline}/{digest}/{time}"))?)
}

/// What became of a submission.
enum Accepted {
    Run { run_id: RunId, state: State, now: bool },
    Refused(String),
}

/// Where runs are queued.
enum Queue {
    Database(Box<dyn RunStore>),
    Server(Client),
}

impl Queue {
    async fn open(by: &FixBy, database: &DatabaseSettings) -> anyhow::Result<Self> {
        match (by, &database.url()?) {
            (FixBy::Server { url, credential }, _) => Ok(Self::Server(credential.client(url)?)),
            (FixBy::Database, Some(url)) => {
                Ok(Self::Database(Box::new(PostgresStore::connect(url, PostgresOptions::default()).await?)))
            }
            (FixBy::Database, None) => {
                let store = SqliteStore::open(&database.sqlite_path(), SqliteOptions::default()).await;
                let store = store.context("cannot queue runs in the database; expected --url with its server's URL")?;
                Ok(Self::Database(Box::new(store)))
            }
        }
    }

    /// Submits a run under a key; one that is known and failed or was cancelled is queued again.
    async fn submit(
        &self,
        definition: &Definition,
        partition: &PartitionKey,
        key: IdempotencyKey,
    ) -> anyhow::Result<Accepted> {
        match self {
            Self::Database(store) => in_database(store.as_ref(), definition, partition, key).await,
            Self::Server(client) => by_server(client, definition, partition, &key).await,
        }
    }
}

async fn in_database(
    store: &dyn RunStore,
    definition: &Definition,
    partition: &PartitionKey,
    key: IdempotencyKey,
) -> anyhow::Result<Accepted> {
    let definition = StoredDefinition {
        hash: definition.hash.clone(),
        pipeline: definition.name.clone(),
        text: definition.text.clone(),
    };
    let run = NewRun {
        id: RunId::new(),
        principal: Principal::default(),
        idempotency_key: key,
        asked: Asked::new(&definition.pipeline, Mode::Overwrite, AskedPartitions(vec![partition.clone()])),
        definition,
        audience: Audience::default(),
    };
    match store.submit(&run).await? {
        Submitted::New(run) => return Ok(Accepted::Run { run_id: run.id, state: run.state, now: true }),
        Submitted::KeyTaken => {}
        Submitted::PreconditionFailed(unmet) => bail!("a run without preconditions was refused for {}", unmet.len()),
        Submitted::Overlaps(runs) => bail!("a run that waits was refused for {} others", runs.len()),
        Submitted::TooManyQueued(limit) => bail!("found {limit} queued runs, which is the limit: try again later"),
    }
    let known = store.known_key(&run.principal, &run.idempotency_key).await?;
    let run_id = known.ok_or_else(|| anyhow!("a key is taken and not known"))?.run_id;
    let found = store.glances(&[run_id]).await?.pop();
    let mut state = found.ok_or_else(|| anyhow!("run {run_id} has a key and is not there"))?.state;
    let again = matches!(state, State::Failed | State::Cancelled);
    if again {
        // Somebody else may have done so meanwhile, and then it is queued all the same.
        let _ = store.retry(run_id, None, &run.definition).await?;
        state = State::Queued;
    }
    Ok(Accepted::Run { run_id, state, now: again })
}

async fn by_server(
    client: &Client,
    definition: &Definition,
    partition: &PartitionKey,
    key: &IdempotencyKey,
) -> anyhow::Result<Accepted> {
    let body = json!({"pipeline": definition.name, "partitions": [partition], "if_failed": "retry"});
    let submitted = match client.submit(key.as_str(), &body).await {
        Ok(submitted) => submitted,
        // Who is not let in is told once, and not of each partition.
        Err(ClientError::Refused { status: 400 | 402 | 404..=499, detail, .. }) => {
            return Ok(Accepted::Refused(format!("the server refused a run for it: {detail}")));
        }
        Err(error) => return Err(error.into()),
    };
    let read = |name: &str| submitted.run[name].clone();
    let (run_id, state) = (serde_json::from_value(read("id"))?, serde_json::from_value(read("state"))?);
    Ok(Accepted::Run { run_id, state, now: !submitted.replayed })
}
