//! The catalog against the files.

use super::*;
use refrain::table::FindingKind::{Changed, Foreign, Missing, Staging, Torn, Unknown};

#[test]
fn a_table_that_is_as_the_catalog_says_has_no_findings() {
    let f = Fixture::new();
    f.put("month=2024-01/part-0.parquet", "a");
    f.lock().mark_success().unwrap();
    assert_eq!(f.warehouse.verify_files(TABLE, Some(&monthly()), &[entry("month=2024-01", "a")]).unwrap(), []);
    assert_eq!(f.warehouse.verify_files("never_written", None, &[]).unwrap(), []);
    assert_eq!(f.warehouse.verify_staging().unwrap(), []);
}

#[test]
fn each_difference_is_found_and_named() {
    let f = Fixture::new();
    for (path, text) in [
        ("month=2024-01/part-0.parquet", "a"),
        ("month=2024-02/part-0.parquet", "PAR1 changed PAR1"),
        ("month=2024-06/part-0.parquet", "PAR1 cut sh"),
        ("month=2024-07/part-0.parquet", "begun anew PAR1"),
        ("month=2024-08/part-0.parquet", "PAR1"),
        ("month=2024-04/part-0.parquet", "unknown"),
        ("month=2024-01/part-1.parquet", "foreign"),
        ("month=2024-5/part-0.parquet", "no key"),
        ("year=2023/part-0.parquet", "of an earlier definition"),
    ] {
        f.put(path, text);
    }
    let entries = [
        entry("month=2024-01", "a"),
        entry("month=2024-02", "b"),
        entry("month=2024-03", "c"),
        entry("month=2024-06", "PAR1 cut short PAR1"),
        entry("month=2024-07", "PAR1 anew PAR1"),
        entry("month=2024-08", "PAR1 PAR1"),
        entry("year=2023", "of an earlier definition"),
    ];
    let found = |spec: Option<&PartitionSpec>| {
        let findings = f.warehouse.verify_files(TABLE, spec, &entries).unwrap();
        let brief = |finding: refrain::table::Finding| {
            assert!(finding.path.starts_with(f.table().to_str().unwrap()) && !finding.detail.is_empty());
            (finding.kind, finding.partition.map_or("-".to_owned(), |key| key.to_string()))
        };
        findings.into_iter().map(brief).collect::<Vec<_>>()
    };
    let changed = (Changed, "month=2024-02".to_owned());
    let missing = (Missing, "month=2024-03".to_owned());
    let torn = ["06", "07", "08"].map(|month| (Torn, format!("month=2024-{month}")));
    let damaged = [&[changed, missing][..], &torn].concat();
    let unknown = |key: &str| (Unknown, key.to_owned());
    let foreign = (Foreign, "-".to_owned());
    let others = [foreign.clone(), unknown("month=2024-04"), foreign.clone()];
    assert_eq!(found(Some(&monthly())), [&damaged[..], &others].concat());
    // Without a definition, what looks like a partition may be one.
    let others = [foreign, unknown("month=2024-04"), unknown("month=2024-5")];
    assert_eq!(found(None), [&damaged[..], &others].concat());
}

#[test]
fn findings_as_json() {
    let f = Fixture::new();
    let found = f.warehouse.verify_files(TABLE, None, &[entry("month=2024-03", "c")]).unwrap();
    let path = f.table().join("month=2024-03/part-0.parquet");
    let detail = format!("there is no file, expected one with sha256 {}", sha256("c"));
    assert_eq!(
        serde_json::to_value(found).unwrap(),
        serde_json::json!([{"kind": "missing", "partition": "month=2024-03", "path": path, "detail": detail}])
    );
}

#[test]
fn a_link_is_a_finding_not_the_end_of_verifying() {
    let f = Fixture::new();
    f.put("month=2024-01/part-0.parquet", "a");
    std::os::unix::fs::symlink(f.table().join("month=2024-01"), f.table().join("month=2024-02")).unwrap();
    let found =
        f.warehouse.verify_files(TABLE, None, &[entry("month=2024-02", "a"), entry("month=2024-01", "a")]).unwrap();
    assert_eq!(found.iter().map(|finding| finding.kind).collect::<Vec<_>>(), [Changed, Foreign]);
    assert!(found[0].detail.contains("a symbolic link"), "{}", found[0].detail);
}

#[test]
fn the_warehouse_beside_its_tables() {
    let f = Fixture::new();
    f.put("month=2024-01/part-0.parquet", "a");
    f.lock().mark_success().unwrap();
    fs::write(f.warehouse.root().join("README"), "").unwrap();
    assert_eq!(f.warehouse.names_at_root().unwrap(), ["README", TABLE]);
    fs::create_dir(f.warehouse.root().join(".staging/mine")).unwrap();
    let found = f.warehouse.verify_staging().unwrap();
    assert_eq!(
        found.iter().map(|finding| (finding.kind, finding.path.ends_with("mine"))).collect::<Vec<_>>(),
        [(Staging, true)]
    );
}
