//! SQL text becomes a typed expression, or is refused with what is allowed.

use super::call::{self, FUNCTIONS};
use super::literal::{literal, number};
use super::typing::{arithmetic, cast, compare, describe, is_null, negate, typed, unify};
use super::{Arithmetic, Comparison, Context, Expr, Literal, Node};
use crate::pipeline::{DataType, SOURCE_FILE, SOURCE_LINE};
use sqlparser::ast as sql;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

/// The longest expression.
const MAX_EXPRESSION_BYTES: usize = 8192;
/// How deep operators may nest, a chain of `and` included.
const MAX_DEPTH: usize = 200;

const ALLOWED: &str =
    "columns, constants, + - * / ||, comparisons, and, or, not, is null, in, between, like, case, cast";

/// Parses one SQL expression and nothing after it.
pub(super) fn parse(text: &str) -> Result<sql::Expr, String> {
    if text.len() > MAX_EXPRESSION_BYTES {
        return Err(format!("the expression has {} bytes, expected at most {MAX_EXPRESSION_BYTES}", text.len()));
    }
    let wrong = |error: sqlparser::parser::ParserError| {
        let message = error.to_string();
        let detail = message.split_once("error: ").map_or(message.as_str(), |(_, detail)| detail);
        format!("the SQL cannot be read: {detail}")
    };
    let dialect = PostgreSqlDialect {};
    let mut parser = Parser::new(&dialect).try_with_sql(text).map_err(wrong)?;
    let parsed = parser.parse_expr().map_err(wrong)?;
    match parser.next_token().token {
        Token::EOF => Ok(parsed),
        rest => Err(format!("expected one expression, found `{rest}` after it")),
    }
}

/// Checks expressions over the columns of a contract.
pub(super) struct Checker<'a> {
    pub(super) context: &'a Context<'a>,
    depth: usize,
}

impl<'a> Checker<'a> {
    pub(super) fn new(context: &'a Context<'a>) -> Self {
        Self { context, depth: 0 }
    }

    /// The typed form of a parsed expression.
    pub(super) fn check(&mut self, expr: &sql::Expr) -> Result<Expr, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("the expression nests deeper than {MAX_DEPTH} operators"));
        }
        let checked = self.check_node(expr);
        self.depth -= 1;
        checked
    }

    fn check_node(&mut self, expr: &sql::Expr) -> Result<Expr, String> {
        match expr {
            sql::Expr::Nested(inner) => self.check(inner),
            sql::Expr::Identifier(name) => self.column(&name.value),
            sql::Expr::Value(value) => constant(&value.value),
            sql::Expr::UnaryOp { op: sql::UnaryOperator::Minus, expr } => negate(self.check(expr)?),
            sql::Expr::UnaryOp { op: sql::UnaryOperator::Not, expr } => Ok(not(self.truth(expr, "not")?)),
            sql::Expr::BinaryOp { left, op, right } => self.binary(left, op, right),
            sql::Expr::IsNull(inner) => self.is_null(inner),
            sql::Expr::IsNotNull(inner) => Ok(not(self.is_null(inner)?)),
            sql::Expr::In { expr, target: sql::InTarget::List(list), negated, global: false } => {
                Ok(negate_if(*negated, self.in_list(expr, list)?))
            }
            sql::Expr::Between { expr, negated, low, high } => Ok(negate_if(*negated, self.between(expr, low, high)?)),
            sql::Expr::Like { negated, any: false, expr, pattern, escape_char: None } => {
                Ok(negate_if(*negated, self.like(expr, pattern)?))
            }
            sql::Expr::Case { operand, conditions, else_result, .. } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref())
            }
            sql::Expr::Cast {
                kind: sql::CastKind::Cast | sql::CastKind::DoubleColon,
                expr,
                data_type,
                format: None,
            } => self.cast(expr, data_type),
            other => match call::check(self, other) {
                Some(checked) => checked,
                None => Err(format!("`{other}` is not allowed, expected {ALLOWED} and the functions {FUNCTIONS}")),
            },
        }
    }

    fn column(&self, name: &str) -> Result<Expr, String> {
        let columns = self.context.columns;
        if let Some(column) = columns.iter().find(|column| column.name == name) {
            return Ok(typed(Node::Column(name.to_owned()), column.data_type.clone()));
        }
        match name {
            SOURCE_FILE => return Ok(typed(Node::Column(name.to_owned()), DataType::String)),
            SOURCE_LINE => return Ok(typed(Node::Column(name.to_owned()), DataType::Int(64))),
            _ => {}
        }
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        Err(match names.iter().find(|known| known.eq_ignore_ascii_case(name)) {
            Some(known) => format!("unknown column {name}, did you mean {known}? upper and lower case differ"),
            None => format!("unknown column {name}, expected one of source.columns: {}", names.join(", ")),
        })
    }

    fn binary(&mut self, left: &sql::Expr, op: &sql::BinaryOperator, right: &sql::Expr) -> Result<Expr, String> {
        use sql::BinaryOperator as Op;
        if let Some(comparison) = comparison(op) {
            let (left, right) = (self.check(left)?, self.check(right)?);
            return compare(comparison, left, right, self.context);
        }
        match op {
            Op::And | Op::Or => {
                let name = if *op == Op::And { "and" } else { "or" };
                let (left, right) = (Box::new(self.truth(left, name)?), Box::new(self.truth(right, name)?));
                let node = if *op == Op::And { Node::And(left, right) } else { Node::Or(left, right) };
                Ok(typed(node, DataType::Bool))
            }
            Op::Plus => arithmetic(Arithmetic::Add, self.check(left)?, self.check(right)?),
            Op::Minus => arithmetic(Arithmetic::Subtract, self.check(left)?, self.check(right)?),
            Op::Multiply => arithmetic(Arithmetic::Multiply, self.check(left)?, self.check(right)?),
            Op::Divide => arithmetic(Arithmetic::Divide, self.check(left)?, self.check(right)?),
            Op::StringConcat => call::concat(vec![self.check(left)?, self.check(right)?]),
            other => Err(format!("the operator {other} is not allowed, expected {ALLOWED}")),
        }
    }

    /// An expression that must be a bool.
    fn truth(&mut self, expr: &sql::Expr, of: &str) -> Result<Expr, String> {
        let checked = self.check(expr)?;
        if is_null(&checked) || checked.data_type != DataType::Bool {
            return Err(format!("{of} needs a bool, found {} in `{expr}`", describe(&checked)));
        }
        Ok(checked)
    }

    fn is_null(&mut self, inner: &sql::Expr) -> Result<Expr, String> {
        let inner = self.check(inner)?;
        if is_null(&inner) {
            return Err("null is null, expected a column or an expression".to_owned());
        }
        Ok(typed(Node::IsNull(Box::new(inner)), DataType::Bool))
    }

    fn in_list(&mut self, expr: &sql::Expr, list: &[sql::Expr]) -> Result<Expr, String> {
        let mut all = vec![self.check(expr)?];
        for item in list {
            let checked = self.check(item)?;
            if is_null(&checked) || !matches!(checked.node, Node::Literal(_)) {
                return Err(format!("in needs constants that are not null, found `{item}`"));
            }
            all.push(checked);
        }
        if is_null(&all[0]) {
            return Err("null in (…) is never true, expected a column or an expression".to_owned());
        }
        let mut all = unify(all, self.context)?.into_iter();
        let needle = all.next().ok_or("in needs a value")?;
        Ok(typed(Node::In(Box::new(needle), all.collect()), DataType::Bool))
    }

    fn between(&mut self, expr: &sql::Expr, low: &sql::Expr, high: &sql::Expr) -> Result<Expr, String> {
        let (value, low, high) = (self.check(expr)?, self.check(low)?, self.check(high)?);
        let from = compare(Comparison::GreaterOrEqual, value.clone(), low, self.context)?;
        let to = compare(Comparison::LessOrEqual, value, high, self.context)?;
        Ok(typed(Node::And(Box::new(from), Box::new(to)), DataType::Bool))
    }

    fn like(&mut self, expr: &sql::Expr, pattern: &sql::Expr) -> Result<Expr, String> {
        let value = self.check(expr)?;
        if is_null(&value) || value.data_type != DataType::String {
            return Err(format!("like needs a string, found {}", describe(&value)));
        }
        match self.check(pattern)?.node {
            Node::Literal(Literal::Text(pattern)) => Ok(typed(Node::Like(Box::new(value), pattern), DataType::Bool)),
            _ => Err(format!("like needs a constant pattern such as 'a%', found `{pattern}`")),
        }
    }

    fn case(
        &mut self,
        operand: Option<&sql::Expr>,
        conditions: &[sql::CaseWhen],
        otherwise: Option<&sql::Expr>,
    ) -> Result<Expr, String> {
        let operand = operand.map(|operand| self.check(operand)).transpose()?;
        let (mut whens, mut results) = (Vec::new(), Vec::new());
        for arm in conditions {
            whens.push(match &operand {
                Some(value) => compare(Comparison::Equal, value.clone(), self.check(&arm.condition)?, self.context)?,
                None => self.truth(&arm.condition, "when")?,
            });
            results.push(self.check(&arm.result)?);
        }
        results.extend(otherwise.map(|otherwise| self.check(otherwise)).transpose()?);
        let mut results = unify(results, self.context)?;
        let otherwise = if otherwise.is_some() { results.pop().map(Box::new) } else { None };
        let data_type = results.first().map(|first| first.data_type.clone()).ok_or("case needs a when")?;
        Ok(typed(Node::Case(whens.into_iter().zip(results).collect(), otherwise), data_type))
    }

    fn cast(&mut self, expr: &sql::Expr, to: &sql::DataType) -> Result<Expr, String> {
        let value = self.check(expr)?;
        let target = cast_target(to)
            .ok_or_else(|| format!("a cast to {to} is not allowed, expected date, float64 or decimal(p,s)"))?;
        let is_datetime = matches!(value.data_type, DataType::Datetime(_)) && !is_null(&value);
        if is_datetime && target == DataType::Date {
            return Ok(typed(Node::Cast(Box::new(value)), target));
        }
        let made = cast(&value, &target, self.context)?;
        made.ok_or_else(|| format!("a cast of {} to {target} could change values", describe(&value)))
    }
}

/// `not x`
fn not(expr: Expr) -> Expr {
    typed(Node::Not(Box::new(expr)), DataType::Bool)
}

fn negate_if(negated: bool, expr: Expr) -> Expr {
    if negated { not(expr) } else { expr }
}

fn comparison(op: &sql::BinaryOperator) -> Option<Comparison> {
    Some(match op {
        sql::BinaryOperator::Eq => Comparison::Equal,
        sql::BinaryOperator::NotEq => Comparison::NotEqual,
        sql::BinaryOperator::Lt => Comparison::Less,
        sql::BinaryOperator::LtEq => Comparison::LessOrEqual,
        sql::BinaryOperator::Gt => Comparison::Greater,
        sql::BinaryOperator::GtEq => Comparison::GreaterOrEqual,
        _ => return None,
    })
}

fn constant(value: &sql::Value) -> Result<Expr, String> {
    match value {
        sql::Value::Number(text, _) => number(text),
        sql::Value::SingleQuotedString(text) => Ok(literal(Literal::Text(text.clone()), DataType::String)),
        sql::Value::Boolean(value) => Ok(literal(Literal::Bool(*value), DataType::Bool)),
        // Its type is the one that its surroundings need.
        sql::Value::Null => Ok(literal(Literal::Null, DataType::Bool)),
        other => Err(format!("`{other}` is not allowed, expected a number, a 'text', true, false or null")),
    }
}

fn cast_target(to: &sql::DataType) -> Option<DataType> {
    match to {
        sql::DataType::Date => Some(DataType::Date),
        sql::DataType::Double(_) | sql::DataType::DoublePrecision | sql::DataType::Float64 => Some(DataType::Float64),
        sql::DataType::Decimal(sql::ExactNumberInfo::PrecisionAndScale(precision, scale))
        | sql::DataType::Numeric(sql::ExactNumberInfo::PrecisionAndScale(precision, scale)) => {
            let (precision, scale) = (u8::try_from(*precision).ok()?, u8::try_from(*scale).ok()?);
            let good = (1..=super::literal::MAX_DIGITS).contains(&precision) && scale <= precision;
            good.then_some(DataType::Decimal { precision, scale })
        }
        _ => None,
    }
}
