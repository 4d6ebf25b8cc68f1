//! What was read so far: counts that move by themselves while it is read.

use crate::run::Progress;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The counts of an attempt.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    files: AtomicU64,
    bytes: AtomicU64,
    rows: AtomicU64,
}

impl Counts {
    /// Puts them into a progress; answers whether they were others there.
    pub(crate) fn tell(&self, progress: &mut Progress) -> bool {
        let [files, bytes, rows] = [&self.files, &self.bytes, &self.rows].map(|count| count.load(Ordering::Relaxed));
        let before = (progress.files_read, progress.bytes_read, progress.rows_read);
        (progress.files_read, progress.bytes_read, progress.rows_read) = (files, bytes, rows);
        before != (files, bytes, rows)
    }

    /// So many more bytes and rows of a text file.
    pub(super) fn add(&self, bytes: u64, rows: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.rows.fetch_add(rows, Ordering::Relaxed);
    }

    /// One more file is read to its end.
    pub(super) fn add_file(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
    }
}

/// A Parquet file whose rows are read in any order, by several threads.
#[derive(Debug)]
pub(super) struct FileCount {
    counts: Arc<Counts>,
    bytes: u64,
    rows: u64,
    read: AtomicU64,
}

impl FileCount {
    /// Nothing of it is read.
    pub(super) fn new(counts: Arc<Counts>, bytes: u64, rows: u64) -> Self {
        let new = Self { counts, bytes, rows, read: AtomicU64::new(0) };
        if rows == 0 {
            new.counts.add(bytes, 0);
            new.counts.add_file();
        }
        new
    }

    /// So many more of its rows are read.
    pub(super) fn add(&self, rows: u64) {
        if rows == 0 {
            return;
        }
        let before = self.read.fetch_add(rows, Ordering::Relaxed);
        let after = before.saturating_add(rows);
        self.counts.add(self.bytes_of(after).saturating_sub(self.bytes_of(before)), rows);
        if before < self.rows && after >= self.rows {
            self.counts.add_file();
        }
    }

    /// The bytes of that many of its rows, as if all were alike.
    fn bytes_of(&self, rows: u64) -> u64 {
        let bytes = u128::from(self.bytes) * u128::from(rows.min(self.rows)) / u128::from(self.rows.max(1));
        u64::try_from(bytes).unwrap_or(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Stage;

    #[test]
    fn a_file_counts_as_its_rows_do_and_once() {
        let counts = Arc::new(Counts::default());
        let mut progress = Progress::at(Stage::Scanning);
        let mut told = || {
            let moved = counts.tell(&mut progress);
            (moved, progress.files_read, progress.bytes_read, progress.rows_read)
        };
        assert_eq!(told(), (false, 0, 0, 0));
        let file = FileCount::new(Arc::clone(&counts), 100, 3);
        file.add(1);
        assert_eq!(told(), (true, 0, 33, 1));
        file.add(2);
        file.add(0);
        assert_eq!(told(), (true, 1, 100, 3));
        FileCount::new(Arc::clone(&counts), 7, 0).add(0);
        counts.add(10, 2);
        assert_eq!(told(), (true, 2, 117, 5));
        assert_eq!(told(), (false, 2, 117, 5));
    }
}
