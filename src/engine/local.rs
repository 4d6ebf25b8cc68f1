//! Source files on the local disk.

use crate::pipeline::sources::Listing;
use crate::pipeline::url::is_url;
use crate::run::{FailureClass, RunError};
use std::io;
use std::path::{Path, PathBuf};

/// The source files of this machine. Those of other servers count as there: nobody is asked for them.
#[derive(Debug, Clone)]
pub struct LocalFiles {
    root: PathBuf,
}

impl LocalFiles {
    /// Relative paths start at `root`.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The size of a file; none where it is another server's or cannot be looked at.
    pub fn bytes(&self, path: &str) -> Option<u64> {
        if is_url(path) {
            return None;
        }
        std::fs::metadata(self.at(path)).ok().map(|found| found.len())
    }

    /// Where the file of a pipeline's path is.
    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Whether a path of this machine names a file.
    pub(super) fn is_file(&self, path: &str) -> Result<bool, RunError> {
        match std::fs::metadata(self.at(path)) {
            Ok(found) if found.is_file() => Ok(true),
            Ok(found) => {
                let what = if found.is_dir() { "a folder" } else { "no regular file" };
                Err(unreachable(path, &io::Error::other(format!("it is {what}, expected a file"))))
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
            Err(e) => Err(unreachable(path, &e)),
        }
    }

    fn matching(&self, pattern: &str) -> io::Result<Vec<String>> {
        let root = glob::Pattern::escape(&self.root.to_string_lossy());
        let absolute = if Path::new(pattern).is_absolute() { pattern.to_owned() } else { format!("{root}/{pattern}") };
        let options = glob::MatchOptions {
            case_sensitive: true,
            require_literal_separator: true,
            require_literal_leading_dot: true,
        };
        let found = glob::glob_with(&absolute, options).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
        let mut out = Vec::new();
        for path in found {
            let path = path.map_err(io::Error::from)?;
            if path.is_file() {
                let shown = if Path::new(pattern).is_absolute() {
                    &path
                } else {
                    path.strip_prefix(&self.root).unwrap_or(&path)
                };
                out.push(shown.to_string_lossy().into_owned());
            }
        }
        out.sort();
        Ok(out)
    }
}

impl Listing for LocalFiles {
    fn are_files(&self, paths: &[String]) -> Result<Vec<bool>, RunError> {
        paths.iter().map(|path| if is_url(path) { Ok(true) } else { self.is_file(path) }).collect()
    }

    fn glob(&self, pattern: &str) -> Result<Vec<String>, RunError> {
        self.matching(pattern).map_err(|e| unreachable(pattern, &e))
    }
}

fn unreachable(path: &str, error: &io::Error) -> RunError {
    let detail = format!("{path}: {error}");
    RunError::new(FailureClass::Source, "source-unreachable", "A source cannot be read", detail)
}
