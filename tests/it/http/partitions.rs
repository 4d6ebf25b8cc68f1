//! Current totals, and one partition with its history.

use super::{App, BY_KIND, HOURLY, MONTHLY, months};
use axum::http::StatusCode;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use refrain::http::Limits;
use rstest::rstest;
use serde_json::{Value, json};

/// The partitions on a page.
fn listed(page: &Value) -> Vec<&str> {
    page["partitions"].as_array().unwrap().iter().map(|p| p["partition"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn the_table_is_listed_with_its_sum() {
    let app = App::new().await;
    let empty = app.get("/pipelines/monthly/partitions").await.json();
    assert_eq!(empty["version"], 0);
    assert_eq!(empty["total"], json!({"partitions": 0, "rows": 0, "totals": {}}));
    app.accepted("k", &months(&["2024-01", "2024-02"])).await;
    app.succeed(3).await;
    insta::assert_json_snapshot!("partitions", app.get("/pipelines/monthly/partitions").await.json(), {
        ".partitions[].run_id" => "[id]", ".partitions[].definition" => "[sha256]",
    });
}

#[tokio::test]
async fn the_sum_is_over_the_range_and_not_over_the_page() {
    let app = App::with(Limits::default(), &[MONTHLY]).await;
    let range = json!({"pipeline": "monthly", "partitions": [{"from": "2024-01", "to": "2024-06"}]});
    app.accepted("k", &range).await;
    app.succeed(3).await;
    let mut seen = Vec::new();
    let base = "/pipelines/monthly/partitions?limit=2&from=2024-02&to=month%3D2024-05";
    let mut path = base.to_owned();
    loop {
        let page = app.get(&path).await.json();
        assert_eq!(page["total"]["partitions"], 4);
        assert_eq!(page["total"]["totals"], json!({"trips": 12, "revenue": "18.00", "mean": null}));
        seen.extend(listed(&page).into_iter().map(str::to_owned));
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("{base}&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(seen, ["month=2024-02", "month=2024-03", "month=2024-04", "month=2024-05"]);
}

#[tokio::test]
async fn a_range_over_the_first_of_two_columns_takes_all_below_it() {
    let app = App::with(Limits::default(), &[HOURLY]).await;
    let keys =
        ["date=2024-02-27/hour=23", "date=2024-02-28/hour=00", "date=2024-02-28/hour=23", "date=2024-02-29/hour=00"];
    app.accepted("k", &json!({"pipeline": "hourly", "partitions": keys})).await;
    app.succeed(3).await;
    let cases = [
        ("from=2024-02-28&to=2024-02-28", &keys[1..3]),
        ("from=2024-02-28", &keys[1..]),
        ("to=2024-02-28", &keys[..3]),
        ("from=date%3D2024-02-28%2Fhour%3D23", &keys[2..]),
        ("to=date%3D2024-02-28%2Fhour%3D00", &keys[..2]),
    ];
    for (query, expected) in cases {
        let page = app.get(&format!("/pipelines/hourly/partitions?{query}")).await.json();
        assert_eq!(listed(&page), expected, "{query}");
    }
}

#[rstest]
#[case("monthly", "from=2024-13", "from")]
#[case("monthly", "to=feb", "to")]
#[case("monthly", "from=2024-02&to=2024-01", "to")]
#[case("monthly", "cursor=0", "cursor")]
#[case("monthly", "limit=1001", "limit")]
#[case("monthly", "since=2024-01", "since")]
#[case("by_kind", "from=a", "from")]
#[case("hourly", "from=date%3D2024-02-28%2Fhour%3D24", "from")]
#[tokio::test]
async fn a_range_that_cannot_be_is_refused(#[case] pipeline: &str, #[case] query: &str, #[case] parameter: &str) {
    let app = App::new().await;
    let answer = app.get(&format!("/pipelines/{pipeline}/partitions?{query}")).await;
    assert_eq!(answer.problem(400, "invalid-parameter")["parameter"], parameter);
}

#[tokio::test]
async fn the_tag_is_the_version_for_one_query_and_definition() {
    let mut app = App::new().await;
    app.accepted("k", &months(&["2024-01", "2024-02"])).await;
    app.succeed(3).await;
    let path = "/pipelines/monthly/partitions";
    let tag = app.get(path).await.header("etag").unwrap().to_owned();
    assert!(tag.starts_with("\"v1-"), "{tag}");
    assert_eq!(app.get_if_changed(path, &tag).await.status, StatusCode::NOT_MODIFIED);
    let page = app.get_if_changed(&format!("{path}?limit=1"), &tag).await;
    assert_eq!(page.status, StatusCode::OK, "another page is another answer");

    app.reload(&[&MONTHLY.replace("avg(amount)", "max(amount)")]);
    let stale = app.get_if_changed(path, &tag).await;
    assert_eq!(stale.status, StatusCode::OK);
    assert_eq!(stale.json()["partitions"][0]["definition_current"], false);

    app.reload(&[MONTHLY]);
    app.accepted("k2", &months(&["2024-02"])).await;
    app.succeed(4).await;
    let changed = app.get_if_changed(path, &tag).await;
    assert_eq!((changed.status, &changed.json()["version"]), (StatusCode::OK, &json!(2)));
}

#[tokio::test]
async fn a_partition_is_shown_with_its_history() {
    let app = App::new().await;
    for (key, trips) in [("k1", 3), ("k2", 3), ("k3", 4)] {
        app.accepted(key, &months(&["2024-02"])).await;
        app.succeed(trips).await;
    }
    let path = "/pipelines/monthly/partitions/month=2024-02";
    let found = app.get(path).await;
    insta::assert_json_snapshot!("partition", found.json(), {
        ".run_id" => "[id]", ".definition" => "[sha256]",
        ".history[].run_id" => "[id]", ".history[].definition" => "[sha256]",
    });
    let tag = found.header("etag").unwrap();
    assert_eq!(app.get_if_changed(path, tag).await.status, StatusCode::NOT_MODIFIED);
    let confirming = app.accepted("k4", &months(&["2024-02"])).await;
    app.succeed(4).await;
    assert_eq!(app.get(path).await.json()["confirmed_by"], json!(confirming));
    app.accepted("k5", &months(&["2024-02"])).await;
    app.succeed(0).await;
    let cleared = app.get(path).await.json();
    assert_eq!((&cleared["rows"], &cleared["history"][0]["outcome"]), (&json!(0), &json!("cleared")));
    assert!(cleared["history"][0].get("rows").is_none(), "{cleared}");
    app.get("/pipelines/monthly/partitions/month=2024-03").await.problem(404, "partition-not-found");
    app.get("/pipelines/monthly/partitions/month=2024-0").await.problem(404, "partition-not-found");
}

#[rstest]
#[case("a/b", "kind=a%2Fb")]
#[case("a:b", "kind=a%3Ab")]
#[case("a b", "kind=a b")]
#[case("a%2Fb", "kind=a%252Fb")]
#[case("..", "kind=..")]
#[case("\u{e9}", "kind=\u{e9}")]
#[case("\u{85}x", "kind=\u{85}x")]
#[case("\u{1}x", "kind=%01x")]
#[tokio::test]
async fn every_value_has_a_path_that_is_decoded_once(#[case] value: &str, #[case] canonical: &str) {
    let app = App::with(Limits::default(), &[BY_KIND]).await;
    let answer = app.submit("k", &json!({"pipeline": "by_kind", "partitions": [{"kind": value}]})).await;
    assert_eq!(answer.json()["partitions"][0]["partition"], canonical);
    app.succeed(3).await;
    let encoded = utf8_percent_encode(canonical, NON_ALPHANUMERIC).to_string();
    let found = app.get(&format!("/pipelines/by_kind/partitions/{encoded}")).await.json();
    assert_eq!((&found["partition"], &found["rows"]), (&json!(canonical), &json!(3)));
}

#[tokio::test]
async fn a_page_may_end_with_any_partition() {
    let app = App::with(Limits::default(), &[BY_KIND]).await;
    let values = ["\u{80}", "\u{85}x", "\u{9f}"];
    app.accepted("k", &json!({"pipeline": "by_kind", "partitions": values.map(|value| json!({"kind": value}))})).await;
    app.succeed(3).await;
    let mut path = "/pipelines/by_kind/partitions?limit=1".to_owned();
    for value in values {
        let answer = app.get(&path).await;
        let page = answer.json();
        assert_eq!(listed(&page), [format!("kind={value}")], "{answer:?}");
        path = format!("/pipelines/by_kind/partitions?limit=1&cursor={}", page["next_cursor"].as_str().unwrap_or("-"));
    }
    let found = app.get("/runs?partition=kind%3D%C2%85x").await.json();
    assert_eq!(found["runs"].as_array().unwrap().len(), 1, "a filter takes it too");
}

#[tokio::test]
async fn the_slashes_of_a_key_may_stay() {
    let app = App::new().await;
    app.accepted("k", &json!({"pipeline": "hourly", "partitions": ["date=2024-02-29/hour=05"]})).await;
    app.succeed(3).await;
    for path in ["date=2024-02-29/hour=05", "date%3D2024-02-29%2Fhour%3D05"] {
        let found = app.get(&format!("/pipelines/hourly/partitions/{path}")).await;
        assert_eq!(found.json()["partition"], "date=2024-02-29/hour=05", "{path}");
    }
    app.get("/pipelines/hourly/partitions/%FF").await.problem(400, "malformed-request");
    app.get("/pipelines/hourly/partitions/date=%00").await.problem(404, "partition-not-found");
}

#[tokio::test]
async fn the_table_as_it_was_is_listed() {
    let app = App::new().await;
    let path = "/pipelines/monthly/partitions";
    let mut pages = vec![app.get(path).await.json()];
    let mut runs = Vec::new();
    for (key, trips) in [("k1", 3), ("k2", 4), ("k3", 0)] {
        *app.clock.lock().unwrap() += chrono::TimeDelta::hours(1);
        runs.push(app.accepted(key, &months(&["2024-01", "2024-02"])).await);
        app.succeed(trips).await;
        pages.push(app.get(path).await.json());
    }
    for (version, then) in pages.iter().enumerate() {
        let answer = app.get(&format!("{path}?as_of={version}")).await;
        assert_eq!(&answer.json(), then, "version {version}");
        let tag = answer.header("etag").unwrap().to_owned();
        assert!(tag.starts_with(&format!("\"v{version}-")), "{tag}");
        let known = app.get_if_changed(&format!("{path}?as_of={version}"), &tag).await;
        assert_eq!(known.status, StatusCode::NOT_MODIFIED);
        let time = format!("{path}?as_of=2024-03-01T{:02}:59:59Z", 6 + version);
        match version {
            0 => drop(app.get(&time).await.problem(404, "version-not-found")),
            _ => assert_eq!(&app.get(&time).await.json(), then, "{time}"),
        }
    }
    for (run, then) in runs.iter().zip(&pages[1..]) {
        assert_eq!(&app.get(&format!("{path}?as_of={run}")).await.json(), then, "{run}");
    }
    for never in ["4", "99999999999999999", "2024-03-01T05:00:00Z", "0193b1a4-0000-7000-8000-000000000000"] {
        app.get(&format!("{path}?as_of={never}")).await.problem(404, "version-not-found");
    }
    for nonsense in ["", "-1", "+1", "yesterday", "2024-03-01", "99999999999999999999"] {
        let encoded = utf8_percent_encode(nonsense, NON_ALPHANUMERIC);
        let answer = app.get(&format!("{path}?as_of={encoded}")).await;
        assert_eq!(answer.problem(400, "invalid-parameter")["parameter"], "as_of", "{nonsense:?}");
    }
}

#[tokio::test]
async fn what_is_not_kept_is_gone_and_nothing_else() {
    let app = App::new().await;
    let path = "/pipelines/monthly/partitions";
    for (key, trips) in [("k1", 3), ("k2", 4), ("k3", 5)] {
        *app.clock.lock().unwrap() += chrono::TimeDelta::hours(1);
        app.accepted(key, &months(&["2024-01"])).await;
        app.succeed(trips).await;
    }
    let then = app.get(&format!("{path}?as_of=2")).await.json();
    let kept = std::time::Duration::from_secs(1800);
    while app.store.prune_version(kept).await.unwrap() {}
    for gone in ["0", "1", "2001-01-01T00:00:00Z", "2024-03-01T07:30:00Z"] {
        let problem = app.get(&format!("{path}?as_of={gone}")).await.problem(410, "history-gone");
        assert_eq!(problem["oldest_version"], 2, "{problem:#}");
    }
    assert_eq!(app.get(&format!("{path}?as_of=2")).await.json(), then);
    app.get(&format!("{path}?as_of=4")).await.problem(404, "version-not-found");
    assert_eq!(app.get(&format!("{path}?as_of=3")).await.json(), app.get(path).await.json());
}

#[tokio::test]
async fn all_pages_of_a_moment_are_of_one_version() {
    let app = App::new().await;
    app.accepted("k1", &months(&["2024-01", "2024-02", "2024-03"])).await;
    app.succeed(3).await;
    // What a moment to come means is settled by the first page.
    let path = "/pipelines/monthly/partitions?limit=1&as_of=2024-03-02T00:00:00Z";
    let first = app.get(path).await.json();
    app.accepted("k2", &months(&["2024-02"])).await;
    app.succeed(4).await;
    assert_eq!(app.get(path).await.json()["version"], 2);
    let cursor = first["next_cursor"].as_str().unwrap();
    let next = app.get(&format!("{path}&cursor={cursor}")).await;
    assert!(next.header("etag").unwrap().starts_with("\"v1-"), "{next:?}");
    let next = next.json();
    assert_eq!((&next["version"], &next["total"]), (&json!(1), &first["total"]), "{next}");
    assert_eq!((listed(&next), &next["partitions"][0]["totals"]["trips"]), (vec!["month=2024-02"], &json!(3)));
    let plain = app.get("/pipelines/monthly/partitions?limit=1").await.json();
    let plain = plain["next_cursor"].as_str().unwrap();
    let never = refrain_cursor("3@month=2024-01");
    for path in [format!("{path}&cursor={plain}"), format!("{path}&cursor={never}")] {
        assert_eq!(app.get(&path).await.problem(400, "invalid-parameter")["parameter"], "cursor");
    }
    let another = format!("/pipelines/monthly/partitions?limit=1&as_of=2&cursor={cursor}");
    assert_eq!(app.get(&another).await.problem(400, "invalid-parameter")["parameter"], "cursor");
    let without = format!("/pipelines/monthly/partitions?cursor={cursor}");
    assert_eq!(app.get(&without).await.problem(400, "invalid-parameter")["parameter"], "cursor");
    let missing = "/pipelines/monthly/partitions?from=2024-01&to=2024-02&missing=true&as_of=1";
    assert_eq!(app.get(missing).await.problem(400, "invalid-parameter")["parameter"], "as_of");
}

fn refrain_cursor(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn a_runs_partitions_say_what_has_superseded_them() {
    let app = App::new().await;
    let first = app.accepted("k1", &months(&["2024-01", "2024-02"])).await;
    let superseded = async || {
        let run = app.get(&format!("/runs/{first}")).await.json();
        run["partitions"].as_array().unwrap().iter().map(|p| p.get("superseded_by").cloned()).collect::<Vec<_>>()
    };
    assert_eq!(superseded().await, [None, None], "nothing can have superseded what is not there yet");
    app.succeed(3).await;
    assert_eq!(superseded().await, [Some(Value::Null), Some(Value::Null)]);
    let waited = format!("/runs/{first}?wait=5");
    assert_eq!(app.get(&waited).await.json()["partitions"][1]["superseded_by"], Value::Null);
    let second = app.accepted("k2", &months(&["2024-02"])).await;
    app.succeed(4).await;
    assert_eq!(superseded().await, [Some(Value::Null), Some(json!(second))]);
    assert_eq!(
        app.get(&waited).await.json()["partitions"][1]["superseded_by"],
        json!(second),
        "who waits is told it too"
    );
}

#[tokio::test]
async fn a_partitions_history_comes_in_pages() {
    let app = App::new().await;
    for (key, trips) in [("k1", 1), ("k2", 2), ("k3", 3)] {
        let labelled = json!({"pipeline": "monthly", "partitions": ["2024-02"], "labels": {"by": key}});
        app.accepted(key, &labelled).await;
        app.succeed(trips).await;
    }
    let base = "/pipelines/monthly/partitions/month=2024-02?limit=2";
    let first = app.get(base).await.json();
    let versions = |page: &Value| -> Vec<i64> {
        page["history"].as_array().unwrap().iter().map(|change| change["version"].as_i64().unwrap()).collect()
    };
    assert_eq!(versions(&first), [3, 2]);
    assert_eq!(first["history"][0]["principal"], "default");
    assert_eq!(first["history"][1]["labels"], json!({"by": "k2"}));
    let next = app.get(&format!("{base}&cursor={}", first["next_cursor"].as_str().unwrap())).await.json();
    assert_eq!((versions(&next), &next["next_cursor"]), (vec![1], &Value::Null));
    assert_eq!(next["rows"], 3, "it is as it is now");
    let cursor = first["next_cursor"].as_str().unwrap();
    let never = app.get(&format!("/pipelines/monthly/partitions/month=2024-03?cursor={cursor}")).await;
    never.problem(404, "partition-not-found");
    for (query, parameter) in
        [("limit=0", "limit"), ("cursor=zz", "cursor"), ("cursor=61", "cursor"), ("from=1", "from")]
    {
        let answer = app.get(&format!("/pipelines/monthly/partitions/month=2024-02?{query}")).await;
        assert_eq!(answer.problem(400, "invalid-parameter")["parameter"], parameter);
    }
}

#[tokio::test]
async fn keys_come_with_their_values_as_they_are() {
    let app = App::new().await;
    let two = json!({"pipeline": "hourly", "partitions": ["date=2024-02-28/hour=23"]});
    let escaped = json!({"pipeline": "by_kind", "partitions": ["a/b=\u{e9}%"]});
    for (key, body, values) in
        [("k1", two, json!({"date": "2024-02-28", "hour": "23"})), ("k2", escaped, json!({"kind": "a/b=\u{e9}%"}))]
    {
        let id = app.accepted(key, &body).await;
        let shown = app.get(&format!("/runs/{id}")).await.json();
        assert_eq!(shown["partitions"][0]["values"], values, "{shown}");
        app.succeed(3).await;
        let pipeline = shown["pipeline"].as_str().unwrap();
        let listed = app.get(&format!("/pipelines/{pipeline}/partitions")).await.json();
        assert_eq!(listed["partitions"][0]["values"], values, "{listed}");
    }
}
