//! The rules of ndjson files.

use super::*;

#[track_caller]
fn rows(columns: &str, text: &str) -> Vec<String> {
    shown(&source("ndjson", "", columns), "in/x.json", text.as_bytes()).unwrap()
}

const ID_REPO: &str = "id = \"int64\"\nrepo = { type = \"string\", from = \"repo.name\" }";

#[test]
fn only_the_fields_of_the_contract_are_parsed() {
    let text = "\u{feff}{\"payload\":{\"a\":[1,{\"b\":1e999}]},\"id\":1,\"repo\":{\"id\":5,\"name\":\"a/b\"}}\r\n\
                \n  \n{\"repo\":{\"name\":\"c\\u00e9\\n\",\"x\":{\"name\":\"no\"}},\"id\":2,\"payload\":\"\\ud800\"}";
    assert_eq!(rows(ID_REPO, text), ["1: 1|a/b", "4: 2|cé\n"]);
}

#[test]
fn what_a_line_lacks_is_null_or_its_default() {
    let text = "{\"id\":1}\n{\"id\":2,\"repo\":null}\n{\"id\":3,\"repo\":\"x\"}\n{\"id\":4,\"repo\":[{\"name\":\"x\"}]}\n\
                {\"id\":null,\"repo\":{\"name\":null}}\n{\"id\":6,\"repo\":{\"name\":\"y\"}}\n";
    assert_eq!(rows(ID_REPO, text), ["1: 1|-", "2: 2|-", "3: 3|-", "4: 4|-", "5: -|-", "6: 6|y"]);
    let with_default = "id = \"int64\"\nrepo = { type = \"string\", from = \"repo.name\", default = \"none\" }";
    let expected = ["1: 1|none", "2: 2|none", "3: 3|none", "4: 4|none", "5: -|-", "6: 6|y"];
    assert_eq!(rows(with_default, text), expected);
}

#[test]
fn a_column_that_no_line_has_breaks_the_contract() {
    let misspelt = "id = \"int64\"\nrepo = { type = \"string\", from = [\"repo.nme\", \"r\"] }";
    let source = |columns| source("ndjson", "", columns);
    assert_eq!(
        error(&source(misspelt), "in/x.json", b"{\"id\":1,\"repo\":{\"name\":\"x\"}}"),
        "in/x.json: column repo: expected string, no line has repo.nme or r"
    );
    let optional = "id = \"int64\"\nrepo = { type = \"string\", from = \"r\", optional = true }";
    assert_eq!(rows(optional, "{\"id\":1}"), ["1: 1|-"]);
    assert_eq!(rows(ID_REPO, "x\n"), ["1: -|- !is no JSON object: \"x\""], "no line says what the file has");
}

#[test]
fn the_first_name_that_the_line_has_counts() {
    let columns = "id = \"int64\"\nactor = { type = \"string\", from = [\"actor.login\", \"actor\"] }";
    assert_eq!(
        rows(
            columns,
            "{\"id\":1,\"actor\":\"old\"}\n{\"actor\":{\"login\":\"new\"},\"id\":2}\n{\"actor\":{\"x\":1}}\n"
        ),
        ["1: 1|old", "2: 2|new", "3: -|- !1 an object, expected string"]
    );
    let both = "id = \"int64\"\nb = { type = \"int64\", from = \"id\" }";
    assert_eq!(rows(both, "{\"id\":1}"), ["1: 1|1"], "two columns may be of one field");
}

#[test]
fn of_a_key_that_comes_twice_the_last_one_counts() {
    let text = "{\"id\":1,\"id\":2,\"repo\":{\"name\":\"x\"},\"repo\":{\"name\":\"y\"}}\n\
                {\"id\":\"x\",\"id\":3,\"repo\":{\"name\":\"x\"},\"repo\":{\"nom\":\"y\"}}\n";
    assert_eq!(rows(ID_REPO, text), ["1: 2|y", "2: 3|-"]);
}

#[test]
fn lines_that_are_no_json_objects_are_malformed() {
    let text = "[1]\n\"x\"\n{\"id\":1\n{\"id\":1}}\n{'id':1}\n{\"id\":1,}\nnull\n{\"id\":1,\"x\":\"\t\"}\n{\"id\":01}\n{\"id\":5,\"repo\":{\"name\":\"y\"}}";
    let found = rows(ID_REPO, text);
    assert_eq!(
        found,
        [
            "1: -|- !is no JSON object: \"[1]\"",
            "2: -|- !is no JSON object: \"\\\"x\\\"\"",
            "3: -|- !is no JSON object: EOF while parsing an object at its byte 7",
            "4: -|- !is no JSON object: trailing characters at its byte 9",
            "5: -|- !is no JSON object: key must be a string at its byte 2",
            "6: -|- !is no JSON object: trailing comma at its byte 9",
            "7: -|- !is no JSON object: \"null\"",
            "8: -|- !is no JSON object: control character (\\u0000-\\u001F) found while parsing a string at its byte 13",
            "9: -|- !is no JSON object: invalid number at its byte 8",
            "10: 5|y"
        ]
    );
    let source = source("ndjson", "", ID_REPO);
    let found = shown(&source, "x", b"{\"id\":1,\"repo\":{\"name\":\"\xff\"}}\n{\"id\":\0}\n").unwrap();
    assert_eq!(found, ["1: -|- !is not UTF-8 from byte 25 on", "2: -|- !has a NUL byte, the 7th of its bytes"]);
    let deep = format!("{{\"id\":1,\"x\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(rows("id = \"int64\"", &deep), ["1: 1"], "what is skipped may be as deep as it likes");
}

#[test]
fn numbers_are_exact_and_json_says_what_is_one() {
    let columns =
        "d = \"decimal(38,2)\"\ni = \"int64\"\nf = \"float64\"\nb = \"bool\"\ns = \"string\"\nat = \"datetime(UTC)\"";
    let line = |d, i, f, b, s, at| format!("{{\"d\":{d},\"i\":{i},\"f\":{f},\"b\":{b},\"s\":{s},\"at\":{at}}}\n");
    let good = line("123456789012345678901234567890.125", "5.0", "1e2", "true", "\"\"", "\"1970-01-01T00:00:01Z\"");
    assert_eq!(rows(columns, &good), ["1: 12345678901234567890123456789013|5|100|true||1000000"]);
    let n = "null";
    for (line, fault) in [
        (line("\"5\"", n, n, n, n, n), "0 \"5\" is a text, expected decimal(38,2)"),
        (line("true", n, n, n, n, n), "0 true, expected decimal(38,2)"),
        (line(n, "9223372036854775808", n, n, n, n), "1 \"9223372036854775808\" is out of range, expected int64"),
        (line(n, "1.5", n, n, n, n), "1 \"1.5\" is not whole, expected int64"),
        (line(n, n, "1e999", n, n, n), "2 \"1e999\" is out of range, expected float64"),
        (line(n, n, "{}", n, n, n), "2 an object, expected float64"),
        (line(n, n, n, "1", n, n), "3 1, expected bool"),
        (line(n, n, n, "\"true\"", n, n), "3 \"true\" is a text, expected bool"),
        (line(n, n, n, n, "5", n), "4 5, expected string"),
        (line(n, n, n, n, "[\"x\"]", n), "4 a list, expected string"),
        (line(n, n, n, n, "\"\\ud800\"", n), "4 \"\\ud800\" has an escape that is no character, expected string"),
        (line(n, n, n, n, n, "5"), "5 5, expected datetime(UTC)"),
        (
            line(n, n, n, n, n, "\"1970-01-01\""),
            "5 \"1970-01-01\" has no offset, but the type is an instant, expected datetime(UTC)",
        ),
    ] {
        assert_eq!(rows(columns, &(good.clone() + &line))[1], format!("2: -|-|-|-|-|- !{fault}"));
    }
}
