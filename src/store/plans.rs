//! How the databases would go about each statement, where there are many runs and many entries of the catalog: what both
//! tests of it share.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::statements::Statements;
use std::collections::BTreeMap;

/// Where the rows come from, in one dialect; then the rest, which both databases read.
pub(super) fn many_rows(numbers: &str) -> String {
    let rows = std::env::var("REFRAIN_TEST_PLAN_ROWS").unwrap_or("50000".to_owned());
    let queued = (rows.parse::<u64>().unwrap() / 10).min(10_000).to_string();
    [&numbers.replace("{rows}", &rows).replace("{queued}", &queued), include_str!("plans/many.sql")].concat()
}

/// Every statement by its name: the struct itself says which there are.
pub(super) fn by_name(statements: &Statements) -> BTreeMap<String, String> {
    serde_json::from_value(serde_json::to_value(statements).unwrap()).unwrap()
}
