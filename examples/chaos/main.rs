//! Chaos: servers are killed and stopped at random moments for as long as asked, while clients send overlapping runs and
//! their duplicates and the sources change beneath them. Ends with 1 if a promise was broken.
//!
//!     cargo build --release && cargo run --release --example chaos -- --seconds 600
//!     ./test --with-postgres sh -c \
//!       'cargo run --release --example chaos -- --seconds 600 --database-url "$REFRAIN_TEST_DATABASE_URL"'
//!
//! The Postgres database must be empty. Sources come in versions, and what each makes of each month is found out
//! beforehand. Then at every moment each file of the table must be that of one version; each run must succeed once, with
//! versions that were in place between its submission and its end; all answers to one key must show one run; and at the
//! end catalog and files must agree with nothing left in staging.

mod check;
mod servers;
mod world;

use anyhow::{Context, Result, bail};
use clap::Parser;
use serde_json::{Value, json};
use servers::Servers;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use world::{MONTHS, Submitted, World, dice};

#[derive(Parser)]
struct Args {
    /// How long to go on.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// An empty Postgres database for two servers; without it one server runs over SQLite.
    #[arg(long)]
    database_url: Option<String>,
    /// The binary [default: the one beside this one's folder].
    #[arg(long)]
    program: Option<PathBuf>,
}

/// How many clients send runs.
const CLIENTS: usize = 3;

#[tokio::main]
async fn main() -> ExitCode {
    match chaos(Args::parse()).await {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "chaos: {error:#}");
            ExitCode::from(2)
        }
    }
}

async fn chaos(args: Args) -> Result<usize> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let beside = || Some(std::env::current_exe().ok()?.parent()?.parent()?.join("refrain"));
    let program = args.program.or_else(beside).context("cannot find the binary, name it with --program")?;
    let store = if args.database_url.is_some() { "postgres" } else { "sqlite" };
    let world = Arc::new(World::new(program, args.database_url)?);
    world.make_versions()?;
    let servers = Arc::new(Servers::start(&world)?);
    learn(&world, &servers).await?;

    let end = Instant::now() + Duration::from_secs(args.seconds);
    let mut tasks = tokio::task::JoinSet::new();
    for client in 0..CLIENTS {
        tasks.spawn(send_runs(Arc::clone(&world), Arc::clone(&servers), client, end));
    }
    tasks.spawn(change_sources(Arc::clone(&world), end));
    tasks.spawn(strike(Arc::clone(&world), Arc::clone(&servers), end));
    tasks.spawn(check::watch(Arc::clone(&world), Arc::clone(&servers), end));
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    servers.revive(&world)?;
    check::settle(&world, &servers).await?;
    report(&world, store, args.seconds)
}

/// What each version of the sources makes of each month.
async fn learn(world: &World, servers: &Servers) -> Result<()> {
    for version in 0..world::VERSIONS {
        for month in 0..MONTHS.len() {
            world.put_in_place(month, version)?;
        }
        let body = json!({"pipeline": world::TABLE, "partitions": MONTHS});
        let id = submit_once(servers, &format!("learn/{version}"), &body).await?;
        let run = servers.wait(&id).await?;
        if run["state"] != "succeeded" {
            bail!("a run without faults did not succeed: {run:#}");
        }
        let mut known = world.known.lock().map_err(|_| anyhow::anyhow!("poisoned"))?;
        for (month, made) in run["partitions"].as_array().into_iter().flatten().enumerate() {
            known.insert((month, version), made["sha256"].as_str().map(str::to_owned));
        }
    }
    Ok(())
}

async fn submit_once(servers: &Servers, key: &str, body: &Value) -> Result<String> {
    for _ in 0..600 {
        if let Some((200 | 202, run)) = servers.submit(key, body).await {
            return Ok(run["id"].as_str().context("a run without an id")?.to_owned());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bail!("no server is there to submit to")
}

/// Sends overlapping runs, each several times at once, until each time one answer came through.
async fn send_runs(world: Arc<World>, servers: Arc<Servers>, client: usize, end: Instant) -> Result<()> {
    let mut number = 0;
    while Instant::now() < end {
        number += 1;
        let key = format!("client-{client}/{number}");
        let body = match dice(10) {
            0 => json!({"pipeline": world::TABLE, "mode": "full"}),
            _ => {
                let some = (1 + dice(7)) as usize;
                let months: Vec<_> = (0..3).filter(|m| some & (1 << m) != 0).map(|m| MONTHS[m]).collect();
                json!({"pipeline": world::TABLE, "partitions": months})
            }
        };
        let sent = chrono::Utc::now();
        let mut id: Option<String> = None;
        while id.is_none() {
            let copies = 1 + dice(4);
            let answers = (0..copies).map(|_| servers.submit(&key, &body));
            for (status, run) in futures::future::join_all(answers).await.into_iter().flatten() {
                world.answers.fetch_add(1, Ordering::Relaxed);
                match (status, run["id"].as_str()) {
                    (200 | 202, Some(found)) if id.as_deref().is_none_or(|id| id == found) => {
                        id = Some(found.to_owned());
                    }
                    (500.., _) => {}
                    _ => world.violation(format!("key {key} of run {id:?} was answered {status} with {run}")),
                }
            }
            tokio::time::sleep(Duration::from_millis(dice(200))).await;
        }
        let id = id.context("no id")?;
        world.submitted(Submitted { key, body, id: id.clone(), sent });
        if dice(10) < 8 {
            servers.wait_until(&id, end).await;
        }
    }
    Ok(())
}

async fn change_sources(world: Arc<World>, end: Instant) -> Result<()> {
    while Instant::now() < end {
        world.put_in_place(dice(3) as usize, dice(world::VERSIONS as u64) as usize)?;
        tokio::time::sleep(Duration::from_millis(200 + dice(1500))).await;
    }
    Ok(())
}

/// Kills a server and starts it again, or stops one for longer than its lease.
async fn strike(world: Arc<World>, servers: Arc<Servers>, end: Instant) -> Result<()> {
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(100 + dice(2500))).await;
        let which = dice(servers.count() as u64) as usize;
        if servers.count() > 1 && dice(3) == 0 {
            servers.pause(which, Duration::from_millis(500 + dice(4000))).await?;
            world.stops.fetch_add(1, Ordering::Relaxed);
        } else {
            servers.kill_and_start(&world, which).await?;
            world.kills.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

fn report(world: &World, store: &str, seconds: u64) -> Result<usize> {
    let violations = world.violations();
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let mut out = std::io::stdout();
    writeln!(out, "chaos over {store} for {seconds} s")?;
    writeln!(out, "  servers killed          {}", count(&world.kills))?;
    writeln!(out, "  servers stopped         {}", count(&world.stops))?;
    writeln!(out, "  runs                    {}", world.runs().len())?;
    writeln!(out, "  attempts lost           {}", count(&world.lost))?;
    writeln!(out, "  duplicates answered     {}", count(&world.answers) - world.runs().len() as u64)?;
    writeln!(out, "  source files replaced   {}", world.placements())?;
    writeln!(out, "  table files looked at   {}", count(&world.looks))?;
    writeln!(out, "  violations              {}", violations.len())?;
    for violation in &violations {
        writeln!(out, "  - {violation}")?;
    }
    if !violations.is_empty() {
        writeln!(out, "  kept: {}", world.keep().display())?;
    }
    Ok(violations.len())
}
