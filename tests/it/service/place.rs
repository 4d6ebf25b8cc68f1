//! A working folder: source files, pipelines and a warehouse, and the servers over them.

use super::{Column, Server, Store, database, write_parquet};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tempfile::TempDir;

/// A temporary folder with everything that a service needs; gone with the test.
pub(super) struct Place {
    root: TempDir,
    database_url: Option<String>,
}

impl Place {
    /// An empty one.
    pub(super) async fn new(store: Store) -> Self {
        let root = tempfile::Builder::new().prefix("refrain-it-").tempdir().unwrap();
        fs::create_dir(root.path().join("pipelines")).unwrap();
        let database_url = match store {
            Store::Sqlite => None,
            Store::Postgres => Some(database::create().await),
        };
        Self { root, database_url }
    }

    pub(super) fn path(&self, relative: &str) -> PathBuf {
        self.root.path().join(relative)
    }

    pub(super) fn table(&self, pipeline: &str) -> PathBuf {
        self.path("refrain-data/warehouse").join(pipeline)
    }

    /// Writes (or replaces) a pipeline file; a server reads it when it starts.
    pub(super) fn pipeline(&self, name: &str, text: &str) {
        fs::write(self.path("pipelines").join(format!("{name}.toml")), text).unwrap();
    }

    /// Writes a source file.
    pub(super) fn source(&self, relative: &str, columns: Vec<Column>) {
        let path = self.path(relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        write_parquet(&path, columns);
    }

    pub(super) fn remove(&self, relative: &str) {
        fs::remove_file(self.path(relative)).unwrap();
    }

    /// Starts a server with one worker.
    pub(super) async fn start(&self) -> Server {
        self.start_with(&["--workers", "1"], &[]).await
    }

    /// Starts a server with these flags and environment variables.
    pub(super) async fn start_with(&self, flags: &[&str], environment: &[(&str, &str)]) -> Server {
        let mut all: Vec<String> = [
            ("--data-dir", self.path("refrain-data")),
            ("--pipelines", self.path("pipelines")),
            ("--source-root", self.root.path().to_owned()),
        ]
        .into_iter()
        .flat_map(|(flag, path)| [flag.to_owned(), path.to_str().unwrap().to_owned()])
        .collect();
        if let Some(url) = &self.database_url {
            all.extend(["--database-url".to_owned(), url.clone()]);
        }
        all.extend(flags.iter().map(|flag| (*flag).to_owned()));
        Server::start(self.root.path(), &all, environment).await
    }

    /// Every file of a table with its content and modification time, by its path below the table.
    pub(super) fn files_of(&self, pipeline: &str) -> BTreeMap<String, (Vec<u8>, SystemTime)> {
        let table = self.table(pipeline);
        let read = |path: &Path| (fs::read(path).unwrap(), fs::metadata(path).unwrap().modified().unwrap());
        files_below(&table)
            .into_iter()
            .map(|path| (path.strip_prefix(&table).unwrap().to_str().unwrap().to_owned(), read(&path)))
            .collect()
    }

    /// Every Parquet file in the whole place, by its path.
    pub(super) fn parquet_files(&self) -> Vec<String> {
        let relative = |path: PathBuf| path.strip_prefix(self.root.path()).unwrap().to_str().unwrap().to_owned();
        let mut found: Vec<String> = files_below(self.root.path()).into_iter().map(relative).collect();
        found.retain(|path| path.ends_with(".parquet"));
        found.sort();
        found
    }
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    walkdir::WalkDir::new(folder)
        .into_iter()
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_file())
        .map(walkdir::DirEntry::into_path)
        .collect()
}
