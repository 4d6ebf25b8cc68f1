#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::pipeline::Origin;
use Misfit::{NoOffset, NotWhole, Offset, Other, OutOfRange};

#[test]
fn bools_have_six_names() {
    for (text, value) in [("true", true), ("T", true), ("1", true), ("FALSE", false), ("f", false), ("0", false)] {
        assert_eq!(boolean(text), Ok(value), "{text}");
    }
    for text in ["", "yes", "2", "tr", "01"] {
        assert_eq!(boolean(text), Err(Other), "{text}");
    }
}

#[test]
fn integers_are_whole_and_in_range() {
    let of = |text| integer(text, &DataType::Int(16));
    for (text, value) in [
        ("5", 5),
        ("-5", -5),
        ("+5", 5),
        ("007", 7),
        ("5.0", 5),
        ("5.", 5),
        ("1.2e1", 12),
        ("-32768", -32768),
        ("0e-9", 0),
    ] {
        assert_eq!(of(text), Ok(value), "{text}");
    }
    for (text, misfit) in [
        ("", Other),
        ("-", Other),
        (".", Other),
        ("5x", Other),
        ("1,000", Other),
        ("0x1f", Other),
        ("1e", Other),
        ("--5", Other),
        ("٥", Other),
        ("nan", Other),
        ("5.5", NotWhole),
        ("1e-1", NotWhole),
        ("1e-9", NotWhole),
        ("32768", OutOfRange),
        ("1e99", OutOfRange),
        ("1e999999999999999999999", OutOfRange),
    ] {
        assert_eq!(of(text), Err(misfit), "{text}");
    }
    assert_eq!(integer("18446744073709551615", &DataType::UInt(64)), Ok(u64::MAX.into()));
    assert_eq!(integer("-1", &DataType::UInt(64)), Err(OutOfRange));
    assert_eq!(integer("-9223372036854775808", &DataType::Int(64)), Ok(i64::MIN.into()));
    assert_eq!(integer("9223372036854775808", &DataType::Int(64)), Err(OutOfRange));
    assert_eq!(integer("1000000000000000000000000000000000000000", &DataType::Int(64)), Err(OutOfRange));
}

#[test]
fn decimals_are_exact_and_round_half_away_from_zero() {
    let cents = |text| decimal(text, 18, 2);
    for (text, value) in [
        ("9.4000000000000004", 940),
        ("2.6299999999999999", 263),
        (".50", 50),
        ("-.005", -1),
        ("0.005", 1),
        ("0.0049999999999999999999999999999999999999999999", 0),
        ("1.005", 101),
        ("-1.005", -101),
        ("1e3", 100_000),
        ("1.5E-2", 2),
        ("12e-5", 0),
        ("5e-4", 0),
        ("1e-300", 0),
        ("0e400", 0),
        ("-0", 0),
        ("9999999999999999.99", 999_999_999_999_999_999),
    ] {
        assert_eq!(cents(text), Ok(value), "{text}");
    }
    for (text, misfit) in [
        ("", Other),
        ("$5", Other),
        ("1.2.3", Other),
        ("inf", Other),
        ("9999999999999999.995", OutOfRange),
        ("1e400", OutOfRange),
    ] {
        assert_eq!(cents(text), Err(misfit), "{text}");
    }
    assert_eq!(decimal(&"9".repeat(38), 38, 0), Ok(10i128.pow(38) - 1));
    assert_eq!(decimal(&format!("{}.5", "9".repeat(38)), 38, 0), Err(OutOfRange));
    assert_eq!(decimal("0.1", 38, 38), Ok(10i128.pow(37)));
}

#[test]
fn doubles_come_back_as_the_decimals_of_their_shortest_text() {
    let mut seed = 7u64;
    for _ in 0..20_000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Numbers of thousandths: half of a cent among them.
        let thousandths = i128::from(seed >> 30) - (1 << 33);
        let text = (thousandths as f64 / 1000.0).to_string();
        let away = (thousandths.abs() + 5) / 10 * thousandths.signum();
        assert_eq!(decimal(&text, 18, 2), Ok(away), "{text}");
    }
}

#[test]
fn floats_are_the_nearest_and_never_become_infinite() {
    assert_eq!(float64("-73.922592163085938"), Ok(-73.922_592_163_085_94));
    assert_eq!([float64(".5"), float64("1e5"), float64("inf")], [Ok(0.5), Ok(1e5), Ok(f64::INFINITY)]);
    assert!(float64("NaN").unwrap().is_nan());
    assert_eq!([float64("1e400"), float64("1,5"), float64("")], [Err(OutOfRange), Err(Other), Err(Other)]);
    assert_eq!([float32("0.1"), float32("1e39"), float32("x")], [Ok(0.1), Err(OutOfRange), Err(Other)]);
}

#[test]
fn dates_are_iso_8601() {
    let of = |text| TimeFormat::Iso.days(text);
    assert_eq!([of("1970-01-02"), of("1969-12-31"), of("2024-02-29")], [Ok(1), Ok(-1), Ok(19782)]);
    for text in
        ["2023-02-29", "2024-13-01", "24-01-01", "2024-1-1", "2024/01/01", "2024-01-01 00:00:00", "", "2024-01-0x"]
    {
        assert_eq!(of(text), Err(Other), "{text}");
    }
}

#[test]
fn times_are_iso_8601_to_the_microsecond() {
    let of = |text| TimeFormat::Iso.micros(text, false);
    let second = 1_000_000;
    for (text, micros) in [
        ("1970-01-01", 0),
        ("1970-01-01 00:01", 60 * second),
        ("1970-01-01T00:00:01", second),
        ("1970-01-01 00:00:01.5", second + 500_000),
        ("1969-12-31 23:59:59.000001999", -second + 1),
        ("1970-01-02 01:00:00.000000", 90_000 * second),
    ] {
        assert_eq!(of(text), Ok(micros), "{text}");
    }
    for text in [
        "1970-01-01 24:00",
        "1970-01-01 00:60",
        "1970-01-01 00:00:60",
        "1970-01-01 00:00:00.",
        "1970-01-01 00:00:00.0000000001",
        "1970-01-01 0:00",
        "1970-01-01  00:00",
        "1970-01-01 00:00:00 x",
        "1970-01-01 00:00:00+25:00",
        "é970-01-01 00:00",
    ] {
        assert_eq!(of(text), Err(Other), "{text}");
    }
}

#[test]
fn instants_need_an_offset_and_wall_clocks_refuse_one() {
    let zoned = |text: &str| TimeFormat::Iso.micros(text, true);
    for offset in ["Z", "z", " UTC", "+00:00", "+0000", "-00"] {
        assert_eq!(zoned(&format!("1970-01-01 00:00:01{offset}")), Ok(1_000_000), "{offset}");
    }
    assert_eq!([zoned("1970-01-01T05:30+05:30"), zoned("1970-01-01T00:00:00.5-01")], [Ok(0), Ok(3_600_500_000)]);
    assert_eq!([zoned("1970-01-01 00:00:01"), zoned("1970-01-01")], [Err(NoOffset), Err(NoOffset)]);
    assert_eq!(TimeFormat::Iso.micros("1970-01-01 00:00:01Z", false), Err(Offset));
}

#[test]
fn formats_are_followed() {
    let format = |text: &str, data_type: DataType| TimeFormat::checked(text, &data_type).unwrap();
    let day = format("%d/%m/%Y", DataType::Date);
    assert_eq!(
        [day.days("02/01/1970"), day.days("1970-01-02"), day.days("31/02/1970")],
        [Ok(1), Err(Other), Err(Other)]
    );
    let time = format("%m/%d/%Y %I:%M:%S %p", DataType::Datetime(None));
    assert_eq!(time.micros("01/02/1970 01:00:00 PM", false), Ok((24 + 13) * 3_600_000_000));
    let hour = format("%Y%m%d%H", DataType::Datetime(None));
    assert_eq!(hour.micros("1970010105", false), Ok(5 * 3_600_000_000));
    let midnight = format("%d.%m.%y", DataType::Datetime(None));
    assert_eq!(midnight.micros("02.01.70", false), Ok(86_400_000_000));
    let epoch = format("%s", DataType::Datetime(Some(chrono_tz::UTC)));
    assert_eq!(epoch.micros("86400", true), Ok(86_400_000_000));
    let offset = format("%d %b %Y %T %z", DataType::Datetime(Some(chrono_tz::UTC)));
    assert_eq!(offset.micros("01 Jan 1970 01:00:00 +0100", true), Ok(0));
}

#[test]
fn literals_come_back_from_their_text() {
    let berlin = DataType::Datetime(Some(chrono_tz::Europe::Berlin));
    for (data_type, text) in [
        (DataType::Bool, "true"),
        (DataType::Int(8), "-5"),
        (DataType::Decimal { precision: 5, scale: 2 }, "-1.10"),
        (DataType::Float32, "0.1"),
        (DataType::Float64, "0.1"),
        (DataType::String, " a "),
        (DataType::Date, "2024-02-29"),
        (DataType::Datetime(None), "2024-02-29 23:59:59.500"),
        (berlin, "2024-02-29 23:59:59Z"),
    ] {
        let value = literal(text, &data_type, &TimeFormat::Iso).unwrap();
        assert_eq!(text_of(&value, &data_type).as_deref(), Some(text));
    }
    assert_eq!(text_of(&Literal::Null, &DataType::Bool), None);
}

#[test]
fn folders_give_typed_values() {
    let path = "in/trip_year=2013/trip_month=09/day=x/none=__HIVE_DEFAULT_PARTITION__/part.csv";
    let column = |data_type, default| Column {
        origin: Origin::Folder("k".to_owned()),
        default,
        ..Column::new("k", data_type, false)
    };
    let month = column(DataType::Int(32), None);
    assert_eq!(of_folder(&month, "trip_month", path), Ok(Literal::Exact(9)));
    assert_eq!(of_folder(&column(DataType::String, None), "trip_month", path), Ok(Literal::Text("09".to_owned())));
    assert_eq!(of_folder(&month, "none", path), Ok(Literal::Null));
    assert_eq!(of_folder(&month, "day", path), Err("the folder day=x does not fit, expected int32".to_owned()));
    let missing = "not found, expected int32 in a folder hour=… of the path";
    assert_eq!(of_folder(&month, "hour", path), Err(missing.to_owned()));
    assert_eq!(of_folder(&column(DataType::Int(32), Some(Literal::Exact(7))), "hour", path), Ok(Literal::Exact(7)));
    let dated = Column { format: Some("%d%m%Y".to_owned()), ..column(DataType::Date, None) };
    assert_eq!(of_folder(&dated, "d", "d=02011970/p"), Ok(Literal::Date(1)));
}
