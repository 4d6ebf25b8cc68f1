//! What the engine does inside its process: sources to staged files and a report, with Polars.
//!
//! The story: plan the files, cut the plan into slices, look at each file by its own schema, cut it to the row groups that
//! matter, judge and group every row in one streaming pass, settle the books, then sort, split and write the partitions.

mod blocks;
mod books;
mod checkpoints;
mod contract;
mod convert;
mod counts;
mod exact;
mod extract;
mod fetch;
mod files;
mod lower;
mod measures;
mod merge;
mod narrow;
mod order;
mod output;
mod parts;
mod place;
mod quarantine;
mod query;
mod rows;
mod scope;
mod side_by_side;
mod sorting;
mod split;
mod spool;
mod staging;
mod time;
mod union;

use super::error::{compute_failure, source_failure};
use super::web::Web;
use super::{EngineError, Job, Report};
use crate::partition::PartitionKey;
use crate::pipeline::sources::{self, Slice, SourcePlan};
use crate::pipeline::{self, Definition, url};
use crate::run::{Progress, RunError, Scope, Stage, StagedPartition};
use ::polars::prelude as pl;
use books::{Books, Intake};
use checkpoints::{Checkpoints, SliceReport};
use files::{LookedAt, SourceFiles, Stamp};
use quarantine::Row;
use rows::Rows;
use sorting::Sorter;
use split::{Groups, by_partition, finished};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(super) use counts::Counts;
pub(super) use extract::extract;

/// Hears how far the attempt is.
pub(super) trait Listener {
    /// The attempt is here now.
    fn at(&self, progress: &Progress);
    /// The attempt passes a named step; an error makes the step fail.
    fn step(&self, name: &str) -> Result<(), EngineError>;
    /// What is read, to be looked at while [`Stage::Scanning`] goes on.
    fn counts(&self) -> Arc<Counts>;
}

/// Computes a job in this process. What it says of URLs it says without their queries.
pub(super) fn compute(job: &Job, listener: &dyn Listener) -> Result<Report, EngineError> {
    let shown = |error: RunError| RunError { detail: url::shown_in(&error.detail), ..error };
    let mut report = compute_all(job, listener).map_err(|error| match error {
        EngineError::Failed(error) => EngineError::Failed(shown(error)),
        EngineError::Rejected { error, quarantine } => EngineError::Rejected { error: shown(error), quarantine },
        EngineError::Cancelled => EngineError::Cancelled,
    })?;
    report.sources.iter_mut().for_each(|file| file.path = url::shown(&file.path).to_owned());
    report.warnings.iter_mut().for_each(|warning| warning.detail = url::shown_in(&warning.detail));
    Ok(report)
}

fn compute_all(job: &Job, listener: &dyn Listener) -> Result<Report, EngineError> {
    let definition = pipeline::parse(&job.definition, "the stored definition").map_err(|errors| {
        let detail = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        compute_failure("definition-refused", "The stored definition is refused by this version", detail)
    })?;
    let mut progress = Progress::at(Stage::Listing);
    listener.at(&progress);
    let web = Web::new(&job.web)?;
    let sources = SourceFiles::new(&job.source_root, &web);
    let plan = sources::plan(&definition, &job.scope, &sources)?;
    progress.files = plan.files.len() as u64;
    let checkpoints = Checkpoints::new(&definition, job, &plan);
    let intake = Intake::of(&definition, &job.scope, &plan);
    let (staged, whole) = (0, SliceReport::default());
    let mut attempt = Attempt {
        definition: &definition,
        job,
        listener,
        sources,
        checkpoints,
        intake: &intake,
        progress,
        staged,
        whole,
    };
    attempt.all_slices(&plan)?;
    let SliceReport { mut partitions, mut sources, books, apart } = attempt.whole;
    let quarantine = quarantine::write(&definition, job, &apart, &books)?;
    output::sync_folder(&job.staging)?;

    if let Scope::Partitions(keys) = &job.scope {
        let made: BTreeSet<PartitionKey> = partitions.iter().map(|p| p.partition.clone()).collect();
        let empty = keys.iter().filter(|key| !made.contains(*key)).cloned();
        partitions.extend(empty.map(StagedPartition::without_rows));
    }
    partitions.sort_by(|a, b| a.partition.cmp(&b.partition));
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    sources.dedup_by(|a, b| a.path == b.path);
    let rows = books.counts(&sources)?;
    let warnings = books.warnings(&intake);
    Ok(Report { partitions, rows, sources, warnings, quarantine })
}

/// The name in staging of the n-th partition file.
fn file_name(definition: &Definition, number: usize) -> String {
    format!("{number:05}.{}", definition.output.part_file().extension())
}

/// A slice with the stamps of its files, which an earlier attempt has made or which is to be computed.
struct Part {
    slice: Slice,
    stamps: Vec<Stamp>,
    work: Work,
}

enum Work {
    TakenOver(SliceReport),
    /// With its files, where they were looked at before.
    ToDo(Option<Vec<LookedAt>>),
}

/// The computation under way.
struct Attempt<'a> {
    definition: &'a Definition,
    job: &'a Job,
    listener: &'a dyn Listener,
    sources: SourceFiles<'a>,
    checkpoints: Checkpoints<'a>,
    intake: &'a Intake<'a>,
    progress: Progress,
    /// How many files are staged.
    staged: usize,
    /// The slices so far.
    whole: SliceReport,
}

impl Attempt<'_> {
    /// Takes over the slices that an earlier attempt has finished, and computes the others one after the other.
    fn all_slices(&mut self, plan: &SourcePlan) -> Result<(), EngineError> {
        let parts = self.parts(plan)?;
        self.listener.at(&self.progress);
        // What is not cut is decided as soon as it is staged: a checkpoint would save next to nothing.
        let cut = parts.len() > 1;
        for (number, Part { slice, stamps, work }) in parts.into_iter().enumerate() {
            let report = match work {
                Work::TakenOver(report) => report,
                Work::ToDo(files) => {
                    let files = match files {
                        Some(files) => files,
                        None => self.fetch(&slice, &stamps)?,
                    };
                    let report = self.compute(&slice, &files)?;
                    fetch::remove_copies(&files)?;
                    if cut {
                        self.checkpoints.keep(&slice, &stamps, &report)?;
                        self.listener.step(&format!("checkpointed-{}", number + 1))?;
                    }
                    report
                }
            };
            self.whole.partitions.extend(report.partitions);
            self.whole.sources.extend(report.sources);
            self.whole.books.add(report.books, self.intake);
            quarantine::add(&mut self.whole.apart, report.apart, self.definition);
        }
        Ok(())
    }

    /// The slices, those of earlier attempts staged. The files of the others are looked at before any of them is read, so
    /// that one that does not keep the contract is found out at once.
    fn parts(&mut self, plan: &SourcePlan) -> Result<Vec<Part>, EngineError> {
        let mut stamps = BTreeMap::new();
        for file in &plan.files {
            stamps.insert(file.path.as_str(), self.sources.stamp(file)?);
        }
        let bytes: Vec<u64> =
            plan.files.iter().filter_map(|file| stamps.get(file.path.as_str())).map(Stamp::bytes).collect();
        let slices = plan.slices(&self.job.scope, &bytes, self.job.slice_source_bytes);
        let cut = slices.len() > 1;
        let mut out = Vec::new();
        self.progress.files = 0;
        for slice in slices {
            let stamps: Vec<Stamp> = slice.files.iter().filter_map(|f| stamps.get(f.path.as_str())).cloned().collect();
            let taken = if cut { self.checkpoints.take(&slice, &stamps, self.staged)? } else { None };
            let work = match taken {
                Some(report) => {
                    self.staged += report.partitions.len();
                    self.progress.partitions_taken_over += report.partitions.len() as u64;
                    Work::TakenOver(report)
                }
                None if self.is_read_in_place(&stamps) => {
                    let places = self.places(&slice, &stamps);
                    Work::ToDo(Some(self.look_at(places)?))
                }
                None => Work::ToDo(None),
            };
            if let Work::ToDo(_) = work {
                self.progress.files += stamps.len() as u64;
                self.progress.bytes += stamps.iter().map(Stamp::bytes).sum::<u64>();
            }
            out.push(Part { slice, stamps, work });
        }
        self.progress.partitions = self.progress.partitions_taken_over;
        self.progress.partitions_staged = self.progress.partitions_taken_over;
        Ok(out)
    }

    /// Computes a slice and stages its files.
    fn compute(&mut self, slice: &Slice, files: &[LookedAt]) -> Result<SliceReport, EngineError> {
        self.progress.stage = Stage::Scanning;
        self.listener.at(&self.progress);
        let mut books = Books::of(files);
        let (partitions, apart) = match &self.definition.rows {
            None => {
                let grouped = scan(self.definition, files, &mut books, self.listener, self.job.read_bytes)?;
                let apart = self.check(files, &books)?;
                (self.stage(grouped, &books)?, apart)
            }
            Some(table) => {
                let (definition, folder) = (self.definition, &self.job.staging);
                let limit_bytes = usize::try_from(self.job.sort_bytes).unwrap_or(usize::MAX);
                let rows = Rows { definition, table, folder, limit_bytes };
                let kept = scan_rows(&rows, files, &mut books, self.listener, self.job.read_bytes)?;
                let apart = self.check(files, &books)?;
                (self.stage_rows(&rows, kept, slice, &books)?, apart)
            }
        };
        Ok(SliceReport { partitions, sources: files.iter().map(LookedAt::report).collect(), books, apart })
    }

    /// Fails where a file changed or too many rows were rejected. Answers with the rows that are kept apart.
    fn check(&mut self, files: &[LookedAt], books: &Books) -> Result<Vec<Row>, EngineError> {
        let apart = quarantine::rows(self.definition, self.intake, files, books);
        // A file that was changed meanwhile explains whatever was found of it.
        files.iter().try_for_each(LookedAt::check_unchanged)?;
        let apart = apart?;
        match books.check_rejected(self.definition, files) {
            Ok(()) => Ok(apart),
            Err(error) => Err(self.rejected(error, books, apart)),
        }
    }

    /// Sorts the rows of each partition and writes its file.
    fn stage(&mut self, parts: Vec<Groups>, books: &Books) -> Result<Vec<StagedPartition>, EngineError> {
        self.progress.stage = Stage::Staging;
        self.progress.partitions += parts.len() as u64;
        self.listener.at(&self.progress);
        self.listener.step("scanned")?;
        let (definition, job) = (self.definition, self.job);
        let threads = threads(definition, job, parts.iter().map(|part| part.count).max());
        let names = (self.staged..).map(|number| file_name(definition, number));
        let mut out = Vec::new();
        let stage = |(name, part): (String, Groups)| {
            let source_rows = books.source_rows(&part.key);
            stage_one(definition, job, name, part, source_rows)
        };
        side_by_side::in_order(names.zip(parts).collect(), threads, stage, |staged| {
            out.push(staged);
            self.staged += 1;
            self.progress.partitions_staged += 1;
            self.listener.at(&self.progress);
            self.listener.step(&format!("staged-{}", self.staged))
        })?;
        Ok(out)
    }
}

/// How many partitions are written at the same time: twice as many as there are processors, since each waits for the disk in the end, and
/// as many as fit the memory.
fn threads(definition: &Definition, job: &Job, most_rows: Option<usize>) -> usize {
    /// Of a value: as it was grouped, finished, in the type of the file, and in its pages.
    const VALUE_BYTES: usize = 64;
    let columns = definition.dimensions.len() + definition.measures.len();
    let bytes = (most_rows.unwrap_or(0) * columns * VALUE_BYTES).max(1) as u64;
    let fit = usize::try_from(job.sort_bytes / bytes).unwrap_or(usize::MAX);
    (2 * std::thread::available_parallelism().map_or(1, usize::from)).min(fit)
}

/// Reads the files and groups their rows.
fn scan(
    definition: &Definition,
    files: &[LookedAt],
    books: &mut Books,
    listener: &dyn Listener,
    limit_bytes: Option<u64>,
) -> Result<Vec<Groups>, EngineError> {
    if narrow::fits(definition) {
        return narrow::scan(definition, files, books, listener, limit_bytes);
    }
    let Some(judged) = union::judged(definition, files, books, listener, limit_bytes)? else { return Ok(Vec::new()) };
    let run = || query::group(definition, judged).collect_with_engine(pl::Engine::Streaming);
    let grouped = run().map_err(|error| not_read(files, &error))?.unwrap_single();
    let entered = query::counted(definition, &grouped).and_then(|counted| books.enter(definition, files, &counted));
    entered.and_then(|()| by_partition(definition, &grouped)).map_err(|e| engine_error(&e))
}

/// Reads the files and keeps their rows.
fn scan_rows(
    rows: &Rows<'_>,
    files: &[LookedAt],
    books: &mut Books,
    listener: &dyn Listener,
    limit_bytes: Option<u64>,
) -> Result<Option<Sorter>, EngineError> {
    let Some(judged) = union::judged(rows.definition, files, books, listener, limit_bytes)? else { return Ok(None) };
    rows.read(judged, files, books).map_err(|error| not_read(files, &error))?.map(Some)
}

/// Why the query over the files failed. A file that was changed meanwhile explains whatever the reader says.
fn not_read(files: &[LookedAt], error: &pl::PolarsError) -> EngineError {
    let changed = files.iter().find_map(|file| file.check_unchanged().err());
    changed.or_else(|| unreadable(files)).unwrap_or_else(|| match error {
        pl::PolarsError::IO { .. } => {
            source_failure("source-unreadable", "A source file cannot be read", error.to_string())
        }
        error => engine_error(error),
    })
}

/// Which file cannot be read, after a query over all of them failed: each is read by itself.
fn unreadable(files: &[LookedAt]) -> Option<EngineError> {
    files.iter().find_map(|file| {
        let error = file.read_through().err()?;
        let detail = format!("{}: its data cannot be read: {error}", file.planned.path);
        Some(source_failure("source-unreadable", "A source file cannot be read", detail))
    })
}

fn stage_one(
    definition: &Definition,
    job: &Job,
    file: String,
    Groups { key, frame, .. }: Groups,
    source_rows: u64,
) -> Result<StagedPartition, EngineError> {
    let part = finished(definition, &frame().map_err(|e| engine_error(&e))?)?;
    let totals = measures::totals(definition, &part)?;
    let rows = part.height() as u64;
    let types = definition.dimensions.iter().map(|d| (&d.name, &d.expr.data_type));
    let types = types.chain(definition.measures.iter().map(|m| (&m.name, &m.data_type)));
    let columns: pl::PolarsResult<Vec<pl::Column>> =
        types.map(|(name, data_type)| measures::to_file(part.column(name)?, data_type)).collect();
    let mut frame =
        columns.and_then(|columns| pl::DataFrame::new(part.height(), columns)).map_err(|e| engine_error(&e))?;
    frame.rechunk_mut();
    let written = output::write(&job.staging.join(&file), &mut frame, &definition.output);
    let written = written.map_err(|e| output::in_partition(e, &key))?;
    Ok(StagedPartition {
        partition: key,
        file: Some(file),
        rows,
        totals,
        source_rows,
        bytes: written.bytes,
        sha256: written.sha256,
    })
}

/// What Polars says of a computation: trying again changes nothing. Trouble with a file is told by whoever reads it.
fn engine_error(error: &pl::PolarsError) -> EngineError {
    compute_failure("engine-error", "The computation failed", error.to_string())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should say where")]

    use super::*;
    use crate::run::FailureClass;

    #[test]
    fn what_the_engine_says_of_a_result_that_it_cannot_go_on_with_is_the_runs_error() {
        let text = "name = \"t\"\n[source]\nformat = \"parquet\"\npath = \"a\"\n[source.columns]\np = \"int32\"\n[partition]\n\
                    p = { value_of = \"p\" }\n[measures]\nrows = \"count(*)\"\n";
        let definition = pipeline::parse(text, "test").unwrap();
        let Err(EngineError::Failed(error)) = measures::totals(&definition, &pl::DataFrame::empty()) else {
            panic!("a measure without its column has a total")
        };
        assert_eq!((error.kind.as_str(), error.class), ("engine-error", FailureClass::Compute), "{error:?}");
        assert!(error.detail.contains("rows"), "{error:?}");
    }
}
