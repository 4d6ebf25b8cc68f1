//! Backfills: ranges as one run, only what is missing or outdated, and what is missing.

use super::{App, BY_KIND, HOURLY, MONTHLY, months};
use axum::http::StatusCode;
use refrain::http::Limits;
use rstest::rstest;
use serde_json::{Value, json};

fn range(to: &str, only: Option<&str>) -> Value {
    let mut range = json!({"from": "2024-01", "to": to});
    if let Some(only) = only {
        range["only"] = json!(only);
    }
    json!({"pipeline": "monthly", "partitions": range})
}

fn partitions(run: &Value) -> Vec<&str> {
    run["partitions"].as_array().unwrap().iter().map(|p| p["partition"].as_str().unwrap()).collect()
}

impl App {
    async fn written(&self, partitions: &[&str]) {
        self.accepted(&format!("written/{}", partitions.join(",")), &months(partitions)).await;
        self.succeed(3).await;
    }
}

#[tokio::test]
async fn a_range_of_what_is_missing_is_one_run_and_its_repeat_a_replay() {
    let app = App::new().await;
    app.written(&["2024-02"]).await;
    let asked = range("2024-03", Some("missing"));
    let first = app.submit("k", &asked).await;
    assert_eq!(first.status, StatusCode::ACCEPTED, "{first:?}");
    let run = first.json();
    assert_eq!(partitions(&run), ["month=2024-01", "month=2024-03"]);
    assert_eq!(run["asked"], json!({"from": "month=2024-01", "to": "month=2024-03", "only": "missing"}));
    app.succeed(3).await;
    let again = app.submit("k", &asked).await;
    assert_eq!(
        (again.status, again.header("idempotent-replayed")),
        (StatusCode::OK, Some("true")),
        "nothing is missing now"
    );
    assert_eq!((&again.json()["id"], &again.json()["state"]), (&run["id"], &json!("succeeded")));
    for other in [range("2024-03", None), range("2024-03", Some("outdated")), range("2024-04", Some("missing"))] {
        let refused = app.submit("k", &other).await.problem(422, "idempotency-key-reused");
        assert_eq!(refused["fields"], json!(["partitions"]), "{other}");
    }
}

#[tokio::test]
async fn a_range_by_itself_is_the_same_as_in_a_list() {
    let app = App::new().await;
    let id = app.accepted("k", &range("2024-02", None)).await;
    let listed = app.submit("k", &months(&["2024-01", "2024-02"])).await;
    assert_eq!((listed.status, &listed.json()["id"]), (StatusCode::OK, &json!(id)), "{listed:?}");
    assert_eq!(listed.json().get("asked"), None, "it rebuilds all that it names");
}

#[tokio::test]
async fn with_nothing_to_do_a_run_has_succeeded_at_once() {
    let app = App::new().await;
    app.written(&["2024-01", "2024-02"]).await;
    let done = app.submit("k", &range("2024-02", Some("missing"))).await;
    assert_eq!((done.status, done.header("retry-after")), (StatusCode::ACCEPTED, None), "{done:?}");
    let run = done.json();
    assert_eq!((&run["state"], &run["partitions"], &run["attempts"]), (&json!("succeeded"), &json!([]), &json!([])));
    assert_eq!((&run["ended_at"], &run["rows"]["read"]), (&run["created_at"], &json!(0)));
    let path = format!("/runs/{}", run["id"].as_str().unwrap());
    let waited = app.get(&format!("{path}?wait=60")).await;
    assert_eq!(waited.json(), run);
    let tag = waited.header("etag").unwrap().to_owned();
    assert_eq!(app.get_if_changed(&path, &tag).await.status, StatusCode::NOT_MODIFIED);
    let listed = app.get("/runs?state=succeeded&limit=1").await.json();
    assert_eq!((&listed["runs"][0]["id"], &listed["runs"][0]["partitions"]), (&run["id"], &json!(0)));
}

#[tokio::test]
async fn what_an_older_definition_made_is_outdated() {
    let mut app = App::new().await;
    app.written(&["2024-01", "2024-03"]).await;
    let asked = range("2024-12", Some("outdated"));
    assert_eq!(partitions(&app.submit("none", &asked).await.json()), [""; 0]);
    app.reload(&[&MONTHLY.replace("avg(amount)", "max(amount)")]);
    let run = app.submit("k", &asked).await.json();
    assert_eq!(partitions(&run), ["month=2024-01", "month=2024-03"]);
    app.succeed(4).await;
    assert_eq!(partitions(&app.submit("done", &asked).await.json()), [""; 0]);
}

#[tokio::test]
async fn a_long_range_is_one_run_up_to_the_limit() {
    let limits = Limits { max_partitions_per_run: 120, ..Limits::default() };
    let app = App::with(limits, &[MONTHLY]).await;
    let decade = app.submit("k", &range("2033-12", None)).await;
    assert_eq!((decade.status, partitions(&decade.json()).len()), (StatusCode::ACCEPTED, 120));
    for only in [None, Some("missing")] {
        let (pointer, detail) = app.submit("longer", &range("2034-01", only)).await.field();
        assert!(pointer == "/partitions" && detail.contains("121") && detail.contains("120"), "{pointer}: {detail}");
    }
}

#[rstest]
#[case(json!({"from": "2024-01", "to": "2024-02", "only": "old"}), "/partitions/only")]
#[case(json!({"from": "2024-01", "only": "missing"}), "/partitions")]
#[case(json!({"from": "2024-01", "to": "2024-02", "by": "month"}), "/partitions/by")]
#[case(json!({"from": "2024-02", "to": "2024-01", "only": "missing"}), "/partitions")]
#[case(json!({"month": "2024-02"}), "/partitions/month")]
#[case(json!([{"from": "2024-01", "to": "2024-02", "only": "missing"}]), "/partitions/0/only")]
#[tokio::test]
async fn a_range_that_makes_no_sense_is_refused(#[case] partitions: Value, #[case] pointer: &str) {
    let app = App::new().await;
    let (found, detail) = app.submit("k", &json!({"pipeline": "monthly", "partitions": partitions})).await.field();
    assert_eq!(found, pointer, "{detail}");
}

#[tokio::test]
async fn a_plan_picks_what_a_run_would() {
    let app = App::new().await;
    app.written(&["2024-02"]).await;
    let plan = async |body: &Value| app.post("/runs?dry_run=true", body).await.json();
    let planned = plan(&range("2024-03", Some("missing"))).await;
    assert_eq!(partitions(&planned), ["month=2024-01", "month=2024-03"]);
    assert_eq!(planned["asked"]["only"], "missing");
    let nothing = plan(&range("2024-03", Some("outdated"))).await;
    assert_eq!((&nothing["partitions"], &nothing["sources"]["files"]), (&json!([]), &json!([])), "{nothing}");
}

#[tokio::test]
async fn what_is_missing_is_listed() {
    let app = App::new().await;
    let path = "/pipelines/monthly/partitions?missing=true&from=2023-12&to=2024-03";
    app.written(&["2024-02"]).await;
    let listed = app.get(path).await;
    let missing = ["month=2023-12", "month=2024-01", "month=2024-03"];
    let expected = json!({"pipeline": "monthly", "version": 1, "periods": 4, "missing": missing});
    assert_eq!(listed.json(), expected);
    let tag = listed.header("etag").unwrap().to_owned();
    assert_eq!(app.get_if_changed(path, &tag).await.status, StatusCode::NOT_MODIFIED);
    app.written(&["2024-01", "2024-03"]).await;
    let less = app.get_if_changed(path, &tag).await;
    assert_eq!((less.status, &less.json()["missing"]), (StatusCode::OK, &json!(["month=2023-12"])));
    let all = app.get("/pipelines/monthly/partitions?missing=false&from=2024-01").await.json();
    assert_eq!(partitions(&all).len(), 3);
}

#[rstest]
#[case("monthly", "missing=yes", "missing")]
#[case("monthly", "missing=true", "missing")]
#[case("monthly", "missing=true&from=2024-01", "missing")]
#[case("monthly", "missing=true&from=2024-03&to=2024-01", "missing")]
#[case("monthly", "missing=true&from=2024-01&to=2024-03&limit=1", "limit")]
#[case("by_kind", "missing=true&from=a&to=b", "missing")]
#[tokio::test]
async fn what_is_missing_is_asked_for_by_a_range_of_periods(
    #[case] pipeline: &str,
    #[case] query: &str,
    #[case] parameter: &str,
) {
    let app = App::with(Limits::default(), &[MONTHLY, HOURLY, BY_KIND]).await;
    let refused = app.get(&format!("/pipelines/{pipeline}/partitions?{query}")).await.problem(400, "invalid-parameter");
    assert_eq!(refused["parameter"], parameter, "{refused}");
}
