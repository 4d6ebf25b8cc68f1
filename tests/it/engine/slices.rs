//! Slices: the same bytes and books with and without, and what a later attempt takes over.

use super::bed::{Bed, Made};
use super::templates::{DAILY, file, pipeline};
use refrain::engine::Job;
use refrain::run::Progress;

/// A file for each day. In each: so many rows of its own day as the day says, one of the day before, one of two days before
/// and one of two days later, and one row without a day.
fn write_days(bed: &Bed) {
    for day in 1..=20 {
        write_day(bed, day, day);
    }
}

fn write_day(bed: &Bed, day: usize, own: usize) {
    let mut times = vec![format!("2024-01-{day:02}T12:00:00"); own];
    times.extend([day + 9, day + 10, day + 13].map(|day| match day {
        ..=10 => format!("2023-12-{:02}T12:00:00", day + 20),
        _ => format!("2024-01-{:02}T12:00:00", day - 11 + 1),
    }));
    let times: Vec<&str> = times.iter().map(String::as_str).collect();
    bed.write(&format!("raw/2024-01-{day:02}.parquet"), file(&times));
}

fn job(bed: &Bed, definition: &str, named: &[usize], slice_source_bytes: u64) -> Job {
    let days: Vec<String> = named.iter().map(|day| format!("2024-01-{day:02}")).collect();
    let days: Vec<&str> = days.iter().map(String::as_str).collect();
    Job { slice_source_bytes, ..bed.job_over(definition, &days) }
}

async fn made(bed: &Bed, job: Job) -> (Made, Progress) {
    Bed::compute(&bed.engine, job).await.unwrap_or_else(|e| panic!("{e:?}"))
}

/// All of a report but the names of the staged files.
fn said(made: &Made) -> String {
    let mut report = made.report.clone();
    report.partitions.iter_mut().for_each(|p| p.file = None);
    format!("{report:#?}")
}

/// How many records of slices there are.
fn records(bed: &Bed) -> usize {
    let Ok(kept) = std::fs::read_dir(bed.path("slices")) else { return 0 };
    kept.filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|e| e == "json")).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn slices_change_neither_bytes_nor_books() {
    let all: Vec<usize> = (1..=20).collect();
    for named in [&all[..], &all[2..11], &[]] {
        for neighbours in 0..=2 {
            let bed = Bed::new();
            write_days(&bed);
            let definition = pipeline(DAILY, neighbours, "day_of").replace("[source]", "max_rejected = 1\n[source]");
            let (whole, _) = made(&bed, job(&bed, &definition, named, u64::MAX)).await;
            assert_eq!(records(&bed), 0, "what is one slice is not kept");
            let (sliced, _) = made(&bed, job(&bed, &definition, named, 0)).await;
            let what = format!("{named:?}, {neighbours} neighbours, {} slices", records(&bed));
            assert_eq!(said(&sliced), said(&whole), "{what}");
            match neighbours {
                0 => assert_eq!(records(&bed), whole.report.partitions.len(), "{what}"),
                // The fewer days, the more of them would be read again.
                1 if whole.report.partitions.len() == 20 => assert_eq!(records(&bed), 3, "{what}"),
                _ => {}
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_attempt_takes_over_what_is_still_good() {
    let bed = Bed::new();
    write_days(&bed);
    let definition = pipeline(DAILY, 0, "day_of").replace("[source]", "max_rejected = 1\n[source]");
    let all: Vec<usize> = (1..=20).collect();
    let next = |definition: &str| job(&bed, definition, &all, 0);
    let (first, progress) = made(&bed, next(&definition)).await;
    assert_eq!((progress.partitions_taken_over, progress.partitions_staged), (0, 20));
    let (again, progress) = made(&bed, next(&definition)).await;
    assert_eq!((progress.partitions_taken_over, progress.partitions_staged, progress.rows_read), (20, 20, 0));
    assert_eq!(said(&again), said(&first));

    // A source that was written again, with what it had.
    write_day(&bed, 7, 7);
    let (again, progress) = made(&bed, next(&definition)).await;
    assert_eq!((progress.partitions_taken_over, progress.rows), (19, 10));
    assert_eq!(again.digests(), first.digests());

    // A kept file that is not what it was.
    let kept = bed.path("slices").join(format!("{}.parquet", first.report.partitions[4].sha256));
    std::fs::remove_file(&kept).unwrap();
    std::fs::write(&kept, "damaged").unwrap();
    let (again, progress) = made(&bed, next(&definition)).await;
    assert_eq!((progress.partitions_taken_over, again.digests()), (19, first.digests()));
    assert_eq!(made(&bed, next(&definition)).await.1.partitions_taken_over, 20, "it was made anew");

    // Another definition, with the same result.
    let other = format!("{definition}# the same, said otherwise\nmore = \"count(at)\"\n");
    assert_eq!(made(&bed, next(&other)).await.1.partitions_taken_over, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_statistics_place_count_as_read() {
    let bed = Bed::new();
    for day in 6..=8 {
        let noon = format!("2024-01-{day:02}T12:00:00");
        bed.write(&format!("raw/2024-01-{day:02}.parquet"), file(&[noon.as_str(); 10]));
    }
    let job = job(&bed, &pipeline(DAILY, 1, "day_of"), &[7], 0);
    let (made, progress) = made(&bed, job).await;
    assert_eq!(made.books(), [30, 10, 20, 0, 0]);
    assert_eq!((progress.files, progress.files_read), (3, 3));
    assert_eq!((progress.rows, progress.rows_read), (30, 30));
    assert!(progress.bytes > 0 && progress.bytes_read == progress.bytes, "{progress:?}");
}
