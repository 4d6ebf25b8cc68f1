//! Which servers' certificates are taken.

use super::ClientError;
use reqwest::{Certificate, ClientBuilder};
use std::path::PathBuf;

/// Which servers' certificates a client takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// Those that the machine trusts.
    Platform,
    /// Those of the authorities in this file (PEM), and no other.
    Roots(PathBuf),
    /// Any: of a server on this machine, to which nothing is told that is secret.
    Anything,
}

impl Trust {
    /// Those of the authorities in the file, where there is one.
    pub fn by(file: Option<PathBuf>) -> Self {
        file.map_or(Self::Platform, Self::Roots)
    }

    pub(super) fn of(&self, builder: ClientBuilder) -> Result<ClientBuilder, ClientError> {
        match self {
            Self::Platform => Ok(builder),
            Self::Anything => Ok(builder.tls_danger_accept_invalid_certs(true)),
            Self::Roots(file) => {
                let wrong = |detail: String| ClientError::Roots { file: file.clone(), detail };
                let text = std::fs::read(file).map_err(|error| wrong(error.to_string()))?;
                let roots = Certificate::from_pem_bundle(&text).map_err(|error| wrong(error.to_string()))?;
                if roots.is_empty() {
                    return Err(wrong("found none".to_owned()));
                }
                Ok(builder.tls_certs_only(roots))
            }
        }
    }
}
