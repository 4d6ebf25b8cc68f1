//! Prometheus's text format, read as strictly as its rules are: what `promtool check metrics` looks at, and more.

use std::collections::{BTreeMap, BTreeSet};

/// A metric with all its samples.
#[derive(Debug, Default)]
pub(super) struct Family {
    pub(super) kind: String,
    pub(super) help: String,
    pub(super) samples: Vec<Sample>,
}

#[derive(Debug, Clone)]
pub(super) struct Sample {
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) value: f64,
}

impl Family {
    /// The sum of the samples that have these labels.
    pub(super) fn sum(&self, labels: &[(&str, &str)]) -> Option<f64> {
        let has =
            |sample: &&Sample| labels.iter().all(|(name, value)| sample.labels.get(*name).is_some_and(|v| v == value));
        let found: Vec<f64> = self.samples.iter().filter(has).map(|sample| sample.value).collect();
        (!found.is_empty()).then(|| found.iter().sum())
    }
}

/// Reads all metrics, or says what is wrong.
pub(super) fn parse(text: &str) -> Result<BTreeMap<String, Family>, String> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    if !text.ends_with('\n') {
        return Err("the last line has no end".to_owned());
    }
    for (at, line) in text.lines().enumerate() {
        let wrong = |why: &str| format!("line {}: {why}: {line}", at + 1);
        if line.is_empty() {
            continue;
        }
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').ok_or_else(|| wrong("no help"))?;
            if families.contains_key(name) {
                return Err(wrong("told before"));
            }
            current = name.to_owned();
            families.insert(current.clone(), Family { help: help.to_owned(), ..Family::default() });
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').ok_or_else(|| wrong("no type"))?;
            let family =
                families.get_mut(name).filter(|_| name == current).ok_or_else(|| wrong("the type before the help"))?;
            if !family.kind.is_empty() || !["counter", "gauge", "histogram"].contains(&kind) {
                return Err(wrong("a second or unknown type"));
            }
            family.kind = kind.to_owned();
        } else if line.starts_with('#') {
            return Err(wrong("a comment"));
        } else {
            let sample = sample(line).ok_or_else(|| wrong("no sample"))?;
            let family = families.get_mut(&current).ok_or_else(|| wrong("a sample before its type"))?;
            if family.kind.is_empty() || !belongs(&sample.name, &current, &family.kind) {
                return Err(wrong("a sample of another metric, or before its type"));
            }
            family.samples.push(sample);
        }
    }
    families.iter().try_for_each(|(name, family)| check(name, family))?;
    Ok(families)
}

fn belongs(sample: &str, family: &str, kind: &str) -> bool {
    match kind {
        "histogram" => sample.strip_prefix(family).is_some_and(|end| ["_bucket", "_sum", "_count"].contains(&end)),
        _ => sample == family,
    }
}

fn sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once("=\"")?;
            let (value, after) = label_value(after)?;
            if !is_name(label, false) || labels.insert(label.to_owned(), value).is_some() {
                return None;
            }
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        rest = rest.strip_prefix('}')?;
    }
    let value = rest.strip_prefix(' ')?;
    let value = match value {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        number => number.parse().ok().filter(|_| !number.contains(|c: char| c.is_ascii_uppercase()))?,
    };
    is_name(name, true).then(|| Sample { name: name.to_owned(), labels, value })
}

/// The value up to its closing quote, unescaped, and what follows.
fn label_value(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                c @ ('"' | '\\') => c,
                _ => return None,
            }),
            c => value.push(c),
        }
    }
    None
}

fn is_name(text: &str, colons: bool) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || (colons && c == ':');
    !text.is_empty()
        && text.chars().all(fits)
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && !text.starts_with("__")
}

/// What must hold of a whole metric.
fn check(name: &str, family: &Family) -> Result<(), String> {
    let wrong = |why: &str| Err(format!("{name}: {why}"));
    if family.help.trim().is_empty() || family.samples.is_empty() {
        return wrong("no help, or no samples");
    }
    if (family.kind == "counter") != name.ends_with("_total") {
        return wrong("counters, and no others, end in _total");
    }
    let words: Vec<&str> = name.split('_').collect();
    let units =
        ["milliseconds", "ms", "minutes", "hours", "days", "kilobytes", "megabytes", "mb", "kb", "percent", "bits"];
    if words.iter().any(|word| units.contains(word)) || words.contains(&family.kind.as_str()) {
        return wrong("a unit that is no base unit, or its type in its name");
    }
    if ["_count", "_sum", "_bucket"].iter().any(|end| name.ends_with(end)) {
        return wrong("a name that is a histogram's part");
    }
    let mut seen = BTreeSet::new();
    for sample in &family.samples {
        if !seen.insert((&sample.name, &sample.labels)) {
            return Err(format!("{name}: a sample that is there twice: {sample:?}"));
        }
        if family.kind != "gauge" && !(sample.value >= 0.0 && sample.value.is_finite()) {
            return Err(format!("{name}: no count: {sample:?}"));
        }
    }
    let names = |sample: &Sample| sample.labels.keys().filter(|n| *n != "le").cloned().collect::<Vec<_>>();
    if family.samples.iter().any(|sample| names(sample) != names(&family.samples[0])) {
        return wrong("samples with different labels");
    }
    if family.kind == "histogram" { check_histogram(name, family) } else { Ok(()) }
}

/// The parts of a histogram with the same labels.
#[derive(Default)]
struct Series {
    buckets: Vec<(f64, f64)>,
    sum: Option<f64>,
    count: Option<f64>,
}

fn check_histogram(name: &str, family: &Family) -> Result<(), String> {
    let mut series: BTreeMap<_, Series> = BTreeMap::new();
    for sample in &family.samples {
        let mut labels = sample.labels.clone();
        let bound = labels.remove("le");
        let one = series.entry(labels).or_default();
        match (sample.name.strip_prefix(name), bound.as_deref()) {
            (Some("_bucket"), Some("+Inf")) => one.buckets.push((f64::INFINITY, sample.value)),
            (Some("_bucket"), Some(bound)) => {
                one.buckets.push((bound.parse().map_err(|_| format!("{name}: {bound}"))?, sample.value))
            }
            (Some("_sum"), None) => one.sum = Some(sample.value),
            (Some("_count"), None) => one.count = Some(sample.value),
            _ => return Err(format!("{name}: {sample:?}")),
        }
    }
    for (labels, Series { buckets, sum, count }) in series {
        let rising = buckets.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
        let last = buckets.last().copied();
        if !rising || buckets.len() < 3 || sum.is_none() || last != count.map(|count| (f64::INFINITY, count)) {
            return Err(format!("{name}: not a histogram for {labels:?}: {buckets:?}, sum {sum:?}, count {count:?}"));
        }
    }
    Ok(())
}

#[test]
fn what_is_not_valid_is_found() {
    let good = "# HELP a_total x\n# TYPE a_total counter\na_total{b=\"c\\\"\"} 1\n";
    assert!(parse(good).is_ok());
    let head = "# HELP h x\n# TYPE h histogram\n";
    let histogram = |buckets: &str| format!("{head}{buckets}h_sum 1\nh_count 2\n");
    assert!(parse(&histogram("h_bucket{le=\"1\"} 1\nh_bucket{le=\"2\"} 2\nh_bucket{le=\"+Inf\"} 2\n")).is_ok());
    for bad in [
        "a_total 1\n".to_owned(),
        "# TYPE a_total counter\na_total 1\n".to_owned(),
        "# HELP a x\n# TYPE a counter\na 1\n".to_owned(),
        "# HELP a_total x\n# TYPE a_total gauge\na_total 1\n".to_owned(),
        "# HELP a x\n# TYPE a gauge\na{b=\"1\",b=\"2\"} 1\n".to_owned(),
        "# HELP a x\n# TYPE a gauge\na 1\na 1\n".to_owned(),
        "# HELP a x\n# TYPE a gauge\na 1\na{b=\"c\"} 1\n".to_owned(),
        "# HELP a x\n# TYPE a gauge\n# HELP a x\na 1\n".to_owned(),
        "# HELP a_ms x\n# TYPE a_ms gauge\na_ms 1\n".to_owned(),
        "# HELP a x\n# TYPE a gauge\n9a 1\n".to_owned(),
        "# HELP a x\n# TYPE a gauge\na{b=\"\\c\"} 1\n".to_owned(),
        "# HELP a_total x\n# TYPE a_total counter\na_total -1\n".to_owned(),
        "# HELP a x\n# TYPE a gauge\na 1".to_owned(),
        histogram("h_bucket{le=\"1\"} 2\nh_bucket{le=\"2\"} 1\nh_bucket{le=\"+Inf\"} 2\n"),
        histogram("h_bucket{le=\"1\"} 1\nh_bucket{le=\"2\"} 2\nh_bucket{le=\"+Inf\"} 3\n"),
        histogram("h_bucket{le=\"1\"} 1\nh_bucket{le=\"2\"} 2\n"),
    ] {
        assert!(parse(&bad).is_err(), "{bad}");
    }
}
