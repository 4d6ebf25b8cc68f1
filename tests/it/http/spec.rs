//! The description of the interface.

use super::App;
use axum::http::StatusCode;
use std::collections::BTreeSet;
use std::path::Path;

#[test]
fn the_kept_description_is_the_current_one() {
    let kept = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.yaml")).unwrap();
    let current = refrain::http::openapi().to_yaml().unwrap();
    assert!(kept == current, "openapi.yaml has drifted; make it anew with `refrain openapi > openapi.yaml`");
}

#[tokio::test]
async fn the_description_is_served_in_both_forms() {
    let app = App::new().await;
    let json = app.get("/openapi.json").await;
    assert_eq!(json.json(), serde_json::to_value(refrain::http::openapi()).unwrap());
    let yaml = app.get("/openapi.yaml").await;
    assert_eq!((yaml.status, yaml.header("content-type")), (StatusCode::OK, Some("application/yaml")));
    assert_eq!(String::from_utf8(yaml.body).unwrap(), refrain::http::openapi().to_yaml().unwrap());
}

#[test]
fn every_path_of_the_design_is_described() {
    let described = refrain::http::openapi();
    let paths: Vec<&str> = described.paths.paths.keys().map(String::as_str).collect();
    assert_eq!(
        paths,
        [
            "/docs",
            "/healthz",
            "/metrics",
            "/openapi.json",
            "/openapi.yaml",
            "/pipelines",
            "/pipelines/{name}",
            "/pipelines/{name}/data/{key}",
            "/pipelines/{name}/partitions",
            "/pipelines/{name}/partitions/{key}",
            "/readyz",
            "/runs",
            "/runs/{id}",
            "/runs/{id}/cancel",
            "/runs/{id}/events",
            "/runs/{id}/retry",
        ]
    );
}

#[test]
fn every_operation_has_a_name_of_its_own_and_describes_its_answers() {
    let described = serde_json::to_value(refrain::http::openapi()).unwrap();
    let paths = described["paths"].as_object().unwrap().values();
    let operations: Vec<&serde_json::Value> = paths.flat_map(|path| path.as_object().unwrap().values()).collect();
    let names: BTreeSet<&str> = operations.iter().map(|o| o["operationId"].as_str().unwrap()).collect();
    assert_eq!(names.len(), operations.len(), "{names:?}");
    for operation in operations {
        for (status, answer) in operation["responses"].as_object().unwrap() {
            assert!(answer["description"].is_string(), "{} {status}", operation["operationId"]);
        }
    }
}
