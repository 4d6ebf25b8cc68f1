//! The quick way through a line: it knows plain JSON alone, and leaves what it is not sure of to the parser.
//!
//! Most of a line is texts that nobody asked for. Here they are passed over in large steps, once it is known that the line has no
//! control characters, which no text may have.

use super::Node;
use memchr::memchr2;
use std::ops::Range;

/// How deep values may lie in one another.
const MOST_DEPTH: usize = 64;
/// How many bytes are looked at together for control characters.
const BLOCK_BYTES: usize = 128;

/// Finds the places of `root` in a line, as [`super::Look`] does. False where it is not sure; then what it found does not count.
pub(super) fn look(root: &Node, line: &str, found: &mut [Option<Range<usize>>]) -> bool {
    let line = line.strip_suffix('\r').unwrap_or(line).as_bytes();
    let least = |block: &[u8]| block.iter().fold(u8::MAX, |least, byte| least.min(*byte));
    if line.chunks(BLOCK_BYTES).any(|block| least(block) < b' ') {
        return false;
    }
    let mut quick = Quick { line, at: 0, found };
    quick.peek() == Some(b'{') && quick.object(Some(root), 0).is_some() && quick.peek().is_none()
}

/// The way through a line. Nothing is what each step gives where it is not sure.
struct Quick<'a> {
    line: &'a [u8],
    at: usize,
    found: &'a mut [Option<Range<usize>>],
}

impl Quick<'_> {
    /// The next byte that is no space, not taken.
    fn peek(&mut self) -> Option<u8> {
        while *self.line.get(self.at)? == b' ' {
            self.at += 1;
        }
        self.line.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn value(&mut self, node: Option<&Node>, depth: usize) -> Option<()> {
        match self.peek()? {
            _ if depth > MOST_DEPTH => None,
            b'{' => self.object(node, depth),
            b'[' => self.list(depth),
            b'"' => self.text().map(drop),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => self.number(),
        }
    }

    /// An object, in which the children of a node are looked for.
    fn object(&mut self, node: Option<&Node>, depth: usize) -> Option<()> {
        self.take(b'{')?;
        if self.take(b'}').is_some() {
            return Some(());
        }
        loop {
            let (key, is_plain) = self.text()?;
            self.take(b':')?;
            let child = match node {
                // What it is when it is read nobody knows here.
                Some(_) if !is_plain => return None,
                Some(node) => {
                    node.children.iter().find(|child| self.line.get(key.clone()) == Some(child.key.as_bytes()))
                }
                None => None,
            };
            match child {
                Some(child) => self.child(child, depth + 1)?,
                None => self.value(None, depth + 1)?,
            }
            if self.take(b',').is_none() {
                return self.take(b'}');
            }
        }
    }

    fn child(&mut self, child: &Node, depth: usize) -> Option<()> {
        // Of a key that comes twice the last one counts, with all that is in it.
        self.found.get_mut(child.places.clone())?.fill(None);
        let first = self.peek()?;
        let start = self.at;
        if child.place.is_none() && !matches!(first, b'{' | b't' | b'f' | b'n') {
            // The parser makes a value of it, of which it may ask more.
            return None;
        }
        self.value(Some(child).filter(|child| !child.children.is_empty()), depth)?;
        if let Some(place) = child.place {
            *self.found.get_mut(place)? = Some(start..self.at);
        }
        Some(())
    }

    fn list(&mut self, depth: usize) -> Option<()> {
        self.take(b'[')?;
        if self.take(b']').is_some() {
            return Some(());
        }
        loop {
            self.value(None, depth + 1)?;
            if self.take(b',').is_none() {
                return self.take(b']');
            }
        }
    }

    /// A text: where it is without its quotes, and whether it has no escapes.
    fn text(&mut self) -> Option<(Range<usize>, bool)> {
        self.take(b'"')?;
        let (start, mut is_plain) = (self.at, true);
        loop {
            self.at += memchr2(b'"', b'\\', self.line.get(self.at..)?)?;
            if self.line.get(self.at) == Some(&b'"') {
                self.at += 1;
                return Some((start..self.at - 1, is_plain));
            }
            is_plain = false;
            self.escape()?;
        }
    }

    fn escape(&mut self) -> Option<()> {
        self.at += match self.line.get(self.at + 1)? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => 2,
            b'u' if self.line.get(self.at + 2..self.at + 6)?.iter().all(u8::is_ascii_hexdigit) => 6,
            _ => return None,
        };
        Some(())
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.line.get(self.at..)?.starts_with(word).then(|| self.at += word.len())
    }

    fn number(&mut self) -> Option<()> {
        self.sign(b"-");
        let starts_with_zero = self.line.get(self.at) == Some(&b'0');
        if self.digits()? > 1 && starts_with_zero {
            return None;
        }
        if self.sign(b".") {
            self.digits()?;
        }
        if self.sign(b"eE") {
            self.sign(b"+-");
            self.digits()?;
        }
        Some(())
    }

    /// Takes one of these, if it is there.
    fn sign(&mut self, signs: &[u8]) -> bool {
        let is_there = self.line.get(self.at).is_some_and(|byte| signs.contains(byte));
        self.at += usize::from(is_there);
        is_there
    }

    /// How many there are, at least one.
    fn digits(&mut self) -> Option<usize> {
        let digits = self.line.get(self.at..)?.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += digits;
        (digits > 0).then_some(digits)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Look, Node};
    use serde::de::DeserializeSeed;
    use std::ops::Range;

    type Found = Vec<Option<Range<usize>>>;

    /// `id`, `repo` with `repo.id` and `repo.name` in it, and `actor.login`.
    fn wanted() -> (Node, usize) {
        let mut root = Node::default();
        for path in ["id", "repo", "repo.id", "repo.name", "actor.login"] {
            root.add(path.split('.'));
        }
        let count = root.number(0);
        (root, count)
    }

    fn by_the_parser(root: &Node, count: usize, line: &str) -> Option<Found> {
        let mut found = vec![None; count];
        let mut json = serde_json::Deserializer::from_str(line);
        let look = Look { node: root, line, found: &mut found };
        look.deserialize(&mut json).and_then(|()| json.end()).ok()?;
        Some(found)
    }

    fn quickly(root: &Node, count: usize, line: &str) -> Option<Found> {
        let mut found = vec![None; count];
        super::look(root, line, &mut found).then_some(found)
    }

    const LINES: [&str; 9] = [
        r#"{"id":"2489368070","repo":{"id":-12,"name":"a/b"},"actor":{"login":"é \"q\" \u00e9\\"},"payload":{"x":[1,2.50,-0.1e+7,{}]}}"#,
        r#" { "id" : null , "actor" : null , "repo" : { } , "x" : [ ] , "y" : [ true , false ] } "#,
        r#"{"repo":{"id":1,"name":{"id":2}},"repo":{"id":[3,{"id":4}]},"id":0,"id":1E9}"#,
        r#"{"actor":{"login":"a","other":{"login":"b"}},"actor":{}}"#,
        r#"{"repo":"text","other":{"repo":{"id":7}},"a":"\ud800","b":1e999}"#,
        r#"{"actor":[1],"id":1}"#,
        r#"{"actor":1e999,"id":1}"#,
        r#"{"\u0069d":1,"id":2}"#,
        "{}\r",
    ];

    #[test]
    fn plain_lines_go_the_quick_way() {
        let (root, count) = wanted();
        for line in LINES.iter().take(5).chain(LINES.last()) {
            assert!(quickly(&root, count, line).is_some(), "{line}");
            assert_eq!(quickly(&root, count, line), by_the_parser(&root, count, line), "{line}");
        }
        for line in LINES.iter().skip(5).take(3) {
            assert_eq!(quickly(&root, count, line), None, "{line}");
        }
    }

    #[test]
    fn nothing_that_the_parser_refuses_or_reads_otherwise_goes_it() {
        const BYTES: &[u8] = b"\"\\{}[]:, \t\0\r09-+.eEtfnudr/x\x1f\x7f";
        let (root, count) = wanted();
        let mut gone = 0;
        let mut held = |line: &[u8]| {
            let Ok(line) = std::str::from_utf8(line) else { return };
            if let Some(found) = quickly(&root, count, line) {
                gone += 1;
                assert_eq!(Some(found), by_the_parser(&root, count, line), "{line}");
            }
        };
        for line in LINES.map(str::as_bytes) {
            for at in 0..line.len() {
                let (before, rest) = line.split_at(at);
                held(before);
                held(&[before, &rest[1..]].concat());
                for byte in BYTES {
                    held(&[before, &[*byte], rest].concat());
                    held(&[before, &[*byte], &rest[1..]].concat());
                }
            }
        }
        assert!(gone > 1000, "{gone}");
    }

    #[test]
    fn what_lies_too_deep_is_left_to_the_parser() {
        let (root, count) = wanted();
        let deep = |depth: usize| format!("{{\"x\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        assert!(quickly(&root, count, &deep(super::MOST_DEPTH)).is_some());
        assert_eq!(quickly(&root, count, &deep(1_000_000)), None);
    }
}
