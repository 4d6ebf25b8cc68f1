//! `[columns]`, `sort_by` and `dedupe`: a table that keeps rows instead of grouping them.

use super::grouping::{Names, value};
use super::merge;
use super::section::{Errors, Section, texts};
use crate::pipeline::expr::Context;
use crate::pipeline::{Dedupe, Dimension, Keep, RowTable};

/// Whether the table keeps rows. What belongs to the other kind of table is refused.
pub(super) fn is_kept(root: &Section<'_>, errors: &mut Errors) -> bool {
    let kept = root.get("columns").is_some();
    let (foreign, why): (&[&str], _) = match kept {
        true => (&["dimensions", "measures"], "is for tables of groups, and this one keeps rows: it has [columns]"),
        false => (&["sort_by", "dedupe"], "is for tables that keep rows, which have [columns] instead of [measures]"),
    };
    for key in foreign.iter().filter(|key| root.get(key).is_some()) {
        errors.add(*key, why);
    }
    kept
}

/// The columns of the rows, and their rules.
pub(super) fn read(
    root: &Section<'_>,
    context: &Context<'_>,
    names: &mut Names,
    errors: &mut Errors,
) -> Option<RowTable> {
    let section = root.section("columns", errors)?;
    if section.entries.is_empty() {
        errors.add("columns", "expected a column such as id = \"event_id\", found none");
    }
    let mut columns = Vec::new();
    for (name, entry) in &section.entries {
        let at = section.at(name);
        names.add(name, at.clone(), errors);
        let expr = errors.take(&at, value(entry, context));
        columns.extend(expr.map(|expr| Dimension { name: (*name).to_owned(), expr }));
    }
    if columns.len() < section.entries.len() {
        // The rules would only repeat the errors of the columns that they name.
        return None;
    }
    let sort_by = root.get("sort_by").map(|_| named(root, "sort_by", &columns, errors));
    let dedupe = match root.section("dedupe", errors) {
        Some(section) => Some(dedupe(&section, &columns, errors)?),
        None => None,
    };
    let merge = merge::read(root, &columns, dedupe.as_ref(), errors);
    Some(RowTable { sort_by: sort_by.unwrap_or_default(), columns, dedupe, merge })
}

fn dedupe(section: &Section<'_>, columns: &[Dimension], errors: &mut Errors) -> Option<Dedupe> {
    section.only(&["key", "keep", "order_by"], errors);
    if section.get("key").is_none() {
        errors.add(section.at("key"), "is missing, expected the columns that name a row");
    }
    let key = named(section, "key", columns, errors);
    let order_by = named(section, "order_by", columns, errors);
    let expected = "first or last";
    let keep = match section.required_text("keep", expected, errors)? {
        "first" => Keep::First,
        "last" => Keep::Last,
        other => {
            errors.add(section.at("keep"), format!("expected {expected}, found {other:?}"));
            return None;
        }
    };
    Some(Dedupe { key, keep, order_by })
}

/// Names of columns of the table, each once.
pub(super) fn named(section: &Section<'_>, key: &str, columns: &[Dimension], errors: &mut Errors) -> Vec<String> {
    let at = section.at(key);
    let Some(value) = section.get(key) else { return Vec::new() };
    let Some(found) = errors.take(&at, texts(value)) else { return Vec::new() };
    if found.is_empty() {
        errors.add(&at, "expected at least one of [columns], found none");
    }
    for (place, name) in found.iter().enumerate() {
        if !columns.iter().any(|column| column.name == *name) {
            let known = columns.iter().map(|c| c.name.as_str()).collect::<Vec<_>>().join(", ");
            errors.add(&at, format!("expected names of [columns] ({known}), found {name:?}"));
        } else if found.iter().take(place).any(|before| before == name) {
            errors.add(&at, format!("{name} is named twice"));
        }
    }
    found
}
