//! Where connections come in: how many there may be, how long each may take, and TLS. It knows connections and bytes; what
//! is asked and answered on them is the router's.

mod answering;
mod certificate;
mod descriptors;
mod patient;
mod places;
mod refused;
pub mod tls;

pub use descriptors::Descriptors;
pub use refused::Refusals;

use crate::telemetry::METRIC_HTTP_CONNECTIONS;
use answering::{Answer, Answering};
use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use patient::Patient;
use places::{Place, Places};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tls::Tls;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service as _;

/// How much of a request or an answer is in memory on its way. A body is read in such pieces.
const BUFFER_BYTES: usize = 64 << 10;

/// The pause after a connection could not be accepted, as where the process has no more descriptors: some are closed
/// meanwhile, and the listener would say so again at once.
const AFTER_AN_ERROR: Duration = Duration::from_millis(100);

/// How many connections may wait to be accepted, as far as the system allows (`net.core.somaxconn`, 4,096 by default). Of
/// those that come beyond it the system drops packets, and who has nothing to send then believes for ever that it is connected.
const BACKLOG: u32 = 4_096;

/// Opens the port.
///
/// # Errors
///
/// When the address is not of this machine, or taken.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Or a server that starts again would wait for what its predecessor's connections left behind.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// How many connections there may be, and how long each may take.
#[derive(Debug, Clone)]
pub struct ConnectionLimits {
    /// The most connections at the same time.
    pub max_connections: usize,
    /// The most of one address; none where all come through a proxy.
    pub max_connections_per_address: Option<usize>,
    /// How long a connection may be without a whole request head, from its opening or the end of the answer before.
    pub header_timeout: Duration,
    /// How long a client may take nothing of what is sent to it.
    pub write_timeout: Duration,
    /// The longest request head, in bytes.
    pub max_header_bytes: usize,
    /// The most headers of a request.
    pub max_headers: usize,
}

/// The listening side of the service.
pub struct Edge {
    /// How many connections there may be, and how long each may take.
    pub limits: ConnectionLimits,
    /// What connections speak; plain HTTP where there is none.
    pub tls: Option<Tls>,
    /// What is sent where no request is read.
    pub refusals: Refusals,
}

impl Edge {
    /// Serves until `shutdown`: then nothing more is accepted, connections without a request close at once, and this ends
    /// when the answers under way have ended.
    pub async fn serve(self, listener: TcpListener, router: Router, shutdown: CancellationToken) {
        let places = Places::new(self.limits.max_connections, self.limits.max_connections_per_address);
        let connections = TaskTracker::new();
        let line = Arc::new(Line::new(self, router, shutdown.clone()));
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = shutdown.cancelled() => break,
            };
            match accepted {
                Ok((stream, peer)) => match places.take(peer.ip()) {
                    Ok(place) => drop(connections.spawn(Arc::clone(&line).keep(stream, place))),
                    Err(full) => line.refusals.turn_away(stream, full, line.tls.is_some()),
                },
                Err(error) if was_the_clients(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "a connection cannot be accepted");
                    tokio::select! {
                        () = tokio::time::sleep(AFTER_AN_ERROR) => {}
                        () = shutdown.cancelled() => break,
                    }
                }
            }
        }
        drop(listener);
        connections.close();
        connections.wait().await;
    }
}

/// Whether the client went away before its connection was accepted.
fn was_the_clients(error: &io::Error) -> bool {
    use io::ErrorKind as K;
    matches!(error.kind(), K::ConnectionAborted | K::ConnectionReset | K::ConnectionRefused)
}

/// What all connections have in common.
struct Line {
    http: http1::Builder,
    router: Router,
    tls: Option<Tls>,
    refusals: Refusals,
    limits: ConnectionLimits,
    shutdown: CancellationToken,
}

impl Line {
    fn new(edge: Edge, router: Router, shutdown: CancellationToken) -> Self {
        let Edge { limits, tls, refusals } = edge;
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(limits.header_timeout)
            .max_header_size(limits.max_header_bytes)
            .max_headers(limits.max_headers)
            .max_buf_size(BUFFER_BYTES.max(limits.max_header_bytes));
        // Otherwise each connection had a copy of every route.
        let router = router.with_state(());
        Self { http, router, tls, refusals, limits, shutdown }
    }

    /// Keeps a connection until its end.
    async fn keep(self: Arc<Self>, stream: TcpStream, place: Place) {
        let _counted = Counted::new();
        // An answer is written as a whole; to wait for more would only delay it.
        let _ = stream.set_nodelay(true);
        let served = async {
            match &self.tls {
                None => self.serve(Patient::new(stream, self.limits.write_timeout)).await,
                // Apart, so that a connection without has no room for it.
                Some(tls) => Box::pin(self.serve_secured(stream, tls)).await,
            }
        };
        // In one place of memory: it is kept for each connection.
        Box::pin(served).await;
        drop(place);
    }

    /// A client has as long for its handshake as for the head of a request.
    async fn serve_secured(&self, stream: TcpStream, tls: &Tls) {
        let secured = async {
            if tls::is_plain(&stream).await? {
                self.refusals.tell(stream, &self.refusals.plain).await;
                return Ok(None);
            }
            tls.accept(Patient::new(stream, self.limits.write_timeout)).await.map(Some)
        };
        let secured = tokio::select! {
            secured = timeout(self.limits.header_timeout, secured) => secured,
            () = self.shutdown.cancelled() => return,
        };
        match secured {
            Ok(Ok(Some(stream))) => Box::pin(self.serve(stream)).await,
            Ok(Ok(None)) => {}
            Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
            Err(_) => tracing::debug!("a TLS handshake took too long"),
        }
    }

    async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send>(&self, stream: S) {
        let answering = Answering::default();
        let service = service_fn(|request: hyper::Request<Incoming>| {
            let under_way = answering.begin();
            let answer = self.router.clone().call(request.map(Body::new));
            async move { answer.await.map(|answer| answer.map(|body| Answer { body, _under_way: under_way })) }
        });
        let mut connection = pin!(self.http.serve_connection(TokioIo::new(stream), service));
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.shutdown.cancelled() => {
                connection.as_mut().graceful_shutdown();
                // Of half a head nobody knows how long the rest takes.
                if !answering.is_going_on() {
                    return;
                }
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended early");
        }
    }
}

/// A connection in the gauge of open ones.
struct Counted;

impl Counted {
    fn new() -> Self {
        metrics::gauge!(METRIC_HTTP_CONNECTIONS).increment(1);
        Self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        metrics::gauge!(METRIC_HTTP_CONNECTIONS).decrement(1);
    }
}
