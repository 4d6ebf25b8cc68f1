//! One csv record taken apart, strictly: where quotes do not pair, nothing is guessed.

use memchr::memchr;

/// Most fields are shorter than what a search in large steps is worth.
const NEAR_BYTES: usize = 16;

/// How far a record was understood.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Split {
    /// It is whole.
    Whole,
    /// A quote is open at its end: it goes on in the next line, if there is one.
    Open,
    /// After the closing quote of this field (from 1) comes something else than a delimiter.
    Broken(usize),
}

/// A field, as places in its record, without its quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) start: usize,
    pub(super) end: usize,
    /// Whether it has doubled quotes.
    pub(super) escapes: bool,
    /// Whether it is in quotes.
    pub(super) quoted: bool,
}

/// Takes records apart.
pub(super) struct Splitter {
    delimiter: u8,
    quote: Option<u8>,
    /// How many fields are kept; all are counted.
    keep: usize,
    /// From this one on it is noted whether they are empty.
    tail: usize,
    fields: Vec<Field>,
    count: usize,
    tail_is_empty: bool,
    /// Where to go on: the place, and the open field if there is one.
    at: usize,
    open: Option<Field>,
}

impl Splitter {
    pub(super) fn new(delimiter: u8, quote: Option<u8>) -> Self {
        let (keep, tail) = (usize::MAX, usize::MAX);
        Self { delimiter, quote, keep, tail, fields: Vec::new(), count: 0, tail_is_empty: true, at: 0, open: None }
    }

    /// Keeps no fields from that one on, and sees whether those after `tail` are empty.
    pub(super) fn keep(&mut self, keep: usize, tail: usize) {
        (self.keep, self.tail) = (keep, tail);
    }

    /// The fields kept of the last record.
    pub(super) fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The fields of the last record, counted.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Whether all fields after the tail's beginning are empty.
    pub(super) fn tail_is_empty(&self) -> bool {
        self.tail_is_empty
    }

    /// Begins a record.
    pub(super) fn split(&mut self, record: &[u8]) -> Split {
        self.fields.clear();
        (self.count, self.tail_is_empty, self.at, self.open) = (0, true, 0, None);
        match self.quote {
            Some(quote) if memchr(quote, record).is_some() => self.quoted(record, quote),
            _ => {
                while self.plain(record) {}
                Split::Whole
            }
        }
    }

    /// Goes on with a record that was open and has one more line now.
    pub(super) fn go_on(&mut self, record: &[u8]) -> Split {
        match self.quote {
            Some(quote) => self.quoted(record, quote),
            None => Split::Whole,
        }
    }

    fn quoted(&mut self, record: &[u8], quote: u8) -> Split {
        loop {
            if self.open.is_none() && record.get(self.at) != Some(&quote) {
                match self.plain(record) {
                    true => continue,
                    false => return Split::Whole,
                }
            }
            if self.open.is_none() {
                self.at += 1;
                self.open = Some(Field { start: self.at, end: self.at, escapes: false, quoted: true });
            }
            if !self.close(record, quote) {
                return Split::Open;
            }
            self.open.take().into_iter().for_each(|field| self.field(field));
            match record.get(self.at) {
                None => return Split::Whole,
                Some(byte) if *byte == self.delimiter => self.at += 1,
                Some(_) => return Split::Broken(self.count),
            }
        }
    }

    /// Takes a field without quotes; whether another one follows.
    fn plain(&mut self, record: &[u8]) -> bool {
        let start = self.at;
        let end = near(self.delimiter, record.get(start..).unwrap_or_default()).map(|at| start + at);
        self.field(Field { start, end: end.unwrap_or(record.len()), escapes: false, quoted: false });
        self.at = end.map_or(record.len(), |end| end + 1);
        end.is_some()
    }

    /// Goes past the quote that closes the open field, if the record has it.
    fn close(&mut self, record: &[u8], quote: u8) -> bool {
        let Some(field) = &mut self.open else { return true };
        while let Some(found) = memchr(quote, record.get(self.at..).unwrap_or_default()) {
            field.end = self.at + found;
            self.at = field.end + 1;
            if record.get(self.at) != Some(&quote) {
                return true;
            }
            field.escapes = true;
            self.at += 1;
        }
        self.at = self.at.max(record.len());
        false
    }

    fn field(&mut self, field: Field) {
        if self.count < self.keep {
            self.fields.push(field);
        }
        if self.count >= self.tail && field.start != field.end {
            self.tail_is_empty = false;
        }
        self.count += 1;
    }
}

/// Where this byte is for the first time.
fn near(byte: u8, text: &[u8]) -> Option<usize> {
    let (near, far) = text.split_at(text.len().min(NEAR_BYTES));
    let at = near.iter().position(|found| *found == byte);
    at.or_else(|| memchr(byte, far).map(|at| near.len() + at))
}
