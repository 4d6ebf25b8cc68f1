//! TLS: the certificate and its key, read again when their files change.

use super::certificate::ends_at;
use super::patient::Patient;
use crate::telemetry::METRIC_CERTIFICATE_SECONDS;
use chrono::{DateTime, TimeDelta, Utc};
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::signal::unix::Signal;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// What every TLS connection begins with: the type of a record that is of a handshake.
const HANDSHAKE: u8 = 0x16;

/// Why a certificate cannot be used. Nothing here tells what is in a key's file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}: {why}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        why: String,
    },
    /// A file does not hold what it should.
    #[error("found no {expected} in {}, expected it in PEM", path.display())]
    Nothing {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        expected: &'static str,
    },
    /// The two do not go together, or cannot be used.
    #[error("the certificate in {} cannot be used with the key in {}: {why}", cert.display(), key.display())]
    Pair {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What is wrong.
        why: String,
    },
}

/// The certificate in force, and its files.
pub struct Certificates {
    cert: PathBuf,
    key: PathBuf,
    /// The files as they were last read, if they could be.
    read: Option<[Stamp; 2]>,
    state: watch::Sender<CertificateState>,
}

/// How the certificate is.
#[derive(Debug, Clone)]
pub struct CertificateState {
    key: Arc<CertifiedKey>,
    /// When the one in force ends.
    pub ends_at: DateTime<Utc>,
    /// Why what the files hold now is not in force.
    pub trouble: Option<TlsError>,
}

/// What tells a file from the one that was there before it, also behind a symbolic link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

/// What makes connections secure.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

impl Tls {
    pub(super) async fn accept(&self, stream: Patient) -> io::Result<TlsStream<Patient>> {
        self.0.accept(stream).await
    }
}

/// Whether something other than a TLS handshake comes in. Nothing is taken out of the stream.
pub(super) async fn is_plain(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    match stream.peek(&mut first).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(first != [HANDSHAKE]),
    }
}

impl Certificates {
    /// Reads a certificate with its chain, and its key, from files in PEM.
    pub fn load(cert: &Path, key: &Path) -> Result<Self, TlsError> {
        let read = stamps(cert, key);
        let (pair, ends_at) = pair(cert, key)?;
        let state = watch::Sender::new(CertificateState { key: pair, ends_at, trouble: None });
        Ok(Self { cert: cert.to_owned(), key: key.to_owned(), read, state })
    }

    /// TLS 1.2 and 1.3 with the certificate in force at each handshake.
    pub fn tls(&self) -> Result<Tls, TlsError> {
        let unusable = |error: rustls::Error| TlsError::Pair {
            cert: self.cert.clone(),
            key: self.key.clone(),
            why: error.to_string(),
        };
        let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let resolver = Arc::new(Current(self.state.subscribe()));
        let mut config = config.map_err(unusable)?.with_no_client_auth().with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Tls(TlsAcceptor::from(Arc::new(config))))
    }

    /// How the certificate is, also after the files are read again.
    pub fn state(&self) -> watch::Receiver<CertificateState> {
        self.state.subscribe()
    }

    /// Reads the files again when they have changed, and each time that the signal comes, until `shutdown`.
    pub async fn reload(mut self, mut asked: Signal, shutdown: CancellationToken) {
        loop {
            metrics::gauge!(METRIC_CERTIFICATE_SECONDS).set(self.state.borrow().left(Utc::now()).num_seconds() as f64);
            tokio::select! {
                Some(()) = asked.recv() => self.read = None,
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = shutdown.cancelled() => return,
            }
            let (cert, key) = (self.cert.clone(), self.key.clone());
            let before = self.read;
            let looked = tokio::task::spawn_blocking(move || {
                let now = stamps(&cert, &key);
                // Where one of them cannot be read now, it is tried to, which says why.
                (now.is_none() || now != before).then(|| (now, pair(&cert, &key)))
            });
            match looked.await {
                Ok(Some((read, pair))) => self.take(read, pair),
                Ok(None) => {}
                Err(error) => tracing::error!(%error, "the certificate's files cannot be looked at"),
            }
        }
    }

    fn take(&mut self, read: Option<[Stamp; 2]>, pair: Result<(Arc<CertifiedKey>, DateTime<Utc>), TlsError>) {
        self.read = read;
        self.state.send_if_modified(|state| match pair {
            Ok((key, ends_at)) => {
                tracing::info!(%ends_at, "the certificate was read again");
                *state = CertificateState { key, ends_at, trouble: None };
                true
            }
            Err(error) if state.trouble.as_ref() == Some(&error) => false,
            Err(error) => {
                tracing::error!(%error, "the certificate's files are not taken over, the one before stays in force");
                state.trouble = Some(error);
                true
            }
        });
    }
}

impl CertificateState {
    /// How long the certificate is good from a time on; below 0 when it has ended.
    pub fn left(&self, now: DateTime<Utc>) -> TimeDelta {
        self.ends_at - now
    }
}

/// Gives each handshake the certificate that is in force.
#[derive(Debug)]
struct Current(watch::Receiver<CertificateState>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.borrow().key))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The files as they are; none where one of them is not there.
fn stamps(cert: &Path, key: &Path) -> Option<[Stamp; 2]> {
    let stamp = |path: &Path| {
        let found = fs::metadata(path).ok()?;
        let modified = (found.mtime(), found.mtime_nsec());
        Some(Stamp { device: found.dev(), inode: found.ino(), bytes: found.len(), modified })
    };
    Some([stamp(cert)?, stamp(key)?])
}

/// The certificate with its chain and its key, and when it ends.
fn pair(cert: &Path, key: &Path) -> Result<(Arc<CertifiedKey>, DateTime<Utc>), TlsError> {
    let nothing = |path: &Path, expected| TlsError::Nothing { path: path.to_owned(), expected };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&text(cert)?)
        .collect::<Result<_, _>>()
        .map_err(|_| nothing(cert, "chain of certificates"))?;
    let first = chain.first().ok_or_else(|| nothing(cert, "certificate"))?;
    let ends_at = ends_at(first).ok_or_else(|| nothing(cert, "certificate"))?;
    let secret = PrivateKeyDer::from_pem_slice(&text(key)?).map_err(|_| nothing(key, "private key"))?;
    let unusable =
        |error: rustls::Error| TlsError::Pair { cert: cert.to_owned(), key: key.to_owned(), why: error.to_string() };
    let pair = CertifiedKey::from_der(chain, secret, &provider()).map_err(unusable)?;
    Ok((Arc::new(pair), ends_at))
}

fn text(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|error| TlsError::Unreadable { path: path.to_owned(), why: error.to_string() })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use rcgen::{KeyPair, generate_simple_self_signed};

    fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn what_cannot_be_used_is_named_and_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let made = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (cert, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let (cert, key) = (write(folder.path(), "cert", &cert), write(folder.path(), "key", &key));
        assert!(Certificates::load(&cert, &key).unwrap().tls().is_ok());
        let others = write(folder.path(), "others", &KeyPair::generate().unwrap().serialize_pem());
        let broken = write(folder.path(), "broken", "-----BEGIN PRIVATE KEY-----\nhunter2\n");
        let said = |cert: &Path, key: &Path| Certificates::load(cert, key).err().unwrap().to_string();
        assert!(said(&cert, &others).contains("cannot be used with the key in"), "{}", said(&cert, &others));
        assert!(said(&cert, &cert).contains("found no private key in"), "{}", said(&cert, &cert));
        assert!(said(&key, &key).contains("found no certificate in"), "{}", said(&key, &key));
        assert!(said(&folder.path().join("none"), &key).contains("cannot read"));
        assert!(!said(&cert, &broken).contains("hunter2"));
    }
}
