//! Failures of the engine, classed where they arise.

use super::EngineError;
use crate::run::{FailureClass, RunError};

/// A failure of the sources.
pub(super) fn source_failure(kind: &str, title: &str, detail: String) -> EngineError {
    RunError::new(FailureClass::Source, kind, title, detail).into()
}

/// A failure that trying again does not change.
pub(super) fn compute_failure(kind: &str, title: &str, detail: String) -> EngineError {
    RunError::new(FailureClass::Compute, kind, title, detail).into()
}

/// A failure of the disk or of the machine.
pub(super) fn service_failure(kind: &str, title: &str, detail: String) -> EngineError {
    RunError::new(FailureClass::Service, kind, title, detail).into()
}

/// The engine's process died.
pub(super) fn lost(detail: String) -> RunError {
    RunError::new(FailureClass::Lost, "engine-lost", "The engine's process died", detail)
}
