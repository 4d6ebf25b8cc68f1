//! What the fuzzer asks of the modules that read what others write: whatever comes in, they answer and do not panic, and what
//! they take in means the same when it is read again. The modules themselves are links to those of the service.
#![expect(dead_code, unused_imports, reason = "the service uses the rest")]

mod checks;
mod http;
mod partition;
mod pipeline;
mod run;

pub use checks::{partition_key, pipeline_file, request_body};
