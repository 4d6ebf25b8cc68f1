//! The folder of the pipelines' files: read and checked at start, and again when the process is told to (SIGHUP).

use crate::http::Pipelines;
use crate::pipeline::{self, Definition};
use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::signal::unix::Signal;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// A folder's files, and the pipelines that are in force.
pub(super) struct PipelineFolder {
    folder: PathBuf,
    files: Files,
    current: watch::Sender<Arc<Pipelines>>,
    errors: watch::Sender<Arc<[String]>>,
}

/// Definitions by their files.
type Files = BTreeMap<PathBuf, Arc<Definition>>;

impl PipelineFolder {
    /// Reads the folder; the error has every error of its files.
    pub(super) fn load(folder: &Path) -> anyhow::Result<Self> {
        let Read { good, bad } = Read::folder(folder)?;
        if !bad.is_empty() {
            bail!("the pipelines have errors:\n  {}", errors(bad).join("\n  "));
        }
        if good.is_empty() {
            tracing::warn!(folder = %folder.display(), "there are no pipelines: found no .toml file");
        }
        Ok(Self::of(folder, good))
    }

    /// No pipelines, until there is a folder of them.
    pub(super) fn absent(folder: &Path) -> Self {
        Self::of(folder, Files::new())
    }

    fn of(folder: &Path, files: Files) -> Self {
        let current = watch::Sender::new(Arc::new(by_name(&files)));
        Self { folder: folder.to_owned(), files, current, errors: watch::Sender::new(Arc::default()) }
    }

    /// The pipelines that are in force, also after they are read again.
    pub(super) fn current(&self) -> watch::Receiver<Arc<Pipelines>> {
        self.current.subscribe()
    }

    /// What was wrong with the files when they were last read.
    pub(super) fn errors(&self) -> watch::Receiver<Arc<[String]>> {
        self.errors.subscribe()
    }

    /// Reads the folder again each time that the signal comes, until `shutdown`.
    pub(super) async fn reload_at(mut self, mut asked: Signal, shutdown: CancellationToken) {
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
    fn take(&mut self, read: anyhow::Result<Read>) {
        let (good, found) = match read {
            Err(error) => (self.files.clone(), vec![format!("{error:#}")]),
            Ok(Read { mut good, bad }) => {
                let old = self.files.iter().filter(|(path, _)| bad.contains_key(*path));
                let named: Vec<&str> = good.values().map(|definition| definition.name.as_str()).collect();
                // Another file may have the name by now.
                let kept: Files = old.filter(|(_, old)| !named.contains(&old.name.as_str())).map(owned).collect();
                good.extend(kept);
                (good, errors(bad))
            }
        };
        for error in &found {
            tracing::error!(error, "the pipelines have an error; what it concerns stays as it was");
        }
        self.files = good;
        let (before, now) = (Arc::clone(&self.current.borrow()), by_name(&self.files));
        let hash = |pipelines: &Pipelines, name: &String| pipelines.get(name).map(|d| d.hash.clone());
        let changed: Vec<&str> = before
            .keys()
            .chain(now.keys().filter(|name| !before.contains_key(*name)))
            .filter(|name| hash(&before, name) != hash(&now, name))
            .map(String::as_str)
            .collect();
        tracing::info!(pipelines = now.len(), changed = changed.join(", "), "read the pipelines again");
        self.current.send_replace(Arc::new(now));
        self.errors.send_replace(found.into());
    }
}

/// The pipeline files of a folder, checked; the error has every one of their errors.
pub(super) fn load_pipelines(folder: &Path) -> anyhow::Result<Pipelines> {
    Ok(by_name(&PipelineFolder::load(folder)?.files))
}

/// What the files of a folder say.
pub(super) struct Read {
    good: Files,
    /// The errors of those that cannot be used.
    bad: BTreeMap<PathBuf, Vec<String>>,
}

impl Read {
    /// Reads each `.toml` file.
    ///
    /// # Errors
    ///
    /// The folder cannot be read.
    pub(super) fn folder(folder: &Path) -> anyhow::Result<Self> {
        let unreadable = || format!("cannot read the pipelines' folder {}", folder.display());
        let entries = std::fs::read_dir(folder).with_context(unreadable)?;
        let mut paths =
            entries.map(|entry| entry.map(|e| e.path())).collect::<Result<Vec<_>, _>>().with_context(unreadable)?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
        paths.sort();
        let mut read = Self { good: Files::new(), bad: BTreeMap::new() };
        for path in paths {
            match read.file(&path) {
                Ok(definition) => drop(read.good.insert(path, Arc::new(definition))),
                Err(errors) => drop(read.bad.insert(path, errors)),
            }
        }
        Ok(read)
    }

    /// The names of the pipelines, and the errors.
    pub(super) fn into_names_and_errors(self) -> (Vec<String>, Vec<String>) {
        (by_name(&self.good).into_keys().collect(), errors(self.bad))
    }

    fn file(&self, path: &Path) -> Result<Definition, Vec<String>> {
        let text = std::fs::read_to_string(path).map_err(|e| vec![format!("cannot read {}: {e}", path.display())])?;
        let definition = pipeline::parse(&text, &path.display().to_string())
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        let same = self.good.iter().find(|(_, other)| other.name == definition.name);
        match same {
            None => Ok(definition),
            Some((other, _)) => Err(vec![format!(
                "{}: name: found {:?}, which is the name of {} too, expected one file for each pipeline",
                path.display(),
                definition.name,
                other.display()
            )]),
        }
    }
}

fn errors(bad: BTreeMap<PathBuf, Vec<String>>) -> Vec<String> {
    bad.into_values().flatten().collect()
}

fn by_name(files: &Files) -> Pipelines {
    files.values().map(|definition| (definition.name.clone(), Arc::clone(definition))).collect()
}

fn owned((path, definition): (&PathBuf, &Arc<Definition>)) -> (PathBuf, Arc<Definition>) {
    (path.clone(), Arc::clone(definition))
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
            std::fs::write(dir.path().join("a.toml"), TRIPS).unwrap();
            let folder = PipelineFolder::load(dir.path()).unwrap();
            Self { dir, folder }
        }

        fn write(&self, name: &str, text: &str) {
            std::fs::write(self.dir.path().join(name), text).unwrap();
        }

        /// Reads it again: the measures of each pipeline, and how many errors there are.
        fn reload(&mut self) -> (Vec<(String, usize)>, usize) {
            self.folder.take(Read::folder(self.dir.path()));
            let now = Arc::clone(&self.folder.current.borrow());
            let found = now.values().map(|d| (d.name.clone(), d.measures.len())).collect();
            (found, self.folder.errors.borrow().len())
        }
    }

    fn trips(measures: usize) -> (String, usize) {
        ("trips".to_owned(), measures)
    }

    #[test]
    fn a_changed_file_is_taken_over_and_a_bad_one_changes_nothing() {
        let mut f = Fixture::new();
        f.write("a.toml", &format!("{TRIPS}more = \"count(at)\"\n"));
        assert_eq!(f.reload(), (vec![trips(2)], 0));
        f.write("a.toml", "name = ");
        f.write("b.toml", &TRIPS.replace("\"trips\"", "\"others\""));
        assert_eq!(f.reload(), (vec![("others".to_owned(), 1), trips(2)], 1));
        f.write("a.toml", TRIPS);
        assert_eq!(f.reload(), (vec![("others".to_owned(), 1), trips(1)], 0));
    }

    #[test]
    fn a_file_that_is_gone_takes_its_pipeline_and_a_folder_that_is_gone_takes_none() {
        let mut f = Fixture::new();
        f.folder.take(Read::folder(&f.dir.path().join("absent")));
        assert_eq!((f.folder.current.borrow().len(), f.folder.errors.borrow().len()), (1, 1));
        std::fs::remove_file(f.dir.path().join("a.toml")).unwrap();
        assert_eq!(f.reload(), (vec![], 0));
    }

    #[test]
    fn a_name_has_one_file() {
        let mut f = Fixture::new();
        f.write("b.toml", &format!("{TRIPS}more = \"count(at)\"\n"));
        assert_eq!(f.reload(), (vec![trips(1)], 1), "the first by path is the one that stays");
        assert!(f.folder.errors.borrow()[0].contains("a.toml"), "{:?}", f.folder.errors.borrow());
        let error = PipelineFolder::load(f.dir.path()).err().unwrap().to_string();
        assert!(error.contains("expected one file for each pipeline"), "{error}");
        // Moved to another file, and what is left is bad.
        f.write("a.toml", "name = ");
        assert_eq!(f.reload(), (vec![trips(2)], 1));
    }
}
