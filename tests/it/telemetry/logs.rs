//! Each line names what it is about.

use super::{Place, Store, of_month, pipeline};
use rstest::rstest;
use serde_json::Value;

/// What a worker says that is about no attempt.
const BETWEEN: [&str; 4] = ["no run ", "the warehouse can", "faults will happen", "working"];

/// A run that succeeds after an engine of it has died, one that fails, and a request that is refused; the engines speak, too.
async fn lines(format: &str, level: &str) -> Vec<String> {
    let place = Place::new(Store::Sqlite).await;
    pipeline(&place);
    let fault = format!("scanned=kill@{}", place.path("killed").display());
    let environment = [
        ("REFRAIN_FAULT", fault.as_str()),
        ("REFRAIN_LOG_FORMAT", format),
        ("POLARS_VERBOSE", "1"),
        ("RUST_LOG", level),
    ];
    let server = place.start_with(&["--workers", "1"], &environment).await;
    server.run("good", &of_month("2024-02")).await;
    server.run_to("failed", "bad", &of_month("2024-03")).await;
    let log = server.log();
    assert!(server.stop().await.success());
    let lines: Vec<String> = log.lines().map(str::to_owned).collect();
    assert!(lines.iter().any(|line| line.contains("a child process said something")), "{log}");
    assert!(lines.iter().any(|line| line.contains("the attempt ended: lost")), "{log}");
    lines
}

fn is_of_an_attempt(target: &str, message: &str) -> bool {
    let inside =
        ["refrain::worker", "refrain::engine", "refrain::table"].iter().any(|module| target.starts_with(module));
    inside && !BETWEEN.iter().any(|start| message.starts_with(start))
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn json_lines_of_an_attempt_and_of_a_request_have_their_ids(#[values("info", "warn")] level: &str) {
    let (mut attempts, mut requests) = (0, 0);
    for line in lines("json", level).await {
        let line: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let (target, message) = (line["target"].as_str().unwrap(), line["message"].as_str().unwrap());
        let spans = line["spans"].as_array().cloned().unwrap_or_default();
        let of = |name: &str| spans.iter().find(|span| span["name"] == name).cloned().unwrap_or_default();
        if is_of_an_attempt(target, message) {
            let attempt = of("attempt");
            for id in ["run.id", "pipeline", "worker"] {
                assert!(attempt[id].is_string(), "{id} in {line}");
            }
            assert!(attempt["run.attempt"].is_u64(), "{line}");
            attempts += 1;
        }
        if target.starts_with("refrain::http") {
            assert!(of("request")["request.id"].is_string(), "{line}");
            requests += 1;
        }
    }
    assert!(attempts >= 3 && (requests >= 2 || level == "warn"), "{attempts} {requests}");
}

#[tokio::test(flavor = "multi_thread")]
async fn text_lines_of_an_attempt_and_of_a_request_have_their_ids() {
    let (mut attempts, mut requests) = (0, 0);
    for line in lines("text", "info").await {
        let Some((head, message)) = line
            .split_once(": refrain::")
            .map(|(head, rest)| (head, format!("refrain::{rest}")))
            .or_else(|| line.find(" refrain::").map(|at| (line.split_at(at).0, line.split_at(at + 1).1.to_owned())))
        else {
            continue;
        };
        let Some((target, message)) = message.split_once(": ") else { continue };
        if is_of_an_attempt(target, message) {
            let all = ["attempt{run.id=", "run.attempt=", "pipeline=trips", "worker="];
            assert!(all.iter().all(|id| head.contains(id)), "{line}");
            attempts += 1;
        }
        if target.starts_with("refrain::http") {
            assert!(head.contains("request{request.id="), "{line}");
            requests += 1;
        }
    }
    assert!(attempts >= 6 && requests >= 2, "{attempts} {requests}");
}
