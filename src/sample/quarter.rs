//! What the quarter holds: how many trips of which month lie in which file, and what they come to.

use super::SampleError;
use super::buckets::{self, Bucket, Place};
use super::trips::{Group, PricedTrip};
use super::{MAX_SCALE, MIN_SCALE};

/// A month of the quarter, as pickups tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MonthTotals {
    /// Such as `2024-02`.
    pub month: &'static str,
    /// Distinct pairs of pickup zone and pickup hour.
    pub buckets: u64,
    /// Trips.
    pub trips: u64,
    /// The sum of their `total_amount`, in cents.
    pub cents: i64,
}

/// What a sample holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contents {
    /// The trips of each month, over all files.
    pub months: [MonthTotals; 3],
    /// The trips of each month that lie in the month's own file.
    pub own_files: [MonthTotals; 3],
    /// Rows of each file.
    pub file_rows: [u64; 3],
    /// Trips that lie in the file of the month before or after theirs.
    pub strays_next_door: u64,
    /// Trips outside the quarter.
    pub strays_outside: u64,
    /// Trips of January in the file of February.
    pub january_in_february: u64,
    /// Trips of March in the file of February.
    pub march_in_february: u64,
}

/// What the sample of this scale holds.
pub fn contents(scale: f64) -> Result<Contents, SampleError> {
    let q = Quarter::at(scale)?;
    let stray = |file, month| STRAYS.iter().filter(|s| s.file == file && s.month == month).map(|s| s.trips).sum();
    Ok(Contents {
        months: std::array::from_fn(|m| q.months[m]),
        own_files: std::array::from_fn(|m| q.own(m)),
        file_rows: q.file_rows,
        strays_next_door: STRAYS.iter().map(|s| s.trips).sum(),
        strays_outside: OUTSIDE.iter().map(|o| u64::from(o.trips)).sum(),
        january_in_february: stray(1, 0),
        march_in_february: stray(1, 2),
    })
}

/// The totals at scale 1.
const MONTHS: [MonthTotals; 3] = [
    MonthTotals { month: "2024-01", buckets: 77_530, trips: 2_964_617, cents: 7_945_619_867 },
    MonthTotals { month: "2024-02", buckets: 74_376, trips: 3_007_533, cents: 8_007_379_721 },
    MonthTotals { month: "2024-03", buckets: 89_011, trips: 3_582_607, cents: 9_716_237_726 },
];

/// The first hour of each month and the hour after the quarter, in hours since 1970.
const MONTH_STARTS: [i64; 4] = [473_352, 474_096, 474_792, 475_536];

/// Trips of one month in the file of another. They are the same at every scale.
struct Strays {
    file: usize,
    month: usize,
    trips: u64,
    buckets: usize,
    cents: i64,
}

const STRAYS: [Strays; 4] = [
    Strays { file: 0, month: 1, trips: 3, buckets: 3, cents: 8_115 },
    Strays { file: 1, month: 0, trips: 11, buckets: 10, cents: 30_184 },
    Strays { file: 1, month: 2, trips: 2, buckets: 2, cents: 4_967 },
    Strays { file: 2, month: 1, trips: 19, buckets: 17, cents: 56_807 },
];

/// Trips of meters whose clock was reset or wrong, in hours since 1970. None is of a month next to a file's, so that no
/// number of neighbours in reason finds them.
struct Outside {
    file: usize,
    hour: i64,
    trips: u32,
}

const OUTSIDE: [Outside; 8] = [
    Outside { file: 0, hour: 289_270, trips: 3 }, // 2002-12-31 22:00
    Outside { file: 0, hour: 289_271, trips: 2 }, // 2002-12-31 23:00
    Outside { file: 0, hour: 341_880, trips: 6 }, // 2009-01-01 00:00
    Outside { file: 0, hour: 468_609, trips: 4 }, // 2023-06-17 09:00
    Outside { file: 1, hour: 289_271, trips: 1 }, // 2002-12-31 23:00
    Outside { file: 1, hour: 341_879, trips: 1 }, // 2008-12-31 23:00
    Outside { file: 2, hour: 289_270, trips: 3 }, // 2002-12-31 22:00
    Outside { file: 2, hour: 341_880, trips: 1 }, // 2009-01-01 00:00
];

/// What a trip outside the quarter comes to on average.
const OUTSIDE_CENTS: i64 = 2_430;

/// The quarter at a scale.
#[derive(Debug)]
pub(super) struct Quarter {
    months: [MonthTotals; 3],
    file_rows: [u64; 3],
}

/// One file: trips of the month before, its own month with a few outside the quarter among them, and of the month after.
#[derive(Debug)]
pub(super) struct File {
    pub(super) name: String,
    before: Vec<Group>,
    own: Group,
    outside: Group,
    after: Vec<Group>,
}

impl Quarter {
    /// The quarter at this scale: trips, buckets and money in proportion, strays as they are. Above scale 1 the hours of
    /// the months set the number of buckets, so it stays.
    pub(super) fn at(scale: f64) -> Result<Self, SampleError> {
        if !(MIN_SCALE..=MAX_SCALE).contains(&scale) {
            return Err(SampleError::Scale(scale));
        }
        let scaled = |n: u64, by: f64| (n as f64 * by).round() as u64;
        let months = MONTHS.map(|m| MonthTotals {
            month: m.month,
            buckets: scaled(m.buckets, scale.min(1.0)),
            trips: scaled(m.trips, scale),
            cents: (m.cents as f64 * scale).round() as i64,
        });
        let mut quarter = Self { months, file_rows: [0; 3] };
        for file in 0..3 {
            let strays: u64 = STRAYS.iter().filter(|s| s.file == file).map(|s| s.trips).sum();
            let outside: u64 = OUTSIDE.iter().filter(|o| o.file == file).map(|o| u64::from(o.trips)).sum();
            quarter.file_rows[file] = quarter.own(file).trips + strays + outside;
        }
        Ok(quarter)
    }

    /// The names of the files.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        MONTHS.iter().map(|m| format!("yellow_tripdata_{}.parquet", m.month))
    }

    /// The files with the buckets of all their trips.
    pub(super) fn files(&self) -> Vec<File> {
        let own: Vec<Vec<Bucket>> = (0..3)
            .map(|m| {
                let places = buckets::choose(m as u64, MONTH_STARTS[m]..MONTH_STARTS[m + 1], self.months[m].buckets);
                buckets::fill(m as u64, &places, self.own(m).trips)
            })
            .collect();
        let mut files: Vec<File> = Vec::new();
        for (m, (name, buckets)) in self.names().zip(&own).enumerate() {
            let strays = |months: std::ops::Range<usize>| {
                let here = STRAYS.iter().filter(move |s| s.file == m && months.contains(&s.month));
                here.map(|s| Group::new(stray_buckets(&own[s.month], s), s.cents)).collect()
            };
            files.push(File {
                name,
                before: strays(0..m),
                own: Group::new(buckets.clone(), self.own(m).cents),
                outside: outside(m),
                after: strays(m + 1..3),
            });
        }
        files
    }

    /// The month's trips in its own file. All of its buckets occur there.
    fn own(&self, m: usize) -> MonthTotals {
        let all = self.months[m];
        let elsewhere = STRAYS.iter().filter(|s| s.month == m);
        let (trips, cents) = elsewhere.fold((0, 0), |(trips, cents), s| (trips + s.trips, cents + s.cents));
        MonthTotals { trips: all.trips - trips, cents: all.cents - cents, ..all }
    }
}

impl File {
    /// Rows of the file.
    pub(super) fn rows(&self) -> u64 {
        self.before.iter().chain(&self.after).chain([&self.own, &self.outside]).map(Group::trips).sum()
    }

    /// Hands over every trip, in the order of the file.
    pub(super) fn for_each_trip(
        &self,
        take: &mut dyn FnMut(&PricedTrip) -> Result<(), SampleError>,
    ) -> Result<(), SampleError> {
        let mut outside = Vec::new();
        self.outside.for_each_trip(&mut |trip| {
            outside.push(*trip);
            Ok(())
        })?;
        for group in &self.before {
            group.for_each_trip(take)?;
        }
        let every = self.own.trips() / (outside.len() as u64 + 1);
        let mut row = 0;
        self.own.for_each_trip(&mut |trip| {
            row += 1;
            if row % every == 0
                && let Some(odd) = outside.pop()
            {
                take(&odd)?;
            }
            take(trip)
        })?;
        for group in &self.after {
            group.for_each_trip(take)?;
        }
        Ok(())
    }
}

/// Buckets of the month nearest to the file that the strays lie in: its last ones in a later file, its first in an earlier.
fn stray_buckets(month: &[Bucket], strays: &Strays) -> Vec<Bucket> {
    let step = (month.len() / strays.buckets).clamp(1, 4);
    let mut places: Vec<Place> = if strays.file > strays.month {
        month.iter().rev().step_by(step).take(strays.buckets).map(|b| b.place).collect()
    } else {
        month.iter().step_by(step).take(strays.buckets).map(|b| b.place).collect()
    };
    places.sort();
    buckets::fill(100 + 10 * strays.file as u64 + strays.month as u64, &places, strays.trips)
}

fn outside(file: usize) -> Group {
    let here = OUTSIDE.iter().filter(|o| o.file == file);
    let places = here.clone().zip(1..).map(|(o, n)| Place { hour: o.hour, zone: 263 / n });
    let buckets: Vec<Bucket> = places.zip(here).map(|(place, o)| Bucket { place, trips: o.trips }).collect();
    let trips: u32 = buckets.iter().map(|b| b.trips).sum();
    Group::new(buckets, OUTSIDE_CENTS * i64::from(trips))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn scale_1_has_the_rows_and_totals_of_the_lesson() {
        let c = contents(1.0).unwrap();
        assert_eq!(c.file_rows, [2_964_624, 3_007_526, 3_582_628]);
        assert_eq!(c.months.map(|m| m.trips).iter().sum::<u64>(), 9_554_757);
        assert_eq!(c.months.map(|m| m.buckets).iter().sum::<u64>(), 240_917);
        assert_eq!(c.months.map(|m| m.cents).iter().sum::<i64>(), 25_669_237_314);
        assert_eq!(c.own_files.map(|m| m.trips), [2_964_606, 3_007_511, 3_582_605]);
        assert_eq!(c.own_files[1].cents, 8_007_314_799);
        assert_eq!((c.strays_next_door, c.strays_outside), (35, 21));
        assert_eq!((c.january_in_february, c.march_in_february), (11, 2));
    }

    #[test]
    fn strays_lie_in_buckets_of_their_month() {
        let quarter = Quarter::at(0.001).unwrap();
        let files = quarter.files();
        let places = |g: &Group| g.buckets().iter().map(|b| b.place).collect::<Vec<_>>();
        for strays in &STRAYS {
            let file = &files[strays.file];
            let group = if strays.month < strays.file { &file.before[0] } else { &file.after[0] };
            let own = places(&files[strays.month].own);
            assert_eq!((group.buckets().len(), group.trips()), (strays.buckets, strays.trips));
            assert!(places(group).iter().all(|p| own.contains(p)));
        }
        let outside: Vec<u64> = files.iter().map(|f| f.outside.trips()).collect();
        assert_eq!(outside, [15, 2, 4]);
    }
}
