//! A server of files on the loopback, which answers as a test says.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The server; gone with the test.
pub(crate) struct Site {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Request>>>,
    task: JoinHandle<()>,
}

/// What it is asked.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// With the query.
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

/// What it answers.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Body,
}

/// What comes after the head.
#[derive(Debug, Clone)]
pub(crate) enum Body {
    /// All of it.
    Whole(Vec<u8>),
    /// So many bytes of it, then the connection is closed.
    Cut(Vec<u8>, usize),
    /// So many bytes of it, then nothing more.
    Stalled(Vec<u8>, usize),
    /// It never ends, and no length was said.
    Endless,
    /// Not even a head.
    Silence,
    /// A head that comes letter by letter, and never ends.
    SlowHead,
}

/// A file as most servers keep it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stored {
    pub(crate) bytes: Vec<u8>,
    pub(crate) etag: Option<String>,
    pub(crate) modified: Option<String>,
}

impl Reply {
    pub(crate) fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Body::Whole(Vec::new()) }
    }

    pub(crate) fn redirect(to: &str) -> Self {
        Self::status(302).with("location", to)
    }

    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    pub(crate) fn body(self, body: Body) -> Self {
        Self { body, ..self }
    }
}

impl Stored {
    pub(crate) fn new(bytes: &[u8], etag: &str) -> Self {
        Self { bytes: bytes.to_vec(), etag: Some(etag.to_owned()), modified: None }
    }

    /// The file, or what its server says of the conditions and the range that were asked for.
    pub(crate) fn answer(&self, request: &Request) -> Reply {
        let wanted = request.headers.get("if-match");
        if wanted.is_some_and(|wanted| Some(wanted) != self.etag.as_ref()) {
            return Reply::status(412);
        }
        let whole = self.bytes.len();
        let mut reply = match request.headers.get("range").map(String::as_str) {
            None => Reply::status(200).body(Body::Whole(self.bytes.clone())),
            Some("bytes=0-0") if whole == 0 => Reply::status(416).with("content-range", "bytes */0"),
            Some("bytes=0-0") => {
                let first = Body::Whole(self.bytes[..1].to_vec());
                Reply::status(206).with("content-range", &format!("bytes 0-0/{whole}")).body(first)
            }
            Some(other) => panic!("nobody needs {other}"),
        };
        reply.headers.extend(self.etag.clone().map(|etag| ("etag", etag)));
        reply.headers.extend(self.modified.clone().map(|modified| ("last-modified", modified)));
        reply
    }
}

impl Site {
    pub(crate) async fn start(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen: Arc<Mutex<Vec<Request>>> = Arc::default();
        let (answer, requests) = (Arc::new(answer), Arc::clone(&seen));
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (answer, requests) = (Arc::clone(&answer), Arc::clone(&requests));
                tokio::spawn(async move { serve(client, answer.as_ref(), &requests).await });
            }
        });
        Self { address, seen, task }
    }

    /// With these files; all others are not there.
    pub(crate) async fn of(files: BTreeMap<String, Stored>) -> Self {
        Self::start(move |request| {
            let path = request.path.split('?').next().unwrap();
            files.get(path).map_or_else(|| Reply::status(404), |file| file.answer(request))
        })
        .await
    }

    /// `127.0.0.1:1234`, as it is listed.
    pub(crate) fn host(&self) -> String {
        self.address.to_string()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The requests so far, as `GET /path`.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.requests().iter().map(|request| format!("{} {}", request.method, request.path)).collect()
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One request for each connection. A client that goes away in the middle is none of the test's business.
async fn serve(mut client: TcpStream, answer: &impl Fn(&Request) -> Reply, seen: &Mutex<Vec<Request>>) {
    let Some(request) = read(&mut client).await else { return };
    let reply = {
        let mut seen = seen.lock().unwrap();
        seen.push(request.clone());
        answer(&request)
    };
    let _ = write(&mut client, &request, reply).await;
}

async fn read(client: &mut TcpStream) -> Option<Request> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.lines();
    let mut words = lines.next()?.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers: BTreeMap<String, String> =
        headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    client.read_exact(&mut body).await.ok()?;
    Some(Request { method, path, headers, body })
}

async fn write(client: &mut TcpStream, request: &Request, reply: Reply) -> std::io::Result<()> {
    let mut head = format!("HTTP/1.1 {} x\r\nconnection: close\r\n", reply.status);
    let sets_length = reply.headers.iter().any(|(name, _)| *name == "content-length");
    for (name, value) in &reply.headers {
        head += &format!("{name}: {value}\r\n");
    }
    let (body, sent) = match &reply.body {
        Body::Whole(bytes) => (Some(bytes), bytes.len()),
        Body::Cut(bytes, sent) | Body::Stalled(bytes, sent) => (Some(bytes), *sent),
        Body::Endless => (None, 0),
        Body::Silence => return std::future::pending().await,
        Body::SlowHead => {
            let mut ticks = tokio::time::interval(Duration::from_millis(50));
            client.write_all(head.as_bytes()).await?;
            loop {
                ticks.tick().await;
                client.write_all(b"x").await?;
            }
        }
    };
    if let Some(bytes) = body.filter(|_| !sets_length) {
        head += &format!("content-length: {}\r\n", bytes.len());
    }
    client.write_all(format!("{head}\r\n").as_bytes()).await?;
    if request.method == "HEAD" {
        return Ok(());
    }
    match (&reply.body, body) {
        (Body::Endless, _) => loop {
            client.write_all(&[b'x'; 1 << 16]).await?;
        },
        (Body::Stalled(..), Some(bytes)) => {
            client.write_all(&bytes[..sent]).await?;
            std::future::pending().await
        }
        (_, Some(bytes)) => client.write_all(&bytes[..sent]).await,
        _ => Ok(()),
    }
}
