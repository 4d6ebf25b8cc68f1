//! The tests that need more than one module: the seams' suites, the code's shape and the real binary.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::Write;

mod crash;
mod engine;
mod http;
mod order;
mod proxy;
mod receiver;
mod sample;
mod service;
mod site;
mod sse;
mod store;
mod table;
mod telemetry;
mod tidy;
mod upgrade;

/// Says what a test has done in figures, where its success is shown too.
fn counted(what: std::fmt::Arguments<'_>) {
    // Past the capture of what tests print.
    let mut past = std::io::stderr();
    writeln!(past, "counted: {what}").unwrap();
}
