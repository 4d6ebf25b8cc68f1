//! The sweeper beside attempts at work: what somebody may need stays, what nobody needs goes.

use super::{FLAGS, NEW, assert_well, full, made, place, staged, until, write_input};
use crate::service::Store;
use refrain::run::ClaimToken;
use rstest::rstest;
use serde_json::json;

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn it_leaves_live_and_decided_attempts_alone(
    #[values(Store::Sqlite, Store::Postgres)] store: Store,
    #[values("staged-2", "decided")] step: &str,
) {
    let place = place(store).await;
    let mark = place.path("struck");
    let fault = format!("{step}=delay:4000@{}", mark.display());
    let server = place.start_with(&FLAGS, &[]).await;
    let ended = server.run("first", &full()).await;
    assert!(server.stop().await.success());
    write_input(&place, NEW);
    let flags = [&FLAGS[..], &["--sweep-seconds", "1"]].concat();
    let server = place.start_with(&flags, &[("REFRAIN_FAULT", &fault)]).await;
    let id = server.accept("second", &full()).await;
    made(&mark).await;
    let at_work = staged(&place);
    assert!(at_work.iter().any(|path| path.contains(&id) && path.ends_with(".parquet")), "{at_work:?}");

    // What an attempt of the ended run would have left: it goes with the next sweep.
    let of_run = place.path("refrain-data/warehouse/.staging").join(ended["id"].as_str().unwrap());
    std::fs::create_dir_all(of_run.join(ClaimToken::new().to_string())).unwrap();
    until("the sweeper was there", || !of_run.exists()).await;
    assert_eq!(staged(&place), at_work);
    let run = server.wait(&id).await;
    assert_eq!((&run["state"], run["attempts"].as_array().unwrap().len()), (&json!("succeeded"), 1), "{run:#}");
    assert_well(&place).await;
}
