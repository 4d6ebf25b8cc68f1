//! A hash table of groups in words of 64 bits: an index by hash, and the groups one after the other.

use super::batch::Words;
use super::cells::More;

/// What is added up of a number in a group. Each takes [`Accumulator::WORDS`] words, the first the count of its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Accumulator {
    /// How often it is true.
    Count,
    /// Its sum: 128 bits, which no number of values of 64 bits exceeds.
    Sum,
    /// The least.
    Least,
    /// The greatest.
    Greatest,
}

impl Accumulator {
    const WORDS: usize = 3;

    /// Puts a value to those of a word that has room for it.
    #[inline]
    pub(super) fn put(self, word: &mut i64, value: i64) {
        *word = match self {
            Accumulator::Count => *word,
            Accumulator::Sum => *word + value,
            Accumulator::Least => value.min(*word),
            Accumulator::Greatest => value.max(*word),
        };
    }

    /// Puts `values` values of another group, or one, to those here.
    #[inline]
    fn merge(self, words: &mut [u64; Self::WORDS], values: u64, sum: i128, extreme: i64) {
        let [count, low, high] = words;
        match self {
            Accumulator::Count => {}
            Accumulator::Sum => {
                let sum = wide(*low, *high).wrapping_add(sum).cast_unsigned();
                (*low, *high) = (sum as u64, (sum >> 64) as u64);
            }
            Accumulator::Least if *count > 0 && low.cast_signed() <= extreme => {}
            Accumulator::Greatest if *count > 0 && low.cast_signed() >= extreme => {}
            Accumulator::Least | Accumulator::Greatest => *low = extreme.cast_unsigned(),
        }
        *count += values;
    }
}

#[inline]
fn wide(low: u64, high: u64) -> i128 {
    ((u128::from(high) << 64) | u128::from(low)).cast_signed()
}

/// What a group is made of: its key (the partition values, the dimensions with 0 for null, which of them are null), the count of its
/// rows, its accumulators.
#[derive(Clone)]
pub(super) struct Layout {
    values: usize,
    keys: usize,
    pub(super) accumulators: Vec<Accumulator>,
}

impl Layout {
    pub(super) fn new(values: usize, dimensions: usize, accumulators: Vec<Accumulator>) -> Self {
        Self { values, keys: values + dimensions + 1, accumulators }
    }

    fn width(&self) -> usize {
        self.accumulated(self.accumulators.len())
    }

    fn accumulated(&self, number: usize) -> usize {
        self.keys + 1 + number * Accumulator::WORDS
    }
}

/// The groups so far.
#[derive(Default)]
pub(super) struct Table {
    /// A power of two of entries, at most half of them taken.
    index: Vec<Entry>,
    words: Vec<u64>,
    /// The hash of each group.
    hashes: Vec<u32>,
    /// Where the groups of the rows at hand start.
    found: Vec<usize>,
}

/// A group's hash and its number from 1; 0 for an entry that is free.
#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    hash: u32,
    group: u32,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.hashes.len()
    }

    pub(super) fn hashes(&self) -> &[u32] {
        &self.hashes
    }

    pub(super) fn groups<'a>(&'a self, layout: &'a Layout) -> impl Iterator<Item = Group<'a>> {
        self.words.chunks_exact(layout.width()).map(|words| Group { layout, words })
    }

    pub(super) fn of<'a>(&'a self, layout: &'a Layout, group: usize) -> Group<'a> {
        let start = group * layout.width();
        Group { layout, words: &self.words[start..start + layout.width()] }
    }

    /// Forgets the groups.
    pub(super) fn clear(&mut self) {
        self.index.fill(Entry::default());
        self.words.clear();
        self.hashes.clear();
    }

    /// Adds these rows of columns of keys and of numbers.
    pub(super) fn add(&mut self, layout: &Layout, keys: &[&[i64]], numbers: &[Words], rows: &[u32], hashes: &[u32]) {
        let mut found = std::mem::take(&mut self.found);
        found.clear();
        for (row, hash) in rows.iter().zip(hashes) {
            let row = *row as usize;
            let start = self.group(layout, *hash, |at| keys[at][row].cast_unsigned());
            self.words[start + layout.keys] += 1;
            found.push(start);
        }
        for (number, (accumulator, column)) in layout.accumulators.iter().zip(numbers).enumerate() {
            let (offset, values) = (layout.accumulated(number), column.values());
            for (row, start) in rows.iter().zip(&found) {
                let (row, place) = (*row as usize, start + offset);
                let value = values[row];
                // What is counted is a flag.
                let is_added = if *accumulator == Accumulator::Count { value != 0 } else { column.is_valid(row) };
                if let Some(words) = self.words[place..].first_chunk_mut().filter(|_| is_added) {
                    accumulator.merge(words, 1, i128::from(value), value);
                }
            }
        }
        self.found = found;
    }

    /// Puts a group of another table to this one's.
    pub(super) fn merge(&mut self, layout: &Layout, other: &Table, group: usize) {
        let more = other.of(layout, group);
        let of = |number| (more.count(number), more.sum(number), more.extreme(number).unwrap_or(0));
        self.put(layout, other.hashes[group], |at| more.words[at], more.rows(), of);
    }

    /// Puts rows of a group, whose key `key` gives, and what they add up to of each number.
    #[inline]
    pub(super) fn put(
        &mut self,
        layout: &Layout,
        hash: u32,
        key: impl Fn(usize) -> u64,
        rows: u64,
        more: impl Fn(usize) -> More,
    ) {
        let start = self.group(layout, hash, key);
        self.words[start + layout.keys] += rows;
        for (number, accumulator) in layout.accumulators.iter().enumerate() {
            let (values, sum, extreme) = more(number);
            let place = start + layout.accumulated(number);
            if let Some(words) = self.words[place..].first_chunk_mut().filter(|_| values > 0) {
                accumulator.merge(words, values, sum, extreme);
            }
        }
    }

    /// Where the group of a key starts, whose words `key` gives; it is there from now on.
    #[inline]
    fn group(&mut self, layout: &Layout, hash: u32, key: impl Fn(usize) -> u64) -> usize {
        if self.hashes.len() * 2 >= self.index.len() {
            self.grow();
        }
        let mask = self.index.len() - 1;
        let mut place = hash as usize & mask;
        loop {
            let entry = self.index[place];
            if entry.group == 0 {
                return self.enter(layout, place, hash, key);
            }
            if entry.hash == hash {
                let start = (entry.group as usize - 1) * layout.width();
                let words = &self.words[start..start + layout.keys];
                if words.iter().enumerate().all(|(at, word)| *word == key(at)) {
                    return start;
                }
            }
            place = (place + 1) & mask;
        }
    }

    fn enter(&mut self, layout: &Layout, place: usize, hash: u32, key: impl Fn(usize) -> u64) -> usize {
        self.hashes.push(hash);
        self.index[place] = Entry { hash, group: u32::try_from(self.hashes.len()).unwrap_or(u32::MAX) };
        let start = self.words.len();
        self.words.extend((0..layout.keys).map(key));
        self.words.resize(start + layout.width(), 0);
        start
    }

    #[cold]
    fn grow(&mut self) {
        let size = (self.index.len() * 2).max(64);
        self.index = vec![Entry::default(); size];
        for (hash, group) in self.hashes.iter().zip(1..) {
            let mut place = *hash as usize & (size - 1);
            while self.index[place].group > 0 {
                place = (place + 1) & (size - 1);
            }
            self.index[place] = Entry { hash: *hash, group };
        }
    }
}

/// A group.
pub(super) struct Group<'a> {
    layout: &'a Layout,
    words: &'a [u64],
}

impl Group<'_> {
    /// A partition value.
    pub(super) fn value(&self, at: usize) -> i64 {
        self.words[at].cast_signed()
    }

    /// The value of a dimension.
    pub(super) fn dimension(&self, at: usize) -> Option<i64> {
        let is_null = (self.words[self.layout.keys - 1] >> at) & 1 == 1;
        (!is_null).then(|| self.words[self.layout.values + at].cast_signed())
    }

    /// How many rows it has.
    pub(super) fn rows(&self) -> u64 {
        self.words[self.layout.keys]
    }

    /// How many values of a number were added.
    pub(super) fn count(&self, number: usize) -> u64 {
        self.words[self.layout.accumulated(number)]
    }

    /// Their sum.
    pub(super) fn sum(&self, number: usize) -> i128 {
        let place = self.layout.accumulated(number);
        wide(self.words[place + 1], self.words[place + 2])
    }

    /// The least or greatest of them.
    pub(super) fn extreme(&self, number: usize) -> Option<i64> {
        (self.count(number) > 0).then(|| self.words[self.layout.accumulated(number) + 1].cast_signed())
    }
}
