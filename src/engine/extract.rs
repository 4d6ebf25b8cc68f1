//! A partition's file in another format for a client, made by a child process of the same binary: what a query engine does
//! with a file's bytes, or they with it, must not take the service down.
//!
//! The child has the opened file as its standard input, so that it reads what was opened, wherever the name leads by now. Its
//! standard output is a socket: on it comes one line, what is asked, which may be long and is no other process's business. The
//! first line of the answer says whether there are rows; they follow. It ends with 0 after the last of them, and where it does
//! not, the rows are not whole. It dies with its parent, at the latest when it writes on.

use super::child::{GIVE_BACK, LEAN, last_words, leave_signals_to_the_parent, limit_memory};
use super::environment::without_settings;
use super::polars;
use crate::run::PartFile;
use crate::telemetry::{InUse, METRIC_READERS};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufRead, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

/// How much of the rows is passed on at once.
const CHUNK_BYTES: usize = 64 << 10;
/// Threads of a child: it shares the machine with the runs.
const THREADS: (&str, &str) = ("POLARS_MAX_THREADS", "1");

/// What rows become.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowFormat {
    /// Comma-separated values, as csv tables have them.
    Csv,
    /// A JSON array of objects.
    Json,
    /// A JSON object on each line.
    Ndjson,
}

/// What is asked of a file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Extract {
    /// What the file is.
    pub file: PartFile,
    /// The text of the definition that it was written by, for one that does not tell its types.
    pub definition: Option<String>,
    /// What its rows become.
    pub format: RowFormat,
    /// These columns, in this order; none for all.
    pub columns: Option<Vec<String>>,
    /// At most that many rows, from the first on.
    pub limit: Option<u64>,
}

/// The child's first line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ready {
    /// Rows follow.
    Rows,
    /// The file has other columns.
    UnknownColumns { found: Vec<String>, expected: Vec<String> },
}

/// Why there are no rows.
#[derive(Debug, thiserror::Error)]
pub enum ExtractError {
    /// As many as there may be are at work.
    #[error("{0} files are being read for clients, as many as may be")]
    Busy(usize),
    /// The file has other columns.
    #[error("found the columns {}, expected some of {}", found.join(", "), expected.join(", "))]
    UnknownColumns {
        /// Those asked for that it does not have.
        found: Vec<String>,
        /// Those that it has.
        expected: Vec<String>,
    },
    /// The child could not be started, or ended without a row.
    #[error("{0}")]
    Failed(String),
}

/// Starts the children, so many at a time.
#[derive(Debug, Clone)]
pub struct Extractor {
    program: PathBuf,
    memory_mb: u64,
    most: usize,
    permits: Arc<Semaphore>,
}

/// Rows that come from a child; dropped, it is killed.
#[derive(Debug)]
pub struct Extracted {
    child: Child,
    rows: BufReader<UnixStream>,
    words: Option<JoinHandle<Vec<u8>>>,
    _permit: OwnedSemaphorePermit,
    _counted: InUse,
}

impl Extractor {
    /// At most `most` children of `program` at a time, each with so much memory for its data.
    pub fn new(program: PathBuf, memory_mb: u64, most: usize) -> Self {
        Self { program, memory_mb, most, permits: Arc::new(Semaphore::new(most)) }
    }

    /// Begins to read `file`, which must be at its beginning.
    pub async fn start(&self, file: File, asked: &Extract) -> Result<Extracted, ExtractError> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().map_err(|_| ExtractError::Busy(self.most))?;
        let (mut child, rows) = self.spawn(file).map_err(|e| {
            ExtractError::Failed(format!("{}: the reading process could not be started: {e}", self.program.display()))
        })?;
        let words = child.stderr.take().map(|errors| tokio::spawn(last_words(errors)));
        let rows = BufReader::with_capacity(CHUNK_BYTES, rows);
        let mut extracted = Extracted { child, rows, words, _permit: permit, _counted: InUse::of(METRIC_READERS) };
        match extracted.ask(Request { asked: asked.clone(), memory_mb: self.memory_mb }).await {
            Ok(Ready::Rows) => Ok(extracted),
            Ok(Ready::UnknownColumns { found, expected }) => Err(ExtractError::UnknownColumns { found, expected }),
            Err(_) => Err(ExtractError::Failed(extracted.how_it_ended().await)),
        }
    }

    fn spawn(&self, file: File) -> io::Result<(Child, UnixStream)> {
        let (ours, its) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let child = without_settings(&mut Command::new(&self.program))
            .arg("extract")
            .envs(LEAN)
            .envs([GIVE_BACK, THREADS])
            .stdin(Stdio::from(file))
            .stdout(Stdio::from(OwnedFd::from(its)))
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        Ok((child, UnixStream::from_std(ours)?))
    }
}

impl Extracted {
    async fn ask(&mut self, request: Request) -> io::Result<Ready> {
        let mut line = serde_json::to_vec(&request)?;
        line.push(b'\n');
        self.rows.write_all(&line).await?;
        let mut answer = String::new();
        self.rows.read_line(&mut answer).await?;
        Ok(serde_json::from_str(&answer)?)
    }

    /// The next bytes; none once all have come. An error where they are not whole.
    pub async fn next(&mut self) -> io::Result<Option<Bytes>> {
        let mut chunk = Vec::with_capacity(CHUNK_BYTES);
        if self.rows.read_buf(&mut chunk).await? > 0 {
            return Ok(Some(chunk.into()));
        }
        match self.child.wait().await? {
            status if status.success() => Ok(None),
            _ => Err(io::Error::other(self.how_it_ended().await)),
        }
    }

    async fn how_it_ended(&mut self) -> String {
        let status = self.child.wait().await.map_or_else(|e| e.to_string(), |status| status.to_string());
        let words = match self.words.take() {
            Some(words) => words.await.unwrap_or_default(),
            None => Vec::new(),
        };
        format!("the reading process ended with {status}: {}", String::from_utf8_lossy(&words).trim())
    }
}

#[derive(Serialize, Deserialize)]
struct Request {
    asked: Extract,
    memory_mb: u64,
}

/// The child's side: the hidden verb `extract`.
pub fn serve_extract() -> ExitCode {
    leave_signals_to_the_parent();
    let Ok(Request { asked, memory_mb }) = request() else { return ExitCode::from(2) };
    let Ok(file) = io::stdin().as_fd().try_clone_to_owned() else { return ExitCode::from(2) };
    limit_memory(memory_mb);
    let mut out = io::stdout().lock();
    let ready = |out: &mut dyn Write, ready: &Ready| {
        let mut line = serde_json::to_vec(ready)?;
        line.push(b'\n');
        out.write_all(&line)
    };
    match polars::extract(&asked, File::from(file), &mut out, ready) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to tell it to where standard error is closed.
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

/// What comes on the socket that is the standard output.
fn request() -> io::Result<Request> {
    let socket = io::stdout().as_fd().try_clone_to_owned()?;
    let mut line = String::new();
    io::BufReader::new(File::from(socket)).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}
