//! What partitions sum up to, kept so that they can be put in and taken out again.

use super::totals::{Fold, Measured, Scalar, Totals, compare};
use serde::{Deserialize, Serialize};

/// The sum of some partitions: it depends on which they are alone, not on the order in which they came and went.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TableSum {
    /// How many they are.
    pub partitions: u64,
    /// Their rows.
    pub rows: u64,
    measures: Vec<Rolled>,
    orders: Vec<Order>,
}

/// What a sum takes from a partition's content; the rest is not decoded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Its rows.
    pub rows: u64,
    /// Its totals.
    pub totals: Totals,
}

/// How many partitions have their measures in this order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Order {
    names: Vec<String>,
    partitions: u64,
}

/// A measure of those partitions that have it and fold it so.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Rolled {
    name: String,
    fold: Fold,
    partitions: u64,
    held: Held,
}

/// The values that are not null.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Held {
    /// No total.
    Nothing,
    /// Numbers added up, those of each scale by themselves; and how many values are no numbers.
    Sum { at: Vec<AtScale>, others: u64 },
    /// The least or the greatest.
    Extreme(Option<Scalar>),
    /// Values of which none is the greatest: they are of two types.
    Incomparable,
}

/// The sum of whole numbers (no scale) or of decimals of one scale: `high * 2^64 + low`, so that it fits whatever the way to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct AtScale {
    scale: Option<u8>,
    values: u64,
    #[serde(with = "super::totals::int_text")]
    high: i128,
    #[serde(with = "super::totals::int_text")]
    low: i128,
}

const LOW_BITS: u32 = 64;

impl TableSum {
    /// Puts a partition in. None where the rows are more than can be counted.
    #[must_use]
    pub fn with(mut self, part: &Part) -> Option<Self> {
        self.partitions = self.partitions.checked_add(1)?;
        self.rows = self.rows.checked_add(part.rows)?;
        match self.orders.iter_mut().find(|order| part.totals.names().eq(&order.names)) {
            Some(order) => order.partitions += 1,
            None => self.orders.push(Order { names: part.totals.names().map(str::to_owned).collect(), partitions: 1 }),
        }
        for measured in &part.totals.0 {
            match self.measures.iter_mut().find(|rolled| rolled.is_of(measured)) {
                Some(rolled) => rolled.put(measured.value.as_ref())?,
                None => self.measures.push(Rolled::first(measured)?),
            }
        }
        Some(self)
    }

    /// Takes a partition out that was put in. None where what is left must be summed up anew: it was the one with the least or
    /// greatest value, or was not in.
    #[must_use]
    pub fn without(mut self, part: &Part) -> Option<Self> {
        self.partitions = self.partitions.checked_sub(1)?;
        self.rows = self.rows.checked_sub(part.rows)?;
        let order = self.orders.iter_mut().find(|order| part.totals.names().eq(&order.names))?;
        order.partitions = order.partitions.checked_sub(1)?;
        self.orders.retain(|order| order.partitions > 0);
        for measured in &part.totals.0 {
            self.measures.iter_mut().find(|rolled| rolled.is_of(measured))?.take(measured.value.as_ref())?;
        }
        self.measures.retain(|rolled| rolled.partitions > 0);
        Some(self)
    }

    /// The totals. A measure that some partition lacks, or folds in another way, is null, and so is a sum that does not fit 128
    /// bits. Where no order is common to the partitions, measures are told by their names'.
    pub fn totals(&self) -> Totals {
        let mut names: Vec<&String> = self.measures.iter().map(|rolled| &rolled.name).collect();
        match self.orders.as_slice() {
            [one] => names = one.names.iter().collect(),
            _ => names.sort(),
        }
        names.dedup();
        Totals(names.into_iter().map(|name| self.total(name)).collect())
    }

    /// Whether anything that is told of it is different.
    pub fn differs_from(&self, other: &Self) -> bool {
        let told = |sum: &Self| (sum.partitions, sum.rows, sum.totals());
        told(self) != told(other)
    }

    fn total(&self, name: &str) -> Measured {
        let of_all = self.measures.iter().find(|rolled| rolled.name == name && rolled.partitions == self.partitions);
        let (fold, value) = of_all.map_or((Fold::None, None), |rolled| (rolled.fold, rolled.value()));
        Measured { name: name.to_owned(), fold, value }
    }
}

impl Rolled {
    fn first(measured: &Measured) -> Option<Self> {
        let held = match measured.fold {
            Fold::Add => Held::Sum { at: Vec::new(), others: 0 },
            Fold::Min | Fold::Max => Held::Extreme(None),
            Fold::None => Held::Nothing,
        };
        let mut rolled = Self { name: measured.name.clone(), fold: measured.fold, partitions: 0, held };
        rolled.put(measured.value.as_ref())?;
        Some(rolled)
    }

    fn is_of(&self, measured: &Measured) -> bool {
        self.name == measured.name && self.fold == measured.fold
    }

    fn put(&mut self, value: Option<&Scalar>) -> Option<()> {
        self.partitions += 1;
        let Some(value) = value else { return Some(()) };
        match &mut self.held {
            Held::Nothing | Held::Incomparable => {}
            Held::Sum { at, others } => match number(value) {
                None => *others += 1,
                Some((scale, n)) => match at.iter_mut().find(|sum| sum.scale == scale) {
                    Some(sum) => sum.add(n, 1)?,
                    None => {
                        let mut sum = AtScale { scale, values: 0, high: 0, low: 0 };
                        sum.add(n, 1)?;
                        at.push(sum);
                        at.sort_by_key(|sum| sum.scale);
                    }
                },
            },
            Held::Extreme(extreme) => match &extreme {
                None => *extreme = Some(value.clone()),
                Some(old) => match compare(value, old) {
                    None => self.held = Held::Incomparable,
                    Some(order) if order.is_lt() && self.fold == Fold::Min => *extreme = Some(value.clone()),
                    Some(order) if order.is_gt() && self.fold == Fold::Max => *extreme = Some(value.clone()),
                    Some(_) => {}
                },
            },
        }
        Some(())
    }

    fn take(&mut self, value: Option<&Scalar>) -> Option<()> {
        self.partitions = self.partitions.checked_sub(1)?;
        let Some(value) = value else { return Some(()) };
        match &mut self.held {
            Held::Nothing => Some(()),
            Held::Incomparable => None,
            Held::Sum { at, others } => {
                match number(value) {
                    None => *others = others.checked_sub(1)?,
                    Some((scale, n)) => at.iter_mut().find(|sum| sum.scale == scale)?.add(n, -1)?,
                }
                at.retain(|sum| sum.values > 0);
                Some(())
            }
            Held::Extreme(extreme) => compare(value, extreme.as_ref()?).filter(|order| order.is_ne()).map(drop),
        }
    }

    fn value(&self) -> Option<Scalar> {
        match &self.held {
            Held::Extreme(extreme) => extreme.clone(),
            Held::Sum { at, others: 0 } => {
                let scale = at.iter().map(|sum| sum.scale).max()?;
                let sum = at.iter().try_fold(0i128, |all, sum| all.checked_add(sum.at(scale.unwrap_or(0))?))?;
                Some(scale.map_or(Scalar::Int(sum), |scale| Scalar::Decimal { unscaled: sum, scale }))
            }
            Held::Sum { .. } | Held::Nothing | Held::Incomparable => None,
        }
    }
}

impl AtScale {
    fn add(&mut self, n: i128, times: i64) -> Option<()> {
        let high = n >> LOW_BITS;
        self.values = self.values.checked_add_signed(times)?;
        self.high = self.high.checked_add(high * i128::from(times))?;
        self.low = self.low.checked_add((n - (high << LOW_BITS)) * i128::from(times))?;
        Some(())
    }

    /// None where it does not fit 128 bits at this scale.
    fn at(&self, scale: u8) -> Option<i128> {
        let carried = self.high.checked_add(self.low >> LOW_BITS)?;
        let low = self.low - ((self.low >> LOW_BITS) << LOW_BITS);
        let sum = carried.checked_mul(1 << LOW_BITS)?.checked_add(low)?;
        sum.checked_mul(10i128.checked_pow(u32::from(scale - self.scale.unwrap_or(0)))?)
    }
}

fn number(value: &Scalar) -> Option<(Option<u8>, i128)> {
    match value {
        Scalar::Int(n) => Some((None, *n)),
        Scalar::Decimal { unscaled, scale } => Some((Some(*scale), *unscaled)),
        Scalar::Float(_) | Scalar::Text(_) | Scalar::Bool(_) => None,
    }
}

#[cfg(test)]
mod tests;
