//! Partition values that file systems and URLs would read as something else.

use super::{Column, Place, Server, Store};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use polars::prelude::{NamedFrom, Series};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;

/// Values, and their folders as Spark writes them.
const TAGS: [(&str, &str); 8] = [
    ("a/b", "tag=a%2Fb"),
    ("a:b", "tag=a%3Ab"),
    ("a b", "tag=a b"),
    ("a%2Fb", "tag=a%252Fb"),
    ("..", "tag=.."),
    ("é", "tag=é"),
    ("../../../x", "tag=..%2F..%2F..%2Fx"),
    ("x=y?z#\"'*\\{[]^\t\u{7f}", "tag=x%3Dy%3Fz%23%22%27%2A%5C%7B%5B%5D%5E%09%7F"),
];

const PIPELINE: &str = r#"
name = "tags"
max_rejected = 1.0

[source]
format = "parquet"
path = "raw/tags.parquet"

[source.columns]
tag = "string"
weight = "int64"

[partition]
tag = { value_of = "tag" }

[dimensions]
weight = "weight"

[measures]
rows = "count(*)"
sum = "sum(weight)"
"#;

fn tags() -> Vec<Column> {
    let unnamed = [Some("__HIVE_DEFAULT_PARTITION__"), Some(""), None];
    let tags: Vec<Option<&str>> = TAGS.iter().map(|(value, _)| Some(*value)).chain(unnamed).collect();
    let weights: Vec<i64> = (1..).take(tags.len()).collect();
    vec![Series::new("tag".into(), tags).into(), Series::new("weight".into(), weights).into()]
}

#[tokio::test]
async fn every_value_is_a_partition_of_its_own_inside_the_table() {
    let place = Place::new(Store::Sqlite).await;
    place.source("raw/tags.parquet", tags());
    place.pipeline("tags", PIPELINE);
    let server = place.start().await;
    let values: Vec<Value> = TAGS.iter().map(|(value, _)| json!({"tag": value})).collect();
    let run = server.run("objects", &json!({"pipeline": "tags", "partitions": values})).await;
    assert_eq!(run["rows"]["rejected"], 3, "rows without a name are rejected: {run:#}");

    let folders: BTreeSet<String> = fs::read_dir(place.table("tags"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(folders, TAGS.iter().map(|(_, folder)| (*folder).to_owned()).collect());
    let mut expected: Vec<String> =
        TAGS.iter().map(|(_, folder)| format!("refrain-data/warehouse/tags/{folder}/part-0.parquet")).collect();
    expected.push("raw/tags.parquet".to_owned());
    expected.push(format!("refrain-data/warehouse/{}", run["quarantine"]["path"].as_str().unwrap()));
    expected.sort();
    assert_eq!(place.parquet_files(), expected, "nothing lies outside the table's folder but the rows without a name");

    let keys: Vec<&str> = TAGS.iter().map(|(_, folder)| *folder).collect();
    assert_eq!(
        server.partitions("tags").await.keys().map(String::as_str).collect::<BTreeSet<_>>(),
        keys.iter().copied().collect()
    );
    for (at, (value, key)) in TAGS.iter().enumerate() {
        found_by_get(&server, key, i64::try_from(at).unwrap() + 1, value).await;
    }
    let again = server.submit("objects", &json!({"pipeline": "tags", "partitions": keys})).await;
    assert_eq!(again.status, 200, "canonical text names the same partitions: {again:?}");
}

async fn found_by_get(server: &Server, key: &str, sum: i64, value: &str) {
    let path = format!("/pipelines/tags/partitions/{}", utf8_percent_encode(key, NON_ALPHANUMERIC));
    let answer = server.get(&path).await;
    assert_eq!(answer.status, 200, "{value:?} at {path}: {answer:?}");
    let partition = answer.json();
    assert_eq!(partition["partition"], key, "{path}");
    assert_eq!(partition["totals"], json!({"rows": 1, "sum": sum}), "{path}");
    assert_eq!(partition["history"].as_array().unwrap().len(), 1, "{partition:#}");
}

#[tokio::test]
async fn values_without_a_name_are_refused() {
    let place = Place::new(Store::Sqlite).await;
    place.source("raw/tags.parquet", tags());
    place.pipeline("tags", PIPELINE);
    let server = place.start_with(&["--workers", "0"], &[]).await;
    let long = "é".repeat(130);
    for value in ["", "__HIVE_DEFAULT_PARTITION__", &long] {
        let answer = server.submit("k", &json!({"pipeline": "tags", "partitions": [{"tag": value}]})).await;
        assert_eq!(answer.status, 422, "{value:?}: {answer:?}");
    }
    for key in ["tag=a/b", "tag=../x", "tag=a/tag=b", "tag="] {
        let answer = server.submit("k", &json!({"pipeline": "tags", "partitions": [key]})).await;
        assert_eq!(answer.status, 422, "{key:?}: {answer:?}");
    }
}
