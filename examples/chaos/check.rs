//! What must be so at every moment, and what must be so at the end.

use crate::servers::Servers;
use crate::world::{MONTHS, TABLE, World, dice};
use anyhow::{Context, Result};
use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Looks at every file of the table, and at what the service says of it, again and again.
pub(crate) async fn watch(world: Arc<World>, servers: Arc<Servers>, end: Instant) -> Result<()> {
    while Instant::now() < end {
        for month in 0..MONTHS.len() {
            look_at_file(&world, month)?;
        }
        if dice(10) == 0
            && let Some((200, listed)) = servers.get(&format!("/pipelines/{TABLE}/partitions")).await
        {
            look_at_listing(&world, &listed);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

fn look_at_file(world: &World, month: usize) -> Result<()> {
    let found = live_sha256(world, month)?;
    world.looked();
    if !world.is_known(month, found.as_deref()) {
        world.violation(format!("a reader found {found:?} for {}, which no version makes", MONTHS[month]));
    }
    Ok(())
}

fn live_sha256(world: &World, month: usize) -> Result<Option<String>> {
    let path = world.warehouse().join(format!("{TABLE}/pickup_month={}/part-0.parquet", MONTHS[month]));
    match std::fs::read(&path) {
        Ok(bytes) => Ok(Some(Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

fn look_at_listing(world: &World, listed: &Value) {
    for (month, name) in MONTHS.iter().enumerate() {
        let mut entries = listed["partitions"].as_array().into_iter().flatten();
        let entry = entries.find(|entry| entry["partition"] == format!("pickup_month={name}"));
        if !world.is_known(month, entry.and_then(|entry| entry["sha256"].as_str())) {
            world.violation(format!("the service lists {entry:?} for {name}, which no version makes"));
        }
    }
}

/// After the chaos: every run ends well and is one, and what it made could be made then.
pub(crate) async fn settle(world: &World, servers: &Servers) -> Result<()> {
    for sent in world.runs() {
        let run = servers.wait(&sent.id).await?;
        check_run(world, &run, sent.sent)?;
        match servers.submit_until_answered(&sent.key, &sent.body).await {
            Some((200, again)) if again["id"] == run["id"] => {}
            other => world.violation(format!("key {} of run {} is answered {other:?}", sent.key, sent.id)),
        }
    }
    check_count(world, servers).await?;
    let body = json!({"pipeline": TABLE, "partitions": MONTHS});
    let sent = Utc::now();
    let last = match servers.submit("last", &body).await {
        Some((202, run)) => run["id"].as_str().context("a run without an id")?.to_owned(),
        other => anyhow::bail!("the last run was not accepted: {other:?}"),
    };
    check_run(world, &servers.wait(&last).await?, sent)?;
    for (month, name) in MONTHS.iter().enumerate() {
        let found = live_sha256(world, month)?;
        if !world.possible(month, sent, Utc::now()).contains(&found) {
            world.violation(format!("at the end {name} is {found:?}, which is not what its source makes"));
        }
    }
    verify(world)?;
    nothing_staged(world).await;
    Ok(())
}

fn check_run(world: &World, run: &Value, sent: DateTime<Utc>) -> Result<()> {
    let id = &run["id"];
    let attempts = run["attempts"].as_array().context("a run without attempts")?;
    let ended = |outcome: &str| attempts.iter().filter(|attempt| attempt["outcome"] == outcome).count();
    world.lost.fetch_add(ended("lost") as u64, Ordering::Relaxed);
    if run["state"] != "succeeded" || ended("succeeded") != 1 {
        world.violation(format!("run {id} did not succeed once: {run}"));
        return Ok(());
    }
    let until: DateTime<Utc> = run["ended_at"].as_str().context("a run without an end")?.parse()?;
    for made in run["partitions"].as_array().into_iter().flatten() {
        let Some(month) = MONTHS.iter().position(|name| made["partition"] == format!("pickup_month={name}")) else {
            world.violation(format!("run {id} made {made}, which it has not named"));
            continue;
        };
        let sha256 = made["sha256"].as_str().map(str::to_owned);
        if !world.possible(month, sent, until).contains(&sha256) {
            world.violation(format!("run {id} made {sha256:?} of {}, no source of its time does", MONTHS[month]));
        }
    }
    Ok(())
}

/// As many runs as keys, those of the beginning included.
async fn check_count(world: &World, servers: &Servers) -> Result<()> {
    let mut found = BTreeSet::new();
    let mut path = "/runs?limit=1000".to_owned();
    loop {
        let (_, page) = servers.get(&path).await.context("no answer")?;
        let runs = page["runs"].as_array().context("no runs")?;
        found.extend(runs.iter().map(|run| run["id"].to_string()));
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("/runs?limit=1000&cursor={cursor}"),
            None => break,
        }
    }
    let expected = world.runs().len() + crate::world::VERSIONS;
    if found.len() != expected {
        world.violation(format!("there are {} runs, expected {expected}, one for each key", found.len()));
    }
    Ok(())
}

fn verify(world: &World) -> Result<()> {
    let mut command = Command::new(&world.program);
    command.arg("verify").current_dir(&world.folder);
    if let Some(url) = &world.database_url {
        command.args(["--database-url", url]);
    }
    let ended = command.output()?;
    if !ended.status.success() {
        let said = [ended.stdout, ended.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        world.violation(format!("refrain verify: {said}"));
    }
    Ok(())
}

async fn nothing_staged(world: &World) {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let staged = walkdir::WalkDir::new(world.warehouse().join(".staging")).min_depth(1).into_iter();
        let left: Vec<String> = staged.filter_map(Result::ok).map(|entry| entry.path().display().to_string()).collect();
        if left.is_empty() {
            return;
        }
        if Instant::now() > end {
            return world.violation(format!("left in staging: {left:?}"));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
