//! The file table.
