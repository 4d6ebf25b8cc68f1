//! Loading: TOML text to a checked definition.

mod columns;
mod grouping;
mod merge;
mod quarantine;
mod rows;
mod section;
mod source;
#[cfg(test)]
mod source_tests;
mod table;
#[cfg(test)]
mod table_tests;
#[cfg(test)]
mod tests;

use super::expr::{self, Context};
use super::{Definition, RunLimits, hash};
use crate::partition::PartitionSpec;
use crate::run::{DefinitionHash, PartFile, RetryPolicy, RetryRule};
use section::{Errors, Section, describe};
use toml::de::{DeTable, DeValue};

/// The most attempts of a run, and the longest delay between two: a year.
const MAX_ATTEMPTS: u32 = 1000;
const MAX_DELAY_SECONDS: u32 = 366 * 24 * 3600;

/// The longest time limit of an attempt: a week.
const MAX_TIMEOUT_SECONDS: u32 = 7 * 24 * 3600;

/// What is wrong with a pipeline file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {at}: {detail}")]
pub struct DefinitionError {
    /// The file.
    pub file: String,
    /// The table and key, e.g. `measures.revenue`.
    pub at: String,
    /// What was found and what is expected.
    pub detail: String,
}

/// Parses and checks a pipeline file; as many errors as can be told at once.
///
/// Where `file` ends in `.toml`, the pipeline must have the file's name; definitions that come from elsewhere have a
/// `file` that does not.
pub fn parse(text: &str, file: &str) -> Result<Definition, Vec<DefinitionError>> {
    let mut errors = Errors::new(file);
    let definition = match DeTable::parse(text) {
        Ok(table) => definition(&Section::of("", table.get_ref()), text, file, &mut errors),
        Err(wrong) => {
            errors.add(line_and_column(text, wrong.span().map_or(0, |span| span.start)), wrong.message());
            None
        }
    };
    match (definition, errors.into_found()) {
        (Some(definition), found) if found.is_empty() => Ok(definition),
        (_, found) => Err(found),
    }
}

fn definition(root: &Section<'_>, text: &str, file: &str, errors: &mut Errors) -> Option<Definition> {
    const KEYS: [&str; 19] = [
        "name",
        "description",
        "timezone",
        "max_rejected",
        "source",
        "partition",
        "dimensions",
        "measures",
        "columns",
        "sort_by",
        "dedupe",
        "write",
        "key",
        "on_conflict",
        "where",
        "retry",
        "limits",
        "table",
        "quarantine",
    ];
    root.only(&KEYS, errors);
    let name = name(root, file, errors);
    let description = root.text("description", errors).unwrap_or_default().to_owned();
    let timezone = timezone(root, errors);
    let max_rejected = max_rejected(root, errors);
    let retry = retry(root, errors);
    let limits = limits(root, errors);
    let table = table::read(root, errors);
    let quarantine = quarantine::read(root, errors);
    let mut names = grouping::Names::default();
    let source = source::read(root, text, errors);
    // Without the whole contract, errors about its columns would only repeat the first one.
    let context = Context { columns: &source.as_ref()?.columns, timezone: timezone? };
    let partition = grouping::partition(root, &context, &mut names, errors);
    let (mut dimensions, mut measures, mut rows) = (Vec::new(), Vec::new(), None);
    if rows::is_kept(root, errors) {
        rows = rows::read(root, &context, &mut names, errors);
    } else {
        merge::refuse(root, errors);
        dimensions = grouping::dimensions(root, &context, &mut names, errors);
        measures = grouping::measures(root, &context, &mut names, errors);
    }
    let filter = filter(root, &context, errors);
    source::check_templates(source.as_ref()?, partition.as_ref()?, errors);
    if errors.count() > 0 {
        return None;
    }
    let (foreign_files, output) = table?;
    if rows.as_ref().is_some_and(|rows| rows.merge.is_some()) && output.part_file() != PartFile::Parquet {
        let why = "is for tables that are replaced: a merge reads the partition's file back, and csv does not keep every value";
        errors.add("table.format", why);
        return None;
    }
    let mut definition = Definition {
        name: name?,
        description,
        source: source?,
        partition: partition?,
        timezone: timezone?,
        dimensions,
        measures,
        rows,
        filter,
        max_rejected: max_rejected?,
        retry,
        limits,
        foreign_files,
        output,
        quarantine,
        hash: DefinitionHash(String::new()),
        text: text.to_owned(),
    };
    definition.hash = hash::of(&definition);
    Some(definition)
}

fn line_and_column(text: &str, at: usize) -> String {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("line {line}, column {column}")
}

fn name(root: &Section<'_>, file: &str, errors: &mut Errors) -> Option<String> {
    let expected = "a name of a to z, 0 to 9 and _, starting with a letter, at most 63 characters";
    let name = root.required_text("name", expected, errors)?;
    let inside = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '_');
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(inside) || name.len() > 63 {
        errors.add("name", format!("expected {expected}, found {name:?}"));
        return None;
    }
    let base = file.rsplit(['/', '\\']).next().unwrap_or(file);
    if let Some(stem) = base.strip_suffix(".toml").filter(|stem| *stem != name) {
        errors.add("name", format!("expected the file's name {stem:?}, found {name:?}"));
    }
    Some(name.to_owned())
}

fn timezone(root: &Section<'_>, errors: &mut Errors) -> Option<chrono_tz::Tz> {
    if root.get("timezone").is_none() {
        return Some(chrono_tz::UTC);
    }
    let text = root.text("timezone", errors)?;
    errors.take("timezone", source::zone(text))
}

fn max_rejected(root: &Section<'_>, errors: &mut Errors) -> Option<f64> {
    let Some(value) = root.get("max_rejected") else {
        return Some(0.01);
    };
    let number = match value {
        DeValue::Float(number) => number.as_str().parse::<f64>().ok(),
        DeValue::Integer(number) => number.as_str().parse::<u8>().ok().map(f64::from),
        _ => None,
    };
    // Adding zero makes one number of 0 and -0.
    let number = number.filter(|share| (0.0..=1.0).contains(share)).map(|share| share + 0.0);
    let wrong = || format!("expected a share of rows from 0 to 1, found {}", describe(value));
    errors.take("max_rejected", number.ok_or_else(wrong))
}

fn filter(root: &Section<'_>, context: &Context<'_>, errors: &mut Errors) -> Option<expr::Expr> {
    let section = root.section("where", errors)?;
    section.only(&["sql"], errors);
    let sql = section.required_text("sql", "a condition", errors)?;
    errors.take(&section.at("sql"), expr::condition(sql, context))
}

fn retry(root: &Section<'_>, errors: &mut Errors) -> RetryPolicy {
    let mut policy = RetryPolicy::default();
    let Some(section) = root.section("retry", errors) else {
        return policy;
    };
    section.only(&["source", "service", "compute"], errors);
    let rules = [("source", &mut policy.source), ("service", &mut policy.service), ("compute", &mut policy.compute)];
    for (class, rule) in rules {
        if let Some(section) = section.section(class, errors) {
            retry_rule(&section, class, rule, errors);
        }
    }
    policy
}

fn limits(root: &Section<'_>, errors: &mut Errors) -> RunLimits {
    let Some(section) = root.section("limits", errors) else {
        return RunLimits::default();
    };
    section.only(&["timeout_seconds"], errors);
    RunLimits { timeout_seconds: section.whole("timeout_seconds", 1, MAX_TIMEOUT_SECONDS, errors) }
}

fn retry_rule(section: &Section<'_>, class: &str, rule: &mut RetryRule, errors: &mut Errors) {
    section.only(&["attempts", "delay_seconds", "max_delay_seconds"], errors);
    rule.attempts = section.whole("attempts", 1, MAX_ATTEMPTS, errors).unwrap_or(rule.attempts);
    rule.delay_seconds = section.whole("delay_seconds", 0, MAX_DELAY_SECONDS, errors);
    let longest = section.whole("max_delay_seconds", 0, MAX_DELAY_SECONDS, errors);
    rule.max_delay_seconds = longest.unwrap_or(rule.max_delay_seconds);
    if let Some(delay) = rule.delay_seconds.filter(|delay| *delay > rule.max_delay_seconds) {
        let most = rule.max_delay_seconds;
        errors.add(
            format!("retry.{class}.delay_seconds"),
            format!("{delay} is more than max_delay_seconds, which is {most}"),
        );
    }
}

/// The spec needs columns; without any there is none.
fn spec_of(columns: Vec<crate::partition::PartitionColumn>) -> Option<PartitionSpec> {
    (!columns.is_empty()).then(|| PartitionSpec::new(columns))
}
