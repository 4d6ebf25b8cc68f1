//! Where files have the columns of the contract: under other names, in folders, as text dates, or not at all.

use super::bed::{Bed, Layout, Made};
use polars::prelude::{Column, NamedFrom, Series};

fn definition(columns: &str, more: &str) -> String {
    format!(
        "name = \"t\"\nmax_rejected = 1\n[source]\nformat = \"parquet\"\npath = \"raw/**/*.parquet\"\n[source.columns]\n{columns}\n\
         {more}\n"
    )
}

/// The rows of a partition, whole numbers and texts as they are read.
fn plain(made: &Made, partition: &str) -> Vec<Vec<String>> {
    let plain = |cell: String| cell.trim_end_matches("e-0").trim_matches('\'').to_owned();
    made.rows(partition).into_iter().map(|row| row.into_iter().map(plain).collect()).collect()
}

fn strings(name: &str, values: &[Option<&str>]) -> Column {
    Series::new(name.into(), values).into()
}

fn numbers(name: &str, values: &[i64]) -> Column {
    Series::new(name.into(), values).into()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_column_has_the_first_of_its_names_that_the_file_has_or_its_default() {
    let bed = Bed::new();
    bed.write("raw/2009.parquet", vec![numbers("Trip_Distance", &[1, 2]), numbers("p", &[1, 1])]);
    bed.write(
        "raw/2010.parquet",
        vec![numbers("trip_distance", &[10]), numbers("Trip_Distance", &[99]), numbers("p", &[1])],
    );
    bed.write("raw/2011.parquet", vec![numbers("p", &[1, 1, 1])]);
    let miles =
        "miles = { type = \"int32\", from = [\"trip_distance\", \"Trip_Distance\"], default = 100 }\np = \"int32\"";
    let rest = "[partition]\np = { value_of = \"p\" }\n[measures]\nmiles = \"sum(miles)\"\nn = \"count(*)\"";
    let made = bed.made(&definition(miles, rest), &["1"]).await;
    assert_eq!(plain(&made, "p=1"), [["313", "6"]]);

    let error = bed.fails(&definition(&miles.replace(", default = 100", ""), rest), &["1"]).await;
    let expected =
        "raw/2011.parquet: column miles: not found as trip_distance or Trip_Distance, expected int32; the file has p";
    assert_eq!((error.kind.as_str(), error.detail.as_str()), ("contract-broken", expected));
    let dated = miles.replace("int32\", from", "date\", from").replace("100", "\"2024-01-01\"");
    let error = bed.fails(&definition(&dated, &rest.replace("sum(miles)", "max(miles)")), &["1"]).await;
    assert!(error.detail.contains("found int64, expected date"), "{}", error.detail);
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_are_columns_of_the_contracts_types() {
    let bed = Bed::new();
    for (folder, values) in [("cat=fred/n=1", [1, 2]), ("cat=freda/n=01", [10, 20]), ("cat=a%2Fb/n=2", [100, 200])] {
        bed.write(&format!("raw/{folder}/part.parquet"), vec![numbers("num", &values)]);
    }
    bed.write("raw/cat=__HIVE_DEFAULT_PARTITION__/n=3/part.parquet", vec![numbers("num", &[1000])]);
    let folders = "cat = { type = \"string\", folder = \"cat\" }\nn = { type = \"int8\", folder = \"n\" }";
    let rest = "[partition]\ncat = { value_of = \"cat\" }\n[dimensions]\nn = \"n\"\n[measures]\nrows = \"count(*)\"";
    // Not a column is read of any file.
    let made = bed.made(&definition(folders, rest), &[]).await;
    assert_eq!(plain(&made, "cat=a%2Fb"), [["2", "2"]]);
    assert_eq!(
        (plain(&made, "cat=fred"), plain(&made, "cat=freda")),
        (vec![vec!["1".to_owned(), "2".to_owned()]], vec![vec!["1".to_owned(), "2".to_owned()]])
    );
    assert_eq!(made.books(), [7, 6, 0, 0, 1], "a null names no partition");

    // The others are not read where all their rows are elsewhere.
    let sum = rest.replace("count(*)", "sum(num)");
    let made = bed.made(&definition(&format!("{folders}\nnum = \"int64\""), &sum), &["fred"]).await;
    assert_eq!(plain(&made, "cat=fred"), [["1", "3"]]);
    assert_eq!(made.books(), [7, 2, 4, 0, 1]);

    bed.write("raw/cat=x/n=many/part.parquet", vec![numbers("num", &[1])]);
    let error = bed.fails(&definition(folders, rest), &[]).await;
    assert_eq!(error.kind, "contract-broken");
    assert!(error.detail.contains("raw/cat=x/n=many/part.parquet: column n: the folder n=many"), "{}", error.detail);
}

#[tokio::test(flavor = "multi_thread")]
async fn text_is_a_time_only_in_a_format() {
    let bed = Bed::new();
    let texts = [Some("29/02/2024 23:59"), Some("01/03/2024 00:00"), Some("30/02/2024 00:00"), None];
    bed.write("raw/a.parquet", vec![strings("at", &texts), numbers("n", &[1, 2, 4, 8])]);
    let columns = "at = { type = \"datetime\", format = \"%d/%m/%Y %H:%M\" }\nn = \"int64\"";
    let rest = "[partition]\nmonth = { month_of = \"at\" }\n[dimensions]\nlast = \"at\"\n[measures]\nn = \"sum(n)\"";
    let made = bed.made(&definition(columns, rest), &[]).await;
    assert_eq!(plain(&made, "month=2024-02"), [["time 1709251140000000", "1"]]);
    assert_eq!(plain(&made, "month=2024-03")[0][1], "2");
    assert_eq!(made.books(), [4, 2, 0, 0, 2], "what is no time, and a null, name no partition");
    let error = bed.fails(&definition("at = \"datetime\"\nn = \"int64\"", rest), &[]).await;
    assert!(error.detail.contains("column at: found string, expected datetime"), "{}", error.detail);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_know_their_file_and_their_line() {
    let bed = Bed::new();
    let groups = Layout { row_group: 3, statistics: true };
    for (file, first) in [("a", 0), ("b", 100)] {
        let n: Vec<i64> = (first..first + 10).collect();
        let p: Vec<i64> = (0..10).map(|row| row / 3).collect();
        bed.write_as(&format!("raw/{file}.parquet"), vec![numbers("n", &n), numbers("p", &p)], groups);
    }
    let rest = "[partition]\np = { value_of = \"p\" }\n[dimensions]\nfile = \"source_file\"\nline = \"source_line\"\n[measures]\nn = \"sum(n)\"";
    let made = bed.made(&definition("n = \"int64\"\np = \"int64\"", rest), &["2"]).await;
    let expected = [6, 7, 8].map(|n| ["raw/a.parquet".to_owned(), (n + 1).to_string(), n.to_string()]);
    assert_eq!(plain(&made, "p=2")[..3], expected, "the row groups before are not read");
    assert_eq!(plain(&made, "p=2").len(), 6);
    assert_eq!(plain(&made, "p=2")[5], ["raw/b.parquet", "9", "108"]);
}
