#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use serde_json::json;

#[test]
fn a_run_is_summed_up_for_people() {
    let ended = json!({
        "id": "0199", "pipeline": "zone_hour", "state": "succeeded",
        "partitions": [
            {"partition": "m=2024-02", "outcome": "replaced", "rows": 7000, "totals": {"trips": 3, "revenue": "1.50"}},
            {"partition": "m=2024-03", "outcome": null},
        ],
        "rows": {"read": 5, "in_scope": 3, "out_of_scope": 1, "filtered": 1, "rejected": 0},
        "warnings": [{"type": "w", "detail": "look\u{1b}[2J here"}], "error": null,
    });
    insta::assert_snapshot!(run(&ended, Paint::PLAIN), @r"
    run 0199 of zone_hour: succeeded
      partition  outcome    rows  revenue  trips
      m=2024-02  replaced  7,000     1.50      3
      m=2024-03  -             -        -      -
      5 rows read: 3 in scope, 1 out of scope, 1 filtered, 0 rejected
      warning: look�[2J here
    ");
}

fn listing() -> Value {
    let entry = |month: &str, rows: u64, revenue: Value, current: bool| json!({"partition": format!("m={month}"), "rows": rows, "totals": {"revenue": revenue}, "definition_current": current});
    json!({
        "partitions": [
            entry("2024-01", 77_530, json!("79456198.67"), true),
            entry("2024-02", 7_753, json!("158912397.34"), false),
            entry("2024-03", 1, json!(null), true),
        ],
        "total": {"partitions": 3, "rows": 85_284, "totals": {"revenue": null}},
    })
}

#[test]
fn partitions_stand_in_a_table_with_their_totals() {
    insta::assert_snapshot!(partitions(&listing(), None, Paint::PLAIN).unwrap(), @r"
    partition      rows         revenue
    m=2024-01    77,530   79,456,198.67
    m=2024-02 *   7,753  158,912,397.34
    m=2024-03         1               -
    -----------------------------------
    all 3        85,284               -
    * made by an earlier definition of the pipeline
    ");
}

#[test]
fn bars_show_the_rows_or_a_measure() {
    let bars = |by| {
        let text = partitions(&listing(), by, Paint { terminal: true, ..Paint::PLAIN }).unwrap();
        let count = |line: &str| line.chars().filter(|c| *c == '█').count();
        text.lines().skip(1).take(3).map(count).collect::<Vec<_>>()
    };
    assert_eq!(bars(None), [20, 2, 0]);
    assert_eq!(bars(Some("revenue")), [10, 20, 0]);
    let error = partitions(&listing(), Some("trips"), Paint::PLAIN).unwrap_err();
    assert!(error.contains("expected one of rows, revenue"), "{error}");
}

#[test]
fn times_are_short() {
    let run = |seconds: i64| {
        let end = DateTime::from_timestamp(seconds, 250_000_000).unwrap();
        took(&json!({"started_at": "1970-01-01T00:00:00Z", "ended_at": end.to_rfc3339()}))
    };
    assert_eq!([1, 65, 3720].map(run), ["1.2 s", "1 min 05 s", "1 h 02 min"]);
    assert_eq!(took(&json!({"started_at": null, "ended_at": null})), "-");
}

#[test]
fn what_others_have_changed_since_is_told() {
    let partition = |month: &str, by: Value| json!({"partition": month, "outcome": "created", "superseded_by": by});
    let ended = json!({
        "id": "0199", "pipeline": "zone_hour", "state": "succeeded",
        "partitions": [partition("m=2024-02", json!("0200")), partition("m=2024-03", json!(null))],
    });
    insta::assert_snapshot!(run(&ended, Paint::PLAIN), @r"
    run 0199 of zone_hour: succeeded
      partition  outcome  rows  changed since by run
      m=2024-02  created     -  0200
      m=2024-03  created     -  -
    ");
}

#[test]
fn a_history_says_whose_runs_they_were_and_whether_there_is_more() {
    let change = json!({"version": 7, "committed_at": "2024-03-01T00:00:00Z", "outcome": "created", "rows": 3,
        "totals": {"trips": 3}, "run_id": "0199", "principal": "airflow"});
    let partition = json!({"pipeline": "zone_hour", "partition": "m=2024-02", "rows": 3, "history": [change],
        "next_cursor": "37"});
    insta::assert_snapshot!(history(&partition, Paint::PLAIN), @r"
    zone_hour m=2024-02: 3 rows now
      version  from                  outcome  rows  trips  run   of
            7  2024-03-01T00:00:00Z  created     3      3  0199  airflow
      there are older changes: --limit shows more
    ");
}
