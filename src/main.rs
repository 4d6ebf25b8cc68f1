//! The verbs; no logic.

use anyhow::Context;
use clap::{Args, CommandFactory, Parser, Subcommand};
use refrain::app::{self, FixBy, TokenArgs, Verdict};
use refrain::client::{
    self, CancelArgs, CredentialArgs, HealthcheckArgs, HistoryArgs, PartitionsArgs, PipelinesArgs, RetryArgs, RunArgs,
    StatusArgs,
};
use refrain::config::{
    DatabaseSettings, NotifySettings, Settings, TelemetrySettings, WorkSettings, in_force, unknown_variables,
};
use refrain::demo::{self, DemoOptions};
use refrain::telemetry::{LogFormat, OtlpOptions, Traces};
use refrain::{engine, http, sample, telemetry};
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Runs partitioned ETL jobs over HTTP so that running one twice is the same as running it once.
#[derive(Parser)]
#[command(name = "refrain", version, arg_required_else_help = true)]
struct Cli {
    /// How log lines look.
    #[arg(long, env = "REFRAIN_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text, global = true)]
    log_format: LogFormat,
    #[command(subcommand)]
    verb: Verb,
}

const COMPLETIONS_HELP: &str = "\
Examples:
  refrain completions bash > ~/.local/share/bash-completion/completions/refrain
  refrain completions zsh > ~/.zfunc/_refrain        (with ~/.zfunc in fpath)
  refrain completions fish > ~/.config/fish/completions/refrain.fish";

#[derive(Subcommand)]
enum Verb {
    /// Serve HTTP and work on runs.
    Serve(Box<Settings>),
    /// Show the settings that `serve` would have, and where each comes from; ends with 1 where the environment has one that
    /// there is not.
    Config(Box<ConfigArgs>),
    /// Work on runs without serving HTTP (needs Postgres).
    Worker(Box<WorkerArgs>),
    /// Bring the database's schema up to date; `serve` does so too.
    Migrate(DatabaseSettings),
    /// Check pipeline files: a folder or one file.
    Check {
        /// The folder or file.
        #[arg(default_value = "./pipelines")]
        path: PathBuf,
    },
    /// Submit a run to a server.
    Run(RunArgs),
    /// Make, list and revoke tokens, in the database.
    Token(TokenArgs),
    /// Show a run of a server, or the latest ones.
    Status(StatusArgs),
    /// Cancel a run.
    Cancel(CancelArgs),
    /// Queue a failed or cancelled run again.
    Retry(RetryArgs),
    /// Show the current totals of a table, partition by partition.
    Partitions(PartitionsArgs),
    /// Show what a partition is, and what it was.
    History(HistoryArgs),
    /// Show the pipelines of a server.
    Pipelines(PipelinesArgs),
    /// Print the completions of a shell.
    #[command(after_help = COMPLETIONS_HELP)]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Copy the embedded database into a folder, beside the server that holds it; docs/backup.md says what else a backup needs.
    Backup(BackupArgs),
    /// Hold the catalog against the files; ends with 1 where they differ, or with 3 where --fix has a run for all of it.
    Verify(Box<VerifyArgs>),
    /// Make the made-up quarter of yellow-taxi files.
    Sample {
        /// The folder to make them in.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// The size; 1 is nine and a half million trips.
        #[arg(long, default_value_t = 1.0, value_name = "X")]
        scale: f64,
    },
    /// A guided tour: makes the sample, starts the service and acts as an orchestrator.
    Demo(DemoArgs),
    /// Print the HTTP interface as OpenAPI, in YAML.
    Openapi,
    /// Ask a server whether it lives; ends with 1 where it does not.
    Healthcheck(HealthcheckArgs),
    /// One run's computation, started by a worker.
    #[command(hide = true)]
    Engine,
    /// One partition's rows for a client, started by a server.
    #[command(hide = true)]
    Extract,
}

#[derive(Args)]
struct ConfigArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Args)]
struct WorkerArgs {
    #[command(flatten)]
    database: DatabaseSettings,
    #[command(flatten)]
    work: WorkSettings,
    #[command(flatten)]
    notify: NotifySettings,
    #[command(flatten)]
    telemetry: TelemetrySettings,
}

#[derive(Args)]
struct BackupArgs {
    /// The folder to copy it to; made where it is not there.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    #[command(flatten)]
    database: DatabaseSettings,
}

#[derive(Args)]
struct VerifyArgs {
    /// Only this pipeline's table.
    pipeline: Option<String>,
    /// Print what was found as JSON.
    #[arg(long)]
    json: bool,
    /// Queue a run for each partition whose file is missing or not the one of the catalog.
    #[arg(long)]
    fix: bool,
    /// Queue them by this server instead of in the database: for the embedded one, which its server holds.
    #[arg(long, env = "REFRAIN_URL", value_name = "URL")]
    url: Option<String>,
    #[command(flatten)]
    credential: CredentialArgs,
    /// The folder of the pipeline files.
    #[arg(long, env = "REFRAIN_PIPELINES", default_value = "./pipelines", value_name = "DIR")]
    pipelines: PathBuf,
    #[command(flatten)]
    database: DatabaseSettings,
}

#[derive(Args)]
struct DemoArgs {
    /// Holds the sample in `data`, and the tour's own tables while it runs.
    #[arg(long, default_value = ".", value_name = "DIR")]
    dir: PathBuf,
    /// The size of the sample; 1 is nine and a half million trips.
    #[arg(long, default_value_t = 1.0, value_name = "X")]
    scale: f64,
    /// Serve on after the tour.
    #[arg(long)]
    keep: bool,
    /// Where to listen; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    listen: SocketAddr,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match &cli.verb {
        Verb::Engine => return engine::serve_child(),
        Verb::Extract => return engine::serve_extract(),
        _ => {}
    }
    let ended =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the runtime").and_then(
            |runtime| {
                let ended = runtime.block_on(run(cli));
                // A step on a disk that hangs must not keep the process.
                runtime.shutdown_timeout(Duration::from_secs(1));
                ended
            },
        );
    match ended {
        Ok(code) => code,
        Err(error) => {
            // Nothing is left to tell it to where standard error is closed.
            let _ = writeln!(std::io::stderr(), "refrain: {error:#}");
            ExitCode::from(2)
        }
    }
}

async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.verb {
        Verb::Serve(settings) => {
            let _traces = start_telemetry(cli.log_format, &settings.telemetry)?;
            warn_of_unknown_variables();
            app::start(*settings).await?.until(asked_to_stop()?).await?;
        }
        Verb::Config(args) => return config(&args),
        Verb::Worker(args) => {
            let _traces = start_telemetry(cli.log_format, &args.telemetry)?;
            warn_of_unknown_variables();
            let WorkerArgs { database, work, notify, telemetry } = *args;
            app::start_workers(&database, &work, &notify, &telemetry).await?.until(asked_to_stop()?).await?;
        }
        Verb::Migrate(database) => drop(app::open_store(&database, None).await?),
        Verb::Check { path } => return check(&path),
        Verb::Run(args) => return Ok(client::run_command(args).await),
        Verb::Token(args) => app::token_command(args).await?,
        Verb::Status(args) => return Ok(client::status_command(args).await),
        Verb::Cancel(args) => return Ok(client::cancel_command(args).await),
        Verb::Retry(args) => return Ok(client::retry_command(args).await),
        Verb::Partitions(args) => return Ok(client::partitions_command(args).await),
        Verb::History(args) => return Ok(client::history_command(args).await),
        Verb::Pipelines(args) => return Ok(client::pipelines_command(args).await),
        Verb::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "refrain", &mut script);
            std::io::stdout().write_all(&script)?;
        }
        Verb::Backup(args) => {
            let copy = app::backup(&args.database, &args.to).await?;
            writeln!(std::io::stdout(), "{}", copy.display())?;
        }
        Verb::Verify(args) => return verify(*args).await,
        Verb::Sample { out, scale } => {
            sample::generate(&out, scale, &mut |line| {
                let _ = writeln!(std::io::stdout(), "{line}");
            })?;
        }
        Verb::Demo(args) => {
            let DemoArgs { dir, scale, keep, listen } = args;
            demo::run(DemoOptions { dir, scale, keep, listen }).await?;
        }
        Verb::Openapi => write!(std::io::stdout(), "{}", http::openapi().to_yaml()?)?,
        Verb::Healthcheck(args) => return Ok(client::healthcheck_command(args).await),
        Verb::Engine | Verb::Extract => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Logs, and traces as long as what it gives is kept.
fn start_telemetry(format: LogFormat, settings: &TelemetrySettings) -> anyhow::Result<Option<Traces>> {
    let headers = settings.otlp_headers()?;
    let options = settings.otlp_endpoint.clone().map(|endpoint| OtlpOptions { endpoint, headers });
    let traces = options.map(Traces::start).transpose()?;
    telemetry::start_logs(format, traces.as_ref());
    Ok(traces)
}

/// Waits for SIGTERM or SIGINT; a second one ends the process at once.
fn asked_to_stop() -> anyhow::Result<impl Future<Output = ()>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        let mut asked = async || {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        asked().await;
        tracing::info!("shutting down; a second signal ends at once");
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            std::process::exit(130);
        });
    })
}

fn config(args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    // What cannot be read is said before it is relied on.
    args.settings.database.url()?;
    args.settings.telemetry.otlp_headers()?;
    let matches = Cli::command().get_matches();
    let of_verb = matches.subcommand_matches("config").context("the arguments are not those of this verb")?;
    let found = in_force(Cli::command(), "config", of_verb, variables());
    let text = if args.json { format!("{}\n", serde_json::to_string_pretty(&found)?) } else { found.to_string() };
    write!(std::io::stdout(), "{text}")?;
    Ok(if found.unknown.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn warn_of_unknown_variables() {
    for variable in unknown_variables(&Cli::command(), variables()) {
        tracing::warn!(variable, "the environment has a setting that there is not");
    }
}

/// The names in the environment.
fn variables() -> impl Iterator<Item = String> {
    std::env::vars_os().filter_map(|(name, _)| name.into_string().ok())
}

fn check(path: &std::path::Path) -> anyhow::Result<ExitCode> {
    let (good, errors) = app::check(path)?;
    let mut out = std::io::stdout();
    for name in &good {
        writeln!(out, "{name}: ok")?;
    }
    for error in &errors {
        writeln!(out, "{error}")?;
    }
    Ok(if errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn verify(args: VerifyArgs) -> anyhow::Result<ExitCode> {
    let credential = args.credential;
    let fix = args.fix.then(|| args.url.map_or(FixBy::Database, |url| FixBy::Server { url, credential }));
    let found = app::inspect(&args.database, &args.pipelines, args.pipeline.as_deref(), fix).await?;
    let mut out = std::io::stdout();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&found)?)?;
    } else {
        for finding in &found.findings {
            writeln!(out, "{finding}")?;
        }
        writeln!(out, "{} partitions checked, {} findings", found.partitions, found.findings.len())?;
    }
    Ok(match found.verdict() {
        Verdict::Well => ExitCode::SUCCESS,
        Verdict::Wrong => ExitCode::FAILURE,
        Verdict::BeingRebuilt => ExitCode::from(3),
    })
}
