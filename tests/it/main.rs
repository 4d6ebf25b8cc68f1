//! The integration tests: one binary.

mod sample;
mod table;
