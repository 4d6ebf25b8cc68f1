#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;

fn part(rows: u64, measures: &[(&str, Fold, Option<Scalar>)]) -> Part {
    let measured = |(name, fold, value): &(&str, Fold, Option<Scalar>)| Measured {
        name: (*name).to_owned(),
        fold: *fold,
        value: value.clone(),
    };
    Part { rows, totals: Totals(measures.iter().map(measured).collect()) }
}

fn sum(parts: &[&Part]) -> TableSum {
    parts.iter().fold(TableSum::default(), |sum, part| sum.with(part).unwrap())
}

fn int(n: i128) -> Option<Scalar> {
    Some(Scalar::Int(n))
}

fn decimal(unscaled: i128, scale: u8) -> Option<Scalar> {
    Some(Scalar::Decimal { unscaled, scale })
}

fn one(fold: Fold, value: Option<Scalar>) -> Part {
    part(1, &[("x", fold, value)])
}

fn value(sum: &TableSum) -> Option<Scalar> {
    sum.totals().0[0].value.clone()
}

#[test]
fn decimals_of_different_scales_add_exactly() {
    let (a, b, whole) = (one(Fold::Add, decimal(110, 2)), one(Fold::Add, decimal(5, 3)), one(Fold::Add, int(-2)));
    assert_eq!(value(&sum(&[&a, &b, &whole])), decimal(-895, 3));
    assert_eq!(value(&sum(&[&a, &b, &whole]).without(&b).unwrap()), decimal(-90, 2));
    assert_eq!(value(&sum(&[&whole, &whole])), int(-4));
}

#[test]
fn a_sum_that_does_not_fit_has_no_total_until_it_fits_again() {
    let (most, one_more, least) =
        (one(Fold::Add, int(i128::MAX)), one(Fold::Add, int(1)), one(Fold::Add, int(i128::MIN)));
    assert_eq!(value(&sum(&[&most, &one_more])), None);
    assert_eq!(value(&sum(&[&most, &one_more, &one_more])), None, "not what came after it");
    assert_eq!(value(&sum(&[&most, &one_more, &least])), int(0));
    assert_eq!(value(&sum(&[&most, &one_more]).without(&one_more).unwrap()), int(i128::MAX));
    assert_eq!(value(&sum(&[&least])), int(i128::MIN));
}

#[test]
fn a_null_leaves_the_rest_as_it_is() {
    let (null, two) = (one(Fold::Add, None), one(Fold::Add, int(2)));
    assert_eq!(value(&sum(&[&null, &two, &null])), int(2));
    assert_eq!(value(&sum(&[&null, &two]).without(&two).unwrap()), None);
}

#[test]
fn a_measure_that_one_partition_lacks_or_folds_otherwise_has_no_total() {
    let (a, b) = (part(1, &[("x", Fold::Add, int(1))]), part(1, &[("y", Fold::Add, int(2)), ("x", Fold::Max, int(3))]));
    let both = sum(&[&a, &b]).totals();
    assert_eq!(serde_json::to_string(&both.on_the_wire()).unwrap(), r#"{"x":null,"y":null}"#);
    let left = sum(&[&a, &b]).without(&a).unwrap().totals();
    assert_eq!(serde_json::to_string(&left.on_the_wire()).unwrap(), r#"{"y":2,"x":3}"#, "in its own order");
}

#[test]
fn the_least_and_the_greatest_are_looked_for_anew_where_they_go() {
    let parts = [3, 1, 2].map(|n| one(Fold::Min, int(n)));
    let [three, one_, two] = &parts;
    let all = sum(&[three, one_, two]);
    assert_eq!(value(&all), int(1));
    assert_eq!(value(&all.clone().without(two).unwrap()), int(1));
    assert_eq!(all.without(one_), None);
    let mixed = sum(&[three, &one(Fold::Min, Some(Scalar::Bool(true)))]);
    assert_eq!(value(&mixed), None);
    assert_eq!(mixed.without(three), None);
}

#[test]
fn what_was_never_put_in_cannot_be_taken_out() {
    let (a, other) = (one(Fold::Add, int(1)), part(1, &[("y", Fold::Add, int(1))]));
    assert_eq!(sum(&[]).without(&a), None);
    assert_eq!(sum(&[&a]).without(&other), None);
    assert_eq!(sum(&[&a]).without(&part(2, &[("x", Fold::Add, int(1))])), None);
}

#[test]
fn what_is_stored_comes_back() {
    let all = sum(&[&one(Fold::Add, decimal(-7, 2)), &one(Fold::Add, int(i128::MIN)), &one(Fold::Max, int(1))]);
    assert_eq!(serde_json::from_str::<TableSum>(&serde_json::to_string(&all).unwrap()).unwrap(), all);
}
