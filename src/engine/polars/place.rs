//! Row groups that statistics place: not read where they are out of scope.

use super::contract::Found;
use super::files::LookedAt;
use super::scope::{Allowed, value_name, value_of, values_at};
use super::time;
use crate::partition::{PartitionValue, Transform};
use crate::pipeline::{Column, DataType, Definition};
use ::polars::io::parquet::metadata::{ParquetStatistics, deserialize};
use ::polars::prelude as pl;
use ::polars::prelude::IntoLazy;

const HEIGHT: &str = "\u{1}height";

/// What statistics say of the partition values of a row group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Placed {
    /// All its rows have these.
    In(Vec<PartitionValue>),
    /// The least and the greatest have these.
    Between(Vec<PartitionValue>, Vec<PartitionValue>),
    /// Nothing.
    Anywhere,
}

impl LookedAt {
    /// What statistics say of each row group; nothing where all are of the scope.
    pub(super) fn row_groups_placed(&self, definition: &Definition) -> Vec<Placed> {
        let nothing = || vec![Placed::Anywhere; self.row_groups.len()];
        if self.row_groups.is_empty() || self.allowed == Allowed::All || !self.can_be_placed(definition) {
            return nothing();
        }
        self.place(definition).unwrap_or_else(|_| nothing())
    }

    /// Statistics are exact and their order is that of the partitions: not for text (it may be cut short), doubles
    /// (NaN is left out) and zones whose clocks are set back.
    fn can_be_placed(&self, definition: &Definition) -> bool {
        definition.partition.columns().iter().all(|column| {
            let Some((contract, found)) = self.found_of(definition, &column.source) else { return false };
            let zoned = matches!(contract.data_type, DataType::Datetime(Some(_)));
            match found {
                Found::Constant(_) => true,
                Found::Column { physical, .. } | Found::Spooled { stored: physical, .. } => {
                    (physical.is_integer() || physical.is_temporal() || physical.is_decimal())
                        && !(zoned && definition.timezone != chrono_tz::UTC)
                }
            }
        })
    }

    fn place(&self, definition: &Definition) -> pl::PolarsResult<Vec<Placed>> {
        let spec = &definition.partition;
        let mut known = vec![true; self.row_groups.len()];
        // A column that is there whatever the others are: constants alone would make one row.
        let mut bounds = vec![pl::Column::new_scalar(HEIGHT.into(), pl::Scalar::from(0i32), 2 * self.row_groups.len())];
        let mut names: Vec<&str> = spec.columns().iter().map(|c| c.source.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        for name in &names {
            if let Some((_, Found::Column { name, .. } | Found::Spooled { name, .. })) = self.found_of(definition, name)
            {
                bounds.push(self.bounds(name, &mut known)?);
            }
        }
        let frame = pl::DataFrame::new(2 * self.row_groups.len(), bounds)?;
        let mut converted = vec![pl::col(HEIGHT)];
        for name in names {
            let conversion = self.found_of(definition, name).and_then(|(column, found)| found.convert(column));
            converted.extend(conversion.map(|c| c.expr.alias(name)));
        }
        let frame = frame.lazy().select(converted).select(period_values(definition)).collect()?;
        let mut out = Vec::new();
        for (group, known) in known.iter().enumerate() {
            let (least, greatest) = (2 * group, 2 * group + 1);
            let same =
                frame.columns().iter().all(|c| matches!((c.get(least), c.get(greatest)), (Ok(a), Ok(b)) if a == b));
            let values = |at| if *known { values_at(&frame, spec, at) } else { Ok(None) };
            out.push(match (values(least)?, values(greatest)?) {
                (Some(values), _) if same => Placed::In(values),
                (Some(least), Some(greatest)) => Placed::Between(least, greatest),
                _ => Placed::Anywhere,
            });
        }
        Ok(out)
    }

    /// A column of the contract, and where the file has it.
    fn found_of<'a>(&'a self, definition: &'a Definition, name: &str) -> Option<(&'a Column, &'a Found)> {
        definition.source.columns.iter().zip(&self.found).find(|(column, _)| column.name == name)
    }

    /// The least and the greatest value of a column of the file in each row group, one after the other. Groups without statistics,
    /// or with nulls, are struck from `known`.
    fn bounds(&self, name: &str, known: &mut [bool]) -> pl::PolarsResult<pl::Column> {
        let field = self.schema.get(name).ok_or_else(|| pl::PolarsError::ColumnNotFound(name.to_owned().into()))?;
        let data_type = pl::DataType::from_arrow_field(field);
        let mut values = pl::Series::new_empty(name.into(), &data_type);
        for (group, known) in self.metadata.row_groups.iter().zip(known) {
            let columns = group.columns_under_root_iter(name);
            let statistics = match columns {
                Some(mut columns) => deserialize(field, &mut columns, &self.metadata.footer_buf)
                    .map_err(|e| pl::PolarsError::ComputeError(e.to_string().into()))?,
                None => None,
            };
            let pair = match statistics {
                Some(ParquetStatistics::Column(column)) => {
                    let column =
                        column.into_arrow().map_err(|e| pl::PolarsError::ComputeError(e.to_string().into()))?;
                    column.null_count.filter(|nulls| *nulls == 0).and(column.min_value.zip(column.max_value))
                }
                _ => None,
            };
            match pair {
                Some((least, greatest)) => {
                    values.append(&pl::Series::from_arrow(name.into(), least)?.cast(&data_type)?)?;
                    values.append(&pl::Series::from_arrow(name.into(), greatest)?.cast(&data_type)?)?;
                }
                None => {
                    *known = false;
                    values.append(&pl::Series::full_null(name.into(), 2, &data_type))?;
                }
            }
        }
        Ok(values.into())
    }
}

/// The value columns, and for hours of the day the hours too: a group that spans days has its bounds in two of them.
fn period_values(definition: &Definition) -> Vec<pl::Expr> {
    let mut out = Vec::new();
    for (i, column) in definition.partition.columns().iter().enumerate() {
        let Some(contract) = definition.column(&column.source) else { continue };
        out.push(value_of(definition, column, &contract.data_type).alias(value_name(i)));
        if column.transform == Transform::HourOfDay {
            let wall = time::wall_clock(pl::col(column.source.as_str()), &contract.data_type, definition.timezone);
            out.push(time::period_of(wall, Transform::HourOf).alias(format!("\u{1}h{i}")));
        }
    }
    out
}
