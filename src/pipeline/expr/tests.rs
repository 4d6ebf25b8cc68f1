#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use super::*;
use crate::pipeline::Aggregate;
use std::fmt::Write;

fn columns() -> Vec<Column> {
    let of = |name: &str, data_type| Column::new(name, data_type, false);
    vec![
        of("i8", DataType::Int(8)),
        of("i32", DataType::Int(32)),
        of("i64", DataType::Int(64)),
        of("u64", DataType::UInt(64)),
        of("d", DataType::Decimal { precision: 18, scale: 2 }),
        of("wide", DataType::Decimal { precision: 38, scale: 4 }),
        of("f", DataType::Float64),
        of("f32", DataType::Float32),
        of("s", DataType::String),
        of("b", DataType::Bool),
        of("day", DataType::Date),
        of("at", DataType::Datetime(None)),
        of("zoned", DataType::Datetime(Some(chrono_tz::UTC))),
        of("Mixed Case", DataType::Int(32)),
    ]
}

fn berlin<T>(check: impl FnOnce(&Context<'_>) -> T) -> T {
    check(&Context { columns: &columns(), timezone: chrono_tz::Europe::Berlin })
}

fn checked(text: &str) -> Result<Expr, String> {
    berlin(|context| expression(text, context))
}

/// The expression's shape, short: `(op a b):type` with casts and constants shown.
fn shape(expr: &Expr) -> String {
    let all = |exprs: &[Expr]| exprs.iter().map(|e| format!(" {}", shape(e))).collect::<String>();
    match &expr.node {
        Node::Column(name) => name.clone(),
        Node::Literal(value) => format!("{value:?}:{}", expr.data_type),
        Node::Arithmetic(op, a, b) => format!("({op:?} {} {}):{}", shape(a), shape(b), expr.data_type),
        Node::Negate(a) => format!("(Negate {}):{}", shape(a), expr.data_type),
        Node::Compare(op, a, b) => format!("({op:?} {} {})", shape(a), shape(b)),
        Node::And(a, b) => format!("(And {} {})", shape(a), shape(b)),
        Node::Or(a, b) => format!("(Or {} {})", shape(a), shape(b)),
        Node::Not(a) => format!("(Not {})", shape(a)),
        Node::IsNull(a) => format!("(IsNull {})", shape(a)),
        Node::In(a, list) => format!("(In {}{})", shape(a), all(list)),
        Node::Like(a, pattern) => format!("(Like {} {pattern})", shape(a)),
        Node::Case(arms, otherwise) => {
            let mut out = "(Case".to_owned();
            for (when, then) in arms {
                write!(out, " {} -> {}", shape(when), shape(then)).unwrap();
            }
            if let Some(otherwise) = otherwise {
                write!(out, " else {}", shape(otherwise)).unwrap();
            }
            format!("{out}):{}", expr.data_type)
        }
        Node::Call(function, arguments) => format!("({function:?}{}):{}", all(arguments), expr.data_type),
        Node::Cast(a) => format!("(Cast {}):{}", shape(a), expr.data_type),
        Node::Truncate(a, unit) => format!("(Truncate {} {unit:?})", shape(a)),
    }
}

#[track_caller]
fn becomes(text: &str, expected: &str) {
    assert_eq!(checked(text).map(|expr| shape(&expr)).as_deref(), Ok(expected), "{text}");
}

#[track_caller]
fn refused(text: &str, reason: &str) {
    let error = checked(text).expect_err(text);
    assert!(error.contains(reason), "{text}: {error}");
}

#[test]
fn constants_are_exact_unless_they_have_an_exponent() {
    becomes("5", "Exact(5):int64");
    becomes("1.50", "Exact(150):decimal(3,2)");
    becomes("0.05", "Exact(5):decimal(2,2)");
    becomes("1_000", "Exact(1000):int64");
    becomes("-7", "Exact(-7):int64");
    becomes("1e3", "Float(1000.0):float64");
    becomes("-1e3", "Float(-1000.0):float64");
    becomes("9223372036854775807", "Exact(9223372036854775807):decimal(19,0)");
    refused(&"9".repeat(39), "more than 38 digits");
    refused("1e999", "does not fit a float64");
    becomes("'it''s'", "Text(\"it's\"):string");
    refused("null", "null has no type here");
}

#[test]
fn exact_arithmetic_widens_as_far_as_its_result_needs() {
    becomes("i32 + 1", "(Add i32 Exact(1):int64):int64");
    becomes("i64 + 1", "(Add i64 Exact(1):int64):decimal(20,0)");
    becomes("u64 - 1", "(Subtract u64 Exact(1):int64):decimal(21,0)");
    becomes("d * 1.5", "(Multiply d Exact(15):decimal(2,1)):decimal(20,3)");
    becomes("d + i32", "(Add d i32):decimal(19,2)");
    becomes("i32 * 2 * 3", "(Multiply (Multiply i32 Exact(2):int64):int64 Exact(3):int64):int64");
    becomes("-i64", "(Negate i64):decimal(19,0)");
    becomes("-i32", "(Negate i32):int64");
    becomes("-d", "(Negate d):decimal(18,2)");
    refused("wide * wide", "decimal(38,4) * decimal(38,4) needs 76 digits, expected at most 38");
    refused("wide + 1", "needs 39 digits");
}

#[test]
fn floats_make_floats_and_division_always_does() {
    becomes("f + i32", "(Add f (Cast i32):float64):float64");
    becomes("f32 * 2", "(Multiply (Cast f32):float64 Float(2.0):float64):float64");
    becomes("d / 3", "(Divide (Cast d):float64 Float(3.0):float64):float64");
    becomes("f > 0.5", "(Greater f Float(0.5):float64)");
    becomes("f32 > 0.5", "(Greater (Cast f32):float64 Float(0.5):float64)");
    refused("s + 1", "+ needs numbers, found string");
    refused("at - null", "- needs numbers, found datetime");
    refused("i32 % 2", "the operator % is not allowed");
    refused("-s", "- needs a number, found string");
}

#[test]
fn comparisons_take_one_type_or_two_exact_numbers() {
    becomes("i32 = d", "(Equal i32 d)");
    becomes("s <> 'x'", "(NotEqual s Text(\"x\"):string)");
    becomes("wide < 5", "(Less wide Exact(5):int64)");
    refused("wide = 1.123456", "decimal(38,4) and decimal(7,6) together need more than 38 digits");
    refused("cast(d as decimal(38,20)) < i64", "together need more than 38 digits");
    refused("s = 5", "string and int64 have no common type");
    refused("i32 = 'x'", "int32 and string have no common type");
    refused("null = i32", "a comparison with null is never true");
    refused("i32 = null", "a comparison with null is never true");
    refused("day < at", "cast(… as date) makes a date of a datetime");
    refused("at < zoned", "datetime and datetime(UTC) have no common type");
    becomes("cast(at as date) = day", "(Equal (Cast at):date day)");
    becomes("at::date = '1970-01-02'", "(Equal (Cast at):date Date(1):date)");
}

#[test]
fn texts_beside_times_are_times() {
    becomes("at >= '1970-01-01'", "(GreaterOrEqual at Datetime(0):datetime)");
    becomes("'1970-01-01 00:01' > at", "(Greater Datetime(60000000):datetime at)");
    becomes("at > '1970-01-01T00:00:01.5'", "(Greater at Datetime(1500000):datetime)");
    becomes("day in ('1970-01-03')", "(In day Date(2):date)");
    becomes("zoned = '1970-01-01'", "(Equal zoned Datetime(-3600000000):datetime(UTC))");
    becomes("zoned = '1970-01-01 00:00Z'", "(Equal zoned Datetime(0):datetime(UTC))");
    becomes("zoned = '1970-01-01 02:00:00+02:00'", "(Equal zoned Datetime(0):datetime(UTC))");
    refused("at = '1970-01-01 00:00Z'", "expected none: the column is wall-clock time");
    refused("zoned = '2024-10-27 02:30'", "happens twice in Europe/Berlin");
    refused("zoned = '2024-03-31 02:30'", "does not happen in Europe/Berlin");
    for wrong in [
        "2024-02-30",
        "2024-1-1",
        "2024-01-01 24:00",
        "2024-01-01 1:00",
        "2024-01-01 00:00:00.",
        "2024- 1- 1",
        "2024-01-01  1:00",
        "2024-01-01 23:59:60",
        "+2024-1-01",
        "2024-01-01 00:00:00.1234567",
        "",
        "now",
    ] {
        refused(&format!("at = '{wrong}'"), "is no time, expected");
    }
    refused("day = '1970-01-01 00:00'", "is no date, expected 'YYYY-MM-DD'");
}

#[test]
fn truths_are_bools() {
    becomes("not b or b and true", "(Or (Not b) (And b Bool(true):bool))");
    becomes("i32 is not null", "(Not (IsNull i32))");
    becomes("i32 between 1 and 2.5", {
        "(And (GreaterOrEqual i32 Exact(1):int64) (LessOrEqual i32 Exact(25):decimal(2,1)))"
    });
    becomes("s not like 'a_%'", "(Not (Like s a_%))");
    refused("i32 and b", "and needs a bool, found int32 in `i32`");
    refused("not null", "not needs a bool, found null");
    refused("s like s", "like needs a constant pattern");
    refused("s like 'a' escape 'b'", "is not allowed");
    refused("s ilike 'a'", "is not allowed");
    assert!(berlin(|context| condition("i32", context)).unwrap_err().contains("found an expression of type int32"));
}

#[test]
fn branches_and_lists_are_brought_to_one_type() {
    becomes("i8 in (1, 2)", "(In i8 Exact(1):int8 Exact(2):int8)");
    becomes("i8 in (-128)", "(In i8 Exact(-128):int8)");
    becomes("i8 in (128)", "(In (Cast i8):int64 Exact(128):int64)");
    becomes("i8 not in (1, 300)", "(Not (In (Cast i8):int64 Exact(1):int64 Exact(300):int64))");
    becomes("d in (1, 2.505)", "(In (Cast d):decimal(22,3) Exact(1000):decimal(22,3) Exact(2505):decimal(22,3))");
    becomes("coalesce(i8, 0)", "(Coalesce i8 Exact(0):int8):int8");
    becomes("coalesce(null, i8, i32)", "(Coalesce Null:int64 (Cast i8):int64 (Cast i32):int64):int64");
    becomes("coalesce(u64, i32)", "(Coalesce (Cast u64):decimal(20,0) (Cast i32):decimal(20,0)):decimal(20,0)");
    becomes("nullif(f, 0)", "(NullIf f Float(0.0):float64):float64");
    becomes("case when b then i32 else d end", "(Case b -> (Cast i32):decimal(18,2) else d):decimal(18,2)");
    becomes("case s when 'x' then 1 end", "(Case (Equal s Text(\"x\"):string) -> Exact(1):int64):int64");
    becomes("case when b then '1970-01-01' else day end", "(Case b -> Date(0):date else day):date");
    refused("case when b then null else null end", "there are only nulls");
    refused("case when b then 1 else s end", "int64 and string have no common type");
    refused("i32 in (1, null)", "in needs constants that are not null");
    refused("i32 in (i64)", "in needs constants that are not null");
    refused("coalesce(wide, cast(d as decimal(38,20)))", "together need more than 38 digits");
}

#[test]
fn functions_are_a_closed_list() {
    for (text, expected) in [
        ("abs(i64)", "(Abs i64):decimal(19,0)"),
        ("abs(u64)", "(Abs u64):uint64"),
        ("round(d, 1)", "(Round d Exact(1):int64):decimal(18,1)"),
        ("round(d)", "(Round d Exact(0):int64):decimal(17,0)"),
        ("round(d, 2)", "d"),
        ("floor(d)", "(Floor d):decimal(17,0)"),
        ("ceil(i32)", "i32"),
        ("length(trim(s))", "(Length (Trim s):string):int64"),
        ("substr(s, 1, 2)", "(Substr s Exact(1):int64 Exact(2):int64):string"),
        ("s || 'x'", "(Concat s Text(\"x\"):string):string"),
        ("starts_with(lower(s), 'a')", "(StartsWith (Lower s):string Text(\"a\"):string):bool"),
        ("replace(s, 'a', '')", "(Replace s Text(\"a\"):string Text(\"\"):string):string"),
        ("extract(year from day)", "(Year day):int32"),
        ("hour(at)", "(Hour at):int8"),
        ("dayofweek(day)", "(DayOfWeek day):int8"),
    ] {
        becomes(text, expected);
    }
    for (text, reason) in [
        ("now()", "the function now is not allowed, expected one of abs, round"),
        ("random()", "the function random is not allowed"),
        ("current_timestamp", "not allowed"),
        ("hour(day)", "hour needs a datetime, found date"),
        ("round(f)", "round needs an integer or a decimal, found float64"),
        ("round(d, i32)", "round needs a constant whole number from 0"),
        ("substr(s, 0)", "substr needs a constant whole number from 1"),
        ("starts_with(s, s)", "needs a constant 'text'"),
        ("replace(s, '', 'x')", "found ''"),
        ("lower(s, s)", "lower has 2 arguments, expected 1"),
        ("lower(i32)", "lower needs a string, found int32"),
        ("sum(i32)", "the aggregate sum cannot stand inside an expression"),
        ("trim(leading 'x' from s)", "is not allowed"),
        ("extract(week from at)", "extract cannot take WEEK"),
        ("abs(i32) over ()", "expected a plain call"),
        ("cast(s as date)", "a cast of string to date could change values"),
        ("cast(d as decimal(10,2))", "could change values"),
        ("cast(i32 as text)", "a cast to TEXT is not allowed"),
        ("(select 1)", "is not allowed"),
        ("date '2024-01-01'", "is not allowed"),
    ] {
        refused(text, reason);
    }
}

#[test]
fn columns_are_those_of_the_contract_by_exact_name() {
    becomes("\"Mixed Case\"", "Mixed Case");
    refused("I32", "unknown column I32, did you mean i32?");
    refused("nope", "unknown column nope, expected one of source.columns: i8, i32");
    refused("t.i32", "is not allowed");
    refused("i32 i64", "expected one expression, found `i64` after it");
    refused("i32; drop table x", "found `;` after it");
    refused("i32 +", "the SQL cannot be read");
}

#[test]
fn what_nests_too_deep_is_refused_and_not_run_into() {
    refused(&format!("b{}", " or b".repeat(300)), "nests deeper than 200");
    refused(&format!("{}b", "not ".repeat(1000)), "");
    refused(&"(".repeat(8000), "");
    refused(&format!("b{}", " or b".repeat(2000)), "bytes, expected at most 8192");
    assert!(checked(&format!("b{}", " or b".repeat(150))).is_ok());
}

#[test]
fn a_measure_is_one_aggregate() {
    let of = |text: &str| berlin(|context| aggregate(text, context));
    let types = |text: &str| of(text).map(|(_, data_type)| data_type.to_string());
    for (text, data_type) in [
        ("count(*)", "int64"),
        ("COUNT(DISTINCT s)", "int64"),
        ("sum(i8)", "int64"),
        ("sum(u64)", "uint64"),
        ("sum(d)", "decimal(28,2)"),
        ("sum(wide)", "decimal(38,4)"),
        ("sum(d * 2)", "decimal(29,2)"),
        ("avg(d)", "float64"),
        ("min(f)", "float64"),
        ("max(at)", "datetime"),
    ] {
        assert_eq!(types(text).as_deref(), Ok(data_type), "{text}");
    }
    assert!(matches!(of("count(distinct s)"), Ok((Aggregate::CountDistinct(_), _))));
    assert!(matches!(of("count(s)"), Ok((Aggregate::Count(_), _))));
    for (text, reason) in [
        ("d", "a measure is one aggregate, found a column; expected e.g. sum(i8)"),
        ("sum(d) / 2", "a measure is one aggregate, found an expression"),
        ("lower(s)", "found the function lower, which is none of count, sum, min, max, avg"),
        ("sum(f)", "sum of float64 depends on the order of the rows in its last digits: declare decimal(p,s)"),
        ("avg(f32)", "declare decimal(p,s)"),
        ("sum(s)", "sum needs integers or decimals, found string"),
        ("sum(distinct d)", "distinct is not allowed in sum"),
        ("count(distinct f)", "count(distinct …) of float64 is not allowed"),
        ("count(distinct *)", "count needs one argument"),
        ("sum(*)", "sum needs one argument"),
        ("sum(d, d)", "sum needs one argument"),
        ("sum(max(d))", "the aggregate max cannot stand inside an expression"),
        ("sum(d) over ()", "expected a plain call"),
        ("sum(d) filter (where b)", "expected a plain call"),
        ("count(null)", "count of null is nothing"),
    ] {
        let error = of(text).expect_err(text);
        assert!(error.contains(reason), "{text}: {error}");
    }
}
