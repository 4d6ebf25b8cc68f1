//! The engine in a child process of the same binary.
//!
//! The streaming engine cannot be cancelled, has no memory limit, and maps its sources into memory (a file cut short
//! while it is read kills the process): so it runs where it can be killed, limited and survived. The parent writes one
//! request line to the child's standard input and keeps it open; the child answers in JSON lines on its standard output
//! and ends itself when its standard input does, for then its parent is gone.

use super::environment::without_settings;
use super::error::{lost, service_failure};
use super::{Engine, EngineError, Job, Report, polars};
use crate::fault::Faults;
use crate::run::{FailureClass, Progress, Quarantine, RunError};
use crate::telemetry::METRIC_ENGINE_DEATHS;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStderr, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

/// How often the child tells how much it has read.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);
/// How long a child that ended its output may take to end itself.
const DYING: Duration = Duration::from_secs(2);
/// What is between the steps of a query, each as short as may be: they hold row groups, and so most of the memory of a query
/// over wide rows, and longer ones do not make it faster.
pub(super) const LEAN: [(&str, &str); 4] = [
    ("POLARS_ROW_GROUP_PREFETCH_SIZE", "1"),
    ("POLARS_DEFAULT_DISTRIBUTOR_BUFFER_SIZE", "1"),
    ("POLARS_DEFAULT_LINEARIZER_BUFFER_SIZE", "1"),
    // Rows whose group finds no place in this table are kept until the end, and with one of them the texts of its row group.
    ("POLARS_HOT_TABLE_SIZE", "65536"),
];
/// Where memory has a limit, freed blocks of 128 KiB and more go back at once: kept for later in many places, they are most of
/// what a query seems to take.
pub(super) const GIVE_BACK: (&str, &str) = ("MALLOC_MMAP_THRESHOLD_", "131072");
/// Giving back takes time, a tenth of a query's, so that without a limit they are kept; in few places, or more is taken than used;
/// and taken from the system in large pieces and pages, since it clears a page at a time when one is first touched.
const KEEP: [(&str, &str); 5] = [
    ("MALLOC_ARENA_MAX", "2"),
    ("MALLOC_MMAP_THRESHOLD_", "67108864"),
    ("MALLOC_TRIM_THRESHOLD_", "1073741824"),
    ("MALLOC_TOP_PAD_", "67108864"),
    ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1"),
];
/// How much of the child's last words is kept.
const LAST_WORDS_BYTES: usize = 4096;

/// Runs each job in a child process.
#[derive(Debug, Clone)]
pub struct ChildEngine {
    /// The binary to start with the verb `engine`: this one.
    pub program: PathBuf,
    /// The memory that the child may use for its data; none for no limit.
    pub memory_mb: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct Request {
    job: Job,
    memory_mb: Option<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Message {
    Progress(Progress),
    Report(Box<Report>),
    Failed(RunError),
    Rejected { error: RunError, quarantine: Box<Quarantine> },
}

#[async_trait]
impl Engine for ChildEngine {
    async fn compute(
        &self,
        job: Job,
        progress: watch::Sender<Progress>,
        cancel: CancellationToken,
    ) -> Result<Report, EngineError> {
        let mut child = self.spawn()?;
        let words = child.stderr.take().map(|errors| tokio::spawn(last_words(errors).in_current_span()));
        let answer = tokio::select! {
            answer = converse(&mut child, Request { job, memory_mb: self.memory_mb }, &progress) => answer,
            () = cancel.cancelled() => Err(EngineError::Cancelled),
        };
        // Whatever the answer, nothing of the child may run when this returns.
        let ended = stop(&mut child, &answer).await;
        count_death(&answer, &ended);
        match answer {
            Ok(Some(Message::Report(report))) => Ok(*report),
            Ok(Some(Message::Failed(error))) => Err(EngineError::Failed(error)),
            Ok(Some(Message::Rejected { error, quarantine })) => Err(EngineError::Rejected { error, quarantine }),
            Ok(Some(Message::Progress(_)) | None) => Err(died(words, ended).await),
            Err(error) => Err(error),
        }
    }
}

impl ChildEngine {
    fn spawn(&self) -> Result<Child, EngineError> {
        let mut command = Command::new(&self.program);
        match self.memory_mb {
            Some(_) => command.env(GIVE_BACK.0, GIVE_BACK.1),
            None => command.envs(KEEP),
        };
        without_settings(&mut command)
            .arg("engine")
            .envs(LEAN)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|e| {
                let detail = format!("{}: {e}", self.program.display());
                service_failure("engine-not-started", "The engine's process could not be started", detail)
            })
    }
}

/// Sends the request and reads until the answer; none where the child ends without one. The child's standard input
/// stays open until then.
async fn converse(
    child: &mut Child,
    request: Request,
    progress: &watch::Sender<Progress>,
) -> Result<Option<Message>, EngineError> {
    let broken = |e: &dyn std::fmt::Display| EngineError::from(lost(format!("its messages could not be read: {e}")));
    let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(broken(&"it has no standard input or output"));
    };
    let mut line = serde_json::to_vec(&request).map_err(|e| broken(&e))?;
    line.push(b'\n');
    if input.write_all(&line).await.is_err() || input.flush().await.is_err() {
        return Ok(None);
    }
    let mut lines = BufReader::new(output).lines();
    while let Some(line) = lines.next_line().await.map_err(|e| broken(&e))? {
        match serde_json::from_str(&line).map_err(|e| broken(&e))? {
            Message::Progress(now) => {
                progress.send_replace(now);
            }
            answer => return Ok(Some(answer)),
        }
    }
    Ok(None)
}

/// Ends the child, if it has not ended, and waits for it.
async fn stop(child: &mut Child, answer: &Result<Option<Message>, EngineError>) -> std::io::Result<ExitStatus> {
    // A child that gave its answer is a zombie by now, or soon; killing it changes nothing. One that is dying is let
    // die, so that the signal told is the one that it died of.
    let patience = match answer {
        Ok(None) => DYING,
        Ok(Some(_)) => Duration::from_millis(20),
        Err(_) => Duration::ZERO,
    };
    let already = tokio::time::timeout(patience, child.wait()).await;
    match already {
        Ok(ended) => ended,
        Err(_) => {
            child.start_kill()?;
            child.wait().await
        }
    }
}

/// Reads what the child says on its standard error, so that it never waits to say it, and keeps the end.
pub(super) async fn last_words(mut errors: ChildStderr) -> Vec<u8> {
    let mut words = Vec::new();
    let mut more = [0; LAST_WORDS_BYTES];
    while let Ok(read @ 1..) = errors.read(&mut more).await {
        words.extend_from_slice(more.get(..read).unwrap_or_default());
        words.drain(..words.len().saturating_sub(LAST_WORDS_BYTES));
    }
    if !words.is_empty() {
        tracing::warn!(words = %String::from_utf8_lossy(&words).trim(), "a child process said something on its standard error");
    }
    words
}

/// How an engine dies.
pub const DEATHS: [&str; 4] = ["memory", "killed", "signal", "exit"];

/// One at its memory limit says so, or is aborted; one that the kernel kills for want of memory is killed like any other.
fn count_death(answer: &Result<Option<Message>, EngineError>, ended: &std::io::Result<ExitStatus>) {
    let signal = ended.as_ref().ok().and_then(ExitStatusExt::signal);
    let how = match answer {
        Ok(Some(Message::Failed(error))) if error.class == FailureClass::Lost => "memory",
        Ok(Some(Message::Progress(_)) | None) => match signal {
            Some(signal) if signal == rustix::process::Signal::ABORT.as_raw() => "memory",
            Some(signal) if signal == rustix::process::Signal::KILL.as_raw() => "killed",
            Some(_) => "signal",
            None => "exit",
        },
        _ => return,
    };
    metrics::counter!(METRIC_ENGINE_DEATHS, "how" => how).increment(1);
}

async fn died(words: Option<JoinHandle<Vec<u8>>>, ended: std::io::Result<ExitStatus>) -> EngineError {
    let words = match words {
        // The child is dead: what it said is all there.
        Some(words) => tokio::time::timeout(DYING, words).await.ok().and_then(Result::ok),
        None => None,
    };
    let words = String::from_utf8_lossy(&words.unwrap_or_default()).trim().to_owned();
    let how = match ended {
        Ok(status) => match status.signal() {
            Some(signal) => format!("killed by signal {signal}"),
            None => format!("ended with {status}"),
        },
        Err(e) => format!("could not be waited for: {e}"),
    };
    lost(if words.is_empty() { how } else { format!("{how}; its last words: {words}") }).into()
}

/// The child's side: the hidden verb `engine`.
pub fn serve_child() -> ExitCode {
    leave_signals_to_the_parent();
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    let request: Request = match read.map(|_| serde_json::from_str(&line)) {
        Ok(Ok(request)) => request,
        _ => return ExitCode::from(2),
    };
    std::thread::spawn(end_with_the_parent);
    if let Some(megabytes) = request.memory_mb {
        limit_memory(megabytes);
    }
    let Ok(faults) = Faults::from_environment() else { return ExitCode::from(2) };
    let speaker = Arc::new(Speaker { faults, ..Speaker::default() });
    let telling = Arc::clone(&speaker);
    std::thread::spawn(move || telling.tell_what_is_read());
    let compute = std::panic::AssertUnwindSafe(|| polars::compute(&request.job, speaker.as_ref()));
    let answer = match std::panic::catch_unwind(compute) {
        Ok(Ok(report)) => Message::Report(Box::new(report)),
        Ok(Err(EngineError::Failed(error))) => Message::Failed(in_want_of_memory(error)),
        Ok(Err(EngineError::Rejected { error, quarantine })) => Message::Rejected { error, quarantine },
        Ok(Err(EngineError::Cancelled)) => return ExitCode::from(2),
        Err(panic) => {
            let (kind, title) = ("engine-panicked", "The computation failed");
            Message::Failed(RunError::new(FailureClass::Compute, kind, title, panic_text(panic.as_ref())))
        }
    };
    speaker.say(&answer);
    ExitCode::SUCCESS
}

/// Terminals and supervisors send their signals to the parent's whole group. When a shutdown lets an attempt go on, it is
/// for the parent to say when its engine ends; so the first signal must not end it as if it had died. Nor must the signal
/// of a file that reaches the limit of its size: the write fails, and the engine says which.
pub(super) fn leave_signals_to_the_parent() {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    let _inside = runtime.enter();
    let file_size = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
    for kind in [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup(), file_size] {
        // Once registered, a signal never does again what it does by default.
        let _ = signal(kind);
    }
}

/// A decoder that is refused memory says that its file is broken. The file is good and the engine is at its limit, as where
/// a refusal aborts it.
fn in_want_of_memory(error: RunError) -> RunError {
    match error.detail.contains("memory allocation failed") {
        true => lost(format!("it had no more memory: {}", error.detail)),
        false => error,
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|t| (*t).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "the engine panicked".to_owned())
}

fn end_with_the_parent() {
    let mut rest = Vec::new();
    let _ = std::io::Read::read_to_end(&mut std::io::stdin(), &mut rest);
    std::process::exit(3);
}

/// Limits private memory, not the address space: the sources are mapped. Allocations beyond it abort the process.
pub(super) fn limit_memory(megabytes: u64) {
    let bytes = megabytes.saturating_mul(1 << 20);
    let limit = rustix::process::Rlimit { current: Some(bytes), maximum: Some(bytes) };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Data, limit);
}

/// Says what the engine has to say, one JSON line after the other.
#[derive(Default)]
struct Speaker {
    counts: Arc<polars::Counts>,
    last: Mutex<Option<Progress>>,
    faults: Faults,
}

impl Speaker {
    fn say(&self, message: &Message) {
        let Ok(mut line) = serde_json::to_vec(message) else { return };
        line.push(b'\n');
        let mut out = std::io::stdout().lock();
        if out.write_all(&line).and_then(|()| out.flush()).is_err() {
            // Nobody listens any more.
            std::process::exit(3);
        }
    }

    fn tell_what_is_read(&self) {
        loop {
            std::thread::sleep(PROGRESS_EVERY);
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(progress) = last.as_mut()
                && self.counts.tell(progress)
            {
                // Under the lock, so that nothing older is said after something newer.
                self.say(&Message::Progress(progress.clone()));
            }
        }
    }
}

impl polars::Listener for Speaker {
    fn at(&self, progress: &Progress) {
        let mut progress = progress.clone();
        self.counts.tell(&mut progress);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        self.say(&Message::Progress(last.insert(progress).clone()));
    }

    fn step(&self, name: &str) -> Result<(), EngineError> {
        let reached = self.faults.reached_blocking(name);
        reached.map_err(|failed| service_failure("fault", "A fault was asked for", failed.to_string()))
    }

    fn counts(&self) -> Arc<polars::Counts> {
        Arc::clone(&self.counts)
    }
}
