//! Errors of runs that only a defect, a failing disk or somebody else's hand brings about.

use super::bed::Bed;
use super::templates::{DAILY, file, pipeline};
use polars::prelude::{Column, NamedFrom, Series};
use refrain::engine::{Job, MergeBase};
use refrain::run::{FailureClass, RunError, Scope};

const TEXTS: &str = "name = \"t\"\n[source]\nformat = \"parquet\"\npath = \"raw/*.parquet\"\n[source.columns]\np = \"int32\"\ns = \"string\"\n\
                     [partition]\np = { value_of = \"p\" }\n[measures]\nrows = \"count(*)\"\n";

async fn fails(bed: &Bed, job: Job, class: FailureClass, kind: &str) -> RunError {
    let Err(failed) = Bed::compute(&bed.engine, job).await else { panic!("it did not fail as {kind}") };
    assert_eq!((failed.class, failed.kind.as_str()), (class, kind), "{failed:?}");
    failed
}

fn write_texts(bed: &Bed) {
    let (p, s) = (Series::new("p".into(), [1_i32, 2]), Series::new("s".into(), ["a", "b"]));
    bed.write("raw/a.parquet", vec![Column::from(p), Column::from(s)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_this_version_does_not_read() {
    let bed = Bed::new();
    let job = bed.job("name = 7", Scope::Full);
    let failed = fails(&bed, job, FailureClass::Compute, "definition-refused").await;
    assert!(failed.detail.contains("the stored definition"), "{failed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_in_place_of_the_checkpoints() {
    let bed = Bed::new();
    for day in 1..=2 {
        bed.write(&format!("raw/2024-01-{day:02}.parquet"), file(&[&format!("2024-01-{day:02}T12:00:00")]));
    }
    std::fs::write(bed.path("slices"), "").unwrap();
    let days = bed.job_over(&pipeline(DAILY, 0, "day_of"), &["2024-01-01", "2024-01-02"]);
    let job = Job { slice_source_bytes: 0, ..days };
    let failed = fails(&bed, job, FailureClass::Service, "checkpoint-failed").await;
    assert!(failed.detail.contains("slices"), "{failed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_merge_base_that_cannot_be_opened() {
    let bed = Bed::new();
    write_texts(&bed);
    let merges = TEXTS.replace("[source]\n", "write = \"merge\"\nkey = [\"s\"]\n[source]\n");
    let merges = merges.replace("[measures]\nrows = \"count(*)\"\n", "[columns]\ns = \"s\"\n");
    let job = bed.job_over(&merges, &["p=1"]);
    let Scope::Partitions(keys) = &job.scope else { panic!("{job:?}") };
    // No file system has names so long, and it is not "not found".
    let base = MergeBase { partition: keys[0].clone(), path: bed.path(&"x".repeat(300)), sha256: "0".repeat(64) };
    let job = Job { bases: vec![base], ..job };
    fails(&bed, job, FailureClass::Service, "merge-base-unreadable").await;
}
