#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use PartitionValue::Int;

struct Files(BTreeSet<String>);

impl Listing for Files {
    fn are_files(&self, paths: &[String]) -> Result<Vec<bool>, RunError> {
        match paths.iter().find(|path| *path == "locked") {
            Some(path) => {
                Err(failure("source-unreachable", "A source cannot be read", format!("{path}: permission denied")))
            }
            None => Ok(paths.iter().map(|path| self.0.contains(path)).collect()),
        }
    }

    fn glob(&self, pattern: &str) -> Result<Vec<String>, RunError> {
        let glob = glob::Pattern::new(pattern).unwrap();
        let whole = glob::MatchOptions { require_literal_separator: true, ..glob::MatchOptions::new() };
        Ok(self.0.iter().filter(|path| glob.matches_with(path, whole)).cloned().collect())
    }
}

fn files(paths: &[&str]) -> Files {
    Files(paths.iter().map(ToString::to_string).collect())
}

fn definition(paths: &str, neighbours: u32, partition: &str) -> Definition {
    let neighbours = if neighbours > 0 { format!("neighbours = {neighbours}") } else { String::new() };
    let text = format!(
        "name = \"t\"\n[source]\nformat = \"parquet\"\npath = {paths}\n{neighbours}\n[source.columns]\nat = \"datetime\"\n\
         kind = \"string\"\n[partition]\n{partition}\n[measures]\nrows = \"count(*)\"\n"
    );
    crate::pipeline::parse(&text, "t").unwrap_or_else(|errors| unreachable!("{errors:?}"))
}

const MONTHS: &str = "m = { month_of = \"at\" }";
const HOURS: &str = "d = { day_of = \"at\" }\nh = { hour_of_day = \"at\" }";

fn keys(keys: &[&str]) -> Scope {
    Scope::Partitions(keys.iter().map(|key| PartitionKey::from_canonical(*key)).collect())
}

/// Each file with what it serves, short.
fn planned(definition: &Definition, scope: &Scope, listing: &Files) -> Result<Vec<String>, String> {
    let plan = plan(definition, scope, listing).map_err(|error| {
        assert_eq!((error.class, error.kind.as_str()), (FailureClass::Source, "source-missing"));
        error.detail
    })?;
    let served = |file: &PlannedFile| match &file.serves {
        Serves::Scope => format!("{} all", file.path),
        Serves::Keys(keys) => {
            format!("{} {}", file.path, keys.iter().map(PartitionKey::as_str).collect::<Vec<_>>().join(" "))
        }
        Serves::Times(times) => {
            format!("{} {}", file.path, times.iter().map(|t| short(t)).collect::<Vec<_>>().join(" "))
        }
    };
    Ok(plan.files.iter().map(served).collect())
}

fn short(times: &[Option<PartitionValue>]) -> String {
    let parts = times.iter().map(|value| match value {
        Some(Int(count)) => count.to_string(),
        other => format!("{other:?}"),
    });
    parts.collect::<Vec<_>>().join("/")
}

const QUARTER: [&str; 3] = ["y2024-01", "y2024-02", "y2024-03"];

#[test]
fn a_template_gives_each_partition_its_file_and_its_neighbours() {
    let own = definition("\"y%Y-%m\"", 0, MONTHS);
    let scope = keys(&["m=2024-02", "m=2024-03"]);
    assert_eq!(planned(&own, &scope, &files(&QUARTER)).unwrap(), ["y2024-02 m=2024-02", "y2024-03 m=2024-03"]);
    let wide = definition("\"y%Y-%m\"", 1, MONTHS);
    let expected = ["y2024-01 m=2024-02", "y2024-02 m=2024-02 m=2024-03", "y2024-03 m=2024-02 m=2024-03"];
    assert_eq!(planned(&wide, &scope, &files(&QUARTER)).unwrap(), expected, "neighbours may be absent");
    assert_eq!(planned(&wide, &keys(&[]), &files(&QUARTER)).unwrap(), [""; 0]);
}

#[test]
fn a_partition_without_its_own_files_fails() {
    let wide = definition("\"y%Y-%m\"", 1, MONTHS);
    let error = planned(&wide, &keys(&["m=2024-02", "m=2024-04"]), &files(&QUARTER)).unwrap_err();
    assert_eq!(error, "y2024-04 does not exist, and m=2024-04 needs it");
    let days = definition("\"%Y-%m-%d\"", 0, MONTHS);
    let error = planned(&days, &keys(&["m=2024-02"]), &files(&["2024-02-01"])).unwrap_err();
    assert!(error.starts_with("2024-02-02 does not exist, and m=2024-02 needs it; 2024-02-03"), "{error}");
    assert!(error.ends_with("; and 25 more"), "{error}");
}

#[test]
fn templates_may_be_finer_or_coarser_than_partitions() {
    let days: Vec<String> = (1..=29).map(|day| format!("2024/2/{day}")).collect();
    let days: Vec<&str> = days.iter().map(String::as_str).chain(["2024/1/31", "2024/1/30", "2024/3/1"]).collect();
    let by_day = definition("\"%Y/%-m/%-d\"", 1, MONTHS);
    let found = planned(&by_day, &keys(&["m=2024-02"]), &files(&days)).unwrap();
    assert_eq!(found.len(), 31);
    assert!(found.contains(&"2024/1/31 m=2024-02".to_owned()) && !found.contains(&"2024/1/30 m=2024-02".to_owned()));
    let by_year = definition("\"%Y\"", 0, MONTHS);
    let found = planned(&by_year, &keys(&["m=2024-02", "m=2024-12"]), &files(&["2023", "2024"])).unwrap();
    assert_eq!(found, ["2024 m=2024-02 m=2024-12"]);
    let hours = definition("\"%Y-%m-%d\"", 1, HOURS);
    let found = planned(&hours, &keys(&["d=2024-02-29/h=23"]), &files(&["2024-02-29", "2024-03-01"])).unwrap();
    assert_eq!(found, ["2024-02-29 d=2024-02-29/h=23", "2024-03-01 d=2024-02-29/h=23"]);
}

#[test]
fn hours_have_their_files_by_day_and_hour() {
    let hourly = definition("\"raw/%Y-%m-%d-%-H.json.gz\"", 1, HOURS);
    let there = files(&["raw/2014-12-31-23.json.gz", "raw/2015-01-01-0.json.gz", "raw/2015-01-01-1.json.gz"]);
    let midnight = ["raw/2014-12-31-23.json.gz", "raw/2015-01-01-0.json.gz", "raw/2015-01-01-1.json.gz"];
    let expected = midnight.map(|path| format!("{path} d=2015-01-01/h=00"));
    assert_eq!(planned(&hourly, &keys(&["d=2015-01-01/h=00"]), &there).unwrap(), expected);
    let own = definition("\"raw/%Y-%m-%d-%-H.json.gz\"", 0, HOURS);
    let expected = ["raw/2015-01-01-1.json.gz d=2015-01-01/h=01"];
    assert_eq!(planned(&own, &keys(&["d=2015-01-01/h=01"]), &there).unwrap(), expected);
    let error = planned(&own, &keys(&["d=2015-01-01/h=10"]), &there).unwrap_err();
    assert_eq!(error, "raw/2015-01-01-10.json.gz does not exist, and d=2015-01-01/h=10 needs it");
    let full =
        ["raw/2014-12-31-23.json.gz 16435/23", "raw/2015-01-01-0.json.gz 16436/0", "raw/2015-01-01-1.json.gz 16436/1"];
    assert_eq!(planned(&own, &Scope::Full, &there).unwrap(), full);
    let one_column = definition("\"raw/%Y-%m-%d-%-H.json.gz\"", 0, "t = { hour_of = \"at\" }");
    let expected = ["raw/2015-01-01-0.json.gz t=2015-01-01T00"];
    assert_eq!(planned(&one_column, &keys(&["t=2015-01-01T00"]), &there).unwrap(), expected);
    let folders = definition("\"raw/date=%Y-%m-%d/hour=%H/events.ndjson\"", 0, HOURS);
    let there = files(&["raw/date=2015-01-01/hour=09/events.ndjson"]);
    let expected = ["raw/date=2015-01-01/hour=09/events.ndjson d=2015-01-01/h=09"];
    assert_eq!(planned(&folders, &keys(&["d=2015-01-01/h=09"]), &there).unwrap(), expected);
}

#[test]
fn plain_paths_and_globs_serve_every_partition() {
    let mixed = definition("[\"in/**/*.parquet\", \"extra\", \"y%Y-%m\"]", 0, MONTHS);
    let there = ["in/a.parquet", "in/b/c.parquet", "in/d.txt", "extra", "y2024-01"];
    let expected = ["extra all", "in/a.parquet all", "in/b/c.parquet all", "y2024-01 m=2024-01"];
    assert_eq!(planned(&mixed, &keys(&["m=2024-01"]), &files(&there)).unwrap(), expected);
    let twice = definition("[\"y*\", \"y2024-01\", \"y%Y-%m\"]", 0, MONTHS);
    assert_eq!(
        planned(&twice, &keys(&["m=2024-01"]), &files(&QUARTER)).unwrap(),
        ["y2024-01 all", "y2024-02 all", "y2024-03 all"]
    );
}

#[test]
fn files_that_are_no_data_are_left_out() {
    let glob = definition("\"_in/**/*\"", 0, MONTHS);
    let there = ["_in/a", "_in/_SUCCESS", "_in/.a.crc", "_in/b.crc", "_in/_temporary/0/c", "_in/_p=1/d"];
    assert_eq!(planned(&glob, &Scope::Full, &files(&there)).unwrap(), ["_in/_p=1/d all", "_in/a all"]);
    let split = definition("\"in/**/*\"", 0, MONTHS);
    let there =
        ["in/_metadata", "in/_common_metadata", "in/_SUCCESS", "in/cat=fred/p.parquet", "in/cat=freda/p.parquet.crc"];
    assert_eq!(planned(&split, &Scope::Full, &files(&there)).unwrap(), ["in/cat=fred/p.parquet all"]);
}

#[test]
fn what_matches_nothing_is_missing_in_full_too() {
    for (paths, detail) in [
        ("\"a\"", "a does not exist"),
        ("[\"y*\", \"z*\"]", "z* matches no file (names that start with . or _ or end in .crc do not count)"),
        ("\"z%Y\"", "z%Y matches no file"),
    ] {
        let definition = definition(paths, 0, MONTHS);
        assert_eq!(planned(&definition, &Scope::Full, &files(&QUARTER)).unwrap_err(), detail);
    }
    let locked = definition("\"locked\"", 0, MONTHS);
    let error = plan(&locked, &Scope::Full, &files(&[])).unwrap_err();
    assert_eq!((error.kind.as_str(), error.detail.as_str()), ("source-unreachable", "locked: permission denied"));
}

#[test]
fn full_makes_the_partitions_that_have_their_own_files() {
    let wide = definition("\"y%Y-%m\"", 1, MONTHS);
    let there = files(&["y2024-01", "y2024-02", "y2024-04", "y2024-13", "yesterday"]);
    let (jan, feb, apr) = (24288, 24289, 24291);
    assert_eq!(
        planned(&wide, &Scope::Full, &there).unwrap(),
        [format!("y2024-01 {jan} {feb}"), format!("y2024-02 {jan} {feb}"), format!("y2024-04 {apr}"),]
    );
    let also_plain = definition("[\"y%Y-%m\", \"yesterday\"]", 0, MONTHS);
    let found = planned(&also_plain, &Scope::Full, &there).unwrap();
    assert_eq!(found.last().unwrap(), &format!("yesterday {jan} {feb} {apr}"), "of March no partition is made");
    let two = definition("[\"y%Y-%m\", \"z%Y-%m\"]", 0, MONTHS);
    let error = planned(&two, &Scope::Full, &files(&["y2024-01", "y2024-02", "z2024-02"])).unwrap_err();
    assert!(error.starts_with("z2024-01 does not exist, and the partition from 2024-01-01"), "{error}");
}

#[test]
fn full_with_finer_and_coarser_templates() {
    let days = definition("\"%Y-%m-%d\"", 0, MONTHS);
    let error = planned(&days, &Scope::Full, &files(&["2024-02-28"])).unwrap_err();
    assert!(error.starts_with("2024-02-01 does not exist") && error.ends_with("and 25 more"), "{error}");
    let year = definition("\"%Y\"", 0, MONTHS);
    let all = (24288..=24299).map(|month| month.to_string()).collect::<Vec<_>>().join(" ");
    assert_eq!(planned(&year, &Scope::Full, &files(&["2024"])).unwrap(), [format!("2024 {all}")]);
    let hours = definition("\"%Y-%m-%d\"", 0, HOURS);
    let all = (0..24).map(|hour| format!("19782/{hour}")).collect::<Vec<_>>().join(" ");
    assert_eq!(planned(&hours, &Scope::Full, &files(&["2024-02-29"])).unwrap(), [format!("2024-02-29 {all}")]);
}

#[test]
fn next_door_is_one_period_beyond_the_neighbours() {
    let next_door = |neighbours, path: &str, key: &str| {
        let definition = definition("\"y%Y-%m\"", neighbours, MONTHS);
        let file = PlannedFile { path: path.to_owned(), serves: Serves::Keys(Vec::new()) };
        let plan = SourcePlan { files: Vec::new() };
        plan.is_next_door(&definition, &file, &PartitionKey::from_canonical(key))
    };
    assert!(next_door(0, "y2024-02", "m=2024-01") && next_door(0, "y2024-02", "m=2024-03"));
    assert!(!next_door(0, "y2024-02", "m=2024-02"), "its own file");
    assert!(!next_door(0, "y2024-02", "m=2023-12") && !next_door(0, "y2024-02", "m=2002-02"));
    assert!(!next_door(1, "y2024-02", "m=2024-01"), "it takes that file already");
    assert!(next_door(1, "y2024-02", "m=2023-12") && next_door(1, "y2024-02", "m=2024-04"));
    let mixed = definition("[\"y%Y-%m\", \"*-02\"]", 0, MONTHS);
    let of = |path: &str, serves| {
        let file = PlannedFile { path: path.to_owned(), serves };
        SourcePlan { files: vec![] }.is_next_door(&mixed, &file, &PartitionKey::from_canonical("m=2024-01"))
    };
    assert!(!of("y2024-02", Serves::Scope) && !of("y2024-02", Serves::Times(Vec::new())), "the glob serves all");
    assert!(of("y2023-12", Serves::Times(Vec::new())));
    let hidden = definition("[\"_y%Y-%m\", \"*-02\"]", 0, MONTHS);
    let file = PlannedFile { path: "_y2024-02".to_owned(), serves: Serves::Keys(Vec::new()) };
    let key = PartitionKey::from_canonical("m=2024-01");
    assert!(SourcePlan { files: vec![] }.is_next_door(&hidden, &file, &key), "the glob takes no such name");
}
