//! How the databases would go about each statement, where there are many runs and many entries of the catalog: what both
//! tests of it share.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::statements::Statements;
use serde_json::Value;
use std::collections::BTreeMap;

/// A statement, and the index by which it would go through the messages of whoever has a backlog. Servers of the version before do.
pub(super) const WALKS_A_BACKLOG: (&str, &str) = ("outbox.claim_message", "outbox_due");

/// How many runs there are. The last tenth of them waits, 10,000 at the most.
pub(super) fn rows() -> u64 {
    std::env::var("REFRAIN_TEST_PLAN_ROWS").map_or(50_000, |rows| rows.parse().unwrap())
}

/// Where the rows come from, in one dialect; then the rest, which both databases read.
pub(super) fn many_rows(numbers: &str) -> String {
    let queued = (rows() / 10).min(10_000).to_string();
    let numbers = numbers.replace("{rows}", &rows().to_string()).replace("{queued}", &queued);
    [&numbers, include_str!("plans/many.sql")].concat()
}

/// Every statement by its name: the struct itself says which there are. Those of a struct in it have its name before theirs.
pub(super) fn by_name(statements: &Statements) -> BTreeMap<String, String> {
    let mut named = BTreeMap::new();
    collect("", &serde_json::to_value(statements).unwrap(), &mut named);
    named
}

fn collect(name: &str, found: &Value, named: &mut BTreeMap<String, String>) {
    match found {
        Value::Object(inner) => {
            for (field, value) in inner {
                let name = if name.is_empty() { field.clone() } else { format!("{name}.{field}") };
                collect(&name, value, named);
            }
        }
        statement => assert!(named.insert(name.to_owned(), statement.as_str().unwrap().to_owned()).is_none()),
    }
}
