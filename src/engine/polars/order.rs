//! Rows that fit memory, in the order of some of their columns.

use super::narrow::words;
use ::polars::prelude as pl;
use ::polars::prelude::ChunkAgg;

/// The rows of a frame sorted by columns of it, nulls first; rows that are alike in all of these in any order.
pub(super) fn sorted(frame: &pl::DataFrame, keys: &[pl::Column]) -> pl::PolarsResult<pl::DataFrame> {
    match packed(keys)? {
        Some(packed) => frame.take(&pl::IdxCa::from_vec("".into(), packed.order())),
        None => {
            let names: Vec<pl::PlSmallStr> = keys.iter().map(|key| key.name().clone()).collect();
            frame.sort(names, pl::SortMultipleOptions::default())
        }
    }
}

/// Columns as one integer for each row.
struct Packed {
    values: Vec<u64>,
    /// How many bits they take.
    bits: u32,
}

impl Packed {
    const DIGIT_BITS: u32 = 11;
    const DIGITS: usize = 1 << Self::DIGIT_BITS;

    /// The rows in the order of their values.
    fn order(self) -> Vec<pl::IdxSize> {
        let mut rows: Vec<(u64, pl::IdxSize)> = self.values.into_iter().zip(0..).collect();
        // Fewer are compared sooner than counted.
        if rows.len() < Self::DIGITS {
            rows.sort_unstable();
        } else {
            let mut sorted = vec![(0, 0); rows.len()];
            for shift in (0..self.bits).step_by(Self::DIGIT_BITS as usize) {
                Self::sort_by_digit(&rows, &mut sorted, shift);
                std::mem::swap(&mut rows, &mut sorted);
            }
        }
        rows.into_iter().map(|(_, row)| row).collect()
    }

    /// Puts the rows in the order of a digit of theirs; those with the same one stay as they are.
    fn sort_by_digit(rows: &[(u64, pl::IdxSize)], sorted: &mut [(u64, pl::IdxSize)], shift: u32) {
        let digit = |value: u64| (value >> shift) as usize & (Self::DIGITS - 1);
        let mut places = [0; Self::DIGITS];
        rows.iter().for_each(|(value, _)| places[digit(*value)] += 1);
        let mut smaller = 0;
        for place in &mut places {
            smaller += std::mem::replace(place, smaller);
        }
        for row in rows {
            let place = &mut places[digit(row.0)];
            sorted[*place] = *row;
            *place += 1;
        }
    }
}

/// The columns packed, in the order of the rows; none where they are no integers, or 64 bits are too few for the differences between
/// them.
fn packed(keys: &[pl::Column]) -> pl::PolarsResult<Option<Packed>> {
    let Some(first) = keys.first() else { return Ok(None) };
    let mut packed = vec![0u64; first.len()];
    let mut bits_left = u64::BITS;
    for key in keys {
        if !is_integer(key.dtype()) {
            return Ok(None);
        }
        let values = words(key)?;
        let least = values.min().unwrap_or(0);
        // 0 is null.
        let place =
            |value: Option<i64>| value.map_or(Some(0), |v| v.wrapping_sub(least).cast_unsigned().checked_add(1));
        let Some(greatest) = place(values.max()) else { return Ok(None) };
        let bits = u64::BITS - greatest.leading_zeros();
        let Some(left) = bits_left.checked_sub(bits) else { return Ok(None) };
        bits_left = left;
        for (packed, value) in packed.iter_mut().zip(values.iter()) {
            *packed = packed.checked_shl(bits).unwrap_or(0) | place(value).unwrap_or(0);
        }
    }
    Ok(Some(Packed { values: packed, bits: u64::BITS - bits_left }))
}

fn is_integer(data_type: &pl::DataType) -> bool {
    match data_type {
        pl::DataType::Boolean | pl::DataType::Date | pl::DataType::Datetime(..) => true,
        pl::DataType::UInt64 | pl::DataType::Int128 => false,
        other => other.is_integer(),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

    use super::*;
    use ::polars::prelude::{IntoColumn, NamedFrom};

    fn column(name: &str, values: &[Option<i64>]) -> pl::Column {
        pl::Series::new(name.into(), values).into_column()
    }

    #[test]
    fn integers_sort_as_the_columns_do() {
        let extremes = [None, Some(i64::MIN), Some(-1), Some(0), Some(7), Some(i64::MAX)];
        let few = [Some(3), None, Some(-5), Some(0)];
        for (first, second) in [(&few[..], &few[..]), (&extremes[..], &few[..]), (&few[..], &extremes[..])] {
            let pairs: Vec<(Option<i64>, Option<i64>)> =
                first.iter().flat_map(|a| second.iter().map(move |b| (*a, *b))).rev().collect();
            let (a, b): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
            let keys = [column("a", &a), column("b", &b)];
            let frame = pl::DataFrame::new(a.len(), keys.to_vec()).unwrap();
            let expected = frame.sort(["a", "b"], pl::SortMultipleOptions::default()).unwrap();
            assert!(sorted(&frame, &keys).unwrap().equals_missing(&expected), "{frame}");
        }
        assert!(packed(&[column("a", &few), column("b", &few)]).unwrap().is_some());
        assert!(packed(&[column("a", &extremes)]).unwrap().is_none());
    }

    #[test]
    fn many_integers_sort_as_few_do() {
        let mut seed = 7_u64;
        let mut next = |below: i64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            Some((seed >> 1).cast_signed() % below).filter(|value| value % 7 != 0)
        };
        for (first, second) in [(1, 1), (300, 744), (1 << 40, 1 << 20)] {
            let mut column = |below| (0..9_000).map(|_| next(below)).collect::<Vec<_>>();
            let keys = [self::column("a", &column(first)), self::column("b", &column(second))];
            assert!(packed(&keys).unwrap().is_some());
            let frame = pl::DataFrame::new(9_000, keys.to_vec()).unwrap();
            let expected = frame.sort(["a", "b"], pl::SortMultipleOptions::default()).unwrap();
            assert!(sorted(&frame, &keys).unwrap().equals_missing(&expected), "{first} {second}");
        }
    }

    #[test]
    fn what_is_no_integer_sorts_too() {
        let texts = pl::Series::new("t".into(), [Some("b"), None, Some("a")]).into_column();
        let frame = pl::DataFrame::new(3, vec![texts.clone()]).unwrap();
        let found = sorted(&frame, &[texts]).unwrap();
        assert_eq!(found.column("t").unwrap().str().unwrap().iter().collect::<Vec<_>>(), [None, Some("a"), Some("b")]);
    }
}
