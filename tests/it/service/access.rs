//! Who may do what, with the real binary: tokens on the command line, what a server is open to, and what its children know.

use super::cli::{Said, refrain_with};
use super::slow::{Engine, stopped_engine, stopping};
use super::{MONTHS, Place, Server, Store, trips_pipeline, write_quarter};
use crate::site::{Body, Reply, Request, Site};
use rstest::rstest;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Some times as long as a server may take to notice.
const SOON: Duration = Duration::from_secs(20);

/// The flags by which a verb finds the place's database.
fn database(place: &Place) -> Vec<String> {
    match place.database_url() {
        Some(url) => vec!["--database-url".to_owned(), url.to_owned()],
        None => vec!["--data-dir".to_owned(), place.path("refrain-data").to_str().unwrap().to_owned()],
    }
}

async fn token_verb(place: &Place, arguments: &[&str]) -> Said {
    let database = database(place);
    let all: Vec<&str> =
        ["token"].iter().chain(arguments).copied().chain(database.iter().map(String::as_str)).collect();
    refrain_with(&all, &[]).await
}

/// Makes a token; it is all that is printed.
pub(super) async fn make(place: &Place, arguments: &[&str]) -> String {
    let said = token_verb(place, &[&["new"], arguments].concat()).await;
    assert_eq!(said.code, 0, "{said:?}");
    let token = said.out.strip_suffix('\n').unwrap().to_owned();
    assert!(token.starts_with("rfr_") && token.len() == 85 && !token.contains(char::is_whitespace), "{said:?}");
    assert!(!said.err.contains(&token[20..]), "{said:?}");
    token
}

async fn revoke(place: &Place, token: &str) {
    let said = token_verb(place, &["revoke", token.split('_').nth(1).unwrap()]).await;
    assert!(said.code == 0 && said.out.contains("is revoked since"), "{said:?}");
}

/// A verb against a server, with a token or without.
async fn call(server: &Server, token: &str, arguments: &[&str]) -> Said {
    let environment: &[(&str, &str)] = &[("REFRAIN_URL", server.url()), ("REFRAIN_TOKEN", token)];
    refrain_with(arguments, &environment[..if token.is_empty() { 1 } else { 2 }]).await
}

/// Asks until a verb ends with this code.
async fn until(server: &Server, token: &str, code: i32) -> Said {
    let end = Instant::now() + SOON;
    loop {
        let said = call(server, token, &["pipelines"]).await;
        if said.code == code {
            return said;
        }
        assert!(Instant::now() < end, "{said:?}\n{}", server.log_tail());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn trips(place: &Place) {
    write_quarter(place, 50);
    place.pipeline("trips", &trips_pipeline("trips", r#""raw/*.parquet""#, "", ""));
}

#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_made_and_revoked_beside_a_server(#[case] store: Store) {
    let place = Place::new(store).await;
    trips(&place);
    let server = place.start().await;
    let run = ["run", "trips", MONTHS[0], "--key", "one", "--wait", "--json"];
    assert_eq!(call(&server, "", &run).await.code, 0, "open while there are no tokens");

    let token = make(&place, &["--principal", "airflow", "--scope", "run", "--name", "the scheduler"]).await;
    let refused = until(&server, "", 2).await;
    assert!(refused.err.contains("401: found no bearer token"), "{refused:?}");
    until(&server, &token, 0).await;
    // The key is another one under another principal, and what was submitted before has its own.
    let again = call(&server, &token, &run).await;
    assert_eq!((again.code, &again.json()["principal"]), (0, &json!("airflow")), "{again:?}");
    let heir = make(&place, &["--principal", "default", "--scope", "run", "--expires-days", "1"]).await;
    until(&server, &heir, 0).await;
    let before = call(&server, &heir, &run).await;
    assert_eq!((before.code, &before.json()["principal"]), (0, &json!("default")), "{before:?}");
    assert!(before.err.contains("accepted before"), "{before:?}");

    let listed = token_verb(&place, &["list", "--json"]).await.json();
    let of = |n: usize, field: &str| listed[n][field].clone();
    assert_eq!([of(0, "principal"), of(0, "name"), of(0, "scope")], ["airflow", "the scheduler", "run"]);
    assert_eq!((of(0, "id"), of(0, "expires_at"), of(0, "state")), (json!(token[4..20]), Value::Null, json!("valid")));
    assert!(of(1, "expires_at").is_string() && listed.as_array().unwrap().len() == 2, "{listed:#}");
    assert!(!listed.to_string().contains(&token[21..]));

    revoke(&place, &token).await;
    let told = until(&server, &token, 2).await;
    assert!(told.err.contains("401: the token was revoked at"), "{told:?}");
    assert_eq!(until(&server, &heir, 0).await.code, 0);
    let listed = token_verb(&place, &["list"]).await;
    assert!(listed.out.lines().next().unwrap().ends_with("until it is revoked, revoked"), "{listed:?}");
    // The audit: who did what by which token.
    let log = server.log();
    let accepted = log.lines().find(|line| line.contains("accepted a run") && line.contains("airflow")).unwrap();
    assert!(accepted.contains(&token[4..20]), "{accepted}");
    assert!(!log.contains(&token[21..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_the_loopback_a_server_needs_tokens_or_to_be_told() {
    let place = Place::new(Store::Sqlite).await;
    trips(&place);
    // An address of nobody (RFC 5737): what would listen there gets as far as that.
    let serve = async |more: &[&str]| {
        let (data, pipelines) = (place.path("refrain-data"), place.path("pipelines"));
        let flags = ["serve", "--listen", "192.0.2.1:8080", "--data-dir", data.to_str().unwrap(), "--pipelines"];
        let said = refrain_with(&[&flags[..], &[pipelines.to_str().unwrap()], more].concat(), &[]).await;
        assert_eq!(said.code, 2, "{said:?}");
        said
    };
    let refused = serve(&[]).await;
    for told in ["there are no tokens", "refrain token new", "192.0.2.1:8080", "127.0.0.1", "--insecure"] {
        assert!(refused.err.contains(told), "{told}: {refused:?}");
    }
    let told = serve(&["--insecure"]).await;
    assert!(told.err.contains("cannot listen on 192.0.2.1:8080"), "{told:?}");
    assert!(told.err.contains("everybody who reaches this server may do everything"), "{told:?}");

    let token = make(&place, &["--principal", "ops", "--scope", "read"]).await;
    assert!(serve(&[]).await.err.contains("cannot listen on 192.0.2.1:8080"));
    // A token that has ended keeps it closed, also where it is started anew and told to be open.
    revoke(&place, &token).await;
    let closed = place.start_with(&["--insecure"], &[]).await;
    assert_eq!(closed.get("/runs").await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_arguments_of_a_token_are_checked() {
    let place = Place::new(Store::Sqlite).await;
    let who = ["--principal", "us"];
    for (arguments, told) in [
        (&["new", "--scope", "read"][..], "--principal"),
        (&["new", "--principal", "a b", "--scope", "read"], "found ' ' in \"a b\", expected a principal of"),
        (&["new", who[0], who[1], "--scope", "write"], "expected read, run or admin"),
        (&["new", who[0], who[1], "--scope", "admin", "--pipelines", "trips"], "with the scope admin"),
        (&["new", who[0], who[1], "--scope", "read", "--pipelines", "Trips"], "\"Trips\""),
        (&["new", who[0], who[1], "--scope", "read", "--name", "a\nb"], "control characters"),
        (&["revoke", "0123456789abcdef"], "there is no token"),
        (&["revoke", "rfr_0123456789abcdef_secret"], "expected the id of a token"),
    ] {
        let said = token_verb(&place, arguments).await;
        assert!(said.code == 2 && said.err.contains(told) && said.out.is_empty(), "{told}: {said:?}");
        assert!(!said.err.contains("_secret"), "{said:?}");
    }
    assert_eq!(token_verb(&place, &["list"]).await.out, "there are no tokens\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_mended_by_a_server_is_asked_for_with_a_token() {
    let place = Place::new(Store::Sqlite).await;
    trips(&place);
    let server = place.start().await;
    server.run("one", &json!({"pipeline": "trips", "partitions": MONTHS})).await;
    let token = make(&place, &["--principal", "ops", "--scope", "run"]).await;
    until(&server, "", 2).await;
    std::fs::remove_file(place.table("trips").join("pickup_month=2024-02/part-0.parquet")).unwrap();
    let by = ["--fix", "--url", server.url()];
    let refused = place.verify_with(&by).await;
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && told.contains("401: found no bearer token"), "{refused:?}");
    let queued = place.verify_with(&[&by[..], &["--token", &token]].concat()).await;
    assert_eq!(queued.status.code(), Some(3), "{queued:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_not_sent_where_others_can_read_it() {
    let elsewhere = [("REFRAIN_URL", "http://refrain.invalid:8080"), ("REFRAIN_TOKEN", "rfr_1_2")];
    let said = refrain_with(&["status"], &elsewhere).await;
    assert!(said.code == 2 && said.err.contains("is not sent to http://refrain.invalid:8080 over http"), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_sent_in_clear_where_that_is_said() {
    // What leads to the server that is not this machine: it sees what is sent there.
    let between = Site::start(|_| Reply::status(200).body(Body::Whole(b"{\"pipelines\": []}".to_vec()))).await;
    let proxy = between.url("");
    let elsewhere = [
        ("REFRAIN_URL", "http://refrain.invalid:8080"),
        ("REFRAIN_TOKEN", "rfr_1_2"),
        ("http_proxy", &proxy),
        ("HTTP_PROXY", &proxy),
        ("no_proxy", ""),
        ("NO_PROXY", ""),
        ("REFRAIN_SEND_TOKEN_IN_CLEAR", "false"),
    ];
    let said = refrain_with(&["pipelines"], &elsewhere).await;
    assert!(said.code == 2 && between.requests().is_empty(), "{said:?}");
    let mut in_clear = elsewhere;
    in_clear[6].1 = "true";
    let said = refrain_with(&["pipelines"], &in_clear).await;
    let sent = between.requests();
    let of = |request: &Request| request.headers.get("authorization").cloned();
    assert_eq!(sent.iter().map(of).collect::<Vec<_>>(), [Some("Bearer rfr_1_2".to_owned())], "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_goes_nowhere_by_a_redirect() {
    let elsewhere = Site::start(|_| Reply::status(200).body(Body::Whole(b"{}".to_vec()))).await;
    let to = elsewhere.url("/runs");
    let server = Site::start(move |_| Reply::status(307).with("location", &to)).await;
    let here = server.url("");
    let environment = [("REFRAIN_URL", here.as_str()), ("REFRAIN_TOKEN", "rfr_1_2")];
    for verb in [&["run", "trips", "2024-01", "--key", "one"][..], &["pipelines"]] {
        let said = refrain_with(verb, &environment).await;
        assert!(said.code == 2 && said.err.contains("307"), "{said:?}");
    }
    assert_eq!((server.requests().len(), elsewhere.seen()), (2, Vec::new()));
}

/// What a process was told, by its arguments and its environment.
pub(super) fn told(process: &Engine) -> String {
    let read = |name: &str| {
        let bytes = std::fs::read(format!("/proc/{}/{name}", process.0)).unwrap();
        String::from_utf8_lossy(&bytes).replace('\0', "\n")
    };
    format!("{}\n{}", read("cmdline"), read("environ"))
}

#[tokio::test(flavor = "multi_thread")]
async fn engines_know_no_secret() {
    let place = Place::new(Store::Postgres).await;
    trips(&place);
    let fault = stopping(&place);
    let environment = [
        ("REFRAIN_FAULT", fault.as_str()),
        ("REFRAIN_TOKEN", "rfr_canary"),
        ("PGPASSWORD", "canary"),
        ("PGOPTIONS", ""),
    ];
    let server = place.start_by_variable(&environment).await;
    server.accept("one", &json!({"pipeline": "trips", "partitions": [MONTHS[0]]})).await;
    let told = told(&stopped_engine(&server).await);
    assert!(told.starts_with(env!("CARGO_BIN_EXE_refrain")) && told.contains("\nPATH="), "{told}");
    assert!(told.contains("\nREFRAIN_FAULT="), "what happens on purpose happens in it too: {told}");
    for secret in ["canary", "postgres://", "REFRAIN_DATABASE_URL", "REFRAIN_TOKEN", "PGPASSWORD"] {
        assert!(!told.contains(secret), "{secret} in {told}");
    }
}
