//! A working folder: source files, pipelines and a warehouse, and the servers over them.

use super::{Column, Server, Store, database, write_parquet};
use crate::proxy::Proxy;
use refrain::store::{PostgresOptions, PostgresStore, RunStore, SqliteStore};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use tempfile::TempDir;

/// A temporary folder with everything that a service needs; gone with the test.
pub(crate) struct Place {
    root: TempDir,
    database_url: Option<String>,
}

impl Place {
    /// An empty one.
    pub(crate) async fn new(store: Store) -> Self {
        let root = tempfile::Builder::new().prefix("refrain-it-").tempdir().unwrap();
        fs::create_dir(root.path().join("pipelines")).unwrap();
        let database_url = match store {
            Store::Sqlite => None,
            Store::Postgres => Some(database::create().await),
        };
        Self { root, database_url }
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.root.path().join(relative)
    }

    pub(crate) fn table(&self, pipeline: &str) -> PathBuf {
        self.path("refrain-data/warehouse").join(pipeline)
    }

    /// Writes (or replaces) a pipeline file; a server reads it when it starts.
    pub(crate) fn pipeline(&self, name: &str, text: &str) {
        fs::write(self.path("pipelines").join(format!("{name}.toml")), text).unwrap();
    }

    /// Writes a source file.
    pub(crate) fn source(&self, relative: &str, columns: Vec<Column>) {
        let path = self.path(relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        write_parquet(&path, columns);
    }

    pub(crate) fn remove(&self, relative: &str) {
        fs::remove_file(self.path(relative)).unwrap();
    }

    /// Starts a server with one worker.
    pub(crate) async fn start(&self) -> Server {
        self.start_with(&["--workers", "1"], &[]).await
    }

    /// Starts a server with these flags and environment variables.
    pub(crate) async fn start_with(&self, flags: &[&str], environment: &[(&str, &str)]) -> Server {
        self.start_under(&[], flags, environment).await
    }

    /// Starts a server whose flags name the folder of its data.
    pub(crate) async fn start_with_folders(&self, flags: &[&str]) -> Server {
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let ours = self.flags_of_folders(&[]).into_iter().skip_while(|flag| flag != "--pipelines");
        Server::start(&[], self.root.path(), &ours.chain(flags).collect::<Vec<_>>(), &[]).await
    }

    /// [`Place::start_with`] under a command that becomes the server.
    pub(crate) async fn start_under(&self, wrapper: &[&str], flags: &[&str], environment: &[(&str, &str)]) -> Server {
        Server::start(wrapper, self.root.path(), &self.flags(flags), environment).await
    }

    /// [`Place::start_with`] over a network of the test's own.
    pub(crate) async fn start_behind(&self, proxy: &Proxy, flags: &[&str], environment: &[(&str, &str)]) -> Server {
        let flags = [&["--database-url", proxy.url()], flags].concat();
        Server::start(&[], self.root.path(), &self.flags_of_folders(&flags), environment).await
    }

    /// [`Place::start_with`] with the database's URL in a file.
    pub(crate) async fn start_by_file(&self, file: &Path) -> Server {
        let flags = self.flags_of_folders(&["--workers", "1", "--database-url-file", file.to_str().unwrap()]);
        Server::start(&[], self.root.path(), &flags, &[]).await
    }

    /// [`Place::start_with`] with the database's URL in the environment.
    pub(crate) async fn start_by_variable(&self, environment: &[(&str, &str)]) -> Server {
        let url = [("REFRAIN_DATABASE_URL", self.database_url.as_deref().unwrap())];
        let flags = self.flags_of_folders(&["--workers", "1"]);
        Server::start(&[], self.root.path(), &flags, &[&url, environment].concat()).await
    }

    /// A network before the database.
    pub(crate) async fn proxy(&self) -> Proxy {
        Proxy::before(self.database_url.as_deref().unwrap()).await
    }

    /// [`Place::start_with`] without waiting, for a server that may die at any time.
    pub(crate) fn launch_with(&self, flags: &[&str], environment: &[(&str, &str)]) -> Server {
        self.launch_under(&[], flags, environment)
    }

    /// [`Place::launch_with`] under a command that becomes the server.
    pub(crate) fn launch_under(&self, wrapper: &[&str], flags: &[&str], environment: &[(&str, &str)]) -> Server {
        Server::launch(wrapper, self.root.path(), &self.flags(flags), environment)
    }

    /// Runs `refrain verify`; what it found, if it found anything.
    pub(crate) async fn verify(&self) -> Option<String> {
        let ended = self.verify_with(&[]).await;
        let said = [ended.stdout, ended.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        (!ended.status.success()).then_some(said)
    }

    /// Runs `refrain verify` with these flags.
    pub(crate) async fn verify_with(&self, flags: &[&str]) -> std::process::Output {
        let pipelines = self.path("pipelines");
        self.verb(&[&["verify", "--pipelines", pipelines.to_str().unwrap()], flags].concat()).await
    }

    /// Runs a verb that needs the database.
    pub(crate) async fn verb(&self, verb: &[&str]) -> std::process::Output {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_refrain"));
        command.args(&verb[..1]).arg("--data-dir").arg(self.path("refrain-data")).stdin(std::process::Stdio::null());
        if let Some(url) = &self.database_url {
            command.args(["--database-url", url]);
        }
        command.args(&verb[1..]).output().await.unwrap()
    }

    /// The URL of the Postgres database, where it is one.
    pub(crate) fn database_url(&self) -> Option<&str> {
        self.database_url.as_deref()
    }

    /// The database, opened beside the servers.
    pub(crate) async fn store(&self) -> Arc<dyn RunStore> {
        match &self.database_url {
            Some(url) => {
                Arc::new(PostgresStore::connect(&url.clone().into(), PostgresOptions::default()).await.unwrap())
            }
            None => Arc::new(SqliteStore::open_read_only(&self.path("refrain-data/refrain.db")).await.unwrap()),
        }
    }

    fn flags(&self, flags: &[&str]) -> Vec<String> {
        let mut all = self.flags_of_folders(flags);
        if let Some(url) = &self.database_url {
            all.extend(["--database-url".to_owned(), url.clone()]);
        }
        all
    }

    fn flags_of_folders(&self, flags: &[&str]) -> Vec<String> {
        let mut all: Vec<String> = [
            ("--data-dir", self.path("refrain-data")),
            ("--pipelines", self.path("pipelines")),
            ("--source-root", self.root.path().to_owned()),
        ]
        .into_iter()
        .flat_map(|(flag, path)| [flag.to_owned(), path.to_str().unwrap().to_owned()])
        .collect();
        all.extend(flags.iter().map(|flag| (*flag).to_owned()));
        all
    }

    /// Runs statements past the service, in the database's own dialect.
    pub(crate) async fn execute(&self, statements: &str) {
        let statements = AssertSqlSafe(statements.to_owned());
        match &self.database_url {
            Some(url) => {
                let mut database = PgConnection::connect(url).await.unwrap();
                sqlx::raw_sql(statements).execute(&mut database).await.unwrap();
                database.close().await.unwrap();
            }
            None => {
                let path = SqliteConnectOptions::new().filename(self.path("refrain-data/refrain.db"));
                let mut database = SqliteConnection::connect_with(&path).await.unwrap();
                sqlx::raw_sql(statements).execute(&mut database).await.unwrap();
                database.close().await.unwrap();
            }
        }
    }

    /// Every file of a table with its content and modification time, by its path below the table.
    pub(crate) fn files_of(&self, pipeline: &str) -> BTreeMap<String, (Vec<u8>, SystemTime)> {
        let table = self.table(pipeline);
        let read = |path: &Path| (fs::read(path).unwrap(), fs::metadata(path).unwrap().modified().unwrap());
        files_below(&table)
            .into_iter()
            .map(|path| (path.strip_prefix(&table).unwrap().to_str().unwrap().to_owned(), read(&path)))
            .collect()
    }

    /// Every Parquet file in the whole place, by its path.
    pub(crate) fn parquet_files(&self) -> Vec<String> {
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
