#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use PartitionValue::{Int, Text};

fn column(name: &str, transform: Transform, kind: ValueKind, source: &str) -> PartitionColumn {
    PartitionColumn { name: name.to_owned(), transform, kind, source: source.to_owned() }
}

fn time(transform: Transform) -> PartitionSpec {
    PartitionSpec::new(vec![column("p", transform, ValueKind::Text, "at")])
}

fn value(kind: ValueKind) -> PartitionSpec {
    PartitionSpec::new(vec![column("p", Transform::ValueOf, kind, "x")])
}

fn date_and_hour() -> PartitionSpec {
    PartitionSpec::new(vec![
        column("event_date", Transform::DayOf, ValueKind::Text, "at"),
        column("hour", Transform::HourOfDay, ValueKind::Text, "at"),
    ])
}

fn texts(keys: &[PartitionKey]) -> Vec<&str> {
    keys.iter().map(PartitionKey::as_str).collect()
}

#[test]
fn time_values_are_numbered_and_come_back() {
    for (transform, text, count) in [
        (Transform::YearOf, "2024", 2024),
        (Transform::YearOf, "0001", 1),
        (Transform::MonthOf, "2024-02", 2024 * 12 + 1),
        (Transform::DayOf, "2024-02-29", 19782),
        (Transform::DayOf, "1969-12-31", -1),
        (Transform::HourOf, "2024-02-29T23", 19782 * 24 + 23),
        (Transform::HourOfDay, "00", 0),
        (Transform::HourOfDay, "23", 23),
    ] {
        let spec = time(transform);
        let key = spec.parse_text(text).unwrap();
        assert_eq!(key.as_str(), format!("p={text}"));
        assert_eq!(spec.values(&key), Some(vec![Int(count)]));
        assert_eq!(spec.key(&[Int(count)]), Some(key));
    }
}

#[test]
fn typed_values_are_written_one_way_only() {
    let int = ValueKind::Int { min: -128, max: 127 };
    let decimal = ValueKind::Decimal { precision: 4, scale: 2 };
    for (kind, text, count) in [
        (int, "-5", -5),
        (int, "0", 0),
        (int, "127", 127),
        (decimal, "-0.05", -5),
        (decimal, "99.99", 9999),
        (ValueKind::Decimal { precision: 3, scale: 0 }, "-12", -12),
        (ValueKind::Bool, "true", 1),
        (ValueKind::Bool, "false", 0),
        (ValueKind::Date, "2024-02-29", 19782),
        (ValueKind::Datetime, "2024-02-29 23%3A59%3A59", 1_709_251_199_000_000),
        (ValueKind::Datetime, "1969-12-31 23%3A59%3A59.5", -500_000),
        (ValueKind::Datetime, "1970-01-01 00%3A00%3A00.000001", 1),
    ] {
        let spec = value(kind);
        let key = spec.parse_key(&format!("p={text}")).unwrap();
        assert_eq!(spec.values(&key), Some(vec![Int(count)]), "{text}");
        assert_eq!(spec.key(&[Int(count)]), Some(key));
    }
    for (kind, wrong) in [
        (int, vec!["+5", "05", "-0", "128", "-129", " 5", "5.0", "x"]),
        (decimal, vec!["1", "1.5", "01.50", "-0.00", "100.00", "+1.00", ".50", "1.2.3", "1.500"]),
        (ValueKind::Bool, vec!["True", "1"]),
        (ValueKind::Date, vec!["2023-02-29", "2024-2-1", "0000-01-01"]),
        (
            ValueKind::Datetime,
            vec!["2024-01-01", "2024-01-01 00:00:00.50", "2024-01-01T00:00:00", "2024-01-01 24:00:00"],
        ),
    ] {
        for text in wrong {
            assert!(value(kind).parse_text(text).is_err(), "{kind:?} takes {text}");
        }
    }
}

#[test]
fn wrong_keys_say_what_is_wrong() {
    for (transform, text, message) in [
        (Transform::MonthOf, "2024-13", "p=2024-13: month 13 does not exist, expected 01 to 12"),
        (Transform::MonthOf, "2024-1", "p=2024-1: expected a month as YYYY-MM"),
        (Transform::MonthOf, "24-02", "p=24-02: expected a month as YYYY-MM"),
        (Transform::MonthOf, "0000-01", "p=0000-01: year 0000 does not exist, expected 0001 to 9999"),
        (Transform::DayOf, "2023-02-29", "p=2023-02-29: day 29 does not exist in 2023-02, expected 01 to 28"),
        (Transform::DayOf, "2024-04-00", "p=2024-04-00: day 00 does not exist in 2024-04, expected 01 to 30"),
        (Transform::HourOf, "2024-01-01T24", "p=2024-01-01T24: hour 24 does not exist, expected 00 to 23"),
        (Transform::HourOfDay, "7", "p=7: expected an hour as HH"),
        (Transform::YearOf, "2024-01", "p=2024-01: expected a year as YYYY"),
        (Transform::YearOf, "٢٠٢٤", "p=٢٠٢٤: expected a year as YYYY"),
        (Transform::MonthOf, "", "p=: the value is empty, and a folder needs a name"),
    ] {
        assert_eq!(time(transform).parse_text(text).unwrap_err().to_string(), message);
        assert_eq!(time(transform).parse_key(&format!("p={text}")).unwrap_err().to_string(), message);
    }
}

#[test]
fn texts_become_folders_as_spark_names_them() {
    let spec = value(ValueKind::Text);
    for (text, key) in [
        ("a/b", "p=a%2Fb"),
        ("a:b", "p=a%3Ab"),
        ("a b", "p=a b"),
        ("a%2Fb", "p=a%252Fb"),
        ("..", "p=.."),
        ("é", "p=é"),
        ("x=y", "p=x%3Dy"),
    ] {
        let made = spec.parse_text(text).unwrap();
        assert_eq!(made.as_str(), key);
        assert_eq!(spec.parse_text(key).unwrap(), made);
        assert_eq!(spec.values(&made), Some(vec![Text(text.to_owned())]));
        assert_eq!(spec.key(&[Text(text.to_owned())]), Some(made));
    }
    for (text, form) in [("p=a%2fb", "p=a%2Fb"), ("p=a:b", "p=a%3Ab"), ("p=%C3%A9", "p=é"), ("p=50%", "p=50%25")] {
        let message = format!("{text}: not in canonical form, expected {form}");
        assert_eq!(spec.parse_key(text).unwrap_err().to_string(), message);
        assert_eq!(spec.values(&PartitionKey::from_canonical(text)), None);
    }
}

#[test]
fn values_without_a_name_have_no_key() {
    let spec = value(ValueKind::Text);
    let fits = "x".repeat(253);
    assert!(spec.key(&[Text(fits.clone())]).is_some());
    for text in ["", "__HIVE_DEFAULT_PARTITION__", "a\0b", &format!("{fits}x"), &"é".repeat(127), &"/".repeat(85)] {
        assert_eq!(spec.key(&[Text(text.to_owned())]), None);
        assert!(spec.parse_text(text).is_err());
    }
    assert!(spec.parse_text(&format!("{fits}x")).unwrap_err().to_string().contains("has 256 bytes"));
    assert_eq!(time(Transform::YearOf).key(&[Int(0)]), None);
    assert_eq!(time(Transform::MonthOf).key(&[Int(i128::MAX)]), None);
    assert_eq!(value(ValueKind::Int { min: 0, max: 9 }).key(&[Int(10)]), None);
    let decimal = value(ValueKind::Decimal { precision: 4, scale: 2 });
    assert_eq!([decimal.key(&[Int(10_000)]), decimal.key(&[Int(i128::MIN)])], [None, None]);
    assert_eq!(date_and_hour().key(&[Int(0)]), None, "one value for two columns");
}

#[test]
fn several_columns_nest_and_are_asked_for_by_name() {
    let spec = date_and_hour();
    let object = |pairs: &[(&str, &str)]| {
        spec.parse_object(&pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect())
    };
    let key = object(&[("hour", "15"), ("event_date", "2015-01-01")]).unwrap();
    assert_eq!(key.as_str(), "event_date=2015-01-01/hour=15");
    assert_eq!(spec.parse_text(key.as_str()).unwrap(), key);
    let message = object(&[("hour", "15")]).unwrap_err().to_string();
    assert_eq!(message, "event_date is missing, expected values for event_date, hour");
    let message = object(&[("hour", "15"), ("event_date", "2015-01-01"), ("x", "1")]).unwrap_err().to_string();
    assert_eq!(message, "x: no such partition column, expected event_date, hour");
    assert!(spec.parse_text("2015-01-01").unwrap_err().to_string().contains("expected event_date=…/hour=…"));
    assert!(spec.parse_key("event_date=2015-01-01").is_err());
    assert!(spec.parse_key("event_date=2015-01-01/hour=15/").is_err());
    assert!(spec.parse_key("hour=15/event_date=2015-01-01").is_err());
}

#[test]
fn ranges_are_inclusive_and_bounded() {
    let months = time(Transform::MonthOf);
    assert_eq!(texts(&months.range("2023-12", "p=2024-02", 3).unwrap()), ["p=2023-12", "p=2024-01", "p=2024-02"]);
    let message = months.range("2023-12", "2024-02", 2).unwrap_err().to_string();
    assert_eq!(message, "the range 2023-12 to 2024-02 has 3 partitions, expected at most 2");
    let message = months.range("2024-02", "2024-01", 9).unwrap_err().to_string();
    assert_eq!(message, "the range starts at 2024-02, after its end 2024-01");
    assert!(months.range("2024-02", "2024-13", 9).is_err());
    assert_eq!(time(Transform::DayOf).range("2024-02-28", "2024-03-01", 9).unwrap().len(), 3);
    let hours = date_and_hour().range("event_date=2024-02-28/hour=23", "event_date=2024-02-29/hour=00", 9).unwrap();
    assert_eq!(texts(&hours), ["event_date=2024-02-28/hour=23", "event_date=2024-02-29/hour=00"]);
    for spec in [time(Transform::HourOfDay), value(ValueKind::Date)] {
        assert!(spec.range("00", "01", 9).unwrap_err().to_string().starts_with("a range needs partition columns"));
    }
}

#[test]
fn a_period_comes_from_all_time_columns_together() {
    let period = |spec: &PartitionSpec, key: &str| {
        let period = spec.period(&spec.parse_key(key).unwrap())?;
        Some([period.start.to_string(), period.end.to_string()])
    };
    let expect = |a: &str, b: &str| Some([format!("{a}:00:00"), format!("{b}:00:00")]);
    assert_eq!(period(&time(Transform::MonthOf), "p=2024-12"), expect("2024-12-01 00", "2025-01-01 00"));
    let hour = "event_date=2015-01-01/hour=15";
    assert_eq!(period(&date_and_hour(), hour), expect("2015-01-01 15", "2015-01-01 16"));
    assert_eq!(period(&time(Transform::HourOfDay), "p=15"), None);
    assert_eq!(period(&value(ValueKind::Date), "p=2015-01-01"), None);
    let no_day = PartitionSpec::new(vec![
        column("m", Transform::MonthOf, ValueKind::Text, "at"),
        column("h", Transform::HourOfDay, ValueKind::Text, "at"),
    ]);
    assert_eq!(period(&no_day, "m=2015-01/h=15"), expect("2015-01-01 00", "2015-02-01 00"));
    assert!(no_day.range("m=2015-01/h=15", "m=2015-01/h=16", 9).is_err(), "these hours are no series");
    let other_source = PartitionSpec::new(vec![
        column("d", Transform::DayOf, ValueKind::Text, "at"),
        column("h", Transform::HourOfDay, ValueKind::Text, "elsewhere"),
    ]);
    assert_eq!(period(&other_source, "d=2015-01-01/h=15"), expect("2015-01-01 00", "2015-01-02 00"));
    let at = "2015-01-01T15:30:00".parse().unwrap();
    assert_eq!(other_source.time_values(at), [Some(Int(16436)), None]);
    assert_eq!(date_and_hour().time_values(at), [Some(Int(16436)), Some(Int(15))]);
    assert_eq!([other_source.time_grain(), date_and_hour().time_grain()], [Some(Grain::Day), Some(Grain::Hour)]);
}

#[test]
fn columns_of_one_source_must_agree() {
    let spec = PartitionSpec::new(vec![
        column("y", Transform::YearOf, ValueKind::Text, "at"),
        column("m", Transform::MonthOf, ValueKind::Text, "at"),
    ]);
    assert!(spec.parse_key("y=2024/m=2024-02").is_ok());
    let message = spec.parse_key("y=2023/m=2024-02").unwrap_err().to_string();
    assert_eq!(message, "y=2023/m=2024-02: y and m exclude each other");
}

#[test]
fn a_key_tells_its_values_unescaped() {
    let texts = |key: &str| PartitionKey::from_canonical(key).texts().collect::<Vec<_>>();
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(texts("date=2024-02-28/hour=23"), [pair("date", "2024-02-28"), pair("hour", "23")]);
    assert_eq!(texts("k%3A=a%2Fb%3Dc%25"), [pair("k:", "a/b=c%")]);
}
