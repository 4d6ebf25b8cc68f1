//! Tests.

mod store;
