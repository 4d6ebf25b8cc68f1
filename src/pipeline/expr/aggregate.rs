//! Measures: one aggregate call each.

use super::call::arguments;
use super::check::{Checker, parse};
use super::typing::{describe, is_null};
use super::{Context, Expr};
use crate::pipeline::{Aggregate, DataType};
use sqlparser::ast as sql;

/// The names of the aggregates.
pub(super) const AGGREGATES: [&str; 5] = ["count", "sum", "min", "max", "avg"];

/// Parses and checks a measure.
pub(in crate::pipeline) fn aggregate(text: &str, context: &Context<'_>) -> Result<(Aggregate, DataType), String> {
    let parsed = parse(text)?;
    let example = context.columns.iter().find(|column| column.data_type.is_exact());
    let example = example.map_or_else(|| "count(*)".to_owned(), |column| format!("sum({})", column.name));
    let no_aggregate = |found: &str| Err(format!("a measure is one aggregate, found {found}; expected e.g. {example}"));
    let function = match &parsed {
        sql::Expr::Function(function) => function,
        sql::Expr::Identifier(_) => return no_aggregate("a column"),
        sql::Expr::Value(_) => return no_aggregate("a constant"),
        _ => return no_aggregate("an expression"),
    };
    let name = function.name.to_string().to_ascii_lowercase();
    if !AGGREGATES.contains(&name.as_str()) {
        return no_aggregate(&format!("the function {name}, which is none of {}", AGGREGATES.join(", ")));
    }
    let distinct = match &function.args {
        sql::FunctionArguments::List(list) => list.duplicate_treatment == Some(sql::DuplicateTreatment::Distinct),
        _ => false,
    };
    if distinct && name != "count" {
        return Err(format!("distinct is not allowed in {name}, expected it in count(distinct x) only"));
    }
    let argument = match arguments(function)?.as_slice() {
        [sql::FunctionArgExpr::Wildcard] if name == "count" && !distinct => {
            return Ok((Aggregate::CountRows, DataType::Int(64)));
        }
        [sql::FunctionArgExpr::Expr(argument)] => Checker::new(context).check(argument)?,
        _ => return Err(format!("{name} needs one argument, e.g. {example}")),
    };
    of(&name, distinct, argument)
}

fn of(name: &str, distinct: bool, argument: Expr) -> Result<(Aggregate, DataType), String> {
    if is_null(&argument) {
        return Err(format!("{name} of null is nothing, expected a column or an expression"));
    }
    let data_type = argument.data_type.clone();
    let exact = || match (data_type.is_exact(), data_type.is_float()) {
        (true, _) => Ok(()),
        (_, true) => Err(format!(
            "{name} of {data_type} depends on the order of the rows in its last digits: declare decimal(p,s) for the column"
        )),
        _ => Err(format!("{name} needs integers or decimals, found {}", describe(&argument))),
    };
    Ok(match name {
        "count" if distinct && data_type.is_float() => {
            return Err(format!(
                "count(distinct …) of {data_type} is not allowed: declare decimal(p,s) for the column"
            ));
        }
        "count" if distinct => (Aggregate::CountDistinct(argument), DataType::Int(64)),
        "count" => (Aggregate::Count(argument), DataType::Int(64)),
        "min" => (Aggregate::Min(argument), data_type),
        "max" => (Aggregate::Max(argument), data_type),
        "avg" => {
            exact()?;
            (Aggregate::Avg(argument), DataType::Float64)
        }
        _ => {
            exact()?;
            let sum = sum_type(&data_type);
            (Aggregate::Sum(argument), sum)
        }
    })
}

fn sum_type(of: &DataType) -> DataType {
    match of {
        DataType::UInt(_) => DataType::UInt(64),
        DataType::Decimal { precision, scale } => {
            DataType::Decimal { precision: super::literal::MAX_DIGITS.min(precision + 10), scale: *scale }
        }
        _ => DataType::Int(64),
    }
}
