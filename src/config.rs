//! Settings: a flag is an environment variable (`REFRAIN_*`), read and checked once.

mod access;
mod edge;
mod in_force;
mod keeping;
mod notify;
mod telemetry;

pub use access::AccessSettings;
pub use edge::EdgeSettings;
pub use in_force::{InForce, Origin, Setting, in_force, unknown_variables};
pub use keeping::KeepSettings;
pub use notify::NotifySettings;
pub use telemetry::TelemetrySettings;

use anyhow::Context;
use clap::Args;
use secrecy::SecretString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Where the database is.
#[derive(Debug, Clone, Args)]
pub struct DatabaseSettings {
    /// The folder of the embedded database and, unless --warehouse says otherwise, of the warehouse.
    #[arg(long, env = "REFRAIN_DATA_DIR", default_value = "./refrain-data", value_name = "DIR")]
    pub data_dir: PathBuf,
    /// Keep the runs in this Postgres instead of the embedded database: postgres://user:password@host/database. Set it
    /// by the environment, where a process listing does not show it.
    #[arg(long, env = "REFRAIN_DATABASE_URL", hide_env_values = true, value_name = "URL")]
    pub database_url: Option<SecretString>,
    /// A file that holds that URL, and nothing else but a line's end.
    #[arg(long, env = "REFRAIN_DATABASE_URL_FILE", value_name = "FILE", conflicts_with = "database_url")]
    pub database_url_file: Option<PathBuf>,
    /// Connections to Postgres, at most.
    #[arg(long, env = "REFRAIN_DATABASE_CONNECTIONS", default_value_t = 10, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub database_connections: u32,
    /// The root of the tables [default: `warehouse` in the data folder].
    #[arg(long, env = "REFRAIN_WAREHOUSE", value_name = "DIR")]
    pub warehouse: Option<PathBuf>,
}

impl DatabaseSettings {
    /// The Postgres to use, if any: as it was given, or as its file says.
    ///
    /// # Errors
    ///
    /// The file cannot be read or holds nothing; the error has its path and never its text.
    pub fn url(&self) -> anyhow::Result<Option<SecretString>> {
        match &self.database_url_file {
            None => Ok(self.database_url.clone()),
            Some(file) => secret_in(file).map(Some),
        }
    }

    /// The file of the embedded database.
    pub fn sqlite_path(&self) -> PathBuf {
        self.data_dir.join("refrain.db")
    }

    /// The root of the tables.
    pub fn warehouse_path(&self) -> PathBuf {
        self.warehouse.clone().unwrap_or_else(|| self.data_dir.join("warehouse"))
    }
}

/// How much one request may ask for.
#[derive(Debug, Clone, Args)]
pub struct LimitSettings {
    /// The longest body of a request, in bytes.
    #[arg(long, env = "REFRAIN_MAX_BODY_BYTES", default_value_t = 1 << 20, value_name = "BYTES")]
    pub max_body_bytes: usize,
    /// The most partitions that a run may name.
    #[arg(long, env = "REFRAIN_MAX_PARTITIONS_PER_RUN", default_value_t = 10_000, value_name = "N")]
    pub max_partitions_per_run: usize,
    /// The most entries on a page of a listing.
    #[arg(long, env = "REFRAIN_MAX_PAGE", default_value_t = 1_000, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_page: u32,
    /// The longest wait for a run's end, in seconds; who asks for more waits so long.
    #[arg(long, env = "REFRAIN_MAX_WAIT_SECONDS", default_value_t = 60, value_name = "SECONDS")]
    pub max_wait_seconds: u32,
    /// The longest time that a request may take beside its wait, in seconds.
    #[arg(long, env = "REFRAIN_REQUEST_TIMEOUT_SECONDS", default_value_t = 30, value_name = "SECONDS")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub request_timeout_seconds: u64,
    /// The most streams of a run's events at the same time.
    #[arg(long, env = "REFRAIN_MAX_EVENT_STREAMS", default_value_t = 1_000, value_name = "N")]
    pub max_event_streams: usize,
    /// How long a stream of events goes on, in seconds; then its client comes back and goes on where it was.
    #[arg(long, env = "REFRAIN_MAX_EVENT_STREAM_SECONDS", default_value_t = 3_600, value_name = "SECONDS")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub max_event_stream_seconds: u64,
    /// The most partition files whose rows are read for clients at the same time, each by a process of its own.
    #[arg(long, env = "REFRAIN_MAX_READERS", default_value_t = 4, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=256))]
    pub max_readers: u32,
    /// The memory for the data of one such process, in MiB.
    #[arg(long, env = "REFRAIN_READER_MEMORY_MB", default_value_t = 1_024, value_name = "MIB")]
    #[arg(value_parser = clap::value_parser!(u64).range(64..))]
    pub reader_memory_mb: u64,
}

/// How runs are worked on.
#[derive(Debug, Clone, Args)]
pub struct WorkSettings {
    /// The folder of the pipeline files.
    #[arg(long, env = "REFRAIN_PIPELINES", default_value = "./pipelines", value_name = "DIR")]
    pub pipelines: PathBuf,
    /// Where relative source paths start [default: the working directory].
    #[arg(long, env = "REFRAIN_SOURCE_ROOT", default_value = ".", hide_default_value = true, value_name = "DIR")]
    pub source_root: PathBuf,
    /// Runs that this process works on at the same time.
    #[arg(long, env = "REFRAIN_WORKERS", default_value_t = 1, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=256))]
    pub workers: u32,
    /// How long a worker may be silent before its run is another's, in seconds.
    #[arg(long, env = "REFRAIN_LEASE_SECONDS", default_value_t = 30, value_name = "SECONDS")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub lease_seconds: u32,
    /// The delay before the second attempt of a run, where its pipeline does not say, in seconds.
    #[arg(long, env = "REFRAIN_RETRY_DELAY_SECONDS", default_value_t = 30, value_name = "SECONDS")]
    pub retry_delay_seconds: u32,
    /// How many workers or engines a run may lose before it fails.
    #[arg(long, env = "REFRAIN_MAX_LOST_WORKERS", default_value_t = 5, value_name = "N")]
    pub max_lost_workers: u32,
    /// The memory for the data of one run's engine, in MiB [default: no limit].
    #[arg(long, env = "REFRAIN_ENGINE_MEMORY_MB", value_name = "MIB")]
    #[arg(value_parser = clap::value_parser!(u64).range(64..))]
    pub engine_memory_mb: Option<u64>,
    /// The size of the source files, in MiB, at which a slice of a run ends: one that is finished is not computed again when
    /// the worker dies. With 0 slices are as small as the sources allow.
    #[arg(long, env = "REFRAIN_SLICE_SOURCE_MB", default_value_t = 512, value_name = "MIB")]
    #[arg(value_parser = clap::value_parser!(u64).range(0..=1 << 30))]
    pub slice_source_mb: u64,
    /// The servers whose files may be sources, by commas: a host name (for the port of https or http) or host:port, exactly
    /// as in the URL. No other is asked, nor followed to by a redirect [default: none].
    #[arg(long, env = "REFRAIN_SOURCE_HOSTS", value_name = "HOSTS", value_delimiter = ',', value_parser = source_host)]
    pub source_hosts: Vec<String>,
    /// The longest source file that is read from a URL, in MiB.
    #[arg(long, env = "REFRAIN_MAX_SOURCE_MB", default_value_t = 10_240, value_name = "MIB")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub max_source_mb: u64,
    /// How long the server of a URL may send nothing, in seconds.
    #[arg(long, env = "REFRAIN_SOURCE_TIMEOUT_SECONDS", default_value_t = 30, value_name = "SECONDS")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub source_timeout_seconds: u32,
    /// How long a running attempt may go on after the shutdown began, in seconds; then it is handed back.
    #[arg(long, env = "REFRAIN_SHUTDOWN_GRACE_SECONDS", default_value_t = 10, value_name = "SECONDS")]
    pub shutdown_grace_seconds: u32,
    /// How often staging that nobody needs is swept, in seconds.
    #[arg(long, env = "REFRAIN_SWEEP_SECONDS", default_value_t = 300, value_name = "SECONDS")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub sweep_seconds: u32,
    /// How long what is over is kept.
    #[command(flatten)]
    pub keep: KeepSettings,
}

/// Everything that the service is told.
#[derive(Debug, Clone, Args)]
pub struct Settings {
    /// The address to listen on.
    #[arg(long, env = "REFRAIN_LISTEN", default_value = "127.0.0.1:8080", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Who is let in.
    #[command(flatten)]
    pub access: AccessSettings,
    /// Where the database is.
    #[command(flatten)]
    pub database: DatabaseSettings,
    /// How runs are worked on.
    #[command(flatten)]
    pub work: WorkSettings,
    /// How much one request may ask for.
    #[command(flatten)]
    pub limits: LimitSettings,
    /// Who is told of runs.
    #[command(flatten)]
    pub notify: NotifySettings,
    /// What it tells of itself.
    #[command(flatten)]
    pub telemetry: TelemetrySettings,
    /// Connections, TLS, and what one principal may ask for.
    #[command(flatten)]
    pub edge: EdgeSettings,
}

impl Settings {
    /// The settings where nothing is said, for this data folder, these pipelines and these sources.
    pub fn for_folders(data_dir: &Path, pipelines: &Path, source_root: &Path) -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            access: AccessSettings { insecure: false },
            database: DatabaseSettings {
                data_dir: data_dir.to_owned(),
                database_url: None,
                database_url_file: None,
                database_connections: 10,
                warehouse: None,
            },
            work: WorkSettings {
                pipelines: pipelines.to_owned(),
                source_root: source_root.to_owned(),
                workers: 1,
                lease_seconds: 30,
                retry_delay_seconds: 30,
                max_lost_workers: 5,
                engine_memory_mb: None,
                slice_source_mb: 512,
                source_hosts: Vec::new(),
                max_source_mb: 10_240,
                source_timeout_seconds: 30,
                shutdown_grace_seconds: 10,
                sweep_seconds: 300,
                keep: KeepSettings::default(),
            },
            limits: LimitSettings {
                max_body_bytes: 1 << 20,
                max_partitions_per_run: 10_000,
                max_page: 1_000,
                max_wait_seconds: 60,
                request_timeout_seconds: 30,
                max_event_streams: 1_000,
                max_event_stream_seconds: 3_600,
                max_readers: 4,
                reader_memory_mb: 1_024,
            },
            notify: NotifySettings::default(),
            telemetry: TelemetrySettings::default(),
            edge: EdgeSettings::default(),
        }
    }
}

/// The secret that a file holds: its text without the end of the line.
///
/// # Errors
///
/// The file cannot be read or holds nothing; the error has its path and never its text.
pub fn secret_in(file: &Path) -> anyhow::Result<SecretString> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read the secret in {}", file.display()))?;
    match text.trim_end_matches(['\r', '\n']) {
        "" => anyhow::bail!("the file {} is empty, expected a secret in it", file.display()),
        secret => Ok(secret.into()),
    }
}

/// A host, or a host and a port, in lower case as URLs are compared.
fn source_host(text: &str) -> Result<String, String> {
    let text = text.trim().to_ascii_lowercase();
    let known = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    match !text.is_empty() && text.chars().all(known) {
        true => Ok(text),
        false => Err("expected a host such as data.example.org, or host:port".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use clap::Parser;
    use secrecy::ExposeSecret;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        settings: Settings,
    }

    #[test]
    fn the_defaults_of_the_flags_are_those_of_the_settings() {
        let flags = Flags::parse_from(["refrain"]).settings;
        let said = Settings::for_folders(Path::new("./refrain-data"), Path::new("./pipelines"), Path::new("."));
        assert_eq!(format!("{flags:?}"), format!("{said:?}"));
    }

    #[test]
    fn source_hosts_are_names_by_commas() {
        let hosts =
            |text| Flags::try_parse_from(["refrain", "--source-hosts", text]).map(|f| f.settings.work.source_hosts);
        assert_eq!(
            hosts("Data.example.org, 127.0.0.1:8000,[::1]:80").unwrap(),
            ["data.example.org", "127.0.0.1:8000", "[::1]:80"]
        );
        for wrong in ["https://data.example.org", "data.example.org/x", "*.example.org", "a,,b"] {
            assert!(hosts(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_secret_may_be_in_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("url");
        let url = || {
            let flags = ["refrain", "--database-url-file", file.to_str().unwrap()];
            Flags::try_parse_from(flags).unwrap().settings.database.url()
        };
        assert!(format!("{:#}", url().unwrap_err()).contains(file.to_str().unwrap()));
        std::fs::write(&file, "\n").unwrap();
        assert!(url().unwrap_err().to_string().contains("is empty"));
        std::fs::write(&file, "postgres://u:hunter2@h/d\n").unwrap();
        assert_eq!(url().unwrap().unwrap().expose_secret(), "postgres://u:hunter2@h/d");
        let both = ["refrain", "--database-url", "postgres://h/d", "--database-url-file", "x"];
        assert!(Flags::try_parse_from(both).is_err());
    }

    #[test]
    fn the_database_url_is_not_shown() {
        let flags = Flags::parse_from(["refrain", "--database-url", "postgres://u:hunter2@h/d"]).settings;
        assert!(!format!("{flags:?}").contains("hunter2"));
    }
}
