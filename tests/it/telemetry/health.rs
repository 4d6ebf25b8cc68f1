//! readyz goes down when what the service stands on is not well, says which, and comes back by itself.

use super::{Place, Server, Store, WITHIN, of_month, pipeline, scrape_until};
use crate::proxy::Network;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};
use std::time::{Duration, Instant};

/// Waits until readyz has this status; a 503 must name this check as the one that fails.
async fn until(server: &Server, status: u16, check: &str) -> String {
    let end = Instant::now() + WITHIN;
    loop {
        let ready = server.get("/readyz").await;
        if ready.status == status {
            let checks = ready.json()["checks"].as_array().unwrap().clone();
            let failing: Vec<&str> =
                checks.iter().filter(|c| c["ok"] == false).map(|c| c["name"].as_str().unwrap()).collect();
            if status == 200 || failing.contains(&check) {
                return ready.body;
            }
        }
        assert!(Instant::now() < end, "not {status} for {check}: {ready:?}\n{}", server.log_tail());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// From now on no file of the process grows beyond this.
fn limit_files(process: Pid, bytes: Option<u64>) {
    let maximum = getrlimit(Resource::Fsize).maximum;
    prlimit(Some(process), Resource::Fsize, Rlimit { current: bytes, maximum }).unwrap();
}

/// Nothing of the warehouse's names or modes says so: only who writes finds out.
#[tokio::test(flavor = "multi_thread")]
async fn a_warehouse_without_room_is_not_ready() {
    let place = Place::new(Store::Postgres).await;
    pipeline(&place);
    let server = place.start().await;
    limit_files(server.pid(), Some(0));
    let said = until(&server, 503, "warehouse").await;
    assert!(said.contains("File too large") && said.contains(".staging"), "{said}");
    scrape_is(&server, "warehouse", 0.0).await;
    assert_eq!(server.get("/healthz").await.status, 200);
    limit_files(server.pid(), None);
    until(&server, 200, "").await;
    scrape_is(&server, "warehouse", 1.0).await;
    server.run("first", &of_month("2024-02")).await;
    let left = std::fs::read_dir(place.path("refrain-data/warehouse/.staging")).unwrap().count();
    assert_eq!(left, 0, "nothing of the probes is left");
}

/// As after a failover, or where an operator has shut it to writers: it answers, and takes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_only_reads_is_not_ready() {
    let place = Place::new(Store::Postgres).await;
    pipeline(&place);
    let proxy = place.proxy().await;
    let server = place.start_behind(&proxy, &["--workers", "1"], &[]).await;
    let read_only = async |on: bool| {
        let mut connection = PgConnection::connect(place.database_url().unwrap()).await.unwrap();
        let (name,): (String,) = sqlx::query_as("select current_database()").fetch_one(&mut connection).await.unwrap();
        // Setting it would be refused, too.
        sqlx::raw_sql("set session characteristics as transaction read write").execute(&mut connection).await.unwrap();
        let set = format!("alter database {name} set default_transaction_read_only = {on}");
        sqlx::raw_sql(AssertSqlSafe(set)).execute(&mut connection).await.unwrap();
        // It holds for sessions that begin from now on.
        proxy.set(Network::Cut);
        until(&server, 503, "database").await;
        proxy.set(Network::Open);
    };
    read_only(true).await;
    let end = Instant::now() + WITHIN;
    while !until(&server, 503, "database").await.contains("it is read-only") {
        assert!(Instant::now() < end, "{}", server.log_tail());
    }
    assert_eq!(server.get("/runs").await.status, 200, "it is still read");
    read_only(false).await;
    until(&server, 200, "").await;
    server.run("first", &of_month("2024-02")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_does_not_come_round_is_not_ready() {
    let place = Place::new(Store::Sqlite).await;
    pipeline(&place);
    let fault = format!("claiming=delay:11000@{}", place.path("hangs").display());
    let flags = ["--workers", "1", "--lease-seconds", "1"];
    let server = place.start_with(&flags, &[("REFRAIN_FAULT", &fault)]).await;
    let said = until(&server, 503, "workers").await;
    assert!(said.contains("worker 1 has not looked for a run for "), "{said}");
    scrape_is(&server, "workers", 0.0).await;
    until(&server, 200, "").await;
    scrape_is(&server, "workers", 1.0).await;
    server.run("first", &of_month("2024-02")).await;
}

/// Answers are given again for a second: each look writes.
#[tokio::test(flavor = "multi_thread")]
async fn to_ask_again_and_again_is_no_load() {
    let place = Place::new(Store::Sqlite).await;
    pipeline(&place);
    let server = place.start_with(&["--workers", "0"], &[]).await;
    let written = async || {
        let found = scrape_until(&server, &[("refrain_database_transaction_seconds", &[], 1.0)]).await;
        let writes = found["refrain_database_transaction_seconds"].samples.iter().find(|sample| {
            sample.name.ends_with("_count") && sample.labels.get("access").is_some_and(|access| access == "write")
        });
        writes.map_or(0.0, |sample| sample.value)
    };
    let (since, before) = (Instant::now(), written().await);
    futures::future::join_all((0..200).map(|_| server.get("/readyz"))).await;
    let (after, seconds) = (written().await, since.elapsed().as_secs_f64());
    assert!(after - before <= seconds + 2.0, "{} writes in {seconds} s", after - before);
}

/// One that computes for longer than its rounds may take is well.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_at_work_is_ready() {
    let place = Place::new(Store::Sqlite).await;
    pipeline(&place);
    let flags = ["--workers", "1", "--lease-seconds", "1"];
    let server = place.start_with(&flags, &[("REFRAIN_FAULT", "decided=delay:7000")]).await;
    let id = server.accept("first", &of_month("2024-02")).await;
    let mut busy = false;
    loop {
        let run = server.get(&format!("/runs/{id}")).await.json();
        let ready = server.get("/readyz").await;
        assert_eq!(ready.status, 200, "{ready:?}");
        busy |= run["state"] == "committing";
        if run["state"] == "succeeded" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(busy);
}

/// The metric says what readyz does, soon.
async fn scrape_is(server: &Server, check: &str, expected: f64) {
    let end = Instant::now() + WITHIN;
    loop {
        let found = scrape_until(server, &[("refrain_check_ok", &[("check", check)], 0.0)]).await;
        if found["refrain_check_ok"].sum(&[("check", check)]) == Some(expected) {
            return;
        }
        assert!(Instant::now() < end, "the check {check} is not {expected}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// An operator, or a backup, has the file: submissions wait for it, and what is read is answered.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_somebody_else_writes_is_busy() {
    let place = Place::new(Store::Sqlite).await;
    pipeline(&place);
    let server = place.start_with(&["--workers", "1", "--lease-seconds", "1"], &[]).await;
    let file = format!("sqlite://{}", place.path("refrain-data/refrain.db").display());
    let mut other = SqliteConnection::connect(&file).await.unwrap();
    sqlx::raw_sql("begin immediate").execute(&mut other).await.unwrap();
    // Longer than a worker may take for its round, too.
    let (since, mut busy) = (Instant::now(), false);
    while since.elapsed() < Duration::from_secs(8) || !busy {
        let ready = server.get("/readyz").await;
        assert_eq!(ready.status, 200, "{ready:?}");
        busy |= ready.json()["degraded"] == true && ready.body.contains("it is busy: ");
        assert!(since.elapsed() < WITHIN, "{ready:?}");
    }
    assert_eq!(server.get("/runs").await.status, 200);
    sqlx::raw_sql("rollback").execute(&mut other).await.unwrap();
    let end = Instant::now() + WITHIN;
    while server.get("/readyz").await.json()["degraded"] != false {
        assert!(Instant::now() < end, "{}", server.log_tail());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    server.run("first", &of_month("2024-02")).await;
}
