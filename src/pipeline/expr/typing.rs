//! The types of expressions: how exact numbers widen, and how operands are brought to one type.

use super::literal::{MAX_DIGITS, digits_of, exact_as, exact_type, literal, time};
use super::{Arithmetic, Comparison, Context, Expr, Function, Literal, Node};
use crate::pipeline::DataType;

/// An expression of that type.
pub(super) fn typed(node: Node, data_type: DataType) -> Expr {
    Expr { node, data_type }
}

/// What an expression is, for messages: its type, or null.
pub(super) fn describe(expr: &Expr) -> String {
    match expr.node {
        Node::Literal(Literal::Null) => "null".to_owned(),
        _ => expr.data_type.to_string(),
    }
}

/// Whether it is the constant null, whose type its surroundings give.
pub(super) fn is_null(expr: &Expr) -> bool {
    matches!(expr.node, Node::Literal(Literal::Null))
}

/// `a op b` over numbers.
pub(super) fn arithmetic(op: Arithmetic, a: Expr, b: Expr) -> Result<Expr, String> {
    let symbol = match op {
        Arithmetic::Add => "+",
        Arithmetic::Subtract => "-",
        Arithmetic::Multiply => "*",
        Arithmetic::Divide => "/",
    };
    for operand in [&a, &b] {
        if is_null(operand) || !is_number(&operand.data_type) {
            return Err(format!("{symbol} needs numbers, found {}", describe(operand)));
        }
    }
    let floats = a.data_type.is_float() || b.data_type.is_float() || op == Arithmetic::Divide;
    if floats {
        let node = Node::Arithmetic(op, Box::new(to_float(a)?), Box::new(to_float(b)?));
        return Ok(typed(node, DataType::Float64));
    }
    let (precision, scale) = combined(op, &a, &b).ok_or_else(|| format!("{symbol} needs numbers"))?;
    if precision > MAX_DIGITS {
        return Err(format!(
            "{} {symbol} {} needs {precision} digits, expected at most {MAX_DIGITS}",
            a.data_type, b.data_type
        ));
    }
    Ok(typed(Node::Arithmetic(op, Box::new(a), Box::new(b)), exact_type(precision, scale)))
}

/// `-x` or `abs(x)`: a type that also holds the negative of the least integer.
pub(super) fn mirrored(expr: &Expr) -> Option<DataType> {
    match expr.data_type {
        DataType::Float32 | DataType::Float64 | DataType::Decimal { .. } => Some(expr.data_type.clone()),
        _ => digits(expr).map(|(precision, scale)| exact_type(precision, scale)),
    }
}

/// `-x`
pub(super) fn negate(expr: Expr) -> Result<Expr, String> {
    match (&expr.node, mirrored(&expr)) {
        (Node::Literal(Literal::Exact(unscaled)), Some(_)) => Ok(literal(Literal::Exact(-unscaled), expr.data_type)),
        (Node::Literal(Literal::Float(value)), Some(_)) => Ok(literal(Literal::Float(-value), expr.data_type)),
        (Node::Literal(Literal::Null), _) | (_, None) => Err(format!("- needs a number, found {}", describe(&expr))),
        (_, Some(data_type)) => Ok(typed(Node::Negate(Box::new(expr)), data_type)),
    }
}

/// `a op b`, a truth.
pub(super) fn compare(op: Comparison, a: Expr, b: Expr, context: &Context<'_>) -> Result<Expr, String> {
    if is_null(&a) || is_null(&b) {
        return Err("a comparison with null is never true, expected `is null` or `is not null`".to_owned());
    }
    let (a, b) = match (digits(&a), digits(&b)) {
        (Some((pa, sa)), Some((pb, sb))) if (pa - sa).max(pb - sb) + sa.max(sb) > MAX_DIGITS => {
            return Err(together(&a.data_type, &b.data_type));
        }
        (Some(_), Some(_)) => (a, b),
        _ => pair(a, b, context)?,
    };
    Ok(typed(Node::Compare(op, Box::new(a), Box::new(b)), DataType::Bool))
}

/// Brings two expressions to one type.
pub(super) fn pair(a: Expr, b: Expr, context: &Context<'_>) -> Result<(Expr, Expr), String> {
    let mut both = unify(vec![a, b], context)?.into_iter();
    both.next().zip(both.next()).ok_or_else(|| "expected two operands".to_owned())
}

/// Brings expressions to one type: that of the ones that are no constants where the constants fit it, else a common
/// wider one.
pub(super) fn unify(exprs: Vec<Expr>, context: &Context<'_>) -> Result<Vec<Expr>, String> {
    let is_literal = |expr: &&Expr| matches!(expr.node, Node::Literal(_));
    let fixed = common(exprs.iter().filter(|expr| !is_literal(expr)))?;
    if let Some(target) = fixed {
        let made = exprs.iter().map(|expr| cast(expr, &target, context)).collect::<Result<Option<Vec<_>>, _>>()?;
        if let Some(made) = made {
            return Ok(made);
        }
    }
    let target = common(exprs.iter().filter(|expr| !is_null(expr)))?;
    let target = target.ok_or("there are only nulls, expected a value that says which type they have")?;
    let made = exprs.iter().map(|expr| cast(expr, &target, context)).collect::<Result<Option<Vec<_>>, _>>()?;
    made.ok_or_else(|| format!("expected values of one type, {target}"))
}

/// The expression as that type, where no value is lost.
pub(super) fn cast(expr: &Expr, target: &DataType, context: &Context<'_>) -> Result<Option<Expr>, String> {
    Ok(match &expr.node {
        Node::Literal(Literal::Null) => Some(literal(Literal::Null, target.clone())),
        _ if expr.data_type == *target => Some(expr.clone()),
        Node::Literal(Literal::Text(text)) if matches!(target, DataType::Date | DataType::Datetime(_)) => {
            Some(time(text, target, context)?)
        }
        Node::Literal(Literal::Exact(unscaled)) => {
            expr.data_type.digits().and_then(|(_, scale)| exact_as(*unscaled, scale, target))
        }
        _ if *target == DataType::Float64 && is_number(&expr.data_type) => Some(to_float(expr.clone())?),
        _ if common_exact(&expr.data_type, target).as_ref() == Some(target) => {
            Some(typed(Node::Cast(Box::new(expr.clone())), target.clone()))
        }
        _ => None,
    })
}

fn to_float(expr: Expr) -> Result<Expr, String> {
    match (&expr.node, &expr.data_type) {
        (_, DataType::Float64) => Ok(expr),
        (Node::Literal(Literal::Exact(unscaled)), data_type) => {
            let scale = data_type.digits().map_or(0, |(_, scale)| scale);
            exact_as(*unscaled, scale, &DataType::Float64).ok_or_else(|| "expected a number".to_owned())
        }
        _ => Ok(typed(Node::Cast(Box::new(expr)), DataType::Float64)),
    }
}

fn is_number(data_type: &DataType) -> bool {
    data_type.is_exact() || data_type.is_float()
}

/// Digits in all and after the point that hold every value of an exact expression: of constants and arithmetic what
/// they need, else what the type has.
fn digits(expr: &Expr) -> Option<(u8, u8)> {
    match &expr.node {
        Node::Literal(Literal::Exact(unscaled)) => {
            let (_, scale) = expr.data_type.digits()?;
            Some((digits_of(*unscaled).max(scale), scale))
        }
        Node::Arithmetic(op, a, b) if expr.data_type.is_exact() => combined(*op, a, b),
        Node::Negate(inner) => digits(inner),
        Node::Call(Function::Abs, arguments) => digits(arguments.first()?),
        _ => expr.data_type.digits(),
    }
}

fn combined(op: Arithmetic, a: &Expr, b: &Expr) -> Option<(u8, u8)> {
    let ((pa, sa), (pb, sb)) = (digits(a)?, digits(b)?);
    let scale = sa.max(sb);
    match op {
        Arithmetic::Add | Arithmetic::Subtract => Some(((pa - sa).max(pb - sb) + scale + 1, scale)),
        Arithmetic::Multiply => Some((pa + pb, sa + sb)),
        Arithmetic::Divide => None,
    }
}

/// The common type of these expressions; none where there is none of them.
fn common<'a>(exprs: impl Iterator<Item = &'a Expr>) -> Result<Option<DataType>, String> {
    let mut found: Option<DataType> = None;
    for expr in exprs {
        let next = &expr.data_type;
        found = Some(match found {
            None => next.clone(),
            Some(so_far) if so_far == *next => so_far,
            Some(so_far) => common_of(&so_far, next)?,
        });
    }
    Ok(found)
}

fn common_of(a: &DataType, b: &DataType) -> Result<DataType, String> {
    if let Some(exact) = common_exact(a, b) {
        return Ok(exact);
    }
    if a.is_exact() && b.is_exact() {
        return Err(together(a, b));
    }
    if is_number(a) && is_number(b) {
        return Ok(DataType::Float64);
    }
    let hint = match (a, b) {
        (DataType::Date, DataType::Datetime(_)) | (DataType::Datetime(_), DataType::Date) => {
            "; cast(… as date) makes a date of a datetime"
        }
        _ => "",
    };
    Err(format!("{a} and {b} have no common type{hint}"))
}

fn together(a: &DataType, b: &DataType) -> String {
    format!("{a} and {b} together need more than {MAX_DIGITS} digits")
}

fn common_exact(a: &DataType, b: &DataType) -> Option<DataType> {
    let fits_int64 = |t: &DataType| matches!(t, DataType::Int(_) | DataType::UInt(8 | 16 | 32));
    if fits_int64(a) && fits_int64(b) {
        return Some(DataType::Int(64));
    }
    let ((pa, sa), (pb, sb)) = (a.digits()?, b.digits()?);
    let scale = sa.max(sb);
    let precision = (pa - sa).max(pb - sb) + scale;
    (precision <= MAX_DIGITS).then_some(DataType::Decimal { precision, scale })
}
