//! The made-up quarter: three monthly files shaped like the yellow-taxi files of NYC's Taxi and Limousine Commission.
//!
//! They have the 19 columns and types of the 2024 files, late rows of the neighbouring months, meters with a reset clock,
//! refunds and nulls. The trips are drawn from a seed in this code; the totals per month are those of a published lesson
//! on idempotent jobs, to the cent.

mod buckets;
mod columns;
mod quarter;
mod random;
mod trips;

pub use quarter::{Contents, MonthTotals, contents};

use columns::FileWriter;
use quarter::{File, Quarter};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The note beside the files that says what they are.
const NOTE: &str = "sample.json";
/// Changes whenever the same scale gives other files.
const VERSION: u32 = 1;
const MIN_SCALE: f64 = 0.001;
const MAX_SCALE: f64 = 100.0;

/// A file of the sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampleFile {
    /// Where it lies.
    pub path: PathBuf,
    /// Its rows.
    pub rows: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

/// Why there is no sample.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// The scale is no number, too small or too large.
    #[error("the scale is {0}, expected a number from {MIN_SCALE} to {MAX_SCALE}")]
    Scale(f64),
    /// Somebody else's file has the name of one of the sample's.
    #[error(
        "{} is there, but no {NOTE} beside it says that it is a sample: expected a folder without such files, or move it away",
        .0.display()
    )]
    NotASample(PathBuf),
    /// The money of a month does not cover the surcharges of its trips.
    #[error("the revenue of {cents} cents is less than the {fixed} cents of surcharges of its {trips} trips")]
    Budget {
        /// What the trips must come to.
        cents: i64,
        /// What they come to without fares and tips.
        fixed: i64,
        /// How many they are.
        trips: u64,
    },
    /// The disk.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The Parquet writer.
    #[error("{}: {source}", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// What the writer said.
        source: polars::prelude::PolarsError,
    },
}

/// What the note says.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    about: String,
    version: u32,
    scale: f64,
    /// False while the files are being written, so that an interrupted sample is neither used nor taken for real files.
    complete: bool,
    files: Vec<NotedFile>,
}

#[derive(Debug, Serialize, Deserialize)]
struct NotedFile {
    name: String,
    rows: u64,
    bytes: u64,
}

/// Writes the quarter into the folder `out`, made if it is not there, replacing an earlier sample.
///
/// At scale 1 the totals are those of [`contents`]`(1.0)`; at another scale rows, buckets and revenue are in proportion
/// and the strays are the same ones. The same scale gives the same trips. `progress` gets a line now and then.
pub fn generate(out: &Path, scale: f64, progress: &mut dyn FnMut(&str)) -> Result<Vec<SampleFile>, SampleError> {
    let quarter = Quarter::at(scale)?;
    fs::create_dir_all(out).map_err(io_error(out))?;
    if read_note(out).is_none() {
        refuse_real_files(out, &quarter)?;
    }
    let mut note = Note {
        about: "made-up taxi trips, written by refrain sample".to_owned(),
        version: VERSION,
        scale,
        complete: false,
        files: Vec::new(),
    };
    write_note(out, &note)?;
    let files = quarter.files();
    let files =
        files.iter().map(|file| write_file(out, file, progress)).collect::<Result<Vec<SampleFile>, SampleError>>()?;
    note.complete = true;
    note.files =
        quarter.names().zip(&files).map(|(name, f)| NotedFile { name, rows: f.rows, bytes: f.bytes }).collect();
    write_note(out, &note)?;
    Ok(files)
}

/// Whether `out` holds the whole sample of this scale, as this version of Refrain writes it.
pub fn is_complete(out: &Path, scale: f64) -> bool {
    let Some(note) = read_note(out) else { return false };
    let size = |name: &str| fs::metadata(out.join(name)).map(|m| m.len()).ok();
    note.complete
        && note.version == VERSION
        && note.scale == scale
        && !note.files.is_empty()
        && note.files.iter().all(|f| size(&f.name) == Some(f.bytes))
}

fn write_file(out: &Path, file: &File, progress: &mut dyn FnMut(&str)) -> Result<SampleFile, SampleError> {
    let path = out.join(&file.name);
    let unfinished = out.join(format!(".{}.unfinished", file.name));
    let handle = fs::File::create(&unfinished).map_err(io_error(&unfinished))?;
    let mut writer = FileWriter::new(handle, &unfinished, file.rows())?;
    file.for_each_trip(&mut |trip| {
        if writer.push(trip)? {
            progress(&format!("{}: {} of {} rows", file.name, writer.rows(), file.rows()));
        }
        Ok(())
    })?;
    let (rows, bytes) = writer.finish()?;
    fs::File::open(&unfinished).and_then(|f| f.sync_all()).map_err(io_error(&unfinished))?;
    fs::rename(&unfinished, &path).map_err(io_error(&path))?;
    progress(&format!("{}: {rows} rows, {bytes} bytes", file.name));
    Ok(SampleFile { path, rows, bytes })
}

fn refuse_real_files(out: &Path, quarter: &Quarter) -> Result<(), SampleError> {
    match quarter.names().map(|name| out.join(name)).find(|path| path.exists()) {
        Some(path) => Err(SampleError::NotASample(path)),
        None => Ok(()),
    }
}

fn read_note(out: &Path) -> Option<Note> {
    serde_json::from_slice(&fs::read(out.join(NOTE)).ok()?).ok()
}

fn write_note(out: &Path, note: &Note) -> Result<(), SampleError> {
    let path = out.join(NOTE);
    let unfinished = out.join(format!(".{NOTE}.unfinished"));
    let write = || {
        let mut file = fs::File::create(&unfinished)?;
        serde_json::to_writer_pretty(&mut file, note)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&unfinished, &path)?;
        fs::File::open(out)?.sync_all()
    };
    write().map_err(io_error(&path))
}

fn io_error(path: &Path) -> impl FnOnce(std::io::Error) -> SampleError {
    let path = path.to_owned();
    move |source| SampleError::Io { path, source }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn a_sample_of_another_scale_or_half_of_one_is_not_complete() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_complete(dir.path(), 0.001));
        let files = generate(dir.path(), 0.001, &mut |_| ()).unwrap();
        assert!(is_complete(dir.path(), 0.001));
        assert!(!is_complete(dir.path(), 0.002));
        fs::write(&files[1].path, "cut short").unwrap();
        assert!(!is_complete(dir.path(), 0.001));
        generate(dir.path(), 0.001, &mut |_| ()).unwrap();
        assert!(is_complete(dir.path(), 0.001), "a sample replaces a sample");
    }

    #[test]
    fn an_interrupted_sample_is_not_complete_and_can_be_made_again() {
        let dir = tempfile::tempdir().unwrap();
        generate(dir.path(), 0.001, &mut |_| ()).unwrap();
        let mut note = read_note(dir.path()).unwrap();
        note.complete = false;
        write_note(dir.path(), &note).unwrap();
        assert!(!is_complete(dir.path(), 0.001));
        generate(dir.path(), 0.001, &mut |_| ()).unwrap();
        assert!(is_complete(dir.path(), 0.001));
    }

    #[test]
    fn files_of_others_are_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let theirs = dir.path().join("yellow_tripdata_2024-02.parquet");
        fs::write(&theirs, "real").unwrap();
        let refused = generate(dir.path(), 0.001, &mut |_| ()).unwrap_err();
        assert!(refused.to_string().contains("yellow_tripdata_2024-02.parquet is there, but no sample.json"));
        assert_eq!(fs::read_to_string(theirs).unwrap(), "real");
    }

    #[test]
    fn a_scale_that_makes_no_sense_is_refused() {
        for scale in [0.0, -1.0, f64::NAN, f64::INFINITY, 1000.0] {
            let refused = contents(scale).unwrap_err().to_string();
            assert!(refused.contains("expected a number from 0.001 to 100"), "{refused}");
        }
    }

    #[test]
    fn the_same_scale_gives_the_same_bytes() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [a, b] = dirs.each_ref().map(|d| generate(d.path(), 0.001, &mut |_| ()).unwrap());
        for (x, y) in a.iter().zip(&b) {
            assert_eq!(fs::read(&x.path).unwrap(), fs::read(&y.path).unwrap());
        }
    }
}
