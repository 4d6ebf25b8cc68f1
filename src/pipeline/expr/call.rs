//! The closed list of functions: they depend on their arguments alone.

use super::aggregate::AGGREGATES;
use super::check::Checker;
use super::literal::literal;
use super::typing::{describe, is_null, mirrored, pair, typed, unify};
use super::{Expr, Function, Literal, Node};
use crate::pipeline::DataType;
use sqlparser::ast as sql;

/// The names of the functions, for messages.
pub(super) const FUNCTIONS: &str = "abs, round, floor, ceil, lower, upper, trim, length, substr, concat, starts_with, \
     ends_with, replace, coalesce, nullif, extract, year, month, day, hour, minute, second, dayofweek";

/// The typed form of a call, in whichever form SQL writes it; none where it is no call.
pub(super) fn check(checker: &mut Checker<'_>, expr: &sql::Expr) -> Option<Result<Expr, String>> {
    let plain =
        |field: &sql::CeilFloorKind| matches!(field, sql::CeilFloorKind::DateTimeField(sql::DateTimeField::NoDateTime));
    Some(match expr {
        sql::Expr::Function(function) => named(checker, function),
        sql::Expr::Floor { expr, field } if plain(field) => whole(checker.check(expr), Function::Floor),
        sql::Expr::Ceil { expr, field } if plain(field) => whole(checker.check(expr), Function::Ceil),
        sql::Expr::Trim { trim_where: None, trim_what: None, expr, trim_characters: None } => {
            checker.check(expr).and_then(|text| text_to_text("trim", Function::Trim, vec![text]))
        }
        sql::Expr::Substring { expr, substring_from: Some(from), substring_for, .. } => {
            let mut arguments = vec![expr.as_ref(), from.as_ref()];
            arguments.extend(substring_for.as_deref());
            all(checker, &arguments).and_then(substr)
        }
        sql::Expr::Extract { field, expr, .. } => match part(&field.to_string().to_ascii_lowercase()) {
            Some(function) => checker.check(expr).and_then(|time| time_part(function, vec![time])),
            None => Err(format!(
                "extract cannot take {field}, expected year, month, day, hour, minute, second or dayofweek"
            )),
        },
        _ => return None,
    })
}

/// The plain arguments of a call, or why it is more than a call.
pub(super) fn arguments(function: &sql::Function) -> Result<Vec<&sql::FunctionArgExpr>, String> {
    let sql::FunctionArguments::List(list) = &function.args else {
        return Err(format!("`{function}` is not allowed, expected arguments in parentheses"));
    };
    let plain = function.filter.is_none()
        && function.over.is_none()
        && function.null_treatment.is_none()
        && function.within_group.is_empty()
        && matches!(function.parameters, sql::FunctionArguments::None)
        && list.clauses.is_empty()
        && !function.uses_odbc_syntax;
    let unnamed = list.args.iter().map(|argument| match argument {
        sql::FunctionArg::Unnamed(value) => Some(value),
        _ => None,
    });
    let unnamed: Option<Vec<_>> = unnamed.collect();
    unnamed
        .filter(|_| plain)
        .ok_or_else(|| format!("`{function}` is not allowed, expected a plain call without over, filter or order by"))
}

/// `a || b`, `concat(a, b, …)`
pub(super) fn concat(arguments: Vec<Expr>) -> Result<Expr, String> {
    text_to_text("concat", Function::Concat, arguments)
}

fn all(checker: &mut Checker<'_>, exprs: &[&sql::Expr]) -> Result<Vec<Expr>, String> {
    exprs.iter().map(|expr| checker.check(expr)).collect()
}

fn named(checker: &mut Checker<'_>, function: &sql::Function) -> Result<Expr, String> {
    let name = function.name.to_string().to_ascii_lowercase();
    if AGGREGATES.contains(&name.as_str()) {
        return Err(format!("the aggregate {name} cannot stand inside an expression"));
    }
    let unknown = || format!("the function {name} is not allowed, expected one of {FUNCTIONS}");
    if !FUNCTIONS.split(", ").any(|known| known == name) {
        return Err(unknown());
    }
    let mut exprs = Vec::new();
    for argument in arguments(function)? {
        match argument {
            sql::FunctionArgExpr::Expr(expr) => exprs.push(checker.check(expr)?),
            other => return Err(format!("{name} cannot take `{other}`, expected an expression")),
        }
    }
    if let sql::FunctionArguments::List(sql::FunctionArgumentList { duplicate_treatment: Some(_), .. }) = function.args
    {
        return Err(format!("distinct is not allowed in {name}"));
    }
    if let Some(part) = part(&name) {
        return time_part(part, exprs);
    }
    match name.as_str() {
        "abs" => abs(exprs),
        "round" => round(exprs),
        "lower" => text_to_text("lower", Function::Lower, exprs),
        "upper" => text_to_text("upper", Function::Upper, exprs),
        "length" => Ok(Expr { data_type: DataType::Int(64), ..text_to_text("length", Function::Length, exprs)? }),
        "concat" => concat(exprs),
        "starts_with" => affix("starts_with", Function::StartsWith, exprs),
        "ends_with" => affix("ends_with", Function::EndsWith, exprs),
        "replace" => replace(exprs),
        "coalesce" => {
            expect_count("coalesce", &exprs, 2..=usize::MAX)?;
            let exprs = unify(exprs, checker.context)?;
            let data_type = exprs.first().map(|first| first.data_type.clone()).ok_or_else(unknown)?;
            Ok(typed(Node::Call(Function::Coalesce, exprs), data_type))
        }
        "nullif" => {
            let [a, b]: [Expr; 2] = exprs.try_into().map_err(|_| "nullif needs 2 arguments".to_owned())?;
            if is_null(&a) || is_null(&b) {
                return Err("nullif with null changes nothing, expected two values".to_owned());
            }
            let (a, b) = pair(a, b, checker.context)?;
            let data_type = a.data_type.clone();
            Ok(typed(Node::Call(Function::NullIf, vec![a, b]), data_type))
        }
        _ => Err(unknown()),
    }
}

fn part(name: &str) -> Option<Function> {
    Some(match name {
        "year" => Function::Year,
        "month" => Function::Month,
        "day" => Function::Day,
        "hour" => Function::Hour,
        "minute" => Function::Minute,
        "second" => Function::Second,
        "dayofweek" => Function::DayOfWeek,
        _ => return None,
    })
}

fn time_part(function: Function, exprs: Vec<Expr>) -> Result<Expr, String> {
    let of_day = matches!(function, Function::Hour | Function::Minute | Function::Second);
    let (name, expected) =
        (format!("{function:?}").to_lowercase(), if of_day { "a datetime" } else { "a date or datetime" });
    expect_count(&name, &exprs, 1..=1)?;
    let fits = |expr: &Expr| match expr.data_type {
        DataType::Date => !of_day,
        DataType::Datetime(_) => true,
        _ => false,
    };
    if let Some(wrong) = exprs.iter().find(|expr| !fits(expr)) {
        return Err(format!("{name} needs {expected}, found {}", describe(wrong)));
    }
    let data_type = if function == Function::Year { DataType::Int(32) } else { DataType::Int(8) };
    Ok(typed(Node::Call(function, exprs), data_type))
}

fn abs(exprs: Vec<Expr>) -> Result<Expr, String> {
    expect_count("abs", &exprs, 1..=1)?;
    let data_type = exprs.first().filter(|expr| !is_null(expr)).and_then(|expr| match expr.data_type {
        DataType::UInt(_) => Some(expr.data_type.clone()),
        _ => mirrored(expr),
    });
    let found = exprs.iter().map(describe).collect::<String>();
    let data_type = data_type.ok_or_else(|| format!("abs needs a number, found {found}"))?;
    Ok(typed(Node::Call(Function::Abs, exprs), data_type))
}

fn round(exprs: Vec<Expr>) -> Result<Expr, String> {
    expect_count("round", &exprs, 1..=2)?;
    let mut exprs = exprs.into_iter();
    let value = exprs.next().ok_or("round needs a number")?;
    let keep = match exprs.next() {
        None => 0,
        Some(keep) => constant_count("round", &keep, 0)?,
    };
    let (precision, scale) = exact("round", &value)?;
    match u8::try_from(keep) {
        Ok(keep) if keep < scale => {
            let data_type = DataType::Decimal { precision: precision - scale + keep + 1, scale: keep };
            let keep = literal(Literal::Exact(i128::from(keep)), DataType::Int(64));
            Ok(typed(Node::Call(Function::Round, vec![value, keep]), data_type))
        }
        // It has no more digits than are kept.
        _ => Ok(value),
    }
}

/// `floor(x)`, `ceil(x)`
fn whole(value: Result<Expr, String>, function: Function) -> Result<Expr, String> {
    let value = value?;
    match exact(if function == Function::Floor { "floor" } else { "ceil" }, &value)? {
        (_, 0) => Ok(value),
        (precision, scale) => {
            let data_type = DataType::Decimal { precision: precision - scale + 1, scale: 0 };
            Ok(typed(Node::Call(function, vec![value]), data_type))
        }
    }
}

fn exact(name: &str, value: &Expr) -> Result<(u8, u8), String> {
    let digits = value.data_type.digits().filter(|_| !is_null(value));
    digits.ok_or_else(|| format!("{name} needs an integer or a decimal, found {}", describe(value)))
}

fn text_to_text(name: &str, function: Function, exprs: Vec<Expr>) -> Result<Expr, String> {
    expect_count(name, &exprs, if function == Function::Concat { 2..=usize::MAX } else { 1..=1 })?;
    exprs.iter().try_for_each(|expr| expect_text(name, expr))?;
    Ok(typed(Node::Call(function, exprs), DataType::String))
}

fn substr(exprs: Vec<Expr>) -> Result<Expr, String> {
    for (place, expr) in exprs.iter().enumerate() {
        match place {
            0 => expect_text("substr", expr)?,
            from_or_count => {
                constant_count("substr", expr, i64::from(from_or_count == 1))?;
            }
        }
    }
    Ok(typed(Node::Call(Function::Substr, exprs), DataType::String))
}

fn affix(name: &str, function: Function, exprs: Vec<Expr>) -> Result<Expr, String> {
    expect_count(name, &exprs, 2..=2)?;
    exprs.iter().try_for_each(|expr| expect_text(name, expr))?;
    exprs.iter().skip(1).try_for_each(|expr| expect_constant(name, expr))?;
    Ok(typed(Node::Call(function, exprs), DataType::Bool))
}

fn replace(exprs: Vec<Expr>) -> Result<Expr, String> {
    expect_count("replace", &exprs, 3..=3)?;
    exprs.iter().try_for_each(|expr| expect_text("replace", expr))?;
    exprs.iter().skip(1).try_for_each(|expr| expect_constant("replace", expr))?;
    if matches!(exprs.get(1).map(|expr| &expr.node), Some(Node::Literal(Literal::Text(text))) if text.is_empty()) {
        return Err("replace needs a text to look for, found ''".to_owned());
    }
    Ok(typed(Node::Call(Function::Replace, exprs), DataType::String))
}

fn expect_count(name: &str, exprs: &[Expr], expected: std::ops::RangeInclusive<usize>) -> Result<(), String> {
    if expected.contains(&exprs.len()) {
        return Ok(());
    }
    let expected = match (*expected.start(), *expected.end()) {
        (least, usize::MAX) => format!("at least {least}"),
        (least, most) if least == most => least.to_string(),
        (least, most) => format!("{least} to {most}"),
    };
    Err(format!("{name} has {} arguments, expected {expected}", exprs.len()))
}

fn expect_text(name: &str, expr: &Expr) -> Result<(), String> {
    if is_null(expr) || expr.data_type != DataType::String {
        return Err(format!("{name} needs a string, found {}", describe(expr)));
    }
    Ok(())
}

fn expect_constant(name: &str, expr: &Expr) -> Result<(), String> {
    match expr.node {
        Node::Literal(Literal::Text(_)) => Ok(()),
        _ => Err(format!("{name} needs a constant 'text' after the first argument")),
    }
}

fn constant_count(name: &str, expr: &Expr, least: i64) -> Result<i64, String> {
    let count = match (&expr.node, &expr.data_type) {
        (Node::Literal(Literal::Exact(count)), DataType::Int(_)) => i64::try_from(*count).ok(),
        _ => None,
    };
    count.filter(|count| *count >= least).ok_or_else(|| format!("{name} needs a constant whole number from {least}"))
}
