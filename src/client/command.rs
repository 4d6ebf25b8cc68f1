//! The verbs `refrain run` and `refrain status`: their arguments, and what they print.

use super::{Client, ClientError, has_ended, state};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

/// How long a health check may take.
const HEALTHCHECK_TIMEOUT: Duration = Duration::from_secs(4);

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

/// What `--on-overlap` may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnOverlapArg {
    /// Wait for the runs in the way.
    Wait,
    /// Submit nothing.
    Refuse,
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
    /// What happens where a run that has not ended overlaps this one.
    #[arg(long, value_enum)]
    pub on_overlap: Option<OnOverlapArg>,
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
    if let Some(OnOverlapArg::Refuse) = args.on_overlap {
        body["on_overlap"] = "refuse".into();
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
    use super::*;

    #[test]
    fn two_dots_make_a_range_unless_the_text_is_a_key() {
        assert_eq!(partition("2024-01..2024-03"), json!({"from": "2024-01", "to": "2024-03"}));
        for text in ["2024-02", "..", "a..", "kind=a..b", "pickup_month=2024-02"] {
            assert_eq!(partition(text), json!(text), "{text}");
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
          m=2024-02  replaced  7 rows  revenue 1.50  trips 3
          m=2024-03
          5 rows read: 3 in scope, 1 out of scope, 1 filtered, 0 rejected
          warning: look here
        ");
    }
}
