#![expect(clippy::panic, reason = "a test that cannot go on should say where")]

use super::*;
use crate::run::{Content, RunId, Totals};
use chrono::DateTime;

/// A definition with these columns of the contract, partition columns, and lines before the first table.
fn of(source: &str, columns: &str, partition: &str, first: &str) -> Definition {
    let text = format!(
        "name = \"t\"\n{first}\n[source]\npath = \"in/*\"\n{source}\n[source.columns]\n{columns}\n[partition]\n{partition}\n\
         [measures]\nn = \"count(*)\"\n"
    );
    parse(&text, "t").unwrap_or_else(|errors| panic!("{text}\n{errors:?}"))
}

const PARQUET: &str = "format = \"parquet\"";

fn entry(definition: &Definition, partition: &str) -> CatalogEntry {
    let content = Content {
        rows: 1,
        totals: Totals::default(),
        source_rows: 1,
        bytes: 1,
        sha256: String::new(),
        file: PartFile::Parquet,
    };
    CatalogEntry {
        partition: PartitionKey::from_canonical(partition),
        content,
        run_id: RunId::new(),
        committed_at: DateTime::UNIX_EPOCH,
        definition: definition.hash.clone(),
        confirmed_by: None,
        confirmed_at: None,
    }
}

/// The change from what `old` wrote, as both looks see it.
fn change(old: &Definition, new: &Definition, partition: &str) -> Option<LayoutChange> {
    let texts = BTreeMap::from([(old.hash.clone(), old.text.clone())]);
    let found = new.layout_change([&entry(old, partition)], &texts);
    assert_eq!(new.may_change_layout(&old.text), found.is_some(), "{} {}", old.text, new.text);
    found
}

/// Whether rows may be in two partitions, where the partition column `p` is made so of these columns of the contract.
fn moves(old: (&str, &str), new: (&str, &str), partition: &str) -> bool {
    let of = |(columns, made): (&str, &str)| of(PARQUET, columns, &format!("p = {{ {made} }}"), "");
    let (old, new) = (of(old), of(new));
    let there = change(&old, &new, partition);
    // It works both ways, or it would take two steps.
    assert_eq!(change(&new, &old, partition).is_some(), there.is_some(), "{} {}", old.text, new.text);
    match there {
        None => false,
        Some(LayoutChange::Placing { .. }) => true,
        Some(other) => panic!("{other}"),
    }
}

#[test]
fn a_row_belongs_to_one_partition_whichever_definition_placed_it() {
    let month = "month_of = \"at\"";
    let key = "p=2024-01";
    let moves = |old: &str, new: &str| moves((old, month), (new, month), key);
    let at = "at = \"datetime\"";
    let from = |names: &str| format!("at = {{ type = \"datetime\", from = {names} }}");
    // Another field of the files, however the contract calls it.
    for (old, new, moved) in [
        (at.to_owned(), from("\"dropped\""), true),
        (at.to_owned(), from("[\"dropped\", \"at\"]"), true),
        (at.to_owned(), from("[\"at\", \"dropped\"]"), false),
        (from("[\"a\", \"b\"]"), from("[\"a\", \"b\", \"c\"]"), false),
        (from("[\"a\", \"b\"]"), from("[\"b\", \"a\"]"), true),
        (at.to_owned(), "at = { type = \"datetime\", folder = \"at\" }".to_owned(), true),
        (at.to_owned(), "at = \"datetime not null\"".to_owned(), false),
        // Another type, or another way to read it.
        (at.to_owned(), "at = \"date\"".to_owned(), true),
        (at.to_owned(), "at = \"datetime(UTC)\"".to_owned(), true),
        ("at = \"datetime(UTC)\"".to_owned(), "at = \"datetime(Europe/Berlin)\"".to_owned(), false),
        (at.to_owned(), "at = { type = \"datetime\", format = \"%Y-%d-%m\" }".to_owned(), true),
        (
            "at = { type = \"datetime\", format = \"%Y-%m-%d\" }".to_owned(),
            "at = { type = \"datetime\", format = \"%Y-%d-%m\" }".to_owned(),
            true,
        ),
        // What other columns say does not matter.
        (at.to_owned(), format!("{at}\nzone = \"int32\""), false),
    ] {
        assert_eq!(moves(&old, &new), moved, "{old} {new}");
    }
}

#[test]
fn defaults_place_rows_too() {
    let of = |more: &str| format!("kind = {{ type = \"string\"{more} }}");
    let value = "value_of = \"kind\"";
    for (old, new, moved) in [
        ("", ", default = \"x\"", false),
        (", default = \"x\"", ", default = \"x\"", false),
        (", default = \"x\"", ", default = \"y\"", true),
        (", default = \"x\"", ", optional = true", false),
        // A file that has the further column alone was read as x.
        (", default = \"x\"", ", default = \"x\", from = [\"kind\", \"sort\"]", true),
        ("", ", default = \"x\", from = [\"kind\", \"sort\"]", false),
        (", optional = true", ", optional = true, from = [\"kind\", \"sort\"]", false),
    ] {
        assert_eq!(moves((&of(old), value), (&of(new), value), "p=x"), moved, "{old} {new}");
    }
}

#[test]
fn a_value_has_one_text() {
    let moves = |old: &str, new: &str, key: &str| {
        let of = |declared: &str| format!("v = \"{declared}\"");
        moves((&of(old), "value_of = \"v\""), (&of(new), "value_of = \"v\""), key)
    };
    assert!(!moves("int32", "int64", "p=7"));
    assert!(!moves("int16", "uint32", "p=7"));
    assert!(moves("int32", "string", "p=7"));
    assert!(!moves("decimal(9,2)", "decimal(18,2)", "p=7.50"));
    // Of another number of digits no key is a key: p=7.50 is not p=7.500.
    let of = |declared: &str| of(PARQUET, &format!("v = \"{declared}\""), "p = { value_of = \"v\" }", "");
    assert!(matches!(change(&of("decimal(9,2)"), &of("decimal(9,3)"), "p=7.50"), Some(LayoutChange::Columns { .. })));
}

#[test]
fn transforms_columns_and_zones_are_compared() {
    let columns = "at = \"datetime(UTC)\"\nday = \"date\"\nend = \"datetime(UTC)\"\nkind = \"string\"";
    let of = |partition: &str, first: &str| of(PARQUET, columns, partition, first);
    let berlin = "timezone = \"Europe/Berlin\"";
    let (month, day) = ("p = { month_of = \"at\" }", "p = { month_of = \"day\" }");
    let refused = |old: &Definition, new: &Definition, key: &str| match change(old, new, key) {
        Some(LayoutChange::Placing { found, expected, .. }) => format!("{found} | {expected}"),
        other => panic!("{other:?}"),
    };
    let (utc, zoned) = (of(month, ""), of(month, berlin));
    assert_eq!(
        refused(&utc, &zoned, "p=2024-01"),
        "p = month_of at (datetime(UTC), from at, in UTC) | p = month_of at (datetime(UTC), from at, in Europe/Berlin)"
    );
    refused(&utc, &of("p = { month_of = \"end\" }", ""), "p=2024-01");
    refused(&utc, &of(day, ""), "p=2024-01");
    assert_eq!(change(&of(day, ""), &of(day, berlin), "p=2024-01"), None, "dates are not shifted");
    // Both are days by their texts.
    refused(&of("p = { day_of = \"day\" }", ""), &of("p = { value_of = \"day\" }", ""), "p=2024-01-31");
    // Each column counts.
    let two = |second: &str| of(&format!("p = {{ value_of = \"kind\" }}\nq = {{ month_of = \"{second}\" }}"), "");
    refused(&two("at"), &two("end"), "p=a/q=2024-01");
}

#[test]
fn delimiters_and_quotes_say_which_text_is_read() {
    let csv = |layout: &str| {
        let source = format!("format = \"csv\"\n{layout}");
        of(&source, "kind = \"string\"\nsize = \"int32\"", "p = { value_of = \"kind\" }", "")
    };
    let none = csv("csv = { quote = \"\" }");
    assert!(change(&csv(""), &none, "p=a").is_some());
    assert!(change(&csv(""), &csv("csv = { delimiter = \";\" }"), "p=a").is_some());
    let third = |layout: &str| {
        let source = format!("format = \"csv\"\ncsv = {{ header = false{layout} }}");
        of(&source, "size = { type = \"int32\", position = 2 }", "p = { value_of = \"size\" }", "")
    };
    assert!(change(&third(""), &third(", delimiter = \";\""), "p=3").is_some(), "x;3;y,4,z has two second fields");
    assert!(change(&third(""), &third(", quote = \"\""), "p=3").is_some());
    assert_eq!(change(&third(""), &third(", null = [\"-\"]"), "p=3"), None);
    let parquet = of(PARQUET, "kind = \"string\"\nsize = \"int32\"", "p = { value_of = \"kind\" }", "");
    assert_eq!(change(&csv(""), &parquet, "p=a"), None, "the same texts in another form");
}

#[test]
fn a_definition_that_cannot_be_read_says_nothing_of_its_rows() {
    let of = |columns: &str| of(PARQUET, columns, "p = { month_of = \"at\" }", "");
    let (old, new) = (of("at = \"datetime\"\nx = \"int32\""), of("at = \"datetime\""));
    let there = entry(&old, "p=2024-01");
    let unreadable = LayoutChange::Unreadable { partition: there.partition.clone(), definition: old.hash.clone() };
    assert_eq!(new.layout_change([&there], &BTreeMap::new()), Some(unreadable.clone()));
    let torn = BTreeMap::from([(old.hash.clone(), "name = ".to_owned())]);
    assert_eq!(new.layout_change([&there], &torn), Some(unreadable));
    assert!(new.may_change_layout("name = "));
    assert_eq!(new.layout_change([&entry(&new, "p=2024-01")], &BTreeMap::new()), None, "its own is known");
}
