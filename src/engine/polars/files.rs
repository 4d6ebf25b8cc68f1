//! The source files: listed, looked at by their own schema, and cut to the row groups that matter.

use super::convert::{convert, type_name};
use super::scope::{Allowed, value_name, value_of, values_at};
use super::time;
use crate::engine::EngineError;
use crate::engine::error::{compute_failure, source_failure};
use crate::partition::{PartitionValue, Transform};
use crate::pipeline::sources::{Listing, PlannedFile};
use crate::pipeline::{DataType, Definition};
use crate::run::SourceFile;
use ::polars::io::SerReader;
use ::polars::io::parquet::metadata::{FileMetadataRef, ParquetStatistics, deserialize};
use ::polars::prelude as pl;
use ::polars::prelude::IntoLazy;
use chrono::{DateTime, Utc};
use serde::Serialize;
use std::fmt::Display;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Sources on the local disk.
pub(super) struct LocalListing<'a> {
    /// Where relative paths start.
    pub(super) root: &'a Path,
}

impl Listing for LocalListing<'_> {
    fn is_file(&self, path: &str) -> io::Result<bool> {
        match std::fs::metadata(self.root.join(path)) {
            Ok(found) if found.is_file() => Ok(true),
            Ok(found) => {
                let what = if found.is_dir() { "a folder" } else { "no regular file" };
                Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {what}, expected a file")))
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn glob(&self, pattern: &str) -> io::Result<Vec<String>> {
        let root = glob::Pattern::escape(&self.root.to_string_lossy());
        let absolute = if Path::new(pattern).is_absolute() { pattern.to_owned() } else { format!("{root}/{pattern}") };
        let options = glob::MatchOptions {
            case_sensitive: true,
            require_literal_separator: true,
            require_literal_leading_dot: true,
        };
        let found = glob::glob_with(&absolute, options).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
        let mut out = Vec::new();
        for path in found {
            let path = path.map_err(io::Error::from)?;
            if path.is_file() {
                let shown = if Path::new(pattern).is_absolute() {
                    &path
                } else {
                    path.strip_prefix(self.root).unwrap_or(&path)
                };
                out.push(shown.to_string_lossy().into_owned());
            }
        }
        out.sort();
        Ok(out)
    }
}

/// What tells whether a file was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Stamp {
    pub(super) bytes: u64,
    seconds: i64,
    nanoseconds: i64,
    inode: u64,
}

impl Stamp {
    /// The stamp of a planned file, before anything of it is read.
    pub(super) fn before(root: &Path, planned: &PlannedFile) -> Result<Self, EngineError> {
        Self::of(&root.join(&planned.path)).map_err(|e| unreadable(planned, &e))
    }

    fn of(path: &Path) -> io::Result<Self> {
        let found = std::fs::metadata(path)?;
        Ok(Self { bytes: found.len(), seconds: found.mtime(), nanoseconds: found.mtime_nsec(), inode: found.ino() })
    }
}

/// A source file whose schema keeps the contract.
pub(super) struct LookedAt {
    /// What was planned for it.
    pub(super) planned: PlannedFile,
    /// Where it is.
    pub(super) path: PathBuf,
    /// The partitions that its rows may go to.
    pub(super) allowed: Allowed,
    /// The rows of its row groups.
    pub(super) row_groups: Vec<u64>,
    /// The physical type of each column of the contract.
    pub(super) physical: Vec<pl::DataType>,
    stamp: Stamp,
    metadata: FileMetadataRef,
    schema: Arc<pl::ArrowSchema>,
}

impl LookedAt {
    /// Reads a file's schema and holds it against the contract.
    pub(super) fn open(
        definition: &Definition,
        root: &Path,
        planned: PlannedFile,
        allowed: Allowed,
        stamp: Stamp,
    ) -> Result<Self, EngineError> {
        let path = root.join(&planned.path);
        let file = File::open(&path).map_err(|e| unreadable(&planned, &e))?;
        let mut reader = pl::ParquetReader::new(file);
        let no_footer = |e| format!("expected a Parquet file, but its footer cannot be read: {e}");
        let metadata = reader.get_metadata().map_err(|e| unreadable(&planned, &no_footer(e)))?.clone();
        let schema = reader.schema().map_err(|e| unreadable(&planned, &e))?;
        let row_groups = metadata.row_groups.iter().map(|g| g.num_rows() as u64).collect();
        let physical = physical_types(definition, &planned.path, &schema)?;
        Ok(Self { planned, path, allowed, row_groups, physical, stamp, metadata, schema })
    }

    /// Its rows.
    pub(super) fn rows(&self) -> u64 {
        self.row_groups.iter().sum()
    }

    /// What the report says of it.
    pub(super) fn report(&self) -> SourceFile {
        let nanoseconds = u32::try_from(self.stamp.nanoseconds).unwrap_or(0);
        SourceFile {
            path: self.planned.path.clone(),
            bytes: self.stamp.bytes,
            rows: self.rows(),
            modified: DateTime::<Utc>::from_timestamp(self.stamp.seconds, nanoseconds).unwrap_or_default(),
        }
    }

    /// Fails where the file is not the one that was looked at.
    pub(super) fn check_unchanged(&self) -> Result<(), EngineError> {
        let now = Stamp::of(&self.path).ok();
        if now == Some(self.stamp) {
            return Ok(());
        }
        let found = now.map_or_else(|| "it is gone".to_owned(), |now| format!("it has {} bytes now", now.bytes));
        Err(source_failure(
            "source-changed",
            "A source file changed while it was read",
            format!("{}: had {} bytes when the attempt began, {found}", self.planned.path, self.stamp.bytes),
        ))
    }

    /// Reads the contract's columns as they are, and keeps nothing of them.
    pub(super) fn read_through(&self, definition: &Definition) -> pl::PolarsResult<()> {
        let columns = definition.source.columns.iter().map(|c| pl::col(c.name.as_str()));
        super::query::open(self)?
            .select(columns.map(|c| c.is_null().any(true)).collect::<Vec<_>>())
            .collect_with_engine(pl::Engine::Streaming)?;
        Ok(())
    }

    /// The partition values of each row group that statistics place wholly in one partition.
    pub(super) fn placed(&self, definition: &Definition) -> Vec<Option<Vec<PartitionValue>>> {
        let nothing = || vec![None; self.row_groups.len()];
        if self.row_groups.is_empty() || !self.can_be_placed(definition) {
            return nothing();
        }
        self.place(definition).unwrap_or_else(|_| nothing())
    }

    /// Statistics are exact and their order is that of the partitions: not for text (it may be cut short), doubles
    /// (NaN is left out) and zones whose clocks are set back.
    fn can_be_placed(&self, definition: &Definition) -> bool {
        definition.partition.columns().iter().all(|column| {
            let at = definition.source.columns.iter().position(|c| c.name == column.source);
            let Some((contract, physical)) =
                at.and_then(|at| Some((definition.source.columns.get(at)?, self.physical.get(at)?)))
            else {
                return false;
            };
            let zoned = matches!(contract.data_type, DataType::Datetime(Some(_)));
            (physical.is_integer() || physical.is_temporal() || physical.is_decimal())
                && !(zoned && definition.timezone != chrono_tz::UTC)
        })
    }

    fn place(&self, definition: &Definition) -> pl::PolarsResult<Vec<Option<Vec<PartitionValue>>>> {
        let spec = &definition.partition;
        let mut known = vec![true; self.row_groups.len()];
        let mut bounds = Vec::new();
        let mut names: Vec<&str> = spec.columns().iter().map(|c| c.source.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            bounds.push(self.bounds(name, &mut known)?);
        }
        let frame = pl::DataFrame::new(2 * self.row_groups.len(), bounds)?;
        let frame = frame.lazy().select(self.converted(definition)).select(period_values(definition)).collect()?;
        let mut out = Vec::new();
        for (group, known) in known.iter().enumerate() {
            let (least, greatest) = (2 * group, 2 * group + 1);
            let same =
                frame.columns().iter().all(|c| matches!((c.get(least), c.get(greatest)), (Ok(a), Ok(b)) if a == b));
            out.push(if *known && same { values_at(&frame, spec, least)? } else { None });
        }
        Ok(out)
    }

    /// The least and the greatest value of a column in each row group, one after the other. Groups without statistics,
    /// or with nulls, are struck from `known`.
    fn bounds(&self, name: &str, known: &mut [bool]) -> pl::PolarsResult<pl::Column> {
        let field = self.schema.get(name).ok_or_else(|| pl::PolarsError::ColumnNotFound(name.to_owned().into()))?;
        let data_type = pl::DataType::from_arrow_field(field);
        let mut values = pl::Series::new_empty(name.into(), &data_type);
        for (group, known) in self.metadata.row_groups.iter().zip(known) {
            let columns = group.columns_under_root_iter(name);
            let statistics = match columns {
                Some(mut columns) => deserialize(field, &mut columns, &self.metadata.footer_buf)
                    .map_err(|e| pl::PolarsError::ComputeError(e.to_string().into()))?,
                None => None,
            };
            let pair = match statistics {
                Some(ParquetStatistics::Column(column)) => {
                    let column =
                        column.into_arrow().map_err(|e| pl::PolarsError::ComputeError(e.to_string().into()))?;
                    column.null_count.filter(|nulls| *nulls == 0).and(column.min_value.zip(column.max_value))
                }
                _ => None,
            };
            match pair {
                Some((least, greatest)) => {
                    values.append(&pl::Series::from_arrow(name.into(), least)?.cast(&data_type)?)?;
                    values.append(&pl::Series::from_arrow(name.into(), greatest)?.cast(&data_type)?)?;
                }
                None => {
                    *known = false;
                    values.append(&pl::Series::full_null(name.into(), 2, &data_type))?;
                }
            }
        }
        Ok(values.into())
    }

    /// The partition columns' sources, brought to the contract.
    fn converted(&self, definition: &Definition) -> Vec<pl::Expr> {
        let columns = definition.source.columns.iter().zip(&self.physical);
        columns
            .filter(|(column, _)| definition.partition.columns().iter().any(|p| p.source == column.name))
            .filter_map(|(column, found)| {
                let name = column.name.as_str();
                convert(pl::col(name), found, &column.data_type).map(|c| c.expr.alias(name))
            })
            .collect()
    }
}

/// The value columns, and for hours of the day the hours too: a group that spans days has its bounds in two of them.
fn period_values(definition: &Definition) -> Vec<pl::Expr> {
    let mut out = Vec::new();
    for (i, column) in definition.partition.columns().iter().enumerate() {
        let Some(contract) = definition.column(&column.source) else { continue };
        out.push(value_of(definition, column, &contract.data_type).alias(value_name(i)));
        if column.transform == Transform::HourOfDay {
            let wall = time::wall_clock(pl::col(column.source.as_str()), &contract.data_type, definition.timezone);
            out.push(time::period_of(wall, Transform::HourOf).alias(format!("\u{1}h{i}")));
        }
    }
    out
}

fn unreadable(planned: &PlannedFile, error: &dyn Display) -> EngineError {
    source_failure("source-unreadable", "A source file cannot be read", format!("{}: {error}", planned.path))
}

fn physical_types(
    definition: &Definition,
    file: &str,
    schema: &pl::ArrowSchema,
) -> Result<Vec<pl::DataType>, EngineError> {
    let broken = |column: &str, detail: String| {
        compute_failure(
            "contract-broken",
            "A source file does not keep the contract",
            format!("{file}: column {column}: {detail}"),
        )
    };
    let mut out = Vec::new();
    // The reader takes the whole schema in, with the columns that are not asked for.
    for field in schema.iter_values() {
        if readable(field).is_none() {
            let found = &field.dtype;
            return Err(broken(&field.name, format!("found {found:?}, which this version cannot read")));
        }
    }
    for column in &definition.source.columns {
        let Some(field) = schema.get(column.name.as_str()) else {
            let names: Vec<&str> = schema.iter_names().map(|n| n.as_str()).collect();
            let detail = format!("not found, expected {}; the file has {}", column.data_type, names.join(", "));
            return Err(broken(&column.name, detail));
        };
        let found = pl::DataType::from_arrow_field(field);
        if convert(pl::col(column.name.as_str()), &found, &column.data_type).is_none() {
            let detail = format!("found {}, expected {}", type_name(&found), column.data_type);
            return Err(broken(&column.name, detail));
        }
        out.push(found);
    }
    Ok(out)
}

/// The type of a column; none where the reader knows none, which it says by panicking.
fn readable(field: &pl::ArrowField) -> Option<pl::DataType> {
    std::panic::catch_unwind(|| pl::DataType::from_arrow_field(field)).ok()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::pipeline::sources::Serves;
    use ::polars::prelude::NamedFrom;
    use std::io::Write;

    #[test]
    fn a_file_that_changed_or_went_is_told() {
        let text = "name = \"t\"\n[source]\nformat = \"parquet\"\npath = \"a.parquet\"\n[source.columns]\nx = \"int64\"\n\
                    [partition]\np = { value_of = \"x\" }\n[measures]\nn = \"count(*)\"\n";
        let definition = crate::pipeline::parse(text, "test").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.parquet");
        let mut frame = pl::DataFrame::new_infer_height(vec![pl::Series::new("x".into(), [1i64, 2]).into()]).unwrap();
        pl::ParquetWriter::new(File::create(&path).unwrap()).finish(&mut frame).unwrap();
        let planned = PlannedFile { path: "a.parquet".to_owned(), serves: Serves::Scope };
        let stamp = Stamp::before(dir.path(), &planned).unwrap();
        let looked_at = LookedAt::open(&definition, dir.path(), planned, Allowed::All, stamp).unwrap();
        assert_eq!(looked_at.check_unchanged(), Ok(()));

        let told = || looked_at.check_unchanged().unwrap_err().to_string();
        let bytes = looked_at.stamp.bytes;
        File::options().append(true).open(&path).unwrap().write_all(b"more").unwrap();
        assert_eq!(
            told(),
            format!("a.parquet: had {bytes} bytes when the attempt began, it has {} bytes now", bytes + 4)
        );
        std::fs::remove_file(&path).unwrap();
        assert!(told().ends_with("it is gone"), "{}", told());
    }
}
