//! Refrain.
fn main() {}
