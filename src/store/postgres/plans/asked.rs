//! The values with which statements are asked for their plans.

/// A value of each type, for the statements that are not in [`asked`]: the plan is the same whatever they are.
pub(super) const TYPES: [(&str, &str); 6] = [
    ("bigint", "100"),
    ("boolean", "true"),
    ("json", "'[]'"),
    ("text", "'pipeline-1'"),
    ("timestamp with time zone", "now()"),
    ("uuid", RUN),
];

/// The run of number 1.
const RUN: &str = "'018bcfe5-6be8-7000-8000-000000000001'::uuid";
const PIPELINE: &str = "'pipeline-1'::text";
const NO_TEXT: &str = "null::text";
const NO_TIME: &str = "null::timestamptz";
const ALL: &str = "null::json";
const NOW: &str = "now()::timestamptz";
const PAGE: &str = "100::bigint";
const VERSION: &str = "900000::bigint";

/// Statements by name, whose plans depend on their values, or whose types Postgres does not find. One may be there more often.
pub(super) fn asked() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut all = vec![
        ("claims.look", vec![NO_TIME, NO_TEXT, "'[]'::json"]),
        ("claims.next_run", vec![NO_TIME, NO_TEXT, "'[]'::json"]),
        ("claims.next_run", vec![NO_TIME, PIPELINE, "'[]'::json"]),
        ("add_history", vec![RUN, PIPELINE, ALL, NO_TEXT, VERSION, NOW]),
        ("confirm_entries", vec![RUN, PIPELINE, ALL, NO_TEXT, NOW]),
        ("contents", vec![PIPELINE, NO_TEXT, NO_TEXT]),
        ("contents", vec![PIPELINE, "'at=1'::text", "'at=2'::text"]),
        ("contents_as_of", vec![PIPELINE, NO_TEXT, NO_TEXT, VERSION]),
        ("delete_entries", vec![RUN, PIPELINE, ALL]),
        ("drawn_numbers", vec!["1::bigint"]),
        ("history", vec![PIPELINE, "'at=1'::text", "null::bigint", PAGE]),
        ("insert_decided", vec![RUN, "'[]'::json"]),
        ("insert_labels", vec![RUN, "'{}'::json"]),
        ("insert_scope", vec![RUN, "'[]'::json"]),
        ("overlapping_scope", vec![PIPELINE, ALL, PAGE, NOW]),
        ("overlapping_scope", vec![PIPELINE, "'[\"at=1\"]'::json", PAGE, NOW]),
        ("page", vec![PIPELINE, NO_TEXT, NO_TEXT, NO_TEXT, PAGE]),
        ("page", vec![PIPELINE, "'at=1'::text", "'at=2'::text", "'at=11'::text", PAGE]),
        ("page_as_of", vec![PIPELINE, NO_TEXT, NO_TEXT, NO_TEXT, PAGE, VERSION]),
        ("put_entries", vec![RUN, PIPELINE, ALL, NO_TEXT, NOW]),
        ("sums.changes", vec![RUN, PIPELINE, ALL, NO_TEXT]),
    ];
    all.extend(listings());
    all
}

/// The listings of runs: each narrowed by what it is for, from the newest on and behind a run.
fn listings() -> Vec<(&'static str, Vec<&'static str>)> {
    let pipeline = (1, PIPELINE);
    let state = |state| (2, state);
    let behind = (5, RUN);
    let label = (8, "'[[\"team\", \"team-1\"]]'::json");
    vec![
        ("list", narrowed(&[])),
        ("list", narrowed(&[behind])),
        ("list", narrowed(&[(3, NOW)])),
        ("list", narrowed(&[(4, NOW)])),
        ("list_in_state", narrowed(&[state("'queued'::text")])),
        ("list_in_state", narrowed(&[state("'succeeded'::text"), behind])),
        ("list_of_key", narrowed(&[(9, "'principal-1'::text"), (10, "'key-1'::text")])),
        ("list_of_label", narrowed(&[label])),
        ("list_of_label", narrowed(&[label, pipeline, behind])),
        ("list_of_partition", narrowed(&[(7, "'at=1'::text")])),
        ("list_of_pipeline", narrowed(&[pipeline])),
        ("list_of_principal", narrowed(&[(9, "'principal-1'::text")])),
        ("list_of_pipeline", narrowed(&[pipeline, state("'failed'::text"), behind])),
    ]
}

/// The ten values of a listing, of which these are given.
fn narrowed(by: &[(usize, &'static str)]) -> Vec<&'static str> {
    let mut values =
        vec![NO_TEXT, NO_TEXT, NO_TIME, NO_TIME, "null::uuid", PAGE, NO_TEXT, "'[]'::json", NO_TEXT, NO_TEXT];
    for (number, value) in by {
        values[number - 1] = value;
    }
    values
}
