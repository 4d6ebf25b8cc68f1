//! What is worked out of many partitions: their sources and slices, their totals, their metrics.

use super::asking::{days, definition};
use super::{Part, Work, work};
use refrain::pipeline::sources::{self, Listing};
use refrain::run::{self, Fold, Measured, RunError, Scalar, Scope, TableSum, Totals};
use refrain::telemetry::{Exposition, METRIC_CHECK_OK};

pub(super) const PARTS: &[Part] = &[
    Part { name: "sources_planned", prepare: sources_planned },
    Part { name: "slices_cut", prepare: slices_cut },
    Part { name: "totals_summed_up", prepare: totals_summed_up },
    Part { name: "totals_written", prepare: totals_written },
    Part { name: "metrics_written", prepare: metrics_written },
];

/// A folder in which every file is.
struct All;

impl Listing for All {
    fn are_files(&self, paths: &[String]) -> Result<Vec<bool>, RunError> {
        Ok(vec![true; paths.len()])
    }

    fn glob(&self, _: &str) -> Result<Vec<String>, RunError> {
        Ok(Vec::new())
    }
}

fn sources_planned() -> Work {
    let (definition, scope) = (definition(), Scope::Partitions(days()));
    work(move || sources::plan(&definition, &scope, &All).unwrap())
}

fn slices_cut() -> Work {
    let scope = Scope::Partitions(days());
    let plan = sources::plan(&definition(), &scope, &All).unwrap();
    let bytes = vec![1 << 20; plan.files.len()];
    work(move || plan.slices(&scope, &bytes, 64 << 20))
}

/// The totals of so many partitions.
fn totals(partitions: i128) -> Vec<Totals> {
    let measured = |name: &str, fold, value| Measured { name: name.to_owned(), fold, value: Some(value) };
    let of = |at: i128| {
        Totals(vec![
            measured("trips", Fold::Add, Scalar::Int(1_000 + at)),
            measured("revenue", Fold::Add, Scalar::Decimal { unscaled: 7_945_619_867 + at, scale: 2 }),
            measured("dearest", Fold::Max, Scalar::Decimal { unscaled: 12_345 * (at % 7), scale: 2 }),
            measured("last", Fold::Max, Scalar::Text(format!("2024-01-01 {:02}:00:00", at % 24))),
        ])
    };
    (0..partitions).map(of).collect()
}

fn totals_summed_up() -> Work {
    let parts = totals(1_000).into_iter().map(|totals| run::Part { rows: 7, totals });
    let parts: Vec<run::Part> = parts.collect();
    work(move || parts.iter().fold(TableSum::default(), |sum, part| sum.with(part).unwrap()).totals())
}

fn totals_written() -> Work {
    let parts = totals(1_000);
    work(move || parts.iter().map(|totals| serde_json::to_string(&totals.on_the_wire()).unwrap()).collect::<Vec<_>>())
}

fn metrics_written() -> Work {
    let names: Vec<String> = (0..500).map(|at| format!("check \"{at}\"")).collect();
    work(move || {
        let mut found = Exposition::default();
        for name in &names {
            found.sample(METRIC_CHECK_OK, &[("check", name)], 1.0);
        }
        found.into_text()
    })
}
