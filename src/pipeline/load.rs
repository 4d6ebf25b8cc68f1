//! Loading: TOML text to a checked definition.

use super::Definition;

/// What is wrong with a pipeline file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {at}: {detail}")]
pub struct DefinitionError {
    /// The file.
    pub file: String,
    /// The table and key, e.g. `measures.revenue`.
    pub at: String,
    /// What was found and what is expected.
    pub detail: String,
}

/// Parses and checks a pipeline file.
pub fn parse(text: &str, file: &str) -> Result<Definition, Vec<DefinitionError>> {
    let _ = (text, file);
    unimplemented!()
}
