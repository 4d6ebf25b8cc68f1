//! Tables that keep rows: sorted by all they have, one for each key where asked, in any amount of memory.

use super::bed::{Bed, Made};
use super::cells::Dice;
use polars::prelude::{Column, NamedFrom, Series};
use refrain::engine::Job;
use refrain::run::Scope;

fn definition(rules: &str) -> String {
    format!(
        "name = \"t\"\n{rules}\n[source]\nformat = \"parquet\"\npath = \"raw/*.parquet\"\n[source.columns]\nid = \"int64\"\nat = \"int64\"\n\
         note = \"string\"\nweight = \"float64\"\np = \"int32\"\n[partition]\np = {{ value_of = \"p\" }}\n[columns]\nnote = \"note\"\n\
         id = \"id\"\nat = \"at\"\nweight = \"weight\"\n[where]\nsql = \"id >= 0\"\n"
    )
}

/// Id, time, note, weight, partition.
type Row = (i64, Option<i64>, &'static str, f64, i32);

fn columns(rows: &[Row]) -> Vec<Column> {
    let of = |name: &str, series: Series| Column::from(series.with_name(name.into()));
    vec![
        of("id", Series::new("".into(), rows.iter().map(|r| r.0).collect::<Vec<_>>())),
        of("at", Series::new("".into(), rows.iter().map(|r| r.1).collect::<Vec<_>>())),
        of("note", Series::new("".into(), rows.iter().map(|r| r.2).collect::<Vec<_>>())),
        of("weight", Series::new("".into(), rows.iter().map(|r| r.3).collect::<Vec<_>>())),
        of("p", Series::new("".into(), rows.iter().map(|r| r.4).collect::<Vec<_>>())),
    ]
}

const ROWS: [Row; 9] = [
    (2, Some(20), "b", 0.0, 1),
    (1, Some(10), "a", 1.5, 1),
    (2, Some(10), "z", -0.0, 1),
    (2, Some(20), "c", f64::NAN, 1),
    (1, Some(10), "a", 1.5, 1),
    (2, None, "x", 3.0, 1),
    (2, Some(20), "a", 4.0, 2),
    (-1, Some(1), "filtered", 1.0, 1),
    (3, Some(1), "elsewhere", 1.0, 3),
];

/// Notes and ids of a partition.
fn said(made: &Made, partition: &str) -> Vec<String> {
    let column = |name: &str| made.column(partition, name).into_iter();
    column("note").zip(column("id")).map(|(note, id)| format!("{}{}", note.trim_matches('\''), &id[..1])).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_kept_in_the_order_of_all_they_have() {
    let bed = Bed::new();
    bed.write("raw/a.parquet", columns(&ROWS));
    let made = bed.made(&definition("sort_by = [\"id\", \"at\"]"), &["1", "2", "4"]).await;
    assert_eq!(said(&made, "p=1"), ["a1", "a1", "x2", "z2", "b2", "c2"], "nulls first, and what is twice is twice");
    assert_eq!(made.files["p=1"].get_column_names(), ["note", "id", "at", "weight"], "as in the pipeline file");
    assert_eq!(made.books(), [9, 7, 1, 1, 0]);
    let rows: Vec<_> = made.report.partitions.iter().map(|p| (p.rows, p.source_rows, p.totals.0.len())).collect();
    assert_eq!(rows, [(6, 6, 0), (1, 1, 0), (0, 0, 0)]);
    // Zeros of both signs are one value, so which came first cannot be seen.
    let zeros = |first: f64| [(5, Some(1), "n", first, 1), (5, Some(1), "n", -first, 1)];
    let mut digests = Vec::new();
    for first in [0.0, -0.0] {
        bed.write("raw/b.parquet", columns(&zeros(first)));
        digests.push(bed.made(&definition(""), &["1"]).await.digests());
    }
    assert_eq!(digests[0], digests[1]);
    std::fs::remove_file(bed.path("raw/b.parquet")).unwrap();
    let by_columns = bed.made(&definition(""), &["1"]).await;
    assert_eq!(said(&by_columns, "p=1"), ["a1", "a1", "b2", "c2", "x2", "z2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_each_key_one_row_stays_whatever_the_order_of_arrival() {
    for (keep, expected) in [("last", ["a1", "c2"]), ("first", ["a1", "x2"])] {
        let rule = format!("sort_by = \"id\"\ndedupe = {{ key = [\"id\"], keep = \"{keep}\", order_by = \"at\" }}");
        let mut digests = Vec::new();
        for turn in 0..ROWS.len() {
            let mut rows = ROWS;
            rows.rotate_left(turn);
            let bed = Bed::new();
            bed.write("raw/a.parquet", columns(&rows[..4]));
            bed.write("raw/b.parquet", columns(&rows[4..]));
            let made = bed.made(&definition(&rule), &["1", "2"]).await;
            assert_eq!(
                (said(&made, "p=1"), said(&made, "p=2")),
                (expected.map(str::to_owned).to_vec(), vec!["a2".to_owned()])
            );
            assert_eq!(made.books(), [9, 7, 1, 1, 0], "a row that gives way was in scope");
            digests.push(made.digests());
        }
        assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:#?}");
    }
}

/// Rows of more than a row group, in memory and written aside in many runs: the same bytes.
#[tokio::test(flavor = "multi_thread")]
async fn more_rows_than_memory_give_the_same_bytes() {
    let bed = Bed::new();
    let mut dice = Dice(5);
    let rows = |dice: &mut Dice, count: usize| -> Vec<Row> {
        (0..count)
            .map(|_| {
                let id = i64::try_from(dice.below(150_000)).unwrap();
                let at = if dice.one_in(9) { None } else { Some(i64::try_from(dice.below(4)).unwrap()) };
                (id, at, *dice.pick(&["x", "y", "a longer note, so that it counts"]), dice.below(7) as f64 / 2.0, 1)
            })
            .collect()
    };
    for file in 0..3 {
        bed.write_as(
            &format!("raw/{file}.parquet"),
            columns(&rows(&mut dice, 120_000)),
            super::bed::Layout { row_group: 50_000, statistics: true },
        );
    }
    for rule in ["sort_by = [\"at\"]", "dedupe = { key = [\"id\"], keep = \"last\", order_by = [\"at\"] }"] {
        let mut made = Vec::new();
        for sort_bytes in [1 << 30, 3 << 20, 200_000] {
            let job = Job { sort_bytes, ..bed.job(&definition(rule), Scope::Full) };
            let staging = job.staging.clone();
            made.push(Bed::compute(&bed.engine, job).await.unwrap().0);
            let left =
                std::fs::read_dir(staging).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
            assert_eq!(left.collect::<Vec<_>>(), ["00000.parquet"], "what was written aside is gone");
        }
        assert_eq!(made[0].report.rows.in_scope, 360_000);
        let rows = made[0].report.partitions[0].rows;
        assert!(if rule.starts_with("sort") { rows == 360_000 } else { (100_000..150_000).contains(&rows) }, "{rows}");
        for other in &made[1..] {
            assert_eq!(other.digests(), made[0].digests(), "{rule}");
        }
        let at = made[0].column("p=1", "at");
        if rule.starts_with("sort") {
            assert!(at.is_sorted_by(|a, b| a == b || a == "null" || (b != "null" && a <= b)), "{:?}", &at[..20]);
        }
    }
}

#[test]
fn the_rules_of_rows_are_checked() {
    let wrong = |from: &str, to: &str, rules: &str| {
        let text = definition(rules).replace(from, to);
        let errors = refrain::pipeline::parse(&text, "test").unwrap_err();
        errors.iter().map(|e| format!("{}: {}", e.at, e.detail)).collect::<Vec<_>>().join("\n")
    };
    for (from, to, rules, expected) in [
        ("[where]", "[measures]\nn = \"count(*)\"\n[where]", "", "measures: is for tables of groups"),
        ("[columns]", "[measures]", "sort_by = \"id\"", "sort_by: is for tables that keep rows"),
        ("", "", "sort_by = [\"nope\"]", "sort_by: expected names of [columns] (note, id, at, weight), found \"nope\""),
        ("", "", "sort_by = [\"id\", \"id\"]", "sort_by: id is named twice"),
        ("", "", "dedupe = { keep = \"last\" }", "dedupe.key: is missing"),
        ("", "", "dedupe = { key = [\"id\"], keep = \"any\" }", "dedupe.keep: expected first or last, found \"any\""),
        ("", "", "dedupe = { key = [\"id\"] }", "dedupe.keep: is missing, expected first or last"),
        ("note = \"note\"", "P = \"id\"", "", "columns.P: the table has a column of that name already"),
    ] {
        let found = wrong(from, to, rules);
        assert!(found.contains(expected), "{found}");
    }
}
