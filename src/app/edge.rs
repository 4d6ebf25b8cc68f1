//! The listening side, as the settings say: connections, TLS, and how its certificate is.

use crate::config::EdgeSettings;
use crate::edge::tls::{CertificateState, Certificates};
use crate::edge::{ConnectionLimits, Descriptors, Edge, Refusals};
use crate::http::{connection_refused, plain_http_refused};
use anyhow::Context;
use chrono::{TimeDelta, Utc};
use std::time::Duration;
use tokio::sync::watch;

/// The listener, and the certificate to keep up to date where it speaks TLS.
pub(super) fn edge(settings: &EdgeSettings) -> anyhow::Result<(Edge, Option<Certificates>)> {
    let certificates = match (&settings.tls_cert_file, &settings.tls_key_file) {
        (Some(cert), Some(key)) => Some(Certificates::load(cert, key).context("cannot speak TLS")?),
        _ => None,
    };
    let seconds = |seconds: u32| Duration::from_secs(u64::from(seconds));
    let limits = ConnectionLimits {
        max_connections: Descriptors::raise().connections(settings.max_connections as usize),
        max_connections_per_address: match settings.max_connections_per_address {
            0 => None,
            most => Some(most as usize),
        },
        header_timeout: seconds(settings.header_timeout_seconds),
        write_timeout: seconds(settings.write_timeout_seconds),
        max_header_bytes: settings.max_header_bytes as usize,
        max_headers: settings.max_headers as usize,
    };
    let tls = certificates.as_ref().map(Certificates::tls).transpose()?;
    Ok((Edge { limits, tls, refusals: Refusals::new(connection_refused(), plain_http_refused()) }, certificates))
}

/// A listener without TLS for the few who watch over the service.
pub(super) fn plain() -> Edge {
    let limits = ConnectionLimits {
        max_connections: 100,
        max_connections_per_address: None,
        header_timeout: Duration::from_secs(10),
        write_timeout: Duration::from_secs(10),
        max_header_bytes: 32_768,
        max_headers: 100,
    };
    Edge { limits, tls: None, refusals: Refusals::new(connection_refused(), plain_http_refused()) }
}

/// The certificate, for readyz.
#[derive(Clone)]
pub(super) struct Certificate {
    pub(super) state: watch::Receiver<CertificateState>,
    /// How long before its end it is said that it ends soon.
    pub(super) soon: TimeDelta,
}

impl Certificate {
    pub(super) fn of(certificates: &Certificates, settings: &EdgeSettings) -> Self {
        Self { state: certificates.state(), soon: TimeDelta::days(settings.tls_expiry_days.into()) }
    }

    /// What is to be said of the certificate, as an error where somebody must look.
    pub(super) fn check(&self) -> Result<String, String> {
        let state = self.state.borrow();
        let left = state.left(Utc::now());
        let ends = format!("the certificate in force ends at {}", state.ends_at.to_rfc3339());
        match &state.trouble {
            Some(trouble) => Err(format!("{trouble}; {ends}")),
            None if left < TimeDelta::zero() => Err(format!("{ends}, which is over")),
            None if left < self.soon => Err(format!("{ends}, which is in {} hours", left.num_hours())),
            None => Ok(ends),
        }
    }
}
