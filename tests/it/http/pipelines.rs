//! The definitions.

use super::App;
use axum::http::StatusCode;
use serde_json::json;

#[tokio::test]
async fn pipelines_are_listed_by_name() {
    let app = App::new().await;
    let answer = app.get("/pipelines").await;
    insta::assert_json_snapshot!("pipeline_list", answer.json(), {".pipelines[].definition" => "[sha256]"});
    let tag = answer.header("etag").unwrap();
    assert_eq!(app.get_if_changed("/pipelines", tag).await.status, StatusCode::NOT_MODIFIED);
}

#[tokio::test]
async fn a_pipeline_is_shown_with_its_text() {
    let app = App::new().await;
    let body = app.get("/pipelines/monthly").await.json();
    insta::assert_json_snapshot!("pipeline", body, {".definition" => "[sha256]"});
}

#[tokio::test]
async fn an_unknown_pipeline_is_not_found() {
    let app = App::new().await;
    for path in ["/pipelines/nope", "/pipelines/nope/partitions", "/pipelines/nope/partitions/month=2024-02"] {
        let problem = app.get(path).await.problem(404, "pipeline-not-found");
        assert_eq!(problem["pipelines"], json!(["by_kind", "hourly", "monthly"]), "{path}");
    }
    app.get("/pipelines?page=2").await.problem(400, "invalid-parameter");
}
