//! Checkpoints: what outlives an attempt that does not come to its end, slice by slice.
//!
//! A slice that is staged is recorded under a name made from all that its result depends on; its files get a second name
//! beside the record. So an attempt takes over only what it would compute itself, whoever wrote it, and a worker that lost
//! its lease can do no harm here: it would write the same.

use super::books::Books;
use super::files::Stamp;
use super::merge;
use super::output;
use super::quarantine::Row;
use crate::engine::error::service_failure;
use crate::engine::{EngineError, Job};
use crate::partition::PartitionKey;
use crate::pipeline::sources::{Serves, Slice, SourcePlan};
use crate::pipeline::{Definition, Reason};
use crate::run::{SourceFile, StagedPartition};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// What a slice came to.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct SliceReport {
    /// The partitions that have rows.
    pub(super) partitions: Vec<StagedPartition>,
    /// The files read.
    pub(super) sources: Vec<SourceFile>,
    /// Their rows.
    pub(super) books: Books,
    /// Those of them that are kept apart.
    pub(super) apart: Vec<Row>,
}

/// The checkpoints of a run.
pub(super) struct Checkpoints<'a> {
    job: &'a Job,
    definition: &'a Definition,
    plan: &'a SourcePlan,
}

/// All that the result of a slice depends on.
#[derive(Serialize)]
struct Inputs<'a> {
    version: &'static str,
    definition: &'a str,
    source_root: &'a Path,
    slice: &'a Slice,
    files: &'a [Stamp],
    /// What the rows of the slice's partitions are put into, by sha256.
    bases: Vec<(&'a PartitionKey, &'a str)>,
    /// What the whole run takes of these files, where that decides which strays are kept apart.
    taken: Vec<&'a Serves>,
}

impl<'a> Checkpoints<'a> {
    pub(super) fn new(definition: &'a Definition, job: &'a Job, plan: &'a SourcePlan) -> Self {
        Self { job, definition, plan }
    }

    /// Takes over what an earlier attempt made of this slice, its files staged after `staged` others; none where it did not
    /// get so far, or what it left is not whole.
    pub(super) fn take(
        &self,
        slice: &Slice,
        stamps: &[Stamp],
        staged: usize,
    ) -> Result<Option<SliceReport>, EngineError> {
        let path = self.record(slice, stamps)?;
        let Some(mut report) = read(&path).map_err(|e| failed(&path, &e))? else { return Ok(None) };
        for partition in &report.partitions {
            let kept = self.kept(partition);
            if !is_whole(&kept, &partition.sha256).map_err(|e| failed(&kept, &e))? {
                // Out of the way of the one that is made now.
                remove(&kept)?;
                return Ok(None);
            }
        }
        for (number, partition) in report.partitions.iter_mut().enumerate() {
            let name = super::file_name(self.definition, staged + number);
            let (kept, staged) = (self.kept(partition), self.job.staging.join(&name));
            fs::hard_link(&kept, &staged).map_err(|e| failed(&staged, &e))?;
            partition.file = Some(name);
        }
        Ok(Some(report))
    }

    /// Records a slice that is staged.
    pub(super) fn keep(&self, slice: &Slice, stamps: &[Stamp], report: &SliceReport) -> Result<(), EngineError> {
        let folder = &self.job.checkpoints;
        // Its parent is the run's folder, in which this attempt has its own: where that is gone, so is the run.
        unless_there(fs::create_dir(folder)).map_err(|e| failed(folder, &e))?;
        for partition in &report.partitions {
            let Some(name) = &partition.file else { continue };
            let kept = self.kept(partition);
            unless_there(fs::hard_link(self.job.staging.join(name), &kept)).map_err(|e| failed(&kept, &e))?;
        }
        let path = self.record(slice, stamps)?;
        write(&path, report).map_err(|e| failed(&path, &e))?;
        output::sync_folder(folder)
    }

    fn kept(&self, partition: &StagedPartition) -> PathBuf {
        let extension = self.definition.output.part_file().extension();
        self.job.checkpoints.join(format!("{}.{extension}", partition.sha256))
    }

    fn record(&self, slice: &Slice, files: &[Stamp]) -> Result<PathBuf, EngineError> {
        let reads = |path: &str| slice.files.iter().any(|file| file.path == path);
        let of_run = self.plan.files.iter().filter(|_| self.definition.quarantine.keeps(Reason::Stray));
        let inputs = Inputs {
            version: env!("CARGO_PKG_VERSION"),
            definition: &self.definition.hash.0,
            source_root: &self.job.source_root,
            slice,
            files,
            bases: merge::bases_of(self.job, slice).map(|base| (&base.partition, base.sha256.as_str())).collect(),
            taken: of_run.filter(|file| reads(&file.path)).map(|file| &file.serves).collect(),
        };
        let text = serde_json::to_vec(&inputs).map_err(|e| failed(&self.job.checkpoints, &e.into()))?;
        let name = output::sha256(&mut text.as_slice()).map_err(|e| failed(&self.job.checkpoints, &e))?;
        Ok(self.job.checkpoints.join(format!("{name}.json")))
    }
}

fn failed(path: &Path, error: &io::Error) -> EngineError {
    service_failure("checkpoint-failed", "A checkpoint could not be used", format!("{}: {error}", path.display()))
}

fn unless_there(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(()),
        done => done,
    }
}

/// A record is written whole or not at all, so one that cannot be read is none of ours.
fn read(path: &Path) -> io::Result<Option<SliceReport>> {
    match fs::read(path) {
        Ok(text) => Ok(serde_json::from_slice(&text).ok()),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

fn write(path: &Path, report: &SliceReport) -> io::Result<()> {
    let text = serde_json::to_vec(report)?;
    // Another process may write the same at the same time.
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut temporary = tempfile::Builder::new().prefix(".record-").tempfile_in(folder)?;
    temporary.write_all(&text)?;
    temporary.as_file().sync_all()?;
    temporary.persist(path)?;
    Ok(())
}

fn is_whole(path: &Path, sha256: &str) -> io::Result<bool> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(e),
    };
    Ok(output::sha256(&mut file)? == sha256)
}

fn remove(path: &Path) -> Result<(), EngineError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(failed(path, &e)),
        _ => Ok(()),
    }
}
