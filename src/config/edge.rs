//! Where connections come in, and how much one principal may ask for.

use clap::Args;
use std::path::PathBuf;

/// Connections, TLS, and what one principal may ask for.
#[derive(Debug, Clone, Args)]
pub struct EdgeSettings {
    /// Speak TLS with the certificate in this file (PEM, its chain after it). Read again when it changes, and at SIGHUP.
    #[arg(long, env = "REFRAIN_TLS_CERT_FILE", value_name = "FILE", requires = "tls_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// The certificate's private key (PEM: PKCS#8, SEC1 or RSA).
    #[arg(long, env = "REFRAIN_TLS_KEY_FILE", value_name = "FILE", requires = "tls_cert_file")]
    pub tls_key_file: Option<PathBuf>,
    /// How long before its end `/readyz` says that the certificate ends soon, in days.
    #[arg(long, env = "REFRAIN_TLS_EXPIRY_DAYS", default_value_t = 7, value_name = "DAYS")]
    pub tls_expiry_days: u32,
    /// The most connections at the same time.
    #[arg(long, env = "REFRAIN_MAX_CONNECTIONS", default_value_t = 16_000, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub max_connections: u32,
    /// The most connections of one address (of IPv6, one /64). Set it to 0, for no limit, where all come through a proxy.
    #[arg(long, env = "REFRAIN_MAX_CONNECTIONS_PER_ADDRESS", default_value_t = 12_000, value_name = "N")]
    pub max_connections_per_address: u32,
    /// How long a connection may be without a whole request head, in seconds: from its opening, or from the end of the answer
    /// before, and the same again for a TLS handshake.
    #[arg(long, env = "REFRAIN_HEADER_TIMEOUT_SECONDS", default_value_t = 30, value_name = "SECONDS")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub header_timeout_seconds: u32,
    /// How long a client may take nothing of what is sent to it, in seconds; then its connection ends.
    #[arg(long, env = "REFRAIN_WRITE_TIMEOUT_SECONDS", default_value_t = 30, value_name = "SECONDS")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub write_timeout_seconds: u32,
    /// The longest head of a request, in bytes.
    #[arg(long, env = "REFRAIN_MAX_HEADER_BYTES", default_value_t = 32_768, value_name = "BYTES")]
    #[arg(value_parser = clap::value_parser!(u32).range(1024..=1 << 20))]
    pub max_header_bytes: u32,
    /// The most headers of a request.
    #[arg(long, env = "REFRAIN_MAX_HEADERS", default_value_t = 100, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(10..=1000))]
    pub max_headers: u32,
    /// The most requests of one principal to runs and pipelines, each second; as many more may come at once as ten seconds
    /// allow. 0 for no limit.
    #[arg(long, env = "REFRAIN_MAX_REQUESTS_PER_SECOND", default_value_t = 1_000, value_name = "N")]
    pub max_requests_per_second: u32,
    /// The most submissions of one principal, each minute; so many may also come at once. 0 for no limit.
    #[arg(long, env = "REFRAIN_MAX_SUBMISSIONS_PER_MINUTE", default_value_t = 12_000, value_name = "N")]
    pub max_submissions_per_minute: u32,
    /// The most runs of one principal that wait in the queue. 0 for no limit.
    #[arg(long, env = "REFRAIN_MAX_QUEUED_RUNS", default_value_t = 20_000, value_name = "N")]
    pub max_queued_runs: u32,
    /// The most clients of one principal that wait for runs with `wait`, at the same time. 0 for no limit.
    #[arg(long, env = "REFRAIN_MAX_WAITING_CLIENTS", default_value_t = 11_000, value_name = "N")]
    pub max_waiting_clients: u32,
    /// What one principal may have of the streams of events and of the readers of partition files, in percent, where there
    /// are tokens; so others find some free.
    #[arg(long, env = "REFRAIN_PRINCIPAL_SHARE_PERCENT", default_value_t = 50, value_name = "PERCENT")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    pub principal_share_percent: u32,
}

impl Default for EdgeSettings {
    fn default() -> Self {
        Self {
            tls_cert_file: None,
            tls_key_file: None,
            tls_expiry_days: 7,
            max_connections: 16_000,
            max_connections_per_address: 12_000,
            header_timeout_seconds: 30,
            write_timeout_seconds: 30,
            max_header_bytes: 32_768,
            max_headers: 100,
            max_requests_per_second: 1_000,
            max_submissions_per_minute: 12_000,
            max_queued_runs: 20_000,
            max_waiting_clients: 11_000,
            principal_share_percent: 50,
        }
    }
}
