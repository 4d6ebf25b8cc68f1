//! The verbs that speak to a server: what they ask for, what they print, and how they end.

use super::args::{
    CancelArgs, HealthcheckArgs, HistoryArgs, IfFailedArg, OnOverlapArg, PartitionsArgs, PipelinesArgs, RetryArgs,
    RunArgs, ServerArgs, StatusArgs, WaitArgs,
};
use super::screen::{Paint, Watch, note};
use super::{Client, ClientError, Trust, encoded, has_ended, show, state};
use crate::partition::{PartitionColumn, PartitionSpec, Transform, ValueKind};
use serde_json::{Value, json};
use std::io::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::ExitCode;
use std::time::Duration;

/// How long a health check may take.
const HEALTHCHECK_TIMEOUT: Duration = Duration::from_secs(4);

/// How often a table is listed anew because it has changed from one page to the next.
const MAX_LISTINGS: u32 = 10;

/// How the verbs end; `refrain run --help` says so.
mod code {
    pub(super) const FAILED: u8 = 1;
    pub(super) const NO_ANSWER: u8 = 2;
    pub(super) const CANCELLED: u8 = 3;
    pub(super) const NOT_ENDED: u8 = 4;
}

/// Why a verb has nothing to show.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("{0}")]
    Usage(String),
}

type Ended<T> = Result<T, Failure>;

/// A run, and whether it was waited for in vain.
struct Seen {
    run: Value,
    timed_out: bool,
}

/// Submits a run and prints it; ends as the run's state says.
pub async fn run_command(args: RunArgs) -> ExitCode {
    let submitted = async {
        let key = args.key.as_deref().ok_or_else(|| Failure::Usage(without_key(&args)))?;
        let client = client(&args.server)?;
        let submission = client.submit(key, &request(&args)).await?;
        if submission.replayed {
            note("the run was accepted before, under the same key");
        }
        settle(&client, submission.run, &args.wait).await
    };
    conclude(submitted.await, &args.server)
}

/// Prints a run, with the exit codes of [`run_command`], or the latest runs.
pub async fn status_command(args: StatusArgs) -> ExitCode {
    let Some(id) = &args.run_id else {
        let page = async {
            if args.wait.wait {
                return Err(Failure::Usage(
                    "found --wait without a run, expected refrain status RUN --wait".to_owned(),
                ));
            }
            let mut query = format!("/runs?limit={}", args.limit);
            for (name, value) in [("pipeline", &args.pipeline), ("state", &args.state)] {
                query.extend(value.iter().map(|value| format!("&{name}={}", encoded(value))));
            }
            Ok(client(&args.server)?.get(&query).await?)
        };
        return print(page.await, &args.server, |page, paint| Ok(show::runs(page, paint)));
    };
    let found = async {
        let client = client(&args.server)?;
        let run = client.run(id).await?;
        settle(&client, run, &args.wait).await
    };
    conclude(found.await, &args.server)
}

/// Queues a run again and prints it, with the exit codes of [`run_command`].
pub async fn retry_command(args: RetryArgs) -> ExitCode {
    let queued = async {
        let client = client(&args.server)?;
        let run = client.retry(&args.run_id).await?;
        settle(&client, run, &args.wait).await
    };
    conclude(queued.await, &args.server)
}

/// Cancels a run and prints it: 0 where it is cancelled or its worker was asked.
pub async fn cancel_command(args: CancelArgs) -> ExitCode {
    let cancelled = async { Ok(client(&args.server)?.cancel(&args.run_id).await?) };
    print(cancelled.await, &args.server, |run, paint| {
        let asked = if has_ended(run) { "" } else { "  its worker was asked to stop\n" };
        Ok(show::run(run, paint) + asked)
    })
}

/// Prints the totals of a table, now or as they were.
pub async fn partitions_command(args: PartitionsArgs) -> ExitCode {
    let listed = async {
        let (from, to) = range(args.range.as_deref());
        let mut query = format!("/pipelines/{}/partitions?", encoded(&args.pipeline));
        for (name, value) in [("from", from), ("to", to), ("as_of", args.as_of.as_deref())] {
            query.extend(value.map(|value| format!("{name}={}&", encoded(value))));
        }
        listing(&client(&args.server)?, query.trim_end_matches(['?', '&'])).await
    };
    print(listed.await, &args.server, |listing, paint| show::partitions(listing, args.by.as_deref(), paint))
}

/// Prints what a partition is, and was.
pub async fn history_command(args: HistoryArgs) -> ExitCode {
    let found = async {
        let client = client(&args.server)?;
        let pipeline = format!("/pipelines/{}", encoded(&args.pipeline));
        let key = match args.partition.contains('=') {
            true => args.partition.clone(),
            false => canonical(&client.get(&pipeline).await?, &args.partition)?,
        };
        let limit = args.limit.map(|limit| format!("?limit={limit}")).unwrap_or_default();
        Ok(client.get(&format!("{pipeline}/partitions/{}{limit}", encoded(&key))).await?)
    };
    print(found.await, &args.server, |partition, paint| Ok(show::history(partition, paint)))
}

/// Prints the pipelines of a server, or the text of one.
pub async fn pipelines_command(args: PipelinesArgs) -> ExitCode {
    let path = args.name.as_ref().map_or("/pipelines".to_owned(), |name| format!("/pipelines/{}", encoded(name)));
    let found = async { Ok(client(&args.server)?.get(&path).await?) };
    print(found.await, &args.server, |answer, paint| match answer["text"].as_str() {
        Some(text) => Ok(text.trim_end().to_owned() + "\n"),
        None => Ok(show::pipelines(answer, paint)),
    })
}

/// Asks a server whether it lives: 0 where it does, 1 where it does not.
pub async fn healthcheck_command(args: HealthcheckArgs) -> ExitCode {
    let (url, trust) = asked_for(args);
    let asked = async { Client::trusting(&url, None, false, &trust)?.get("/healthz").await };
    match tokio::time::timeout(HEALTHCHECK_TIMEOUT, asked).await {
        Ok(Ok(_)) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            note(&error.to_string());
            ExitCode::FAILURE
        }
        Err(_) => {
            note(&format!("{url} did not answer within {} s", HEALTHCHECK_TIMEOUT.as_secs()));
            ExitCode::FAILURE
        }
    }
}

/// The server's URL, and which certificate it may have.
fn asked_for(args: HealthcheckArgs) -> (String, Trust) {
    let HealthcheckArgs { mut listen, tls_cert_file, url, ca_file } = args;
    if let Some(url) = url {
        return (url, Trust::by(ca_file));
    }
    if listen.ip().is_unspecified() {
        // A server that listens everywhere is asked where it is nearest.
        listen.set_ip(if listen.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    }
    match tls_cert_file {
        None => (format!("http://{listen}"), Trust::Platform),
        Some(_) => (format!("https://{listen}"), Trust::Anything),
    }
}

fn client(server: &ServerArgs) -> Ended<Client> {
    Ok(server.credential.client(&server.url)?)
}

fn without_key(args: &RunArgs) -> String {
    let what = if args.full { "full".to_owned() } else { args.partitions.join("+") };
    format!(
        "--key is missing: the idempotency key that names this piece of work, so that sending it again is the same run. A \
         good one has the job, its partitions and the scheduled time, and is the same when the task is tried again: for \
         example --key {}/{what}/2024-03-01, with the day that this is scheduled for",
        args.pipeline
    )
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
    if let Some(time) = &args.not_before {
        body["not_before"] = time.as_str().into();
    }
    if let Some(priority) = args.priority {
        body["priority"] = priority.into();
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

/// The ends of a range for a listing: `FROM..TO`, where either may be left out, or one partition.
fn range(text: Option<&str>) -> (Option<&str>, Option<&str>) {
    let Some(text) = text else { return (None, None) };
    let (from, to) = text.split_once("..").unwrap_or((text, text));
    (Some(from).filter(|from| !from.is_empty()), Some(to).filter(|to| !to.is_empty()))
}

/// The key of a bare value, where the pipeline has one partition column. Whether there is such a partition is the server's
/// to say.
fn canonical(pipeline: &Value, value: &str) -> Ended<String> {
    let columns = pipeline["partition"].as_array().map_or(&[][..], Vec::as_slice);
    let names: Vec<&str> = columns.iter().filter_map(|column| column["name"].as_str()).collect();
    let [name] = names.as_slice() else {
        let shape = names.iter().map(|name| format!("{name}=…")).collect::<Vec<_>>().join("/");
        return Err(Failure::Usage(format!("found {value:?}, expected a key such as {shape}")));
    };
    let (name, source) = ((*name).to_owned(), String::new());
    let column = PartitionColumn { name, transform: Transform::ValueOf, kind: ValueKind::Text, source };
    let key = PartitionSpec::new(vec![column]).parse_text(value);
    key.map(|key| key.as_str().to_owned()).map_err(|error| Failure::Usage(error.to_string()))
}

/// A whole listing, of one version of the table.
async fn listing(client: &Client, query: &str) -> Ended<Value> {
    'anew: for _ in 0..MAX_LISTINGS {
        let mut whole = client.get(query).await?;
        let mut next = whole["next_cursor"].take();
        while let Some(cursor) = next.as_str() {
            let joint = if query.contains('?') { '&' } else { '?' };
            let mut page = client.get(&format!("{query}{joint}cursor={}", encoded(cursor))).await?;
            if page["version"] != whole["version"] {
                continue 'anew;
            }
            next = page["next_cursor"].take();
            if let (Value::Array(all), Value::Array(more)) = (&mut whole["partitions"], page["partitions"].take()) {
                all.extend(more);
            }
        }
        return Ok(whole);
    }
    Err(Failure::Usage(format!("the table changed {MAX_LISTINGS} times while it was listed; ask again")))
}

/// Waits for the run's end if that was asked for.
async fn settle(client: &Client, run: Value, wait: &WaitArgs) -> Ended<Seen> {
    let id = match run["id"].as_str() {
        Some(id) if wait.wait && !has_ended(&run) => id.to_owned(),
        _ => return Ok(Seen { run, timed_out: false }),
    };
    let mut watch = Watch::start();
    watch.see(&run);
    let mut last = run;
    let waiting = client.wait_for(&id, |run| {
        watch.see(run);
        last.clone_from(run);
    });
    let ended = match wait.timeout {
        None => Ok(waiting.await),
        Some(seconds) => tokio::time::timeout(Duration::from_secs(seconds.into()), waiting).await,
    };
    watch.end();
    match ended {
        Ok(run) => Ok(Seen { run: run?, timed_out: false }),
        Err(_) => {
            let seconds = wait.timeout.unwrap_or_default();
            note(&format!("the run had not ended after {seconds} s; it goes on: refrain status {id} --wait"));
            Ok(Seen { run: last, timed_out: true })
        }
    }
}

/// Prints a run and ends as it did.
fn conclude(result: Ended<Seen>, server: &ServerArgs) -> ExitCode {
    let (run, timed_out) = match result {
        Ok(Seen { run, timed_out }) => (Ok(run), timed_out),
        Err(failure) => (Err(failure), false),
    };
    let code = run.as_ref().map_or(code::NO_ANSWER, |run| match state(run) {
        "failed" => code::FAILED,
        "cancelled" => code::CANCELLED,
        _ if timed_out => code::NOT_ENDED,
        _ => 0,
    });
    print(run, server, |run, paint| Ok(show::run(run, paint)));
    ExitCode::from(code)
}

/// Prints an answer as JSON or for people, or says why there is none.
fn print(
    result: Ended<Value>,
    server: &ServerArgs,
    for_people: impl FnOnce(&Value, Paint) -> Result<String, String>,
) -> ExitCode {
    let text = result.and_then(|answer| match server.json {
        true => Ok(format!("{answer:#}\n")),
        false => for_people(&answer, Paint::stdout()).map_err(Failure::Usage),
    });
    match text {
        Ok(text) => {
            // A reader that went away does not change what was done.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(failure) => {
            note(&failure.to_string());
            if let Failure::Client(ClientError::Unreachable { .. }) = failure {
                note("`refrain serve` starts a server; --url or REFRAIN_URL says where it is");
            }
            ExitCode::from(code::NO_ANSWER)
        }
    }
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
    fn a_range_may_have_an_open_end() {
        assert_eq!(range(None), (None, None));
        assert_eq!(range(Some("2024-01..2024-03")), (Some("2024-01"), Some("2024-03")));
        assert_eq!(range(Some("2024-01..")), (Some("2024-01"), None));
        assert_eq!(range(Some("..2024-03")), (None, Some("2024-03")));
        assert_eq!(range(Some("2024-02")), (Some("2024-02"), Some("2024-02")));
    }

    #[test]
    fn a_bare_value_becomes_the_key_of_the_one_column() {
        let pipeline =
            |names: &[&str]| json!({"partition": names.iter().map(|n| json!({"name": n})).collect::<Value>()});
        assert_eq!(canonical(&pipeline(&["kind"]), "a/b").ok().as_deref(), Some("kind=a%2Fb"));
        let error = canonical(&pipeline(&["day", "hour"]), "7").err().map(|e| e.to_string());
        assert!(error.is_some_and(|error| error.contains("day=…/hour=…")));
    }
}
