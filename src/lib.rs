//! Refrain runs partitioned ETL jobs over HTTP so that running one twice is the same as running it once.
//!
//! ```text
//!   POST /runs ──> http ──> store (runs, catalog)          GET ──> http ──> store
//!                             ^   │ claim
//!                             │   v
//!                           worker ──> engine (a child process: sources -> staged files + report)
//!                             │
//!                             └──────> table (publish lock; rename into the warehouse; sweep; verify)
//! ```

pub mod access;
pub mod app;
pub mod client;
pub mod config;
pub mod demo;
pub mod edge;
pub mod engine;
pub mod fault;
pub mod http;
pub mod notify;
pub mod partition;
pub mod pipeline;
pub mod run;
pub mod sample;
pub mod store;
pub mod table;
pub mod telemetry;
pub mod worker;
