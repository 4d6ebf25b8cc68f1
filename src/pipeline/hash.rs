//! The digest of a definition: everything that can change the content of the table or how a run goes, the description
//! left out. Comments, spacing and the order of keys that does not matter make no difference.

use super::expr::{Expr, Literal, Node};
use super::{
    Aggregate, Column, CsvLayout, Definition, Format, Origin, Output, OutputFormat, QuarantineRule, RowTable,
    SourcePath,
};
use crate::partition::PartitionSpec;
use crate::run::{DefinitionHash, ForeignFiles, RetryRule, hex};
use sha2::{Digest, Sha256};

/// Raised whenever the form below changes, so that no old digest stands for something new.
const VERSION: &str = "refrain definition 1";

/// Fields, each with its length before it, so that no two definitions give the same bytes.
struct Form(Sha256);

/// The digest, in hex; the definition's own `hash` and `text` are not looked at.
pub(super) fn of(definition: &Definition) -> DefinitionHash {
    let mut form = Form(Sha256::new());
    form.text(VERSION);
    form.text(&definition.name);
    form.text(definition.timezone.name());
    form.number(definition.max_rejected.to_bits());
    source(&mut form, definition);
    partition(&mut form, &definition.partition);
    form.count(definition.dimensions.len());
    for dimension in &definition.dimensions {
        form.text(&dimension.name);
        expression(&mut form, &dimension.expr);
    }
    form.count(definition.measures.len());
    for measure in &definition.measures {
        form.text(&measure.name);
        aggregate(&mut form, &measure.aggregate);
    }
    form.count(usize::from(definition.filter.is_some()));
    definition.filter.iter().for_each(|filter| expression(&mut form, filter));
    let retry = &definition.retry;
    [retry.source, retry.service, retry.compute].iter().for_each(|rule| retry_rule(&mut form, rule));
    if let Some(seconds) = definition.limits.timeout_seconds {
        // Named, and only where it is said: a definition without it keeps its digest.
        form.text("limits.timeout_seconds");
        form.number(u64::from(seconds));
    }
    if definition.foreign_files != ForeignFiles::default() {
        form.text("table.foreign_files");
        form.text(definition.foreign_files.as_str());
    }
    output(&mut form, &definition.output);
    definition.rows.iter().for_each(|table| rows(&mut form, table));
    let (kept, usual) = (&definition.quarantine, QuarantineRule::default());
    if kept.rows != usual.rows {
        names(
            &mut form,
            "quarantine.rows",
            &kept.rows.iter().map(|reason| reason.rows().to_owned()).collect::<Vec<_>>(),
        );
    }
    if kept.max_rows != usual.max_rows {
        form.text("quarantine.max_rows");
        form.number(u64::from(kept.max_rows));
    }
    let mut columns: Vec<_> = definition.source.columns.iter().collect();
    columns.sort_unstable_by_key(|column| &column.name);
    columns.iter().for_each(|column| extras(&mut form, column));
    let digest = form.0.finalize();
    DefinitionHash(hex(&digest))
}

impl Form {
    fn text(&mut self, text: &str) {
        self.count(text.len());
        self.0.update(text.as_bytes());
    }

    fn count(&mut self, count: usize) {
        self.number(count as u64);
    }

    fn number(&mut self, number: u64) {
        self.0.update(number.to_be_bytes());
    }
}

fn rows(form: &mut Form, table: &RowTable) {
    form.text("columns");
    form.count(table.columns.len());
    for column in &table.columns {
        form.text(&column.name);
        expression(form, &column.expr);
    }
    names(form, "sort_by", &table.sort_by);
    if let Some(dedupe) = &table.dedupe {
        names(form, "dedupe.key", &dedupe.key);
        form.text(dedupe.keep.as_str());
        names(form, "dedupe.order_by", &dedupe.order_by);
    }
    if let Some(merge) = &table.merge {
        form.text("write");
        form.text("merge");
        names(form, "key", &merge.key);
        form.text(merge.on_conflict.as_str());
    }
}

/// What is not as it is where the pipeline says nothing.
fn output(form: &mut Form, output: &Output) {
    if output.format != OutputFormat::default() {
        form.text("table.format");
        form.text(output.format.as_str());
        form.text(output.format.compression());
        if let OutputFormat::Parquet { row_group_rows, .. } = output.format {
            form.number(u64::from(row_group_rows));
        }
    }
    if output.manifest {
        form.text("table.manifest");
    }
}

fn names(form: &mut Form, place: &str, names: &[String]) {
    form.text(place);
    form.count(names.len());
    names.iter().for_each(|name| form.text(name));
}

fn source(form: &mut Form, definition: &Definition) {
    match &definition.source.format {
        Format::Parquet => form.text("parquet"),
        Format::Csv(layout) => csv(form, layout),
        Format::Ndjson => form.text("ndjson"),
    }
    let mut paths: Vec<(&str, &str)> = definition.source.paths.iter().map(path).collect();
    paths.sort_unstable();
    form.count(paths.len());
    for (kind, text) in paths {
        form.text(kind);
        form.text(text);
    }
    form.number(u64::from(definition.source.neighbours));
    let mut columns: Vec<_> = definition.source.columns.iter().collect();
    columns.sort_unstable_by_key(|column| &column.name);
    form.count(columns.len());
    for column in columns {
        form.text(&column.name);
        form.text(&column.data_type.to_string());
        form.count(usize::from(column.not_null));
    }
}

fn csv(form: &mut Form, layout: &CsvLayout) {
    form.text("csv");
    form.count(usize::from(layout.header));
    form.number(u64::from(layout.delimiter));
    form.text(&layout.quote.map(|quote| quote.to_string()).unwrap_or_default());
    let mut nulls: Vec<&String> = layout.nulls.iter().collect();
    nulls.sort_unstable();
    nulls.dedup();
    form.count(nulls.len());
    nulls.iter().for_each(|null| form.text(null));
    form.count(usize::from(layout.empty_tail));
    if !layout.quoted_nulls {
        form.text("quoted_nulls");
    }
}

/// What a column says beyond its name and type, each named, and only where it is said.
fn extras(form: &mut Form, column: &Column) {
    let place = |form: &mut Form, key: &str| form.text(&format!("source.columns.{}.{key}", column.name));
    match &column.origin {
        Origin::Names(names) if *names == [column.name.as_str()] => {}
        Origin::Names(names) => {
            place(form, "from");
            form.count(names.len());
            names.iter().for_each(|name| form.text(name));
        }
        Origin::Position(position) => {
            place(form, "position");
            form.count(*position);
        }
        Origin::Folder(key) => {
            place(form, "folder");
            form.text(key);
        }
    }
    if let Some(format) = &column.format {
        place(form, "format");
        form.text(format);
    }
    if let Some(default) = &column.default {
        place(form, "default");
        literal(form, default);
    }
}

fn path(path: &SourcePath) -> (&str, &str) {
    match path {
        SourcePath::Plain(text) => ("plain", text),
        SourcePath::Glob(text) => ("glob", text),
        SourcePath::Template(template) => ("template", &template.text),
    }
}

fn partition(form: &mut Form, spec: &PartitionSpec) {
    form.count(spec.columns().len());
    for column in spec.columns() {
        form.text(&column.name);
        form.text(column.transform.as_str());
        form.text(&column.source);
    }
}

fn retry_rule(form: &mut Form, rule: &RetryRule) {
    form.number(u64::from(rule.attempts));
    form.text(&rule.delay_seconds.map(|seconds| seconds.to_string()).unwrap_or_default());
    form.number(u64::from(rule.max_delay_seconds));
}

fn aggregate(form: &mut Form, aggregate: &Aggregate) {
    let (name, argument) = match aggregate {
        Aggregate::CountRows => ("count(*)", None),
        Aggregate::Count(argument) => ("count", Some(argument)),
        Aggregate::CountDistinct(argument) => ("count distinct", Some(argument)),
        Aggregate::Sum(argument) => ("sum", Some(argument)),
        Aggregate::Min(argument) => ("min", Some(argument)),
        Aggregate::Max(argument) => ("max", Some(argument)),
        Aggregate::Avg(argument) => ("avg", Some(argument)),
    };
    form.text(name);
    argument.into_iter().for_each(|argument| expression(form, argument));
}

fn expression(form: &mut Form, expr: &Expr) {
    form.text(&expr.data_type.to_string());
    match &expr.node {
        Node::Column(name) => {
            form.text("column");
            form.text(name);
        }
        Node::Literal(value) => literal(form, value),
        Node::Arithmetic(op, a, b) => operator(form, &format!("{op:?}"), &[a, b]),
        Node::Negate(a) => operator(form, "negate", &[a]),
        Node::Compare(op, a, b) => operator(form, &format!("{op:?}"), &[a, b]),
        Node::And(a, b) => operator(form, "and", &[a, b]),
        Node::Or(a, b) => operator(form, "or", &[a, b]),
        Node::Not(a) => operator(form, "not", &[a]),
        Node::IsNull(a) => operator(form, "is null", &[a]),
        Node::In(a, list) => operator(form, "in", &std::iter::once(a.as_ref()).chain(list).collect::<Vec<_>>()),
        Node::Like(a, pattern) => {
            operator(form, "like", &[a]);
            form.text(pattern);
        }
        Node::Case(arms, otherwise) => {
            let arms = arms.iter().flat_map(|(when, then)| [when, then]);
            operator(form, "case", &arms.chain(otherwise.as_deref()).collect::<Vec<_>>());
        }
        Node::Call(function, arguments) => {
            operator(form, &format!("call {function:?}"), &arguments.iter().collect::<Vec<_>>());
        }
        Node::Cast(a) => operator(form, "cast", &[a]),
        Node::Truncate(a, unit) => operator(form, &format!("truncate {unit:?}"), &[a]),
    }
}

fn operator(form: &mut Form, name: &str, operands: &[&Expr]) {
    form.text(name);
    form.count(operands.len());
    operands.iter().for_each(|operand| expression(form, operand));
}

fn literal(form: &mut Form, value: &Literal) {
    let text = match value {
        Literal::Null => "null".to_owned(),
        Literal::Bool(value) => format!("bool {value}"),
        Literal::Exact(value) => format!("exact {value}"),
        Literal::Float(value) => format!("float {:016x}", value.to_bits()),
        Literal::Text(value) => format!("text {value}"),
        Literal::Date(days) => format!("date {days}"),
        Literal::Datetime(micros) => format!("datetime {micros}"),
    };
    form.text(&text);
}
