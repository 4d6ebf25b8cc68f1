//! How many runs of one principal may be queued, over both databases.

use super::bed::PostgresDatabase;
use super::make::{claim_request, ended, request};
use refrain::run::{AttemptOutcome, Principal, RunId, State};
use refrain::store::{
    Claimed, NewRun, PostgresOptions, PostgresStore, RunFilter, RunStore, SqliteOptions, SqliteStore, Submitted,
};
use sqlx::{Connection, PgConnection};

const LIMIT: u32 = 6;
const ROUNDS: u32 = 120;
const PRINCIPALS: [&str; 2] = ["a", "b"];

#[tokio::test]
async fn the_limit_holds_however_runs_come_and_go_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteOptions { max_queued_runs: Some(LIMIT), ..SqliteOptions::default() };
    let store = SqliteStore::open(&folder.path().join("db"), options).await.unwrap();
    runs_come_and_go(&[&store]).await;
}

#[tokio::test]
async fn the_limit_holds_however_runs_come_and_go_on_postgres() {
    let database = PostgresDatabase::create().await;
    let (store, other) = (connected(&database, LIMIT).await, connected(&database, LIMIT).await);
    store.migrate().await.unwrap();
    runs_come_and_go(&[&store, &other]).await;
    drop((store, other));
    database.drop().await;
}

#[tokio::test]
async fn each_server_has_its_own_limit_and_a_long_queue_is_not_counted_anew() {
    let database = PostgresDatabase::create().await;
    let (store, narrow) = (connected(&database, 1000).await, connected(&database, 3).await);
    store.migrate().await.unwrap();
    let mut connection = PgConnection::connect_with(&database.options).await.unwrap();
    let mut counted_at = Vec::new();
    for n in 0..4 {
        submit(&store, &[of("a", n, n)]).await;
        let when = sqlx::query_scalar::<_, Option<i64>>("select counted_at from turns where principal = 'a'");
        counted_at.push(when.fetch_one(&mut connection).await.unwrap());
    }
    assert_eq!(counted_at, [Some(0); 4], "before the first number was drawn");
    assert!(matches!(submit(&narrow, &[of("a", 9, 0)]).await[..], [Submitted::TooManyQueued(3)]));
    assert!(matches!(submit(&store, &[of("a", 9, 0)]).await[..], [Submitted::New(_)]));
    connection.close().await.unwrap();
    drop((store, narrow));
    database.drop().await;
}

/// They are queued again without a number, so that the numbers drawn say nothing of them.
#[tokio::test]
async fn attempts_that_come_back_to_the_queue_are_counted() {
    let database = PostgresDatabase::create().await;
    let store = connected(&database, 3).await;
    store.migrate().await.unwrap();
    let full = submit(&store, &[of("a", 0, 0), of("a", 1, 1), of("a", 2, 2), of("a", 3, 3)]).await;
    assert!(matches!(full[3], Submitted::TooManyQueued(3)), "{full:?}");
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(store.claim(&claim_request()).await.unwrap().unwrap());
    }
    assert!(matches!(submit(&store, &[of("a", 4, 4)]).await[..], [Submitted::New(_)]));
    for claimed in held {
        let back = ended(AttemptOutcome::Released, None, None);
        let _ = store.end_attempt(claimed.run.id, claimed.token, &back).await.unwrap();
    }
    assert!(matches!(submit(&store, &[of("a", 5, 5)]).await[..], [Submitted::TooManyQueued(3)]));
    drop(store);
    database.drop().await;
}

async fn connected(database: &PostgresDatabase, limit: u32) -> PostgresStore {
    let options = PostgresOptions { max_queued_runs: Some(limit), ..PostgresOptions::default() };
    PostgresStore::connect(&database.url(), options).await.unwrap()
}

fn of(principal: &str, key: u32, partition: u32) -> NewRun {
    let run = request("trips", &format!("key-{key}"), &[&format!("part={partition}")]);
    NewRun { principal: Principal(principal.to_owned()), ..run }
}

async fn submit(store: &dyn RunStore, asked: &[NewRun]) -> Vec<Submitted> {
    store.submit_together(&asked.iter().collect::<Vec<_>>()).await.unwrap()
}

/// Always the same numbers, one after the other.
struct Dice(u32);

impl Dice {
    fn below(&mut self, n: u32) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 16) % n
    }
}

/// Batches of both principals, beside claims, attempts that come back to the queue, and cancellations: as many are let in as there is room for.
async fn runs_come_and_go(stores: &[&dyn RunStore]) {
    let (mut dice, mut key, mut refused) = (Dice(1), 0, 0);
    let mut held: Vec<Claimed> = Vec::new();
    assert!(matches!(submit(stores[0], &[known()]).await[..], [Submitted::New(_)]));
    for round in 0..ROUNDS {
        let store = stores[(round as usize) % stores.len()];
        match dice.below(8) {
            0..4 => {
                let mut asked = Vec::new();
                for _ in 0..=dice.below(5) {
                    key += 1;
                    asked.push(of(PRINCIPALS[dice.below(2) as usize], key, dice.below(9)));
                }
                asked.push(known());
                refused += let_in(store, &asked).await;
            }
            4 => held.extend(store.claim(&claim_request()).await.unwrap()),
            5..7 => {
                for claimed in held.drain(..) {
                    let back = ended(AttemptOutcome::Released, None, None);
                    let _ = store.end_attempt(claimed.run.id, claimed.token, &back).await.unwrap();
                }
            }
            _ => {
                for id in queued(store, PRINCIPALS[dice.below(2) as usize]).await.into_iter().skip(2) {
                    drop(store.cancel(id).await.unwrap());
                }
            }
        }
    }
    assert!(refused > 20, "{refused} were refused: too few");
}

/// Its key is told to be known, whatever room there is.
fn known() -> NewRun {
    of(PRINCIPALS[0], 0, 0)
}

/// Submits, holding the answers against what is queued before; how many were refused.
async fn let_in(store: &dyn RunStore, asked: &[NewRun]) -> usize {
    let mut refused = 0;
    let mut room = Vec::new();
    for principal in PRINCIPALS {
        room.push((LIMIT as usize).saturating_sub(queued(store, principal).await.len()));
    }
    let answers = submit(store, asked).await;
    for (principal, room) in PRINCIPALS.iter().zip(room) {
        let theirs = |answer: &dyn Fn(&Submitted) -> bool| {
            asked.iter().zip(&answers).filter(|(run, told)| run.principal.0 == *principal && answer(told)).count()
        };
        let new = theirs(&|told| matches!(told, Submitted::New(_)));
        let too_many = theirs(&|told| matches!(told, Submitted::TooManyQueued(LIMIT)));
        let taken = usize::from(*principal == PRINCIPALS[0]);
        assert_eq!(theirs(&|told| matches!(told, Submitted::KeyTaken)), taken, "{answers:?}");
        let all = theirs(&|_| true) - taken;
        assert_eq!(
            (new, too_many),
            (all.min(room), all - all.min(room)),
            "{principal} has room for {room}: {answers:?}"
        );
        refused += too_many;
    }
    refused
}

async fn queued(store: &dyn RunStore, principal: &str) -> Vec<RunId> {
    let filter = RunFilter {
        principal: Some(Principal(principal.to_owned())),
        state: Some(State::Queued),
        limit: 1000,
        ..RunFilter::default()
    };
    store.list(&filter).await.unwrap().into_iter().map(|run| run.id).collect()
}
