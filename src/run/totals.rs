//! Totals: each measure rolled up over the rows of a partition, and over partitions.

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

/// How a measure rolls up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fold {
    /// Counts and sums add.
    Add,
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// No total (averages, distinct counts).
    None,
}

/// A value of a measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type", content = "value")]
pub enum Scalar {
    /// A whole number, as text since it may have 128 bits.
    Int(#[serde(with = "int_text")] i128),
    /// `unscaled / 10^scale`.
    Decimal {
        /// The integer.
        #[serde(with = "int_text")]
        unscaled: i128,
        /// Digits after the point.
        scale: u8,
    },
    /// A double, as text since it may be no number, and so that each comes back to the bit.
    Float(#[serde(with = "float_text")] f64),
    /// A text, or a date or datetime in its text form, whose order is the order of time.
    Text(String),
    /// A truth value.
    Bool(bool),
}

/// One measure's total.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The measure's name.
    pub name: String,
    /// How it rolls up.
    pub fold: Fold,
    /// The total; null where there is none.
    pub value: Option<Scalar>,
}

/// The totals of a partition, in the order of the definition's measures.
///
/// Serialised as a list it keeps types (for the database); [`Totals::on_the_wire`] gives the map that answers carry.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Totals(pub Vec<Measured>);

/// Totals as answers carry them: a map from measure to number, decimal text or null.
#[derive(Debug)]
pub struct WireTotals<'a>(&'a Totals);

impl Totals {
    /// The map that answers carry.
    pub fn on_the_wire(&self) -> WireTotals<'_> {
        WireTotals(self)
    }

    /// The measures' names, in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|measured| measured.name.as_str())
    }
}

/// The order of two values; none where their types have none in common.
pub(super) fn compare(a: &Scalar, b: &Scalar) -> Option<std::cmp::Ordering> {
    match (a, b) {
        (Scalar::Float(x), Scalar::Float(y)) => Some(x.total_cmp(y)),
        (Scalar::Text(x), Scalar::Text(y)) => Some(x.cmp(y)),
        (Scalar::Bool(x), Scalar::Bool(y)) => Some(x.cmp(y)),
        _ => same_scale(a, b).map(|(x, y, _)| x.cmp(&y)),
    }
}

fn same_scale(a: &Scalar, b: &Scalar) -> Option<(i128, i128, u8)> {
    let parts = |s: &Scalar| match s {
        Scalar::Int(x) => Some((*x, 0)),
        Scalar::Decimal { unscaled, scale } => Some((*unscaled, *scale)),
        _ => None,
    };
    let ((x, sx), (y, sy)) = (parts(a)?, parts(b)?);
    let scale = sx.max(sy);
    let raise = |v: i128, from: u8| v.checked_mul(10i128.checked_pow(u32::from(scale - from))?);
    Some((raise(x, sx)?, raise(y, sy)?, scale))
}

/// The text of `unscaled / 10^scale`, with exactly `scale` digits after the point.
pub fn decimal_text(unscaled: i128, scale: u8) -> String {
    if scale == 0 {
        return unscaled.to_string();
    }
    let scale = usize::from(scale);
    let digits = format!("{:0>width$}", unscaled.unsigned_abs(), width = scale + 1);
    let (whole, part) = digits.split_at(digits.len() - scale);
    format!("{}{whole}.{part}", if unscaled < 0 { "-" } else { "" })
}

impl Serialize for WireTotals<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.0.len()))?;
        for m in &self.0.0 {
            match &m.value {
                None => map.serialize_entry(&m.name, &())?,
                Some(Scalar::Int(x)) => match i64::try_from(*x) {
                    Ok(small) => map.serialize_entry(&m.name, &small)?,
                    Err(_) => map.serialize_entry(&m.name, &x.to_string())?,
                },
                Some(Scalar::Decimal { unscaled, scale }) => {
                    map.serialize_entry(&m.name, &decimal_text(*unscaled, *scale))?;
                }
                Some(Scalar::Float(x)) => map.serialize_entry(&m.name, x)?,
                Some(Scalar::Text(x)) => map.serialize_entry(&m.name, x)?,
                Some(Scalar::Bool(x)) => map.serialize_entry(&m.name, x)?,
            }
        }
        map.end()
    }
}

mod float_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

pub(super) mod int_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(value: &i128, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i128, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn one(name: &str, fold: Fold, value: Option<Scalar>) -> Totals {
        Totals(vec![Measured { name: name.to_owned(), fold, value }])
    }

    #[test]
    fn decimals_are_told_with_all_their_digits() {
        let total = one("r", Fold::Add, Some(Scalar::Decimal { unscaled: 5, scale: 3 }));
        assert_eq!(serde_json::to_string(&total.on_the_wire()).unwrap(), r#"{"r":"0.005"}"#);
        assert_eq!(decimal_text(-5, 2), "-0.05");
    }

    #[test]
    fn doubles_come_back_to_the_bit() {
        for value in [0.1, -0.0, f64::MAX, 5e-324, 1.0 / 3.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
            let text = serde_json::to_string(&Scalar::Float(value)).unwrap();
            let Scalar::Float(back) = serde_json::from_str(&text).unwrap() else { panic!("{text}") };
            assert_eq!(back.to_bits(), value.to_bits(), "{text}");
        }
    }

    #[test]
    fn what_is_stored_comes_back() {
        for value in [Scalar::Int(i128::MIN), Scalar::Decimal { unscaled: -1, scale: 2 }, Scalar::Float(0.1)] {
            let totals = one("x", Fold::Max, Some(value));
            let text = serde_json::to_string(&totals).unwrap();
            assert_eq!(serde_json::from_str::<Totals>(&text).unwrap(), totals);
        }
    }
}
