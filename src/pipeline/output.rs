//! What a table's files are: the `[table]` of a pipeline.

use crate::run::PartFile;

/// How a table is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Output {
    /// What the partitions' files are.
    pub format: OutputFormat,
    /// Whether a `_manifest.json` at the table's root lists them.
    pub manifest: bool,
}

/// The format of a table's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputFormat {
    /// Parquet.
    Parquet {
        /// Of its pages.
        compression: ParquetCompression,
        /// Rows of a row group; the last one may have fewer.
        row_group_rows: u32,
    },
    /// Text with a header.
    Csv {
        /// Of the file.
        compression: TextCompression,
    },
}

/// How pages of Parquet files are compressed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ParquetCompression {
    /// Not at all.
    None,
    /// Snappy.
    Snappy,
    /// Deflate.
    Gzip,
    /// LZ4 without frames.
    Lz4,
    /// Zstandard.
    #[default]
    Zstd,
}

/// How text files are compressed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TextCompression {
    /// Not at all.
    #[default]
    None,
    /// A gzip file without a name and a time.
    Gzip,
    /// A Zstandard frame with a checksum.
    Zstd,
}

impl Output {
    /// The name of a partition's file.
    pub fn part_file(&self) -> PartFile {
        match self.format {
            OutputFormat::Parquet { .. } => PartFile::Parquet,
            OutputFormat::Csv { compression: TextCompression::None } => PartFile::Csv,
            OutputFormat::Csv { compression: TextCompression::Gzip } => PartFile::CsvGzip,
            OutputFormat::Csv { compression: TextCompression::Zstd } => PartFile::CsvZstd,
        }
    }
}

impl OutputFormat {
    /// Rows of a row group where the pipeline does not say.
    pub const ROW_GROUP_ROWS: u32 = 262_144;

    /// The format's name in pipeline files.
    pub fn as_str(&self) -> &'static str {
        match self {
            OutputFormat::Parquet { .. } => "parquet",
            OutputFormat::Csv { .. } => "csv",
        }
    }

    /// The compression's name in pipeline files.
    pub fn compression(&self) -> &'static str {
        match self {
            OutputFormat::Parquet { compression, .. } => compression.as_str(),
            OutputFormat::Csv { compression } => compression.as_str(),
        }
    }
}

impl Default for OutputFormat {
    fn default() -> Self {
        Self::Parquet { compression: ParquetCompression::default(), row_group_rows: Self::ROW_GROUP_ROWS }
    }
}

impl ParquetCompression {
    pub(super) const ALL: [Self; 5] = [Self::Zstd, Self::Snappy, Self::Gzip, Self::Lz4, Self::None];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Snappy => "snappy",
            Self::Gzip => "gzip",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

impl TextCompression {
    pub(super) const ALL: [Self; 3] = [Self::None, Self::Gzip, Self::Zstd];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }
}
