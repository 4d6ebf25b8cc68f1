//! Lines, and records of several lines, from a window over the text that moves on and grows no further than one record needs.

use super::input::Input;
use super::{MAX_LINE_BYTES, Stop};
use memchr::memchr;
use std::io::{self, Read};

/// How much is read at once, at least.
const CHUNK_BYTES: usize = 256 << 10;
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// What [`Lines::next`] found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line; [`Lines::record`] has it.
    There,
    /// A line of so many bytes, more than there may be; it was skipped.
    TooLong(u64),
}

/// What [`Lines::extend`] found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum More {
    /// The record has one more line.
    There,
    /// The text ends.
    End,
    /// The record would be too long.
    TooLong,
}

/// The lines of a text.
pub(super) struct Lines {
    input: Input,
    window: Vec<u8>,
    /// The bytes of the window that are text.
    filled: usize,
    /// Where the record begins, where it ends without its line end, where its first line's successor begins, and where its
    /// own does.
    start: usize,
    end: usize,
    second: usize,
    next: usize,
    /// The number of the record's first line, and the lines that it has.
    number: u64,
    taken: u64,
    ended: bool,
}

/// The end of a line, as found in the window.
enum End {
    At(usize),
    OfText,
    TooFar,
}

impl Lines {
    pub(super) fn new(input: Input) -> Self {
        let (start, end, second, next) = (0, 0, 0, 0);
        let window = vec![0; CHUNK_BYTES];
        Self { input, window, filled: 0, start, end, second, next, number: 1, taken: 0, ended: false }
    }

    /// Reads the beginning, past a byte order mark. A text without a byte is an error.
    pub(super) fn start(&mut self) -> Result<(), Stop> {
        while self.filled < BYTE_ORDER_MARK.len() && !self.ended {
            self.fill()?;
        }
        if self.filled == 0 {
            return Err(Stop::Empty);
        }
        if self.window[..self.filled].starts_with(BYTE_ORDER_MARK) {
            self.next = BYTE_ORDER_MARK.len();
        }
        Ok(())
    }

    /// Goes on to the next line; none at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<Line>> {
        self.number += self.taken;
        self.taken = 1;
        self.start = self.next;
        Ok(Some(match self.line_end()? {
            End::At(end) => {
                (self.end, self.next) = (end, end + 1);
                self.second = self.next;
                Line::There
            }
            End::OfText if self.start == self.filled => {
                self.end = self.start;
                self.taken = 0;
                return Ok(None);
            }
            End::OfText => {
                (self.end, self.next, self.second) = (self.filled, self.filled, self.filled);
                Line::There
            }
            End::TooFar => Line::TooLong(self.skip()?),
        }))
    }

    /// Takes the next line into the record too.
    pub(super) fn extend(&mut self) -> io::Result<More> {
        let end = match self.line_end()? {
            End::At(end) => end,
            End::OfText if self.next == self.filled => return Ok(More::End),
            End::OfText => self.filled,
            End::TooFar => return Ok(More::TooLong),
        };
        self.end = end;
        self.next = (end + 1).min(self.filled);
        self.taken += 1;
        Ok(More::There)
    }

    /// Gives back all lines of the record but the first.
    pub(super) fn give_back(&mut self) {
        if self.taken > 1 {
            self.end = self.second - 1;
        }
        self.next = self.second;
        self.taken = 1;
    }

    /// The record without its line end (which may leave a CR).
    pub(super) fn record(&self) -> &[u8] {
        &self.window[self.start..self.end]
    }

    /// The number of the record's first line, from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The bytes of the file read so far.
    pub(super) fn bytes(&self) -> u64 {
        self.input.taken()
    }

    /// How large the window has become.
    #[cfg(test)]
    pub(super) fn window_bytes(&self) -> usize {
        self.window.len()
    }

    /// The first line end from `next` on.
    fn line_end(&mut self) -> io::Result<End> {
        let mut seen = 0;
        loop {
            let from = self.next + seen;
            let found = memchr(b'\n', &self.window[from..self.filled]).map(|at| from + at);
            let length = found.unwrap_or(self.filled) - self.start;
            match found {
                _ if length > MAX_LINE_BYTES => return Ok(End::TooFar),
                Some(at) => return Ok(End::At(at)),
                None if self.ended => return Ok(End::OfText),
                None => {}
            }
            seen = self.filled - self.next;
            self.fill()?;
        }
    }

    /// Passes over the rest of a line, keeping nothing of it; its length.
    fn skip(&mut self) -> io::Result<u64> {
        let mut length = 0u64;
        loop {
            let rest = &self.window[self.next..self.filled];
            if let Some(at) = memchr(b'\n', rest) {
                length += at as u64;
                self.next += at + 1;
                break;
            }
            length += rest.len() as u64;
            self.next = self.filled;
            if self.ended {
                break;
            }
            self.start = self.next;
            self.fill()?;
        }
        (self.start, self.end, self.second) = (self.next, self.next, self.next);
        Ok(length)
    }

    /// Reads on. What is before the record goes; where the record fills the window, the window grows.
    fn fill(&mut self) -> io::Result<()> {
        if self.filled == self.window.len() {
            if self.start > 0 {
                self.window.copy_within(self.start..self.filled, 0);
                let gone = std::mem::take(&mut self.start);
                self.filled -= gone;
                self.next -= gone;
                self.end = self.end.saturating_sub(gone);
                self.second = self.second.saturating_sub(gone);
            } else {
                let longer = (2 * self.window.len()).min(MAX_LINE_BYTES + CHUNK_BYTES);
                self.window.resize(longer, 0);
            }
        }
        let read = self.input.read(&mut self.window[self.filled..])?;
        self.filled += read;
        self.ended = read == 0;
        Ok(())
    }
}
