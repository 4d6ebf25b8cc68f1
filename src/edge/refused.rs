//! Answers to connections on which no request is read.

use super::places::Full;
use crate::telemetry::METRIC_HTTP_CONNECTIONS_REFUSED;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// How many clients are told at the same time; beyond it the connection just ends.
const TOLD_AT_ONCE: usize = 256;

/// How long that may take.
const WITHIN: Duration = Duration::from_secs(1);

/// How long a client may take to begin its request. Many a client that is answered before it has asked takes that for a
/// broken connection and does not look at what is said.
const ASKS_WITHIN: Duration = Duration::from_millis(500);

/// What such clients are sent, as it goes over the wire.
#[derive(Clone)]
pub struct Refusals {
    pub(super) full: Bytes,
    pub(super) plain: Bytes,
    telling: Arc<Semaphore>,
}

impl Refusals {
    /// The answers: where there are too many connections, and where plain HTTP comes to a port that speaks TLS.
    pub fn new(full: Bytes, plain: Bytes) -> Self {
        for by in [Full::All, Full::OfAddress] {
            metrics::counter!(METRIC_HTTP_CONNECTIONS_REFUSED, "by" => by.label()).increment(0);
        }
        Self { full, plain, telling: Arc::new(Semaphore::new(TOLD_AT_ONCE)) }
    }

    /// Ends a connection for which there is no place, and says why where that costs no handshake.
    pub(super) fn turn_away(&self, stream: TcpStream, full: Full, is_secured: bool) {
        metrics::counter!(METRIC_HTTP_CONNECTIONS_REFUSED, "by" => full.label()).increment(1);
        let Ok(permit) = Arc::clone(&self.telling).try_acquire_owned() else { return };
        if is_secured {
            return;
        }
        let refusals = self.clone();
        tokio::spawn(async move {
            refusals.tell(stream, &refusals.full).await;
            drop(permit);
        });
    }

    /// Sends an answer once there is a request, then reads on for a moment: an end with bytes unread would take the answer
    /// with it.
    pub(super) async fn tell(&self, mut stream: TcpStream, answer: &Bytes) {
        let told = async {
            let _ = timeout(ASKS_WITHIN, stream.peek(&mut [0])).await;
            stream.write_all(answer).await?;
            stream.shutdown().await?;
            let mut rest = [0; 1024];
            while stream.read(&mut rest).await? > 0 {}
            std::io::Result::Ok(())
        };
        // Whether the client heard it is its own affair.
        let _ = timeout(WITHIN, told).await;
    }
}
