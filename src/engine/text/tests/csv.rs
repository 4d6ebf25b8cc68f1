//! The rules of csv files.

use super::*;

const AB: &str = "a = \"int32\"\nb = \"string\"";

#[track_caller]
fn rows(source: &Source, text: &str) -> Vec<String> {
    shown(source, "in/x.csv", text.as_bytes()).unwrap()
}

#[test]
fn a_header_is_trimmed_and_blank_lines_are_no_rows() {
    let source = csv_of("", AB);
    let expected = ["3: 1|x", "5: 2|y z"];
    assert_eq!(rows(&source, "a, b\n\r\n1,x\n\n2,y z"), expected);
    assert_eq!(rows(&source, "\u{feff}\"a \",b \r\n\r\n1,x\r\n\r\n2,y z\r\n"), expected);
    assert_eq!(rows(&source, "\n\nb,c,a\nx,?,1\n"), ["4: 1|x"]);
    assert_eq!(rows(&source, "a,b\n"), [""; 0], "a header alone is no rows");
    assert_eq!(rows(&source, "a,b"), [""; 0]);
}

#[test]
fn the_first_name_that_the_file_has_counts() {
    let source =
        csv_of("", "a = { type = \"int32\", from = [\"A\", \"alpha\"] }\nb = { type = \"string\", from = \"B\" }");
    assert_eq!(rows(&source, "B,A\nx,1"), ["2: 1|x"]);
    assert_eq!(rows(&source, "alpha,A,B\n2,1,x"), ["2: 1|x"]);
    assert_eq!(rows(&source, "alpha,B\n2,x"), ["2: 2|x"]);
    assert_eq!(
        error(&source, "in/x.csv", b"\na,b\n1,x"),
        "in/x.csv: line 2: column a: expected int32, not found as A or alpha; the header has \"a\", \"b\""
    );
    assert_eq!(
        error(&source, "in/x.csv", b"A;B\n1;x"),
        "in/x.csv: line 1: column a: expected int32, not found as A or alpha; the header has \"A;B\""
    );
    let twice = error(&source, "in/x.csv", b"A,A,B\n");
    assert_eq!(twice, "in/x.csv: line 1: column a: expected int32, the header has A 2 times, expected it once");
    let many = (0..200).map(|n| format!("c{n}")).collect::<Vec<_>>().join(",");
    assert!(error(&source, "in/x.csv", many.as_bytes()).ends_with("\"c49\" and 150 more"));
}

#[test]
fn a_default_is_for_a_missing_column_and_not_for_nulls() {
    let source = csv_of("", "a = { type = \"int32\", default = 7 }\nb = { type = \"string\", optional = true }");
    assert_eq!(rows(&source, "c\n1\n"), ["2: 7|-"]);
    assert_eq!(rows(&source, "a,b\n,\n1,x"), ["2: -|-", "3: 1|x"]);
}

#[test]
fn a_record_has_as_many_fields_as_the_header() {
    let source = csv_of("", AB);
    assert_eq!(
        rows(&source, "a,b\n1,x,\n1\n2,y"),
        ["2: -|- !has 3 fields, the header has 2", "3: -|- !has 1 field, the header has 2", "4: 2|y"]
    );
}

#[test]
fn an_empty_tail_is_allowed_where_it_is_said() {
    let source = csv_of("empty_tail = true", AB);
    assert_eq!(
        rows(&source, "a,b\n1,x,,\n2,y,,\n3,z\n4,v,w,,\n5,u,,t\n"),
        [
            "2: 1|x",
            "3: 2|y",
            "4: -|- !has 2 fields, the first record has 4",
            "5: -|- !has 5 fields, the first record has 4",
            "6: -|- !has a value beyond the 2 fields of the header"
        ]
    );
    assert_eq!(
        rows(&source, "a,b\n1,x,w\n1\n2,y,\n3,z\n"),
        [
            "2: -|- !has 3 fields, the header has 2",
            "3: -|- !has 1 field, the header has 2",
            "4: 2|y",
            "5: -|- !has 2 fields, the first record has 3"
        ],
        "a malformed record does not say how many there are"
    );
}

#[test]
fn quotes_hold_delimiters_line_ends_and_doubled_quotes() {
    let source = csv_of("", AB);
    assert_eq!(
        rows(&source, "a,b\n1,\"x,y\"\n\"2\",\"say \"\"hi\"\"\"\n3,\"two\r\n\r\nlines\"\n4,\"\"\"\"\n5,6\"\n"),
        ["2: 1|x,y", "3: 2|say \"hi\"", "4: 3|two\r\n\r\nlines", "7: 4|\"", "8: 5|6\""]
    );
    assert_eq!(rows(&source, "\"a\",\"b\"\r\n\"1\",\"x\"\r\n"), ["2: 1|x"]);
    let apostrophes = csv_of("quote = \"'\"", AB);
    assert_eq!(rows(&apostrophes, "a,b\n1,'x,''y'\n2,\"z\"\n"), ["2: 1|x,'y", "3: 2|\"z\""]);
    let none = csv_of("quote = \"\"", AB);
    assert_eq!(rows(&none, "a,b\n1,\"x\n"), ["2: 1|\"x"]);
    let tabs = csv_of("delimiter = \"\\t\"", AB);
    assert_eq!(rows(&tabs, "a\tb\n1\tx,y\n"), ["2: 1|x,y"]);
}

#[test]
fn a_quote_that_does_not_pair_costs_its_line_alone() {
    let source = csv_of("", AB);
    assert_eq!(
        rows(&source, "a,b\n1,\"x\n2,y\n3,z"),
        ["2: -|- !has a quote in field 2 that is not closed", "3: 2|y", "4: 3|z"]
    );
    assert_eq!(
        rows(&source, "a,b\n1,\"x\n2,\"y\"\n3,z"),
        ["2: -|- !has text after the closing quote of field 2", "3: 2|y", "4: 3|z"]
    );
    assert_eq!(rows(&source, "a,b\n1,\"x\"y\n2,y"), ["2: -|- !has text after the closing quote of field 2", "3: 2|y"]);
    assert_eq!(
        error(&source, "in/x.csv", b"\"a,b\n1,x"),
        "in/x.csv: line 1: the header has a quote in field 1 that is not closed"
    );
}

#[test]
fn texts_that_mean_null_do_so_quoted_or_not() {
    let source = csv_of("null = [\"\", \"NA\"]", AB);
    assert_eq!(rows(&source, "a,b\n,\n\"\",\"\"\nNA,NA\n 1 , NA\n"), ["2: -|-", "3: -|-", "4: -|-", "5: 1| NA"]);
    let nothing = csv_of("null = []", AB);
    assert_eq!(rows(&nothing, "a,b\n,\n"), ["2: -| !0 \"\" does not fit, expected int32"]);
    assert_eq!(rows(&csv_of("", AB), "a,b\n  ,N/A\n"), ["2: -|N/A"], "blanks are no number");
}

#[test]
fn bytes_that_are_no_text_cost_their_line() {
    let source = csv_of("", AB);
    let found = shown(&source, "in/x.csv", b"a,b\n1,\xe9t\xe9\n2,a\0b\n3,\xc3\xa9\n").unwrap();
    assert_eq!(
        found,
        ["2: -|- !is not UTF-8 from byte 3 on", "3: -|- !has a NUL byte, the 4th of its bytes", "4: 3|é"]
    );
    assert_eq!(
        error(&source, "in/x.csv", b"\xff\xfea\0\n"),
        "in/x.csv: line 1: the header has a NUL byte, the 4th of its bytes"
    );
}

#[test]
fn values_have_the_types_of_the_contract() {
    let all = "b = \"bool\"\ni = \"int8\"\nu = \"uint64\"\nd = \"decimal(5,2)\"\nw = \"decimal(38,0)\"\nf = \"float64\"\n\
               g = \"float32\"\nday = \"date\"\nat = \"datetime\"\nz = \"datetime(Europe/Berlin)\"\ns = \"string\"";
    let source = csv_of("", all);
    let header = "b,i,u,d,w,f,g,day,at,z,s\n";
    let line =
        "t,-5,18446744073709551615,9.405,1e37,0.1,0.1,1970-01-02,1970-01-01T00:00:01.5,1970-01-01 01:00:00+01:00, x\n";
    let expected =
        ["2: true|-5|18446744073709551615|941|10000000000000000000000000000000000000|0.1|0.1|1|1500000|0| x"];
    assert_eq!(rows(&source, &format!("{header}{line}")), expected);
    for (column, (value, reason)) in [
        ("yes", "\"yes\" does not fit, expected bool"),
        ("128", "\"128\" is out of range, expected int8"),
        ("-1", "\"-1\" is out of range, expected uint64"),
        ("1000", "\"1000\" is out of range, expected decimal(5,2)"),
        ("1.2.3", "\"1.2.3\" does not fit, expected decimal(38,0)"),
        ("x", "\"x\" does not fit, expected float64"),
        ("1e99", "\"1e99\" is out of range, expected float32"),
        ("01/02/1970", "\"01/02/1970\" does not fit, expected date"),
        (
            "1970-01-01T00:00Z",
            "\"1970-01-01T00:00Z\" has an offset, but the type is wall-clock time, expected datetime",
        ),
        (
            "1970-01-01T00:00",
            "\"1970-01-01T00:00\" has no offset, but the type is an instant, expected datetime(Europe/Berlin)",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let mut fields = [""; 11];
        fields[column] = value;
        let found = rows(&source, &format!("{header}{}\n", fields.join(",")));
        assert_eq!(found, [format!("2: -|-|-|-|-|-|-|-|-|-|- !{column} {reason}")]);
    }
}

#[test]
fn the_first_value_that_does_not_fit_is_told_and_the_others_stay() {
    let source = csv_of("", "a = \"int32\"\nb = \"string\"\nc = \"int32\"");
    let found = rows(&source, "a,b,c\nx,y,z\n1,y,z\n");
    assert_eq!(
        found,
        ["2: -|y|- !0 \"x\" does not fit, expected int32", "3: 1|y|- !2 \"z\" does not fit, expected int32"]
    );
    let long = format!("a,b,c\n{},y,1\n", "9".repeat(500));
    let told = &rows(&source, &long)[0];
    assert!(told.contains(&format!("\"{}\"… is out of range", "9".repeat(60))), "{told}");
}

#[test]
fn without_a_header_columns_have_positions() {
    let source =
        csv_of("header = false", "a = { type = \"int32\", position = 3 }\nb = { type = \"string\", position = 1 }");
    assert_eq!(
        rows(&source, "x,?,1\n\ny,?,2\nz,3\n"),
        ["1: 1|x", "3: 2|y", "4: -|- !has 2 fields, the first record has 3"]
    );
    assert_eq!(
        error(&source, "in/x.csv", b"x,1\n"),
        "in/x.csv: line 1: column a: expected int32 in field 3, the record has 2 fields"
    );
    let spare = "a = { type = \"int32\", position = 3, default = 7 }\nb = { type = \"string\", position = 1 }";
    assert_eq!(rows(&csv_of("header = false", spare), "x,1\ny,2\n"), ["1: 7|x", "2: 7|y"]);
}

#[test]
fn a_format_is_followed() {
    let source = csv_of("", "a = { type = \"datetime\", format = \"%d/%m/%Y %H:%M\" }\nb = \"string\"");
    assert_eq!(
        rows(&source, "a,b\n02/01/1970 00:01,x\n1970-01-01 00:00,y\n"),
        ["2: 86460000000|x", "3: -|y !0 \"1970-01-01 00:00\" does not fit, expected datetime"]
    );
}

#[test]
fn folders_are_the_same_for_all_rows_malformed_ones_too() {
    let source = csv_of("", "k = { type = \"int32\", folder = \"trip_month\" }\nb = \"string\"\nc = \"string\"");
    let found = shown(&source, "in/trip_month=09/x.csv", b"b,c\nx,y\nz\n").unwrap();
    assert_eq!(found, ["2: 9|x", "3: 9|- !has 1 field, the header has 2"]);
    assert_eq!(
        error(&source, "in/trip_month=x/x.csv", b"b,c\n"),
        "in/trip_month=x/x.csv: column k: the folder trip_month=x does not fit, expected int32"
    );
}
