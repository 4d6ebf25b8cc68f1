//! The files of partitions, for the interface: opened below the warehouse, and their rows read by a child process.

use crate::config::{DatabaseSettings, LimitSettings};
use crate::engine::{Extract, ExtractError, Extracted, Extractor, RowFormat};
use crate::http::{FilesError, OpenedFile, PartitionFiles, RowStream, RowsAs, RowsAsked};
use crate::partition::PartitionKey;
use crate::run::PartFile;
use crate::store::RunStore;
use crate::table::{Digests, LiveFile, TableError, Warehouse};
use anyhow::Context;
use async_trait::async_trait;
use bytes::Bytes;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OnceCell, Semaphore, mpsc};

/// How many files are read for their digests at the same time.
const DIGESTED_AT_ONCE: usize = 2;
/// How many chunks of rows wait for a client.
const WAITING_CHUNKS: usize = 4;

/// Opens files and reads their rows.
pub(super) struct Files {
    store: Arc<dyn RunStore>,
    root: PathBuf,
    /// Where no worker of this process has opened it, it is when the first file is asked for.
    warehouse: OnceCell<Warehouse>,
    digests: Arc<Digests>,
    digesting: Arc<Semaphore>,
    extractor: Extractor,
    /// How long a client may take for a chunk.
    patience: Duration,
}

impl Files {
    pub(super) fn new(
        store: Arc<dyn RunStore>,
        database: &DatabaseSettings,
        warehouse: Option<Warehouse>,
        limits: &LimitSettings,
    ) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot find this program, to read files with")?;
        Ok(Self {
            store,
            root: database.warehouse_path(),
            warehouse: OnceCell::new_with(warehouse),
            digests: Arc::default(),
            digesting: Arc::new(Semaphore::new(DIGESTED_AT_ONCE)),
            extractor: Extractor::new(program, limits.reader_memory_mb, limits.max_readers as usize),
            patience: Duration::from_secs(limits.request_timeout_seconds),
        })
    }

    async fn warehouse(&self) -> Result<&Warehouse, FilesError> {
        self.warehouse
            .get_or_try_init(|| async {
                let failed = |error: crate::store::StoreError| FilesError::Unavailable(error.to_string());
                let bound = self.store.warehouse_id().await.map_err(failed)?;
                let Some(bound) = bound else {
                    return Err(FilesError::Unavailable("the database has no warehouse yet".to_owned()));
                };
                let database_id = self.store.database_id().await.map_err(failed)?;
                let root = self.root.clone();
                on_disk(move || Warehouse::open(&root, Some(bound), database_id)).await
            })
            .await
    }

    /// The file's digest: as it is known, or read now.
    async fn digest(&self, mut live: LiveFile) -> Result<(LiveFile, Option<String>), FilesError> {
        if let Some(sha256) = self.digests.known(&live) {
            return Ok((live, Some(sha256)));
        }
        let permit = Arc::clone(&self.digesting).acquire_owned().await;
        let permit = permit.map_err(|e| FilesError::Unavailable(e.to_string()))?;
        let digests = Arc::clone(&self.digests);
        on_disk(move || {
            // The file is read to its end also where nobody waits for it any more.
            let _reading = permit;
            // Somebody else may have read it while this one waited.
            let sha256 = match digests.known(&live) {
                Some(sha256) => Some(sha256),
                None => digests.read(&mut live)?,
            };
            Ok((live, sha256))
        })
        .await
    }
}

#[async_trait]
impl PartitionFiles for Files {
    async fn open(&self, pipeline: &str, key: &PartitionKey, file: PartFile) -> Result<Option<OpenedFile>, FilesError> {
        let (warehouse, pipeline, key) = (self.warehouse().await?.clone(), pipeline.to_owned(), key.clone());
        let Some(live) = on_disk(move || warehouse.open_live(&pipeline, &key, file)).await? else { return Ok(None) };
        let (live, sha256) = self.digest(live).await?;
        Ok(sha256.map(|sha256| OpenedFile { file: live.file, bytes: live.bytes, sha256 }))
    }

    async fn rows(&self, file: File, asked: RowsAsked) -> Result<RowStream, FilesError> {
        let asked = Extract {
            file: asked.file,
            // Parquet tells its types itself.
            definition: (asked.file != PartFile::Parquet).then_some(asked.definition),
            format: match asked.rows_as {
                RowsAs::Csv => RowFormat::Csv,
                RowsAs::Json => RowFormat::Json,
                RowsAs::Ndjson => RowFormat::Ndjson,
            },
            columns: asked.columns,
            limit: asked.limit,
        };
        let extracted = self.extractor.start(file, &asked).await.map_err(|error| match error {
            ExtractError::Busy(_) => FilesError::Busy(error.to_string()),
            ExtractError::UnknownColumns { .. } => FilesError::UnknownColumns(error.to_string()),
            ExtractError::Failed(detail) => FilesError::Unreadable(detail),
        })?;
        let (chunks, mut taken) = mpsc::channel(WAITING_CHUNKS);
        tokio::spawn(pass_on(extracted, chunks, self.patience));
        Ok(Box::pin(futures::stream::poll_fn(move |context| taken.poll_recv(context))))
    }
}

/// Passes rows on until they end, the client goes away, or it takes nothing for so long: a child at work is one that others wait
/// for. However it ends, the child does.
async fn pass_on(mut extracted: Extracted, chunks: mpsc::Sender<io::Result<Bytes>>, patience: Duration) {
    loop {
        let next = tokio::select! {
            next = extracted.next() => next,
            () = chunks.closed() => return,
        };
        let (chunk, is_last) = match next {
            Ok(None) => return,
            Ok(Some(chunk)) => (Ok(chunk), false),
            Err(error) => {
                tracing::error!(%error, "a partition's rows could not be read to their end");
                (Err(error), true)
            }
        };
        match chunks.send_timeout(chunk, patience).await {
            Ok(()) if is_last => return,
            Ok(()) => {}
            Err(mpsc::error::SendTimeoutError::Closed(_)) => return,
            Err(mpsc::error::SendTimeoutError::Timeout(_)) => {
                tracing::info!("a client took no more of a partition's rows and was given up");
                drop(extracted);
                // Told once there is room for it: the rows must not look whole.
                let _ = chunks.send(Err(io::ErrorKind::TimedOut.into())).await;
                return;
            }
        }
    }
}

async fn on_disk<T: Send + 'static>(
    step: impl FnOnce() -> Result<T, TableError> + Send + 'static,
) -> Result<T, FilesError> {
    match tokio::task::spawn_blocking(step).await {
        Ok(done) => done.map_err(|error| FilesError::Unavailable(error.to_string())),
        Err(error) => Err(FilesError::Unavailable(error.to_string())),
    }
}
