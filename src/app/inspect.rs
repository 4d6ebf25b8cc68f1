//! Looking without serving: the checks of pipeline files, and of the catalog against the files.

use super::fix::{self, Fix, FixBy};
use super::pipelines::{Read, load_pipelines};
use crate::config::DatabaseSettings;
use crate::pipeline::Definition;
use crate::run::{ClaimToken, RunId, TableSum};
use crate::store::{PostgresOptions, PostgresStore, RunStore, SqliteStore, StagingVerdict};
use crate::table::{Finding, FindingKind, Holder, TableError, Warehouse};
use anyhow::{Context, bail};
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// What `refrain verify` found.
#[derive(Debug, serde::Serialize)]
pub struct Inspection {
    /// Partitions of the catalog that were held against their files.
    pub partitions: usize,
    /// What is not as the catalog says.
    pub findings: Vec<Inspected>,
}

/// One finding, and what `--fix` did about it.
#[derive(Debug, serde::Serialize)]
pub struct Inspected {
    /// The table; none where it is about the warehouse beside its tables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<String>,
    /// What was found.
    #[serde(flatten)]
    pub finding: Finding,
    /// What was done about it; none where nothing was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<Fix>,
}

/// How things are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Catalog and files agree.
    Well,
    /// They do not, and a run is queued for each difference.
    BeingRebuilt,
    /// They do not, and for some difference there is no run.
    Wrong,
}

impl Inspection {
    /// How things are, all in all.
    pub fn verdict(&self) -> Verdict {
        let rebuilt = |found: &Inspected| matches!(found.fix, Some(Fix::Rebuilt { .. }));
        match self.findings.as_slice() {
            [] => Verdict::Well,
            all if all.iter().all(rebuilt) => Verdict::BeingRebuilt,
            _ => Verdict::Wrong,
        }
    }
}

impl Inspected {
    /// About the warehouse beside its tables.
    fn beside_the_tables(finding: Finding) -> Self {
        Self { pipeline: None, finding, fix: None }
    }
}

impl std::fmt::Display for Inspected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.finding.fmt(f)?;
        self.fix.as_ref().map_or(Ok(()), |fix| write!(f, "; {fix}"))
    }
}

/// Checks the pipeline files of a folder, or one file's folder-mates with it: the names of those that are good, and all
/// errors.
pub fn check(path: &Path) -> anyhow::Result<(Vec<String>, Vec<String>)> {
    if path.is_file() {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        return Ok(match crate::pipeline::parse(&text, &path.display().to_string()) {
            Ok(definition) => (vec![definition.name], Vec::new()),
            Err(errors) => (Vec::new(), errors.iter().map(ToString::to_string).collect()),
        });
    }
    let read = Read::folder(path)?;
    Ok((read.good.keys().cloned().collect(), read.errors()))
}

/// Holds the catalog against the files, of one pipeline or of all, hashing every file; with `fix`, queues a run for each
/// partition that must be rebuilt.
pub async fn inspect(
    database: &DatabaseSettings,
    pipelines: &Path,
    only: Option<&str>,
    fix: Option<FixBy>,
) -> anyhow::Result<Inspection> {
    let definitions = load_pipelines(pipelines)?;
    let store = open_to_look(database).await?;
    let Some(bound) = store.warehouse_id().await? else {
        bail!("the database has no warehouse yet: nothing was ever written");
    };
    let warehouse = Warehouse::open(&database.warehouse_path(), Some(bound), store.database_id().await?)?;
    let mut out = Inspection { partitions: 0, findings: Vec::new() };
    let mut names: Vec<String> = definitions.keys().cloned().collect();
    for name in warehouse.names_at_root()? {
        match warehouse.is_table(&name) {
            true => names.push(name),
            false => out.findings.push(Inspected::beside_the_tables(Finding {
                kind: FindingKind::Foreign,
                partition: None,
                path: name,
                detail: "is no table of Refrain's, expected only tables in the warehouse".to_owned(),
            })),
        }
    }
    names.sort();
    names.dedup();
    if let Some(only) = only {
        if !names.iter().any(|name| name == only) {
            bail!("there is no pipeline {only}, expected one of {}", names.join(", "));
        }
        names.retain(|name| name == only);
    }
    for name in names {
        let definition = definitions.get(&name).cloned();
        let (partitions, mut found) = look(&store, &warehouse, &name, definition.clone()).await?;
        if !found.is_empty() {
            // Nothing may be on its way while what differs is looked at again.
            let lock = warehouse.publish_lock(&name, &holder(), &CancellationToken::new()).await?;
            (_, found) = look(&store, &warehouse, &name, definition).await?;
            drop(lock);
        }
        out.partitions += partitions;
        out.findings.extend(found);
    }
    if only.is_none() {
        let staged = warehouse.verify_staging()?.into_iter().chain(of_unknown_runs(&store, &warehouse).await?);
        out.findings.extend(staged.map(Inspected::beside_the_tables));
    }
    if let Some(by) = fix {
        fix::all(by, database, &definitions, &mut out.findings).await?;
    }
    Ok(out)
}

/// Staging of runs that the database does not have: what a restored database has forgotten. Listed before it is asked for,
/// as by the sweeper.
async fn of_unknown_runs(store: &Arc<dyn RunStore>, warehouse: &Warehouse) -> anyhow::Result<Vec<Finding>> {
    let folders = warehouse.staged_folders()?;
    let verdicts = store.staging_verdicts(&folders).await?;
    let unknown = folders.into_iter().zip(verdicts).filter(|(_, verdict)| *verdict == StagingVerdict::Unknown);
    let finding = |((run, token), _): ((RunId, Option<ClaimToken>), StagingVerdict)| Finding {
        kind: FindingKind::Staging,
        partition: None,
        path: warehouse.staged_folder(run, token).display().to_string(),
        detail: format!("it is of run {run}, which the database does not have; refrain leaves it alone"),
    };
    Ok(unknown.map(finding).collect())
}

async fn look(
    store: &Arc<dyn RunStore>,
    warehouse: &Warehouse,
    name: &str,
    definition: Option<Arc<Definition>>,
) -> anyhow::Result<(usize, Vec<Inspected>)> {
    let sum = store.sum_difference(name).await?.map(|(kept, counted)| Inspected {
        pipeline: Some(name.to_owned()),
        finding: wrong_sum(name, &kept, &counted),
        fix: None,
    });
    let entries = store.entries(name, None).await?;
    let partitions = entries.len();
    let (warehouse, name) = (warehouse.clone(), name.to_owned());
    let found = tokio::task::spawn_blocking(move || {
        let found = warehouse.verify(&name, definition.as_deref(), &entries)?;
        let inspected = |finding| Inspected { pipeline: Some(name.clone()), finding, fix: None };
        Ok::<_, TableError>(sum.into_iter().chain(found.into_iter().map(inspected)).collect())
    });
    Ok((partitions, found.await??))
}

fn wrong_sum(name: &str, kept: &TableSum, counted: &TableSum) -> Finding {
    let told = |sum: &TableSum| {
        let totals = serde_json::to_string(&sum.totals().on_the_wire()).unwrap_or_default();
        format!("{} partitions, {} rows and {totals}", sum.partitions, sum.rows)
    };
    let (found, expected) = (told(kept), told(counted));
    Finding {
        kind: FindingKind::Sum,
        partition: None,
        path: name.to_owned(),
        detail: format!(
            "the sum that the database keeps is {found}, expected {expected}; a server counts it anew when it starts"
        ),
    }
}

fn holder() -> Holder {
    Holder { worker: "refrain verify".to_owned(), pid: std::process::id(), run: None, since: chrono::Utc::now() }
}

async fn open_to_look(database: &DatabaseSettings) -> anyhow::Result<Arc<dyn RunStore>> {
    if let Some(url) = &database.url()? {
        let store = PostgresStore::connect(url, PostgresOptions::default()).await?;
        store.check_schema().await?;
        return Ok(Arc::new(store));
    }
    Ok(Arc::new(SqliteStore::open_read_only(&database.sqlite_path()).await?))
}
