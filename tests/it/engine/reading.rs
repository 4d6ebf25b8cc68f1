//! What of a source file is read: the columns of the contract, in the row groups that may hold rows of the scope.

use super::bed::{Bed, Layout};
use polars::prelude::{Column, NamedFrom, ParquetReader, SerReader, Series, TimeUnit};
use std::fs::File;
use std::ops::Range;
use std::path::Path;

const DEFINITION: &str = r#"
name = "t"
[source]
format = "parquet"
path = "trips.parquet"
[source.columns]
at = "datetime"
zone = "int32"
amount = "decimal(18,2)"
[partition]
day = { day_of = "at" }
[dimensions]
zone = "zone"
[measures]
trips = "count(*)"
revenue = "sum(amount)"
"#;

const DAYS: usize = 6;
const ROWS_A_DAY: usize = 400;
/// As many in a day as there are groups, so that statistics place each of them.
const GROUPS_A_DAY: usize = 2;

/// Days one after the other, with columns that nobody asks for between those of the contract.
fn write(bed: &Bed) {
    let rows = 0..DAYS * ROWS_A_DAY;
    let of = |name: &str, series: Series| Column::from(series.with_name(name.into()));
    let day_micros = 86_400_000_000;
    let at: Vec<i64> = rows.clone().map(|row| (row / ROWS_A_DAY) as i64 * day_micros + row as i64).collect();
    let at = Series::new("".into(), at).cast(&polars::prelude::DataType::Datetime(TimeUnit::Microseconds, None));
    let columns = vec![
        of("note", Series::new("".into(), rows.clone().map(|row| format!("note {row}")).collect::<Vec<_>>())),
        of("at", at.unwrap()),
        of("vendor", Series::new("".into(), rows.clone().map(|row| row as i64 * 7).collect::<Vec<_>>())),
        of("zone", Series::new("".into(), rows.clone().map(|row| row as i32 % 9).collect::<Vec<_>>())),
        of("amount", Series::new("".into(), rows.clone().map(|row| row as f64 / 100.0).collect::<Vec<_>>())),
        of("tip", Series::new("".into(), rows.map(|row| row as f64).collect::<Vec<_>>())),
    ];
    bed.write_as("trips.parquet", columns, Layout { row_group: ROWS_A_DAY / GROUPS_A_DAY, statistics: true });
}

/// Where each column lies in each row group.
fn chunks(path: &Path) -> Vec<(usize, String, Range<usize>)> {
    let mut reader = ParquetReader::new(File::open(path).unwrap());
    let metadata = reader.get_metadata().unwrap();
    let groups = metadata.row_groups.iter().enumerate();
    let of_group = groups.flat_map(|(group, found)| {
        found.parquet_columns().iter().map(move |column| {
            let range = column.byte_range();
            (group, column.descriptor().path_in_schema[0].to_string(), range.start as usize..range.end as usize)
        })
    });
    of_group.collect()
}

/// Makes noise of the columns that are chosen by row group and name.
fn spoil(path: &Path, is_chosen: impl Fn(usize, &str) -> bool) {
    let mut bytes = std::fs::read(path).unwrap();
    for (_, _, range) in chunks(path).into_iter().filter(|(group, name, _)| is_chosen(*group, name)) {
        bytes[range].fill(0xa5);
    }
    std::fs::write(path, bytes).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_contracts_columns_are_read_and_only_where_the_scope_may_be() {
    let is_asked_for = |name: &str| ["at", "zone", "amount"].contains(&name);
    let bed = Bed::new();
    write(&bed);
    let path = bed.path("trips.parquet");
    assert_eq!(chunks(&path).len(), DAYS * GROUPS_A_DAY * 6);
    let named = ["1970-01-03", "1970-01-05"];
    let of_the_scope = |group: usize| [2, 4].contains(&(group / GROUPS_A_DAY));
    let (all, some) = (bed.made(DEFINITION, &[]).await, bed.made(DEFINITION, &named).await);

    spoil(&path, |_, name| !is_asked_for(name));
    let again = bed.made(DEFINITION, &[]).await;
    assert_eq!((again.digests(), again.books()), (all.digests(), all.books()));

    spoil(&path, |group, _| !of_the_scope(group));
    let again = bed.made(DEFINITION, &named).await;
    assert_eq!((again.digests(), again.books()), (some.digests(), some.books()));

    // Noise is found where it is read.
    for column in ["at", "zone", "amount"] {
        write(&bed);
        spoil(&path, |group, name| group == 2 * GROUPS_A_DAY && name == column);
        bed.fails(DEFINITION, &named).await;
    }
}
