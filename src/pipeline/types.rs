//! The contract's types and columns.

use super::Literal;
use std::fmt;

/// A type of the contract, of an expression or of an output column.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DataType {
    /// `bool`
    Bool,
    /// `int8` to `int64`: the number of bits.
    Int(u8),
    /// `uint8` to `uint64`: the number of bits.
    UInt(u8),
    /// `float32`
    Float32,
    /// `float64`
    Float64,
    /// `decimal(p,s)`: 1 to 38 digits, of which `scale` after the point.
    Decimal {
        /// Digits in all.
        precision: u8,
        /// Digits after the point.
        scale: u8,
    },
    /// `string`
    String,
    /// `date`
    Date,
    /// `datetime` (wall-clock) or `datetime(TZ)` (an instant, shown in TZ), in microseconds.
    Datetime(Option<chrono_tz::Tz>),
}

/// A column of the contract.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Its name in expressions.
    pub name: String,
    /// The type that its values are brought to.
    pub data_type: DataType,
    /// Whether a null costs the row.
    pub not_null: bool,
    /// Where its values are.
    pub origin: Origin,
    /// How texts are read as dates and times (strftime); none for ISO 8601.
    pub format: Option<String>,
    /// Its value where a file (ndjson: a line) has no such column; null where it is optional. None: such a file breaks
    /// the contract.
    pub default: Option<Literal>,
}

/// Where the values of a column are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// In the first of these columns that the file has; for ndjson paths by dots, and the first that the line has.
    Names(Vec<String>),
    /// In the field of that number, from 1 (csv without a header).
    Position(usize),
    /// In the `key=value` folder of this key in the file's path.
    Folder(String),
}

impl Column {
    /// A column that every file has under its own name.
    pub fn new(name: impl Into<String>, data_type: DataType, not_null: bool) -> Self {
        let name = name.into();
        let origin = Origin::Names(vec![name.clone()]);
        Self { name, data_type, not_null, origin, format: None, default: None }
    }
}

impl DataType {
    /// Whether it is a whole number or a decimal, and so has exact sums.
    pub fn is_exact(&self) -> bool {
        matches!(self, DataType::Int(_) | DataType::UInt(_) | DataType::Decimal { .. })
    }

    /// Whether it is `float32` or `float64`.
    pub fn is_float(&self) -> bool {
        matches!(self, DataType::Float32 | DataType::Float64)
    }

    /// The digits in all and after the point that hold every value of an exact type.
    pub fn digits(&self) -> Option<(u8, u8)> {
        match self {
            DataType::Int(8) | DataType::UInt(8) => Some((3, 0)),
            DataType::Int(16) | DataType::UInt(16) => Some((5, 0)),
            DataType::Int(32) | DataType::UInt(32) => Some((10, 0)),
            DataType::Int(_) => Some((19, 0)),
            DataType::UInt(_) => Some((20, 0)),
            DataType::Decimal { precision, scale } => Some((*precision, *scale)),
            _ => None,
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataType::Bool => f.write_str("bool"),
            DataType::Int(bits) => write!(f, "int{bits}"),
            DataType::UInt(bits) => write!(f, "uint{bits}"),
            DataType::Float32 => f.write_str("float32"),
            DataType::Float64 => f.write_str("float64"),
            DataType::Decimal { precision, scale } => write!(f, "decimal({precision},{scale})"),
            DataType::String => f.write_str("string"),
            DataType::Date => f.write_str("date"),
            DataType::Datetime(None) => f.write_str("datetime"),
            DataType::Datetime(Some(tz)) => write!(f, "datetime({})", tz.name()),
        }
    }
}
