//! The shape of the code: what ARCHITECTURE.md and CONTRIBUTING.md say of the whole, held by a test.

mod code;
mod migrations;

use code::{Source, sources};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Which top-level module may name which others. What is not here is not allowed.
const ARROWS: [(&str, &[&str]); 20] = [
    ("partition", &[]),
    ("run", &["partition"]),
    ("pipeline", &["run", "partition"]),
    ("access", &["run"]),
    ("telemetry", &[]),
    ("fault", &[]),
    ("edge", &["telemetry"]),
    ("config", &["fault", "notify"]),
    ("notify", &["store", "pipeline", "run", "partition", "fault", "telemetry"]),
    ("store", &["access", "pipeline", "run", "partition", "telemetry"]),
    ("engine", &["pipeline", "run", "partition", "fault", "telemetry"]),
    ("table", &["pipeline", "run", "partition", "telemetry"]),
    ("worker", &["store", "engine", "table", "pipeline", "run", "partition", "fault", "telemetry"]),
    ("http", &["access", "notify", "store", "pipeline", "run", "partition", "fault", "telemetry"]),
    (
        "app",
        &[
            "access",
            "http",
            "edge",
            "worker",
            "notify",
            "client",
            "store",
            "engine",
            "table",
            "pipeline",
            "run",
            "partition",
            "config",
            "fault",
            "telemetry",
        ],
    ),
    ("client", &["config", "run", "partition"]),
    ("sample", &[]),
    ("demo", &["app", "client", "config", "sample", "run", "partition", "telemetry"]),
    ("lib", &[]),
    (
        "main",
        &["config", "app", "telemetry", "client", "demo", "sample", "pipeline", "store", "table", "engine", "http"],
    ),
];

/// What the pure modules must not know: web, database, engine, clock and files.
const IMPURE: [&str; 16] = [
    "axum",
    "tower",
    "sqlx",
    "polars",
    "tokio",
    "reqwest",
    "rustix",
    "tempfile",
    "walkdir",
    "std::fs",
    "std::net",
    "std::process",
    "std::env",
    "std::time::SystemTime",
    "std::time::Instant",
    "chrono::Utc::now",
];

const MAX_LINES: usize = 500;

#[test]
fn modules_keep_to_the_arrows() {
    let mut wrong = BTreeSet::new();
    for source in sources("src") {
        let module = source.module();
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == module[0]) else {
            wrong.insert(format!("{}: the module {} has no arrows in this test", source.path, module[0]));
            continue;
        };
        for target in source.paths().iter().filter_map(|path| top_level(path, module.len())) {
            if target != module[0] && !allowed.contains(&target) {
                wrong.insert(format!("{}: {} -> {target} is not allowed", source.path, module[0]));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The top-level module that a path names, from a module that many levels deep.
fn top_level(path: &[String], depth: usize) -> Option<&str> {
    let supers = path.iter().take_while(|name| *name == "super").count();
    let name = match path.first()?.as_str() {
        "crate" | "refrain" => path.get(1)?,
        "super" if supers == depth => path.get(supers)?,
        _ => return None,
    };
    ARROWS.iter().map(|(known, _)| *known).find(|known| known == name)
}

#[test]
fn the_domain_is_pure() {
    let mut wrong = BTreeSet::new();
    for source in sources("src") {
        if !["run", "partition", "pipeline"].contains(&source.module()[0]) {
            continue;
        }
        for path in source.paths() {
            let path = path.join("::");
            let names = |known: &str| path == known || path.starts_with(&format!("{known}::"));
            if IMPURE.iter().any(|known| names(known)) || path == "Utc::now" {
                wrong.insert(format!("{}: {path}", source.path));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn only_one_file_knows_the_statuses_of_errors() {
    let harmless = ["OK", "CREATED", "ACCEPTED", "NO_CONTENT", "PARTIAL_CONTENT", "NOT_MODIFIED"];
    let mut wrong = BTreeSet::new();
    for source in sources("src").iter().filter(|s| s.path.starts_with("src/http/") && s.path != "src/http/problem.rs") {
        for path in source.paths() {
            let Some(at) = path.iter().position(|name| name == "StatusCode") else { continue };
            if path.get(at + 1).is_some_and(|status| !harmless.contains(&status.as_str())) {
                wrong.insert(format!("{}: {}", source.path, path.join("::")));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn files_are_short() {
    let lines = |source: &Source| source.text.lines().count();
    let long: Vec<String> = (sources("src").iter().chain(&sources("tests")))
        .filter(|source| lines(source) > MAX_LINES)
        .map(|source| format!("{}: {} lines, at most {MAX_LINES}", source.path, lines(source)))
        .collect();
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn nothing_is_left_for_later() {
    let marks = ["TODO", "FIXME", "XXX", "HACK", "todo!", "unimplemented!"];
    let mut wrong = Vec::new();
    for source in sources("src") {
        for (at, line) in source.text.lines().enumerate() {
            if marks.iter().any(|mark| line.contains(mark)) {
                wrong.push(format!("{}:{}: {}", source.path, at + 1, line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn migrations_are_twins() {
    let names = |store: &str| -> BTreeSet<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations").join(store);
        let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let (postgres, sqlite) = (names("postgres"), names("sqlite"));
    assert!(!postgres.is_empty(), "there are no migrations");
    assert_eq!(postgres, sqlite, "both stores have the same migrations by name");
}
