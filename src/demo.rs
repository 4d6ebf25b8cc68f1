//! The guided tour: a made-up quarter is rebuilt, repeated and re-run over HTTP, and every total is checked.
//!
//! The demo is an orchestrator of its own service: it knows nothing that the interface does not tell it, but for what the
//! sample holds. Anything that is not as it should be ends it with an error.

mod orchestrator;
mod screen;
mod service;
mod tour;

use crate::sample::{self, Contents};
use anyhow::{Context, bail};
use orchestrator::Orchestrator;
use screen::Screen;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// How the demo is run.
#[derive(Debug, Clone)]
pub struct DemoOptions {
    /// Holds the sample in `data`, and the demo's own folder under `refrain-data` while it runs.
    pub dir: PathBuf,
    /// The size of the sample; 1 is the quarter of the lesson, nine and a half million trips.
    pub scale: f64,
    /// Whether to serve on after the tour, until Ctrl-C, and to leave the demo's folder behind.
    pub keep: bool,
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
}

/// Runs the demo and says on standard output what it shows. Fails where a total, an outcome or an answer is not as expected.
pub async fn run(options: DemoOptions) -> anyhow::Result<()> {
    let mut screen = Screen::stdout();
    let contents = sample::contents(options.scale)?;
    std::fs::create_dir_all(&options.dir).with_context(|| format!("cannot make {}", options.dir.display()))?;
    let dir = options.dir.canonicalize().with_context(|| format!("cannot find {}", options.dir.display()))?;
    make_sample(&dir.join("data"), options.scale, &mut screen).await?;

    let state = fresh_folder(&dir.join("refrain-data"))?;
    let service = service::start(&dir, state.path(), options.listen).await?;
    let mut outcome = tour(&service.url(), &contents, &mut screen).await;
    if options.keep && outcome.is_ok() {
        invite(&service.url(), state.path(), &mut screen)?;
        outcome = tokio::signal::ctrl_c().await.context("cannot wait for Ctrl-C");
    }
    service.stop().await;
    if options.keep {
        let kept = state.keep();
        screen.say(&format!("Stopped. The tables and the database are still in {}.", kept.display()))?;
    }
    outcome
}

/// The tour, unless Ctrl-C ends it, so that the service is stopped in order then too.
async fn tour(url: &str, contents: &Contents, screen: &mut Screen) -> anyhow::Result<()> {
    let orchestrator = Orchestrator::new(url)?;
    tokio::select! {
        outcome = tour::go(&orchestrator, contents, screen) => outcome,
        _ = tokio::signal::ctrl_c() => bail!("stopped before the end of the tour"),
    }
}

async fn make_sample(data: &Path, scale: f64, screen: &mut Screen) -> anyhow::Result<()> {
    if sample::is_complete(data, scale) {
        return screen.say(&format!("The sample is in {}.", data.display()));
    }
    screen.say(&format!("Making the sample in {}:", data.display()))?;
    let started = Instant::now();
    let (lines, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let out = data.to_owned();
    let making = tokio::task::spawn_blocking(move || {
        sample::generate(&out, scale, &mut |line| {
            // A line that nobody hears any more is no loss.
            let _ = lines.send(line.to_owned());
        })
    });
    while let Some(line) = heard.recv().await {
        screen.say(&format!("  {line}"))?;
    }
    let files = making.await.context("the sample's thread ended early")??;
    if files.is_empty() || !sample::is_complete(data, scale) {
        bail!("{} does not hold the sample that was just written into it", data.display());
    }
    screen.say(&format!("  made in {:.1} s", started.elapsed().as_secs_f64()))
}

/// A folder of this demo's own, so that nothing of an earlier one is in the way.
fn fresh_folder(parent: &Path) -> anyhow::Result<tempfile::TempDir> {
    std::fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
    let made = tempfile::Builder::new().prefix("demo-").tempdir_in(parent);
    made.with_context(|| format!("cannot make a folder in {}", parent.display()))
}

fn invite(url: &str, state: &Path, screen: &mut Screen) -> anyhow::Result<()> {
    let (warehouse, pipelines) = (state.join("warehouse"), state.join("pipelines"));
    screen.say(&format!(
        "
The service goes on at {url} until Ctrl-C. Try:

  curl -s {url}/pipelines/zone_hour/partitions
  curl -s {url}/pipelines/zone_hour/partitions/pickup_month=2024-02
  curl -s '{url}/runs?limit=5'
  curl -s {url}/runs -H 'content-type: application/json' -H 'idempotency-key: my-first-run' \\
    -d '{{\"pipeline\": \"zone_hour\", \"partitions\": [\"2024-02\"]}}'

The tables are in {}, the pipeline files in {}.",
        warehouse.display(),
        pipelines.display(),
    ))
}
