//! Who is told of runs.

use crate::notify::Schedule;
use clap::Args;
use secrecy::SecretString;
use std::path::PathBuf;

/// Webhooks at the ends of runs, and lineage of their attempts.
#[derive(Debug, Clone, Args)]
pub struct NotifySettings {
    /// The URLs that are told of the end of every run which this server accepts, by commas, on hosts of --webhook-hosts.
    #[arg(long, env = "REFRAIN_WEBHOOK_URL", hide_env_values = true, value_name = "URLS", value_delimiter = ',')]
    pub webhook_url: Vec<SecretString>,
    /// The hosts that webhooks may go to, by commas: hooks.example.org, *.example.org, an address or a net such as
    /// 10.1.2.0/24, with :port where it is not the usual one, and with http:// before it for a host without TLS. A name leads
    /// to public addresses, and to others only where these are listed too [default: none].
    #[arg(long, env = "REFRAIN_WEBHOOK_HOSTS", value_name = "HOSTS", value_delimiter = ',')]
    pub webhook_hosts: Vec<String>,
    /// A file of the secrets that webhooks are signed with, one a line: whsec_ and 24 to 64 bytes in base64. Each signs, so
    /// that receivers can go from one to the next.
    #[arg(long, env = "REFRAIN_WEBHOOK_SECRET_FILE", value_name = "FILE")]
    pub webhook_secret_file: Option<PathBuf>,
    /// The delays in seconds after failed tries, by commas; after the last one it is given up.
    #[arg(long, env = "REFRAIN_NOTIFY_RETRY_SECONDS", value_name = "SECONDS", value_delimiter = ',')]
    #[arg(default_values_t = Schedule::USUAL_SECONDS)]
    pub notify_retry_seconds: Vec<u32>,
    /// Append OpenLineage events to this file, one a line.
    #[arg(long, env = "REFRAIN_OPENLINEAGE_FILE", value_name = "FILE", conflicts_with = "openlineage_url")]
    pub openlineage_file: Option<PathBuf>,
    /// Post OpenLineage events to this URL, such as `https://marquez.example.org/api/v1/lineage`.
    #[arg(long, env = "REFRAIN_OPENLINEAGE_URL", hide_env_values = true, value_name = "URL")]
    pub openlineage_url: Option<SecretString>,
    /// A file that holds the bearer token for that URL.
    #[arg(long, env = "REFRAIN_OPENLINEAGE_TOKEN_FILE", value_name = "FILE", requires = "openlineage_url")]
    pub openlineage_token_file: Option<PathBuf>,
    /// The namespace of the pipelines in OpenLineage events.
    #[arg(long, env = "REFRAIN_OPENLINEAGE_NAMESPACE", default_value = "refrain", value_name = "NAME")]
    pub openlineage_namespace: String,
}

impl Default for NotifySettings {
    fn default() -> Self {
        Self {
            webhook_url: Vec::new(),
            webhook_hosts: Vec::new(),
            webhook_secret_file: None,
            notify_retry_seconds: Schedule::USUAL_SECONDS.to_vec(),
            openlineage_file: None,
            openlineage_url: None,
            openlineage_token_file: None,
            openlineage_namespace: "refrain".to_owned(),
        }
    }
}
