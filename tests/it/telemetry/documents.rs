//! What people who are on call rely on: alerts, the dashboard, the runbook, and that they speak of the same things.

use refrain::telemetry::METRICS;
use std::collections::BTreeSet;
use std::path::Path;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The metrics that a text names: what begins like one of ours.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = |word: &&str| (word.starts_with("refrain_") && word.len() > 8) || word.starts_with("process_");
    words.filter(ours).map(str::to_owned).collect()
}

/// The metric of a sample: that of a histogram's part.
fn metric(name: &str) -> Option<&'static str> {
    let ends = ["", "_bucket", "_sum", "_count"];
    METRICS
        .iter()
        .map(|(known, _, _)| *known)
        .find(|known| name.strip_prefix(known).is_some_and(|end| ends.contains(&end)))
}

#[test]
fn alerts_and_dashboard_use_metrics_that_there_are() {
    let (alerts, dashboard) = (read("ops/alerts.yml"), read("ops/grafana/refrain.json"));
    let json: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    let mut used = BTreeSet::new();
    let expressions = json["panels"].as_array().unwrap().iter().flat_map(|panel| panel["targets"].as_array());
    let expressions: String =
        expressions.flatten().map(|target| target["expr"].as_str().unwrap().to_owned() + "\n").collect();
    for name in named(&alerts).into_iter().chain(named(&expressions)) {
        used.insert(metric(&name).unwrap_or_else(|| panic!("{name} is no metric of ours")));
    }
    let unused: Vec<&str> = METRICS.iter().map(|(name, _, _)| *name).filter(|name| !used.contains(name)).collect();
    assert!(unused.is_empty(), "neither an alert nor a panel shows {unused:?}");
}

#[test]
fn each_alert_has_its_section_in_the_runbook_and_each_section_its_alert() {
    let (alerts, runbook) = (read("ops/alerts.yml"), read("docs/runbook.md"));
    let of = |text: &str, start: &str| -> Vec<String> {
        text.lines().filter_map(|line| line.trim().strip_prefix(start)).map(|name| name.trim().to_owned()).collect()
    };
    let alerts_named = of(&alerts, "- alert: ");
    let sections: Vec<String> =
        of(&runbook, "### ").into_iter().filter(|section| section.starts_with("Refrain")).collect();
    assert!(alerts_named.len() > 10);
    assert_eq!(alerts_named, sections, "in the same order");
    let links = of(&alerts, "runbook: ");
    let expected: Vec<String> =
        alerts_named.iter().map(|name| format!("docs/runbook.md#{}", name.to_lowercase())).collect();
    assert_eq!(links, expected);
}

#[test]
fn the_runbook_names_metrics_that_there_are() {
    for name in named(&read("docs/runbook.md")) {
        assert!(metric(&name).is_some(), "{name} is no metric of ours");
    }
}
