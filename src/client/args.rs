//! The arguments of the verbs that speak to a server, and what their help teaches.

use super::{Client, ClientError, Trust};
use crate::config::secret_in;
use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};
use secrecy::SecretString;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Where the server is, and how to print.
#[derive(Debug, Clone, Args)]
pub struct ServerArgs {
    /// The server.
    #[arg(long, env = "REFRAIN_URL", default_value = "http://127.0.0.1:8080", value_name = "URL")]
    pub url: String,
    /// What it is shown.
    #[command(flatten)]
    pub credential: CredentialArgs,
    /// Print JSON, as the server answers it.
    #[arg(long)]
    pub json: bool,
}

/// The token that a server is shown.
#[derive(Debug, Clone, Args)]
pub struct CredentialArgs {
    /// Send this as a bearer token. Set it by the environment, where a process listing does not show it.
    #[arg(long, env = "REFRAIN_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    pub token: Option<SecretString>,
    /// A file that holds that token, and nothing else but a line's end.
    #[arg(long, env = "REFRAIN_TOKEN_FILE", value_name = "FILE", conflicts_with = "token")]
    pub token_file: Option<PathBuf>,
    /// Take the server's certificate by the authorities in this file (PEM), instead of those that the machine trusts.
    #[arg(long, env = "REFRAIN_CA_FILE", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// Send the token over http to other machines too, where whoever is between can read it.
    #[arg(long = "insecure", env = "REFRAIN_SEND_TOKEN_IN_CLEAR", value_parser = BoolishValueParser::new())]
    pub send_in_clear: bool,
}

impl CredentialArgs {
    /// A client of the server at `url` that shows it the token.
    pub fn client(&self, url: &str) -> Result<Client, ClientError> {
        let token = match &self.token_file {
            None => self.token.clone(),
            Some(file) => Some(secret_in(file).map_err(|error| ClientError::TokenFile(format!("{error:#}")))?),
        };
        Client::trusting(url, token, self.send_in_clear, &Trust::by(self.ca_file.clone()))
    }
}

/// Which server is asked whether it lives.
#[derive(Debug, Clone, Args)]
pub struct HealthcheckArgs {
    /// Where the server listens, on this machine.
    #[arg(long, env = "REFRAIN_LISTEN", default_value = "127.0.0.1:8080", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Whether it speaks TLS there: its certificate's file, as `serve` has it. The certificate is for the server's name and not
    /// for this address, so it is not looked at.
    #[arg(long, env = "REFRAIN_TLS_CERT_FILE", value_name = "FILE")]
    pub tls_cert_file: Option<PathBuf>,
    /// Ask this server instead, on whatever machine.
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Take that one's certificate by the authorities in this file (PEM), instead of those that the machine trusts.
    #[arg(long, env = "REFRAIN_CA_FILE", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
}

/// Whether to wait, and for how long.
#[derive(Debug, Clone, Args)]
pub struct WaitArgs {
    /// Wait until the run has ended, and show how far it is.
    #[arg(long)]
    pub wait: bool,
    /// Wait for so long at most; the run goes on.
    #[arg(long, value_name = "SECONDS", requires = "wait")]
    pub timeout: Option<u32>,
}

/// What `--if-failed` may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum IfFailedArg {
    /// Give the failed or cancelled run back.
    Return,
    /// Queue it again.
    Retry,
}

/// What `--on-overlap` may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnOverlapArg {
    /// Wait for the runs in the way.
    Wait,
    /// Submit nothing.
    Refuse,
}

/// Ends the help of the verbs that show a run.
macro_rules! exit_codes {
    () => {
        "\
Exit codes:
  0  the run succeeded, or nobody waited for its end
  1  it failed
  2  there is no run to show: the arguments are wrong, the server refused or does not answer
  3  it was cancelled
  4  it had not ended at the --timeout"
    };
}

const RUN_HELP: &str = concat!(
    "\
Examples:
  refrain run zone_hour 2024-02 --key zone_hour/2024-02/2024-03-01
          one month; the server answers at once
  refrain run zone_hour 2024-01..2024-03 --key zone_hour/2024-Q1/2024-04-01 --wait
          a range, both ends included, as one run; shows how far it is
  refrain run zone_hour pickup_month=2024-01 2024-03 --key … --wait --timeout 600 --json
          some partitions, by their full key or their value; waits ten minutes at most
  refrain run zone_hour --full --key zone_hour/full/new-definition --wait
          the whole table from all of its sources
  refrain run zone_hour 2024-02 --key … --not-before 2024-03-01T06:00:00Z --priority 10
          when that time has come, and before runs of less priority

The key names the piece of work: the job, its partitions and the scheduled time, which are the same when a task is
tried again, and never the time of the call or a random number. Sent again under its key, a run is not run again: you
get the same one. Another request under a key that is used is refused.

",
    exit_codes!()
);

const STATUS_HELP: &str = concat!(
    "\
Examples:
  refrain status
          the latest runs
  refrain status --pipeline zone_hour --state failed --limit 50
  refrain status 01a2279b-6a91-771c-9cd3-d0d5bb9a7f9c --wait --timeout 60
          one run, when it has ended

",
    exit_codes!()
);

const RETRY_HELP: &str = concat!(
    "\
Examples:
  refrain retry 01a2279b-6a91-771c-9cd3-d0d5bb9a7f9c --wait
          queues it again with the pipeline as it is now, and waits

",
    exit_codes!()
);

const CANCEL_HELP: &str = "\
Examples:
  refrain cancel 01a2279b-6a91-771c-9cd3-d0d5bb9a7f9c
          a queued run is cancelled at once, the worker of a running one is asked to stop
  refrain status 01a2279b-6a91-771c-9cd3-d0d5bb9a7f9c --wait
          waits until it has stopped

Exit codes:
  0  the run is cancelled, or its worker was asked
  2  it cannot be cancelled any more, is not known, or the server does not answer";

const PARTITIONS_HELP: &str = "\
Examples:
  refrain partitions zone_hour
          all partitions with their totals, and the sum over them
  refrain partitions zone_hour 2024-01..2024-03 --by revenue
          a range, both ends included; the bars show the revenue
  refrain partitions zone_hour 2024-02.. --json
          from a month on, for a program
  refrain partitions zone_hour --as-of 2024-03-01T00:00:00Z
          the table as it was then; or at a version of it, or after a run: --as-of 7, --as-of 01a2279b-…";

const HISTORY_HELP: &str = "\
Examples:
  refrain history zone_hour pickup_month=2024-02
          what the partition was from which run on, newest first
  refrain history zone_hour 2024-02
          the same, where there is one partition column
  refrain history zone_hour 2024-02 --limit 1000
          more of it";

const PIPELINES_HELP: &str = "\
Examples:
  refrain pipelines
          the pipelines of the server
  refrain pipelines zone_hour
          one of them: the text of its file";

/// `refrain run`: submits a run.
#[derive(Debug, Clone, Args)]
#[command(after_help = RUN_HELP)]
pub struct RunArgs {
    /// The pipeline.
    pub pipeline: String,
    /// What to rebuild: canonical keys, bare values, or ranges such as 2024-01..2024-03.
    #[arg(required_unless_present = "full", conflicts_with = "full", value_name = "PARTITION")]
    pub partitions: Vec<String>,
    /// The idempotency key: the same key and request give the same run, however often it is sent. Needed.
    #[arg(long)]
    pub key: Option<String>,
    /// Rebuild the whole table.
    #[arg(long)]
    pub full: bool,
    /// What happens where a run that has not ended overlaps this one.
    #[arg(long, value_enum)]
    pub on_overlap: Option<OnOverlapArg>,
    /// Do not begin before this time (RFC 3339, with its offset).
    #[arg(long, value_name = "TIME")]
    pub not_before: Option<String>,
    /// From -100 to 100: among the runs that can begin, those of a higher priority do so first.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub priority: Option<i32>,
    /// What a failed or cancelled run under this key becomes.
    #[arg(long, value_enum)]
    pub if_failed: Option<IfFailedArg>,
    /// Whether to wait.
    #[command(flatten)]
    pub wait: WaitArgs,
    /// Where the server is.
    #[command(flatten)]
    pub server: ServerArgs,
}

/// `refrain status`: shows a run, or the latest ones.
#[derive(Debug, Clone, Args)]
#[command(after_help = STATUS_HELP)]
pub struct StatusArgs {
    /// The run's id; without it the latest runs are listed.
    #[arg(value_name = "RUN")]
    pub run_id: Option<String>,
    /// List runs of this pipeline.
    #[arg(long, value_name = "NAME", conflicts_with = "run_id")]
    pub pipeline: Option<String>,
    /// List runs in this state.
    #[arg(long, conflicts_with = "run_id")]
    #[arg(value_parser = ["queued", "running", "committing", "succeeded", "failed", "cancelled"])]
    pub state: Option<String>,
    /// List so many runs.
    #[arg(long, value_name = "N", default_value_t = 10, conflicts_with = "run_id")]
    pub limit: u32,
    /// Whether to wait.
    #[command(flatten)]
    pub wait: WaitArgs,
    /// Where the server is.
    #[command(flatten)]
    pub server: ServerArgs,
}

/// `refrain retry`: queues a failed or cancelled run again.
#[derive(Debug, Clone, Args)]
#[command(after_help = RETRY_HELP)]
pub struct RetryArgs {
    /// The run's id.
    #[arg(value_name = "RUN")]
    pub run_id: String,
    /// Whether to wait.
    #[command(flatten)]
    pub wait: WaitArgs,
    /// Where the server is.
    #[command(flatten)]
    pub server: ServerArgs,
}

/// `refrain cancel`: cancels a run.
#[derive(Debug, Clone, Args)]
#[command(after_help = CANCEL_HELP)]
pub struct CancelArgs {
    /// The run's id.
    #[arg(value_name = "RUN")]
    pub run_id: String,
    /// Where the server is.
    #[command(flatten)]
    pub server: ServerArgs,
}

/// `refrain partitions`: the totals of a table.
#[derive(Debug, Clone, Args)]
#[command(after_help = PARTITIONS_HELP)]
pub struct PartitionsArgs {
    /// The pipeline.
    pub pipeline: String,
    /// Only these, for time partitions: one, or FROM..TO, where either end may be left out.
    #[arg(value_name = "FROM..TO")]
    pub range: Option<String>,
    /// The table as it was: at this version, after the run of this id, or at this time (RFC 3339).
    #[arg(long, value_name = "VERSION|RUN|TIME")]
    pub as_of: Option<String>,
    /// What the bars show: a measure instead of the rows.
    #[arg(long, value_name = "MEASURE")]
    pub by: Option<String>,
    /// Where the server is.
    #[command(flatten)]
    pub server: ServerArgs,
}

/// `refrain history`: what a partition was.
#[derive(Debug, Clone, Args)]
#[command(after_help = HISTORY_HELP)]
pub struct HistoryArgs {
    /// The pipeline.
    pub pipeline: String,
    /// The partition: its canonical key, or its value where there is one partition column.
    pub partition: String,
    /// Show so many changes, the latest.
    #[arg(long, value_name = "N")]
    pub limit: Option<u32>,
    /// Where the server is.
    #[command(flatten)]
    pub server: ServerArgs,
}

/// `refrain pipelines`: the definitions.
#[derive(Debug, Clone, Args)]
#[command(after_help = PIPELINES_HELP)]
pub struct PipelinesArgs {
    /// Show this one.
    pub name: Option<String>,
    /// Where the server is.
    #[command(flatten)]
    pub server: ServerArgs,
}
