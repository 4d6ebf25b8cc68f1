//! How a file keeps the contract: where it has each column, and how that is brought to the column's type.

use super::convert::{Conversion, convert, type_name};
use super::lower::literal_of;
use super::spool::stored_type;
use crate::engine::EngineError;
use crate::engine::error::compute_failure;
use crate::pipeline::{Column, Definition, Literal, Origin, value};
use ::polars::prelude as pl;

/// Where a file has a column of the contract.
#[derive(Debug, Clone)]
pub(super) enum Found {
    /// In this column of its own, of this physical type.
    Column {
        /// The column's name in the file.
        name: String,
        /// Its physical type.
        physical: pl::DataType,
    },
    /// In this column, written by this attempt in the inner type.
    Spooled {
        /// The column's name, there and in the contract.
        name: String,
        /// The type it is stored as.
        stored: pl::DataType,
    },
    /// Nowhere among its columns: every row has this value.
    Constant(Literal),
}

impl Found {
    /// Brings it to the column's type.
    pub(super) fn convert(&self, column: &Column) -> Option<Conversion> {
        match self {
            Found::Column { name, physical } => convert(pl::col(name.as_str()), physical, column),
            Found::Spooled { name, stored } => {
                let expr = pl::col(name.as_str());
                let expr = if stored.is_decimal() { expr.to_physical() } else { expr };
                Some(Conversion { expr, lossy: false })
            }
            Found::Constant(value) => Some(Conversion { expr: literal_of(value, &column.data_type), lossy: false }),
        }
    }

    /// The column of the file that is read for it.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Found::Column { name, .. } | Found::Spooled { name, .. } => Some(name),
            Found::Constant(_) => None,
        }
    }

    /// Whether the file has a null there, before any conversion.
    pub(super) fn is_null(&self) -> pl::Expr {
        match self {
            Found::Column { name, .. } | Found::Spooled { name, .. } => pl::col(name.as_str()).is_null(),
            Found::Constant(value) => pl::lit(*value == Literal::Null),
        }
    }
}

/// Where a Parquet file has each column of the contract; fails where it has one nowhere, or as something else.
pub(super) fn of_parquet(
    definition: &Definition,
    file: &str,
    schema: &pl::ArrowSchema,
) -> Result<Vec<Found>, EngineError> {
    // The reader takes the whole schema in, with the columns that are not asked for.
    for field in schema.iter_values() {
        if readable(field).is_none() {
            let detail = format!("found {:?}, which this version cannot read", field.dtype);
            return Err(broken(file, &field.name, &detail));
        }
    }
    let column = |column| in_schema(column, file, schema).map_err(|detail| broken(file, &column.name, &detail));
    definition.source.columns.iter().map(column).collect()
}

fn in_schema(column: &Column, file: &str, schema: &pl::ArrowSchema) -> Result<Found, String> {
    let names = match &column.origin {
        Origin::Names(names) => names,
        Origin::Folder(key) => return value::of_folder(column, key, file).map(Found::Constant),
        Origin::Position(_) => return Err("is at a position, which a Parquet file does not have".to_owned()),
    };
    let Some((name, field)) = names.iter().find_map(|name| Some((name, schema.get(name.as_str())?))) else {
        if let Some(default) = &column.default {
            return Ok(Found::Constant(default.clone()));
        }
        let has: Vec<&str> = schema.iter_names().map(|n| n.as_str()).collect();
        let wanted =
            if *names == [column.name.as_str()] { String::new() } else { format!(" as {}", names.join(" or ")) };
        return Err(format!("not found{wanted}, expected {}; the file has {}", column.data_type, has.join(", ")));
    };
    let physical = pl::DataType::from_arrow_field(field);
    if convert(pl::col(name.as_str()), &physical, column).is_none() {
        return Err(format!("found {}, expected {}", type_name(&physical), column.data_type));
    }
    Ok(Found::Column { name: name.clone(), physical })
}

/// Where the file that a text file was read into has each column.
pub(super) fn of_spool(definition: &Definition) -> Vec<Found> {
    let column = |c: &Column| Found::Spooled { name: c.name.clone(), stored: stored_type(&c.data_type) };
    definition.source.columns.iter().map(column).collect()
}

fn broken(file: &str, column: &str, detail: &str) -> EngineError {
    broken_file(format!("{file}: column {column}: {detail}"))
}

/// A file that does not keep the contract.
pub(super) fn broken_file(detail: String) -> EngineError {
    compute_failure("contract-broken", "A source file does not keep the contract", detail)
}

/// The type of a column; none where the reader knows none, which it says by panicking.
fn readable(field: &pl::ArrowField) -> Option<pl::DataType> {
    std::panic::catch_unwind(|| pl::DataType::from_arrow_field(field)).ok()
}
