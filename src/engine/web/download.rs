//! Files are downloaded whole, next to what is staged, before anything of them is read.

use super::answer::{text_of, unexpected};
use super::{Web, WebStamp};
use crate::pipeline::url::shown;
use crate::run::{FailureClass, RunError};
use futures::stream::{self, StreamExt, TryStreamExt};
use reqwest::header::{self, HeaderMap, HeaderValue};
use reqwest::{Method, Response, StatusCode};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// How many files are downloaded at the same time.
const DOWNLOADS_AT_ONCE: usize = 4;

impl Web<'_> {
    /// Downloads the versions of these stamps into new files.
    pub(crate) fn download(&self, wanted: &[(&WebStamp, PathBuf)]) -> Result<(), RunError> {
        let files = stream::iter(wanted).map(|(stamp, to)| self.download_one(stamp, to)).buffered(DOWNLOADS_AT_ONCE);
        self.runtime.block_on(files.try_collect())
    }

    async fn download_one(&self, stamp: &WebStamp, to: &Path) -> Result<(), RunError> {
        self.check_size(stamp, stamp.bytes.unwrap_or(0))?;
        let mut headers = HeaderMap::new();
        if let Some(Ok(etag)) = stamp.strong_etag().map(HeaderValue::from_str) {
            headers.insert(header::IF_MATCH, etag);
        }
        let mut answer = self.request(Method::GET, &stamp.url, headers).await?;
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND | StatusCode::GONE => return Err(stamp.changed("it is gone")),
            StatusCode::PRECONDITION_FAILED => return Err(stamp.changed("its server has another version now")),
            _ => return Err(unexpected(&stamp.url, &answer)),
        }
        check_encoding(stamp, &answer)?;
        stamp.check(&WebStamp::of(&stamp.url, &answer))?;
        let failed = |e: std::io::Error| {
            let detail = format!("{}: {e}", to.display());
            RunError::new(FailureClass::Service, "staging-write-failed", "A download could not be written", detail)
        };
        let mut file = File::create_new(to).map_err(failed)?;
        let mut bytes = 0;
        loop {
            match answer.chunk().await {
                Ok(Some(chunk)) => {
                    bytes += chunk.len() as u64;
                    self.check_size(stamp, bytes)?;
                    file.write_all(&chunk).map_err(failed)?;
                }
                Ok(None) => break,
                Err(error) => {
                    let broken = self.unreachable(&stamp.url, &error);
                    return Err(RunError { detail: format!("{}, after {bytes} bytes", broken.detail), ..broken });
                }
            }
        }
        match stamp.bytes {
            Some(expected) if bytes != expected => Err(stamp.changed(&format!("{bytes} came"))),
            _ => Ok(()),
        }
    }

    fn check_size(&self, stamp: &WebStamp, bytes: u64) -> Result<(), RunError> {
        let max = self.settings.max_bytes;
        if bytes <= max {
            return Ok(());
        }
        let found = match stamp.bytes {
            Some(bytes) => format!("has {bytes} bytes"),
            None => format!("has more than {max} bytes"),
        };
        let detail = format!(
            "{}: {found}, expected at most {max}, which is --max-source-mb {} (REFRAIN_MAX_SOURCE_MB)",
            shown(&stamp.url),
            max >> 20
        );
        Err(RunError::new(FailureClass::Compute, "source-too-large", "A source file is too large", detail))
    }
}

/// Fails where the bytes are not those of the file. Some servers name the compression of a stored file as if it were theirs.
fn check_encoding(stamp: &WebStamp, answer: &Response) -> Result<(), RunError> {
    let Some(encoding) = text_of(answer.headers(), &header::CONTENT_ENCODING) else { return Ok(()) };
    let path = shown(&stamp.url);
    let stored = match encoding.to_ascii_lowercase().as_str() {
        "" | "identity" => true,
        "gzip" | "x-gzip" => path.ends_with(".gz"),
        "zstd" => path.ends_with(".zst"),
        _ => false,
    };
    if stored {
        return Ok(());
    }
    let detail = format!("{path}: its server encodes it as {encoding}, expected the file as it is stored");
    Err(RunError::new(FailureClass::Compute, "source-encoded", "A source is encoded by its server", detail))
}
