//! Periods of time: partition values and truncation. Wall-clock times are counted in microseconds since 1970.

use super::exact::map_i64;
use crate::partition::Transform;
use crate::pipeline::DataType;
use crate::pipeline::expr::Unit;
use ::polars::prelude as pl;
use ::polars::prelude::IntoColumn;
use chrono::{DateTime, Offset, TimeZone};
use chrono_tz::Tz;
use std::ops::Range;

const SECOND: i64 = 1_000_000;
const HOUR: i64 = 3600 * SECOND;
const DAY: i64 = 24 * HOUR;
/// The first and the last day that a key can name: years 0001 to 9999.
const FIRST_DAY: i64 = -719_162;
const LAST_DAY: i64 = 2_932_896;

/// A zone as Polars names it.
pub(super) fn zone(tz: Tz) -> pl::TimeZone {
    pl::TimeZone::from_chrono(&tz)
}

/// Naive wall-clock microseconds of a date, a naive or a zoned datetime; null for an instant so far away that the
/// calendar ends before it.
pub(super) fn wall_clock(value: pl::Expr, data_type: &DataType, timezone: Tz) -> pl::Expr {
    let naive = pl::DataType::Datetime(pl::TimeUnit::Microseconds, None);
    match data_type {
        DataType::Datetime(None) => value,
        DataType::Datetime(Some(_)) => map_micros(value, naive, move |utc| wall_of(utc, timezone)),
        _ => value.cast(naive),
    }
}

/// Maps the microseconds of a datetime to those of another type. Polars' own changes of time zone panic or fail the
/// query where one value lies outside the calendar or in a gap of the clocks.
fn map_micros(value: pl::Expr, to: pl::DataType, f: impl Fn(i64) -> Option<i64> + Send + Sync + 'static) -> pl::Expr {
    let field_type = to.clone();
    value.map(
        move |column| {
            let physical = column.as_materialized_series().to_physical_repr().into_owned();
            map_i64(physical.i64()?, &f).into_column().cast(&to)
        },
        move |_, field| Ok(pl::Field::new(field.name().clone(), field_type.clone())),
    )
}

/// What the clocks of a zone show at an instant.
fn wall_of(utc: i64, timezone: Tz) -> Option<i64> {
    if timezone == Tz::UTC {
        return Some(utc);
    }
    let at = DateTime::from_timestamp_micros(utc)?.naive_utc();
    let offset = timezone.offset_from_utc_datetime(&at).fix().local_minus_utc();
    utc.checked_add(i64::from(offset) * SECOND)
}

/// The first instant at which the clocks of a zone show this time or, where they leap over it, a later one.
fn first_instant(wall: i64, timezone: Tz) -> Option<i64> {
    let local = DateTime::from_timestamp_micros(wall)?.naive_utc();
    if let Some(first) = timezone.from_local_datetime(&local).earliest() {
        return Some(first.timestamp_micros());
    }
    // No zone is further from UTC than two days, and clocks leap at whole seconds.
    let (mut before, mut after) = (-2 * DAY / SECOND, 2 * DAY / SECOND);
    while after - before > 1 {
        let middle = before + (after - before) / 2;
        let shows = wall_of(wall.checked_add(middle * SECOND)?, timezone)?;
        if shows < wall { before = middle } else { after = middle }
    }
    wall.checked_add(after * SECOND)
}

/// The count that a time transform makes of wall-clock microseconds (see [`crate::partition::PartitionValue`]); null
/// outside the years 0001 to 9999.
pub(super) fn period_of(wall: pl::Expr, transform: Transform) -> pl::Expr {
    wall.map(
        move |column| {
            let physical = column.as_materialized_series().to_physical_repr().into_owned();
            Ok(map_periods(physical.i64()?, |v| of_transform(v, transform)).into_column())
        },
        |_, field| Ok(pl::Field::new(field.name().clone(), pl::DataType::Int64)),
    )
}

/// A period, and what it is mapped to.
struct Period {
    /// From here, and before there.
    within: Range<i64>,
    is: i64,
}

impl Period {
    #[inline]
    fn contains(&self, micros: i64) -> bool {
        self.sign_within(micros) >= 0
    }

    /// Below 0 for a time that is not within, so that those of several times can be put together bit by bit. How far the time is
    /// from the first one and how far from the last one, of which one is below 0 then, also where a difference wraps.
    #[inline]
    fn sign_within(&self, micros: i64) -> i64 {
        let last = self.within.end.wrapping_sub(self.within.start).wrapping_sub(1);
        let from_start = micros.wrapping_sub(self.within.start);
        from_start | last.wrapping_sub(from_start)
    }
}

/// How many values are looked at together.
const BLOCK: usize = 64;

/// Maps times by the period that they are in. Neighbouring rows mostly are in the same: `of` is asked where one is not.
fn map_periods(column: &pl::Int64Chunked, of: impl Fn(i64) -> Option<Period>) -> pl::Int64Chunked {
    let mut last = Period { within: 0..0, is: 0 };
    let mut mapped = Vec::with_capacity(column.len());
    for block in column.downcast_iter().flat_map(|chunk| chunk.values().chunks(BLOCK)) {
        if block.iter().fold(0, |all, value| all | last.sign_within(*value)) >= 0 {
            mapped.resize(mapped.len() + block.len(), last.is);
            continue;
        }
        for value in block {
            if !last.contains(*value) {
                match of(*value) {
                    Some(period) => last = period,
                    None => {
                        return pl::arity::unary_elementwise(column, |v: Option<i64>| of(v?).map(|period| period.is));
                    }
                }
            }
            mapped.push(last.is);
        }
    }
    pl::Int64Chunked::from_vec(column.name().clone(), mapped).with_validity(column.rechunk_validity())
}

fn of_transform(micros: i64, transform: Transform) -> Option<Period> {
    let is = period(micros, transform)?;
    Some(Period { within: bounds(micros, transform), is })
}

/// From where to where times have the period of this one, which has one.
fn bounds(micros: i64, transform: Transform) -> Range<i64> {
    let day = micros.div_euclid(DAY);
    let (year, month) = civil(day);
    let of_days = |first: i64, next: i64| first * DAY..next * DAY;
    match transform {
        Transform::DayOf => of_days(day, day + 1),
        Transform::HourOf | Transform::HourOfDay => {
            let hour = micros.div_euclid(HOUR);
            hour * HOUR..(hour + 1) * HOUR
        }
        Transform::YearOf => of_days(first_of(year, 1), first_of(year + 1, 1)),
        Transform::MonthOf | Transform::ValueOf => {
            let next = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
            of_days(first_of(year, month), first_of(next.0, next.1))
        }
    }
}

fn period(micros: i64, transform: Transform) -> Option<i64> {
    let day = micros.div_euclid(DAY);
    if !(FIRST_DAY..=LAST_DAY).contains(&day) {
        return None;
    }
    Some(match transform {
        Transform::DayOf => day,
        Transform::HourOf => micros.div_euclid(HOUR),
        Transform::HourOfDay => micros.rem_euclid(DAY) / HOUR,
        Transform::YearOf => civil(day).0,
        Transform::MonthOf | Transform::ValueOf => {
            let (year, month) = civil(day);
            year * 12 + month - 1
        }
    })
}

/// Year and month of a day since 1970-01-01 in the proleptic Gregorian calendar, by counting 400-year eras from March.
fn civil(day: i64) -> (i64, i64) {
    let shifted = day + 719_468;
    let era = shifted.div_euclid(146_097);
    let in_era = shifted.rem_euclid(146_097);
    let year_of_era = (in_era - in_era / 1_460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * in_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month)
}

/// The start of the period of a naive value.
pub(super) fn truncate_wall(value: pl::Expr, unit: Unit, to: pl::DataType) -> pl::Expr {
    value.map(
        move |column| {
            let series = column.as_materialized_series();
            let target = series.dtype().clone();
            let naive = pl::DataType::Datetime(pl::TimeUnit::Microseconds, None);
            let physical = series.cast(&naive)?.to_physical_repr().into_owned();
            let starts = map_periods(physical.i64()?, |v| of_unit(v, unit));
            starts.into_datetime(pl::TimeUnit::Microseconds, None).into_column().cast(&target)
        },
        move |_, field| Ok(pl::Field::new(field.name().clone(), to.clone())),
    )
}

/// The first instant of the period, in `timezone`, of an instant. Hours and minutes are cut in UTC, where the zone is.
pub(super) fn truncate_zoned(value: pl::Expr, timezone: Tz, unit: Unit, to: pl::DataType) -> pl::Expr {
    map_micros(value, to, move |utc| {
        let start = start(wall_of(utc, timezone)?, unit)?;
        if timezone == Tz::UTC { Some(start) } else { first_instant(start, timezone) }
    })
}

/// The unit that holds a time, and its start.
fn of_unit(micros: i64, unit: Unit) -> Option<Period> {
    let start = start(micros, unit)?;
    let next = match unit {
        Unit::Minute => start.checked_add(60 * SECOND),
        Unit::Hour => start.checked_add(HOUR),
        Unit::Day => start.checked_add(DAY),
        Unit::Week => start.checked_add(7 * DAY),
        // No month is longer: the value after this one is asked for by itself.
        Unit::Month | Unit::Year => start.checked_add(28 * DAY),
    };
    let within = next.map_or(micros..micros + i64::from(micros < i64::MAX), |next| start..next);
    Some(Period { within, is: start })
}

fn start(micros: i64, unit: Unit) -> Option<i64> {
    const MINUTE: i64 = 60_000_000;
    let day = micros.div_euclid(DAY);
    let of_days = |days: i64| days.checked_mul(DAY);
    match unit {
        Unit::Minute => micros.div_euclid(MINUTE).checked_mul(MINUTE),
        Unit::Hour => micros.div_euclid(HOUR).checked_mul(HOUR),
        Unit::Day => of_days(day),
        // 1970-01-01 was a Thursday.
        Unit::Week => of_days(day - (day + 3).rem_euclid(7)),
        Unit::Month => of_days(first_of(civil(day).0, civil(day).1)),
        Unit::Year => of_days(first_of(civil(day).0, 1)),
    }
}

/// The first day of a month, the other way round.
fn first_of(year: i64, month: i64) -> i64 {
    let from_march = if month > 2 { month - 3 } else { month + 9 };
    let shifted = if month > 2 { year } else { year - 1 };
    let era = shifted.div_euclid(400);
    let year_of_era = shifted.rem_euclid(400);
    let in_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + (153 * from_march + 2) / 5;
    era * 146_097 + in_era - 719_468
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use ::polars::prelude::NewChunkedArray;
    use chrono::{Datelike, NaiveDate, NaiveDateTime, Timelike};

    fn micros(text: &str) -> i64 {
        text.parse::<NaiveDateTime>().unwrap().and_utc().timestamp_micros()
    }

    #[test]
    fn periods_agree_with_the_calendar() {
        for day in (FIRST_DAY..=LAST_DAY).step_by(97).chain([FIRST_DAY, LAST_DAY]) {
            let date = NaiveDate::from_num_days_from_ce_opt(i32::try_from(day + 719_163).unwrap()).unwrap();
            assert_eq!(civil(day), (i64::from(date.year()), i64::from(date.month())), "{date}");
            assert_eq!(first_of(civil(day).0, civil(day).1), day - i64::from(date.day0()), "{date}");
        }
        let at = micros("1969-12-31T23:30:00");
        assert_eq!(period(at, Transform::HourOf), Some(-1));
        assert_eq!(period(at, Transform::HourOfDay), Some(23));
        assert_eq!(period(at, Transform::MonthOf), Some(1969 * 12 + 11));
        assert_eq!(period((LAST_DAY + 1) * DAY, Transform::YearOf), None);
        assert_eq!(period(FIRST_DAY * DAY - 1, Transform::YearOf), None);
    }

    #[test]
    fn columns_of_times_are_mapped_as_each_of_them_is() {
        let transforms =
            [Transform::YearOf, Transform::MonthOf, Transform::DayOf, Transform::HourOf, Transform::HourOfDay];
        let units = [Unit::Minute, Unit::Hour, Unit::Day, Unit::Week, Unit::Month, Unit::Year];
        let mut times = Vec::new();
        for day in (FIRST_DAY..=LAST_DAY).step_by(1_013).chain([FIRST_DAY, LAST_DAY]) {
            let at = day * DAY + 13 * HOUR + 7;
            for transform in transforms {
                let within = bounds(at, transform);
                assert!(within.contains(&at), "{transform:?} {day}");
                let edges = [within.start, within.end - 1, within.end].map(|at| period(at, transform));
                assert_eq!(edges[0], edges[1], "{transform:?} {day}");
                assert_ne!(edges[1], edges[2], "{transform:?} {day}");
                times.extend([within.start - 1, within.start, at, within.end - 1, within.end].map(Some));
            }
            for unit in units {
                let start = start(at, unit).unwrap();
                times.extend([at, start, start - 1, start + 28 * DAY, start + 31 * DAY].map(Some));
            }
            // Whole blocks of a period, and a null in one.
            times.extend([Some(at); 2 * BLOCK]);
            times.extend([None, Some(at)]);
        }
        let far = [i64::MIN, i64::MAX, (LAST_DAY + 1) * DAY, FIRST_DAY * DAY - 1].map(Some);
        for times in [times.clone(), [times, far.to_vec()].concat()] {
            let column = pl::Int64Chunked::from_iter_options("".into(), times.iter().copied());
            let check = |found: pl::Int64Chunked, one: &dyn Fn(i64) -> Option<i64>, what: &dyn std::fmt::Debug| {
                for (found, at) in found.iter().zip(&times) {
                    assert_eq!(found, at.and_then(one), "{what:?} {at:?}");
                }
            };
            for transform in transforms {
                let found = map_periods(&column, |v| of_transform(v, transform));
                check(found, &|v| period(v, transform), &transform);
            }
            for unit in units {
                check(map_periods(&column, |v| of_unit(v, unit)), &|v| start(v, unit), &unit);
            }
        }
    }

    #[test]
    fn truncation_gives_the_start() {
        let at = micros("2024-02-29T23:59:59.999999");
        let text = |unit| chrono::DateTime::from_timestamp_micros(start(at, unit).unwrap()).unwrap().naive_utc();
        assert_eq!(text(Unit::Month).to_string(), "2024-02-01 00:00:00");
        assert_eq!(text(Unit::Year).to_string(), "2024-01-01 00:00:00");
        assert_eq!(text(Unit::Week).to_string(), "2024-02-26 00:00:00");
        assert_eq!(text(Unit::Day).day(), 29);
        assert_eq!((text(Unit::Hour).hour(), text(Unit::Minute).minute()), (23, 59));
    }

    #[test]
    fn zoned_periods_start_at_their_first_instant() {
        let day = |utc: &str, zone| {
            let start = start(wall_of(micros(utc), zone).unwrap(), Unit::Day).unwrap();
            DateTime::from_timestamp_micros(first_instant(start, zone).unwrap()).unwrap().naive_utc().to_string()
        };
        assert_eq!(day("2024-03-31T12:00:00", Tz::Europe__Berlin), "2024-03-30 23:00:00");
        assert_eq!(day("2024-10-27T23:30:00", Tz::Europe__Berlin), "2024-10-27 23:00:00");
        // Midnight was leapt over, and in Havana it came twice.
        assert_eq!(day("2017-10-15T12:00:00", Tz::America__Sao_Paulo), "2017-10-15 03:00:00");
        assert_eq!(day("2023-11-05T05:30:00", Tz::America__Havana), "2023-11-05 04:00:00");
        for far in [i64::MIN, i64::MAX] {
            assert_eq!(wall_of(far, Tz::Europe__Berlin), None);
            assert_eq!(wall_of(far, Tz::UTC), Some(far));
        }
    }
}
