#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| refrain_fuzz::pipeline_file(data));
