//! Who may do what: every route with every kind of token, and what there is for whom.

use super::{Answer, App, json_request, months};
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use chrono::TimeDelta;
use http_body_util::BodyExt;
use refrain::access::{Token, TokenId, TokenScope};
use refrain::http::{Gate, OpenTo, router};
use refrain::run::Principal;
use refrain::store::{NewToken, TokenStore};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Long enough for all that is to be noticed.
pub(super) const SOON: Duration = Duration::from_secs(20);

/// How long a look at the tokens serves here.
pub(super) const MOMENT: Duration = Duration::from_millis(20);

pub(super) fn gate(store: Arc<dyn TokenStore>) -> Gate {
    Gate::new(store, MOMENT, OpenTo::ThisMachine)
}

/// The service, with a gate that looks often.
pub(super) async fn service() -> App {
    let mut app = App::new().await;
    app.api.gate = gate(Arc::clone(&app.store) as _);
    app.router = router(app.api.clone());
    app
}

/// A token that is made from now on, for a principal.
fn new_token(principal: &str, scope: TokenScope, pipelines: &[&str]) -> (NewToken, String) {
    let mut random = [0; Token::RANDOM_BYTES];
    let ids = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4(), uuid::Uuid::new_v4()];
    random.iter_mut().zip(ids.iter().flat_map(|id| id.as_bytes())).for_each(|(byte, random)| *byte = *random);
    let token = Token::of(&random);
    let new = NewToken {
        id: token.id().clone(),
        name: String::new(),
        principal: Principal(principal.to_owned()),
        digest: token.digest(),
        scope,
        pipelines: (!pipelines.is_empty()).then(|| pipelines.iter().map(|name| (*name).to_owned()).collect()),
        lifetime: None,
    };
    (new, token.text().expose_secret().to_owned())
}

impl App {
    pub(super) async fn token(&self, principal: &str, scope: TokenScope, pipelines: &[&str]) -> String {
        let (new, text) = new_token(principal, scope, pipelines);
        self.store.put_token(&new).await.unwrap();
        text
    }

    pub(super) async fn revoke(&self, token: &str) {
        let id = TokenId::parse(token.split('_').nth(1).unwrap()).unwrap();
        self.store.revoke_token(&id).await.unwrap().unwrap();
    }

    pub(super) async fn ask(
        &self,
        token: Option<&str>,
        method: &str,
        path: &str,
        key: &str,
        body: Option<&Value>,
    ) -> Answer {
        let method: Method = method.parse().unwrap();
        let request = match body {
            Some(body) => json_request(path, body.to_string()).method(method).header("idempotency-key", key),
            None => Request::builder().method(method).uri(path),
        };
        let request = match token {
            Some(token) => request.header("authorization", format!("Bearer {token}")),
            None => request,
        };
        self.send(request.body(body.map_or_else(Body::empty, |body| Body::from(body.to_string()))).unwrap()).await
    }

    pub(super) async fn get_as(&self, token: &str, path: &str) -> Answer {
        self.ask(Some(token), "GET", path, "", None).await
    }

    pub(super) async fn submit_as(&self, token: &str, key: &str, body: &Value) -> Answer {
        self.ask(Some(token), "POST", "/runs", key, Some(body)).await
    }

    /// Waits until a request with this token gets that status.
    pub(super) async fn until(&self, token: Option<&str>, status: u16) -> Answer {
        let end = Instant::now() + SOON;
        loop {
            let answer = self.ask(token, "GET", "/pipelines", "", None).await;
            if answer.status.as_u16() == status {
                return answer;
            }
            assert!(Instant::now() < end, "not {status}: {answer:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// The table of `docs/access.md`: of each route what becomes of each kind of token.
fn table() -> BTreeMap<String, Vec<String>> {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/access.md")).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    rows.map(|(route, cells)| {
        (route.to_owned(), cells.trim_end_matches(" |").split(" | ").map(str::to_owned).collect())
    })
    .collect()
}

/// What a request came to, in the words of the table.
fn outcome(answer: &Answer, seen: &str) -> String {
    let kind = match answer.header("content-type") {
        Some("application/problem+json") => answer.json()["type"].as_str().unwrap().to_owned(),
        _ => String::new(),
    };
    match kind.rsplit(':').next().unwrap() {
        "missing-token" | "invalid-token" => "401".to_owned(),
        "insufficient-scope" | "not-your-run" => "403".to_owned(),
        "run-not-found" | "pipeline-not-found" => "404".to_owned(),
        "unknown-pipeline" => "422".to_owned(),
        _ if !String::from_utf8_lossy(&answer.body).contains(seen) => "without it".to_owned(),
        _ => "yes".to_owned(),
    }
}

#[tokio::test]
async fn every_route_with_every_kind_of_token_is_as_the_table_says() {
    let app = service().await;
    let mut tokens: Vec<Option<String>> = vec![None];
    for scope in TokenScope::ALL {
        tokens.push(Some(app.token("us", scope, &[]).await));
    }
    let (new, expired) = new_token("us", TokenScope::Admin, &[]);
    app.store.put_token(&NewToken { lifetime: Some(TimeDelta::hours(1)), ..new }).await.unwrap();
    *app.clock.lock().unwrap() += TimeDelta::hours(2);
    let revoked = app.token("us", TokenScope::Admin, &[]).await;
    app.revoke(&revoked).await;
    let others = app.token("us", TokenScope::Run, &["hourly"]).await;
    let theirs = app.token("them", TokenScope::Run, &[]).await;
    let admin = tokens[3].clone().unwrap();
    let (all_but_one, last) = admin.split_at(admin.len() - 1);
    let wrong = format!("{all_but_one}{}", if last == "0" { "1" } else { "0" });
    let mut columns: Vec<Vec<Option<String>>> = tokens.into_iter().map(|token| vec![token]).collect();
    columns.push(vec![Some(expired), Some(revoked), Some(wrong)]);
    columns.push(vec![Some(others)]);
    app.until(None, 401).await;

    let table = table();
    let described = serde_json::to_value(refrain::http::openapi()).unwrap();
    let (mut routes, mut calls, mut keys) = (Vec::new(), 0, 0);
    let mut key = || {
        keys += 1;
        format!("key-{keys}")
    };
    for (path, methods) in described["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys().map(|method| method.to_uppercase()) {
            let route = format!("{method} {path}");
            let expected = table.get(&route).unwrap_or_else(|| panic!("{route} is not in docs/access.md"));
            assert_eq!(expected.len(), columns.len(), "{route}: {expected:?}");
            for (column, expected) in columns.iter().zip(expected) {
                for token in column {
                    // The run is the principal's of all these tokens, and one of its own for each call.
                    let run = app.submit_as(&admin, &key(), &months(&["2024-01"])).await.json()["id"].clone();
                    let at = |run: &Value| {
                        path.replace("{name}", "monthly")
                            .replace("{key}", "month=2024-01")
                            .replace("{id}", run.as_str().unwrap())
                    };
                    let body = match route.as_str() {
                        "POST /runs" => Some(months(&["2024-02"])),
                        _ if method == "POST" => Some(json!({})),
                        _ => None,
                    };
                    let seen = if ["GET /runs", "GET /pipelines"].contains(&route.as_str()) { "monthly" } else { "" };
                    let answer = app.head(token.as_deref(), &method, &at(&run), &key(), body.as_ref()).await;
                    let found = outcome(&answer, seen);
                    let expected = if expected == "its own" { "yes" } else { expected };
                    assert_eq!(found, expected, "{route} with {token:?}: {answer:?}");
                    calls += 1;
                }
                if expected == "its own" {
                    let run = app.submit_as(&theirs, &key(), &months(&["2024-01"])).await.json()["id"].clone();
                    let path = path.replace("{id}", run.as_str().unwrap());
                    let answer = app.ask(column[0].as_deref(), &method, &path, "", Some(&json!({}))).await;
                    let problem = answer.problem(403, "not-your-run");
                    assert_eq!((&problem["run_id"], &problem["principal"]), (&run, &json!("them")));
                    calls += 1;
                }
            }
            routes.push(route);
        }
    }
    routes.sort();
    assert_eq!(routes, table.keys().cloned().collect::<Vec<_>>(), "left: the description, right: docs/access.md");
    assert!(calls > 100, "{calls}");
}

impl App {
    /// Of an answer that may go on and on only its head is read.
    async fn head(&self, token: Option<&str>, method: &str, path: &str, key: &str, body: Option<&Value>) -> Answer {
        if !path.ends_with("/events") {
            return self.ask(token, method, path, key, body).await;
        }
        let request = Request::builder().method(method).uri(path);
        let request =
            token.iter().fold(request, |request, token| request.header("authorization", format!("Bearer {token}")));
        let answer =
            tower::ServiceExt::oneshot(self.router.clone(), request.body(Body::empty()).unwrap()).await.unwrap();
        let (parts, body) = answer.into_parts();
        let is_problem = parts.headers["content-type"] == "application/problem+json";
        let body = if is_problem { body.collect().await.unwrap().to_bytes().to_vec() } else { Vec::new() };
        Answer { status: parts.status, headers: parts.headers, body }
    }
}

#[test]
fn the_description_says_what_each_route_needs() {
    let described = serde_json::to_value(refrain::http::openapi()).unwrap();
    assert_eq!(described["components"]["securitySchemes"]["token"]["scheme"], "bearer");
    for (route, cells) in table() {
        let (method, path) = route.split_once(' ').unwrap();
        let operation = &described["paths"][path][method.to_lowercase()];
        let needed = match cells.iter().position(|cell| ["yes", "its own"].contains(&cell.as_str())).unwrap() {
            0 => json!([]),
            1 => json!([{"token": ["read"]}]),
            2 => json!([{"token": ["run"]}]),
            other => panic!("{route}: {other}"),
        };
        assert_eq!(operation["security"], needed, "{route}");
        let refusals = ["401", "403"].map(|status| operation["responses"][status].is_object());
        assert_eq!(refusals, [needed != json!([]); 2], "{route}");
    }
}

#[tokio::test]
async fn refusals_say_what_is_needed() {
    let app = service().await;
    let read = app.token("us", TokenScope::Read, &[]).await;
    let some = app.token("us", TokenScope::Read, &["hourly"]).await;
    app.until(None, 401).await;
    let challenge = |answer: &Answer| answer.header("www-authenticate").unwrap_or_default().to_owned();

    let missing = app.get("/runs").await;
    missing.problem(401, "missing-token");
    assert_eq!(challenge(&missing), "Bearer realm=\"refrain\"");
    let wrong = app.get_as("rfr_0_0", "/runs").await;
    wrong.problem(401, "invalid-token");
    assert!(challenge(&wrong).contains("error=\"invalid_token\""), "{wrong:?}");
    let forbidden = app.submit_as(&read, "k", &months(&["2024-01"])).await;
    let problem = forbidden.problem(403, "insufficient-scope");
    assert_eq!((&problem["needed"], &problem["had"]), (&json!("run"), &json!("read")));
    assert!(challenge(&forbidden).contains("error=\"insufficient_scope\", scope=\"run\""), "{forbidden:?}");
    assert!(app.get_as(&some, "/metrics").await.problem(403, "insufficient-scope")["detail"].is_string());

    // The end of a token is told to who has all of it.
    app.revoke(&read).await;
    let told = app.until(Some(&read), 401).await.problem(401, "invalid-token");
    assert!(told["detail"].as_str().unwrap().contains("revoked at"), "{told}");
    let guessed = format!("{}{}", &read[..21], "0".repeat(read.len() - 21));
    let told = app.get_as(&guessed, "/runs").await.problem(401, "invalid-token");
    assert!(!told["detail"].as_str().unwrap().contains("revoked"), "{told}");
}

#[tokio::test]
async fn a_token_is_taken_from_one_header_alone() {
    let app = service().await;
    let token = app.token("us", TokenScope::Admin, &[]).await;
    app.until(None, 401).await;
    let with = async |path: &str, headers: &[String]| {
        let request = headers.iter().fold(Request::get(path), |request, value| request.header("authorization", value));
        app.send(request.body(Body::empty()).unwrap()).await
    };
    assert_eq!(with("/runs", &[format!("bEARER  {token}")]).await.status, StatusCode::OK);
    with("/runs", &[format!("Basic {token}")]).await.problem(401, "missing-token");
    with("/runs", std::slice::from_ref(&token)).await.problem(401, "missing-token");
    with("/runs", &[format!("Bearer {token}"), format!("Bearer {token}")]).await.problem(401, "invalid-token");
    for name in ["token", "access_token", "authorization"] {
        with(&format!("/runs?{name}={token}"), &[]).await.problem(401, "missing-token");
    }
}

#[tokio::test]
async fn keys_and_runs_are_their_principals() {
    let app = service().await;
    let before = app.accepted("key", &months(&["2024-01"])).await;
    let [ours, again, theirs] = [
        app.token("us", TokenScope::Run, &[]).await,
        app.token("us", TokenScope::Run, &[]).await,
        app.token("them", TokenScope::Run, &[]).await,
    ];
    let heir = app.token("default", TokenScope::Run, &[]).await;
    app.until(None, 401).await;
    let [first, repeated, other, inherited] =
        [&ours, &again, &theirs, &heir].map(|token| (token, months(&["2024-01"])));
    let mut ids = Vec::new();
    for (token, body) in [first, repeated, other, inherited] {
        let answer = app.submit_as(token, "key", &body).await;
        ids.push(answer.json()["id"].as_str().unwrap().to_owned());
    }
    assert_eq!((ids[0] == ids[1], ids[0] == ids[2], &ids[3]), (true, false, &before));
    assert_eq!(app.get_as(&theirs, &format!("/runs/{}", ids[0])).await.json()["principal"], "us");

    // What is listed is all, or one principal's; and a key is the caller's own unless somebody is named.
    let listed = async |query: &str| {
        let answer = app.get_as(&theirs, &format!("/runs{query}")).await.json();
        let mut found: Vec<String> =
            answer["runs"].as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap().to_owned()).collect();
        found.sort();
        found
    };
    assert_eq!(listed("").await, [before.clone(), ids[0].clone(), ids[2].clone()]);
    assert_eq!(listed("?principal=us").await, [ids[0].clone()]);
    assert_eq!(listed("?principal=nobody").await, [""; 0]);
    assert_eq!(listed("?idempotency_key=key").await, [ids[2].clone()]);
    assert_eq!(listed("?idempotency_key=key&principal=default").await, [before]);
    app.get_as(&theirs, "/runs?principal=a%20b").await.problem(400, "invalid-parameter");
}

#[tokio::test]
async fn other_pipelines_are_not_there() {
    let app = service().await;
    let admin = app.token("us", TokenScope::Admin, &[]).await;
    let some = app.token("us", TokenScope::Run, &["hourly", "by_kind", "gone"]).await;
    app.until(None, 401).await;
    let by_kind = json!({"pipeline": "by_kind", "partitions": ["a"]});
    let hourly = json!({"pipeline": "hourly", "mode": "full"});
    let mut seen = Vec::new();
    for n in 0..4 {
        for (body, is_seen) in [(&months(&["2024-01"]), false), (&by_kind, true), (&hourly, true)] {
            let answer = app.submit_as(&admin, &format!("{n}-{}", body["pipeline"]), body).await;
            seen.extend(is_seen.then(|| answer.json()["id"].as_str().unwrap().to_owned()));
        }
    }
    seen.reverse();

    // Page by page, newest first, with nothing of the others.
    let mut listed = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = app.get_as(&some, &format!("/runs?limit=3{cursor}")).await.json();
        let runs = page["runs"].as_array().unwrap();
        listed.extend(runs.iter().map(|run| run["id"].as_str().unwrap().to_owned()));
        let Some(next) = page["next_cursor"].as_str() else { break };
        assert_eq!(runs.len(), 3, "{page}");
        cursor = format!("&cursor={next}");
    }
    assert_eq!(listed, seen);
    let count = async |query: &str| app.get_as(&some, query).await.json()["runs"].as_array().unwrap().len();
    assert_eq!(count("/runs?pipeline=monthly").await, 0);
    assert_eq!(count("/runs?pipeline=hourly").await, 4);
    assert_eq!(count("/runs?state=queued").await, 8);
    assert_eq!(count("/runs?principal=us&pipeline=gone").await, 0);

    // What a partition's name means is told of no pipeline that is not there.
    for pipeline in ["monthly", "nobodys"] {
        let unread = app.get_as(&some, &format!("/runs?pipeline={pipeline}&partition=2024-01")).await;
        let problem = unread.problem(400, "invalid-parameter");
        assert!(problem["detail"].as_str().unwrap().contains("expected a canonical key"), "{problem}");
        assert_eq!(count(&format!("/runs?pipeline={pipeline}&partition=month=2024-13")).await, 0);
    }
    assert_eq!(count("/runs?pipeline=by_kind&partition=a").await, 4);

    // A name that is not told is as unknown as one that there never was.
    let unknown = app.submit_as(&some, "0-\"monthly\"", &months(&["2024-01"])).await.problem(422, "unknown-pipeline");
    assert_eq!(unknown["pipelines"], json!(["by_kind", "hourly"]));
    let dry = app.ask(Some(&some), "POST", "/runs?dry_run=true", "k", Some(&months(&["2024-01"]))).await;
    assert_eq!(dry.problem(422, "unknown-pipeline")["pipelines"], json!(["by_kind", "hourly"]));
    let unknown = app.get_as(&some, "/pipelines/monthly").await.problem(404, "pipeline-not-found");
    assert_eq!(unknown["pipelines"], json!(["by_kind", "hourly"]));
}

#[tokio::test]
async fn a_key_of_another_pipeline_tells_nothing_of_its_run() {
    let app = service().await;
    let all = app.token("us", TokenScope::Run, &[]).await;
    let some = app.token("us", TokenScope::Run, &["hourly"]).await;
    app.until(None, 401).await;
    let hidden = app.submit_as(&all, "key", &months(&["2024-01"])).await.json()["id"].as_str().unwrap().to_owned();
    let seen = app.submit_as(&all, "other", &json!({"pipeline": "hourly", "mode": "full"})).await;
    let seen = seen.json()["id"].clone();
    let hourly = json!({"pipeline": "hourly", "partitions": ["date=2024-01-01/hour=00"]});
    for path in ["/runs", "/runs?dry_run=true"] {
        let ask = async |key: &str| app.ask(Some(&some), "POST", path, key, Some(&hourly)).await;
        let refused = ask("key").await;
        let problem = refused.problem(422, "idempotency-key-reused");
        assert_eq!((&problem["run_id"], &problem["fields"]), (&Value::Null, &Value::Null), "{problem}");
        let said = format!("{refused:?} {}", String::from_utf8_lossy(&refused.body));
        assert!(!said.contains(&hidden) && !said.contains("monthly") && !said.contains("pipeline"), "{said}");
        assert_eq!(ask("other").await.problem(422, "idempotency-key-reused")["run_id"], seen);
    }
}

#[tokio::test]
async fn an_admin_changes_everybodys_runs() {
    let app = service().await;
    let ours = app.token("us", TokenScope::Run, &[]).await;
    let admin = app.token("ops", TokenScope::Admin, &[]).await;
    app.until(None, 401).await;
    let id = app.submit_as(&ours, "key", &months(&["2024-01"])).await.json()["id"].as_str().unwrap().to_owned();
    let change = async |token: &str, what: &str| {
        app.ask(Some(token), "POST", &format!("/runs/{id}/{what}"), "", Some(&json!({}))).await.status.as_u16()
    };
    assert_eq!(change(&admin, "cancel").await, 200);
    assert_eq!(change(&admin, "retry").await, 202);
    assert_eq!(change(&ours, "cancel").await, 200);
    assert_eq!(app.get_as(&admin, &format!("/runs/{id}")).await.json()["principal"], "us", "whose it is stays");
}
