//! Preconditions: checked when a run is accepted, queued again and decided.

use super::bed::Bed;
use super::make::{
    claim, content, decided, decision, definition, ended, finish, key, publish, request, run, state, submit, submitted,
};
use refrain::run::{AttemptOutcome, Expected, FailureClass, Outcome, Preconditions, State, Unmet};
use refrain::store::{Begun, Fenced, NewRun, Retried, RunFilter, Submitted};

const A: &str = "month=2024-01";
const B: &str = "month=2024-02";

fn expecting(name: &str, expected: &[(&str, Expected)]) -> NewRun {
    let mut asked = request("trips", name, &[A, B]);
    let expected = expected.iter().map(|(partition, expected)| (key(partition), expected.clone()));
    asked.asked.if_current = Preconditions(expected.collect());
    asked
}

fn file(trips: u64) -> Expected {
    Expected::parse(&content(trips).sha256).unwrap()
}

async fn refused(bed: &Bed, asked: &NewRun) -> Vec<Unmet> {
    let Submitted::PreconditionFailed(unmet) = bed.store.submit(asked).await.unwrap() else { panic!("accepted") };
    assert!(bed.store.get(asked.id).await.unwrap().is_none());
    assert_eq!(bed.store.known_key(&asked.principal, &asked.idempotency_key).await.unwrap(), None);
    unmet
}

pub(crate) async fn what_is_not_as_expected_is_not_accepted(bed: &Bed) {
    let first = publish(bed, "first", vec![decided(A, Outcome::Created, 3)]).await;
    let by_run = Expected::parse(&first.to_string().to_uppercase()).unwrap();
    let found = || Some((content(3).sha256, first));
    for (expected, met) in [(Expected::ABSENT, false), (file(4), false), (file(3), true), (by_run, true)] {
        let asked =
            expecting(&format!("{met}/{expected:?}").replace(' ', ""), &[(A, expected.clone()), (B, Expected::ABSENT)]);
        match met {
            true => assert_eq!(submit(&*bed.store, &asked).await.asked, asked.asked),
            false => {
                assert_eq!(refused(bed, &asked).await, [Unmet { partition: key(A), expected, found: found() }]);
            }
        }
    }
    let nothing = refused(bed, &expecting("nothing", &[(B, file(1))])).await;
    assert_eq!(nothing, [Unmet { partition: key(B), expected: file(1), found: None }]);
    let mut known = expecting("first", &[(A, Expected::ABSENT)]);
    known.id = refrain::run::RunId::new();
    assert!(matches!(bed.store.submit(&known).await.unwrap(), Submitted::KeyTaken), "its key comes first");
}

pub(crate) async fn what_has_changed_since_is_not_decided(bed: &Bed) {
    publish(bed, "first", vec![decided(A, Outcome::Created, 3)]).await;
    let between = submitted(bed, "between", &[A]).await;
    let id = submit(&*bed.store, &expecting("a", &[(A, file(3)), (B, Expected::ABSENT)])).await.id;
    let other = claim(bed, between).await;
    super::make::decide(bed, &other, vec![decided(A, Outcome::Replaced, 4)]).await;
    finish(bed, &other).await;
    let claimed = claim(bed, id).await;
    let partitions = || vec![decided(A, Outcome::Replaced, 5), decided(B, Outcome::Created, 6)];
    let begun = bed.store.begin_commit(id, claimed.token, &decision(partitions())).await.unwrap();
    let unmet = Unmet { partition: key(A), expected: file(3), found: Some((content(4).sha256, between)) };
    assert_eq!(begun, Begun::PreconditionFailed(vec![unmet.clone()]));
    assert_eq!(state(bed, id).await, State::Running, "nothing is decided");
    assert!(run(bed, id).await.partitions.iter().all(|p| p.outcome.is_none()));

    let failed = ended(AttemptOutcome::Failed, Some(FailureClass::Compute), None);
    assert_eq!(bed.store.end_attempt(id, claimed.token, &failed).await.unwrap(), Fenced::Done);
    let retry = async || bed.store.retry(id, None, &definition("trips", 1)).await.unwrap();
    let before = run(bed, id).await;
    let retried = retry().await;
    assert!(matches!(&retried, Retried::PreconditionFailed(found) if *found == [unmet]), "{retried:?}");
    assert_eq!(run(bed, id).await, before);
    // As it was again, it may be.
    publish(bed, "back", vec![decided(A, Outcome::Replaced, 3)]).await;
    assert!(matches!(retry().await, Retried::Queued));
    let claimed = claim(bed, id).await;
    assert_eq!(bed.store.begin_commit(id, claimed.token, &decision(partitions())).await.unwrap(), Begun::Committing);
    // Once it is decided, what it has made of its partitions itself is no reason against it.
    assert_eq!(bed.store.staging_lost(id, claimed.token, &[key(A), key(B)]).await.unwrap(), Fenced::Done);
    let claimed = claim(bed, id).await;
    assert_eq!(bed.store.begin_commit(id, claimed.token, &decision(partitions())).await.unwrap(), Begun::Committing);
    // Nor is it against another try by request, where the rest of it then failed.
    assert_eq!(bed.store.staging_lost(id, claimed.token, &[key(A)]).await.unwrap(), Fenced::Done);
    let claimed = claim(bed, id).await;
    assert_eq!(bed.store.end_attempt(id, claimed.token, &failed).await.unwrap(), Fenced::Done);
    assert!(matches!(retry().await, Retried::Queued));
    let claimed = claim(bed, id).await;
    assert_eq!(bed.store.begin_commit(id, claimed.token, &decision(partitions())).await.unwrap(), Begun::Committing);
    finish(bed, &claimed).await;
}

pub(crate) async fn runs_are_listed_by_label_and_key(bed: &Bed) {
    let labelled = |name: &str, labels: &[(&str, &str)]| {
        let mut asked = request("trips", name, &[A]);
        asked.asked.labels = labels.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        asked
    };
    let one = submit(&*bed.store, &labelled("one", &[("dag", "x"), ("team", "é \"q\"")])).await;
    let two = submit(&*bed.store, &labelled("two", &[("dag", "y"), ("team", "é \"q\"")])).await;
    let plain = submit(&*bed.store, &labelled("plain", &[])).await;
    let list = async |filter: RunFilter| {
        let listed = bed.store.list(&RunFilter { limit: 10, ..filter }).await.unwrap();
        listed.into_iter().map(|run| run.id).collect::<Vec<_>>()
    };
    let by = |labels: &[(&str, &str)]| RunFilter {
        labels: labels.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect(),
        ..RunFilter::default()
    };
    assert_eq!(list(by(&[("team", "é \"q\"")])).await, [two.id, one.id]);
    assert_eq!(list(by(&[("team", "é \"q\""), ("dag", "x")])).await, [one.id]);
    assert_eq!(list(by(&[("dag", "x"), ("dag", "y")])).await, []);
    assert_eq!(list(RunFilter { before: Some(two.id), ..by(&[("team", "é \"q\"")]) }).await, [one.id]);
    assert_eq!(list(RunFilter { state: Some(State::Failed), ..by(&[("dag", "x")]) }).await, []);
    assert_eq!(list(RunFilter { partition: Some(key(A)), ..by(&[("dag", "y")]) }).await, [two.id]);
    assert_eq!(list(RunFilter { partition: Some(key(B)), ..by(&[("dag", "y")]) }).await, []);
    let keyed = |run: &refrain::run::Run| Some((run.principal.clone(), run.idempotency_key.clone()));
    assert_eq!(list(RunFilter { idempotency_key: keyed(&one), ..RunFilter::default() }).await, [one.id]);
    assert_eq!(list(RunFilter { idempotency_key: keyed(&one), ..by(&[("dag", "y")]) }).await, []);
    let somebody = Some((refrain::run::Principal("somebody".to_owned()), one.idempotency_key.clone()));
    assert_eq!(list(RunFilter { idempotency_key: somebody, ..RunFilter::default() }).await, []);
    let summaries = bed.store.list(&RunFilter { limit: 10, ..RunFilter::default() }).await.unwrap();
    assert_eq!(
        summaries.iter().map(|s| &s.labels).collect::<Vec<_>>(),
        [&plain.asked.labels, &two.asked.labels, &one.asked.labels]
    );
}
