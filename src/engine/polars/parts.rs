//! Parts of files, read by threads of our own.
//!
//! A thread takes one part at a time, decodes its columns, and hands the rows on in batches that its cache holds: no more is in
//! memory than a part for each thread, and no thread waits for another.

use super::files::LookedAt;
use super::query::{self, Reading};
use super::union::{FILE_BYTES, groups};
use super::{EngineError, side_by_side};
use crate::pipeline::Definition;
use ::polars::io::SerReader;
use ::polars::io::parquet::metadata::FileMetadata;
use ::polars::prelude as pl;
use rustix::fs::Advice;
use std::cmp::Reverse;
use std::fs::File;
use std::num::NonZeroU64;
use std::sync::Arc;

/// The most rows of a part: a large row group alone must not keep one thread at work while the others wait.
const MOST_ROWS: u64 = 1 << 20;
/// The fewest rows that a row group is cut to, since what its pages have in common is decoded for each part of it.
const LEAST_ROWS: u64 = 4_096;
/// The rows of a batch: their columns fit a processor's cache, and they are many beside what a batch costs.
const BATCH_ROWS: u64 = 1 << 17;

/// Rows of a row group that are read together.
pub(super) struct Part {
    /// The number of the file.
    pub(super) file: usize,
    /// The number of the row group.
    group: usize,
    /// The first row of the row group in the file.
    pub(super) group_start: u64,
    /// The first row in the row group.
    offset: u64,
    pub(super) rows: u64,
    /// What its columns take when they are decoded, about.
    bytes: u64,
    /// Whether it may have no row of the scope.
    pub(super) is_doubtful: bool,
}

impl Part {
    /// What it takes in memory: as it is stored and as it is decoded, and a batch of it on its way.
    fn memory(&self) -> u64 {
        FILE_BYTES + 2 * self.bytes
    }
}

/// What is to be read of the files, row groups cut so that reading takes about `limit_bytes` of memory.
pub(super) fn of(files: &[LookedAt], readings: &[Reading], limit_bytes: Option<u64>) -> Vec<Part> {
    let most_bytes = limit_bytes.map(|limit| limit / (4 * processors()));
    let mut out = Vec::new();
    for (index, (file, reading)) in files.iter().zip(readings).enumerate() {
        let mut group_start = 0;
        for (group, (group_rows, group_bytes)) in groups(file).enumerate() {
            let holds = |(first, length): &(u64, u64)| (*first..first + length).contains(&group_start);
            let is_doubtful = reading.doubtful.iter().any(holds);
            if group_rows > 0 && (is_doubtful || reading.stretches.iter().any(holds)) {
                let row_bytes = (group_bytes / group_rows).max(1);
                let fit = most_bytes.map_or(MOST_ROWS, |most| (most / row_bytes).clamp(LEAST_ROWS, MOST_ROWS));
                // As many as needed, of the same size.
                let rows = group_rows.div_ceil(group_rows.div_ceil(fit));
                let starts = (0..group_rows).step_by(usize::try_from(rows).unwrap_or(usize::MAX));
                out.extend(starts.map(|offset| {
                    let rows = rows.min(group_rows - offset);
                    Part { file: index, group, group_start, offset, rows, bytes: rows * row_bytes, is_doubtful }
                }));
            }
            group_start += group_rows;
        }
    }
    out
}

/// Does `work` on each part, on as many threads as there are processors and as fit `limit_bytes`.
pub(super) fn each(
    mut parts: Vec<Part>,
    limit_bytes: Option<u64>,
    work: impl Fn(&Part) -> Result<(), EngineError> + Sync,
) -> Result<(), EngineError> {
    let most = parts.iter().map(Part::memory).max().unwrap_or(0);
    let fit = limit_bytes.map_or(u64::MAX, |limit| limit / most.max(1));
    // A large one that is begun last is waited for.
    parts.sort_by_key(|part| (part.is_doubtful, Reverse(part.rows)));
    let threads = usize::try_from(processors().min(fit)).unwrap_or(1);
    side_by_side::in_order(parts, threads, |part| work(&part), |()| Ok(()))
}

fn processors() -> u64 {
    std::thread::available_parallelism().map_or(1, usize::from) as u64
}

/// Reads these columns of a part, and takes its rows batch by batch.
pub(super) fn read(
    definition: &Definition,
    file: &LookedAt,
    part: &Part,
    columns: Vec<String>,
    mut take: impl FnMut(pl::DataFrame) -> pl::PolarsResult<()>,
) -> pl::PolarsResult<()> {
    let (source, metadata) = (File::open(&file.path)?, alone(&file.metadata, part.group));
    ask_for(&source, &metadata, &columns);
    let mut reader = pl::ParquetReader::new(source);
    reader.set_metadata(Arc::new(metadata));
    let number = pl::RowIndex { name: query::ROW.into(), offset: query::index_size(part.group_start) };
    let size = |rows: u64| usize::try_from(rows).unwrap_or(usize::MAX);
    let rows = reader
        .with_columns(Some(columns))
        .with_row_index(query::is_numbered(definition, file).then_some(number))
        .with_slice(Some((size(part.offset), size(part.rows))))
        .read_parallel(pl::ParallelStrategy::None)
        .finish()?;
    let starts = (0..part.rows).step_by(size(BATCH_ROWS));
    starts
        .into_iter()
        .try_for_each(|start| take(rows.slice(i64::try_from(start).unwrap_or(i64::MAX), size(BATCH_ROWS))))
}

/// Tells the system what will be read, so that it is not fetched page by page where it is touched. It is advice: that nobody takes it
/// is no error.
fn ask_for(source: &File, metadata: &FileMetadata, columns: &[String]) {
    for group in &metadata.row_groups {
        for column in columns.iter().filter_map(|name| group.columns_under_root_iter(name)).flatten() {
            let range = column.byte_range();
            let length = NonZeroU64::new(range.end.saturating_sub(range.start));
            let _ = length.map(|length| rustix::fs::fadvise(source, range.start, Some(length), Advice::WillNeed));
        }
    }
}

/// A file as if one of its row groups were all that it has: of the others the reader would decode what their pages have in common.
fn alone(metadata: &FileMetadata, group: usize) -> FileMetadata {
    let row_groups: Vec<_> = metadata.row_groups.get(group).cloned().into_iter().collect();
    let num_rows = row_groups.iter().map(|group| group.num_rows()).sum();
    FileMetadata {
        version: metadata.version,
        num_rows,
        max_row_group_height: num_rows,
        created_by: None,
        row_groups,
        key_value_metadata: metadata.key_value_metadata.clone(),
        schema_descr: metadata.schema_descr.clone(),
        column_orders: None,
        footer_buf: metadata.footer_buf.clone(),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::super::counts::Counts;
    use super::super::files::{Place, SourceFiles};
    use super::super::scope::Allowed;
    use super::*;
    use crate::engine::local::LocalFiles;
    use crate::engine::web::Web;
    use crate::pipeline::sources::{PlannedFile, Serves};
    use ::polars::prelude::NamedFrom;
    use std::path::Path;
    use std::sync::Mutex;

    const GROUP_ROWS: u64 = 30_000;
    const GROUPS: u64 = 4;

    fn looked_at(definition: &Definition, folder: &Path) -> LookedAt {
        let rows = i64::try_from(GROUP_ROWS * GROUPS).unwrap();
        let column =
            |name: &str, factor| pl::Series::new(name.into(), (0..rows).map(|n| n * factor).collect::<Vec<_>>());
        let columns = [column("note", 3), column("x", 7)].map(pl::Column::from);
        let mut frame = pl::DataFrame::new_infer_height(columns.to_vec()).unwrap();
        let path = folder.join("a.parquet");
        let writer = pl::ParquetWriter::new(File::create(&path).unwrap());
        writer.with_row_group_size(Some(GROUP_ROWS as usize)).finish(&mut frame).unwrap();
        let planned = PlannedFile { path: "a.parquet".to_owned(), serves: Serves::Scope };
        let (settings, local) = (Default::default(), LocalFiles::new(folder));
        let web = Web::new(&settings).unwrap();
        let stamp = SourceFiles::new(folder, &web).stamp(&planned).unwrap();
        let place = Place { bytes_at: local.at("a.parquet"), planned, allowed: Allowed::All, stamp, rows_at: None };
        LookedAt::open(definition, place, &Counts::default()).unwrap()
    }

    #[test]
    fn every_row_of_the_row_groups_that_are_read_comes_once_with_its_number() {
        let text = "name = \"t\"\n[source]\nformat = \"parquet\"\npath = \"a.parquet\"\n[source.columns]\nx = \"int64\"\n\
                    [partition]\np = { value_of = \"x\" }\n[dimensions]\nline = \"source_line\"\n[measures]\n\
                    n = \"count(*)\"\n";
        let definition = crate::pipeline::parse(text, "test").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = looked_at(&definition, folder.path());
        assert_eq!(query::columns_of_rows(&definition, &file), ["x"]);
        // The second row group is out of scope, of the last it is not known.
        let reading = || Reading {
            stretches: vec![(0, GROUP_ROWS), (2 * GROUP_ROWS, GROUP_ROWS)],
            doubtful: vec![(3 * GROUP_ROWS, GROUP_ROWS)],
            ..Reading::default()
        };
        let expected: Vec<u64> = (0..GROUP_ROWS).chain(2 * GROUP_ROWS..4 * GROUP_ROWS).collect();
        let files = [file];
        for limit_bytes in [None, Some(processors() << 20), Some(1)] {
            let parts = of(&files, &[reading()], limit_bytes);
            match limit_bytes {
                None => assert_eq!(parts.len(), 3),
                Some(_) => {
                    assert!(parts.len() > 3 && parts.iter().all(|part| part.rows >= LEAST_ROWS / 2), "{limit_bytes:?}")
                }
            }
            let doubtful: u64 = parts.iter().filter(|part| part.is_doubtful).map(|part| part.rows).sum();
            assert_eq!(doubtful, GROUP_ROWS);
            let found = Mutex::new(Vec::new());
            let done = each(parts, limit_bytes, |part| {
                let mut take = |rows: pl::DataFrame| {
                    let of = |name: &str| rows.column(name).unwrap().cast(&pl::DataType::Int64).unwrap();
                    let (numbers, values) = (of(query::ROW), of("x"));
                    let rows = numbers.i64().unwrap().iter().zip(values.i64().unwrap().iter());
                    found.lock().unwrap().extend(rows.map(|(number, x)| (number.unwrap(), x.unwrap())));
                    Ok(())
                };
                read(&definition, &files[0], part, vec!["x".to_owned()], &mut take).unwrap();
                Ok(())
            });
            assert!(done.is_ok());
            let mut found = found.into_inner().unwrap();
            found.sort_unstable();
            let expected = expected.iter().map(|n| (i64::try_from(*n).unwrap(), i64::try_from(*n).unwrap() * 7));
            assert!(found.into_iter().eq(expected), "{limit_bytes:?}");
        }
    }
}
