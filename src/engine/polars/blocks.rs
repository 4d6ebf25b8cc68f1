//! A Parquet file of ours read block by block: less than a row group, which may have been written where there was more memory.

use ::polars::io::SerReader;
use ::polars::io::parquet::metadata::FileMetadataRef;
use ::polars::prelude as pl;
use std::fs::File;

/// How many rows are read at a time.
const BLOCK_ROWS: usize = 16_384;

/// The rows of an opened file that are not read yet.
pub(super) struct Blocks {
    file: File,
    /// Parsed once: it grows with the row groups.
    metadata: FileMetadataRef,
    read: usize,
}

impl Blocks {
    pub(super) fn of(file: File) -> pl::PolarsResult<Self> {
        let metadata = pl::ParquetReader::new(file.try_clone()?).get_metadata()?.clone();
        Ok(Self { file, metadata, read: 0 })
    }

    /// No rows, in the columns and types of the file.
    pub(super) fn none(&self) -> pl::PolarsResult<pl::DataFrame> {
        self.rows(0, 0, None)
    }

    /// The next rows, at most that many, in these columns or all; none at the end.
    pub(super) fn next(&mut self, most: usize, columns: Option<&[String]>) -> pl::PolarsResult<Option<pl::DataFrame>> {
        let rows = BLOCK_ROWS.min(most).min(self.metadata.num_rows - self.read);
        if rows == 0 {
            return Ok(None);
        }
        let from = self.read;
        self.read += rows;
        self.rows(from, rows, columns).map(Some)
    }

    fn rows(&self, from: usize, rows: usize, columns: Option<&[String]>) -> pl::PolarsResult<pl::DataFrame> {
        let mut reader = pl::ParquetReader::new(self.file.try_clone()?)
            .with_slice(Some((from, rows)))
            .with_columns(columns.map(<[String]>::to_vec));
        reader.set_metadata(self.metadata.clone());
        reader.finish()
    }
}
