//! A batch whose keys lie close together, as those of neighbouring rows mostly do: each group is a cell of a box that has a side for
//! each key, and what its rows add up to lies in arrays by cell, without a look at a key. A batch of few cells has fewer groups than
//! rows, so that the table is asked for each of its groups and not for each row.

use super::batch::{Batch, Words, length_of_same};
use super::table::Accumulator;
use std::collections::HashMap;
use std::ops::Range;

/// The most cells: the arrays of a few numbers stay in the cache.
const MOST_CELLS: usize = 1 << 15;
/// Rows for each of which a key may be looked up by its value: more of them are no neighbours.
const ROWS_FOR_A_LOOKUP: usize = 16;

/// The rows of a batch by cell.
pub(super) struct Cells {
    axes: Vec<Axis>,
    count: usize,
    /// The cell of each row, run after run.
    cells: Vec<u32>,
    /// How many rows are in each cell.
    rows: Vec<u32>,
    numbers: Vec<Added>,
}

/// The values of a key, by their number.
enum Axis {
    /// So many integers from here on.
    From(i64, usize),
    Listed(Vec<i64>),
}

impl Axis {
    fn len(&self) -> usize {
        match self {
            Axis::From(_, len) => *len,
            Axis::Listed(values) => values.len(),
        }
    }

    fn value(&self, number: usize) -> i64 {
        match self {
            Axis::From(least, _) => least.wrapping_add(number as i64),
            Axis::Listed(values) => values.get(number).copied().unwrap_or_default(),
        }
    }
}

/// What the rows of each cell add up to.
struct Added {
    /// How many values; none where each row has one.
    counts: Option<Vec<u32>>,
    /// Their sum, the least or the greatest.
    values: Vec<i64>,
}

/// What a cell has of a number: how many values, their sum, the least or greatest.
pub(super) type More = (u64, i128, i64);

impl Cells {
    /// The rows of a batch; none where they are in too many cells, or a sum may not fit a word.
    pub(super) fn of(batch: &Batch, accumulators: &[Accumulator]) -> Option<Self> {
        let runs = &batch.rows;
        let rows: usize = runs.iter().map(Range::len).sum();
        let mut out = Self { axes: Vec::new(), count: 1, cells: vec![0; rows], rows: Vec::new(), numbers: Vec::new() };
        for key in &batch.keys {
            out.add_axis(key.values(), runs)?;
        }
        match &batch.nulls {
            Some(nulls) => out.add_axis(nulls.values(), runs)?,
            None => out.axes.push(Axis::From(0, 1)),
        }
        out.rows = vec![0; out.count];
        out.cells.iter().for_each(|cell| out.rows[*cell as usize] += 1);
        let numbers = accumulators.iter().zip(&batch.numbers);
        out.numbers = numbers.map(|(of, column)| out.added(*of, column, runs)).collect::<Option<_>>()?;
        Some(out)
    }

    /// Tells each cell that has rows, and its key, a word for each of the batch's.
    pub(super) fn groups(&self, mut tell: impl FnMut(u32, &[i64])) {
        let mut numbers = vec![0; self.axes.len()];
        let mut key: Vec<i64> = self.axes.iter().map(|axis| axis.value(0)).collect();
        let long: Vec<(usize, &Axis)> = self.axes.iter().enumerate().filter(|(_, axis)| axis.len() > 1).collect();
        for (cell, rows) in (0..).zip(&self.rows) {
            if *rows > 0 {
                tell(cell, &key);
            }
            for (at, axis) in &long {
                let number = &mut numbers[*at];
                *number = if *number + 1 < axis.len() { *number + 1 } else { 0 };
                key[*at] = axis.value(*number);
                if *number > 0 {
                    break;
                }
            }
        }
    }

    /// How many rows are in a cell.
    pub(super) fn rows(&self, cell: u32) -> u64 {
        u64::from(self.rows[cell as usize])
    }

    /// What the rows of a cell add up to of a number.
    pub(super) fn more(&self, number: usize, cell: u32) -> More {
        self.numbers[number].of(cell as usize, self.rows[cell as usize])
    }

    /// Moves each row along one more side of the box, by its value of one more key.
    fn add_axis(&mut self, values: &[i64], runs: &[Range<usize>]) -> Option<()> {
        let most = MOST_CELLS.min(self.cells.len()) / self.count;
        let stride = self.count as u32;
        let axis = match least_and_greatest(values, runs, most) {
            Some((least, greatest)) if least >= greatest => Axis::From(least, 1),
            Some((least, greatest)) => {
                self.step(values, runs, |cells, values| {
                    // There are fewer cells than a word holds: nothing is checked here, so that many rows are counted at once.
                    let number = |value: &i64| value.wrapping_sub(least) as u32;
                    let steps = values.iter().map(|value| number(value).wrapping_mul(stride));
                    cells.iter_mut().zip(steps).for_each(|(cell, step)| *cell = cell.wrapping_add(step));
                    Some(())
                })?;
                Axis::From(least, greatest.wrapping_sub(least) as usize + 1)
            }
            None => {
                let mut listed = Listed { lookups: self.cells.len() / ROWS_FOR_A_LOOKUP, most, ..Listed::default() };
                self.step(values, runs, |mut cells, mut values| {
                    while let Some(value) = values.first() {
                        let step = listed.number(*value)? * stride;
                        let (same, others) = cells.split_at_mut_checked(length_of_same(values))?;
                        same.iter_mut().for_each(|cell| *cell = cell.wrapping_add(step));
                        (cells, values) = (others, values.get(same.len()..)?);
                    }
                    Some(())
                })?;
                Axis::Listed(listed.values)
            }
        };
        self.count *= axis.len();
        self.axes.push(axis);
        Some(())
    }

    /// Tells the cells of each run, and its values.
    #[inline]
    fn step(
        &mut self,
        values: &[i64],
        runs: &[Range<usize>],
        mut step: impl FnMut(&mut [u32], &[i64]) -> Option<()>,
    ) -> Option<()> {
        let mut start = 0;
        for run in runs {
            let cells = self.cells.get_mut(start..start + run.len())?;
            step(cells, values.get(run.clone())?)?;
            start += run.len();
        }
        Some(())
    }

    fn added(&self, accumulator: Accumulator, column: &Words, runs: &[Range<usize>]) -> Option<Added> {
        let first = match accumulator {
            Accumulator::Count | Accumulator::Sum => 0,
            Accumulator::Least => i64::MAX,
            Accumulator::Greatest => i64::MIN,
        };
        let mut values = vec![first; self.count];
        let of = column.values();
        if accumulator == Accumulator::Sum {
            let most = largest(of, runs).checked_mul(self.cells.len() as u64)?;
            i64::try_from(most).ok()?;
        }
        let mut counts = None;
        let mut cells = self.cells.as_slice();
        for run in runs {
            let (of_run, others) = cells.split_at_checked(run.len())?;
            cells = others;
            let rows = of_run.iter().map(|cell| *cell as usize).zip(of.get(run.clone())?);
            match accumulator {
                Accumulator::Count => {
                    let counts = counts.get_or_insert_with(|| vec![0; self.count]);
                    rows.for_each(|(cell, value)| counts[cell] += u32::from(*value != 0));
                }
                _ if column.has_nulls() => {
                    let counts = counts.get_or_insert_with(|| vec![0; self.count]);
                    for ((cell, value), _) in rows.zip(run.clone()).filter(|(_, row)| column.is_valid(*row)) {
                        counts[cell] += 1;
                        accumulator.put(&mut values[cell], *value);
                    }
                }
                // No sum is too large for a word.
                Accumulator::Sum => rows.for_each(|(cell, value)| values[cell] = values[cell].wrapping_add(*value)),
                Accumulator::Least | Accumulator::Greatest => {
                    rows.for_each(|(cell, value)| accumulator.put(&mut values[cell], *value));
                }
            }
        }
        Some(Added { counts, values })
    }
}

impl Added {
    fn of(&self, cell: usize, rows: u32) -> More {
        let count = self.counts.as_ref().map_or(rows, |counts| counts[cell]);
        (u64::from(count), i128::from(self.values[cell]), self.values[cell])
    }
}

/// As much as any of these values without its sign, or more: the bits of all of them, and one for those below zero.
fn largest(values: &[i64], runs: &[Range<usize>]) -> u64 {
    // -1 - x for one below zero.
    let bits_of = |values: &[i64]| values.iter().fold(0, |bits, value| bits | (value ^ (value >> 63)));
    let bits = runs.iter().filter_map(|run| values.get(run.clone())).fold(0, |bits, values| bits | bits_of(values));
    bits.unsigned_abs() + 1
}

/// The least and the greatest of the values of these rows; none where they are `most` or more apart.
fn least_and_greatest(values: &[i64], runs: &[Range<usize>], most: usize) -> Option<(i64, i64)> {
    let is_near = |(least, greatest): (i64, i64)| {
        least > greatest || usize::try_from(greatest.wrapping_sub(least).cast_unsigned()).is_ok_and(|far| far < most)
    };
    let mut both = (i64::MAX, i64::MIN);
    for run in runs {
        let values = values.get(run.clone())?;
        // Mostly seen at once.
        let ends = [values.first(), values.get(values.len() / 2), values.last()];
        both = ends.into_iter().flatten().fold(both, |(a, b), value| (a.min(*value), b.max(*value)));
        if !is_near(both) {
            return None;
        }
        both = values.iter().fold(both, |(a, b), value| (a.min(*value), b.max(*value)));
    }
    is_near(both).then_some(both)
}

/// Values by number, in the order in which they come; each looked up only where it is not the one before.
#[derive(Default)]
struct Listed {
    values: Vec<i64>,
    numbers: HashMap<i64, u32>,
    last: Option<(i64, u32)>,
    /// How many may still be looked up.
    lookups: usize,
    most: usize,
}

impl Listed {
    fn number(&mut self, value: i64) -> Option<u32> {
        match self.last {
            Some((last, number)) if last == value => Some(number),
            _ => self.look_up(value),
        }
    }

    fn look_up(&mut self, value: i64) -> Option<u32> {
        self.lookups = self.lookups.checked_sub(1)?;
        let next = self.values.len() as u32;
        let number = *self.numbers.entry(value).or_insert(next);
        if number == next {
            self.values.push(value);
        }
        self.last = Some((value, number));
        (self.values.len() <= self.most).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_is_larger_than_the_largest_and_it_is_not_much_larger() {
        let sets: [&[i64]; 9] =
            [&[], &[0], &[-1], &[1], &[-4], &[4, -3], &[i64::MAX], &[i64::MIN], &[i64::MIN + 1, 5, -7]];
        for values in sets {
            let (before, after) = values.split_at(values.len() / 2);
            let all = [before, &[7], after].concat();
            // What is between the runs does not count.
            let runs = [0..before.len(), before.len() + 1..all.len()];
            let (found, exact) = (largest(&all, &runs), values.iter().map(|value| value.unsigned_abs()).max());
            let exact = exact.unwrap_or(0);
            assert!(found >= exact && found <= exact.saturating_mul(2).saturating_add(1), "{values:?}: {found}");
        }
    }
}
