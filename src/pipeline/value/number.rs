//! Numbers and bools. Decimal digits are taken as they stand: nothing passes through a double on its way to an exact type.

use super::Misfit;
use crate::pipeline::DataType;

/// The powers of ten that have a place in 128 bits.
const POWERS_OF_TEN: [u128; 39] = {
    let mut powers = [1; 39];
    let mut at = 1;
    while at < powers.len() {
        powers[at] = powers[at - 1] * 10;
        at += 1;
    }
    powers
};

/// No type has digits so far from the point.
const MAX_EXPONENT: i64 = 10_000;

/// `true`, `false`, `t`, `f`, `1` or `0`, in upper or lower case.
pub fn boolean(text: &str) -> Result<bool, Misfit> {
    let is = |known: &str| text.eq_ignore_ascii_case(known);
    match text {
        "1" => Ok(true),
        "0" => Ok(false),
        _ if is("true") || is("t") => Ok(true),
        _ if is("false") || is("f") => Ok(false),
        _ => Err(Misfit::Other),
    }
}

/// A whole number within an integer type; `5.0` and `5e0` are whole.
pub fn integer(text: &str, data_type: &DataType) -> Result<i128, Misfit> {
    let value = match short(text) {
        Some(value) => i128::from(value),
        None => {
            let scaled = scaled(text, 0)?;
            if scaled.dropped != 0 || scaled.more {
                return Err(Misfit::NotWhole);
            }
            scaled.value
        }
    };
    let (least, greatest) = match data_type {
        DataType::UInt(bits) => (0, (1i128 << bits) - 1),
        DataType::Int(bits) => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
        _ => return Err(Misfit::Other),
    };
    if (least..=greatest).contains(&value) { Ok(value) } else { Err(Misfit::OutOfRange) }
}

/// The unscaled integer of a `decimal(precision,scale)`. Digits beyond the scale are rounded half away from zero, as those of
/// a double's shortest text are, so that a csv file and its Parquet twin give the same.
pub fn decimal(text: &str, precision: u8, scale: u8) -> Result<i128, Misfit> {
    let scaled = scaled(text, scale)?;
    let away = if scaled.dropped < 5 { 0 } else { scaled.sign };
    // 38 digits and one more are below the bounds of 128 bits.
    let value = scaled.value.checked_add(away).ok_or(Misfit::OutOfRange)?;
    let limit = POWERS_OF_TEN.get(usize::from(precision)).ok_or(Misfit::OutOfRange)?;
    if value.unsigned_abs() < *limit { Ok(value) } else { Err(Misfit::OutOfRange) }
}

/// The nearest double; `inf` and `nan` are doubles, a number beyond their range is none.
pub fn float64(text: &str) -> Result<f64, Misfit> {
    let value: f64 = text.parse().map_err(|_| Misfit::Other)?;
    if value.is_infinite() && text.contains(|c: char| c.is_ascii_digit()) { Err(Misfit::OutOfRange) } else { Ok(value) }
}

/// The nearest float of 32 bits.
pub fn float32(text: &str) -> Result<f32, Misfit> {
    let value: f32 = text.parse().map_err(|_| Misfit::Other)?;
    if value.is_infinite() && text.contains(|c: char| c.is_ascii_digit()) { Err(Misfit::OutOfRange) } else { Ok(value) }
}

/// A whole number of at most 18 digits, as most are.
fn short(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text).as_bytes();
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    let mut value = 0i64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value * 10 + i64::from(digit - b'0');
    }
    Some(if digits.len() == text.len() { value } else { -value })
}

/// A number at a scale, cut off.
struct Scaled {
    value: i128,
    /// 1 or -1, also for zero.
    sign: i128,
    /// The first digit that was cut off.
    dropped: u8,
    /// Whether one after that was not zero.
    more: bool,
}

/// `[+-]digits[.digits][e[+-]digits]` times 10^scale, whatever the number of digits.
fn scaled(text: &str, scale: u8) -> Result<Scaled, Misfit> {
    let (sign, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (-1, &text[1..]),
        Some(b'+') => (1, &text[1..]),
        _ => (1, text),
    };
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent_of(exponent)?),
        None => (unsigned, 0),
    };
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && part.is_empty() {
        return Err(Misfit::Other);
    }
    let whole_digits = i64::try_from(whole.len()).map_err(|_| Misfit::OutOfRange)?;
    // How many digits are kept, from the first one on; fewer than none where the number is far below the scale.
    let kept = whole_digits + exponent + i64::from(scale);
    let (mut value, mut dropped, mut more, mut at) = (0i128, 0u8, false, 0i64);
    for digit in whole.bytes().chain(part.bytes()) {
        if !digit.is_ascii_digit() {
            return Err(Misfit::Other);
        }
        let digit = digit - b'0';
        match at - kept {
            ..0 => {
                let longer = value.checked_mul(10).and_then(|value| value.checked_add(i128::from(digit)));
                value = longer.ok_or(Misfit::OutOfRange)?;
            }
            0 => dropped = digit,
            _ => more |= digit != 0,
        }
        at += 1;
    }
    if value != 0 && kept > at {
        let zeros = u32::try_from(kept - at).ok().and_then(|zeros| 10i128.checked_pow(zeros));
        value = zeros.and_then(|zeros| value.checked_mul(zeros)).ok_or(Misfit::OutOfRange)?;
    }
    Ok(Scaled { value: sign * value, sign, dropped, more })
}

fn exponent_of(text: &str) -> Result<i64, Misfit> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(Misfit::Other);
    }
    let size = digits.parse::<i64>().unwrap_or(MAX_EXPONENT).min(MAX_EXPONENT);
    Ok(if text.starts_with('-') { -size } else { size })
}
