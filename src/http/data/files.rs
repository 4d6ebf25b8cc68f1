//! What the interface needs of the table's files, without knowing the table or the engine.

use crate::partition::PartitionKey;
use crate::run::PartFile;
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use std::fs::File;
use std::io;

/// A partition's file, opened: reading goes on over it while a run replaces it.
#[derive(Debug)]
pub struct OpenedFile {
    /// The file, at its beginning.
    pub file: File,
    /// Its size.
    pub bytes: u64,
    /// Its digest in hex.
    pub sha256: String,
}

/// What the rows of a file become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowsAs {
    /// Comma-separated values, as csv tables have them.
    Csv,
    /// A JSON array of objects.
    Json,
    /// A JSON object on each line.
    Ndjson,
}

/// What is asked of the rows of a file.
#[derive(Debug, Clone)]
pub struct RowsAsked {
    /// What the file is.
    pub file: PartFile,
    /// The text of the definition that it was written by.
    pub definition: String,
    /// What its rows become.
    pub rows_as: RowsAs,
    /// These columns, in this order; none for all.
    pub columns: Option<Vec<String>>,
    /// At most that many rows, from the first on.
    pub limit: Option<u64>,
}

/// Why a file or its rows are not there.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// Nothing can be read now; the text is for the log.
    #[error("{0}")]
    Unavailable(String),
    /// As many files are read for clients as may be.
    #[error("{0}")]
    Busy(String),
    /// The file has other columns.
    #[error("{0}")]
    UnknownColumns(String),
    /// The file cannot be read as what it should be; the text is for the log.
    #[error("{0}")]
    Unreadable(String),
}

/// The rows of a file as they are read; an error where they are not whole.
pub type RowStream = BoxStream<'static, io::Result<Bytes>>;

/// The files of partitions.
#[async_trait]
pub trait PartitionFiles: Send + Sync {
    /// Opens the partition's live file of that name, with its digest; none where there is none, or where it changed while it was
    /// looked at.
    async fn open(&self, pipeline: &str, key: &PartitionKey, file: PartFile) -> Result<Option<OpenedFile>, FilesError>;

    /// The rows of an opened file. What reads them ends when the stream is dropped.
    async fn rows(&self, file: File, asked: RowsAsked) -> Result<RowStream, FilesError>;
}
