//! The way of spans to the collector: a queue of bounded length and one thread, so that a collector that is down or slow holds up
//! and fails nothing. What does not fit is dropped and counted.

use super::METRIC_SPANS;
use opentelemetry::Context;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{Span, SpanData, SpanExporter, SpanProcessor};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How many spans may wait.
const QUEUE: usize = 2048;
/// How many are sent at once.
const BATCH: usize = 512;
/// How long a span may wait for others before it is sent.
const SEND_EVERY: Duration = Duration::from_secs(1);
/// How long a collector that did not take spans is left alone.
const PAUSE: Duration = Duration::from_secs(3);

/// What the thread is told.
enum Told {
    Ended(Box<SpanData>),
    Resource(Box<Resource>),
    Flush(SyncSender<()>),
}

/// Takes spans that have ended.
pub(super) struct Spool {
    queue: SyncSender<Told>,
    dropped: metrics::Counter,
    closed: Mutex<bool>,
}

impl std::fmt::Debug for Spool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spool").finish_non_exhaustive()
    }
}

impl Spool {
    /// Sends what it takes by `exporter`.
    pub(super) fn of<E: SpanExporter + 'static>(exporter: E) -> std::io::Result<Self> {
        let (queue, told) = sync_channel(QUEUE);
        let counter = |outcome: &'static str| {
            let counter = metrics::counter!(METRIC_SPANS, "outcome" => outcome);
            counter.increment(0);
            counter
        };
        let sending =
            Sending { exporter, exported: counter("exported"), failed: counter("failed"), waiting: Vec::new() };
        std::thread::Builder::new().name("traces".to_owned()).spawn(move || sending.run(&told))?;
        Ok(Self { queue, dropped: counter("dropped"), closed: Mutex::new(false) })
    }

    fn flush(&self, within: Duration) -> OTelSdkResult {
        let until = Instant::now() + within;
        let (done, flushed) = sync_channel(1);
        let mut flush = Told::Flush(done);
        // A queue that is full gets shorter, or the collector is away and the time is soon up.
        while let Err(TrySendError::Full(again)) = self.queue.try_send(flush) {
            flush = again;
            if Instant::now() >= until {
                return Err(OTelSdkError::Timeout(within));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let left = until.saturating_duration_since(Instant::now());
        flushed.recv_timeout(left).map_err(|_| OTelSdkError::Timeout(within))
    }
}

impl SpanProcessor for Spool {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() && self.queue.try_send(Told::Ended(Box::new(span))).is_err() {
            self.dropped.increment(1);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.flush(SEND_EVERY)
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        match std::mem::replace(&mut *self.closed.lock().unwrap_or_else(PoisonError::into_inner), true) {
            true => Err(OTelSdkError::AlreadyShutdown),
            false => self.flush(timeout),
        }
    }

    fn set_resource(&mut self, resource: &Resource) {
        // The first thing that it is told, so there is room.
        let _ = self.queue.try_send(Told::Resource(Box::new(resource.clone())));
    }
}

/// The thread's side.
struct Sending<E> {
    exporter: E,
    exported: metrics::Counter,
    failed: metrics::Counter,
    waiting: Vec<SpanData>,
}

impl<E: SpanExporter> Sending<E> {
    /// Until the queue is closed.
    fn run(mut self, told: &Receiver<Told>) {
        let mut due = Instant::now() + SEND_EVERY;
        loop {
            match told.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Ok(Told::Ended(span)) => {
                    self.waiting.push(*span);
                    if self.waiting.len() < BATCH && Instant::now() < due {
                        continue;
                    }
                    self.send();
                }
                Ok(Told::Resource(resource)) => self.exporter.set_resource(&resource),
                Ok(Told::Flush(done)) => {
                    self.send();
                    let _ = done.send(());
                }
                Err(RecvTimeoutError::Timeout) => self.send(),
                Err(RecvTimeoutError::Disconnected) => return self.send(),
            }
            due = Instant::now() + SEND_EVERY;
        }
    }

    fn send(&mut self) {
        let spans = std::mem::take(&mut self.waiting);
        if spans.is_empty() {
            return;
        }
        let count = spans.len() as u64;
        match futures::executor::block_on(self.exporter.export(spans)) {
            Ok(()) => self.exported.increment(count),
            Err(_) => {
                self.failed.increment(count);
                std::thread::sleep(PAUSE);
            }
        }
    }
}
