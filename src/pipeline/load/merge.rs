//! `write`, `key` and `on_conflict`: whether rows replace a partition or are put into what it was.

use super::rows::named;
use super::section::{Errors, Section};
use crate::pipeline::{Dedupe, Dimension, Merge, OnConflict};

/// What belongs to `write = "merge"` alone.
const ONLY_MERGED: [&str; 2] = ["key", "on_conflict"];

/// Refuses to merge into tables of groups.
pub(super) fn refuse(root: &Section<'_>, errors: &mut Errors) {
    if is_merged(root, errors) {
        errors.add(
            "write",
            "merge is for tables that keep rows, which have [columns] instead of [measures]: the measures of a group cannot be \
             made from what is left of its earlier rows",
        );
    }
}

/// How rows are merged, if they are.
pub(super) fn read(
    root: &Section<'_>,
    columns: &[Dimension],
    dedupe: Option<&Dedupe>,
    errors: &mut Errors,
) -> Option<Merge> {
    if !is_merged(root, errors) {
        return None;
    }
    if root.get("key").is_none() {
        errors.add("key", "is missing, expected the columns that name a row, as write = \"merge\" needs");
        return None;
    }
    let key = named(root, "key", columns, errors);
    if let Some(other) = dedupe.map(|dedupe| &dedupe.key).filter(|other| !alike(other, &key)) {
        let found = format!("found {} beside key = {}", other.join(", "), key.join(", "));
        errors.add("dedupe.key", format!("expected the columns of key, by which rows are merged, {found}"));
    }
    let on_conflict = match root.text("on_conflict", errors) {
        None => OnConflict::default(),
        Some("replace") => OnConflict::Replace,
        Some("keep") => OnConflict::Keep,
        Some(other) => {
            errors.add("on_conflict", format!("expected \"replace\" or \"keep\", found {other:?}"));
            return None;
        }
    };
    Some(Merge { key, on_conflict })
}

/// Whether the pipeline says so. What is for merges alone is refused elsewhere.
fn is_merged(root: &Section<'_>, errors: &mut Errors) -> bool {
    match root.text("write", errors) {
        Some("merge") => return true,
        Some("replace") | None => {}
        Some(other) => errors.add("write", format!("expected \"replace\" or \"merge\", found {other:?}")),
    }
    for key in ONLY_MERGED.iter().filter(|key| root.get(key).is_some()) {
        errors.add(*key, "is for write = \"merge\"");
    }
    false
}

fn alike(one: &[String], other: &[String]) -> bool {
    one.len() == other.len() && one.iter().all(|name| other.contains(name))
}
