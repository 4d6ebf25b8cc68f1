//! Server-sent events as a client reads them (WHATWG HTML, 9.2.6), and no others than those that Refrain sends.

use serde_json::Value;

/// An event, or a comment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    /// Empty for a comment.
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) data: Value,
}

impl Event {
    /// Its state, where it is one.
    pub(crate) fn state(&self) -> Option<&str> {
        self.data["state"].as_str().filter(|_| self.name == "state")
    }
}

/// What has come and is not whole yet.
#[derive(Debug, Default)]
pub(crate) struct Reader(Vec<u8>);

impl Reader {
    /// The events that are whole by now.
    pub(crate) fn take(&mut self, more: &[u8]) -> Vec<Event> {
        self.0.extend_from_slice(more);
        let mut out = Vec::new();
        while let Some(at) = self.0.windows(2).position(|two| two == b"\n\n") {
            let block = String::from_utf8(self.0.drain(..at + 2).collect()).unwrap();
            let field = |name: &str| {
                let mut lines = block.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
                let value = lines.next().map(str::to_owned);
                assert_eq!(lines.next(), None, "{block:?}");
                value
            };
            match (field("event"), field("id"), field("data"), field("retry")) {
                (Some(name), Some(id), Some(data), None) => {
                    out.push(Event { name, id, data: serde_json::from_str(&data).unwrap() });
                }
                (None, None, None, Some(retry)) => assert_eq!(retry, "2000"),
                (None, None, None, None) if block.starts_with(':') => {
                    out.push(Event { name: String::new(), id: String::new(), data: Value::Null });
                }
                other => panic!("{other:?} in {block:?}"),
            }
        }
        out
    }
}
