//! The folder of the pipelines' files: read and checked at start, and again when the process is told to (SIGHUP).

use crate::http::Pipelines;
use crate::pipeline::{self, Definition};
use anyhow::{Context, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::signal::unix::Signal;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// A folder of files, each named as the pipeline in it, and the pipelines that are in force.
pub(super) struct PipelineFolder {
    folder: PathBuf,
    current: watch::Sender<Arc<Pipelines>>,
    errors: watch::Sender<Arc<[String]>>,
    tables: watch::Sender<Arc<BTreeSet<String>>>,
}

impl PipelineFolder {
    /// Reads the folder; the error has every error of its files.
    pub(super) fn load(folder: &Path) -> anyhow::Result<Self> {
        Ok(Self::of(folder, load_pipelines(folder)?))
    }

    /// No pipelines, until there is a folder of them.
    pub(super) fn absent(folder: &Path) -> Self {
        Self::of(folder, Pipelines::new())
    }

    fn of(folder: &Path, pipelines: Pipelines) -> Self {
        let tables = watch::Sender::new(Arc::new(pipelines.keys().cloned().collect()));
        let current = watch::Sender::new(Arc::new(pipelines));
        Self { folder: folder.to_owned(), current, errors: watch::Sender::new(Arc::default()), tables }
    }

    /// The pipelines that are in force, also after they are read again.
    pub(super) fn current(&self) -> watch::Receiver<Arc<Pipelines>> {
        self.current.subscribe()
    }

    /// What was wrong with the files when they were last read.
    pub(super) fn errors(&self) -> watch::Receiver<Arc<[String]>> {
        self.errors.subscribe()
    }

    /// The pipelines that are or have been in force: of one that is gone, runs may still be at work.
    pub(super) fn tables(&self) -> watch::Receiver<Arc<BTreeSet<String>>> {
        self.tables.subscribe()
    }

    /// Reads the folder again each time that the signal comes, until `shutdown`.
    pub(super) async fn reload_at(self, mut asked: Signal, shutdown: CancellationToken) {
        loop {
            tokio::select! {
                Some(()) = asked.recv() => {}
                () = shutdown.cancelled() => return,
            }
            let folder = self.folder.clone();
            let read = tokio::task::spawn_blocking(move || Read::folder(&folder)).await;
            self.take(read.map_err(anyhow::Error::from).flatten());
        }
    }

    /// Takes over what was read. Pipelines whose files have errors stay as they were, and all do where the folder cannot be
    /// read: only a file that is gone takes its pipeline with it.
    fn take(&self, read: anyhow::Result<Read>) {
        let before = Arc::clone(&self.current.borrow());
        let (now, errors) = match read {
            Err(error) => (before.as_ref().clone(), vec![format!("{error:#}")]),
            Ok(Read { mut good, bad }) => {
                let kept = before.iter().filter(|(name, _)| bad.contains_key(*name));
                good.extend(kept.map(|(name, definition)| (name.clone(), Arc::clone(definition))));
                (good, listed(bad))
            }
        };
        for error in &errors {
            tracing::error!(error, "the pipelines have an error; what it concerns stays as it was");
        }
        let hash = |pipelines: &Pipelines, name: &String| pipelines.get(name).map(|definition| definition.hash.clone());
        let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
        let changed = names.into_iter().filter(|name| hash(&before, name) != hash(&now, name));
        let changed = changed.map(String::as_str).collect::<Vec<_>>().join(", ");
        tracing::info!(pipelines = now.len(), changed, "read the pipelines again");
        self.tables.send_modify(|tables| Arc::make_mut(tables).extend(now.keys().cloned()));
        self.current.send_replace(Arc::new(now));
        self.errors.send_replace(errors.into());
    }
}

/// The pipeline files of a folder, checked; the error has every one of their errors.
pub(super) fn load_pipelines(folder: &Path) -> anyhow::Result<Pipelines> {
    let Read { good, bad } = Read::folder(folder)?;
    if !bad.is_empty() {
        bail!("the pipelines have errors:\n  {}", listed(bad).join("\n  "));
    }
    if good.is_empty() {
        tracing::warn!(folder = %folder.display(), "there are no pipelines: found no .toml file");
    }
    Ok(good)
}

/// What the files of a folder say.
pub(super) struct Read {
    /// The pipelines of those that can be used.
    pub(super) good: Pipelines,
    /// The errors of the others, by the pipeline that they should have.
    bad: BTreeMap<String, Vec<String>>,
}

impl Read {
    /// Reads each `.toml` file.
    ///
    /// # Errors
    ///
    /// The folder cannot be read.
    pub(super) fn folder(folder: &Path) -> anyhow::Result<Self> {
        let unreadable = || format!("cannot read the pipelines' folder {}", folder.display());
        let mut read = Self { good: Pipelines::new(), bad: BTreeMap::new() };
        for entry in std::fs::read_dir(folder).with_context(unreadable)? {
            let path = entry.with_context(unreadable)?.path();
            if path.extension().is_none_or(|extension| extension != "toml") {
                continue;
            }
            match file(&path) {
                Ok(definition) => drop(read.good.insert(definition.name.clone(), Arc::new(definition))),
                Err(errors) => drop(read.bad.insert(named(&path), errors)),
            }
        }
        Ok(read)
    }

    /// All errors, in the order of the files.
    pub(super) fn errors(self) -> Vec<String> {
        listed(self.bad)
    }
}

fn file(path: &Path) -> Result<Definition, Vec<String>> {
    let text = std::fs::read_to_string(path).map_err(|e| vec![format!("cannot read {}: {e}", path.display())])?;
    let parsed = pipeline::parse(&text, &path.display().to_string());
    parsed.map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

/// The name that the pipeline of this file must have.
fn named(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn listed(bad: BTreeMap<String, Vec<String>>) -> Vec<String> {
    bad.into_values().flatten().collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const TRIPS: &str = r#"
name = "trips"
[source]
format = "parquet"
path = "trips.parquet"
[source.columns]
at = "datetime"
[partition]
month = { month_of = "at" }
[measures]
trips = "count(*)"
"#;

    struct Fixture {
        dir: tempfile::TempDir,
        folder: PipelineFolder,
    }

    impl Fixture {
        /// A folder with one file, read.
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("trips.toml"), TRIPS).unwrap();
            let folder = PipelineFolder::load(dir.path()).unwrap();
            Self { dir, folder }
        }

        fn write(&self, name: &str, text: &str) {
            std::fs::write(self.dir.path().join(name), text).unwrap();
        }

        /// Reads it again: how many measures each pipeline has, and how many errors there are.
        fn reload(&self) -> (Vec<(String, usize)>, usize) {
            self.folder.take(Read::folder(self.dir.path()));
            let now = Arc::clone(&self.folder.current.borrow());
            let found = now.values().map(|d| (d.name.clone(), d.measures.len())).collect();
            (found, self.folder.errors.borrow().len())
        }
    }

    fn of(name: &str, measures: usize) -> (String, usize) {
        (name.to_owned(), measures)
    }

    #[test]
    fn a_changed_file_is_taken_over_and_a_bad_one_changes_nothing() {
        let f = Fixture::new();
        f.write("trips.toml", &format!("{TRIPS}more = \"count(at)\"\n"));
        assert_eq!(f.reload(), (vec![of("trips", 2)], 0));
        f.write("trips.toml", "name = ");
        f.write("others.toml", &TRIPS.replace("name = \"trips\"", "name = \"others\""));
        f.write("new.toml", "name = ");
        assert_eq!(f.reload(), (vec![of("others", 1), of("trips", 2)], 2));
        f.write("trips.toml", TRIPS);
        std::fs::remove_file(f.dir.path().join("new.toml")).unwrap();
        assert_eq!(f.reload(), (vec![of("others", 1), of("trips", 1)], 0));
    }

    #[test]
    fn a_file_that_is_gone_takes_its_pipeline_and_a_folder_that_is_gone_takes_none() {
        let f = Fixture::new();
        f.folder.take(Read::folder(&f.dir.path().join("absent")));
        assert_eq!((f.folder.current.borrow().len(), f.folder.errors.borrow().len()), (1, 1));
        std::fs::remove_file(f.dir.path().join("trips.toml")).unwrap();
        assert_eq!(f.reload(), (vec![], 0));
        assert!(f.folder.tables.borrow().contains("trips"), "runs of it may still be at work");
    }
}
