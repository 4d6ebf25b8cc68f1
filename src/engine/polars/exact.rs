//! Exact numbers: integers of 64 or 128 bits that stand for `value * 10^-scale`.

use ::polars::prelude as pl;
use ::polars::prelude::{IntoColumn, NewChunkedArray};

/// Powers of ten up to the 38 digits that a decimal has.
pub(super) fn power_of_ten(exponent: u8) -> i128 {
    10i128.checked_pow(u32::from(exponent)).unwrap_or(i128::MAX)
}

/// The integer type for numbers of so many digits.
pub(super) fn digits_type(precision: u8) -> pl::DataType {
    if precision <= 18 { pl::DataType::Int64 } else { pl::DataType::Int128 }
}

/// How digits are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rounding {
    /// Ties away from zero.
    HalfAwayFromZero,
    /// Towards minus infinity.
    Down,
    /// Towards plus infinity.
    Up,
    /// Not at all: a value that would lose a digit becomes null.
    Exact,
}

/// One number from one scale to another; none where it does not fit 128 bits, or may not be rounded.
pub(super) fn rescale_one(value: i128, from: u8, to: u8, rounding: Rounding) -> Option<i128> {
    if to >= from {
        return value.checked_mul(10i128.checked_pow(u32::from(to - from))?);
    }
    let divisor = 10i128.checked_pow(u32::from(from - to))?;
    let (quotient, rest) = (value / divisor, value % divisor);
    match rounding {
        Rounding::Exact => (rest == 0).then_some(quotient),
        Rounding::Down => Some(if rest < 0 { quotient - 1 } else { quotient }),
        Rounding::Up => Some(if rest > 0 { quotient + 1 } else { quotient }),
        Rounding::HalfAwayFromZero => {
            let away = rest.unsigned_abs() >= divisor.unsigned_abs().div_ceil(2);
            Some(if away { quotient + value.signum() } else { quotient })
        }
    }
}

/// A column of 128-bit numbers from one scale to another.
pub(super) fn rescale(column: &pl::Column, from: u8, to: u8, rounding: Rounding) -> pl::PolarsResult<pl::Column> {
    map_i128(column, |v| rescale_one(v, from, to, rounding))
}

/// `-x`
#[expect(clippy::needless_pass_by_value, reason = "the signature that the engine's maps have")]
pub(super) fn negate(column: pl::Column) -> pl::PolarsResult<pl::Column> {
    let to = column.dtype().clone();
    map_i128(&column.cast(&pl::DataType::Int128)?, i128::checked_neg)?.cast(&to)
}

/// `abs(x)`
#[expect(clippy::needless_pass_by_value, reason = "the signature that the engine's maps have")]
pub(super) fn absolute(column: pl::Column) -> pl::PolarsResult<pl::Column> {
    let to = column.dtype().clone();
    map_i128(&column.cast(&pl::DataType::Int128)?, i128::checked_abs)?.cast(&to)
}

/// `a / b` over doubles. Polars multiplies by the reciprocal of a divisor that is one value, and so gives other digits
/// for it, and for a batch of a single row.
pub(super) fn quotients(columns: &mut [pl::Column]) -> pl::PolarsResult<pl::Column> {
    let [a, b] = columns else {
        return Err(pl::PolarsError::ComputeError("a division has two operands".into()));
    };
    let (a, b) = (a.as_materialized_series(), b.as_materialized_series());
    let divided: pl::Float64Chunked =
        pl::arity::broadcast_binary_elementwise(a.f64()?, b.f64()?, |a: Option<f64>, b: Option<f64>| Some(a? / b?));
    Ok(divided.into_column())
}

/// The nearest double of `value * 10^-scale`.
#[expect(clippy::needless_pass_by_value, reason = "the signature that the engine's maps have")]
pub(super) fn to_float(column: pl::Column, scale: u8) -> pl::PolarsResult<pl::Column> {
    let wide = column.cast(&pl::DataType::Int128)?;
    let values = wide.as_materialized_series().i128()?.iter().map(|v| v.map(|v| float(v, scale)));
    Ok(pl::Float64Chunked::from_iter_options(column.name().clone(), values).into_column())
}

/// The nearest double of one number.
pub(super) fn float(value: i128, scale: u8) -> f64 {
    const EXACT: i128 = 1 << 53;
    if (-EXACT..=EXACT).contains(&value) && scale <= 22 {
        // Both are doubles, so the quotient is rounded once.
        return value as f64 / power_of_ten(scale) as f64;
    }
    crate::run::decimal_text(value, scale).parse().unwrap_or(f64::NAN)
}

/// Maps a 128-bit column value by value; none becomes null.
pub(super) fn map_i128(column: &pl::Column, f: impl Fn(i128) -> Option<i128>) -> pl::PolarsResult<pl::Column> {
    let values = column.as_materialized_series().i128()?.iter().map(|v| v.and_then(&f));
    Ok(pl::Int128Chunked::from_iter_options(column.name().clone(), values).into_column())
}

/// Maps a 64-bit column value by value; none becomes null.
#[inline]
pub(super) fn map_i64(column: &pl::Int64Chunked, mut f: impl FnMut(i64) -> Option<i64>) -> pl::Int64Chunked {
    let mut mapped = Vec::with_capacity(column.len());
    for value in column.downcast_iter().flat_map(|chunk| chunk.values().iter()) {
        match f(*value) {
            Some(value) => mapped.push(value),
            None => return pl::arity::unary_elementwise(column, |value: Option<i64>| value.and_then(&mut f)),
        }
    }
    pl::Int64Chunked::from_vec(column.name().clone(), mapped).with_validity(column.rechunk_validity())
}

/// How many doubles are looked at together.
const BLOCK: usize = 1024;
/// The powers of ten up to this one are doubles.
const EXACT_POWERS: u8 = 22;
/// Integers below this have fewer than 16 digits.
const FEW_DIGITS: f64 = 1e15;

/// Doubles as the unscaled integers of decimals with up to 18 digits (see [`from_double`]); null where there is none.
pub(super) fn from_doubles(column: &pl::Float64Chunked, precision: u8, scale: u8) -> pl::Int64Chunked {
    let one_by_one = |x: f64| from_double(x, precision, scale).and_then(|c| i64::try_from(c).ok());
    let (factor, bound) = (power_of_ten(scale) as f64, FEW_DIGITS.min(power_of_ten(precision) as f64));
    let mut out = Vec::with_capacity(column.len());
    for block in column.downcast_iter().flat_map(|chunk| chunk.values().chunks(BLOCK)) {
        let start = out.len();
        let mut all = scale <= EXACT_POWERS;
        out.extend(block.iter().map(|x| {
            let (c, is_text) = nearest(*x, factor, bound);
            all &= is_text;
            c
        }));
        for (at, x) in block.iter().enumerate().filter(|_| !all) {
            let Some(out) = out.get_mut(start + at) else { continue };
            match one_by_one(*x) {
                Some(c) => *out = c,
                None => return pl::arity::unary_elementwise(column, |x: Option<f64>| x.and_then(one_by_one)),
            }
        }
    }
    pl::Int64Chunked::from_vec(column.name().clone(), out).with_validity(column.rechunk_validity())
}

/// The integer next to `x * factor`, and whether `x` is the double next to it divided by `factor`, and it below `bound`, which is
/// at most [`FEW_DIGITS`]: then its digits, fewer than 16 that give `x` back, are its shortest text.
///
/// A sum of this size has no room for a fraction, so adding rounds, ties to even; and its last bits are the integer. Where the
/// second holds there was no tie: `x` is within a 2^53rd of c / factor, and so `x * factor`, rounded once more, within a 2^52nd of c,
/// which for fewer than 16 digits is less than a quarter.
#[inline]
fn nearest(x: f64, factor: f64, bound: f64) -> (i64, bool) {
    const SHIFT: f64 = 6_755_399_441_055_744.0;
    let shifted = x * factor + SHIFT;
    let c = shifted - SHIFT;
    (shifted.to_bits().wrapping_sub(SHIFT.to_bits()).cast_signed(), (c.abs() < bound) & (c / factor == x))
}

/// A double as a decimal's unscaled integer, as Spark does it: its shortest decimal text, rounded half away from zero.
/// None for what is not finite or has more digits than `precision`.
pub(super) fn from_double(x: f64, precision: u8, scale: u8) -> Option<i128> {
    if !x.is_finite() {
        return None;
    }
    let limit = power_of_ten(precision);
    if scale <= EXACT_POWERS {
        let (c, is_text) = nearest(x, power_of_ten(scale) as f64, FEW_DIGITS);
        if is_text {
            return (i128::from(c).abs() < limit).then_some(i128::from(c));
        }
    }
    let unscaled = from_text(&shortest_text(x), scale)?;
    (unscaled.unsigned_abs() < limit.unsigned_abs()).then_some(unscaled)
}

/// The shortest decimal text that gives `x` back, as `d.ddde±x`; of two such, the nearest, and of two as near, the one with an
/// even last digit, as in Java. (The standard shortest text takes the upper one.)
fn shortest_text(x: f64) -> String {
    let shortest = format!("{x:e}");
    let part = shortest.split_once('e').and_then(|(mantissa, _)| mantissa.split_once('.'));
    let digits = part.map_or(0, |(_, part)| part.len());
    format!("{x:.digits$e}")
}

/// `d.ddde±x` as an unscaled integer, rounded half away from zero; none where it does not fit 128 bits.
fn from_text(text: &str, scale: u8) -> Option<i128> {
    let (mantissa, exponent) = text.split_once('e')?;
    let exponent: i32 = exponent.parse().ok()?;
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits: i128 = format!("{whole}{part}").parse().ok()?;
    // digits * 10^shift is the value at the wanted scale.
    let shift = exponent - i32::try_from(part.len()).ok()? + i32::from(scale);
    if shift >= 0 {
        return digits.checked_mul(10i128.checked_pow(shift.unsigned_abs())?);
    }
    match u8::try_from(shift.unsigned_abs()) {
        Ok(down) if down <= 38 => rescale_one(digits, down, 0, Rounding::HalfAwayFromZero),
        _ => Some(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_become_decimals_by_their_shortest_text() {
        let cents = |x| from_double(x, 18, 2);
        assert_eq!([cents(1.145), cents(0.125), cents(-0.125)], [Some(115), Some(13), Some(-13)]);
        assert_eq!([cents(1e16), cents(f64::NAN), cents(f64::NEG_INFINITY)], [None, None, None]);
        assert_eq!([cents(1e300), cents(-1e256), cents(f64::MAX)], [None, None, None]);
        assert_eq!(
            [cents(9_999_999_999_999.99), cents(1e15), cents(1e-300)],
            [Some(999_999_999_999_999), Some(100_000_000_000_000_000), Some(0)]
        );
        assert_eq!(from_double(0.1, 38, 30), Some(10i128.pow(29)));
        assert_eq!(from_double(2.675, 5, 2), Some(268), "the text is 2.675 although the double is below it");
        assert_eq!([cents(1e270), cents(1e300), cents(f64::MIN)], [None; 3], "no size is too large to be out of range");
    }

    #[test]
    fn of_two_texts_as_near_the_even_one_is_taken() {
        // Doubles of this size are 0.25 apart: the last digit of 17 is 2 or 3, 7 or 8.
        for (x, cents) in [
            (1_882_805_223_416_777.0 + 0.25, 188_280_522_341_677_720),
            (1_712_721_711_370_399.0 + 0.75, 171_272_171_137_039_980),
        ] {
            assert_eq!([from_double(x, 18, 2), from_double(-x, 18, 2)], [Some(cents), Some(-cents)], "{x}");
        }
    }

    #[test]
    fn the_fast_path_agrees_with_the_text() {
        let mut seed = 7u64;
        for _ in 0..200_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let x = (seed >> 11) as f64 / 1e6 - 4e9;
            let slow = from_text(&shortest_text(x), 2);
            assert_eq!(from_double(x, 18, 2), slow, "{x}");
        }
    }

    /// As it was defined: by libm's rounding, ties away from zero.
    fn by_definition(x: f64, precision: u8, scale: u8) -> Option<i128> {
        let factor = power_of_ten(scale) as f64;
        let c = (x * factor).round();
        if c.abs() < 1e15 && c / factor == x {
            return (c.abs() < power_of_ten(precision) as f64).then_some(c as i128);
        }
        let unscaled = x.is_finite().then(|| from_text(&shortest_text(x), scale)).flatten()?;
        (unscaled.unsigned_abs() < power_of_ten(precision).unsigned_abs()).then_some(unscaled)
    }

    #[test]
    fn columns_of_doubles_become_what_each_of_them_does() {
        let mut seed = 11u64;
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            seed >> 8
        };
        let mut doubles =
            vec![Some(0.0), Some(-0.0), None, Some(f64::MIN_POSITIVE), Some(f64::NAN), Some(f64::INFINITY)];
        for _ in 0..60_000 {
            let (digits, bits) = ((next() % 3_000_000_000_000_000) as f64, next() << 8);
            let x = match next() % 8 {
                0 => digits / 100.0,
                // Ties, and their neighbours.
                1 => digits.trunc() / 2.0,
                2 => ((next() % 200_000) as f64 + 0.5) / 100.0,
                3 => (((next() % 200_000) as f64 + 0.5) / 100.0).next_up(),
                4 => (((next() % 200_000) as f64 + 0.5) / 100.0).next_down(),
                5 => f64::from_bits(bits),
                6 => -((next() % 10_000_000) as f64 / 100.0),
                _ => -digits / 1000.0,
            };
            doubles.push((next() % 50 > 0).then_some(x));
        }
        for block in doubles.chunks(777) {
            let column = pl::Float64Chunked::from_iter_options("".into(), block.iter().copied());
            for (precision, scale) in [(18, 2), (5, 2), (18, 0), (15, 15), (18, 18), (10, 4)] {
                let expected = block.iter().map(|x| {
                    let x = x.as_ref()?;
                    by_definition(*x, precision, scale).and_then(|c| i64::try_from(c).ok())
                });
                let found = from_doubles(&column, precision, scale);
                for (at, expected) in expected.enumerate() {
                    assert_eq!(found.get(at), expected, "{:?} as decimal({precision},{scale})", block.get(at));
                    let one = block[at].and_then(|x| from_double(x, precision, scale));
                    assert_eq!(one.and_then(|c| i64::try_from(c).ok()), expected);
                }
            }
        }
    }

    #[test]
    fn dropping_digits_rounds_as_named() {
        let at = |v, rounding| rescale_one(v, 2, 0, rounding);
        assert_eq!([at(150, Rounding::HalfAwayFromZero), at(-150, Rounding::HalfAwayFromZero)], [Some(2), Some(-2)]);
        assert_eq!([at(149, Rounding::HalfAwayFromZero), at(-149, Rounding::HalfAwayFromZero)], [Some(1), Some(-1)]);
        assert_eq!(
            [at(-101, Rounding::Down), at(-101, Rounding::Up), at(101, Rounding::Up)],
            [Some(-2), Some(-1), Some(2)]
        );
        assert_eq!([at(100, Rounding::Exact), at(101, Rounding::Exact)], [Some(1), None]);
        assert_eq!(rescale_one(i128::MAX, 0, 1, Rounding::Exact), None);
    }

    #[test]
    fn floats_of_exact_numbers_are_the_nearest() {
        assert_eq!([float(115, 2), float(-1, 0), float(10i128.pow(37), 37)], [1.15, -1.0, 1.0]);
    }
}
