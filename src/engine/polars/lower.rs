//! Typed expressions to Polars expressions.
//!
//! Exact numbers are integers here: a decimal is its unscaled integer, of 64 bits where 18 digits suffice, else of 128.
//! The types carry digits enough for every result, so no operation overflows.

use super::exact::{self, digits_type, power_of_ten};
use super::time;
use crate::pipeline::expr::{Arithmetic, Comparison, Node, Unit};
use crate::pipeline::{DataType, Definition, Expr, Function, Literal};
use ::polars::prelude as pl;
use ::polars::prelude::{NamedFrom, lit};

/// The type that a value has inside the engine.
pub(super) fn inner_type(data_type: &DataType) -> pl::DataType {
    match data_type {
        DataType::Bool => pl::DataType::Boolean,
        DataType::Int(8) => pl::DataType::Int8,
        DataType::Int(16) => pl::DataType::Int16,
        DataType::Int(32) => pl::DataType::Int32,
        DataType::Int(_) => pl::DataType::Int64,
        DataType::UInt(8) => pl::DataType::UInt8,
        DataType::UInt(16) => pl::DataType::UInt16,
        DataType::UInt(32) => pl::DataType::UInt32,
        DataType::UInt(_) => pl::DataType::UInt64,
        DataType::Float32 => pl::DataType::Float32,
        DataType::Float64 => pl::DataType::Float64,
        DataType::Decimal { precision, .. } => digits_type(*precision),
        DataType::String => pl::DataType::String,
        DataType::Date => pl::DataType::Date,
        DataType::Datetime(tz) => pl::DataType::Datetime(pl::TimeUnit::Microseconds, tz.map(time::zone)),
    }
}

/// The type that a value has in the partition's file.
pub(super) fn file_type(data_type: &DataType) -> pl::DataType {
    match data_type {
        DataType::Decimal { precision, scale } => pl::DataType::Decimal(usize::from(*precision), usize::from(*scale)),
        other => inner_type(other),
    }
}

/// Lowers an expression of `definition` over columns that have their [`inner_type`].
pub(super) fn lower(definition: &Definition, expr: &Expr) -> pl::Expr {
    Lowering { definition }.expr(expr)
}

struct Lowering<'a> {
    definition: &'a Definition,
}

impl Lowering<'_> {
    fn expr(&self, expr: &Expr) -> pl::Expr {
        match &expr.node {
            Node::Column(name) => pl::col(name.as_str()),
            Node::Literal(literal) => literal_of(literal, &expr.data_type),
            Node::Arithmetic(operator, a, b) => self.arithmetic(*operator, a, b, &expr.data_type),
            Node::Negate(x) if x.data_type.is_float() => lit(0.0) - self.expr(x),
            Node::Negate(x) => {
                let negative = self.exact(x, digits(&expr.data_type)).map(exact::negate, keep_type);
                negative.cast(inner_type(&expr.data_type))
            }
            Node::Compare(operator, a, b) => self.compare(*operator, a, b),
            Node::And(a, b) => self.expr(a).and(self.expr(b)),
            Node::Or(a, b) => self.expr(a).or(self.expr(b)),
            Node::Not(x) => self.expr(x).not(),
            Node::IsNull(x) => self.expr(x).is_null(),
            Node::In(x, list) => self.is_in(x, list),
            Node::Like(x, pattern) => self.expr(x).str().contains(lit(like_regex(pattern)), true),
            Node::Case(branches, otherwise) => self.case(branches, otherwise.as_deref(), &expr.data_type),
            Node::Call(function, args) => self.call(*function, args, &expr.data_type),
            Node::Cast(x) => self.cast(x, &expr.data_type),
            Node::Truncate(x, unit) => self.truncate(x, *unit),
        }
    }

    /// An exact number brought to these digits, in the integer type for them.
    fn exact(&self, expr: &Expr, (precision, scale): (u8, u8)) -> pl::Expr {
        let (_, from) = digits(&expr.data_type);
        let value = self.expr(expr).cast(digits_type(precision));
        match scale.saturating_sub(from) {
            0 => value,
            up => value * exact_literal(power_of_ten(up), &digits_type(precision)),
        }
    }

    fn arithmetic(&self, operator: Arithmetic, a: &Expr, b: &Expr, to: &DataType) -> pl::Expr {
        let result = match to {
            DataType::Float32 | DataType::Float64 => (self.expr(a), self.expr(b)),
            _ => {
                let (precision, scale) = digits(to);
                match operator {
                    Arithmetic::Multiply => (
                        self.exact(a, (precision, digits(&a.data_type).1)),
                        self.exact(b, (precision, digits(&b.data_type).1)),
                    ),
                    _ => (self.exact(a, (precision, scale)), self.exact(b, (precision, scale))),
                }
            }
        };
        let value = match operator {
            Arithmetic::Add => result.0 + result.1,
            Arithmetic::Subtract => result.0 - result.1,
            Arithmetic::Multiply => result.0 * result.1,
            Arithmetic::Divide => result.0.map_many(exact::quotients, &[result.1], |_, fields| {
                let name = fields.first().map(|field| field.name().clone()).unwrap_or_default();
                Ok(pl::Field::new(name, pl::DataType::Float64))
            }),
        };
        value.cast(inner_type(to))
    }

    fn compare(&self, operator: Comparison, a: &Expr, b: &Expr) -> pl::Expr {
        let (a, b) = self.common(a, b);
        match operator {
            Comparison::Equal => a.eq(b),
            Comparison::NotEqual => a.neq(b),
            Comparison::Less => a.lt(b),
            Comparison::LessOrEqual => a.lt_eq(b),
            Comparison::Greater => a.gt(b),
            Comparison::GreaterOrEqual => a.gt_eq(b),
        }
    }

    /// Both sides in one type. Exact numbers get the digits that hold both.
    fn common(&self, a: &Expr, b: &Expr) -> (pl::Expr, pl::Expr) {
        if a.data_type == b.data_type || !a.data_type.is_exact() || !b.data_type.is_exact() {
            return (self.expr(a), self.expr(b));
        }
        let ((pa, sa), (pb, sb)) = (digits(&a.data_type), digits(&b.data_type));
        let scale = sa.max(sb);
        let precision = ((pa - sa).max(pb - sb) + scale).min(38);
        (self.exact(a, (precision, scale)), self.exact(b, (precision, scale)))
    }

    fn is_in(&self, x: &Expr, list: &[Expr]) -> pl::Expr {
        let equal = |item: &Expr| self.compare(Comparison::Equal, x, item);
        balanced(list.iter().map(equal).collect(), pl::Expr::or).unwrap_or_else(|| lit(false))
    }

    fn case(&self, branches: &[(Expr, Expr)], otherwise: Option<&Expr>, to: &DataType) -> pl::Expr {
        let last = match otherwise {
            Some(expr) => self.cast(expr, to),
            None => null(to),
        };
        branches
            .iter()
            .rev()
            .fold(last, |rest, (when, then)| pl::when(self.expr(when)).then(self.cast(then, to)).otherwise(rest))
    }

    /// To another type that holds every value of this one.
    fn cast(&self, x: &Expr, to: &DataType) -> pl::Expr {
        match to {
            _ if x.data_type == *to => self.expr(x),
            DataType::Float32 | DataType::Float64 if x.data_type.is_exact() => {
                let (_, scale) = digits(&x.data_type);
                self.expr(x)
                    .map(
                        move |c| exact::to_float(c, scale),
                        |_, f| Ok(pl::Field::new(f.name().clone(), pl::DataType::Float64)),
                    )
                    .cast(inner_type(to))
            }
            to if to.is_exact() && x.data_type.is_exact() => self.exact(x, digits(to)).cast(inner_type(to)),
            DataType::Date => self.wall(x).cast(inner_type(to)),
            to => self.expr(x).cast(inner_type(to)),
        }
    }

    fn call(&self, function: Function, args: &[Expr], to: &DataType) -> pl::Expr {
        let Some(first) = args.first() else { return null(to) };
        let x = || self.expr(first);
        match function {
            Function::Abs if first.data_type.is_float() => {
                pl::when(x().lt(lit(0.0))).then(lit(0.0) - x()).otherwise(x())
            }
            Function::Abs => self.exact(first, digits(to)).map(exact::absolute, keep_type).cast(inner_type(to)),
            Function::Round => self.round(first, to, exact::Rounding::HalfAwayFromZero),
            Function::Floor => self.round(first, to, exact::Rounding::Down),
            Function::Ceil => self.round(first, to, exact::Rounding::Up),
            Function::Lower => x().str().to_lowercase(),
            Function::Upper => x().str().to_uppercase(),
            Function::Trim => x().str().strip_chars(lit(" ")),
            Function::Length => x().str().len_chars().cast(inner_type(to)),
            Function::Substr => self.substr(first, args),
            Function::Concat => {
                let parts: Vec<pl::Expr> = args.iter().map(|a| self.expr(a)).collect();
                pl::concat_str(parts, "", false)
            }
            Function::StartsWith => x().str().starts_with(self.argument(args, 1)),
            Function::EndsWith => x().str().ends_with(self.argument(args, 1)),
            Function::Replace => x().str().replace_all(self.argument(args, 1), self.argument(args, 2), true),
            Function::Coalesce => args.iter().rev().fold(null(to), |rest, arg| {
                let value = self.cast(arg, to);
                pl::when(value.clone().is_not_null()).then(value).otherwise(rest)
            }),
            Function::NullIf => match args.get(1) {
                Some(second) => {
                    let equal = self.compare(Comparison::Equal, first, second);
                    pl::when(equal).then(null(to)).otherwise(self.cast(first, to))
                }
                None => x(),
            },
            Function::Year => self.wall(first).dt().year().cast(inner_type(to)),
            Function::Month => self.wall(first).dt().month().cast(inner_type(to)),
            Function::Day => self.wall(first).dt().day().cast(inner_type(to)),
            Function::Hour => self.wall(first).dt().hour().cast(inner_type(to)),
            Function::Minute => self.wall(first).dt().minute().cast(inner_type(to)),
            Function::Second => self.wall(first).dt().second().cast(inner_type(to)),
            Function::DayOfWeek => self.wall(first).dt().weekday().cast(inner_type(to)),
        }
    }

    fn argument(&self, args: &[Expr], at: usize) -> pl::Expr {
        args.get(at).map_or_else(|| null(&DataType::String), |a| self.expr(a))
    }

    fn round(&self, x: &Expr, to: &DataType, rounding: exact::Rounding) -> pl::Expr {
        let ((_, from), (_, scale)) = (digits(&x.data_type), digits(to));
        let wide = self.expr(x).cast(pl::DataType::Int128);
        wide.map(move |c| exact::rescale(&c, from, scale, rounding), keep_type).cast(inner_type(to))
    }

    /// `from` counts from 1; what lies before the text is cut off, as SQL does.
    fn substr(&self, text: &Expr, args: &[Expr]) -> pl::Expr {
        let number = |at: usize| match args.get(at).map(|a| &a.node) {
            Some(Node::Literal(Literal::Exact(n))) => i64::try_from(*n).ok(),
            _ => None,
        };
        let from = number(1).unwrap_or(1);
        let start = from.saturating_sub(1).max(0);
        let length = match number(2) {
            Some(count) => {
                lit(from.saturating_add(count.max(0)).saturating_sub(1).saturating_sub(start).max(0).cast_unsigned())
            }
            None => lit(u64::MAX),
        };
        self.expr(text).str().slice(lit(start), length)
    }

    /// The wall-clock time in which a value is cut: zoned times in the pipeline's zone, naive ones as they are.
    fn wall(&self, x: &Expr) -> pl::Expr {
        time::wall_clock(self.expr(x), &x.data_type, self.definition.timezone)
    }

    fn truncate(&self, x: &Expr, unit: Unit) -> pl::Expr {
        let to = inner_type(&x.data_type);
        match &x.data_type {
            DataType::Datetime(Some(_)) => time::truncate_zoned(self.expr(x), self.definition.timezone, unit, to),
            _ => time::truncate_wall(self.expr(x), unit, to),
        }
    }
}

/// The start of the type's field stays as it is.
pub(super) fn keep_type(_: &pl::Schema, field: &pl::Field) -> pl::PolarsResult<pl::Field> {
    Ok(field.clone())
}

/// Folds by halves, so that a long list makes no deep expression.
pub(super) fn balanced(mut parts: Vec<pl::Expr>, join: fn(pl::Expr, pl::Expr) -> pl::Expr) -> Option<pl::Expr> {
    while parts.len() > 1 {
        let mut pairs = parts.into_iter();
        let mut next = Vec::new();
        while let Some(a) = pairs.next() {
            next.push(match pairs.next() {
                Some(b) => join(a, b),
                None => a,
            });
        }
        parts = next;
    }
    parts.pop()
}

fn digits(data_type: &DataType) -> (u8, u8) {
    data_type.digits().unwrap_or((38, 0))
}

fn null(data_type: &DataType) -> pl::Expr {
    lit(pl::Null {}).cast(inner_type(data_type))
}

fn exact_literal(value: i128, to: &pl::DataType) -> pl::Expr {
    lit(pl::Scalar::new(pl::DataType::Int128, pl::AnyValue::Int128(value))).cast(to.clone())
}

/// A literal in its inner type.
pub(super) fn literal_of(literal: &Literal, data_type: &DataType) -> pl::Expr {
    match literal {
        Literal::Null => null(data_type),
        Literal::Bool(x) => lit(*x),
        Literal::Exact(x) => exact_literal(*x, &inner_type(data_type)),
        Literal::Float(x) => lit(*x).cast(inner_type(data_type)),
        Literal::Text(x) => lit(x.as_str()),
        Literal::Date(days) => typed(pl::Series::new("".into(), [*days]), data_type),
        Literal::Datetime(micros) => typed(pl::Series::new("".into(), [*micros]), data_type),
    }
}

/// A physical value as a literal of its logical type; the cast of a literal's integers to a time type keeps them.
fn typed(physical: pl::Series, data_type: &DataType) -> pl::Expr {
    match physical.cast(&inner_type(data_type)).and_then(|s| s.get(0).map(pl::AnyValue::into_static)) {
        Ok(value) => lit(pl::Scalar::new(inner_type(data_type), value)),
        Err(_) => null(data_type),
    }
}

/// The regular expression of a LIKE pattern.
fn like_regex(pattern: &str) -> String {
    let mut out = String::from("(?s)^");
    for c in pattern.chars() {
        match c {
            '%' => out.push_str(".*"),
            '_' => out.push('.'),
            // Only what has a meaning: an escaped < or > would be the edge of a word.
            '\\' | '.' | '+' | '*' | '?' | '(' | ')' | '|' | '[' | ']' | '{' | '}' | '^' | '$' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out.push('$');
    out
}
