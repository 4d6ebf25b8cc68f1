//! How far an attempt is, and when it will be further.

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

/// What an attempt is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Claimed, nothing read yet.
    Claimed,
    /// Listing the source files and looking at their schemas.
    Listing,
    /// Reading and aggregating.
    Scanning,
    /// Writing partition files into staging.
    Staging,
    /// Moving files into the table.
    Publishing,
    /// Ended.
    Done,
}

/// How far an attempt is. A file that several slices read counts in each, and what was taken over from an earlier attempt is not read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// What it is doing.
    pub stage: Stage,
    /// Source files to read.
    pub files: u64,
    /// Source files read to their end.
    #[serde(default)]
    pub files_read: u64,
    /// The size of the source files in bytes, as far as it is known.
    #[serde(default)]
    pub bytes: u64,
    /// How many of those bytes are read; of a Parquet file as many as its rows that are.
    #[serde(default)]
    pub bytes_read: u64,
    /// Rows of the source files: of Parquet before they are read, of text as soon as they are.
    pub rows: u64,
    /// Rows read so far.
    pub rows_read: u64,
    /// Partitions to stage.
    pub partitions: u64,
    /// Partitions staged so far.
    pub partitions_staged: u64,
    /// Partitions staged that were taken over from an earlier attempt.
    #[serde(default)]
    pub partitions_taken_over: u64,
    /// Partitions published so far.
    pub partitions_published: u64,
    /// Why publishing waits, where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    /// When the reading, the staging or the publishing that is under way will be done at its pace so far; none without ground.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_end: Option<DateTime<Utc>>,
}

impl Progress {
    /// Nothing done yet, at `stage`.
    pub fn at(stage: Stage) -> Self {
        Self {
            stage,
            files: 0,
            files_read: 0,
            bytes: 0,
            bytes_read: 0,
            rows: 0,
            rows_read: 0,
            partitions: 0,
            partitions_staged: 0,
            partitions_taken_over: 0,
            partitions_published: 0,
            waiting_for: None,
            estimated_end: None,
        }
    }

    /// All of it done, with so many partitions.
    pub fn complete(&mut self, partitions: u64) {
        self.stage = Stage::Done;
        self.files_read = self.files;
        self.bytes_read = self.bytes.max(self.bytes_read);
        self.rows_read = self.rows.max(self.rows_read);
        self.partitions = partitions;
        self.partitions_staged = partitions;
        self.partitions_published = partitions;
        self.rest();
    }

    /// Nobody is at work on it now.
    pub fn rest(&mut self) {
        self.waiting_for = None;
        self.estimated_end = None;
    }

    /// What is under way, how much of it is done and how much there is; none where that is not known.
    fn part(&self) -> Option<(Part, u64, u64)> {
        let reading = (Part::Reading, self.bytes_read, self.bytes);
        match self.stage {
            Stage::Scanning => Some(reading),
            // More slices follow: what was staged between two of them is a part of the reading's pace.
            Stage::Staging if self.bytes_read < self.bytes => Some(reading),
            Stage::Staging => Some((Part::Staging, self.partitions_staged, self.partitions)),
            Stage::Publishing if self.waiting_for.is_none() => {
                Some((Part::Publishing, self.partitions_published, self.partitions))
            }
            Stage::Claimed | Stage::Listing | Stage::Publishing | Stage::Done => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Reading,
    Staging,
    Publishing,
}

/// The pace of an attempt: when the part that it is at began, and how much of it was done by then.
#[derive(Debug, Default)]
pub struct Pace(Option<(Part, DateTime<Utc>, u64)>);

impl Pace {
    /// A part that has been under way for less gives no ground.
    const LEAST_SECONDS: i64 = 2;
    /// Nor does one of which less than so much, in percent, is done.
    const LEAST_PERCENT: u64 = 1;

    /// When the part that is under way will be done, if it goes on as it has done since it was first seen.
    pub fn estimate(&mut self, progress: &Progress, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let Some((part, done, of)) = progress.part() else {
            self.0 = None;
            return None;
        };
        let (_, since, before) = match self.0 {
            Some(began) if began.0 == part => began,
            _ => *self.0.insert((part, now, done)),
        };
        let (moved, left) = (done.saturating_sub(before), of.saturating_sub(done));
        let took = now - since;
        if took < TimeDelta::seconds(Self::LEAST_SECONDS)
            || left == 0
            || moved < (of / 100 * Self::LEAST_PERCENT).max(1)
        {
            return None;
        }
        let milliseconds = took.num_milliseconds() as f64 * left as f64 / moved as f64;
        // What would take longer than a month tells nothing.
        let ahead = TimeDelta::milliseconds(milliseconds.min(i64::MAX as f64 / 2.0) as i64 + 1);
        (ahead < TimeDelta::days(30)).then_some(now + ahead)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use chrono::TimeZone;

    fn at(seconds: i64) -> DateTime<Utc> {
        Utc.with_ymd_and_hms(2024, 3, 1, 6, 0, 0).unwrap() + TimeDelta::seconds(seconds)
    }

    fn reading(bytes_read: u64) -> Progress {
        Progress { bytes: 1000, bytes_read, partitions: 10, ..Progress::at(Stage::Scanning) }
    }

    fn seconds_left(pace: &mut Pace, progress: &Progress, now: i64) -> Option<i64> {
        pace.estimate(progress, at(now)).map(|end| (end - at(now)).num_seconds())
    }

    #[test]
    fn the_end_is_estimated_from_the_pace_and_never_without_ground() {
        let mut pace = Pace::default();
        assert_eq!(seconds_left(&mut pace, &Progress::at(Stage::Listing), 0), None);
        assert_eq!(seconds_left(&mut pace, &reading(100), 10), None, "seen for the first time");
        assert_eq!(seconds_left(&mut pace, &reading(200), 11), None, "too soon");
        assert_eq!(seconds_left(&mut pace, &reading(100), 12), None, "nothing moved");
        assert_eq!(seconds_left(&mut pace, &reading(109), 12), None, "too little moved");
        assert_eq!(seconds_left(&mut pace, &reading(300), 20), Some(35), "200 in 10 s, 700 to go");
        assert_eq!(seconds_left(&mut pace, &reading(300), 30), Some(70), "it stands: the pace is less");
        assert_eq!(seconds_left(&mut pace, &reading(1000), 40), None, "all is read");
        let staging = |done| Progress { stage: Stage::Staging, partitions_staged: done, ..reading(1000) };
        assert_eq!(seconds_left(&mut pace, &staging(1), 41), None, "another part has a pace of its own");
        assert_eq!(seconds_left(&mut pace, &staging(4), 44), Some(6));
        let waiting = Progress { waiting_for: Some("a lock".to_owned()), ..Progress::at(Stage::Publishing) };
        assert_eq!(seconds_left(&mut pace, &waiting, 50), None);
    }

    #[test]
    fn between_slices_the_reading_goes_on() {
        let mut pace = Pace::default();
        assert_eq!(seconds_left(&mut pace, &reading(0), 0), None);
        let staging = Progress { stage: Stage::Staging, partitions_staged: 3, ..reading(250) };
        assert_eq!(seconds_left(&mut pace, &staging, 10), Some(30));
    }

    #[test]
    fn what_takes_for_ever_is_not_told() {
        let mut pace = Pace::default();
        let endless = |read| Progress { bytes: u64::MAX, bytes_read: read, ..Progress::at(Stage::Scanning) };
        assert_eq!(pace.estimate(&endless(0), at(0)), None);
        assert_eq!(pace.estimate(&endless(u64::MAX / 50), at(1_000_000)), None);
    }

    #[test]
    fn progress_of_a_version_before_is_read() {
        let told = r#"{"stage":"scanning","files":1,"rows":2,"rows_read":1,"partitions":0,"partitions_staged":0,"partitions_published":0}"#;
        let read: Progress = serde_json::from_str(told).unwrap();
        assert_eq!((read.files, read.bytes, read.estimated_end), (1, 0, None));
    }
}
