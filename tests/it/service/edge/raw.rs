//! Clients that speak HTTP as nobody should.

use std::io;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

/// How long a client of these waits between two bytes.
const PAUSE: Duration = Duration::from_millis(100);

/// The longest that any of them is served.
const GIVE_UP: Duration = Duration::from_secs(30);

/// How a connection ended.
#[derive(Debug)]
pub(super) struct Closed {
    /// After how long.
    pub(super) after: Duration,
    /// What came until then.
    pub(super) answer: String,
}

impl Closed {
    /// Checks that it was closed between these seconds.
    #[track_caller]
    pub(super) fn within(&self, from: f64, to: f64) {
        let seconds = self.after.as_secs_f64();
        assert!((from..to).contains(&seconds), "closed after {seconds} s, not within {from} to {to} s: {self:?}");
    }
}

pub(super) async fn connect(address: &str) -> TcpStream {
    TcpStream::connect(address).await.unwrap()
}

/// A client that has hardly any room for what it is sent.
pub(super) async fn connect_narrow(address: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(address.parse().unwrap()).await.unwrap()
}

/// Sends a byte now and then, and again from the first, until the server ends the connection.
pub(super) async fn trickle(mut stream: TcpStream, bytes: &[u8]) -> Closed {
    let began = Instant::now();
    let (mut answer, mut sent) = (Vec::new(), 0);
    loop {
        let mut chunk = [0; 4096];
        match timeout(PAUSE, stream.read(&mut chunk)).await {
            Ok(Ok(read)) if read > 0 => answer.extend_from_slice(&chunk[..read]),
            Ok(_) => break,
            Err(_) => {
                // One that was ended meanwhile is noticed by the next read.
                let _ = stream.write_all(&bytes[sent % bytes.len()..][..1]).await;
                sent += 1;
            }
        }
        assert!(began.elapsed() < GIVE_UP, "served for {GIVE_UP:?}, after {sent} bytes");
    }
    Closed { after: began.elapsed(), answer: String::from_utf8_lossy(&answer).into_owned() }
}

/// Sends this at once, and then nothing, until the server ends the connection.
pub(super) async fn silent(mut stream: TcpStream, bytes: &[u8]) -> Closed {
    let began = Instant::now();
    // One that is refused may be closed already.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    match timeout(GIVE_UP, stream.read_to_end(&mut answer)).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionReset => {}
        other => panic!("not closed: {other:?}"),
    }
    Closed { after: began.elapsed(), answer: String::from_utf8_lossy(&answer).into_owned() }
}
