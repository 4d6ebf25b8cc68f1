//! Calendar periods, numbered as partition values are.

use super::Period;
use chrono::{Datelike, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, Timelike};

/// The length of a calendar period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Grain {
    /// Numbered by the year.
    Year,
    /// Numbered `year * 12 + month - 1`.
    Month,
    /// Days since 1970-01-01.
    Day,
    /// Hours since 1970-01-01T00.
    Hour,
}

impl Grain {
    /// The number of the period that an instant belongs to.
    pub fn index(self, at: NaiveDateTime) -> i64 {
        match self {
            Grain::Year => i64::from(at.year()),
            Grain::Month => i64::from(at.year()) * 12 + i64::from(at.month0()),
            Grain::Day => days(at.date()),
            Grain::Hour => days(at.date()) * 24 + i64::from(at.hour()),
        }
    }

    /// The period of that number; none outside the years 0001 to 9999.
    pub fn period(self, index: i64) -> Option<Period> {
        let start = self.start(index)?;
        let end = self.start(index.checked_add(1)?)?;
        (1..=9999).contains(&start.year()).then_some(Period { start, end })
    }

    fn start(self, index: i64) -> Option<NaiveDateTime> {
        let first_of =
            |year: i64, month: i64| NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, u32::try_from(month).ok()?, 1);
        match self {
            Grain::Year => first_of(index, 1).map(|day| day.and_time(NaiveTime::MIN)),
            Grain::Month => {
                first_of(index.div_euclid(12), index.rem_euclid(12) + 1).map(|day| day.and_time(NaiveTime::MIN))
            }
            Grain::Day => date(index).map(|day| day.and_time(NaiveTime::MIN)),
            Grain::Hour => {
                let midnight = date(index.div_euclid(24))?.and_time(NaiveTime::MIN);
                midnight.checked_add_signed(TimeDelta::try_hours(index.rem_euclid(24))?)
            }
        }
    }
}

/// Days since 1970-01-01.
pub(super) fn days(date: NaiveDate) -> i64 {
    date.signed_duration_since(NaiveDate::default()).num_days()
}

/// The date that many days after 1970-01-01.
pub(super) fn date(days: i64) -> Option<NaiveDate> {
    NaiveDate::default().checked_add_signed(TimeDelta::try_days(days)?)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_period_holds_its_first_instant_and_not_the_next_ones() {
        let at: NaiveDateTime = "1969-12-31T23:59:59".parse().unwrap();
        for (grain, index, start, end) in [
            (Grain::Year, 1969, "1969-01-01T00:00:00", "1970-01-01T00:00:00"),
            (Grain::Month, 1969 * 12 + 11, "1969-12-01T00:00:00", "1970-01-01T00:00:00"),
            (Grain::Day, -1, "1969-12-31T00:00:00", "1970-01-01T00:00:00"),
            (Grain::Hour, -1, "1969-12-31T23:00:00", "1970-01-01T00:00:00"),
        ] {
            assert_eq!(grain.index(at), index);
            let period = grain.period(index).unwrap();
            assert_eq!(period, Period { start: start.parse().unwrap(), end: end.parse().unwrap() });
            assert_eq!([grain.index(period.start), grain.index(period.end)], [index, index + 1]);
        }
    }

    #[test]
    fn periods_are_of_the_years_1_to_9999() {
        assert!(Grain::Year.period(9999).is_some() && Grain::Year.period(1).is_some());
        for (grain, index) in [(Grain::Year, 0), (Grain::Year, 10_000), (Grain::Month, 11), (Grain::Hour, i64::MAX)] {
            assert_eq!(grain.period(index), None, "{grain:?} {index}");
        }
    }
}
