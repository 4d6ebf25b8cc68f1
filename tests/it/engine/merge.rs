//! Merges: what a partition was, with the rows of the sources put in by key.

use super::bed::{Bed, Layout, Made};
use super::cells::{Dice, canonical};
use polars::prelude::{Column, DataType, NamedFrom, Series, TimeUnit};
use refrain::engine::{Job, MergeBase};
use refrain::pipeline;
use refrain::run::{FailureClass, Progress, RunError, Scope};
use std::collections::BTreeMap;

/// The pipeline that merges, with more rules.
fn definition(rules: &str) -> String {
    format!(
        "name = \"t\"\nwrite = \"merge\"\nkey = [\"id\", \"kind\"]\n{rules}\n[source]\nformat = \"parquet\"\npath = \"raw/*.parquet\"\n\
         [source.columns]\nid = \"int64\"\nkind = \"string\"\nat = \"datetime\"\namount = \"decimal(9,2)\"\np = \"int32\"\n[partition]\n\
         p = {{ value_of = \"p\" }}\n[columns]\nat = \"at\"\nkind = \"kind\"\namount = \"amount\"\nid = \"id\"\n[where]\nsql = \"amount >= 0\"\n"
    )
}

/// A row as it is in the file, in the order of the table's columns: time, kind, amount, id.
type Row = (Option<i64>, Option<&'static str>, Option<i64>, Option<i64>);
/// Id and kind.
type Key = (Option<i64>, Option<&'static str>);

fn key((_, kind, _, id): &Row) -> Key {
    (*id, *kind)
}

fn columns_of(rows: &[Row]) -> [Column; 4] {
    let times = Series::new("at".into(), rows.iter().map(|r| r.0).collect::<Vec<_>>());
    [
        times.cast(&DataType::Datetime(TimeUnit::Microseconds, None)).unwrap().into(),
        Series::new("kind".into(), rows.iter().map(|r| r.1).collect::<Vec<_>>()).into(),
        Series::new("amount".into(), rows.iter().map(|r| r.2).collect::<Vec<_>>()).into(),
        Series::new("id".into(), rows.iter().map(|r| r.3).collect::<Vec<_>>()).into(),
    ]
}

fn source(rows: &[(i32, Row)]) -> Vec<Column> {
    let mut columns = columns_of(&rows.iter().map(|(_, row)| *row).collect::<Vec<_>>()).to_vec();
    columns.push(Series::new("p".into(), rows.iter().map(|(p, _)| *p).collect::<Vec<_>>()).into());
    columns
}

/// A table of files, as the catalog names them.
struct Table {
    bed: Bed,
    bases: BTreeMap<String, MergeBase>,
}

impl Table {
    fn new() -> Self {
        Self { bed: Bed::new(), bases: BTreeMap::new() }
    }

    fn job(&self, definition: &str, partitions: &[&str]) -> Job {
        let job = self.bed.job_over(definition, partitions);
        let Scope::Partitions(keys) = &job.scope else { panic!("{job:?}") };
        let bases = self.bases.values().filter(|base| keys.contains(&base.partition)).cloned().collect();
        Job { bases, ..job }
    }

    async fn compute(&self, job: Job) -> Result<(Made, Progress), RunError> {
        Bed::compute(&self.bed.engine, job).await
    }

    /// Merges what the sources have.
    async fn made(&self, definition: &str, partitions: &[&str], sort_bytes: u64) -> (Made, Job) {
        let job = Job { sort_bytes, ..self.job(definition, partitions) };
        let (made, _) = self.compute(job.clone()).await.unwrap_or_else(|e| panic!("{definition}\n{e:?}"));
        (made, job)
    }

    /// What a job has made becomes the table.
    fn publish(&mut self, (made, job): &(Made, Job)) {
        for part in &made.report.partitions {
            let Some(name) = &part.file else { continue };
            let path = self.bed.path(&format!("live-{}.parquet", part.partition));
            std::fs::copy(job.staging.join(name), &path).unwrap();
            let base = MergeBase { partition: part.partition.clone(), path, sha256: part.sha256.clone() };
            self.bases.insert(part.partition.to_string(), base);
        }
    }

    fn write(&self, rows: &[(i32, Row)]) {
        let (one, other) = rows.split_at(rows.len() / 2);
        self.bed.write("raw/a.parquet", source(one));
        self.bed.write("raw/b.parquet", source(other));
    }
}

/// The rules of a case, as a person would do them.
#[derive(Debug, Clone, Copy)]
struct Rules {
    keeps: bool,
    /// `dedupe` with this `keep`, by amount.
    dedupe: Option<&'static str>,
    sort_by: Option<&'static str>,
}

impl Rules {
    fn text(self) -> String {
        let keeps = if self.keeps { "on_conflict = \"keep\"\n" } else { "" };
        let dedupe = self
            .dedupe
            .map(|keep| format!("dedupe = {{ key = [\"kind\", \"id\"], keep = \"{keep}\", order_by = \"amount\" }}\n"));
        let sort_by = self.sort_by.map(|column| format!("sort_by = \"{column}\"\n"));
        definition(&[keeps, &dedupe.unwrap_or_default(), &sort_by.unwrap_or_default()].concat())
    }

    /// Puts a batch into a partition.
    fn merge(self, partition: &mut BTreeMap<Key, Row>, batch: &[Row]) {
        let mut single: BTreeMap<Key, Row> = BTreeMap::new();
        for row in batch {
            let order = |row: &Row| (self.dedupe.map(|_| row.2), *row);
            let before = single.entry(key(row)).or_insert(*row);
            let later = order(row) > order(before);
            if later != (self.dedupe == Some("first")) && order(row) != order(before) {
                *before = *row;
            }
        }
        for (key, row) in single {
            if !(self.keeps && partition.contains_key(&key)) {
                partition.insert(key, row);
            }
        }
    }

    fn sorted(self, partition: &BTreeMap<Key, Row>) -> Vec<Row> {
        let mut rows: Vec<Row> = partition.values().copied().collect();
        match self.sort_by {
            Some("amount") => rows.sort_by_key(|row| (row.2, *row)),
            Some("id") => rows.sort_by_key(|row| (row.3, *row)),
            _ => rows.sort(),
        }
        rows
    }
}

fn texts(rows: &[Row]) -> Vec<Vec<String>> {
    let columns = columns_of(rows).map(|column| canonical(&column));
    (0..rows.len()).map(|at| columns.iter().map(|column| column[at].clone()).collect()).collect()
}

fn random_rows(dice: &mut Dice) -> Vec<(i32, Row)> {
    let count = dice.below(60);
    let mut row = |_| {
        let some = |dice: &mut Dice, below: usize| {
            let n = i64::try_from(dice.below(below)).unwrap();
            (!dice.one_in(6)).then_some(n)
        };
        let kind = [None, Some("a"), Some("b"), Some("é")][dice.below(4)];
        let p = i32::try_from(dice.below(3)).unwrap() + 1;
        (p, (some(dice, 1000), kind, Some(some(dice, 5).unwrap_or(-1)), some(dice, 5)))
    };
    (0..count).map(&mut row).collect()
}

/// Chains of merges are what the model says, in any order of arrival, in memory and written aside.
#[tokio::test(flavor = "multi_thread")]
async fn chains_of_merges_are_what_a_map_by_key_is() {
    let mut dice = Dice(11);
    let mut cases = Vec::new();
    for keeps in [false, true] {
        for (dedupe, sort_by) in [(None, None), (Some("last"), Some("amount")), (Some("first"), Some("id"))] {
            cases.push(Rules { keeps, dedupe, sort_by });
        }
    }
    let (mut new, mut conflicts) = (0, 0);
    for rules in cases {
        let (text, mut table) = (rules.text(), Table::new());
        let mut model: BTreeMap<i32, BTreeMap<Key, Row>> = BTreeMap::new();
        for turn in 0..5 {
            let mut rows = random_rows(&mut dice);
            for p in [1, 2] {
                // The third partition is not named.
                let of_p = |(to, row): &(i32, Row)| (*to == p && row.2 >= Some(0)).then_some(*row);
                let batch: Vec<Row> = rows.iter().filter_map(of_p).collect();
                let partition = model.entry(p).or_default();
                conflicts += batch.iter().filter(|row| partition.contains_key(&key(row))).count();
                new += batch.iter().filter(|row| !partition.contains_key(&key(row))).count();
                rules.merge(partition, &batch);
            }
            let mut digests = Vec::new();
            let mut last = None;
            for (turned, sort_bytes) in [(0, 1), (rows.len() / 3, 1 << 20)] {
                rows.rotate_left(turned);
                table.write(&rows);
                let made = table.made(&text, &["1", "2"], sort_bytes).await;
                for (p, partition) in &model {
                    let expected = texts(&rules.sorted(partition));
                    assert_eq!(made.0.rows(&format!("p={p}")), expected, "{rules:?}, merge {turn}");
                }
                digests.push(made.0.digests());
                last = Some(made);
            }
            assert_eq!(digests[0], digests[1], "{rules:?}, merge {turn}");
            table.publish(&last.unwrap());
            let again = table.made(&text, &["1", "2"], 1).await;
            assert_eq!(again.0.digests(), digests[0], "{rules:?}, merge {turn} done twice");
        }
    }
    assert!(new > 200 && conflicts > 100, "{new} new keys, {conflicts} known ones");
}

/// More rows on both sides than memory, and more than a row group of the base: the same bytes.
#[tokio::test(flavor = "multi_thread")]
async fn more_rows_than_memory_on_both_sides_give_the_same_bytes() {
    let mut table = Table::new();
    let text = definition("sort_by = \"amount\"");
    let rows = |ids: &mut dyn Iterator<Item = i64>, amount: i64| -> Vec<(i32, Row)> {
        ids.map(|id| (1, (Some(id * 7 % 1000), Some("a longer kind, so that it counts"), Some(amount), Some(id))))
            .collect()
    };
    let layout = Layout { row_group: 50_000, statistics: true };
    table.bed.write_as("raw/a.parquet", source(&rows(&mut (0..300_000), 1)), layout);
    let base = table.made(&text, &["1"], 1 << 30).await;
    assert_eq!(base.0.report.partitions[0].rows, 300_000);
    table.publish(&base);
    table.bed.write_as("raw/a.parquet", source(&rows(&mut (100_000..350_000).step_by(2), 2)), layout);
    let mut digests = Vec::new();
    for sort_bytes in [1 << 30, 3 << 20] {
        let (made, job) = table.made(&text, &["1"], sort_bytes).await;
        let left = std::fs::read_dir(&job.staging).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        assert_eq!(left.collect::<Vec<_>>(), ["00000.parquet"], "what was written aside is gone");
        let part = &made.report.partitions[0];
        assert_eq!((part.rows, part.source_rows), (325_000, 125_000));
        let of_amount = |amount: &str| made.column("p=1", "amount").iter().filter(|found| *found == amount).count();
        assert_eq!((of_amount("1e-0"), of_amount("2e-0")), (200_000, 125_000));
        digests.push(made.digests());
    }
    assert_eq!(digests[0], digests[1]);
}

const JANUARY: (i32, Row) = (1, (Some(5), Some("a"), Some(3), Some(1)));

/// A batch without rows clears nothing, and what was never there stays away.
#[tokio::test(flavor = "multi_thread")]
async fn a_partition_without_new_rows_keeps_what_it_has() {
    let mut table = Table::new();
    table.write(&[JANUARY, (3, JANUARY.1)]);
    let first = table.made(&definition(""), &["1", "2"], 1).await;
    assert_eq!(first.0.books(), [2, 1, 1, 0, 0]);
    table.publish(&first);
    for rows in [vec![(3, JANUARY.1)], vec![(1, (None, None, Some(-1), None)), (3, JANUARY.1)]] {
        table.write(&rows);
        let (made, _) = table.made(&definition(""), &["1", "2"], 1).await;
        assert_eq!(made.digests(), first.0.digests(), "{rows:?}");
        let said: Vec<_> = made.report.partitions.iter().map(|p| (p.rows, p.source_rows, p.file.is_some())).collect();
        assert_eq!(said, [(1, 0, true), (0, 0, false)], "{rows:?}");
    }
}

/// Only the file that the catalog has is read; the message says what was found, what is expected, and the ways out.
#[tokio::test(flavor = "multi_thread")]
async fn a_base_that_is_not_the_catalogs_is_refused() {
    let mut table = Table::new();
    table.write(&[JANUARY]);
    table.publish(&table.made(&definition(""), &["1"], 1).await);
    let base = table.bases["p=1"].clone();
    let whole = std::fs::read(&base.path).unwrap();
    let kept = table.bed.path("kept.parquet");
    std::fs::write(&kept, &whole).unwrap();
    let damages: [(&str, &dyn Fn()); 4] = [
        ("one with sha256", &|| std::fs::write(&base.path, &whole[..whole.len() - 9]).unwrap()),
        ("none", &|| ()),
        ("a symbolic link", &|| std::os::unix::fs::symlink(&kept, &base.path).unwrap()),
        ("no regular file", &|| std::fs::create_dir(&base.path).unwrap()),
    ];
    for (found, damage) in damages {
        std::fs::remove_file(&base.path).unwrap();
        damage();
        let error = table.compute(table.job(&definition(""), &["1"])).await.unwrap_err();
        assert_eq!((error.kind.as_str(), error.class), ("merge-base-damaged", FailureClass::Compute), "{error:?}");
        let path = base.path.display().to_string();
        for part in [found, &path, &base.sha256, "partition p=1", "restore the file", "mode full"] {
            assert!(error.detail.contains(part), "{part}: {}", error.detail);
        }
        if base.path.is_dir() && !base.path.is_symlink() {
            std::fs::remove_dir(&base.path).unwrap();
            std::fs::write(&base.path, &whole).unwrap();
        } else if !base.path.exists() {
            std::fs::write(&base.path, &whole).unwrap();
        }
    }
    assert!(table.compute(table.job(&definition(""), &["1"])).await.is_ok(), "restored, it goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_with_other_columns_or_two_rows_of_a_key_is_refused() {
    let mut table = Table::new();
    table.write(&[JANUARY, (1, (Some(5), Some("b"), Some(4), Some(1)))]);
    table.publish(&table.made(&definition(""), &["1"], 1).await);
    let refused = async |text: &str| table.compute(table.job(text, &["1"])).await.unwrap_err();
    for (from, to, found) in [
        ("at = \"at\"\n", "", "found the columns at (datetime[μs]), where the pipeline has no others"),
        (
            "at = \"at\"\n",
            "at = \"at\"\nmore = \"id\"\n",
            "found the columns no others, where the pipeline has more (i64)",
        ),
        (
            "decimal(9,2)",
            "decimal(9,3)",
            "found the columns amount (decimal[9,2]), where the pipeline has amount (decimal[9,3])",
        ),
    ] {
        let error = refused(&definition("").replace(from, to)).await;
        assert_eq!((error.kind.as_str(), error.class), ("merge-base-columns", FailureClass::Compute), "{error:?}");
        assert!(error.detail.contains(found) && error.detail.contains("mode full"), "{}", error.detail);
    }
    let moved = definition("").replace("at = \"at\"\n", "").replace("id = \"id\"\n", "id = \"id\"\nat = \"at\"\n");
    assert!(table.compute(table.job(&moved, &["1"])).await.is_ok(), "the order of the columns is no difference");
    let wider = definition("").replace("[\"id\", \"kind\"]", "[\"id\"]");
    table.write(&[(1, (None, None, Some(1), Some(2)))]);
    let error = refused(&wider).await;
    assert_eq!((error.kind.as_str(), error.class), ("merge-base-keys", FailureClass::Compute), "{error:?}");
    assert!(
        error.detail.contains("found two rows with id = 1") && error.detail.contains("mode full"),
        "{}",
        error.detail
    );
}

/// What a slice was put into is part of what its checkpoint depends on.
#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_is_for_the_bases_that_it_was_made_from() {
    let mut table = Table::new();
    let text =
        definition("").replace("raw/*.parquet", "raw/%Y.parquet").replace("value_of = \"p\"", "year_of = \"at\"");
    let year = |n: i64| Some((n - 1970) * 366 * 86_400_000_000);
    for n in [2001, 2002] {
        table.bed.write(&format!("raw/{n}.parquet"), source(&[(1, (year(n), Some("a"), Some(n), Some(1)))]));
    }
    let job = |table: &Table| Job { slice_source_bytes: 0, ..table.job(&text, &["2001", "2002"]) };
    let taken_over = async |table: &Table| table.compute(job(table)).await.unwrap().1.partitions_taken_over;
    assert_eq!((taken_over(&table).await, taken_over(&table).await), (0, 2));
    let first = job(&table);
    let (made, _) = table.compute(first.clone()).await.unwrap();
    table.publish(&(made, first));
    table.bases.remove("p=2001");
    assert_eq!((taken_over(&table).await, taken_over(&table).await), (1, 2), "one of them has another base by now");
}

/// Without bases a full run makes the table of the sources alone, one row for each key.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_run_makes_the_table_of_the_sources_alone() {
    let bed = Bed::new();
    let twice = (1, (Some(6), Some("a"), Some(2), Some(1)));
    bed.write("raw/a.parquet", source(&[JANUARY, twice, (2, JANUARY.1)]));
    let made = bed.made(&definition("on_conflict = \"keep\""), &[]).await;
    assert_eq!(made.rows("p=1"), texts(&[twice.1]), "the last in the order of all that they have");
    assert_eq!(made.report.partitions.iter().map(|p| (p.rows, p.source_rows)).collect::<Vec<_>>(), [(1, 2), (1, 1)]);
}

#[test]
fn the_rules_of_merges_are_checked() {
    let groups = "name = \"t\"\n[source]\nformat = \"parquet\"\npath = \"raw/*.parquet\"\n[source.columns]\nid = \"int64\"\np = \"int32\"\n\
                  [partition]\np = { value_of = \"p\" }\n[measures]\nn = \"count(*)\"\n";
    let rows = |rules: &str| definition(rules);
    let without = |line: &str| definition("").replace(line, "");
    let (write, key) = ("write = \"merge\"\n", "key = [\"id\", \"kind\"]\n");
    for (text, expected) in [
        (
            groups.replace("[source]", "write = \"merge\"\nkey = \"id\"\n[source]"),
            "write: merge is for tables that keep rows",
        ),
        (groups.replace("[source]", "key = \"id\"\n[source]"), "key: is for write = \"merge\""),
        (groups.replace("[source]", "on_conflict = \"keep\"\n[source]"), "on_conflict: is for write = \"merge\""),
        (
            groups.replace("[source]", "write = \"append\"\n[source]"),
            "write: expected \"replace\" or \"merge\", found \"append\"",
        ),
        (without(write), "key: is for write = \"merge\""),
        (without(key), "key: is missing"),
        (without(key).replace(write, "on_conflict = \"keep\"\n"), "on_conflict: is for write = \"merge\""),
        (rows("on_conflict = \"fail\""), "on_conflict: expected \"replace\" or \"keep\", found \"fail\""),
        (
            rows("").replace("\"kind\"]\n", "\"nope\"]\n"),
            "key: expected names of [columns] (at, kind, amount, id), found \"nope\"",
        ),
        (rows("").replace("\"kind\"]\n", "\"id\"]\n"), "key: id is named twice"),
        (
            rows("dedupe = { key = [\"id\"], keep = \"last\" }"),
            "dedupe.key: expected the columns of key, by which rows are merged, found id beside",
        ),
        (format!("{}[table]\nformat = \"csv\"\n", rows("")), "table.format: is for tables that are replaced"),
    ] {
        let errors = pipeline::parse(&text, "test").unwrap_err();
        let found = errors.iter().map(|e| format!("{}: {}", e.at, e.detail)).collect::<Vec<_>>().join("\n");
        assert!(found.contains(expected), "{found}");
    }
    let hash = |text: &str| pipeline::parse(text, "test").unwrap_or_else(|e| panic!("{text}\n{e:?}")).hash;
    let plain = without(write).replace(key, "");
    assert_eq!(hash(&plain), hash(&format!("write = \"replace\"\n{plain}")), "what is the default is not said");
    assert_eq!(hash(&rows("")), hash(&rows("on_conflict = \"replace\"")));
    let all = [plain, rows(""), rows("on_conflict = \"keep\""), rows("").replace("\"kind\"]\n", "\"at\"]\n")];
    let hashes: std::collections::BTreeSet<String> = all.iter().map(|text| hash(text).0).collect();
    assert_eq!(hashes.len(), all.len());
}
