//! Failures of what the interface stands on: their own words go to the log, under the request's span, and not into answers.

use super::Problem;
use crate::http::FilesError;
use crate::store::StoreError;
use std::sync::Arc;

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::from(&error)
    }
}

impl From<Arc<StoreError>> for Problem {
    fn from(error: Arc<StoreError>) -> Self {
        Self::from(&*error)
    }
}

impl From<&StoreError> for Problem {
    fn from(error: &StoreError) -> Self {
        match error {
            full if full.is_for_want_of_room() => {
                tracing::error!(error = %full, "the database has no room");
                Problem::NoRoom
            }
            StoreError::Unavailable(cause) => {
                tracing::warn!(error = %cause, "the database did not answer a request");
                Problem::Unavailable
            }
            StoreError::UnreadableRun(run) => {
                tracing::error!(run.id = %run.control.id, why = run.why, "a run cannot be shown");
                Problem::UnreadableRun(run.clone())
            }
            other => {
                tracing::error!(error = %other, "the database could not serve a request");
                Problem::Internal
            }
        }
    }
}

impl From<FilesError> for Problem {
    fn from(error: FilesError) -> Self {
        match error {
            FilesError::Busy(text) => Problem::TooManyReaders(text),
            FilesError::Unavailable(cause) => {
                tracing::warn!(error = cause, "the warehouse cannot be read");
                Problem::FilesUnavailable
            }
            FilesError::UnknownColumns(cause) | FilesError::Unreadable(cause) => {
                tracing::error!(error = cause, "a partition's file cannot be read");
                Problem::Internal
            }
        }
    }
}
