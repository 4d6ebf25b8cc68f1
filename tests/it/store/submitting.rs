//! Submit, look up, cancel, retry.

use super::bed::Bed;
use super::make::{
    LEASE, claim, complete, decide, decided, definition, fail, finish, nothing_to_claim, publish, request, run, state,
    submit, submitted,
};
use chrono::TimeDelta;
use refrain::run::{Mode, OnOverlap, Outcome, Principal, State};
use refrain::store::{Cancelled, Renewal, Retried, Submitted};
use std::sync::Arc;

pub(crate) async fn a_submitted_run_is_what_was_asked(bed: &Bed) {
    let asked = request("trips", "key-1", &["month=2024-01", "month=2024-02"]);
    let accepted = submit(&*bed.store, &asked).await;
    assert_eq!(accepted, run(bed, asked.id).await);
    assert_eq!((accepted.state, accepted.mode), (State::Queued, Mode::Overwrite));
    assert_eq!((accepted.principal, accepted.idempotency_key), (asked.principal, asked.idempotency_key));
    assert_eq!(accepted.pipeline, "trips");
    let partitions: Vec<_> = accepted.partitions.iter().map(|p| p.partition.as_str()).collect();
    assert_eq!(partitions, ["month=2024-01", "month=2024-02"]);
    assert!(accepted.partitions.iter().all(|p| p.outcome.is_none() && p.content.is_none()));
    assert_eq!(accepted.definition, asked.definition.hash);
    assert_eq!((accepted.started_at, accepted.ended_at, accepted.rows), (None, None, None));
    assert_eq!(accepted.due_at, accepted.created_at);
    assert!(bed.store.get(refrain::run::RunId::new()).await.unwrap().is_none());
}

pub(crate) async fn a_key_is_known_with_the_definition_of_its_acceptance(bed: &Bed) {
    let asked = request("trips", "key-1", &["month=2024-01"]);
    let principal = Principal::default();
    assert_eq!(bed.store.known_key(&principal, &asked.idempotency_key).await.unwrap(), None);
    let id = submit(&*bed.store, &asked).await.id;
    fail(bed, id).await;
    let Retried::Queued = bed.store.retry(id, None, &definition("trips", 2)).await.unwrap() else { panic!("no retry") };
    let known = bed.store.known_key(&principal, &asked.idempotency_key).await.unwrap().unwrap();
    assert_eq!((known.run_id, known.run), (id, Ok(run(bed, id).await)));
    assert_eq!(known.fingerprint, asked.asked.fingerprint());
    assert_eq!(known.asked, asked.asked);
    assert_eq!(known.accepted_with, asked.definition.hash);
    assert_eq!(bed.store.definitions(&[known.accepted_with]).await.unwrap(), [asked.definition]);
    let somebody = Principal("somebody".to_owned());
    assert_eq!(bed.store.known_key(&somebody, &asked.idempotency_key).await.unwrap(), None);
}

pub(crate) async fn a_taken_key_changes_nothing(bed: &Bed) {
    let first = submitted(bed, "key-1", &["month=2024-01"]).await;
    let mut second = request("trips", "key-1", &["month=2024-02"]);
    second.definition = definition("trips", 2);
    assert!(matches!(bed.store.submit(&second).await.unwrap(), Submitted::KeyTaken));
    assert!(bed.store.get(second.id).await.unwrap().is_none());
    assert_eq!(bed.store.queue_depth().await.unwrap().queued, 1);
    second.principal = Principal("somebody".to_owned());
    assert!(matches!(bed.store.submit(&second).await.unwrap(), Submitted::New(_)), "keys belong to a principal");
    assert!(run(bed, first).await.sequence < run(bed, second.id).await.sequence);
}

pub(crate) async fn a_storm_under_one_key_makes_one_run(bed: &Bed) {
    let storm = (0..64).map(|n| {
        let store = Arc::clone(if n % 2 == 0 { &bed.store } else { &bed.other });
        tokio::spawn(async move { store.submit(&request("trips", "storm", &["month=2024-01"])).await })
    });
    let mut accepted = 0;
    for answer in futures::future::join_all(storm).await {
        match answer.unwrap().unwrap() {
            Submitted::New(_) => accepted += 1,
            Submitted::KeyTaken => {}
            refused => panic!("{refused:?}"),
        }
    }
    assert_eq!(accepted, 1);
    assert_eq!(bed.store.queue_depth().await.unwrap().queued, 1);
}

pub(crate) async fn a_queued_run_is_cancelled_at_once(bed: &Bed) {
    let id = submitted(bed, "a", &["month=2024-01"]).await;
    assert!(matches!(bed.store.cancel(id).await.unwrap(), Cancelled::Now));
    let cancelled = run(bed, id).await;
    assert_eq!(cancelled.state, State::Cancelled);
    assert!(cancelled.ended_at.is_some());
    assert!(matches!(bed.store.cancel(id).await.unwrap(), Cancelled::Now), "cancelling again is the same");
    assert_eq!(run(bed, id).await, cancelled);
    nothing_to_claim(bed).await;
    assert!(matches!(bed.store.cancel(refrain::run::RunId::new()).await.unwrap(), Cancelled::Unknown));
}

pub(crate) async fn a_running_run_is_asked_to_stop(bed: &Bed) {
    let id = submitted(bed, "a", &["month=2024-01"]).await;
    let claimed = claim(bed, id).await;
    let progress = super::make::progress();
    assert_eq!(bed.store.renew(id, claimed.token, LEASE, &progress).await.unwrap(), Renewal::Held);
    assert!(matches!(bed.store.cancel(id).await.unwrap(), Cancelled::Asked));
    assert!(matches!(bed.store.cancel(id).await.unwrap(), Cancelled::Asked));
    assert_eq!(bed.store.renew(id, claimed.token, LEASE, &progress).await.unwrap(), Renewal::CancelAsked);
    assert!(run(bed, id).await.cancel_requested);
}

pub(crate) async fn what_is_decided_or_ended_is_not_cancelled(bed: &Bed) {
    let id = submitted(bed, "a", &["month=2024-01"]).await;
    let claimed = claim(bed, id).await;
    decide(bed, &claimed, vec![decided("month=2024-01", Outcome::Created, 1)]).await;
    assert!(matches!(bed.store.cancel(id).await.unwrap(), Cancelled::NotAllowed(State::Committing)));
    finish(bed, &claimed).await;
    assert!(matches!(bed.store.cancel(id).await.unwrap(), Cancelled::NotAllowed(State::Succeeded)));
    let failing = submitted(bed, "b", &["month=2024-01"]).await;
    fail(bed, failing).await;
    assert!(matches!(bed.store.cancel(failing).await.unwrap(), Cancelled::NotAllowed(State::Failed)));
}

pub(crate) async fn a_retry_is_a_new_attempt_of_the_same_run_at_the_end_of_the_order(bed: &Bed) {
    let id = submitted(bed, "a", &["month=2024-01"]).await;
    fail(bed, id).await;
    let before = run(bed, id).await;
    assert!(before.progress.is_some(), "how far it came");
    let younger = submitted(bed, "b", &["month=2024-01"]).await;
    assert!(matches!(bed.store.retry(id, Some(1), &definition("trips", 2)).await.unwrap(), Retried::Queued));
    let after = run(bed, id).await;
    assert_eq!((after.state, after.error.clone(), after.ended_at), (State::Queued, None, None));
    assert_eq!(after.progress, None, "it begins anew");
    assert_eq!(after.definition, definition("trips", 2).hash);
    assert!(after.sequence > run(bed, younger).await.sequence);
    assert_eq!((after.created_at, after.attempts.clone()), (before.created_at, before.attempts));
    complete(bed, younger, vec![decided("month=2024-01", Outcome::Created, 1)]).await;
    let claimed = claim(bed, id).await;
    assert_eq!((claimed.attempt, claimed.run.attempts.len()), (2, 2));
    assert_eq!(claimed.definition, definition("trips", 2));
    assert_eq!(claimed.failures, Default::default(), "the counts start anew");
}

pub(crate) async fn a_retry_is_for_the_attempt_that_was_seen(bed: &Bed) {
    let id = submitted(bed, "a", &["month=2024-01"]).await;
    let retry = async |if_attempt| bed.store.retry(id, if_attempt, &definition("trips", 1)).await.unwrap();
    assert!(matches!(retry(None).await, Retried::NotAllowed { state: State::Queued, last_attempt: 0 }));
    fail(bed, id).await;
    assert!(matches!(retry(Some(2)).await, Retried::NotAllowed { state: State::Failed, last_attempt: 1 }));
    assert!(matches!(retry(Some(1)).await, Retried::Queued));
    assert!(matches!(retry(Some(1)).await, Retried::NotAllowed { state: State::Queued, last_attempt: 1 }));
    let done = publish_over(bed, id).await;
    assert!(matches!(done, Retried::NotAllowed { state: State::Succeeded, last_attempt: 2 }));
    let unknown = bed.store.retry(refrain::run::RunId::new(), None, &definition("trips", 1)).await.unwrap();
    assert!(matches!(unknown, Retried::Unknown));
}

async fn publish_over(bed: &Bed, id: refrain::run::RunId) -> Retried {
    complete(bed, id, vec![decided("month=2024-01", Outcome::Created, 1)]).await;
    bed.store.retry(id, None, &definition("trips", 1)).await.unwrap()
}

pub(crate) async fn of_many_retries_at_once_one_is_accepted(bed: &Bed) {
    let id = submitted(bed, "a", &["month=2024-01"]).await;
    fail(bed, id).await;
    let retries = (0..16).map(|n| {
        let store = Arc::clone(if n % 2 == 0 { &bed.store } else { &bed.other });
        tokio::spawn(async move { store.retry(id, Some(1), &definition("trips", 1)).await.unwrap() })
    });
    let answers = futures::future::join_all(retries).await;
    let queued = answers.iter().filter(|a| matches!(a, Ok(Retried::Queued))).count();
    assert_eq!(queued, 1, "{answers:?}");
    assert_eq!(state(bed, id).await, State::Queued);
}

pub(crate) async fn a_retry_needs_a_definition_of_its_pipeline(bed: &Bed) {
    let id = submitted(bed, "a", &["month=2024-01"]).await;
    fail(bed, id).await;
    assert!(bed.store.retry(id, None, &definition("fares", 1)).await.is_err());
    assert_eq!(state(bed, id).await, State::Failed);
    publish(bed, "b", vec![decided("month=2024-01", Outcome::Created, 1)]).await;
}

pub(crate) async fn the_schema_refuses_what_cannot_be(bed: &Bed) {
    let id = submitted(bed, "a", &["month=2024-01"]).await;
    let queued = run(bed, id).await;
    for impossible in [
        "update runs set state = 'waiting'",
        "update runs set state = 'running', attempts = 1, started_at = created_at, lease_until = created_at",
        "update runs set state = 'running', attempts = 1, started_at = created_at, claim_token = id",
        "update runs set lease_until = created_at",
        "update runs set claim_token = id",
        "update runs set decided_token = id",
        "update runs set state = 'failed'",
        "update runs set ended_at = created_at",
        "update runs set attempts = 1",
        "update runs set state = 'succeeded', ended_at = created_at, rows = '{}', \
         decided_token = '00000000-0000-4000-8000-000000000000'",
        "update runs set state = 'committing', lease_until = created_at, rows = '{}', decided_token = id",
        "update runs set cancel_requested = true",
        "update runs set priority = 101",
        "update runs set sequence = -7, state = 'running', attempts = 1, started_at = created_at, lease_until = created_at, \
         claim_token = id",
        "update runs set definition = 'unknown'",
        "update run_partitions set outcome = 'created'",
        "update run_partitions set content = '{}'",
        "insert into run_partitions (run_id, partition) select id, 'month=2024-01' from runs",
        "insert into tables (pipeline, version) values ('trips', 0)",
        "insert into meta (database_id) select id from runs",
    ] {
        let refused = bed.past_the_store(impossible).await;
        assert!(matches!(refused, Err(sqlx::Error::Database(_))), "{impossible}: {refused:?}");
    }
    assert_eq!(run(bed, id).await, queued);
}

/// Postgres accepts a run that sets no conditions by a statement of its own. One that is not to wait goes the other way.
pub(crate) async fn a_run_is_accepted_alike_by_one_statement_and_by_many(bed: &Bed) {
    let hour = TimeDelta::hours(1);
    for (n, (partitions, not_before, priority, is_labelled)) in [
        (&["month=2024-01", "month=2024-02"][..], None, 0, false),
        (&["month=2024-01"], Some(bed.now() + hour), -7, true),
        (&["month=2024-01"], Some(bed.now() - hour), 9, false),
        (&[], None, 0, true),
        (&[], Some(bed.now() + hour), 0, false),
    ]
    .into_iter()
    .enumerate()
    {
        let mut accepted = Vec::new();
        for on_overlap in [OnOverlap::Wait, OnOverlap::Refuse] {
            let pipeline = format!("trips_{n}_{}", accepted.len());
            let mut asked = request(&pipeline, &pipeline, partitions);
            (asked.asked.on_overlap, asked.asked.not_before, asked.asked.priority) = (on_overlap, not_before, priority);
            asked.asked.webhook = is_labelled.then(|| "https://hooks.example/end".to_owned());
            asked.audience.webhooks = asked.asked.webhook.iter().cloned().collect();
            if is_labelled {
                asked.asked.labels =
                    [("team", "taxi"), ("why", "a \"test\"")].map(|(k, v)| (k.into(), v.into())).into();
            }
            let answer = submit(&*bed.store, &asked).await;
            let told = run(bed, asked.id).await;
            assert_eq!(answer, told);
            let stored = bed.text(&format!("select asked from runs where id = '{}'", asked.id)).await.unwrap();
            assert_eq!(stored, serde_json::to_string(&asked.asked).unwrap(), "to the letter");
            assert_eq!(told.sequence < 0, not_before.is_some_and(|time| time > told.created_at), "{told:?}");
            assert_eq!(told.due_at, not_before.map_or(told.created_at, |time| time.max(told.created_at)));
            let mut rows = Vec::new();
            for table in ["reservations", "run_partitions", "run_labels"] {
                rows.push(bed.rows_of(table, "run_id", asked.id).await);
            }
            accepted.push((rows, told.sequence > 0, told.principal, told.mode, told.state, told.partitions));
        }
        assert_eq!(accepted[0], accepted[1], "request {n}");
    }
}
