//! The command line against a live server, as scripts and people call it.

use super::server::log_folder;
use super::slow::{slow_pipeline, stopped_engine, stopping};
use super::{MONTHS, Place, Server, Store, trips_pipeline, write_quarter};
use rstest::rstest;
use serde_json::Value;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What a verb printed, and how it ended.
pub(super) struct Said {
    pub(super) code: i32,
    pub(super) out: String,
    pub(super) err: String,
}

impl Said {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

impl std::fmt::Debug for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "exit {}\n{}\n{}", self.code, self.out, self.err)
    }
}

/// Runs the binary with this environment and no other setting.
pub(super) async fn refrain_with(arguments: &[&str], environment: &[(&str, &str)]) -> Said {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_refrain"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("REFRAIN_")) {
        command.env_remove(name);
    }
    command.args(arguments).envs(environment.iter().copied()).stdin(Stdio::null()).kill_on_drop(true);
    let Output { status, stdout, stderr } = command.output().await.unwrap();
    if let Some(folder) = log_folder() {
        // Not what it gives out: that may be a token.
        std::fs::write(folder.join(format!("verb-{}.log", uuid::Uuid::new_v4())), &stderr).unwrap();
    }
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { code: status.code().unwrap(), out: text(stdout), err: text(stderr) }
}

/// Runs a verb against a server; nothing of it may command a terminal, which it does not write to.
async fn call(server: &Server, arguments: &[&str]) -> Said {
    let environment = [("REFRAIN_URL", server.url()), ("TERM", "xterm-256color")];
    let said = refrain_with(arguments, &environment).await;
    assert!(!said.out.contains('\u{1b}') && !said.err.contains('\u{1b}'), "{said:?}");
    said
}

/// A server over a quarter of trips, and a pipeline whose source is missing.
async fn serve(store: Store) -> (Place, Server) {
    let place = Place::new(store).await;
    write_quarter(&place, 200);
    place.pipeline("trips", &trips_pipeline("trips", r#""raw/*.parquet""#, "", ""));
    let missing = trips_pipeline("missing", r#""raw/none.parquet""#, "", "");
    place.pipeline("missing", &format!("{missing}\n[retry]\nsource = {{ attempts = 1 }}\n"));
    let server = place.start().await;
    (place, server)
}

#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn a_run_ends_with_the_code_of_its_state(#[case] store: Store) {
    let (_place, server) = serve(store).await;
    let run = ["run", "trips", "2024-01..2024-03", "--key", "quarter", "--wait", "--timeout", "60"];
    let said = call(&server, &run).await;
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.contains(": succeeded\n") && said.out.contains("pickup_month=2024-02  created"), "{said:?}");
    // Sent again it is the same run, whose JSON is the server's answer.
    let again = call(&server, &[&run[..], &["--json"]].concat()).await;
    let shown = again.json();
    assert_eq!((again.code, &shown["state"]), (0, &"succeeded".into()), "{again:?}");
    assert_eq!(shown, server.get(&format!("/runs/{}", shown["id"].as_str().unwrap())).await.json());
    assert!(again.err.contains("accepted before"), "{again:?}");

    let time = (chrono::Utc::now() + chrono::TimeDelta::hours(1)).to_rfc3339();
    let later = ["run", "trips", "2024-01", "--key", "later", "--not-before", &time, "--priority", "-7"];
    let later = call(&server, &later).await;
    assert!(later.code == 0 && later.out.contains("queued") && later.out.contains("  not before 20"), "{later:?}");

    let failed = call(&server, &["run", "missing", "2024-01", "--key", "m", "--wait"]).await;
    assert_eq!(failed.code, 1, "{failed:?}");
    assert!(failed.out.contains("error: ") && failed.out.contains("raw/none.parquet"), "{failed:?}");
    let id = failed.out.split(' ').nth(1).unwrap();
    assert_eq!(call(&server, &["status", id]).await.code, 1);
    // A retry is a new attempt of the same run.
    let retried = call(&server, &["retry", id, "--wait", "--json"]).await;
    assert_eq!((retried.code, retried.json()["attempts"].as_array().unwrap().len()), (1, 2), "{retried:?}");
    assert_eq!(call(&server, &["retry", shown["id"].as_str().unwrap()]).await.code, 2, "it has succeeded");

    for (arguments, expected) in [
        (&["run", "trips", "2024-13", "--key", "x"][..], "2024-13"),
        (&["run", "trips", "2024-02", "--key", "quarter"], "other partitions"),
        (&["run", "nothing", "2024-02", "--key", "x"], "expected one of: missing, trips"),
        (&["run", "trips", "--key", "x"], "PARTITION"),
        (&["run", "trips", "2024-02", "--key", "x", "--not-before", "2024-03-01"], "an RFC 3339 time"),
        (&["run", "trips", "2024-02", "--key", "x", "--priority", "-101"], "expected -100 to 100"),
        (&["run", "trips", "2024-02", "--key", "x", "--timeout", "5"], "--wait"),
        (&["status", "no-id"], "no run has the id"),
        (&["status", "--wait"], "expected refrain status RUN --wait"),
        (&["cancel", id], "expected queued or running"),
        (&["partitions", "trips", "--by", "fare"], "expected one of rows, revenue, trips"),
        (&["history", "trips", "2023-01"], "no partition \"pickup_month=2023-01\""),
    ] {
        let said = call(&server, arguments).await;
        assert_eq!(said.code, 2, "{arguments:?}: {said:?}");
        assert!(said.err.contains(expected) && said.out.is_empty(), "{arguments:?}: {said:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_key_it_says_what_a_good_one_is() {
    let said = refrain_with(&["run", "trips", "2024-01..2024-03"], &[]).await;
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.err.contains("--key trips/2024-01..2024-03/"), "{said:?}");
    let help = refrain_with(&["run", "--help"], &[]).await;
    for taught in ["--wait --timeout 600", "Exit codes:", "  4  it had not ended"] {
        assert!(help.out.contains(taught), "{taught}: {help:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_ends_with_the_time_or_with_the_cancellation() {
    let place = Place::new(Store::Sqlite).await;
    slow_pipeline(&place, 20, "");
    let server = place.start_with(&["--workers", "1"], &[("REFRAIN_FAULT", &stopping(&place))]).await;
    let submitted = call(&server, &["run", "slow", "2024-02", "--key", "k"]).await;
    assert_eq!(submitted.code, 0, "nobody waited: {submitted:?}");
    let id = submitted.out.split(' ').nth(1).unwrap();
    stopped_engine(&server).await;
    let start = Instant::now();
    let waited = call(&server, &["run", "slow", "2024-02", "--key", "k", "--wait", "--timeout", "1"]).await;
    assert_eq!(waited.code, 4, "{waited:?}");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert!(waited.out.contains(": running\n") && waited.err.contains("it goes on"), "{waited:?}");
    // Piped, how far it is stands in lines.
    assert!(waited.err.contains("refrain: running: "), "{waited:?}");

    let (wait, cancel) = (["status", id, "--wait"], ["cancel", id]);
    let (waited, cancelled) = tokio::join!(call(&server, &wait), call(&server, &cancel));
    assert_eq!(cancelled.code, 0, "{cancelled:?}");
    assert_eq!(waited.code, 3, "{waited:?}");
    let listed = call(&server, &["status", "--state", "cancelled", "--pipeline", "slow"]).await;
    assert!(listed.code == 0 && listed.out.contains(id), "{listed:?}");
    let none = call(&server, &["status", "--state", "failed"]).await;
    assert_eq!((none.code, none.out.as_str()), (0, "no runs\n"), "{none:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_are_listed_with_their_totals() {
    let (place, server) = serve(Store::Sqlite).await;
    assert_eq!(call(&server, &["partitions", "trips"]).await.out, "no partitions\n");
    for month in MONTHS {
        let run = call(&server, &["run", "trips", month, "--key", month, "--wait"]).await;
        assert_eq!(run.code, 0, "{run:?}");
    }
    let listed = call(&server, &["partitions", "trips"]).await;
    let lines: Vec<&str> = listed.out.lines().collect();
    assert_eq!((listed.code, lines.len()), (0, 6), "{listed:?}");
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(lines[0]), ["partition", "rows", "revenue", "trips"]);
    let total = server.get("/pipelines/trips/partitions").await.json()["total"]["totals"].clone();
    assert_eq!(words(lines[5])[3].replace(',', ""), total["revenue"].as_str().unwrap(), "{listed:?}");
    // Numbers stand right: all lines end in one column.
    assert!(lines.iter().all(|line| line.chars().count() == lines[0].chars().count()), "{listed:?}");
    // Pages are put together.
    assert!(server.stop().await.success());
    let server = place.start_with(&["--max-page", "1"], &[]).await;
    assert!(server.get("/pipelines/trips/partitions").await.json()["next_cursor"].is_string());
    let json = call(&server, &["partitions", "trips", "2024-02..", "--json"]).await.json();
    assert_eq!(json["partitions"].as_array().unwrap().len(), 2, "{json:#}");
    assert_eq!(json["total"]["partitions"], 2, "{json:#}");

    let first = call(&server, &["partitions", "trips", "--as-of", "1", "--json"]).await.json();
    assert_eq!((&first["version"], &first["total"]["partitions"]), (&1.into(), &1.into()), "{first:#}");
    let never = call(&server, &["partitions", "trips", "--as-of", "9"]).await;
    assert!(never.code == 2 && never.err.contains("expected a version that the table of trips has had"), "{never:?}");

    for partition in ["2024-02", "pickup_month=2024-02"] {
        let history = call(&server, &["history", "trips", partition]).await;
        assert!(history.code == 0 && history.out.starts_with("trips pickup_month=2024-02: "), "{history:?}");
        assert!(history.out.contains("  created  "), "{history:?}");
    }
    let pipelines = call(&server, &["pipelines"]).await;
    assert!(pipelines.out.contains("trips     Trips and revenue per zone and hour"), "{pipelines:?}");
    let text = call(&server, &["pipelines", "trips"]).await;
    assert!(text.out.contains("[source.columns]"), "{text:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_answer_is_named_and_the_token_is_not() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let token = ("REFRAIN_TOKEN", "sesame-0123");
    let said = refrain_with(&["status", "--url", &url], &[token]).await;
    assert_eq!(said.code, 2, "{said:?}");
    for expected in [url.as_str(), "does not answer", "refrain serve", "REFRAIN_URL"] {
        assert!(said.err.contains(expected), "{expected}: {said:?}");
    }
    let help = refrain_with(&["partitions", "--help"], &[token]).await;
    let bad = refrain_with(&["status", "--url", &url], &[("REFRAIN_TOKEN", "sesame-0123\n")]).await;
    for said in [said, help, bad] {
        assert!(!said.out.contains("sesame") && !said.err.contains("sesame"), "{said:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_answer_is_asked_for_again_and_the_token_is_sent() {
    let (_place, server) = serve(Store::Sqlite).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let behind = server.url().replace("http://", "");
    let relay = tokio::spawn(async move {
        // The first request reaches the server, and its answer nobody.
        let (mut first, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 64 * 1024];
        let length = first.read(&mut request).await.unwrap();
        let mut to_server = TcpStream::connect(&behind).await.unwrap();
        to_server.write_all(&request[..length]).await.unwrap();
        let mut held = vec![0; 64 * 1024];
        let answered = to_server.read(&mut held).await.unwrap();
        assert!(held[..answered].starts_with(b"HTTP/1.1 202 "));
        let (mut second, _) = listener.accept().await.unwrap();
        let mut to_server = TcpStream::connect(&behind).await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut second, &mut to_server).await;
        String::from_utf8_lossy(&request[..length]).into_owned()
    });
    let start = Instant::now();
    let run = ["run", "trips", "2024-01", "--key", "held", "--url", &url, "--json"];
    let said = refrain_with(&run, &[("REFRAIN_TOKEN", "sesame-0123")]).await;
    assert!(said.code == 0 && said.err.contains("accepted before"), "{said:?}");
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    let request = relay.await.unwrap();
    assert!(request.contains("authorization: Bearer sesame-0123\r\n"), "{request}");
    assert_eq!(server.get("/runs").await.json()["runs"].as_array().unwrap().len(), 1);
}

#[rstest]
#[case("bash", "_refrain()")]
#[case("zsh", "#compdef refrain")]
#[case("fish", "complete -c refrain")]
#[tokio::test]
async fn shells_get_their_completions(#[case] shell: &str, #[case] expected: &str) {
    let said = refrain_with(&["completions", shell], &[("REFRAIN_TOKEN", "sesame-0123")]).await;
    assert!(said.code == 0 && said.out.contains(expected) && said.out.contains("partitions"), "{said:?}");
    assert!(!said.out.contains("sesame"));
}
