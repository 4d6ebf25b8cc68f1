//! Tests.

mod table;
