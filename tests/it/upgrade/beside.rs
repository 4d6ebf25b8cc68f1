//! A server of this version on a database that a later one has brought along.

use super::{FLAGS, copy_folder, fixture};
use crate::crash::until_async;
use crate::service::{Place, Store};
use serde_json::json;

/// What a later version's migration does that only adds, and the row that records it.
const EXPANDED: &str = "
    alter table runs add column of_a_later_version text;
    alter table catalog add column of_a_later_version bigint not null default 7;
    create table of_a_later_version (run_id text);";

/// One that takes something away says so.
const CONTRACTED: &str = "update meta set oldest_schema = 9001;";

fn recorded(version: i64, checksum: &str) -> String {
    format!(
        "insert into _sqlx_migrations (version, description, success, checksum, execution_time)
         values ({version}, 'of a later version', true, {checksum}, 0);"
    )
}

async fn place(store: Store) -> Place {
    let place = Place::new(store).await;
    for part in ["raw", "pipelines"] {
        copy_folder(&fixture(part), &place.path(part));
    }
    place
}

/// While the database only gains, servers that were there and servers that start work on. From the moment when it loses
/// something they take no more runs, say why, and cannot be started.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_works_beside_a_later_one_for_as_long_as_it_may() {
    let place = place(Store::Postgres).await;
    let body = |months: &[&str]| json!({"pipeline": "trips", "partitions": months});
    let old = place.start_with(&FLAGS, &[]).await;
    old.run("before", &body(&["2024-01", "2024-02"])).await;
    place.execute(&format!("{EXPANDED} {}", recorded(9000, "'\\x00'"))).await;
    let started = place.start_with(&FLAGS, &[]).await;
    for round in 0..6 {
        let server = if round % 2 == 0 { &old } else { &started };
        let ids = [
            server.accept(&format!("{round}/a"), &body(&["2024-01", "2024-03"])).await,
            server.accept(&format!("{round}/b"), &body(&["2024-02"])).await,
            server.accept(&format!("{round}/c"), &json!({"pipeline": "trips", "mode": "full"})).await,
        ];
        for id in ids {
            assert_eq!(server.wait(&id).await["state"], "succeeded");
        }
        assert_eq!(server.submit(&format!("{round}/b"), &body(&["2024-02"])).await.status, 200);
    }
    assert_eq!(place.verify().await, None);

    place.execute(&format!("{CONTRACTED} {}", recorded(9001, "'\\x00'"))).await;
    let needs = "needs a version of refrain that knows migration 9001";
    for server in [&old, &started] {
        until_async("the server says that it was left behind", async || {
            let ready = server.get("/readyz").await;
            ready.status == 503 && ready.body.contains(needs)
        })
        .await;
    }
    let left = old.accept("left", &body(&["2024-01"])).await;
    until_async("no worker takes it", async || [&old, &started].iter().all(|server| server.log().contains(needs)))
        .await;
    assert_eq!(old.get(&format!("/runs/{left}")).await.json()["state"], "queued");
    let refused = place.launch_with(&FLAGS, &[]).refused().await;
    assert!(refused.contains(needs), "{refused}");
    assert!(place.verify().await.is_some_and(|said| said.contains(needs)));
}

/// The same on SQLite, where a server is started again; and a database that is behind, which nobody only looks at.
#[tokio::test(flavor = "multi_thread")]
async fn an_embedded_database_is_opened_for_as_long_as_it_may() {
    let place = place(Store::Sqlite).await;
    let body = json!({"pipeline": "trips", "partitions": ["2024-01"]});
    let server = place.start().await;
    server.run("one", &body).await;
    assert!(server.stop().await.success());
    let added = EXPANDED.replace("bigint", "integer");
    place.execute(&format!("{added} {}", recorded(9000, "x'00'"))).await;
    let server = place.start().await;
    server.run("two", &body).await;
    assert!(server.stop().await.success());
    assert_eq!(place.verify().await, None);

    place.execute("delete from _sqlx_migrations where version = 11").await;
    let behind = place.verify().await.unwrap();
    assert!(behind.contains("lacks 11") && behind.contains("refrain migrate"), "{behind}");
    place.execute(&format!("{} {CONTRACTED}", recorded(11, "x'00'"))).await;
    let found = place.verify().await.unwrap();
    assert!(found.contains("needs a version of refrain that knows migration 9001"), "{found}");
    place.execute(&format!("update meta set oldest_schema = 11; {}", recorded(-1, "x'00'"))).await;
    let found = place.verify().await.unwrap();
    assert!(found.contains("has migration -1, which this version of refrain does not know"), "{found}");
    let refused = place.launch_with(&["--workers", "1"], &[]).refused().await;
    assert!(refused.contains("migration 11 was previously applied but has been modified"), "{refused}");
}
