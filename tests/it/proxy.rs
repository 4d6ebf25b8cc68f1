//! A network before Postgres that a test can take away and give back.

use sqlx::postgres::PgConnectOptions;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What the network does with what is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Network {
    /// It comes through.
    Open,
    /// Every connection is closed, and so is each new one.
    Cut,
    /// Nothing comes through, no connection is closed; when it is open again everything arrives late.
    Held,
    /// As [`Network::Held`], but what is sent is gone for good; and the connections there were are forgotten: they stay
    /// open, and never again does anything come through.
    Swallowed,
}

/// A port of the loopback that leads to a server.
pub(crate) struct Proxy {
    address: SocketAddr,
    url: String,
    wires: Wires,
    network: watch::Sender<Network>,
}

/// What every connection looks at.
#[derive(Clone)]
struct Wires {
    network: watch::Receiver<Network>,
    /// How often connections were forgotten.
    forgotten: Arc<AtomicU32>,
    /// Bytes of a request: the answer to the commit of what was asked with them is swallowed and its connection cut, once.
    lost: Arc<Mutex<Option<Vec<u8>>>>,
    /// How often something was asked after an answer.
    trips: Arc<AtomicU32>,
}

impl Proxy {
    /// Before the server of this URL.
    pub(crate) async fn before(url: &str) -> Self {
        let options = PgConnectOptions::from_str(url).unwrap();
        let server = format!("{}:{}", options.get_host(), options.get_port());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (network, open) = watch::channel(Network::Open);
        let wires = Wires { network: open, forgotten: Arc::default(), lost: Arc::default(), trips: Arc::default() };
        assert!(url.contains(&server), "{server} is not in the URL");
        let proxy =
            Self { address, url: url.replacen(&server, &address.to_string(), 1), wires: wires.clone(), network };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connection(client, server.clone(), wires.clone()));
            }
        });
        proxy
    }

    /// The database's URL through it.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn set(&self, network: Network) {
        if network == Network::Swallowed {
            self.wires.forgotten.fetch_add(1, Ordering::SeqCst);
        }
        self.network.send_replace(network);
    }

    /// Loses the answer to the next commit (or acceptance of a run) of a transaction in which these bytes were sent, with its connection.
    pub(crate) fn lose_the_commit_of(&self, request: &str) {
        *self.wires.lost.lock().unwrap() = Some(request.as_bytes().to_vec());
    }

    /// How many round trips steps have made: what is asked of the server and answered, the looks whether it is there and the wake-ups of
    /// other processes, for which no step waits, left out.
    pub(crate) fn round_trips(&self) -> u32 {
        self.wires.trips.load(Ordering::SeqCst)
    }

    /// Whether that has happened.
    pub(crate) fn has_lost_it(&self) -> bool {
        self.wires.lost.lock().unwrap().is_none()
    }
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({:?})", self.address, *self.network.borrow())
    }
}

async fn connection(client: TcpStream, server: String, wires: Wires) {
    if *wires.network.borrow() == Network::Cut {
        return;
    }
    let Ok(server) = TcpStream::connect(server).await else { return };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let asked = AtomicBool::new(false);
    let answered = AtomicBool::new(true);
    let mut network = wires.network.clone();
    tokio::select! {
        () = forward(from_client, to_server, &wires, |bytes| {
            if wires.lost.lock().unwrap().as_ref().is_some_and(|request| contains(bytes, request)) {
                asked.store(true, Ordering::SeqCst);
            }
            if answered.swap(false, Ordering::SeqCst) && !is_aside(bytes) {
                wires.trips.fetch_add(1, Ordering::SeqCst);
            }
            true
        }) => {}
        () = forward(from_server, to_client, &wires, |bytes| {
            let committed = || contains(bytes, b"COMMIT\0") || contains(bytes, b"accepted");
            let lost = asked.load(Ordering::SeqCst) && committed();
            answered.store(true, Ordering::SeqCst);
            if lost {
                wires.lost.lock().unwrap().take();
            }
            !lost
        }) => {}
        _ = network.wait_for(|network| *network == Network::Cut) => {}
    }
}

/// Passes on what comes, as the network allows, until an end closes or `pass` says no.
async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, wires: &Wires, pass: impl Fn(&[u8]) -> bool) {
    let mut network = wires.network.clone();
    let mut bytes = vec![0; 1 << 16];
    let known_since = wires.forgotten.load(Ordering::SeqCst);
    let mut gone = *network.borrow() == Network::Swallowed;
    loop {
        let read = from.read(&mut bytes).await.unwrap_or(0);
        gone |= wires.forgotten.load(Ordering::SeqCst) != known_since;
        // Also the end of a connection gets through only where something does.
        if network
            .wait_for(|network| !matches!(network, Network::Held | Network::Swallowed) || (gone && read > 0))
            .await
            .is_err()
        {
            return;
        }
        if read == 0 || (!gone && (!pass(&bytes[..read]) || to.write_all(&bytes[..read]).await.is_err())) {
            return;
        }
    }
}

/// A look whether the server is there is a lone `Sync`; wake-ups name their channel.
fn is_aside(bytes: &[u8]) -> bool {
    bytes == b"S\0\0\0\x04" || contains(bytes, b"refrain\0") || contains(bytes, b"\0\0\0\x07refrain")
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
