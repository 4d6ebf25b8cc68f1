//! Made-up runs, decisions and errors.

use super::bed::Bed;
use refrain::partition::PartitionKey;
use refrain::run::{
    Asked, AskedPartitions, AttemptOutcome, Audience, ClaimToken, Content, Decided, DefinitionHash, FailureClass, Fold,
    ForeignFiles, IdempotencyKey, Measured, Mode, Outcome, PartFile, Previous, Principal, Progress, Quarantine,
    RowCounts, Run, RunError, RunId, Scalar, SourceFile, Stage, State, Totals, Warning,
};
use refrain::store::{
    Begun, ClaimRequest, Claimed, Decision, Ended, Fenced, NewRun, RunStore, StoredDefinition, Submitted,
};
use std::time::Duration;

pub(crate) const LEASE: Duration = Duration::from_secs(30);
pub(crate) const MAX_LOST_WORKERS: u32 = 2;

pub(crate) fn key(text: &str) -> PartitionKey {
    PartitionKey::from_canonical(text)
}

pub(crate) fn definition(pipeline: &str, version: u32) -> StoredDefinition {
    StoredDefinition {
        hash: DefinitionHash(format!("hash of {pipeline} {version}")),
        pipeline: pipeline.to_owned(),
        text: format!("name = \"{pipeline}\" # {version}"),
    }
}

/// A request for these partitions, or for the whole table where there are none.
pub(crate) fn request(pipeline: &str, idempotency_key: &str, partitions: &[&str]) -> NewRun {
    let mode = if partitions.is_empty() { Mode::Full } else { Mode::Overwrite };
    NewRun {
        id: RunId::new(),
        principal: Principal::default(),
        idempotency_key: IdempotencyKey::parse(idempotency_key).unwrap(),
        asked: Asked::new(pipeline, mode, AskedPartitions(partitions.iter().map(|p| key(p)).collect())),
        definition: definition(pipeline, 1),
        audience: Audience::default(),
    }
}

pub(crate) async fn submit(store: &dyn RunStore, run: &NewRun) -> Run {
    match store.submit(run).await.unwrap() {
        Submitted::New(accepted) => *accepted,
        other => panic!("the run under {} was not accepted: {other:?}", run.idempotency_key.as_str()),
    }
}

/// Submits a request for these partitions of the pipeline `trips`; its key is its name.
pub(crate) async fn submitted(bed: &Bed, name: &str, partitions: &[&str]) -> RunId {
    submit(&*bed.store, &request("trips", name, partitions)).await.id
}

pub(crate) fn claim_request() -> ClaimRequest {
    ClaimRequest {
        worker: "worker-1".to_owned(),
        token: ClaimToken::new(),
        lease: LEASE,
        max_lost_workers: MAX_LOST_WORKERS,
    }
}

pub(crate) async fn try_claim(bed: &Bed) -> Option<Claimed> {
    bed.store.claim(&claim_request()).await.unwrap()
}

/// Claims, expecting this run.
pub(crate) async fn claim(bed: &Bed, expected: RunId) -> Claimed {
    let claimed = try_claim(bed).await.unwrap_or_else(|| panic!("nothing to claim, expected {expected}"));
    assert_eq!(claimed.run.id, expected, "another run was claimed");
    claimed
}

pub(crate) async fn nothing_to_claim(bed: &Bed) {
    let claimed = try_claim(bed).await;
    assert!(claimed.is_none(), "{claimed:?}");
}

pub(crate) async fn run(bed: &Bed, id: RunId) -> Run {
    bed.store.get(id).await.unwrap().unwrap()
}

pub(crate) async fn state(bed: &Bed, id: RunId) -> State {
    run(bed, id).await.state
}

pub(crate) fn progress() -> Progress {
    Progress::at(Stage::Scanning)
}

/// What a partition holds: as many rows as trips, and a digest of its own for each number of trips.
pub(crate) fn content(trips: u64) -> Content {
    let measured = |name: &str, fold, value| Measured { name: name.to_owned(), fold, value: Some(value) };
    Content {
        rows: trips,
        totals: Totals(vec![
            measured("trips", Fold::Add, Scalar::Int(trips.into())),
            measured("revenue", Fold::Add, Scalar::Decimal { unscaled: i128::from(trips) * 250, scale: 2 }),
            measured("least", Fold::Min, Scalar::Float(f64::NEG_INFINITY)),
            measured("first_zone", Fold::Min, Scalar::Text(format!("zone \u{0}\"é\" {trips}"))),
        ]),
        source_rows: trips,
        bytes: trips * 10,
        sha256: format!("{trips:064x}"),
        file: PartFile::default(),
    }
}

/// A partition decided to hold so many trips, or none.
pub(crate) fn decided(partition: &str, outcome: Outcome, trips: u64) -> Decided {
    let absent = matches!(outcome, Outcome::Cleared | Outcome::Empty);
    let existed = !matches!(outcome, Outcome::Created | Outcome::Empty);
    Decided {
        partition: key(partition),
        outcome,
        content: (!absent).then(|| content(trips)),
        file: (!absent).then(|| format!("{trips}.parquet")),
        previous: existed.then(|| Previous { rows: 1, totals: content(1).totals, run_id: RunId::new() }),
        foreign_files: if existed { ForeignFiles::Replace } else { ForeignFiles::Fail },
        base: None,
    }
}

pub(crate) fn decision(partitions: Vec<Decided>) -> Decision {
    let by_partition = [("month=2024-03".to_owned(), 2), ("other".to_owned(), 1)].into();
    Decision {
        partitions,
        manifest: true,
        rows: RowCounts {
            read: 10,
            in_scope: 7,
            out_of_scope: 3,
            out_of_scope_by_partition: by_partition,
            ..Default::default()
        },
        sources: vec![SourceFile {
            path: "data/\u{0}.parquet".to_owned(),
            bytes: 64_290_804,
            rows: 10,
            modified: Some("2024-03-01T00:00:00Z".parse().unwrap()),
            etag: Some("\"v1\"".to_owned()),
        }],
        warnings: vec![Warning { kind: "strays-next-door".to_owned(), detail: "2 rows".to_owned() }],
        quarantine: Some(quarantine("decided")),
        progress: Progress { files: 3, rows: 10, rows_read: 9, ..Progress::at(Stage::Staging) },
    }
}

/// What an attempt of that name has kept apart.
pub(crate) fn quarantine(name: &str) -> Quarantine {
    Quarantine { path: format!("_quarantine/trips/{name}"), rows: 2, of: 3, bytes: 100, sha256: "5".repeat(64) }
}

pub(crate) fn error(class: FailureClass) -> RunError {
    RunError {
        kind: "made-up".to_owned(),
        title: "a made-up failure".to_owned(),
        detail: format!("of class {}", class.as_str()),
        class,
        retry_after_seconds: None,
    }
}

pub(crate) fn ended(outcome: AttemptOutcome, class: Option<FailureClass>, retry_after: Option<Duration>) -> Ended {
    Ended { outcome, error: class.map(error), quarantine: None, retry_after, max_lost_workers: MAX_LOST_WORKERS }
}

pub(crate) fn failed() -> Ended {
    ended(AttemptOutcome::Failed, Some(FailureClass::Compute), None)
}

pub(crate) async fn decide(bed: &Bed, claimed: &Claimed, partitions: Vec<Decided>) {
    let begun = bed.store.begin_commit(claimed.run.id, claimed.token, &decision(partitions)).await.unwrap();
    assert_eq!(begun, Begun::Committing);
}

pub(crate) async fn finish(bed: &Bed, claimed: &Claimed) {
    assert_eq!(bed.store.finish(claimed.run.id, claimed.token).await.unwrap(), Fenced::Done);
}

/// Claims, decides and finishes this run.
pub(crate) async fn complete(bed: &Bed, id: RunId, partitions: Vec<Decided>) {
    let claimed = claim(bed, id).await;
    decide(bed, &claimed, partitions).await;
    finish(bed, &claimed).await;
}

/// Submits, claims, decides and finishes a run of the decided partitions.
pub(crate) async fn publish(bed: &Bed, name: &str, partitions: Vec<Decided>) -> RunId {
    let keys: Vec<&str> = partitions.iter().map(|d| d.partition.as_str()).collect();
    let id = submitted(bed, name, &keys).await;
    complete(bed, id, partitions).await;
    id
}

/// Hands a committing run back as failed, to be published after `delay`.
pub(crate) async fn postpone(bed: &Bed, claimed: &Claimed, delay: Duration) -> Fenced {
    let (outcome, why) = (AttemptOutcome::Failed, error(FailureClass::Service));
    bed.store.postpone_publish(claimed.run.id, claimed.token, delay, outcome, Some(&why)).await.unwrap()
}

/// Hands a committing run back as released, to be published at once.
pub(crate) async fn release(bed: &Bed, claimed: &Claimed) -> Fenced {
    let (id, token) = (claimed.run.id, claimed.token);
    bed.store.postpone_publish(id, token, Duration::ZERO, AttemptOutcome::Released, None).await.unwrap()
}

/// Ends this run as failed.
pub(crate) async fn fail(bed: &Bed, id: RunId) {
    let claimed = claim(bed, id).await;
    assert_eq!(bed.store.end_attempt(id, claimed.token, &failed()).await.unwrap(), Fenced::Done);
}
