//! The manifest at a table's root: what it says, when it is written, and what `verify` says of it.

use super::*;
use refrain::pipeline::{self, Definition};
use refrain::table::{FindingKind, MANIFEST_FILE};
use serde_json::{Value, json};
use std::os::unix::fs::{MetadataExt, symlink};

fn said(f: &Fixture) -> Value {
    serde_json::from_slice(&fs::read(f.table().join(MANIFEST_FILE)).unwrap()).unwrap()
}

fn decided_as(f: &Fixture, partition: &str, text: &str, outcome: Outcome) -> Decided {
    Decided { outcome, ..f.stage(partition, text) }
}

#[test]
fn it_says_what_the_table_is_once_the_run_is_finished() {
    let f = Fixture::new();
    let lock = f.lock();
    let catalog = ["01", "02", "03", "04"].map(|month| entry(&format!("month=2024-{month}"), month));
    let mut created = decided_as(&f, "month=2024-05", "new", Outcome::Created);
    created.content.as_mut().unwrap().file = PartFile::CsvGzip;
    let decided = [
        decided_as(&f, "month=2024-01", "01", Outcome::Unchanged),
        decided_as(&f, "month=2024-02", "other", Outcome::Replaced),
        cleared("month=2024-03"),
        created,
        Decided { outcome: Outcome::Empty, ..cleared("month=2024-06") },
    ];
    lock.write_manifest(&f.staging(), f.run, &catalog, &decided).unwrap();
    let of = |month: &str, name: &str, text: &str, run: RunId| {
        json!({"partition": format!("month=2024-{month}"), "file": format!("month=2024-{month}/{name}"), "rows": 1,
               "bytes": text.len(), "sha256": sha256(text), "run_id": run})
    };
    let parquet = "part-0.parquet";
    assert_eq!(
        said(&f),
        json!({"format_version": 1, "pipeline": TABLE, "run_id": f.run, "partitions": [
            of("01", parquet, "01", catalog[0].run_id),
            of("02", parquet, "other", f.run),
            of("04", parquet, "04", catalog[3].run_id),
            of("05", "part-0.csv.gz", "new", f.run),
        ]})
    );
    let text = fs::read_to_string(f.table().join(MANIFEST_FILE)).unwrap();
    assert!(text.starts_with("{\n  \"format_version\": 1,\n  \"pipeline\"") && text.ends_with("}\n"), "{text}");
    assert_eq!(tree(&f.staging()).iter().filter(|name| name.starts_with("manifest")).count(), 0);
}

#[test]
fn one_that_says_so_already_is_not_written() {
    let f = Fixture::new();
    let lock = f.lock();
    let catalog = [entry("month=2024-01", "01")];
    lock.write_manifest(&f.staging(), f.run, &catalog, &[]).unwrap();
    let inode = || fs::metadata(f.table().join(MANIFEST_FILE)).unwrap().ino();
    let before = inode();
    let unchanged = [decided_as(&f, "month=2024-01", "01", Outcome::Unchanged)];
    lock.write_manifest(&f.staging(), RunId::new(), &catalog, &unchanged).unwrap();
    assert_eq!((inode(), said(&f)["run_id"].clone()), (before, json!(f.run)), "it names the run that wrote it");
    let later = RunId::new();
    lock.write_manifest(&f.staging(), later, &catalog, &[cleared("month=2024-01")]).unwrap();
    assert_eq!((said(&f)["run_id"].clone(), said(&f)["partitions"].clone()), (json!(later), json!([])));
}

#[test]
fn it_is_made_in_staging_and_moved() {
    let f = Fixture::new();
    let lock = f.lock();
    // A link is replaced, not written through.
    let theirs = f.folder.path().join("theirs");
    fs::write(&theirs, "text").unwrap();
    fs::create_dir(f.table()).unwrap();
    symlink(&theirs, f.table().join(MANIFEST_FILE)).unwrap();
    lock.write_manifest(&f.staging(), f.run, &[], &[]).unwrap();
    assert_eq!(fs::read_to_string(&theirs).unwrap(), "text");
    assert_eq!(said(&f)["partitions"], json!([]));
    f.warehouse.remove_staging(f.run).unwrap();
    // All that it says is live by now, so nothing is lost with staging.
    lock.write_manifest(&f.staging(), f.run, &[entry("month=2024-01", "01")], &[]).unwrap();
    assert_eq!(said(&f)["partitions"][0]["partition"], "month=2024-01");
    assert!(tree(&f.staging()).is_empty());
}

#[test]
fn only_ours_is_removed() {
    let f = Fixture::new();
    let lock = f.lock();
    lock.remove_manifest().unwrap();
    assert!(!f.table().exists());
    lock.write_manifest(&f.staging(), f.run, &[], &[]).unwrap();
    for _ in 0..2 {
        lock.remove_manifest().unwrap();
        assert!(tree(&f.table()).is_empty());
    }
    f.put(MANIFEST_FILE, "{\"entries\": []}");
    lock.remove_manifest().unwrap();
    assert_eq!(tree(&f.table()), [MANIFEST_FILE]);
}

fn definition(manifest: bool) -> Definition {
    let text = format!(
        "name = \"{TABLE}\"\n[source]\nformat = \"parquet\"\npath = \"in\"\n[source.columns]\nat = \"date\"\n[partition]\n\
         month = {{ month_of = \"at\" }}\n[measures]\nn = \"count(*)\"\n[table]\nmanifest = {manifest}\n"
    );
    pipeline::parse(&text, "t").unwrap()
}

#[test]
fn verify_holds_it_against_the_catalog() {
    let f = Fixture::new();
    let lock = f.lock();
    let (with, without) = (definition(true), definition(false));
    let mut entries = vec![entry("month=2024-01", "a"), entry("month=2024-02", "b")];
    f.put("month=2024-01/part-0.parquet", "a");
    f.put("month=2024-02/part-0.parquet", "b");
    let found = |definition: &Definition, entries: &[CatalogEntry]| {
        let findings = f.warehouse.verify(TABLE, Some(definition), entries).unwrap();
        assert!(findings.iter().all(|one| one.kind == FindingKind::Manifest && one.path.ends_with(MANIFEST_FILE)));
        findings.into_iter().map(|one| one.detail).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(found(&with, &entries), "", "no run with it has gone through yet");
    entries[0].definition = with.hash.clone();
    assert_eq!(found(&with, &entries), "there is no manifest, expected one of the catalog's partitions");
    assert_eq!(found(&without, &entries), "");
    lock.write_manifest(&f.staging(), f.run, &entries, &[]).unwrap();
    assert_eq!([found(&with, &entries), found(&without, &entries)], ["", ""]);
    let good = fs::read_to_string(f.table().join(MANIFEST_FILE)).unwrap();
    for (from, to, expected) in [
        (sha256("b"), sha256("c"), "it is not as the catalog says, first at partition month=2024-02"),
        ("\"month=2024-01\"".to_owned(), "\"month=2023-01\"".to_owned(), "first at partition month=2024-01"),
        (format!("\"{TABLE}\""), "\"other\"".to_owned(), "it is not as the catalog says, first at its head"),
    ] {
        assert!(good.contains(&from), "{from}");
        f.put(MANIFEST_FILE, &good.replace(&from, &to));
        for definition in [&with, &without] {
            assert!(found(definition, &entries).ends_with(expected), "{}", found(definition, &entries));
        }
    }
    f.put(MANIFEST_FILE, &good[..good.len() / 2]);
    assert_eq!(found(&with, &entries), "it cannot be read, expected a manifest of the catalog's partitions");
    assert_eq!(found(&without, &entries), "", "it is nobody's");
}
