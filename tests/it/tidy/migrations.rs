//! Migrations after the one that made `meta.oldest_schema` only add, or say that they do not.

use std::fs;
use std::path::Path;

const FIRST: i64 = 12;

/// What a server of the version before would stumble over, as CONTRIBUTING.md has it.
const TAKING: [&str; 9] = [
    "drop table",
    "drop column",
    "rename to",
    "rename column",
    "set not null",
    "add constraint",
    "create unique index",
    "writable_schema",
    "alter column",
];

/// What a migration takes away or narrows, unless it says which migration a version must know from now on.
fn takes(number: i64, text: &str) -> Option<String> {
    let code: String = text.lines().map(|line| line.split("--").next().unwrap().to_lowercase() + " ").collect();
    let code = code.split_whitespace().collect::<Vec<_>>().join(" ");
    if code.contains(&format!("update meta set oldest_schema = {number}")) {
        return None;
    }
    code.split(';').map(str::trim).find_map(|statement| {
        let takes = TAKING.iter().any(|taking| statement.contains(taking));
        let demands =
            statement.contains("add column") && statement.contains("not null") && !statement.contains("default");
        (takes || demands).then(|| statement.to_owned())
    })
}

#[test]
fn migrations_only_add_or_say_so() {
    for store in ["postgres", "sqlite"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations").join(store);
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            let number: i64 = name.split('_').next().unwrap().parse().unwrap();
            let takes = (number >= FIRST).then(|| takes(number, &fs::read_to_string(&path).unwrap())).flatten();
            assert_eq!(
                takes,
                None,
                "{}: a version that does not know it works on; see CONTRIBUTING.md",
                path.display()
            );
        }
    }
}

#[test]
fn what_takes_is_told_from_what_adds() {
    for taking in [
        "ALTER TABLE runs\n  DROP COLUMN mode;",
        "create table x (y text); drop table runs",
        "alter table runs add column must text not null",
        "alter table runs rename column mode to kind",
        "alter table runs alter column mode set not null",
        "create unique index one on runs (mode)",
        "update meta set oldest_schema = 11; drop table runs",
    ] {
        assert!(takes(12, taking).is_some(), "{taking}");
    }
    for adding in [
        "alter table runs add column may text; -- drop table",
        "alter table runs add column has text not null default ''",
        "create table x (y text not null);\ncreate index i on x (y); drop index j;",
        "update meta set oldest_schema = 12;\nalter table runs drop column mode;",
    ] {
        assert_eq!(takes(12, adding), None, "{adding}");
    }
}
