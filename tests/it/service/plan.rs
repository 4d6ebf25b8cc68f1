//! `POST /runs?dry_run=true` of the real server: what it foresees is what comes.

use super::{Answer, Place, Server, Store, field_of, trips_pipeline, write_quarter};
use reqwest::Method;
use serde_json::{Value, json};

const TEMPLATE: &str = r#""raw/trips_%Y-%m.parquet""#;

async fn plan(server: &Server, body: &Value) -> Answer {
    server.call(Method::POST, "/runs?dry_run=true", None, Some(body.to_string())).await
}

/// Each source file's path and size.
fn files(of: &Value) -> Vec<(Value, Value)> {
    of.as_array().unwrap().iter().map(|file| (file["path"].clone(), file["bytes"].clone())).collect()
}

#[tokio::test]
async fn what_is_foreseen_is_what_comes() {
    let place = Place::new(Store::Sqlite).await;
    write_quarter(&place, 50);
    let pipeline = trips_pipeline("trips", TEMPLATE, "neighbours = 1", "");
    place.pipeline("trips", &format!("{pipeline}\n[retry]\nsource = {{ attempts = 1 }}\n"));
    let server = place.start().await;
    let body = json!({"pipeline": "trips", "partitions": ["2024-02"]});
    let planned = plan(&server, &body).await;
    assert_eq!(planned.status, 200, "{planned:?}");
    let planned = planned.json();
    assert_eq!(field_of(&planned, "would")["pickup_month=2024-02"], "create_or_empty", "{planned:#}");
    let neighbours: Vec<&Value> =
        planned["sources"]["files"].as_array().unwrap().iter().map(|file| &file["neighbour"]).collect();
    assert_eq!(neighbours, [true, false, true]);
    assert_eq!(server.get("/runs").await.json()["runs"], json!([]), "nothing was created");

    let run = server.run("k", &body).await;
    assert_eq!(files(&planned["sources"]["files"]), files(&run["sources"]));
    let full = plan(&server, &json!({"pipeline": "trips", "mode": "full"})).await.json();
    assert_eq!(files(&full["sources"]["files"]).len(), 3);

    let replanned = plan(&server, &body).await.json();
    assert_eq!(field_of(&replanned, "would")["pickup_month=2024-02"], "replace");
    let current = &replanned["partitions"][0]["current"];
    assert_eq!((&current["sha256"], &current["run_id"]), (&run["partitions"][0]["sha256"], &run["id"]));

    place.remove("raw/trips_2024-02.parquet");
    let missing = plan(&server, &body).await.json();
    let expected = "raw/trips_2024-02.parquet does not exist, and pickup_month=2024-02 needs it";
    assert_eq!(missing["sources"]["missing"], json!([expected]));
    let failed = server.run_to("failed", "missing", &body).await;
    assert_eq!(failed["error"]["detail"], expected);
}
