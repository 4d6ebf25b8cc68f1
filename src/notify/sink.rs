//! Where lineage goes: a file, to which each event is appended, or a URL, to which it is posted.

use super::answer::Answer;
use chrono::Utc;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::{Client, Url, redirect};
use secrecy::{ExposeSecret, SecretString};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Where lineage goes.
#[derive(Debug)]
pub struct Sink(To);

#[derive(Debug)]
enum To {
    /// One line for each event. Held while one is appended: the end of the file is looked at before.
    File(Arc<Mutex<PathBuf>>),
    Url {
        client: Client,
        url: Url,
        token: Option<SecretString>,
    },
}

impl Sink {
    /// A file, made where it is not there.
    pub fn file(path: &Path) -> anyhow::Result<Self> {
        open(path)?;
        Ok(Self(To::File(Arc::new(Mutex::new(path.to_owned())))))
    }

    /// A URL of the operator's, whatever its host, with a bearer token where it wants one.
    pub fn url(url: &SecretString, token: Option<SecretString>) -> anyhow::Result<Self> {
        let url = Url::parse(url.expose_secret()).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let Some(url) = url.filter(|url| url.username().is_empty() && url.password().is_none()) else {
            anyhow::bail!(
                "found no URL, expected one such as https://marquez.example.org/api/v1/lineage, without a user"
            );
        };
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .user_agent(concat!("refrain/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::none());
        if url.scheme() == "http" {
            // Certificates are not looked for where none is needed: small machines have none.
            builder = builder.tls_certs_only([]);
        }
        Ok(Self(To::Url { client: builder.build()?, url, token }))
    }

    /// Takes an event, which is JSON on one line.
    pub(super) async fn take(&self, event: String) -> Answer {
        match &self.0 {
            To::File(path) => {
                let path = Arc::clone(path);
                let appended = tokio::task::spawn_blocking(move || {
                    let path = path.lock().map_err(|_| io::Error::other("another append broke"))?;
                    append(&path, &event)
                });
                match appended.await {
                    Ok(Ok(())) => Answer::told(None),
                    Ok(Err(error)) => Answer::failed(format!("the event could not be appended: {error}")),
                    Err(error) => Answer::failed(error.to_string()),
                }
            }
            To::Url { client, url, token } => {
                let mut request = client
                    .post(url.clone())
                    .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
                    .body(event);
                if let Some(token) = token {
                    request = request.bearer_auth(token.expose_secret());
                }
                match request.send().await {
                    Ok(response) => Answer::of(&response, Utc::now()),
                    Err(error) => Answer::of_error(&error),
                }
            }
        }
    }
}

fn open(path: &Path) -> anyhow::Result<File> {
    let opened = OpenOptions::new().create(true).append(true).read(true).open(path);
    opened.map_err(|error| anyhow::anyhow!("cannot open the lineage file {}: {error}", path.display()))
}

/// Appends a line in one write, so that processes which share the file do not mix theirs, and has it on the disk. What a crash has
/// left of a line before is ended first, and costs no other.
fn append(path: &Path, event: &str) -> io::Result<()> {
    let mut file = open(path).map_err(io::Error::other)?;
    let mut last = [b'\n'];
    if file.metadata()?.len() > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    let start = if last == [b'\n'] { "" } else { "\n" };
    file.write_all(format!("{start}{event}\n").as_bytes())?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_line_that_was_cut_short_costs_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lineage.ndjson");
        append(&path, "{\"a\":1}").unwrap();
        std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"b\":").unwrap();
        append(&path, "{\"c\":3}").unwrap();
        append(&path, "{\"d\":4}").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"a\":1}\n{\"b\":\n{\"c\":3}\n{\"d\":4}\n");
    }

    #[test]
    fn a_sink_that_cannot_be_is_refused_and_its_secrets_are_not_shown() {
        for wrong in ["marquez:5000", "ftp://h/", "https://u:hunter2@h/"] {
            let error = Sink::url(&wrong.to_owned().into(), None).unwrap_err();
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        let error = Sink::file(Path::new("/nowhere/at/all")).unwrap_err();
        assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
    }
}
