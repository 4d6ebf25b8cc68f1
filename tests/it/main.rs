//! The tests that need more than one module: the seams' suites, the code's shape and the real binary.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod crash;
mod engine;
mod http;
mod order;
mod proxy;
mod sample;
mod service;
mod site;
mod store;
mod table;
mod tidy;
