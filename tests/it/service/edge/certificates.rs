//! An authority of the tests' own, and what it signs.

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::fs;
use std::path::{Path, PathBuf};

/// Signs certificates for this machine.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its key, in PEM.
pub(super) struct Signed {
    pub(super) cert: String,
    pub(super) key: String,
    pub(super) der: Vec<u8>,
}

impl Authority {
    pub(super) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut asked = CertificateParams::new(Vec::new()).unwrap();
        asked.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = asked.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(asked, key), pem }
    }

    /// A certificate that ends in that year.
    pub(super) fn sign(&self, until: i32) -> Signed {
        let key = KeyPair::generate().unwrap();
        let mut asked = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        asked.not_after = rcgen::date_time_ymd(until, 1, 1);
        let cert = asked.signed_by(&key, &self.issuer).unwrap();
        Signed { cert: cert.pem(), key: key.serialize_pem(), der: cert.der().to_vec() }
    }

    /// Writes its own certificate, by which clients know what it has signed.
    pub(super) fn write(&self, path: &Path) {
        fs::write(path, &self.pem).unwrap();
    }

    pub(super) fn pem(&self) -> &[u8] {
        self.pem.as_bytes()
    }
}

impl Signed {
    /// Writes it as a secret is mounted by Kubernetes: names that lead to a folder by a link, which is exchanged as a whole.
    pub(super) fn mount(&self, folder: &Path, version: &str) -> (PathBuf, PathBuf) {
        let data = folder.join(version);
        fs::create_dir_all(&data).unwrap();
        fs::write(data.join("tls.crt"), &self.cert).unwrap();
        fs::write(data.join("tls.key"), &self.key).unwrap();
        let (new, current) = (folder.join("..new"), folder.join("..data"));
        std::os::unix::fs::symlink(version, &new).unwrap();
        fs::rename(&new, &current).unwrap();
        let names = ["tls.crt", "tls.key"].map(|name| {
            let path = folder.join(name);
            let _ = std::os::unix::fs::symlink(Path::new("..data").join(name), &path);
            path
        });
        names.into()
    }
}
