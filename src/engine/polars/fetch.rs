//! The files of a slice where its bytes are: on the disk, or downloaded beside what is staged.

use super::files::{LookedAt, Place, Stamp};
use super::scope::Allowed;
use super::{Attempt, output};
use crate::engine::EngineError;
use crate::engine::web::WebStamp;
use crate::pipeline::Format;
use crate::pipeline::sources::Slice;
use crate::run::Stage;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

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

    /// Looks at files, reading the text of as many at a time as there are processors.
    pub(super) fn look_at(&mut self, places: Vec<Place>) -> Result<Vec<LookedAt>, EngineError> {
        let (definition, counts) = (self.definition, self.listener.counts());
        let workers = match definition.source.format {
            Format::Parquet => 1,
            _ => std::thread::available_parallelism().map_or(1, usize::from).min(places.len()),
        };
        let places = Mutex::new(places.into_iter().enumerate());
        let next = || places.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work = || -> Result<Vec<(usize, LookedAt)>, EngineError> {
            let one = |(at, place)| Ok((at, LookedAt::open(definition, place, &counts)?));
            std::iter::from_fn(next).map(one).collect()
        };
        let done: Vec<_> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            workers
                .into_iter()
                .map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        });
        let mut files = Vec::new();
        for done in done {
            files.extend(done?);
        }
        files.sort_by_key(|(at, _)| *at);
        let files: Vec<LookedAt> = files.into_iter().map(|(_, file)| file).collect();
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
