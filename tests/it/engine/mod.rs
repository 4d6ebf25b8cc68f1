//! The engine's suite: jobs through its child process over Parquet files of the tests' own, held against computations
//! that share no code with it.

mod bed;
mod cells;
mod contract;
mod expressions;
mod failures;
mod merge;
mod naive;
mod nets;
mod output;
mod plans;
mod process;
mod quarantine;
mod random;
mod reading;
mod rows;
mod same_bytes;
mod shipped;
mod slices;
mod templates;
mod text;
mod times;
mod web;

pub(crate) use text::gzip;
