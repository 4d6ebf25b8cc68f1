//! Sources of other servers: the same bytes as from the disk, and what servers do wrong.

mod faults;
mod files;
mod hosts;

use super::bed::{Bed, Made};
use super::text::{COLUMNS, TABLE, definition};
use crate::site::Site;
use refrain::engine::{Job, WebSettings};
use refrain::run::{Progress, RunError, Scope};

/// January and February, as the contract of [`csv`] has them.
const JANUARY: &str = "at,zone,fare\n2024-01-05 00:00:00,1,1.50\n2024-01-06 00:00:00,1,2.25\n";
const FEBRUARY: &str = "at,zone,fare\n2024-02-05 00:00:00,1,0.50\n2024-01-31 00:00:00,2,4.00\n";

/// A pipeline over csv files at this path, by the month.
fn csv(path: &str) -> String {
    definition("csv", path, COLUMNS, TABLE)
}

fn with_neighbours(definition: &str) -> String {
    definition.replace("[source.columns]", "neighbours = 1\n[source.columns]")
}

/// These sites are listed; a megabyte may come, and a second may pass.
fn listed(sites: &[&Site]) -> WebSettings {
    let hosts = sites.iter().map(|site| site.host()).collect();
    WebSettings { hosts, max_bytes: 1 << 20, timeout_seconds: 1 }
}

fn job(bed: &Bed, definition: &str, partitions: &[&str], web: WebSettings) -> Job {
    let parsed = refrain::pipeline::parse(definition, "test").unwrap_or_else(|e| panic!("{definition}\n{e:?}"));
    let keys = partitions.iter().map(|text| parsed.partition.parse_text(text).unwrap()).collect::<Vec<_>>();
    Job { web, ..bed.job(definition, if keys.is_empty() { Scope::Full } else { Scope::Partitions(keys) }) }
}

async fn run(bed: &Bed, job: Job) -> (Made, Progress) {
    Bed::compute(&bed.engine, job).await.unwrap_or_else(|e| panic!("{e:?}"))
}

async fn fails(definition: &str, partitions: &[&str], web: WebSettings) -> RunError {
    let bed = Bed::new();
    match Bed::compute(&bed.engine, job(&bed, definition, partitions, web)).await {
        Ok((made, _)) => panic!("expected a failure of\n{definition}\nfound {:?}", made.report),
        Err(error) => error,
    }
}
