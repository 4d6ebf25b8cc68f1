//! Looking without serving: the checks of pipeline files, and of the catalog against the files.

use super::{load_pipelines, read_pipelines};
use crate::config::DatabaseSettings;
use crate::pipeline::Definition;
use crate::store::{PostgresOptions, PostgresStore, RunStore, SqliteStore};
use crate::table::{Finding, FindingKind, Holder, Warehouse};
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
    pub findings: Vec<Finding>,
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
    let (pipelines, errors) = read_pipelines(path)?;
    Ok((pipelines.into_keys().collect(), errors))
}

/// Holds the catalog against the files, of one pipeline or of all, hashing every file.
pub async fn inspect(database: &DatabaseSettings, pipelines: &Path, only: Option<&str>) -> anyhow::Result<Inspection> {
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
            false => out.findings.push(Finding {
                kind: FindingKind::Foreign,
                partition: None,
                path: name,
                detail: "is no table of Refrain's, expected only tables in the warehouse".to_owned(),
            }),
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
        out.findings.extend(warehouse.verify_staging()?);
    }
    Ok(out)
}

async fn look(
    store: &Arc<dyn RunStore>,
    warehouse: &Warehouse,
    name: &str,
    definition: Option<Arc<Definition>>,
) -> anyhow::Result<(usize, Vec<Finding>)> {
    let entries = store.entries(name, None).await?;
    let partitions = entries.len();
    let (warehouse, name) = (warehouse.clone(), name.to_owned());
    let found = tokio::task::spawn_blocking(move || {
        warehouse.verify(&name, definition.as_ref().map(|d| &d.partition), &entries)
    });
    Ok((partitions, found.await??))
}

fn holder() -> Holder {
    Holder { worker: "refrain verify".to_owned(), pid: std::process::id(), run: None, since: chrono::Utc::now() }
}

async fn open_to_look(database: &DatabaseSettings) -> anyhow::Result<Arc<dyn RunStore>> {
    if let Some(url) = &database.database_url {
        return Ok(Arc::new(PostgresStore::connect(url, PostgresOptions::default()).await?));
    }
    Ok(Arc::new(SqliteStore::open_read_only(&database.sqlite_path()).await?))
}
