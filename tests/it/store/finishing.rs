//! What a finish enters in the catalog: contents, versions, history.

use super::bed::Bed;
use super::make::{
    claim, complete, content, decide, decided, decision, definition, finish, key, publish, request, run, state, submit,
    submitted,
};
use refrain::run::{AttemptOutcome, CatalogEntry, Outcome, RunId, Stage, State};
use refrain::store::Fenced;

const A: &str = "month=2024-01";
const B: &str = "month=2024-02";
const C: &str = "month=2024-03";

async fn version(bed: &Bed) -> i64 {
    bed.store.table_version("trips").await.unwrap()
}

async fn entry(bed: &Bed, partition: &str) -> Option<CatalogEntry> {
    bed.store.entries("trips", Some(&[key(partition)])).await.unwrap().pop()
}

async fn outcomes(bed: &Bed, partition: &str) -> Vec<(i64, Outcome)> {
    let (_, history) = bed.store.partition("trips", &key(partition), None, 100).await.unwrap();
    history.into_iter().map(|h| (h.version, h.outcome)).collect()
}

/// A run of `trips` under another definition.
async fn submit_redefined(bed: &Bed, name: &str, partitions: &[&str]) -> RunId {
    let mut asked = request("trips", name, partitions);
    asked.definition = definition("trips", 2);
    submit(&*bed.store, &asked).await.id
}

pub(crate) async fn a_finished_run_has_its_report(bed: &Bed) {
    let id = submitted(bed, "a", &[A, B]).await;
    let claimed = claim(bed, id).await;
    let mut report = super::make::progress();
    report.partitions = 2;
    let _ = bed.store.renew(id, claimed.token, super::make::LEASE, &report).await.unwrap();
    let partitions = vec![decided(A, Outcome::Created, 3), decided(B, Outcome::Empty, 0)];
    decide(bed, &claimed, partitions.clone()).await;
    let committing = run(bed, id).await;
    assert_eq!(committing.state, State::Committing);
    assert_eq!(committing.progress, Some(decision(Vec::new()).progress));
    finish(bed, &claimed).await;
    let done = run(bed, id).await;
    let expected = decision(partitions.clone());
    assert_eq!((done.rows, done.sources, done.warnings), (Some(expected.rows), expected.sources, expected.warnings));
    for (found, expected) in done.partitions.iter().zip(&partitions) {
        assert_eq!(found.partition, expected.partition);
        assert_eq!((found.outcome, &found.content), (Some(expected.outcome), &expected.content));
        assert_eq!(found.previous, expected.previous);
    }
    assert_eq!(done.state, State::Succeeded);
    assert_eq!(done.attempts[0].outcome, Some(AttemptOutcome::Succeeded));
    assert_eq!(done.ended_at, done.attempts[0].ended_at);
    let progress = done.progress.unwrap();
    assert_eq!((progress.stage, progress.files, progress.rows, progress.rows_read), (Stage::Done, 3, 10, 10));
    assert_eq!((progress.partitions, progress.partitions_staged, progress.partitions_published), (2, 2, 2));
    assert_eq!(entry(bed, A).await.unwrap().committed_at, done.ended_at.unwrap());
}

pub(crate) async fn contents_are_replaced_and_cleared_with_a_version_each(bed: &Bed) {
    assert_eq!(version(bed).await, 0);
    let first = publish(bed, "1", vec![decided(A, Outcome::Created, 3), decided(B, Outcome::Created, 4)]).await;
    assert_eq!(version(bed).await, 1, "one for the run, not one for each partition");
    let second = publish(bed, "2", vec![decided(A, Outcome::Replaced, 5), decided(C, Outcome::Empty, 0)]).await;
    assert_eq!(version(bed).await, 2);
    let replaced = entry(bed, A).await.unwrap();
    assert_eq!((replaced.content, replaced.run_id), (content(5), second));
    let kept = entry(bed, B).await.unwrap();
    assert_eq!((kept.content, kept.run_id), (content(4), first));
    let third = publish(bed, "3", vec![decided(A, Outcome::Cleared, 0)]).await;
    assert_eq!((version(bed).await, entry(bed, A).await), (3, None));
    assert_eq!(entry(bed, C).await, None);
    assert_eq!(outcomes(bed, C).await, []);
    let history = bed.store.partition("trips", &key(A), None, 100).await.unwrap().1;
    let told: Vec<_> = history.iter().map(|h| (h.version, h.run_id, h.outcome, h.content.clone())).collect();
    assert_eq!(
        told,
        [
            (3, third, Outcome::Cleared, None),
            (2, second, Outcome::Replaced, Some(content(5))),
            (1, first, Outcome::Created, Some(content(3))),
        ]
    );
    assert_eq!(history[0].definition, definition("trips", 1).hash);
    assert_eq!(history[0].committed_at, run(bed, third).await.ended_at.unwrap());
    assert_eq!(bed.store.partition("trips", &key(A), None, 1).await.unwrap().1.len(), 1);
    publish(bed, "4", vec![decided(A, Outcome::Created, 3)]).await;
    assert_eq!(outcomes(bed, A).await[0], (4, Outcome::Created));
}

pub(crate) async fn unchanged_leaves_who_wrote_it_and_says_who_confirmed_it(bed: &Bed) {
    let first = publish(bed, "1", vec![decided(A, Outcome::Created, 3)]).await;
    let written = entry(bed, A).await.unwrap();
    let second = publish(bed, "2", vec![decided(A, Outcome::Unchanged, 3), decided(B, Outcome::Empty, 0)]).await;
    let confirmed = entry(bed, A).await.unwrap();
    assert_eq!((confirmed.run_id, confirmed.committed_at), (first, written.committed_at));
    assert_eq!((confirmed.confirmed_by, confirmed.confirmed_at), (Some(second), run(bed, second).await.ended_at));
    assert_eq!((version(bed).await, outcomes(bed, A).await.len()), (1, 1), "nothing changed");
    publish(bed, "3", vec![decided(A, Outcome::Replaced, 3)]).await;
    let replaced = entry(bed, A).await.unwrap();
    assert_eq!((replaced.confirmed_by, replaced.confirmed_at), (None, None));
    assert_eq!(version(bed).await, 2);
}

pub(crate) async fn unchanged_under_a_new_definition_is_a_change(bed: &Bed) {
    let first = publish(bed, "1", vec![decided(A, Outcome::Created, 3)]).await;
    let second = submit_redefined(bed, "2", &[A]).await;
    complete(bed, second, vec![decided(A, Outcome::Unchanged, 3)]).await;
    let moved = entry(bed, A).await.unwrap();
    assert_eq!((moved.run_id, moved.confirmed_by), (first, Some(second)));
    assert_eq!(moved.definition, definition("trips", 2).hash);
    assert_eq!(version(bed).await, 2);
    let history = bed.store.partition("trips", &key(A), None, 100).await.unwrap().1;
    assert_eq!((history[0].version, history[0].outcome), (2, Outcome::Unchanged));
    assert_eq!((history[0].run_id, history[0].content.clone()), (second, Some(content(3))));
    assert_eq!(history[0].definition, definition("trips", 2).hash);
}

/// A measure may be renamed or counted from other rows without a byte of the file changing.
pub(crate) async fn unchanged_files_have_the_totals_that_were_decided(bed: &Bed) {
    let first = publish(bed, "1", vec![decided(A, Outcome::Created, 3), decided(B, Outcome::Created, 4)]).await;
    let written = entry(bed, A).await.unwrap();
    let second = submit_redefined(bed, "2", &[A, B]).await;
    let renamed = |partition, trips| {
        let mut decided = decided(partition, Outcome::Unchanged, trips);
        let content = decided.content.as_mut().unwrap();
        content.totals.0[0].name = "journeys".to_owned();
        content.source_rows += 1;
        decided
    };
    complete(bed, second, vec![renamed(A, 3), decided(B, Outcome::Replaced, 5)]).await;
    let moved = entry(bed, A).await.unwrap();
    assert_eq!(Some(moved.content.clone()), renamed(A, 3).content);
    assert_eq!((moved.run_id, moved.committed_at, moved.confirmed_by), (first, written.committed_at, Some(second)));
    assert_eq!(outcomes(bed, A).await, [(2, Outcome::Unchanged), (1, Outcome::Created)]);
    // Under the same definition too, should it ever be.
    let third = submit_redefined(bed, "3", &[A]).await;
    complete(bed, third, vec![decided(A, Outcome::Unchanged, 3)]).await;
    assert_eq!((entry(bed, A).await.unwrap().content, version(bed).await), (content(3), 3));
    assert_eq!(entry(bed, B).await.unwrap().content, content(5), "no other partition is touched");
}

pub(crate) async fn a_table_tells_the_definitions_of_its_entries(bed: &Bed) {
    let definitions = async |pipeline: &str| bed.store.table_definitions(pipeline).await.unwrap();
    publish(bed, "1", vec![decided(A, Outcome::Created, 3), decided(B, Outcome::Created, 4)]).await;
    assert_eq!(definitions("trips").await, [definition("trips", 1)]);
    let second = submit_redefined(bed, "2", &[A]).await;
    assert_eq!(definitions("trips").await, [definition("trips", 1)], "a queued run has written nothing");
    complete(bed, second, vec![decided(A, Outcome::Replaced, 5)]).await;
    assert_eq!(definitions("trips").await, [definition("trips", 1), definition("trips", 2)]);
    let third = submit_redefined(bed, "3", &[B]).await;
    complete(bed, third, vec![decided(B, Outcome::Cleared, 0)]).await;
    assert_eq!(definitions("trips").await, [definition("trips", 2)]);
    assert_eq!(definitions("fares").await, []);
}

pub(crate) async fn a_full_run_writes_and_clears_what_it_decided(bed: &Bed) {
    publish(bed, "1", vec![decided(A, Outcome::Created, 3), decided(B, Outcome::Created, 4)]).await;
    let full = submitted(bed, "full", &[]).await;
    assert!(run(bed, full).await.partitions.is_empty());
    let partitions =
        vec![decided(A, Outcome::Unchanged, 3), decided(B, Outcome::Cleared, 0), decided(C, Outcome::Created, 9)];
    complete(bed, full, partitions).await;
    assert_eq!(version(bed).await, 2);
    let entries = bed.store.entries("trips", None).await.unwrap();
    let told: Vec<_> = entries.iter().map(|e| (e.partition.as_str(), e.content.rows)).collect();
    assert_eq!(told, [(A, 3), (C, 9)]);
}

pub(crate) async fn lost_staging_keeps_what_is_live_and_queues_the_rest(bed: &Bed) {
    publish(bed, "1", vec![decided(A, Outcome::Created, 1), decided(B, Outcome::Created, 1)]).await;
    let id = submitted(bed, "2", &[A, B, C]).await;
    let sequence = run(bed, id).await.sequence;
    let claimed = claim(bed, id).await;
    let partitions =
        vec![decided(A, Outcome::Replaced, 2), decided(B, Outcome::Cleared, 0), decided(C, Outcome::Created, 2)];
    decide(bed, &claimed, partitions).await;
    let lost = bed.store.staging_lost(id, claimed.token, &[key(A), key(B)]).await.unwrap();
    assert_eq!(lost, Fenced::Done);
    assert_eq!(version(bed).await, 2);
    let live = entry(bed, A).await.unwrap();
    assert_eq!((live.content, live.run_id), (content(2), id));
    assert_eq!((entry(bed, B).await, entry(bed, C).await), (None, None));
    assert_eq!(outcomes(bed, A).await[0], (2, Outcome::Replaced));
    assert_eq!(outcomes(bed, C).await, []);
    let queued = run(bed, id).await;
    assert_eq!((queued.state, queued.sequence), (State::Queued, sequence));
    assert!(queued.partitions.iter().all(|p| p.outcome.is_none() && p.content.is_none() && p.previous.is_none()));
    assert_eq!(queued.progress, None, "it begins anew");
    assert_eq!((queued.rows, queued.sources.len(), queued.warnings.len()), (None, 0, 0), "the report goes with it");
    assert_eq!(queued.attempts[0].outcome, Some(AttemptOutcome::StagingLost));
    let again = vec![decided(A, Outcome::Unchanged, 2), decided(B, Outcome::Empty, 0), decided(C, Outcome::Created, 2)];
    complete(bed, id, again).await;
    assert_eq!((version(bed).await, state(bed, id).await), (3, State::Succeeded));
}

pub(crate) async fn lost_staging_of_a_full_run_forgets_its_scope(bed: &Bed) {
    let id = submitted(bed, "full", &[]).await;
    let claimed = claim(bed, id).await;
    decide(bed, &claimed, vec![decided(A, Outcome::Created, 2), decided(B, Outcome::Created, 2)]).await;
    assert_eq!(bed.store.staging_lost(id, claimed.token, &[]).await.unwrap(), Fenced::Done);
    assert_eq!((version(bed).await, run(bed, id).await.partitions.len()), (0, 0));
    complete(bed, id, vec![decided(C, Outcome::Created, 2)]).await;
    assert_eq!(run(bed, id).await.partitions.len(), 1);
}

pub(crate) async fn disjoint_runs_finish_at_once(bed: &Bed) {
    let keys: Vec<String> = (10..30).map(|n| format!("day=2024-01-{n}")).collect();
    let mut claims = Vec::new();
    for name in &keys {
        let id = submitted(bed, name, &[name]).await;
        let claimed = claim(bed, id).await;
        decide(bed, &claimed, vec![decided(name, Outcome::Created, 1)]).await;
        claims.push(claimed);
    }
    let finishes = claims.iter().enumerate().map(|(n, claimed)| {
        let store = std::sync::Arc::clone(if n % 2 == 0 { &bed.store } else { &bed.other });
        let (id, token) = (claimed.run.id, claimed.token);
        tokio::spawn(async move { store.finish(id, token).await.unwrap() })
    });
    for done in futures::future::join_all(finishes).await {
        assert_eq!(done.unwrap(), Fenced::Done);
    }
    assert_eq!(version(bed).await, 20, "no version is lost");
}
