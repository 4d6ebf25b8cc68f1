//! The properties.

use crate::http::problem::{FieldError, Problem};
use crate::http::{runs, submission};
use crate::partition::{PartitionKey, PartitionSpec, folder_value};
use crate::pipeline::sources::{self, Listing, Serves};
use crate::pipeline::{self, Definition};
use crate::run::{IdempotencyKey, RunError, Scope};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The longest folder name that file systems take.
const MAX_FOLDER_BYTES: usize = 255;

/// The most partitions of a range or a request.
const MAX_PARTITIONS: usize = 200;

/// Pipelines whose partition columns are of every kind.
static DEFINITIONS: LazyLock<Vec<Definition>> = LazyLock::new(|| {
    let columns = "at = \"datetime\"\nzoned = \"datetime(Europe/Berlin)\"\nday = \"date\"\nkind = \"string\"\nsize = \"int8\"\n\
                   price = \"decimal(9,2)\"\nflag = \"bool\"";
    [
        "month = { month_of = \"at\" }",
        "event_date = { day_of = \"zoned\" }\nhour = { hour_of_day = \"zoned\" }",
        "year = { year_of = \"at\" }\nhour = { hour_of = \"at\" }",
        "kind = { value_of = \"kind\" }",
        "kind = { value_of = \"kind\" }\nsize = { value_of = \"size\" }",
        "price = { value_of = \"price\" }\nflag = { value_of = \"flag\" }\nday = { value_of = \"day\" }\nat = { value_of = \"at\" }",
        "from = { value_of = \"kind\" }\nto = { value_of = \"size\" }",
    ]
    .map(|partition| {
        let text = format!(
            "name = \"t\"\n[source]\nformat = \"parquet\"\npath = \"in/*\"\n[source.columns]\n{columns}\n[partition]\n{partition}\n\
             [measures]\nn = \"count(*)\"\n"
        );
        pipeline::parse(&text, "t").unwrap_or_else(|errors| panic!("{text}\n{errors:?}"))
    })
    .into()
});

/// A text, or several by lines, as a request writes partitions, and as a path.
pub fn partition_key(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for spec in DEFINITIONS.iter().map(|definition| &definition.partition) {
        if let Ok(key) = spec.parse_text(text) {
            check_key(spec, &key);
        }
        let lines: Vec<&str> = text.split('\n').collect();
        if let [from, to] = lines[..]
            && let Ok(keys) = spec.range(from, to, MAX_PARTITIONS)
        {
            assert!((1..=MAX_PARTITIONS).contains(&keys.len()) && keys.is_sorted_by(|a, b| a < b), "{keys:?}");
            keys.iter().for_each(|key| check_key(spec, key));
        }
        let columns = spec.columns().iter().map(|column| column.name.clone());
        let object: BTreeMap<String, String> = columns.zip(lines.iter().map(ToString::to_string)).collect();
        if let Ok(key) = spec.parse_object(&object) {
            check_key(spec, &key);
            for (name, value) in &object {
                let read = folder_value(&format!("raw/{key}/part-0.parquet"), name);
                assert_eq!(read.as_ref(), Some(&Some(value.clone())), "{key}");
            }
        }
    }
    if let [path, key] = text.split('\n').collect::<Vec<_>>()[..] {
        let _ = folder_value(path, key);
    }
}

/// A key that exists is a good one.
fn check_key(spec: &PartitionSpec, key: &PartitionKey) {
    let text = key.as_str();
    assert_eq!(spec.parse_key(text).as_ref(), Ok(key));
    assert_eq!(spec.parse_text(text).as_ref(), Ok(key));
    let values = spec.values(key).unwrap_or_else(|| panic!("{key} has no values"));
    assert_eq!(spec.key(&values).as_ref(), Some(key), "{values:?}");
    let folders: Vec<&str> = text.split('/').collect();
    assert_eq!(folders.len(), spec.columns().len(), "{key}");
    for (folder, column) in folders.iter().zip(spec.columns()) {
        assert!(folder.len() <= MAX_FOLDER_BYTES && folder.contains('='), "{key}");
        assert!(!folder.contains(|c: char| c.is_ascii_control() || "\"#*'?\\{[]^:".contains(c)), "{key}");
        let texts = folder_value(&format!("{key}/x"), &column.name);
        assert!(matches!(texts, Some(Some(_))), "{key}: {texts:?}");
    }
    if let Some(period) = spec.period(key) {
        assert!(period.start < period.end, "{key}: {period:?}");
        let here = spec.time_values(period.start);
        assert!(here.iter().zip(&values).all(|(here, value)| here.as_ref().is_none_or(|here| here == value)), "{key}");
    }
}

/// A pipeline file.
pub fn pipeline_file(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let definition = match pipeline::parse(text, "a.toml") {
        Ok(definition) => definition,
        Err(errors) => {
            assert!(!errors.is_empty());
            for error in errors {
                assert!(error.to_string().starts_with("a.toml: "), "{error}");
            }
            return;
        }
    };
    let again = pipeline::parse(text, "b.toml").unwrap_or_else(|errors| panic!("{errors:?}"));
    assert_eq!((&again.hash, &again.text), (&definition.hash, &definition.text));
    // Comments make no difference.
    if let Ok(commented) = pipeline::parse(&format!("# x\n{text}"), "c.toml") {
        assert_eq!(commented.hash, definition.hash);
    }
    let spec = &definition.partition;
    let key = match spec.range("2024-02", "2024-02", 1).or_else(|_| spec.range("2024-02-29", "2024-02-29", 1)) {
        Ok(keys) => keys,
        Err(_) => spec.parse_text("2024").into_iter().collect(),
    };
    for scope in [Scope::Full, Scope::Partitions(key)] {
        if let Ok(plan) = sources::plan(&definition, &scope, &Everything) {
            assert!(plan.files.is_sorted_by(|a, b| a.path < b.path), "{plan:?}");
            for file in &plan.files {
                assert!(!matches!(&file.serves, Serves::Keys(keys) if keys.is_empty()), "{file:?}");
            }
        }
    }
}

/// Every file is there, and a glob finds one.
struct Everything;

impl Listing for Everything {
    fn are_files(&self, paths: &[String]) -> Result<Vec<bool>, RunError> {
        Ok(vec![true; paths.len()])
    }

    fn glob(&self, pattern: &str) -> Result<Vec<String>, RunError> {
        let file = pattern.replace("[0-9]", "1").replace(['*', '?'], "1");
        Ok(vec![file])
    }
}

/// A submission's body. The first line may be an idempotency key.
pub fn request_body(data: &[u8]) {
    let body = match data.iter().position(|byte| *byte == b'\n') {
        Some(end) if !data.starts_with(b"{") => {
            idempotency_key(&data[..end]);
            &data[end + 1..]
        }
        _ => data,
    };
    let request = match submission(body) {
        Ok(request) => request,
        Err(Problem::NotJson(detail)) => return assert!(detail.starts_with("the body is not JSON: "), "{detail}"),
        Err(Problem::InvalidRequest(errors)) => return check_errors(&errors),
    };
    for definition in DEFINITIONS.iter() {
        match runs::read(&request, definition, MAX_PARTITIONS) {
            Err(errors) => check_errors(&errors),
            Ok(asked) => {
                let keys = &asked.partitions.0;
                assert!(keys.len() <= MAX_PARTITIONS && keys.is_sorted_by(|a, b| a < b), "{keys:?}");
                keys.iter().for_each(|key| check_key(&definition.partition, key));
                assert_eq!(runs::read_again(&request, &asked, definition).as_ref(), Some(&asked));
                assert_eq!(runs::differences(&request, &asked, Some(definition)), [""; 0]);
                check_canonical(&request, &asked, definition);
            }
        }
    }
}

/// The same asked in canonical form, and read from the database, is the same.
fn check_canonical(request: &runs::SubmitRequest, asked: &crate::run::Asked, definition: &Definition) {
    let mut canonical = request.clone();
    if canonical.partitions.is_some() && asked.only.is_none() {
        let texts: Vec<&str> = asked.partitions.0.iter().map(PartitionKey::as_str).collect();
        let body = serde_json::json!({ "pipeline": asked.pipeline, "partitions": texts }).to_string();
        match submission(body.as_bytes()) {
            Ok(request) => canonical.partitions = request.partitions,
            Err(problem) => panic!("{body}: {problem:?}"),
        }
    }
    let again = runs::read(&canonical, definition, MAX_PARTITIONS).unwrap_or_else(|errors| panic!("{errors:?}"));
    assert_eq!(again.fingerprint(), asked.fingerprint());
    let stored = serde_json::to_string(asked).and_then(|text| serde_json::from_str::<crate::run::Asked>(&text));
    assert_eq!(stored.unwrap_or_else(|e| panic!("{e}")), *asked);
}

fn check_errors(errors: &[FieldError]) {
    assert!(!errors.is_empty());
    for error in errors {
        assert!(error.pointer.is_empty() || error.pointer.starts_with('/'), "{error:?}");
        assert!(!error.detail.is_empty(), "{error:?}");
    }
}

fn idempotency_key(data: &[u8]) {
    if let Ok(key) = IdempotencyKey::parse(&String::from_utf8_lossy(data)) {
        assert!((1..=255).contains(&key.as_str().len()), "{key:?}");
        assert!(key.as_str().bytes().all(|byte| byte.is_ascii_graphic()), "{key:?}");
        // Quoted it is the same key.
        let quoted = (!key.as_str().contains('"')).then(|| IdempotencyKey::parse(&format!("\"{}\"", key.as_str())));
        assert!(quoted.is_none_or(|quoted| quoted.as_ref() == Ok(&key)), "{key:?}");
    }
}
