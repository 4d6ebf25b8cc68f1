//! The pure parts, one after the other, for `bench/count`: callgrind collects what happens in [`counted`], and writes it down
//! each time that ends.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "no part of the service")]

mod asking;
mod tables;
mod texts;

use std::hint::black_box;

/// A part: its name in `bench/limits.toml`, and what makes ready the work that is counted.
#[derive(Clone, Copy)]
struct Part {
    name: &'static str,
    prepare: fn() -> Work,
}

/// Work that can be done again.
type Work = Box<dyn Fn()>;

fn main() {
    for part in [asking::PARTS, tables::PARTS, texts::PARTS].concat() {
        let work = (part.prepare)();
        // What a process makes once is no part of it.
        work();
        counted(&work);
        println!("{}", part.name);
    }
}

/// Its name is what callgrind knows it by.
#[inline(never)]
fn counted(work: &Work) {
    work();
    black_box(work);
}

/// Work whose result is made and thrown away.
fn work<T>(of: impl Fn() -> T + 'static) -> Work {
    Box::new(move || drop(black_box(of())))
}
