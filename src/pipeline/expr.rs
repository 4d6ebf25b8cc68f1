//! Expressions: SQL text, parsed and typed when the pipeline is loaded, over a closed list of functions that depend on
//! their arguments alone.
//!
//! Numbers other than floats are exact: an integer counts as a decimal without digits after the point, `+`, `-` and `*`
//! widen as far as their result needs, and an expression whose result would need more than 38 digits is refused when
//! the pipeline is loaded. So nothing overflows while rows are read.

mod aggregate;
mod call;
mod check;
mod literal;
#[cfg(test)]
mod tests;
mod typing;

pub(super) use aggregate::aggregate;

use super::{Column, DataType};

/// What expressions are over.
pub(super) struct Context<'a> {
    /// The contract.
    pub(super) columns: &'a [Column],
    /// Where times without an offset are, when compared with zoned columns.
    pub(super) timezone: chrono_tz::Tz,
}

/// Parses and checks an expression.
pub(super) fn expression(text: &str, context: &Context<'_>) -> Result<Expr, String> {
    let checked = check::Checker::new(context).check(&check::parse(text)?)?;
    if typing::is_null(&checked) {
        return Err("null has no type here, expected a column or an expression".to_owned());
    }
    Ok(checked)
}

/// Parses and checks a condition.
pub(super) fn condition(text: &str, context: &Context<'_>) -> Result<Expr, String> {
    let checked = expression(text, context)?;
    match checked.data_type {
        DataType::Bool => Ok(checked),
        other => Err(format!("expected a condition, found an expression of type {other}")),
    }
}

/// A typed expression.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    /// What is computed.
    pub node: Node,
    /// Its type.
    pub data_type: DataType,
}

impl Expr {
    /// Whether a column of that name occurs in it.
    pub fn uses(&self, name: &str) -> bool {
        match &self.node {
            Node::Column(column) => column == name,
            Node::Literal(_) => false,
            Node::Arithmetic(_, a, b) | Node::Compare(_, a, b) | Node::And(a, b) | Node::Or(a, b) => {
                a.uses(name) || b.uses(name)
            }
            Node::Negate(x)
            | Node::Not(x)
            | Node::IsNull(x)
            | Node::Like(x, _)
            | Node::Cast(x)
            | Node::Truncate(x, _) => x.uses(name),
            Node::In(x, list) => x.uses(name) || list.iter().any(|item| item.uses(name)),
            Node::Case(arms, otherwise) => {
                arms.iter().any(|(when, then)| when.uses(name) || then.uses(name))
                    || otherwise.as_ref().is_some_and(|otherwise| otherwise.uses(name))
            }
            Node::Call(_, arguments) => arguments.iter().any(|argument| argument.uses(name)),
        }
    }
}

/// What an expression computes. The operands' types were checked.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// A column of the contract, or else [`super::SOURCE_FILE`] or [`super::SOURCE_LINE`].
    Column(String),
    /// A constant of the expression's type.
    Literal(Literal),
    /// `+`, `-`, `*` over two exact numbers (exact result) or two floats; `/` gives float64. Mixed operands were
    /// wrapped in [`Node::Cast`] to float64.
    Arithmetic(Arithmetic, Box<Expr>, Box<Expr>),
    /// `-x`
    Negate(Box<Expr>),
    /// Two values of one type, or two exact numbers of any digits (compared exactly, whatever their scales; 38
    /// digits hold both).
    Compare(Comparison, Box<Expr>, Box<Expr>),
    /// Three-valued, as SQL.
    And(Box<Expr>, Box<Expr>),
    /// Three-valued, as SQL.
    Or(Box<Expr>, Box<Expr>),
    /// `not x`
    Not(Box<Expr>),
    /// `x is null`
    IsNull(Box<Expr>),
    /// `x in (a, b, …)` over literals of x's type.
    In(Box<Expr>, Vec<Expr>),
    /// `x like 'pattern'`: `%` any text, `_` one character; no escape.
    Like(Box<Expr>, String),
    /// `case when … then … else … end`; without `else`, null.
    Case(Vec<(Expr, Expr)>, Option<Box<Expr>>),
    /// A function of the closed list.
    Call(Function, Vec<Expr>),
    /// To the expression's type: from float32 or an exact number to float64, to a wider exact type, from datetime to
    /// date (zoned times in the pipeline's time zone).
    Cast(Box<Expr>),
    /// `{ truncate = "column", to = "hour" }`: the start of the period, of the same type (a date stays a date). Zoned
    /// times are cut in the pipeline's time zone.
    Truncate(Box<Expr>, Unit),
}

/// A constant.
#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    /// `null`
    Null,
    /// `true`, `false`
    Bool(bool),
    /// An exact number, `unscaled / 10^scale`, the scale being that of the expression's type.
    Exact(i128),
    /// A double.
    Float(f64),
    /// A text.
    Text(String),
    /// Days since 1970-01-01.
    Date(i32),
    /// Microseconds since 1970-01-01T00:00:00: wall-clock, or UTC for a zoned type.
    Datetime(i64),
}

/// Arithmetic operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arithmetic {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
}

/// Comparison operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `<>`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

/// The closed list of functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// `abs(x)`
    Abs,
    /// `round(x, n)` over exact numbers, half away from zero; the type keeps n digits after the point.
    Round,
    /// `floor(x)` over exact numbers.
    Floor,
    /// `ceil(x)` over exact numbers.
    Ceil,
    /// `lower(s)`
    Lower,
    /// `upper(s)`
    Upper,
    /// `trim(s)`: blanks on both sides.
    Trim,
    /// `length(s)`: characters, int64.
    Length,
    /// `substr(s, from [, count])`: from 1, in characters; `from` and `count` are literals.
    Substr,
    /// `concat(a, b, …)` and `a || b`: null if one of them is.
    Concat,
    /// `starts_with(s, prefix)`; the prefix is a literal.
    StartsWith,
    /// `ends_with(s, suffix)`; the suffix is a literal.
    EndsWith,
    /// `replace(s, from, to)`; both are literals.
    Replace,
    /// `coalesce(a, b, …)`
    Coalesce,
    /// `nullif(a, b)`
    NullIf,
    /// `extract(year from t)`, `year(t)`: int32. This and the next take zoned times in the pipeline's time zone.
    Year,
    /// `month(t)`: int8 in 1..12.
    Month,
    /// `day(t)`: int8 in 1..31.
    Day,
    /// `hour(t)`: int8 in 0..23.
    Hour,
    /// `minute(t)`: int8 in 0..59.
    Minute,
    /// `second(t)`: int8 in 0..59.
    Second,
    /// `dayofweek(t)`: int8, Monday 1 to Sunday 7.
    DayOfWeek,
}

/// Units of [`Node::Truncate`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Years.
    Year,
    /// Months.
    Month,
    /// Weeks, from Monday.
    Week,
    /// Days.
    Day,
    /// Hours.
    Hour,
    /// Minutes.
    Minute,
}
