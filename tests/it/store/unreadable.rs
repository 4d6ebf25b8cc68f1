//! Runs of which what is kept cannot be read.

use super::bed::Bed;
use super::make::{complete, decided, definition, fail, key, quarantine, request, run, submit, submitted, try_claim};
use refrain::run::{ClaimToken, Mode, Outcome, QuarantineFile, RunId, State};
use refrain::store::{Cancelled, EndedAt, Retried, RunFilter, StagingVerdict, StoreError, UnreadableRun};
use sqlx::AssertSqlSafe;
use std::time::Duration;

const A: &str = "month=2024-01";
const B: &str = "month=2024-02";

/// The run, which cannot be read.
async fn unreadable(bed: &Bed, id: RunId) -> UnreadableRun {
    match bed.store.get(id).await {
        Err(StoreError::UnreadableRun(run)) => *run,
        other => panic!("{other:?}"),
    }
}

async fn spoil(bed: &Bed, statement: String, id: RunId) {
    bed.past_the_store(AssertSqlSafe(format!("update {statement} = '{id}'"))).await.unwrap();
}

pub(crate) async fn a_run_whose_documents_cannot_be_read_says_what_can(bed: &Bed) {
    // What a retry makes anew, and what it needs or leaves.
    for (column, is_healed) in [
        ("sources", true),
        ("warnings", true),
        ("rows", true),
        ("quarantine", false),
        ("asked", false),
        ("progress", false),
        ("error", false),
    ] {
        let id = submit(&*bed.store, &request("trips", column, &[A, B])).await.id;
        fail(bed, id).await;
        spoil(bed, format!("runs set {column} = '7' where id"), id).await;
        let UnreadableRun { control, why } = unreadable(bed, id).await;
        assert_eq!((control.id, control.pipeline.as_str(), control.principal.0.as_str()), (id, "trips", "default"));
        assert_eq!((control.mode, control.state, control.last_attempt), (Mode::Overwrite, State::Failed, 1));
        assert_eq!(control.partitions, [key(A), key(B)]);
        assert!(why.contains(&format!("column \"{column}\"")), "{why}");
        let glances = bed.store.glances(&[id]).await.unwrap();
        assert_eq!((glances.len(), glances[0].state), (1, State::Failed));
        let retried = bed.store.retry(id, Some(1), &definition("trips", 1)).await;
        match column {
            _ if is_healed => {
                assert!(matches!(retried.unwrap(), Retried::Queued));
                complete(bed, id, [A, B].map(|at| decided(at, Outcome::Unchanged, 1)).into()).await;
                assert_eq!(run(bed, id).await.state, State::Succeeded);
            }
            "quarantine" => {
                assert!(matches!(retried.unwrap(), Retried::Queued));
                assert_eq!(unreadable(bed, id).await.control.state, State::Queued);
                assert!(try_claim(bed).await.is_none(), "it is given up");
                assert_eq!(unreadable(bed, id).await.control.state, State::Failed);
            }
            _ => assert!(matches!(retried, Err(StoreError::Corrupt(why)) if why.contains(column))),
        }
    }
    let listed = bed.store.list(&RunFilter { limit: 100, ..RunFilter::default() }).await.unwrap();
    assert_eq!(listed.len(), 7, "none hides the others");
    let of_error = listed.into_iter().find(|run| run.idempotency_key.as_str() == "error").unwrap().error.unwrap();
    assert_eq!(of_error.kind, "run-unreadable");
    assert!(of_error.detail.contains("column \"error\""), "{of_error:?}");
}

pub(crate) async fn a_document_that_cannot_be_read_is_told_with_its_place(bed: &Bed) {
    let id = submitted(bed, "content", &[A, B]).await;
    complete(bed, id, [A, B].map(|at| decided(at, Outcome::Created, 1)).into()).await;
    spoil(bed, format!("run_partitions set content = '7' where partition = '{B}' and run_id"), id).await;
    let UnreadableRun { control, why } = unreadable(bed, id).await;
    assert_eq!((control.state, control.partitions.len()), (State::Succeeded, 2));
    assert!(why.starts_with(&format!("partition {B}: column content cannot be read: ")), "{why}");

    let id = submitted(bed, "attempt", &[A]).await;
    fail(bed, id).await;
    spoil(bed, "attempts set error = '7' where run_id".to_owned(), id).await;
    let why = unreadable(bed, id).await.why;
    assert!(why.starts_with("attempt 1: column error cannot be read: "), "{why}");

    let id = submitted(bed, "waits", &[A]).await;
    spoil(bed, "runs set sources = '7' where id".to_owned(), id).await;
    assert!(matches!(bed.store.cancel(id).await.unwrap(), Cancelled::Now));
    assert_eq!(unreadable(bed, id).await.control.state, State::Cancelled);
}

pub(crate) async fn what_a_run_has_kept_apart_stays_with_it_while_its_record_cannot_be_read(bed: &Bed) {
    let (spoilt, well) = (submitted(bed, "spoilt", &[A]).await, submitted(bed, "well", &[B]).await);
    for id in [spoilt, well] {
        fail(bed, id).await;
    }
    spoil(bed, "runs set quarantine = '7' where id".to_owned(), spoilt).await;
    let file = |run| QuarantineFile { run, token: ClaimToken::new(), path: quarantine("kept").path };
    let verdicts = bed.store.quarantine_verdicts(&[file(spoilt), file(well), file(RunId::new())]).await.unwrap();
    assert_eq!(verdicts, [StagingVerdict::Keep, StagingVerdict::Remove, StagingVerdict::Unknown]);

    bed.age(Duration::from_secs(3600)).await;
    let page = bed.store.prunable(Duration::from_secs(60), EndedAt::default(), 10).await.unwrap();
    assert_eq!(page.runs.iter().map(|run| run.id).collect::<Vec<_>>(), [well]);
}
