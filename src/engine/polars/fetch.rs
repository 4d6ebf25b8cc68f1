//! The files of a slice where its bytes are: on the disk, or downloaded beside what is staged.

use super::files::{LookedAt, Place, Stamp};
use super::scope::Allowed;
use super::{Attempt, output};
use crate::engine::EngineError;
use crate::engine::web::WebStamp;
use crate::pipeline::Format;
use crate::pipeline::sources::Slice;
use crate::run::Stage;
use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::thread::ScopedJoinHandle;

impl Attempt<'_> {
    /// Looks at the files of a slice; those of other servers are downloaded, and text is read into files of rows.
    pub(super) fn fetch(&mut self, slice: &Slice, stamps: &[Stamp]) -> Result<Vec<LookedAt>, EngineError> {
        self.progress.stage = Stage::Scanning;
        self.listener.at(&self.progress);
        let places = self.places(slice, stamps);
        let wanted: Vec<(&WebStamp, PathBuf)> = places.iter().filter_map(Place::download).collect();
        self.sources.web.download(&wanted)?;
        self.look_at(places)
    }

    /// Whether a slice is of Parquet files on the disk, which are read where they are.
    pub(super) fn is_read_in_place(&self, stamps: &[Stamp]) -> bool {
        self.definition.source.format == Format::Parquet && stamps.iter().all(|stamp| matches!(stamp, Stamp::Local(_)))
    }

    /// Looks at files, at as many at a time as there are processors.
    pub(super) fn look_at(&mut self, places: Vec<Place>) -> Result<Vec<LookedAt>, EngineError> {
        let (definition, counts) = (self.definition, self.listener.counts());
        let workers = std::thread::available_parallelism().map_or(1, usize::from).min(places.len());
        let places = Mutex::new(places.into_iter().enumerate());
        let next = || places.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work = || {
            let mut done = Vec::new();
            while let Some((at, place)) = next() {
                let file = LookedAt::open(definition, place, &counts);
                let failed = file.is_err();
                done.push((at, file));
                if failed {
                    break;
                }
            }
            done
        };
        let done = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            let joined = |worker: ScopedJoinHandle<'_, _>| worker.join().unwrap_or_else(|panic| resume_unwind(panic));
            workers.into_iter().flat_map(joined).collect::<Vec<(usize, Result<LookedAt, EngineError>)>>()
        });
        // Of several that fail the first one is told: those before it have all been looked at.
        let done: BTreeMap<usize, Result<LookedAt, EngineError>> = done.into_iter().collect();
        let files = done.into_values().collect::<Result<Vec<LookedAt>, EngineError>>()?;
        self.progress.rows += files.iter().map(LookedAt::rows).sum::<u64>();
        Ok(files)
    }

    /// Where the bytes of each file of a slice are, or will be.
    pub(super) fn places(&self, slice: &Slice, stamps: &[Stamp]) -> Vec<Place> {
        let files = slice.files.iter().zip(stamps).enumerate();
        let places = files.map(|(at, (planned, stamp))| Place {
            allowed: Allowed::of(&self.definition.partition, &slice.scope, &planned.serves),
            bytes_at: match stamp {
                Stamp::Local(_) => self.job.source_root.join(&planned.path),
                Stamp::Web(_) => self.job.staging.join(format!("download-{at:05}")),
            },
            rows_at: match self.definition.source.format {
                Format::Parquet => None,
                Format::Csv(_) | Format::Ndjson => Some(self.job.staging.join(format!("source-{at:05}"))),
            },
            planned: planned.clone(),
            stamp: stamp.clone(),
        });
        places.collect()
    }
}

/// Removes what was made of the files to read them.
pub(super) fn remove_copies(files: &[LookedAt]) -> Result<(), EngineError> {
    files.iter().flat_map(LookedAt::copies).try_for_each(|copy| output::remove(copy))
}
