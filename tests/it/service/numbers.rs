//! Doubles brought to decimals, and sums that do not fit.

use super::{Place, Store, field_of};
use polars::prelude::{NamedFrom, Series};
use serde_json::{Value, json};

#[tokio::test]
async fn doubles_become_decimals_as_spark_rounds_them() {
    let place = Place::new(Store::Sqlite).await;
    let doubles = [1.145, 0.125, -0.125, 1e16, f64::NAN];
    let rows: Vec<i64> = (1..=5).collect();
    place.source(
        "raw/doubles.parquet",
        vec![Series::new("row".into(), rows).into(), Series::new("amount".into(), doubles.to_vec()).into()],
    );
    place.pipeline(
        "doubles",
        r#"
name = "doubles"
max_rejected = 1.0

[source]
format = "parquet"
path = "raw/doubles.parquet"

[source.columns]
row = "int64"
amount = "decimal(18,2)"

[partition]
at = { value_of = "row" }

[dimensions]
row = "row"

[measures]
amount = "sum(amount)"
"#,
    );
    let server = place.start().await;
    let run = server.run("k", &json!({"pipeline": "doubles", "partitions": ["1", "2", "3", "4", "5"]})).await;
    let amounts: Vec<Value> = field_of(&run, "totals").into_values().map(|totals| totals["amount"].clone()).collect();
    assert_eq!(amounts[..3], [json!("1.15"), json!("0.13"), json!("-0.13")], "{run:#}");
    let outcomes: Vec<Value> = field_of(&run, "outcome").into_values().collect();
    assert_eq!(outcomes, ["created", "created", "created", "empty", "empty"].map(Value::from));
    let rows = &run["rows"];
    assert_eq!((&rows["read"], &rows["in_scope"], &rows["rejected"]), (&json!(5), &json!(3), &json!(2)), "{run:#}");
}

/// A table of two rows in one partition and two groups, or one group where both have one sign.
fn sums(name: &str) -> String {
    format!(
        r#"
name = "{name}"

[source]
format = "parquet"
path = "raw/{name}.parquet"

[source.columns]
day = "int32"
n = "int64"

[partition]
day = {{ value_of = "day" }}

[dimensions]
parity = "case when n >= 0 then 'up' else 'down' end"

[measures]
total = "sum(n)"
"#
    )
}

#[tokio::test]
async fn a_sum_that_does_not_fit_fails_the_run_and_says_so() {
    let place = Place::new(Store::Sqlite).await;
    for (name, numbers) in [("over", [i64::MAX, 1]), ("under", [i64::MIN, -1]), ("fits", [i64::MAX, i64::MIN])] {
        let days = vec![1i32; 2];
        place.source(
            &format!("raw/{name}.parquet"),
            vec![Series::new("day".into(), days).into(), Series::new("n".into(), numbers.to_vec()).into()],
        );
        place.pipeline(name, &sums(name));
    }
    let server = place.start().await;
    for name in ["over", "under"] {
        let failed = server.run_to("failed", name, &json!({"pipeline": name, "partitions": ["1"]})).await;
        assert_eq!(failed["error"]["class"], "compute", "{failed:#}");
        assert_eq!(failed["attempts"].as_array().unwrap().len(), 1, "trying again changes nothing: {failed:#}");
        let detail = failed["error"]["detail"].as_str().unwrap();
        assert!(detail.contains("sum") && detail.contains("int64"), "{detail}");
        assert!(server.partitions(name).await.is_empty());
        assert!(place.files_of(name).is_empty(), "nothing is published");
    }
    let fits = server.run("fits", &json!({"pipeline": "fits", "partitions": ["1"]})).await;
    assert_eq!(fits["partitions"][0]["rows"], 2, "{fits:#}");
}
