//! What only Postgres does: being out of reach, being asked by many at once.

use super::bed::PostgresDatabase;
use super::make::{claim_request, definition, request, submit};
use crate::proxy::{Network, Proxy};
use refrain::run::OnOverlap;
use refrain::store::{Cancelled, EndedAt, PostgresOptions, PostgresStore, RunFilter, RunStore, StoreError, Submitted};
use secrecy::ExposeSecret;
use sqlx::{Connection, PgConnection};
use std::time::{Duration, Instant};

fn hasty() -> PostgresOptions {
    PostgresOptions {
        acquire_timeout: Duration::from_millis(500),
        statement_timeout: Duration::from_millis(500),
        ..PostgresOptions::default()
    }
}

#[tokio::test]
async fn a_server_that_accepts_and_says_nothing_is_unavailable_in_bounded_time() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://postgres@{}/refrain", silent.local_addr().unwrap());
    let since = Instant::now();
    let error = PostgresStore::connect(&url.into(), hasty()).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
}

#[tokio::test]
async fn a_url_that_is_none_is_a_mistake_in_the_settings() {
    let error = PostgresStore::connect(&"not a url of ours".to_owned().into(), hasty()).await.unwrap_err();
    assert!(matches!(error, StoreError::Setup(_)), "{error:?}");
}

#[tokio::test]
async fn a_schema_that_is_not_there_is_no_passing_trouble() {
    let database = PostgresDatabase::create().await;
    let store = PostgresStore::connect(&database.url(), hasty()).await.unwrap();
    let error = store.database_id().await.unwrap_err();
    assert!(matches!(error, StoreError::Refused(_)), "{error:?}");
    drop(store);
    database.drop().await;
}

/// A step that waits for a lock longer than a statement may take is unavailable, undone, and leaves a usable store.
#[tokio::test]
async fn a_step_that_waits_too_long_is_unavailable() {
    let database = PostgresDatabase::create().await;
    let store = PostgresStore::connect(&database.url(), hasty()).await.unwrap();
    store.migrate().await.unwrap();
    let run = submit(&store, &request("trips", "a", &["p=1"])).await.id;
    let mut blocker = PgConnection::connect_with(&database.options).await.unwrap();
    sqlx::raw_sql("begin; lock table runs in exclusive mode").execute(&mut blocker).await.unwrap();
    let error = store.cancel(run).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    sqlx::raw_sql("rollback").execute(&mut blocker).await.unwrap();
    assert_eq!(store.claim(&claim_request()).await.unwrap().unwrap().run.id, run);
    blocker.close().await.unwrap();
    drop(store);
    database.drop().await;
}

/// A claimer passes over a pipeline that another has, claims elsewhere, and comes back when there is nothing else.
#[tokio::test]
async fn a_pipeline_that_another_has_does_not_stop_the_others() {
    let database = PostgresDatabase::create().await;
    let store = PostgresStore::connect(&database.url(), hasty()).await.unwrap();
    store.migrate().await.unwrap();
    let trips = submit(&store, &request("trips", "a", &["p=1"])).await.id;
    let fares = submit(&store, &request("fares", "b", &["p=1"])).await.id;
    let mut holder = PgConnection::connect_with(&database.options).await.unwrap();
    let lock = "begin; select pg_advisory_xact_lock(hashtextextended('refrain/trips', 0))";
    sqlx::raw_sql(lock).execute(&mut holder).await.unwrap();
    assert_eq!(store.claim(&claim_request()).await.unwrap().unwrap().run.id, fares);
    let error = store.claim(&claim_request()).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    let error = store.submit(&request("trips", "c", &["p=1"])).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "numbers are drawn under the lock: {error:?}");
    sqlx::raw_sql("rollback").execute(&mut holder).await.unwrap();
    assert_eq!(store.claim(&claim_request()).await.unwrap().unwrap().run.id, trips);
    holder.close().await.unwrap();
    drop(store);
    database.drop().await;
}

/// Whoever has a principal's row of the turns in hand, be it a claimer that was stopped, holds up neither claims nor submissions.
#[tokio::test]
async fn a_turn_that_another_has_in_hand_holds_up_nobody() {
    let database = PostgresDatabase::create().await;
    let store = PostgresStore::connect(&database.url(), hasty()).await.unwrap();
    store.migrate().await.unwrap();
    let first = submit(&store, &request("trips", "first", &["p=1"])).await.id;
    let mut holder = PgConnection::connect_with(&database.options).await.unwrap();
    let take = "begin; update turns set taken = taken + 1";
    sqlx::raw_sql(take).execute(&mut holder).await.unwrap();
    assert_eq!(store.claim(&claim_request()).await.unwrap().unwrap().run.id, first);
    // Each goes a way of its own.
    for (name, on_overlap) in [("waits", OnOverlap::Wait), ("refuses", OnOverlap::Refuse)] {
        let mut asked = request("fares", name, &[&format!("p={name}")]);
        asked.asked.on_overlap = on_overlap;
        let answer = store.submit(&asked).await;
        assert!(matches!(answer, Ok(Submitted::New(_))), "{name}: {answer:?}");
    }
    sqlx::raw_sql("rollback").execute(&mut holder).await.unwrap();
    holder.close().await.unwrap();
    drop(store);
    database.drop().await;
}

/// Between the claim's look at the queue and its lock of the run, somebody cancels it: the next one is claimed.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_cancelled_while_it_is_claimed_does_not_hide_the_next() {
    let database = PostgresDatabase::create().await;
    let patient = PostgresOptions::default();
    let store = std::sync::Arc::new(PostgresStore::connect(&database.url(), patient).await.unwrap());
    store.migrate().await.unwrap();
    submit(&*store, &request("trips", "first", &["p=1"])).await;
    let next = submit(&*store, &request("trips", "next", &["p=1"])).await.id;
    let mut canceller = PgConnection::connect_with(&database.options).await.unwrap();
    let cancel = "begin;
        update runs set state = 'cancelled', ended_at = created_at where idempotency_key = 'first';
        delete from reservations where run_id = (select id from runs where idempotency_key = 'first')";
    sqlx::raw_sql(cancel).execute(&mut canceller).await.unwrap();
    let claiming = tokio::spawn({
        let store = store.clone();
        async move { store.claim(&claim_request()).await.unwrap() }
    });
    let mut watcher = PgConnection::connect_with(&database.options).await.unwrap();
    let waits = "select exists (select 1 from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock' and query like '%for update%')";
    while !sqlx::query_scalar::<_, bool>(waits).fetch_one(&mut watcher).await.unwrap() {
        assert!(!claiming.is_finished(), "the claim did not wait for the one that cancels");
        tokio::task::yield_now().await;
    }
    sqlx::raw_sql("commit").execute(&mut canceller).await.unwrap();
    let claimed = claiming.await.unwrap().unwrap();
    assert_eq!(claimed.run.id, next);
    canceller.close().await.unwrap();
    watcher.close().await.unwrap();
    drop(store);
    database.drop().await;
}

/// Among many runs that ended just now the old ones are found by the index of their ends.
#[tokio::test]
async fn old_runs_are_found_by_their_ends() {
    let database = PostgresDatabase::create().await;
    let store = PostgresStore::connect(&database.url(), PostgresOptions::default()).await.unwrap();
    store.migrate().await.unwrap();
    let old = submit(&store, &request("trips", "old", &["p=1"])).await.id;
    assert!(matches!(store.cancel(old).await.unwrap(), Cancelled::Now));
    let mut admin = PgConnection::connect_with(&database.options).await.unwrap();
    let many = "insert into runs (id, principal, idempotency_key, pipeline, mode, asked, fingerprint, accepted_with, definition, state,
            sequence, due_at, created_at, ended_at)
        select gen_random_uuid(), principal, 'new-' || n, pipeline, mode, asked, fingerprint, accepted_with, definition, state,
            1000000 + n, due_at, created_at, ended_at
        from runs cross join generate_series(1, 20000) as n;
        update runs set ended_at = ended_at - interval '2 days' where idempotency_key = 'old';
        analyze";
    sqlx::raw_sql(many).execute(&mut admin).await.unwrap();
    let found = store.prunable(Duration::from_secs(86400), EndedAt::default(), 10).await.unwrap();
    assert_eq!(found.runs.iter().map(|run| run.id).collect::<Vec<_>>(), [old]);
    // What a connection has counted is known when it ends.
    drop(store);
    let scans = "select idx_scan from pg_stat_user_indexes where indexrelname = 'runs_ended'";
    let end = Instant::now() + Duration::from_secs(20);
    while sqlx::query_scalar::<_, i64>(scans).fetch_one(&mut admin).await.unwrap() == 0 {
        assert!(Instant::now() < end, "the index was not used");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    admin.close().await.unwrap();
    database.drop().await;
}

/// A submission that has its number and is not committed yet may be of a run that comes before all that can be seen: so
/// nothing of its pipeline is claimed meanwhile.
#[tokio::test]
async fn a_claim_waits_for_submissions_under_way_and_a_retry_for_claims() {
    let database = PostgresDatabase::create().await;
    let store = PostgresStore::connect(&database.url(), hasty()).await.unwrap();
    store.migrate().await.unwrap();
    let run = submit(&store, &request("trips", "a", &["p=1"])).await.id;
    let mut under_way = PgConnection::connect_with(&database.options).await.unwrap();
    let share = "begin; select pg_advisory_xact_lock_shared(hashtextextended('refrain/trips', 0))";
    sqlx::raw_sql(share).execute(&mut under_way).await.unwrap();
    let error = store.claim(&claim_request()).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    let cancelled = submit(&store, &request("trips", "b", &["p=2"])).await.id;
    assert!(matches!(store.cancel(cancelled).await.unwrap(), Cancelled::Now));
    sqlx::raw_sql("rollback").execute(&mut under_way).await.unwrap();
    assert_eq!(store.claim(&claim_request()).await.unwrap().unwrap().run.id, run);
    let lock = "begin; select pg_advisory_xact_lock(hashtextextended('refrain/trips', 0))";
    sqlx::raw_sql(lock).execute(&mut under_way).await.unwrap();
    let error = store.retry(cancelled, None, &definition("trips", 1)).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    under_way.close().await.unwrap();
    drop(store);
    database.drop().await;
}

/// The network forgets the connections that lie idle, without a word: each is found out before it is used.
#[tokio::test(flavor = "multi_thread")]
async fn connections_that_lead_nowhere_cost_no_step() {
    let database = PostgresDatabase::create().await;
    let proxy = Proxy::before(database.url().expose_secret()).await;
    let patient = PostgresOptions { trusted_idle: Duration::ZERO, ..PostgresOptions::default() };
    let store = PostgresStore::connect(&proxy.url().to_owned().into(), patient).await.unwrap();
    store.migrate().await.unwrap();
    let at_once = futures::future::join_all((0..4).map(|_| store.ping())).await;
    assert!(at_once.iter().all(Result::is_ok), "{at_once:?}");
    proxy.set(Network::Swallowed);
    proxy.set(Network::Open);
    for _ in 0..4 {
        store.ping().await.unwrap();
    }
    drop(store);
    database.drop().await;
}

/// The server ends all connections, as it does when it starts anew or is restored: what is asked just afterwards meets those that
/// were used just before, and none of it fails.
#[tokio::test(flavor = "multi_thread")]
async fn connections_that_the_server_ended_cost_no_step() {
    let database = PostgresDatabase::create().await;
    let store = PostgresStore::connect(&database.url(), PostgresOptions::default()).await.unwrap();
    store.migrate().await.unwrap();
    let run = submit(&store, &request("trips", "a", &["p=1"])).await;
    let mut other = PgConnection::connect_with(&database.options).await.unwrap();
    let mut end_all = async || {
        let at_once = futures::future::join_all((0..6).map(|_| store.ping())).await;
        assert!(at_once.iter().all(Result::is_ok), "{at_once:?}");
        let end = "select pg_terminate_backend(pid, 10000) from pg_stat_activity
            where datname = current_database() and application_name = 'refrain'";
        let ended: Vec<bool> = sqlx::query_scalar(end).fetch_all(&mut other).await.unwrap();
        assert!(ended.len() > 3 && ended.iter().all(|ended| *ended), "{ended:?}");
    };
    end_all().await;
    assert_eq!(store.get(run.id).await.unwrap(), Some(run.clone()), "one statement");
    end_all().await;
    assert_eq!(store.list(&RunFilter { limit: 10, ..RunFilter::default() }).await.unwrap().len(), 1, "a snapshot");
    end_all().await;
    submit(&store, &request("trips", "b", &["p=1"])).await;
    end_all().await;
    assert!(matches!(store.cancel(run.id).await.unwrap(), Cancelled::Now), "a transaction that writes");
    other.close().await.unwrap();
    drop(store);
    database.drop().await;
}

/// A statement that takes long is waited for as long as the server can be reached, and no longer.
#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_hangs_in_the_middle_of_a_statement_is_found_out() {
    let database = PostgresDatabase::create().await;
    let proxy = Proxy::before(database.url().expose_secret()).await;
    let patient = PostgresOptions::default();
    let store = PostgresStore::connect(&proxy.url().to_owned().into(), patient).await.unwrap();
    store.migrate().await.unwrap();
    let run = submit(&store, &request("trips", "a", &["p=1"])).await.id;
    let mut blocker = PgConnection::connect_with(&database.options).await.unwrap();
    sqlx::raw_sql("begin; lock table runs in exclusive mode").execute(&mut blocker).await.unwrap();
    let store = std::sync::Arc::new(store);
    let cancelling = tokio::spawn({
        let store = store.clone();
        async move { store.cancel(run).await }
    });
    // Longer than a silence is believed.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(!cancelling.is_finished(), "the server is there, and the statement takes long");
    proxy.set(Network::Held);
    let since = Instant::now();
    let error = cancelling.await.unwrap().unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    assert!(since.elapsed() < Duration::from_secs(12), "{:?}", since.elapsed());
    blocker.close().await.unwrap();
    drop(store);
    database.drop().await;
}

/// The network swallows what is sent, without a word: every step is unavailable in bounded time, and when it is over the
/// store works again.
#[tokio::test]
async fn a_network_that_hangs_is_unavailable_in_bounded_time_and_passes() {
    let database = PostgresDatabase::create().await;
    let proxy = Proxy::before(database.url().expose_secret()).await;
    let store = PostgresStore::connect(&proxy.url().to_owned().into(), hasty()).await.unwrap();
    store.migrate().await.unwrap();
    let run = submit(&store, &request("trips", "a", &["p=1"])).await;
    proxy.set(Network::Held);
    for n in 0..4 {
        let since = Instant::now();
        let error = store.submit(&request("trips", &format!("cut-{n}"), &["p=1"])).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
        assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
    }
    proxy.set(Network::Open);
    assert_eq!(store.get(run.id).await.unwrap(), Some(run));
    drop(store);
    database.drop().await;
}

/// A server that dies while runs take their numbers has given none; the next one gives each its own, in their order.
#[tokio::test(flavor = "multi_thread")]
async fn runs_whose_numbers_a_dead_server_was_about_to_give_take_one_each() {
    let database = PostgresDatabase::create().await;
    let open = async || PostgresStore::connect(&database.url(), PostgresOptions::default()).await.unwrap();
    let (dying, next) = (std::sync::Arc::new(open().await), open().await);
    next.migrate().await.unwrap();
    let mut due = Vec::new();
    for (name, minutes) in [("third", 3), ("first", 1), ("second", 2)] {
        let mut asked = request("trips", name, &["p=1"]);
        asked.asked.not_before = Some(chrono::Utc::now() + chrono::TimeDelta::minutes(minutes));
        due.push(submit(&next, &asked).await.id);
    }
    let (third, first, second) = (due[0], due[1], due[2]);
    let mut other = PgConnection::connect_with(&database.options).await.unwrap();
    let hour_passes = "update runs set due_at = due_at - interval '1 hour'";
    let hold_one = "begin; select * from runs where idempotency_key = 'second' for update";
    for statement in [hour_passes, hold_one] {
        sqlx::raw_sql(statement).execute(&mut other).await.unwrap();
    }
    let claiming = tokio::spawn(async move { dying.claim(&claim_request()).await });
    let mut watcher = PgConnection::connect_with(&database.options).await.unwrap();
    let kill = "select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock' and query like '%nextval%for update%'
            or datname = current_database() and wait_event_type = 'Lock' and query like '%for update%nextval%'";
    while sqlx::query(kill).fetch_all(&mut watcher).await.unwrap().is_empty() {
        assert!(!claiming.is_finished(), "nobody was about to give numbers");
        tokio::task::yield_now().await;
    }
    let died = claiming.await.unwrap();
    assert!(matches!(died, Err(StoreError::Unavailable(_))), "{died:?}");
    for id in [first, second, third] {
        assert!(next.get(id).await.unwrap().unwrap().sequence < 0, "none was given");
    }
    sqlx::raw_sql("rollback").execute(&mut other).await.unwrap();
    assert_eq!(next.claim(&claim_request()).await.unwrap().unwrap().run.id, first);
    let numbers = "select sequence from runs where sequence > 0 order by due_at";
    let numbers: Vec<i64> = sqlx::query_scalar(numbers).fetch_all(&mut watcher).await.unwrap();
    assert!(numbers.len() == 3 && numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    let reserved = "select sequence from reservations order by sequence";
    assert_eq!(sqlx::query_scalar::<_, i64>(reserved).fetch_all(&mut watcher).await.unwrap(), numbers);
    assert!(next.claim(&claim_request()).await.unwrap().is_none(), "the others wait for the first");
    for connection in [other, watcher] {
        connection.close().await.unwrap();
    }
    drop(next);
    database.drop().await;
}

/// A claimer that had to wait for the pipeline gives those their numbers whose time came meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_claimer_that_waited_for_the_pipeline_sees_whose_time_has_come() {
    let database = PostgresDatabase::create().await;
    let store = PostgresStore::connect(&database.url(), PostgresOptions::default()).await.unwrap();
    let store = std::sync::Arc::new(store);
    store.migrate().await.unwrap();
    let mut asked = request("trips", "due", &["p=1"]);
    asked.asked.not_before = Some(chrono::Utc::now() + chrono::TimeDelta::hours(1));
    let due = submit(&*store, &asked).await.id;
    let mut holder = PgConnection::connect_with(&database.options).await.unwrap();
    let hour_passes = "update runs set due_at = due_at - interval '1 hour'";
    let hold_pipeline = "begin; select pg_advisory_xact_lock(hashtextextended('refrain/trips', 0))";
    for statement in [hour_passes, hold_pipeline] {
        sqlx::raw_sql(statement).execute(&mut holder).await.unwrap();
    }
    let claiming = tokio::spawn({
        let store = store.clone();
        async move { store.claim(&claim_request()).await.unwrap() }
    });
    let waits = "select exists (select 1 from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock' and query like '%pg_advisory_xact_lock(%')";
    let mut watcher = PgConnection::connect_with(&database.options).await.unwrap();
    while !sqlx::query_scalar::<_, bool>(waits).fetch_one(&mut watcher).await.unwrap() {
        assert!(!claiming.is_finished(), "the claim did not wait for the pipeline");
        tokio::task::yield_now().await;
    }
    assert!(store.get(due).await.unwrap().unwrap().sequence < 0, "numbers are drawn under the lock");
    sqlx::raw_sql("rollback").execute(&mut holder).await.unwrap();
    assert_eq!(claiming.await.unwrap().map(|claimed| claimed.run.id), Some(due));
    for connection in [holder, watcher] {
        connection.close().await.unwrap();
    }
    drop(store);
    database.drop().await;
}
