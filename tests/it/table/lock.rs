//! The publish lock.

use super::*;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

#[test]
fn one_holder_per_pipeline() {
    let f = Fixture::new();
    let lock = f.lock();
    // A lock is of an open file, so that two in one process contend as two processes do.
    assert!(f.warehouse.try_publish_lock(TABLE, &holder()).unwrap().is_none());
    assert!(f.warehouse.try_publish_lock("other", &holder()).unwrap().is_some());
    drop(lock);
    assert!(f.warehouse.try_publish_lock(TABLE, &holder()).unwrap().is_some());
    assert!(f.warehouse.root().join(".locks/zone_hour").exists(), "a lock's file is never removed");
}

#[test]
fn the_lock_tells_who_holds_it() {
    let f = Fixture::new();
    assert_eq!(f.warehouse.lock_holder(TABLE), None);
    let first = Holder { worker: "w".repeat(3000), ..holder() };
    let lock = f.warehouse.try_publish_lock(TABLE, &first).unwrap().unwrap();
    assert_eq!(f.warehouse.lock_holder(TABLE).as_ref(), Some(&first));
    drop(lock);
    assert_eq!(f.warehouse.lock_holder(TABLE), None);

    let second = Holder { run: None, ..holder() };
    let _lock = f.warehouse.try_publish_lock(TABLE, &second).unwrap().unwrap();
    assert_eq!(f.warehouse.lock_holder(TABLE).as_ref(), Some(&second));
    assert!(f.warehouse.try_publish_lock(TABLE, &first).unwrap().is_none());
    assert_eq!(f.warehouse.lock_holder(TABLE).as_ref(), Some(&second), "one who did not get it wrote in it");
}

#[test]
fn a_text_left_by_a_dead_holder_is_no_holder() {
    let f = Fixture::new();
    drop(f.lock());
    let dead = Holder { worker: "w".repeat(3000), ..holder() };
    fs::write(f.warehouse.root().join(".locks/zone_hour"), serde_json::to_string(&dead).unwrap()).unwrap();
    assert_eq!(f.warehouse.lock_holder(TABLE), None);
    // Nothing of its text is left in that of the next.
    let _lock = f.lock();
    assert_eq!(f.warehouse.lock_holder(TABLE).unwrap().worker, "worker-1");
}

#[tokio::test]
async fn a_waiter_gets_the_lock_when_it_is_let_go() {
    let f = Fixture::new();
    let lock = f.lock();
    let (who, cancel) = (holder(), CancellationToken::new());
    let mut waiter = Box::pin(f.warehouse.publish_lock(TABLE, &who, &cancel));
    assert!(tokio::time::timeout(Duration::from_millis(150), &mut waiter).await.is_err(), "two hold the lock");
    drop(lock);
    let lock = waiter.await.unwrap().unwrap();
    assert_eq!(lock.pipeline(), TABLE);
    assert_eq!(f.warehouse.lock_holder(TABLE), Some(who));
}

#[tokio::test]
async fn waiting_ends_when_it_is_cancelled() {
    let f = Fixture::new();
    let _lock = f.lock();
    let cancel = CancellationToken::new();
    let (warehouse, token) = (f.warehouse.clone(), cancel.clone());
    let waiter = tokio::spawn(async move { warehouse.publish_lock(TABLE, &holder(), &token).await });
    cancel.cancel();
    assert!(waiter.await.unwrap().unwrap().is_none());
}

#[tokio::test]
async fn a_wait_that_is_given_up_leaves_no_lock_behind() {
    let f = Fixture::new();
    let (who, cancel) = (holder(), CancellationToken::new());
    for _ in 0..50 {
        let wait = f.warehouse.publish_lock(TABLE, &who, &cancel);
        let _ = tokio::time::timeout(Duration::ZERO, wait).await;
    }
    assert!(f.warehouse.publish_lock(TABLE, &who, &cancel).await.unwrap().is_some());
}

#[test]
fn publishers_go_one_after_the_other() {
    let f = Fixture::new();
    let path = f.folder.path().join("count");
    fs::write(&path, "0").unwrap();
    let add = || {
        for _ in 0..20 {
            let lock = loop {
                if let Some(lock) = f.warehouse.try_publish_lock(TABLE, &holder()).unwrap() {
                    break lock;
                }
                std::thread::yield_now();
            };
            let count: u32 = fs::read_to_string(&path).unwrap().parse().unwrap();
            fs::write(&path, (count + 1).to_string()).unwrap();
            drop(lock);
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(add))));
    assert_eq!(fs::read_to_string(&path).unwrap(), "80");
}
