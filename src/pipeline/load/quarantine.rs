//! `[quarantine]`: which rows are kept apart.

use super::section::{Errors, Section, texts};
use crate::pipeline::{QuarantineRule, Reason};

/// The rule, or what it is where the file says nothing of it.
pub(super) fn read(root: &Section<'_>, errors: &mut Errors) -> QuarantineRule {
    let mut rule = QuarantineRule::default();
    let Some(section) = root.section("quarantine", errors) else { return rule };
    section.only(&["rows", "max_rows"], errors);
    rule.max_rows = section.whole("max_rows", 0, QuarantineRule::MOST_ROWS, errors).unwrap_or(rule.max_rows);
    let Some(value) = section.get("rows") else { return rule };
    let at = section.at("rows");
    let Some(found) = errors.take(&at, texts(value)) else { return rule };
    let of_name = |name: &String| Reason::ALL.into_iter().find(|reason| reason.rows() == name.as_str());
    let known = || Reason::ALL.map(Reason::rows).join(", ");
    if let Some(other) = found.iter().find(|name| of_name(name).is_none()) {
        errors.add(&at, format!("expected some of {}, found {other:?}", known()));
    } else if found.is_empty() {
        errors.add(&at, format!("expected some of {}, found none; max_rows = 0 keeps no row", known()));
    }
    rule.rows = found.iter().filter_map(of_name).collect();
    rule
}
