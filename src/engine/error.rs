//! Failures of the engine, classed where they arise.

use super::EngineError;
use crate::run::{FailureClass, RunError};

/// A failure of the sources.
pub(super) fn source_failure(kind: &str, title: &str, detail: String) -> EngineError {
    failure(FailureClass::Source, kind, title, detail)
}

/// A failure that trying again does not change.
pub(super) fn compute_failure(kind: &str, title: &str, detail: String) -> EngineError {
    failure(FailureClass::Compute, kind, title, detail)
}

/// A failure of the disk or of the machine.
pub(super) fn service_failure(kind: &str, title: &str, detail: String) -> EngineError {
    failure(FailureClass::Service, kind, title, detail)
}

/// The engine's process died.
pub(super) fn lost(detail: String) -> EngineError {
    failure(FailureClass::Lost, "engine-lost", "The engine's process died", detail)
}

/// A failure of any class.
pub(super) fn run_error(class: FailureClass, kind: &str, title: &str, detail: String) -> RunError {
    RunError { kind: kind.to_owned(), title: title.to_owned(), detail, class, retry_after_seconds: None }
}

fn failure(class: FailureClass, kind: &str, title: &str, detail: String) -> EngineError {
    run_error(class, kind, title, detail).into()
}
