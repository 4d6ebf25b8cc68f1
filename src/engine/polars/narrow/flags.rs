//! Flags of rows, 64 of them in a word.

use ::polars::prelude as pl;
use std::ops::Range;

const WORD: usize = u64::BITS as usize;

/// Which rows of a batch have something.
pub(super) struct Flags(Vec<u64>);

impl Flags {
    /// Those of a column; a null is a no.
    pub(super) fn of(column: &pl::BooleanChunked) -> Self {
        let column = column.rechunk();
        let mut words = Vec::with_capacity(column.len().div_ceil(WORD));
        for array in column.downcast_iter() {
            let mut flags = array.values().chunks::<u64>();
            words.extend(flags.by_ref());
            words.push(flags.remainder());
            if let Some(valid) = array.validity() {
                let mut valid = valid.chunks::<u64>();
                words.iter_mut().zip(valid.by_ref()).for_each(|(word, valid)| *word &= valid);
                words.iter_mut().skip(array.len() / WORD).for_each(|word| *word &= valid.remainder());
            }
        }
        Self(words)
    }

    /// The other rows.
    pub(super) fn not(&self) -> Self {
        Self(self.0.iter().map(|word| !word).collect())
    }

    /// Those that are not in `others` too.
    pub(super) fn without(mut self, others: &Self) -> Self {
        self.0.iter_mut().zip(&others.0).for_each(|(word, others)| *word &= !others);
        self
    }

    /// How many of these rows.
    pub(super) fn count(&self, rows: Range<usize>) -> usize {
        let mut count = 0;
        self.runs(rows, |run| count += run.len());
        count
    }

    /// Those of these rows, neighbours together.
    pub(super) fn runs(&self, rows: Range<usize>, mut take: impl FnMut(Range<usize>)) {
        let mut start = rows.start;
        while start < rows.end {
            start = self.next(start, rows.end, |word| word);
            let end = self.next(start, rows.end, |word| !word);
            if start < end {
                take(start..end);
            }
            start = end;
        }
    }

    /// The first row from `row` on, and before `end`, whose bit in the word that `of` makes of its own is set; `end` where there is
    /// none.
    fn next(&self, mut row: usize, end: usize, of: impl Fn(u64) -> u64) -> usize {
        while row < end {
            let word = self.0.get(row / WORD).map_or(0, |word| of(*word)) >> (row % WORD);
            if word != 0 {
                return end.min(row + word.trailing_zeros() as usize);
            }
            row += WORD - row % WORD;
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::polars::prelude::NewChunkedArray;

    #[test]
    fn flags_are_counted_and_run_as_they_lie() {
        let mut seed = 5u64;
        for length in [0, 1, 63, 64, 65, 128, 777] {
            for dense in [0, 3, 8] {
                let flags: Vec<Option<bool>> = (0..length)
                    .map(|_| {
                        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        let bits = seed >> 33;
                        (dense == 0 || !bits.is_multiple_of(16)).then_some((bits >> 8) % 9 < dense)
                    })
                    .collect();
                let column = pl::BooleanChunked::from_iter_options("".into(), flags.iter().copied());
                for offset in [0, 1, 5, 64].into_iter().filter(|offset| *offset <= length) {
                    let found = Flags::of(&column.slice(offset as i64, length - offset));
                    for rows in [0..length - offset, 0..0, (length - offset) / 3..length - offset] {
                        let is = |row: &usize| flags[row + offset] == Some(true);
                        let expected: Vec<usize> = rows.clone().filter(is).collect();
                        let (mut runs, mut others) = (Vec::new(), Vec::new());
                        found.runs(rows.clone(), |run| runs.push(run));
                        found.not().runs(rows.clone(), |run| others.extend(run));
                        assert_eq!(runs.iter().cloned().flatten().collect::<Vec<_>>(), expected);
                        assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start), "{runs:?}");
                        assert_eq!(found.count(rows.clone()), expected.len());
                        assert_eq!(others, rows.filter(|row| !is(row)).collect::<Vec<_>>());
                        assert_eq!(Flags::of(&column).without(&Flags::of(&column)).count(0..length), 0);
                    }
                }
            }
        }
    }
}
