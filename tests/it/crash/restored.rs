//! The database is restored from an older backup: what came after it is forgotten, and the files are younger than the
//! catalog.

use super::{
    FLAGS, LATER, NEW, assert_well, catalog, catalogued, full, live, made, overwrite, place, staged, stopped, until,
    write_input,
};
use crate::service::{Backup, Place, Store};
use rstest::rstest;
use rustix::process::Signal;
use serde_json::{Value, json};

fn outcomes(run: &Value) -> Vec<&str> {
    run["attempts"].as_array().unwrap().iter().map(|a| a["outcome"].as_str().unwrap_or("-")).collect()
}

/// A table with the old content and its database's backup, and the new input before it.
async fn with_a_backup(store: Store) -> (Place, Backup) {
    let place = place(store).await;
    let server = place.start_with(&FLAGS, &[]).await;
    server.run("first", &full()).await;
    assert!(server.stop().await.success());
    let backup = place.backup().await;
    write_input(&place, NEW);
    (place, backup)
}

/// What ended after the backup is not known any more, and its files are there. Asked for again, it is made again.
#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_forgotten_is_made_again_to_the_byte(#[case] store: Store) {
    let (place, backup) = with_a_backup(store).await;
    let old = catalog(&place).await;
    let server = place.start_with(&FLAGS, &[]).await;
    let forgotten = server.run("second", &full()).await;
    assert!(server.stop().await.success());
    let (files, new) = (live(&place), catalog(&place).await);
    place.restore(&backup).await;
    assert_eq!((live(&place), catalog(&place).await), (files.clone(), old), "the files are younger than the catalog");
    assert!(place.verify().await.is_some_and(|found| found.contains("changed: ") && found.contains("unknown: ")));

    let server = place.start_with(&FLAGS, &[]).await;
    assert_eq!(server.get(&format!("/runs/{}", forgotten["id"].as_str().unwrap())).await.status, 404);
    server.run("second", &full()).await;
    assert_eq!((live(&place), catalog(&place).await), (files, new));
    assert_well(&place).await;
}

/// What was decided before the backup has been published and overwritten since. Its staged files are gone, so it is decided
/// anew, from what the sources are now.
#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn a_decision_that_comes_back_without_its_files_is_made_anew(#[case] store: Store) {
    let (place, _) = with_a_backup(store).await;
    let server = place.start_with(&FLAGS, &[("REFRAIN_FAULT", "decided=kill")]).await;
    let id = server.accept("second", &overwrite()).await;
    server.died().await;
    let backup = place.backup().await;
    let server = place.start_with(&FLAGS, &[]).await;
    assert_eq!(server.wait(&id).await["state"], "succeeded");
    write_input(&place, LATER);
    server.run("later", &overwrite()).await;
    assert!(server.stop().await.success());
    let (files, new) = (live(&place), catalog(&place).await);
    assert!(staged(&place).is_empty());
    place.restore(&backup).await;
    let server = place.start_with(&FLAGS, &[]).await;
    let run = server.wait(&id).await;
    assert_eq!((&run["state"], outcomes(&run)), (&json!("succeeded"), vec!["lost", "staging_lost", "succeeded"]));
    assert_eq!((live(&place), catalog(&place).await), (files, new));
    assert_well(&place).await;
}

/// A worker holds a claim that was made after the backup, of a run that the backup does not have or has as queued.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_was_forgotten_publishes_nothing(
    #[values("staged", "decided")] step: &str,
    #[values(true, false)] queued_before: bool,
) {
    let (place, mut backup) = with_a_backup(Store::Postgres).await;
    if queued_before {
        let server = place.start_with(&["--workers", "0"], &[]).await;
        server.accept("second", &full()).await;
        assert!(server.stop().await.success());
        backup = place.backup().await;
    }
    let (old, files) = (catalogued(&place).await, place.files_of(super::TABLE));
    let mark = place.path("struck");
    let fault = format!("{step}=stop@{}", mark.display());
    let worker = place.launch_with(&FLAGS, &[("REFRAIN_FAULT", &fault)]);
    if !queued_before {
        until("the worker serves", || worker.log().contains("serving")).await;
        worker.accept("second", &full()).await;
    }
    made(&mark).await;
    stopped(&worker).await;
    place.restore(&backup).await;
    assert_eq!(catalogued(&place).await, old);
    worker.signal(Signal::CONT);
    until("the worker says that its lease is lost", || worker.log().contains("the lease is lost")).await;
    if !queued_before {
        assert_eq!(place.files_of(super::TABLE), files, "nothing was published");
        assert_eq!(catalogued(&place).await, old);
    }
    let again = worker.submit("second", &full()).await;
    assert_eq!(again.status, if queued_before { 200 } else { 202 }, "{again:?}");
    let run = worker.wait(&again.run_id()).await;
    assert_eq!((&run["state"], outcomes(&run)), (&json!("succeeded"), vec!["succeeded"]), "{run:#}");
    assert_eq!(live(&place), catalogued(&place).await);
    if queued_before {
        assert!(worker.stop().await.success());
        // What the forgotten claim has staged is swept: the run is known, the token is not.
        place.start_with(&FLAGS, &[]).await;
        return assert_well(&place).await;
    }
    let found = place.verify().await.unwrap();
    assert!(found.contains("which the database does not have") && found.contains(" 1 findings"), "{found}");
}
