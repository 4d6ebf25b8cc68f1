//! Values as the tests write them into files, and as they read them back.

use polars::prelude::{
    Column, DataType as Physical, Int128Chunked, IntoColumn, NamedFrom, NewChunkedArray, Series, TimeUnit,
};
use std::fmt::Write;

/// A value, of a file or of the contract.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell {
    Null,
    Bool(bool),
    /// An exact number: unscaled, and its digits after the point.
    Exact(i128, u8),
    Float(f64),
    Text(String),
    Date(i32),
    /// In the unit of its type.
    Time(i64),
}

/// A column of a file.
pub(super) fn column(name: &str, physical: &Physical, cells: &[Cell]) -> Column {
    let exact = || -> Int128Chunked {
        let values = cells.iter().map(|cell| if let Cell::Exact(v, _) = cell { Some(*v) } else { None });
        Int128Chunked::from_iter_options(name.into(), values)
    };
    match physical {
        Physical::Boolean => {
            let values: Vec<Option<bool>> =
                cells.iter().map(|c| if let Cell::Bool(v) = c { Some(*v) } else { None }).collect();
            Series::new(name.into(), values).into()
        }
        Physical::Decimal(precision, scale) => exact().into_decimal(*precision, *scale).unwrap().into_column(),
        Physical::Float32 | Physical::Float64 => {
            let values: Vec<Option<f64>> =
                cells.iter().map(|c| if let Cell::Float(v) = c { Some(*v) } else { None }).collect();
            Series::new(name.into(), values).cast(physical).unwrap().into()
        }
        Physical::String => {
            let values: Vec<Option<&str>> =
                cells.iter().map(|c| if let Cell::Text(v) = c { Some(v.as_str()) } else { None }).collect();
            Series::new(name.into(), values).into()
        }
        Physical::Date => {
            let values: Vec<Option<i32>> =
                cells.iter().map(|c| if let Cell::Date(v) = c { Some(*v) } else { None }).collect();
            Series::new(name.into(), values).cast(physical).unwrap().into()
        }
        Physical::Datetime(..) => {
            let values: Vec<Option<i64>> =
                cells.iter().map(|c| if let Cell::Time(v) = c { Some(*v) } else { None }).collect();
            Series::new(name.into(), values).cast(physical).unwrap().into()
        }
        Physical::Null => Column::full_null(name.into(), cells.len(), &Physical::Null),
        whole => exact().into_column().strict_cast(whole).unwrap(),
    }
}

/// An exact number in one form, whatever its scale.
pub(super) fn exact_text(mut unscaled: i128, mut scale: u8) -> String {
    while scale > 0 && unscaled % 10 == 0 {
        (unscaled, scale) = (unscaled / 10, scale - 1);
    }
    format!("{unscaled}e-{scale}")
}

/// A double in one form; fewer digits of an average, whose rounding is its own.
pub(super) fn float_text(value: f64) -> String {
    if value.is_nan() { "NaN".to_owned() } else { format!("{value:?}") }
}

/// The values of a column, one text for one value.
pub(super) fn canonical(column: &Column) -> Vec<String> {
    let series = column.as_materialized_series();
    let physical = series.to_physical_repr().into_owned();
    let texts: Vec<Option<String>> = match series.dtype() {
        Physical::Boolean => series.bool().unwrap().iter().map(|v| v.map(|v| v.to_string())).collect(),
        Physical::String => series.str().unwrap().iter().map(|v| v.map(|v| format!("'{v}'"))).collect(),
        Physical::Float32 | Physical::Float64 => {
            let doubles = series.cast(&Physical::Float64).unwrap();
            doubles.f64().unwrap().iter().map(|v| v.map(float_text)).collect()
        }
        Physical::Date => physical.i32().unwrap().iter().map(|v| v.map(|v| format!("day {v}"))).collect(),
        Physical::Datetime(TimeUnit::Microseconds, _) => {
            physical.i64().unwrap().iter().map(|v| v.map(|v| format!("time {v}"))).collect()
        }
        Physical::Decimal(_, scale) => {
            let scale = u8::try_from(*scale).unwrap();
            physical.i128().unwrap().iter().map(|v| v.map(|v| exact_text(v, scale))).collect()
        }
        whole if whole.is_integer() => {
            let wide = series.cast(&Physical::Int128).unwrap();
            wide.i128().unwrap().iter().map(|v| v.map(|v| exact_text(v, 0))).collect()
        }
        other => panic!("no file has {other:?}"),
    };
    texts.into_iter().map(|text| text.unwrap_or_else(|| "null".to_owned())).collect()
}

/// The value in its one form.
pub(super) fn text_of(cell: &Cell) -> String {
    match cell {
        Cell::Null => "null".to_owned(),
        Cell::Bool(v) => v.to_string(),
        Cell::Exact(v, scale) => exact_text(*v, *scale),
        Cell::Float(v) => float_text(*v),
        Cell::Text(v) => format!("'{v}'"),
        Cell::Date(v) => format!("day {v}"),
        Cell::Time(v) => format!("time {v}"),
    }
}

/// A folder's name as Hive escapes it.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if c < ' ' || "\u{7f}\"#%'*/:=?\\{[]^".contains(c) {
            write!(out, "%{:02X}", u32::from(c)).unwrap();
        } else {
            out.push(c);
        }
    }
    out
}

/// Numbers that look random and are always the same.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }

    pub(super) fn one_in(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }

    pub(super) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// A number from `-limit` to `limit`.
    pub(super) fn around(&mut self, limit: i64) -> i128 {
        i128::from(self.next()) % (2 * i128::from(limit) + 1) - i128::from(limit)
    }
}
