//! What the service tells of itself, and to whom.

use super::secret_in;
use anyhow::{Context, bail};
use clap::Args;
use secrecy::ExposeSecret;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Where metrics and traces go.
#[derive(Debug, Clone, Default, Args)]
pub struct TelemetrySettings {
    /// Serve /metrics, /healthz and /readyz, and nothing else, at this address too: for workers without HTTP, or where the
    /// interface is not for those who watch [default: nowhere].
    #[arg(long, env = "REFRAIN_METRICS_LISTEN", value_name = "ADDRESS")]
    pub metrics_listen: Option<SocketAddr>,
    /// Send traces to this collector, by OTLP over HTTP with protobuf: http://HOST:4318, or https. Spans go to /v1/traces below it
    /// [default: nowhere].
    #[arg(long, env = "REFRAIN_OTLP_ENDPOINT", value_name = "URL", value_parser = endpoint)]
    pub otlp_endpoint: Option<String>,
    /// A file of headers that the collector wants, one to a line: `Name: value`.
    #[arg(long, env = "REFRAIN_OTLP_HEADERS_FILE", value_name = "FILE", requires = "otlp_endpoint")]
    pub otlp_headers_file: Option<PathBuf>,
}

impl TelemetrySettings {
    /// The headers for the collector.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or a line of it is no header; the error has its path and number, and never its text.
    pub fn otlp_headers(&self) -> anyhow::Result<HashMap<String, String>> {
        let Some(file) = &self.otlp_headers_file else { return Ok(HashMap::new()) };
        let text = secret_in(file)?;
        let lines = text.expose_secret().lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        lines
            .map(|(at, line)| match line.split_once(':').map(|(name, value)| (name.trim(), value.trim())) {
                Some((name, value)) if is_name(name) && is_value(value) => Ok((name.to_owned(), value.to_owned())),
                _ => bail!("{}, line {}: found no header, expected `Name: value`", file.display(), at + 1),
            })
            .collect::<anyhow::Result<_>>()
            .context("cannot read the headers for the collector of traces")
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

fn is_value(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b == b' ' || b.is_ascii_graphic())
}

/// A URL without what may be secret in it.
fn endpoint(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://")).unwrap_or_default();
    let host = rest.split('/').next().unwrap_or_default();
    match !host.is_empty() && !host.contains('@') && !text.contains(['?', '#']) && is_value(text) && !text.contains(' ')
    {
        true => Ok(text.to_owned()),
        false => Err("expected http://HOST:PORT or https://HOST:PORT, perhaps with a path; secrets go into \
                      --otlp-headers-file"
            .to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn headers_are_read_from_a_file_and_never_shown() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("headers");
        let settings = TelemetrySettings { otlp_headers_file: Some(file.clone()), ..TelemetrySettings::default() };
        std::fs::write(&file, "Authorization: Bearer hunter2\n\nX-Scope: a b\n").unwrap();
        let expected = [("Authorization", "Bearer hunter2"), ("X-Scope", "a b")];
        assert_eq!(settings.otlp_headers().unwrap(), expected.map(|(n, v)| (n.to_owned(), v.to_owned())).into());
        for wrong in ["hunter2", ": hunter2", "a b: hunter2", "a:", "x: ok\nhunter2"] {
            std::fs::write(&file, wrong).unwrap();
            let error = format!("{:#}", settings.otlp_headers().unwrap_err());
            assert!(error.contains(file.to_str().unwrap()) && !error.contains("hunter2"), "{error}");
        }
        assert!(TelemetrySettings::default().otlp_headers().unwrap().is_empty());
    }

    #[test]
    fn an_endpoint_is_a_url_without_secrets() {
        for right in ["http://127.0.0.1:4318", "https://otel.example/otlp/"] {
            assert_eq!(endpoint(right).as_deref(), Ok(right));
        }
        for wrong in ["127.0.0.1:4318", "grpc://h:1", "http://", "http://u:p@h", "http://h/?key=1", "http://h h"] {
            assert!(endpoint(wrong).is_err(), "{wrong}");
        }
    }
}
