//! The page of the interface, and the list of its problems.

use super::App;
use axum::http::StatusCode;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

fn described() -> Value {
    serde_json::to_value(refrain::http::openapi()).unwrap()
}

async fn page() -> String {
    let answer = App::new().await.get("/docs").await;
    assert_eq!((answer.status, answer.header("content-type")), (StatusCode::OK, Some("text/html; charset=utf-8")));
    let policy = answer.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; ") && !policy.contains("http"), "{policy}");
    String::from_utf8(answer.body).unwrap()
}

/// What stands between `from` and the next `to`, each time.
fn between<'a>(text: &'a str, from: &'a str, to: char) -> BTreeSet<&'a str> {
    text.split(from).skip(1).map(|rest| rest.split(to).next().unwrap()).collect()
}

#[tokio::test]
async fn the_page_needs_no_network_and_no_script() {
    let page = page().await;
    let lower = page.to_lowercase();
    for loads in ["<script", "<link", "<img", "<iframe", "src=", "url(", "@import", "javascript:", "onclick", "onload"]
    {
        let found = lower.find(loads).map(|at| &lower[at..(at + 60).min(lower.len())]);
        assert_eq!(found, None);
    }
    let hosts = between(&page, "http://", '/');
    assert!(hosts.iter().all(|host| host.starts_with("127.0.0.1:8080")), "{hosts:?}");
    assert!(!page.contains("href=\"//") && !page.contains("href=\"http"), "it links elsewhere");
    let (links, places) = (between(&page, "href=\"#", '"'), between(&page, "id=\"", '"'));
    let lost: Vec<_> = links.difference(&places).collect();
    assert!(lost.is_empty() && links.len() > 30, "links that lead nowhere: {lost:?}");
}

#[tokio::test]
async fn every_route_is_on_the_page_with_all_that_the_description_says() {
    let page = page().await;
    let api = described();
    let mut operations = 0;
    for (path, methods) in api["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap();
            let section = page.split(&format!("<section id=\"{id}\">")).nth(1).unwrap_or_else(|| panic!("no {id}"));
            let section = section.split("</section>").next().unwrap();
            let mut expected = vec![format!("{}</span> {path}</code>", method.to_uppercase()), "<pre>curl".to_owned()];
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                expected.push(format!("<td><code>{}</code></td>", parameter["name"].as_str().unwrap()));
            }
            expected.extend(operation["responses"].as_object().unwrap().keys().map(|s| format!("<tr><td>{s}</td>")));
            if operation["requestBody"].is_object() {
                expected.extend(["<h4>Body</h4>".to_owned(), "--json".to_owned()]);
            }
            if let Some(scope) = operation["security"][0]["token"][0].as_str() {
                expected.extend([format!("<code>{scope}</code>"), "Authorization: Bearer $REFRAIN_TOKEN".to_owned()]);
            }
            for text in expected {
                assert!(section.contains(&text), "{id}: {text} is not in {section}");
            }
            assert!(!section.contains("$REFRAIN_URL/runs/{"), "{id}: {section}");
            operations += 1;
        }
    }
    assert!(operations >= 15, "{operations}");
    let schemas = api["components"]["schemas"].as_object().unwrap();
    assert!(schemas.keys().all(|name| page.contains(&format!("<section id=\"schema-{name}\">"))));
    assert!(page.contains("-H &#39;Idempotency-Key: zone_hour/2024-02/scheduled__2024-03-01&#39;"));
}

/// The names that are headings of `docs/problems.md`, by the part that they stand in.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut part = String::new();
    for line in read("docs/problems.md").lines() {
        if let Some(name) = line.strip_prefix("### ") {
            let added = found.entry(part.clone()).or_default().insert(name.to_owned());
            assert!(added, "{name} is there twice");
        } else if let Some(heading) = line.strip_prefix("## ") {
            heading.clone_into(&mut part);
        }
    }
    found
}

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Every Rust file below a folder but those of tests in `src`, without its own tests.
fn sources(folder: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = walkdir::WalkDir::new(root.join(folder)).into_iter().map(|entry| entry.unwrap().into_path());
    let rust = files.filter(|path| path.extension().is_some_and(|ext| ext == "rs"));
    let read = rust.map(|path| {
        let relative = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        (relative, text)
    });
    read.collect()
}

/// Texts such as `"source-missing"` with what stands before and behind each.
fn names(text: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    text.match_indices('"').filter_map(move |(at, _)| {
        let rest = &text[at + 1..];
        let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '-')?;
        (end > 0 && rest[end..].starts_with('"')).then(|| (&text[..at], &rest[..end], &rest[end + 1..]))
    })
}

/// Whether a name is followed by a title: `"source-missing", "A source file is missing"`.
fn has_title(behind: &str) -> bool {
    let next = behind.trim_start().strip_prefix(',').map(str::trim_start).and_then(|rest| rest.strip_prefix('"'));
    next.is_some_and(|title| title.starts_with(|c: char| c.is_ascii_uppercase()))
}

#[test]
fn the_problems_of_answers_are_those_of_the_code_and_each_is_provoked() {
    let code = read("src/http/problem.rs");
    let kinds: BTreeSet<String> = names(&code)
        .filter(|(before, _, _)| {
            let before = before.trim_end();
            before.ends_with(',')
                && before.rsplit('(').next().is_some_and(|s| s.starts_with("S::") || s.starts_with("*st"))
        })
        .map(|(_, name, _)| name.to_owned())
        .collect();
    assert!(kinds.len() > 20, "{kinds:?}");
    assert_eq!(documented()["Answers"], kinds, "left: docs/problems.md, right: src/http/problem.rs");
    let mut tests: String = sources("tests/it")
        .into_iter()
        .filter(|(path, _)| !path.ends_with("http/docs.rs"))
        .map(|(_, text)| text)
        .collect();
    tests += code.split("mod tests {").nth(1).unwrap();
    // As `problem(404, "run-not-found")`, as `"404 run-not-found"`, or as the whole name.
    let by_status =
        |before: &str| before.ends_with(", ") && before.rsplit("problem(").next().is_some_and(|s| s.len() < 9);
    let provoked = |name: &&String| {
        let quoted = format!("\"{name}\"");
        let with_status = tests.match_indices(&quoted).any(|(at, _)| by_status(&tests[..at]));
        let in_words = tests.match_indices(&format!(" {name}\"")).any(|(at, _)| {
            let status = tests[..at].rsplit('"').next().and_then(|status| status.parse().ok());
            status.is_some_and(|status: u16| (400..600).contains(&status))
        });
        with_status || in_words || tests.contains(&format!("urn:refrain:problem:{name}\""))
    };
    let missing: Vec<&String> = kinds.iter().filter(|name| !provoked(name)).collect();
    assert!(missing.is_empty(), "no test provokes {missing:?}");
}

#[test]
fn the_errors_and_warnings_of_runs_are_those_of_the_code_and_each_is_provoked() {
    let (mut errors, mut warnings) = (BTreeSet::new(), BTreeSet::new());
    let tests = sources("tests/it").into_iter().filter(|(path, _)| !path.ends_with("http/docs.rs"));
    let mut tests: String = tests.map(|(_, text)| text).collect();
    for (path, text) in sources("src") {
        if ["src/http/", "src/client", "src/demo", "src/store/tx.rs"].iter().any(|other| path.starts_with(other)) {
            continue;
        }
        if path.contains("tests") {
            continue;
        }
        let mut parts = text.split("#[cfg(test)]\nmod tests {");
        let text = parts.next().unwrap();
        tests.extend(parts);
        for (before, name, behind) in names(text) {
            let is_text = before.ends_with("&'static str = ") || before.ends_with(": &str = ");
            // What ends in a hyphen is the beginning of a file's name.
            let is_constant = is_text && name.contains('-') && !name.ends_with('-');
            if before.ends_with("kind: ") && !behind.starts_with(".to_owned(),\n        title") && is_warning(before) {
                warnings.insert(name.to_owned());
            } else if before.ends_with("kind: ") || has_title(behind) || is_constant {
                errors.insert(name.to_owned());
            }
        }
    }
    assert_eq!(documented()["Errors of runs"], errors, "left: docs/problems.md, right: the code");
    assert_eq!(documented()["Warnings of runs"], warnings, "left: docs/problems.md, right: the code");
    let provoked = |name: &&String| tests.contains(&format!("\"{name}\"")) || tests.contains(&format!(":{name}\""));
    let missing: Vec<&String> = errors.union(&warnings).filter(|name| !provoked(name)).collect();
    assert!(missing.is_empty(), "no test provokes {missing:?}");
}

/// Whether what is being written down just there is a warning.
fn is_warning(before: &str) -> bool {
    before.rfind("Warning {") > before.rfind("RunError {")
}

#[test]
fn each_problem_has_its_cause_and_its_cure() {
    for entry in read("docs/problems.md").split("\n### ").skip(1) {
        let entry = entry.split("\n## ").next().unwrap();
        for part in ["\n- **Cause**: ", "\n- **Cure**: "] {
            assert!(entry.contains(part), "{part}: {entry}");
        }
    }
}
