//! What is told of runs: each end has its message, one server has it in hand, and lineage is in order.

use super::bed::Bed;
use super::make::{
    LEASE, MAX_LOST_WORKERS, claim, complete, decide, decided, definition, ended, fail, nothing_to_claim, publish,
    release, request, run, submit,
};
use futures::future::join_all;
use refrain::run::{
    AttemptOutcome, Audience, Delivery, DeliveryState, FailureClass, Occasion, Only, Outcome, Principal, RunId, State,
    Written,
};
use refrain::store::{Cancelled, Fenced, Message, MessageClaim, NewRun, Recipient, Retried, Taken, Then, Tried};
use std::time::{Duration, Instant};
use uuid::Uuid;

const A: &str = "month=2024-01";
const B: &str = "month=2024-02";
const URL: &str = "https://hooks.example.org/a?key=b";
const OTHER: &str = "https://other.example.org:8443/";
const IN_HAND: Duration = Duration::from_secs(60);

fn told_to(webhooks: &[&str], lineage: bool, run: NewRun) -> NewRun {
    NewRun { audience: Audience { webhooks: webhooks.iter().map(|url| (*url).to_owned()).collect(), lineage }, ..run }
}

async fn submitted(bed: &Bed, name: &str, partitions: &[&str]) -> RunId {
    submit(&*bed.store, &told_to(&[URL], false, request("trips", name, partitions))).await.id
}

pub(super) fn anything() -> MessageClaim {
    MessageClaim {
        token: Uuid::new_v4(),
        lease: IN_HAND,
        webhooks: true,
        lineage: true,
        busy: Vec::new(),
        busy_principals: Vec::new(),
    }
}

async fn take(bed: &Bed, request: &MessageClaim) -> Option<Message> {
    match bed.store.claim_message(request).await.unwrap()? {
        Taken::Message(message) => Some(*message),
        Taken::Unreadable(message) => panic!("{message:?}"),
    }
}

/// Takes all that is due in hand; answers the run and the event of each.
async fn taken(bed: &Bed) -> Vec<(RunId, String)> {
    let mut all = Vec::new();
    while let Some(message) = take(bed, &anything()).await {
        all.push((message.notice.run_id, message.notice.event()));
    }
    all
}

async fn only_event(bed: &Bed, id: RunId, event: &str) {
    assert_eq!(taken(bed).await, [(id, event.to_owned())]);
    let told: Vec<(String, DeliveryState)> =
        run(bed, id).await.deliveries.into_iter().map(|d| (d.event, d.state)).collect();
    assert_eq!(told, [(event.to_owned(), DeliveryState::Pending)]);
}

async fn tried(bed: &Bed, message: &Message, token: Uuid, then: Then) -> Fenced {
    let error = (then != Then::Delivered).then(|| "it answered 500".to_owned());
    let status = Some(if then == Then::Delivered { 204 } else { 500 });
    bed.store.message_tried(message.position, token, &Tried { status, error, then }).await.unwrap()
}

pub(crate) async fn every_end_of_a_run_is_told_once(bed: &Bed) {
    let id = submitted(bed, "finished", &[A]).await;
    let claimed = claim(bed, id).await;
    decide(bed, &claimed, vec![decided(A, Outcome::Created, 1)]).await;
    assert_eq!(taken(bed).await, [], "a run that goes on is not told");
    for _ in 0..2 {
        assert_eq!(bed.store.finish(id, claimed.token).await.unwrap(), Fenced::Done);
    }
    only_event(bed, id, "run.succeeded").await;

    let id = submitted(bed, "failed", &[A]).await;
    let claimed = claim(bed, id).await;
    let again = ended(AttemptOutcome::Failed, Some(FailureClass::Source), Some(Duration::ZERO));
    assert_eq!(bed.store.end_attempt(id, claimed.token, &again).await.unwrap(), Fenced::Done);
    assert_eq!(taken(bed).await, [], "nor is one that is tried again");
    fail(bed, id).await;
    only_event(bed, id, "run.failed").await;

    let id = submitted(bed, "cancelled-while-it-waits", &[A]).await;
    for _ in 0..2 {
        assert!(matches!(bed.store.cancel(id).await.unwrap(), Cancelled::Now));
    }
    only_event(bed, id, "run.cancelled").await;

    let id = submitted(bed, "cancelled-while-it-runs", &[A]).await;
    let claimed = claim(bed, id).await;
    assert!(matches!(bed.store.cancel(id).await.unwrap(), Cancelled::Asked));
    assert_eq!(taken(bed).await, []);
    let stopped = ended(AttemptOutcome::Cancelled, None, None);
    assert_eq!(bed.store.end_attempt(id, claimed.token, &stopped).await.unwrap(), Fenced::Done);
    only_event(bed, id, "run.cancelled").await;

    let mut nothing = request("trips", "nothing-to-do", &[A]);
    nothing.asked.only = Some(Only::Missing);
    let id = submit(&*bed.store, &told_to(&[URL], false, nothing)).await.id;
    only_event(bed, id, "run.succeeded").await;
}

pub(crate) async fn the_end_of_a_run_that_nobody_works_on_is_told(bed: &Bed) {
    let id = submitted(bed, "lost", &[A]).await;
    for _ in 0..=MAX_LOST_WORKERS {
        claim(bed, id).await;
        bed.pass(LEASE).await;
    }
    nothing_to_claim(bed).await;
    only_event(bed, id, "run.failed").await;

    let id = submitted(bed, "cancelled-and-lost", &[A]).await;
    claim(bed, id).await;
    assert!(matches!(bed.store.cancel(id).await.unwrap(), Cancelled::Asked));
    bed.pass(LEASE).await;
    nothing_to_claim(bed).await;
    only_event(bed, id, "run.cancelled").await;

    let id = submitted(bed, "unreadable", &[A]).await;
    bed.past_the_store("update runs set progress = '{}', rows = '{}' where idempotency_key = 'unreadable'")
        .await
        .unwrap();
    nothing_to_claim(bed).await;
    assert_eq!(taken(bed).await, [(id, "run.failed".to_owned())]);
}

pub(crate) async fn what_is_told_is_the_run_as_it_was(bed: &Bed) {
    let mut asked = request("trips", "told", &[A, B]);
    asked.asked.labels = [("team".to_owned(), "a".to_owned())].into();
    let id = submit(&*bed.store, &told_to(&[URL, OTHER], false, asked)).await.id;
    fail(bed, id).await;
    let failed = run(bed, id).await;
    assert!(matches!(bed.store.retry(id, None, &definition("trips", 2)).await.unwrap(), Retried::Queued));
    complete(bed, id, vec![decided(A, Outcome::Created, 3), decided(B, Outcome::Empty, 0)]).await;
    let succeeded = run(bed, id).await;

    let mut seen = Vec::new();
    while let Some(Message { to, notice, host, tries, .. }) = take(bed, &anything()).await {
        assert_eq!((notice.occasion, notice.idempotency_key.as_str(), tries), (Occasion::RunEnded, "told", 0));
        assert_eq!((&notice.labels, notice.created_at), (&failed.asked.labels, failed.created_at));
        let Recipient::Webhook(url) = to else { panic!("it is no lineage") };
        let then = if notice.state == State::Failed { &failed } else { &succeeded };
        assert_eq!((notice.state, Some(notice.at), &notice.error), (then.state, then.ended_at, &then.error));
        assert_eq!((notice.attempt as usize, &notice.definition), (then.attempts.len(), &then.definition));
        assert_eq!((notice.partitions.named, notice.rows.is_some()), (2, notice.state == State::Succeeded));
        seen.push((notice.event(), url, host, notice.partitions.outcomes));
    }
    let of = |event: &str, url: &str, host: &str, outcomes: &[&str]| {
        let outcomes = outcomes.iter().map(|name| ((*name).to_owned(), 1)).collect();
        (event.to_owned(), url.to_owned(), host.to_owned(), outcomes)
    };
    assert_eq!(
        seen,
        [
            of("run.failed", URL, "hooks.example.org", &[]),
            of("run.failed", OTHER, "other.example.org:8443", &[]),
            of("run.succeeded", URL, "hooks.example.org", &["created", "empty"]),
            of("run.succeeded", OTHER, "other.example.org:8443", &["created", "empty"]),
        ]
    );
}

pub(crate) async fn one_server_has_a_message_in_hand(bed: &Bed) {
    let id = submitted(bed, "told", &[A]).await;
    fail(bed, id).await;
    let claims: Vec<MessageClaim> = (0..8).map(|_| anything()).collect();
    let servers = [&bed.store, &bed.other];
    let all = claims.iter().enumerate().map(|(at, claim)| servers[at % 2].claim_message(claim));
    let found: Vec<Option<Taken>> = join_all(all).await.into_iter().map(Result::unwrap).collect();
    let holder = found.iter().position(Option::is_some).unwrap();
    assert_eq!(found.iter().flatten().count(), 1, "{found:?}");
    let Some(Taken::Message(first)) = found[holder].clone() else { panic!("{found:?}") };
    let first = *first;

    bed.pass(IN_HAND - Duration::from_secs(2)).await;
    assert_eq!(take(bed, &anything()).await, None);
    bed.pass(Duration::from_secs(2)).await;
    let second = anything();
    let again = take(bed, &second).await.unwrap();
    assert_eq!(again, first, "nothing was noted, so it is the same again");
    assert_eq!(tried(bed, &first, claims[holder].token, Then::GiveUp).await, Fenced::Lost);
    assert_eq!(tried(bed, &again, second.token, Then::Delivered).await, Fenced::Done);
    assert_eq!(tried(bed, &again, second.token, Then::GiveUp).await, Fenced::Lost);
    bed.pass(IN_HAND).await;
    assert_eq!(take(bed, &anything()).await, None);
    let [Delivery { state, tries, last_status, last_error, next_try_at, .. }] = &run(bed, id).await.deliveries[..]
    else {
        panic!("there is one")
    };
    assert_eq!((*state, *tries, *last_status), (DeliveryState::Delivered, 1, Some(204)));
    assert_eq!((last_error, next_try_at), (&None, &None));
}

pub(crate) async fn what_failed_is_due_again_until_it_is_given_up(bed: &Bed) {
    let id = submitted(bed, "told", &[A]).await;
    fail(bed, id).await;
    for tries in 0..3 {
        let claim = anything();
        let message = take(bed, &claim).await.unwrap();
        assert_eq!(message.tries, tries);
        let then = if tries == 2 { Then::GiveUp } else { Then::Again(Duration::from_secs(300)) };
        assert_eq!(tried(bed, &message, claim.token, then).await, Fenced::Done);
        bed.pass(Duration::from_secs(298)).await;
        assert_eq!(take(bed, &anything()).await, None);
        let waiting = bed.store.outbox_depth().await.unwrap().webhooks;
        assert_eq!((waiting.pending, waiting.gave_up), if tries == 2 { (0, 1) } else { (1, 0) });
        assert_eq!(waiting.oldest.is_some(), tries < 2);
        bed.pass(Duration::from_secs(2)).await;
    }
    assert_eq!(take(bed, &anything()).await, None);
    let delivery = run(bed, id).await.deliveries.remove(0);
    assert_eq!((delivery.state, delivery.tries, delivery.url.as_str()), (DeliveryState::GaveUp, 3, URL));
    assert_eq!((delivery.last_status, delivery.last_error.as_deref()), (Some(500), Some("it answered 500")));
    assert_eq!((delivery.next_try_at, run(bed, id).await.state), (None, State::Failed));
}

pub(crate) async fn lineage_is_told_in_order(bed: &Bed) {
    let id = submit(&*bed.store, &told_to(&[URL], true, request("trips", "told", &[A, B]))).await.id;
    let first = claim(bed, id).await;
    decide(bed, &first, vec![decided(A, Outcome::Created, 3), decided(B, Outcome::Unchanged, 4)]).await;
    assert_eq!(release(bed, &first).await, Fenced::Done);
    let second = claim(bed, id).await;
    assert_eq!(bed.store.finish(id, second.token).await.unwrap(), Fenced::Done);

    let lineage = || MessageClaim { webhooks: false, ..anything() };
    let mut seen = Vec::new();
    loop {
        let claim = lineage();
        let Some(message) = take(bed, &claim).await else { break };
        assert_eq!(take(bed, &lineage()).await, None, "the next one waits for this one");
        let (again, once_more) = (Then::Again(Duration::ZERO), lineage());
        assert_eq!(tried(bed, &message, claim.token, again).await, Fenced::Done);
        let message = take(bed, &once_more).await.unwrap();
        assert_eq!(tried(bed, &message, once_more.token, Then::Delivered).await, Fenced::Done);
        assert_eq!((&message.to, message.host.as_str(), message.tries), (&Recipient::Lineage, "", 1));
        seen.push((message.notice.event(), message.notice.attempt, message.notice));
    }
    let events: Vec<(&str, u32)> = seen.iter().map(|(event, attempt, _)| (event.as_str(), *attempt)).collect();
    assert_eq!(
        events,
        [("attempt.started", 1), ("attempt.released", 1), ("attempt.started", 2), ("attempt.succeeded", 2)]
    );
    let last = &seen[3].2;
    assert_eq!((last.sources.len(), last.partitions.written), (1, Written { files: 1, rows: 3, bytes: 30 }));
    assert!(seen[..3].iter().all(|(_, _, notice)| notice.sources.is_empty()));
    let depth = bed.store.outbox_depth().await.unwrap();
    assert_eq!((depth.lineage.pending, depth.webhooks.pending), (0, 1), "what was told of lineage is gone");
    let busy = MessageClaim { busy: vec!["hooks.example.org".to_owned()], ..anything() };
    assert_eq!(take(bed, &busy).await, None, "a host that has enough to do is passed over");
    assert!(take(bed, &anything()).await.is_some());
}

pub(crate) async fn what_fails_a_run_is_told_as_lineage(bed: &Bed) {
    let id = submit(&*bed.store, &told_to(&[], true, request("trips", "told", &[A]))).await.id;
    fail(bed, id).await;
    bed.store.retry(id, None, &definition("trips", 1)).await.map(drop).unwrap();
    claim(bed, id).await;
    bed.pass(LEASE).await;
    claim(bed, id).await;
    let mut seen = Vec::new();
    loop {
        let claim = anything();
        let Some(message) = take(bed, &claim).await else { break };
        assert_eq!(tried(bed, &message, claim.token, Then::Delivered).await, Fenced::Done);
        seen.push((message.notice.event(), message.notice.attempt, message.notice.error.map(|error| error.kind)));
    }
    let of = |event: &str, attempt, error: Option<&str>| (event.to_owned(), attempt, error.map(str::to_owned));
    assert_eq!(
        seen,
        [
            of("attempt.started", 1, None),
            of("attempt.failed", 1, Some("made-up")),
            of("attempt.started", 2, None),
            of("attempt.lost", 2, None),
            of("attempt.started", 3, None),
        ]
    );
    assert!(run(bed, id).await.deliveries.is_empty());
}

/// One that cannot be read is in nobody's way: it is put off, and at last given up, while the next one is told.
pub(crate) async fn a_message_that_cannot_be_read_is_tried_as_others_are(bed: &Bed) {
    let (spoilt, good) = (submitted(bed, "spoilt", &[A]).await, submitted(bed, "good", &[B]).await);
    fail(bed, spoilt).await;
    fail(bed, good).await;
    let spoil = "update outbox set notice = '{\"state\": 1}' \
                 where run_id = (select id from runs where idempotency_key = 'spoilt')";
    bed.past_the_store(spoil).await.unwrap();
    for tries in 0..2 {
        let claim = anything();
        let Some(Taken::Unreadable(found)) = bed.store.claim_message(&claim).await.unwrap() else { panic!("{tries}") };
        assert_eq!((&found.to, found.tries), (&Recipient::Webhook(URL.to_owned()), tries));
        assert!(found.why.contains("notice"), "{found:?}");
        let then = if tries == 1 { Then::GiveUp } else { Then::Again(IN_HAND) };
        let noted = Tried { status: None, error: Some(found.why.clone()), then };
        assert_eq!(bed.store.message_tried(found.position, claim.token, &noted).await.unwrap(), Fenced::Done);
        if tries == 0 {
            assert_eq!(taken(bed).await, [(good, "run.failed".to_owned())], "the next one is told meanwhile");
        }
        // The good one is in hand for no longer than this, so the spoilt one is due before it again.
        bed.pass(IN_HAND - Duration::from_millis(1)).await;
        bed.pass(Duration::from_millis(1)).await;
    }
    let delivery = run(bed, spoilt).await.deliveries.remove(0);
    assert_eq!((delivery.state, delivery.tries, delivery.last_status), (DeliveryState::GaveUp, 2, None));
    assert!(delivery.last_error.is_some_and(|why| why.contains("notice")));
}

/// A backlog of a principal, or for a host, that have enough to do is not walked through at each claim of another's message.
pub(crate) async fn a_long_backlog_delays_no_other_message(bed: &Bed) {
    const BACKLOG: u32 = 100_000;
    const OTHERS: u32 = 50;
    let put = async |name: &str, principal: &str, url: &str, times: u32| {
        let mut asked = told_to(&[url], false, request("trips", name, &[A]));
        asked.principal = Principal(principal.to_owned());
        let id = submit(&*bed.store, &asked).await.id;
        fail(bed, id).await;
        bed.copy_message(id, times).await;
    };
    let of_principal = || MessageClaim { busy_principals: vec!["loud".to_owned()], ..anything() };
    let of_host = || MessageClaim { busy: vec!["hooks.example.org".to_owned()], ..anything() };
    let others = async || {
        let since = Instant::now();
        for at in 0..OTHERS {
            let claim = if at % 2 == 0 { of_principal() } else { of_host() };
            assert_eq!(take(bed, &claim).await.unwrap().notice.principal, "quiet");
        }
        since.elapsed()
    };
    put("quiet", "quiet", OTHER, 2 * OTHERS).await;
    let alone = others().await;
    put("loud", "loud", URL, BACKLOG).await;
    let beside = others().await;
    crate::counted(format_args!("{OTHERS} messages were taken in {alone:.1?}, beside {BACKLOG} in {beside:.1?}"));
    assert!(beside < 3 * alone + Duration::from_millis(500), "{beside:?}, alone {alone:?}");
}

/// As a server of the version before writes and claims them.
pub(crate) async fn a_message_that_does_not_say_whose_it_is_is_its_runs_principals(bed: &Bed) {
    let id = submitted(bed, "told", &[A]).await;
    fail(bed, id).await;
    bed.copy_message(id, 1).await;
    assert_eq!(bed.rows_of("outbox", "principal = 'default' and run_id", id).await, 2);
    let busy = MessageClaim { busy_principals: vec!["default".to_owned()], ..anything() };
    assert_eq!(take(bed, &busy).await, None);
    assert_eq!(taken(bed).await.len(), 2);
}

/// What waits for a message of lineage that is put off is not looked at again and again meanwhile.
pub(crate) async fn lineage_is_put_off_with_what_it_waits_for(bed: &Bed) {
    let id = submit(&*bed.store, &told_to(&[], true, request("trips", "told", &[A]))).await.id;
    fail(bed, id).await;
    let claim = anything();
    let first = take(bed, &claim).await.unwrap();
    assert_eq!(tried(bed, &first, claim.token, Then::Again(Duration::from_secs(300))).await, Fenced::Done);
    assert_eq!(bed.rows_of("outbox", "due_at <> created_at and run_id", id).await, 2);
    bed.pass(Duration::from_secs(300)).await;
    let claim = anything();
    let first = take(bed, &claim).await.unwrap();
    assert_eq!((first.notice.event().as_str(), first.tries), ("attempt.started", 1));
    assert_eq!(tried(bed, &first, claim.token, Then::Delivered).await, Fenced::Done);
    assert_eq!(take(bed, &anything()).await.unwrap().notice.event(), "attempt.failed", "as soon as it may be told");
}

pub(crate) async fn webhooks_of_busy_principals_are_passed_over(bed: &Bed) {
    let of = |name: &str, principal: &str, lineage| {
        let mut asked = told_to(&[URL], lineage, request("trips", name, &[A]));
        asked.principal = Principal(principal.to_owned());
        asked
    };
    let first = submit(&*bed.store, &of("first", "a", true)).await.id;
    fail(bed, first).await;
    let second = submit(&*bed.store, &of("second", "b", false)).await.id;
    fail(bed, second).await;
    let busy = |of: &[&str]| MessageClaim {
        busy_principals: of.iter().map(|name| (*name).to_owned()).collect(),
        ..anything()
    };
    assert_eq!(take(bed, &busy(&["a"])).await.unwrap().to, Recipient::Lineage, "lineage is the operator's");
    assert_eq!(take(bed, &busy(&["a"])).await.unwrap().notice.run_id, second, "though it was due later");
    assert_eq!(take(bed, &busy(&["a", "b"])).await, None);
    assert_eq!(take(bed, &busy(&["b"])).await.unwrap().notice.run_id, first);
}

pub(crate) async fn nobody_is_told_of_what_nobody_asked_to_be_told_of(bed: &Bed) {
    publish(bed, "untold", vec![decided(A, Outcome::Created, 1)]).await;
    assert_eq!(taken(bed).await, []);
}
