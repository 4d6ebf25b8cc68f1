//! What a worker does to the store, step by step and without computing anything.

use super::App;
use refrain::partition::PartitionKey;
use refrain::run::{
    AttemptOutcome, CatalogEntry, ClaimToken, FailureClass, Fold, ForeignFiles, Measured, PartFile, Quarantine,
    RowCounts, RunError, Scalar, SourceFile, StagedPartition, Totals, Warning, decide,
};
use refrain::store::{ClaimRequest, Claimed, Decision, Ended};
use std::time::Duration;

/// A staged partition with that many trips, each of 1.50; none where there are no trips.
pub(super) fn staged(key: &PartitionKey, trips: i128) -> StagedPartition {
    let measured = |name: &str, fold, value| Measured { name: name.to_owned(), fold, value: Some(value) };
    let totals = Totals(vec![
        measured("trips", Fold::Add, Scalar::Int(trips)),
        measured("revenue", Fold::Add, Scalar::Decimal { unscaled: trips * 150, scale: 2 }),
        measured("mean", Fold::None, Scalar::Float(1.5)),
    ]);
    StagedPartition {
        partition: key.clone(),
        file: (trips > 0).then(|| "p0.parquet".to_owned()),
        rows: u64::try_from(trips).unwrap(),
        totals: if trips > 0 { totals } else { Totals::default() },
        source_rows: u64::try_from(trips).unwrap(),
        bytes: 100,
        sha256: format!("{trips:064x}"),
    }
}

impl App {
    pub(super) async fn claim(&self) -> Claimed {
        let request = ClaimRequest {
            worker: "worker-1".to_owned(),
            token: ClaimToken::new(),
            lease: Duration::from_secs(30),
            max_lost_workers: 5,
        };
        self.store.claim(&request).await.unwrap().unwrap()
    }

    /// Decides the claimed run; every partition has that many trips.
    pub(super) async fn decide(&self, claimed: &Claimed, trips: i128) {
        let entries: Vec<CatalogEntry> = self.store.entries(&claimed.run.pipeline, None).await.unwrap();
        let partitions = claimed.run.partitions.iter().map(|p| {
            let entry = entries.iter().find(|e| e.partition == p.partition);
            let live = entry.map(|e| e.content.sha256.as_str());
            decide(&staged(&p.partition, trips), PartFile::Parquet, entry, live, ForeignFiles::Fail)
        });
        let decision = Decision {
            partitions: partitions.collect(),
            manifest: false,
            rows: RowCounts {
                read: 12,
                in_scope: 7,
                out_of_scope: 5,
                out_of_scope_by_partition: [("month=2024-01".to_owned(), 5)].into(),
                ..RowCounts::default()
            },
            sources: vec![SourceFile {
                path: "trips_2024-02.parquet".to_owned(),
                bytes: 1000,
                rows: 12,
                modified: Some(*self.clock.lock().unwrap()),
                etag: None,
            }],
            warnings: vec![Warning { kind: "strays-next-door".to_owned(), detail: "raise neighbours".to_owned() }],
            quarantine: Some(Quarantine {
                path: "_quarantine/trips/a/b.parquet".to_owned(),
                rows: 1,
                of: 2,
                bytes: 700,
                sha256: "9".repeat(64),
            }),
            progress: claimed.run.progress.clone().unwrap(),
        };
        let _ = self.store.begin_commit(claimed.run.id, claimed.token, &decision).await.unwrap();
    }

    /// Claims the next run and makes it succeed.
    pub(super) async fn succeed(&self, trips: i128) {
        let claimed = self.claim().await;
        self.decide(&claimed, trips).await;
        let _ = self.store.finish(claimed.run.id, claimed.token).await.unwrap();
    }

    /// Claims the next run and makes it fail; it is tried again after `retry_after`, if at all.
    pub(super) async fn fail(&self, retry_after: Option<Duration>) {
        let claimed = self.claim().await;
        let error = RunError {
            kind: "source-missing".to_owned(),
            title: "A source is missing".to_owned(),
            detail: "trips_2024-02.parquet is not there".to_owned(),
            class: FailureClass::Source,
            retry_after_seconds: None,
        };
        let ended = Ended {
            outcome: AttemptOutcome::Failed,
            error: Some(error),
            retry_after,
            max_lost_workers: 5,
            quarantine: None,
        };
        let _ = self.store.end_attempt(claimed.run.id, claimed.token, &ended).await.unwrap();
    }
}
