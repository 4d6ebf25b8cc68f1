//! A collector of traces on the loopback: it keeps what it is sent, read by a small reader of protobuf.

use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The collector; gone with the test.
pub(super) struct Collector {
    pub(super) url: String,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    spans: Mutex<Vec<Span>>,
    headers: Mutex<Vec<HeaderMap>>,
}

/// A span as it was sent.
#[derive(Debug, Clone, Default)]
pub(super) struct Span {
    pub(super) trace: String,
    pub(super) id: String,
    pub(super) parent: String,
    pub(super) name: String,
    pub(super) kind: u64,
    pub(super) nanoseconds: u64,
    pub(super) attributes: BTreeMap<String, String>,
    /// Of what sent it.
    pub(super) resource: BTreeMap<String, String>,
}

impl Collector {
    pub(super) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Seen::default());
        let router = axum::Router::new().route("/v1/traces", post(take)).with_state(Arc::clone(&seen));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, seen }
    }

    /// The spans of a trace, once they are what is waited for.
    pub(super) async fn trace(&self, trace: &str, complete: impl Fn(&[Span]) -> bool) -> Vec<Span> {
        let end = Instant::now() + super::WITHIN;
        loop {
            let all = self.seen.spans.lock().unwrap().clone();
            let spans: Vec<Span> = all.iter().filter(|span| span.trace == trace).cloned().collect();
            if complete(&spans) {
                return spans;
            }
            assert!(Instant::now() < end, "the trace is not complete: {spans:#?}\nof {all:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(super) fn spans(&self) -> Vec<Span> {
        self.seen.spans.lock().unwrap().clone()
    }

    /// The values of a header in what was sent.
    pub(super) fn header(&self, name: &str) -> Vec<String> {
        let headers = self.seen.headers.lock().unwrap();
        headers.iter().filter_map(|all| all.get(name)?.to_str().ok().map(str::to_owned)).collect()
    }
}

async fn take(State(seen): State<Arc<Seen>>, headers: HeaderMap, body: Bytes) {
    seen.headers.lock().unwrap().push(headers);
    for of_resource in messages(&body, 1) {
        let resource = messages(of_resource, 1).first().map(|r| attributes(r, 1)).unwrap_or_default();
        for span in messages(of_resource, 2).iter().flat_map(|scope| messages(scope, 2)) {
            seen.spans.lock().unwrap().push(Span { resource: resource.clone(), ..read(span) });
        }
    }
}

fn read(span: &[u8]) -> Span {
    let text =
        |number| messages(span, number).first().map(|b| String::from_utf8_lossy(b).into_owned()).unwrap_or_default();
    let hex = |number| messages(span, number).first().map(|b| refrain::run::hex(b)).unwrap_or_default();
    let number = |number| fields(span).into_iter().find(|(n, _)| *n == number).map_or(0, |(_, value)| value.number());
    Span {
        trace: hex(1),
        id: hex(2),
        parent: hex(4),
        name: text(5),
        kind: number(6),
        nanoseconds: number(8) - number(7),
        attributes: attributes(span, 9),
        resource: BTreeMap::new(),
    }
}

/// The attributes in a field of a message, those that are texts or numbers.
fn attributes(message: &[u8], number: u64) -> BTreeMap<String, String> {
    let pair = |pair: &[u8]| {
        let key = String::from_utf8_lossy(messages(pair, 1).first()?).into_owned();
        let (kind, value) = fields(messages(pair, 2).first()?).into_iter().next()?;
        let value = match value {
            Value::Bytes(bytes) if kind == 1 => String::from_utf8_lossy(bytes).into_owned(),
            other => other.number().to_string(),
        };
        Some((key, value))
    };
    messages(message, number).into_iter().filter_map(pair).collect()
}

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl Value<'_> {
    fn number(&self) -> u64 {
        match self {
            Value::Number(number) => *number,
            Value::Bytes(_) => 0,
        }
    }
}

/// The length-delimited fields of this number.
fn messages(message: &[u8], number: u64) -> Vec<&[u8]> {
    let bytes = |(n, value)| match value {
        Value::Bytes(bytes) if n == number => Some(bytes),
        _ => None,
    };
    fields(message).into_iter().filter_map(bytes).collect()
}

/// The fields of a message, with their numbers.
fn fields(mut rest: &[u8]) -> Vec<(u64, Value<'_>)> {
    let mut found = Vec::new();
    while !rest.is_empty() {
        let tag = varint(&mut rest);
        let value = match tag & 7 {
            0 => Value::Number(varint(&mut rest)),
            1 => Value::Number(u64::from_le_bytes(taken(&mut rest, 8).try_into().unwrap())),
            2 => {
                let length = usize::try_from(varint(&mut rest)).unwrap();
                Value::Bytes(taken(&mut rest, length))
            }
            5 => Value::Number(u32::from_le_bytes(taken(&mut rest, 4).try_into().unwrap()).into()),
            other => panic!("no protobuf: wire type {other}"),
        };
        found.push((tag >> 3, value));
    }
    found
}

fn taken<'a>(rest: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (first, after) = rest.split_at(length);
    *rest = after;
    first
}

fn varint(rest: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = taken(rest, 1)[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}
