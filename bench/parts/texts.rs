//! Texts as typed values: what every field of a csv or ndjson file goes through.

use super::{Part, Work, work};
use refrain::partition::folder_value;
use refrain::pipeline::DataType;
use refrain::pipeline::value::{TimeFormat, decimal, float64, integer};

pub(super) const PARTS: &[Part] = &[
    Part { name: "decimals_read", prepare: decimals_read },
    Part { name: "integers_read", prepare: integers_read },
    Part { name: "doubles_read", prepare: doubles_read },
    Part { name: "times_read", prepare: times_read },
    Part { name: "folders_read", prepare: folders_read },
];

/// How many texts there are of each kind.
const TEXTS: usize = 1_000;

fn texts(one: impl Fn(usize) -> String) -> Vec<String> {
    (0..TEXTS).map(one).collect()
}

fn decimals_read() -> Work {
    let texts = texts(|at| format!("{}.{:02}", at * 7 % 500, at % 100));
    work(move || texts.iter().map(|text| decimal(text, 18, 2).unwrap()).sum::<i128>())
}

fn integers_read() -> Work {
    let texts = texts(|at| (at * 7_919).to_string());
    work(move || texts.iter().map(|text| integer(text, &DataType::Int(64)).unwrap()).sum::<i128>())
}

fn doubles_read() -> Work {
    let texts = texts(|at| format!("{}.{:03}", at % 90, at));
    work(move || texts.iter().map(|text| float64(text).unwrap()).fold(f64::MIN, f64::max))
}

fn times_read() -> Work {
    let texts = texts(|at| format!("2024-{:02}-{:02} {:02}:{:02}:59", at % 12 + 1, at % 28 + 1, at % 24, at % 60));
    work(move || texts.iter().map(|text| TimeFormat::Iso.micros(text, false).unwrap()).max())
}

fn folders_read() -> Work {
    let texts = texts(|at| format!("data/country=N%2F{at}/day=2024-01-{:02}/part-0.parquet", at % 28 + 1));
    work(move || texts.iter().filter_map(|path| folder_value(path, "country")).count())
}
