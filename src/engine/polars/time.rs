//! Periods of time: partition values and truncation. Wall-clock times are counted in microseconds since 1970.

use crate::partition::Transform;
use crate::pipeline::DataType;
use crate::pipeline::expr::Unit;
use ::polars::prelude as pl;
use ::polars::prelude::{IntoColumn, lit};
use chrono::{Datelike, NaiveDate};

const HOUR: i64 = 3_600_000_000;
const DAY: i64 = 24 * HOUR;
/// The first and the last day that a key can name: years 0001 to 9999.
const FIRST_DAY: i64 = -719_162;
const LAST_DAY: i64 = 2_932_896;

/// A zone as Polars names it.
pub(super) fn zone(tz: chrono_tz::Tz) -> pl::TimeZone {
    pl::TimeZone::from_chrono(&tz)
}

/// Naive wall-clock microseconds of a date, a naive or a zoned datetime.
pub(super) fn wall_clock(value: pl::Expr, data_type: &DataType, timezone: chrono_tz::Tz) -> pl::Expr {
    let naive = pl::DataType::Datetime(pl::TimeUnit::Microseconds, None);
    match data_type {
        DataType::Datetime(None) => value,
        DataType::Datetime(Some(_)) => value.dt().convert_time_zone(zone(timezone)).dt().replace_time_zone(
            None,
            lit("raise"),
            pl::NonExistent::Raise,
        ),
        _ => value.cast(naive),
    }
}

/// The count that a time transform makes of wall-clock microseconds (see [`crate::partition::PartitionValue`]); null
/// outside the years 0001 to 9999.
pub(super) fn period_of(wall: pl::Expr, transform: Transform) -> pl::Expr {
    wall.map(
        move |column| {
            let physical = column.as_materialized_series().to_physical_repr().into_owned();
            let counts: pl::Int64Chunked =
                pl::arity::unary_elementwise(physical.i64()?, |v: Option<i64>| v.and_then(|v| period(v, transform)));
            Ok(counts.into_column())
        },
        |_, field| Ok(pl::Field::new(field.name().clone(), pl::DataType::Int64)),
    )
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
            let starts: pl::Int64Chunked =
                pl::arity::unary_elementwise(physical.i64()?, |v: Option<i64>| v.and_then(|v| start(v, unit)));
            starts.into_datetime(pl::TimeUnit::Microseconds, None).into_column().cast(&target)
        },
        move |_, field| Ok(pl::Field::new(field.name().clone(), to.clone())),
    )
}

/// The start of the period, in `timezone`, of an instant. Hours and minutes are cut in UTC, where the zone is.
pub(super) fn truncate_zoned(value: pl::Expr, timezone: chrono_tz::Tz, unit: Unit) -> pl::Expr {
    let every = match unit {
        Unit::Year => "1y",
        Unit::Month => "1mo",
        Unit::Week => "1w",
        Unit::Day => "1d",
        Unit::Hour => "1h",
        Unit::Minute => "1m",
    };
    value.dt().convert_time_zone(zone(timezone)).dt().truncate(lit(every))
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
        Unit::Month => of_days(first_of(civil(day).0, civil(day).1)?),
        Unit::Year => of_days(first_of(civil(day).0, 1)?),
    }
}

fn first_of(year: i64, month: i64) -> Option<i64> {
    let date = NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, u32::try_from(month).ok()?, 1)?;
    Some(i64::from(date.num_days_from_ce()) - 719_163)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use chrono::{NaiveDateTime, Timelike};

    fn micros(text: &str) -> i64 {
        text.parse::<NaiveDateTime>().unwrap().and_utc().timestamp_micros()
    }

    #[test]
    fn periods_agree_with_the_calendar() {
        for day in (FIRST_DAY..=LAST_DAY).step_by(97).chain([FIRST_DAY, LAST_DAY]) {
            let date = NaiveDate::from_num_days_from_ce_opt(i32::try_from(day + 719_163).unwrap()).unwrap();
            assert_eq!(civil(day), (i64::from(date.year()), i64::from(date.month())), "{date}");
        }
        let at = micros("1969-12-31T23:30:00");
        assert_eq!(period(at, Transform::HourOf), Some(-1));
        assert_eq!(period(at, Transform::HourOfDay), Some(23));
        assert_eq!(period(at, Transform::MonthOf), Some(1969 * 12 + 11));
        assert_eq!(period((LAST_DAY + 1) * DAY, Transform::YearOf), None);
        assert_eq!(period(FIRST_DAY * DAY - 1, Transform::YearOf), None);
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
}
