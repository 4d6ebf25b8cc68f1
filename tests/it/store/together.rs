//! Questions and submissions that the store is asked together.

use super::bed::{Bed, PostgresDatabase};
use super::make::{definition, fail, request, run, submit, submitted};
use refrain::run::{Principal, RunId};
use refrain::store::{
    NewRun, PostgresOptions, PostgresStore, RunStore, SqliteOptions, SqliteStore, StoreError, Submitted,
};
use std::sync::Arc;

const A: &str = "month=2024-01";

pub(crate) async fn runs_that_are_asked_for_together_are_each_as_alone(bed: &Bed) {
    let (one, other) =
        (submitted(bed, "one", &[A, "month=2024-02"]).await, submitted(bed, "other", &["month=2024-03"]).await);
    fail(bed, one).await;
    let mut found = bed.store.runs(&[other, RunId::new(), one]).await.unwrap();
    found.sort_by_key(|run| run.id);
    assert_eq!(found, [run(bed, one).await, run(bed, other).await], "and the one that there is not is left out");
    assert_eq!(found[0].attempts.len(), 1);
    assert_eq!(bed.store.runs(&[]).await.unwrap(), []);
}

pub(crate) async fn keys_that_are_asked_for_together_belong_to_their_principals(bed: &Bed) {
    let mine = request("trips", "same", &[A]);
    let theirs = NewRun { principal: Principal("some\"body".to_owned()), ..request("trips", "same", &[A]) };
    let (mine, theirs) = (submit(&*bed.store, &mine).await, submit(&*bed.store, &theirs).await);
    let free = request("trips", "free", &[A]);
    let key = |run: &refrain::run::Run| (run.principal.clone(), run.idempotency_key.clone());
    let asked = [key(&theirs), (free.principal.clone(), free.idempotency_key.clone()), key(&mine)];
    let mut known = bed.store.known_keys(&asked).await.unwrap();
    known.sort_by_key(|known| known.run_id);
    let found: Vec<_> = known.iter().map(|known| known.run.clone().unwrap()).collect();
    assert_eq!(found, [mine.clone(), theirs]);
    assert_eq!(
        (&known[0].fingerprint, &known[0].accepted_with),
        (&mine.asked.fingerprint(), &definition("trips", 1).hash)
    );
}

pub(crate) async fn submissions_together_are_each_accepted_or_not(bed: &Bed) {
    let taken = submitted(bed, "taken", &[A]).await;
    let asked = [
        request("zones", "z", &[A]),
        request("trips", "taken", &["month=2024-02"]),
        request("trips", "twice", &["month=2024-03"]),
        request("trips", "twice", &["month=2024-04"]),
        request("trips", "a", &[]),
    ];
    let answers = bed.store.submit_together(&asked.iter().collect::<Vec<_>>()).await.unwrap();
    let is_new: Vec<bool> = answers.iter().map(|answer| matches!(answer, Submitted::New(_))).collect();
    assert_eq!(is_new, [true, false, true, false, true], "{answers:?}");
    for (asked, answer) in asked.iter().zip(answers) {
        match answer {
            Submitted::New(accepted) => assert_eq!((*accepted, asked.id), (run(bed, asked.id).await, asked.id)),
            Submitted::KeyTaken => assert!(bed.store.get(asked.id).await.unwrap().is_none()),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(bed.store.queue_depth().await.unwrap().queued, 4);
    assert_eq!(run(bed, taken).await.partitions.len(), 1);
}

pub(crate) async fn of_submissions_together_that_fail_none_is_there(bed: &Bed) {
    let good = request("trips", "good", &[A]);
    let mut bad = request("trips", "bad", &["month=2024-02"]);
    bad.asked.priority = i32::MAX;
    let refused = bed.store.submit_together(&[&good, &bad]).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    assert!(bed.store.get(good.id).await.unwrap().is_none());
    submit(&*bed.store, &good).await;
}

/// Two servers that take the same keys, each in its own order.
pub(crate) async fn two_storms_of_the_same_keys_make_one_run_each(bed: &Bed) {
    let storms = (0..16).map(|n| {
        let store = Arc::clone(if n % 2 == 0 { &bed.store } else { &bed.other });
        tokio::spawn(async move {
            let mut asked: Vec<_> =
                (0..8).map(|key| request(&format!("p{}", key % 3), &format!("key-{key}"), &[A])).collect();
            asked.rotate_left(n % 8);
            if n % 3 == 0 {
                asked.reverse();
            }
            let answers = store.submit_together(&asked.iter().collect::<Vec<_>>()).await.unwrap();
            answers.iter().filter(|answer| matches!(answer, Submitted::New(_))).count()
        })
    });
    let accepted: usize = futures::future::join_all(storms).await.into_iter().map(Result::unwrap).sum();
    assert_eq!((accepted, bed.store.queue_depth().await.unwrap().queued), (8, 8));
}

#[tokio::test]
async fn one_too_many_is_refused_alone_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteOptions { max_queued_runs: Some(2), ..SqliteOptions::default() };
    one_too_many(&SqliteStore::open(&folder.path().join("db"), options).await.unwrap()).await;
}

#[tokio::test]
async fn one_too_many_is_refused_alone_on_postgres() {
    let database = PostgresDatabase::create().await;
    let options = PostgresOptions { max_queued_runs: Some(2), ..PostgresOptions::default() };
    let store = PostgresStore::connect(&database.url(), options).await.unwrap();
    store.migrate().await.unwrap();
    one_too_many(&store).await;
    drop(store);
    database.drop().await;
}

async fn one_too_many(store: &dyn RunStore) {
    let somebody = Principal("somebody".to_owned());
    let asked = [
        request("trips", "1", &[A]),
        request("trips", "2", &[A]),
        request("trips", "3", &[A]),
        NewRun { principal: somebody, ..request("trips", "4", &[A]) },
    ];
    let answers = store.submit_together(&asked.iter().collect::<Vec<_>>()).await.unwrap();
    assert!(matches!(answers[2], Submitted::TooManyQueued(2)), "{answers:?}");
    assert!([0, 1, 3].iter().all(|n| matches!(answers[*n], Submitted::New(_))), "{answers:?}");
    assert_eq!(store.queue_depth().await.unwrap().queued, 3);
    let refused = &asked[2];
    assert!(store.get(refused.id).await.unwrap().is_none());
    assert!(store.known_key(&refused.principal, &refused.idempotency_key).await.unwrap().is_none());
}
