//! What the server answers, for people.

use super::screen::Paint;
use super::state;
use super::table::{Column, Table, bar, thousands};
use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Stands where there is nothing.
const NOTHING: &str = "-";

/// A run: its state, a line for each partition, the books, and what to look at.
pub(super) fn run(run: &Value, paint: Paint) -> String {
    let now = paint.word(state(run), state(run).to_owned());
    let mut out = format!("run {} of {}: {now}\n", plain(&run["id"]), plain(&run["pipeline"]));
    if waits_for_its_time(run) {
        let _ = writeln!(out, "  not before {}", moment(&run["not_before"]));
    }
    let partitions = list(&run["partitions"]);
    if !partitions.is_empty() {
        let measures = measures(partitions);
        let mut columns = vec![Column::left("partition"), Column::left("outcome"), Column::right("rows")];
        columns.extend(measures.iter().map(|name| Column::right(name)));
        let superseded = partitions.iter().any(|p| p["superseded_by"].is_string());
        columns.extend(superseded.then(|| Column::left("changed since by run")));
        let mut table = Table::new(columns);
        for p in partitions {
            let mut cells = vec![plain(&p["partition"]), plain(&p["outcome"]), number(&p["rows"])];
            cells.extend(measures.iter().map(|name| number(&p["totals"][name])));
            cells.extend(superseded.then(|| plain(&p["superseded_by"])));
            table.row(cells);
        }
        out += &table.render(2, paint);
    }
    let rows = &run["rows"];
    if rows.is_object() {
        let [read, inside, outside, filtered, rejected] =
            ["read", "in_scope", "out_of_scope", "filtered", "rejected"].map(|name| number(&rows[name]));
        let _ = writeln!(
            out,
            "  {read} rows read: {inside} in scope, {outside} out of scope, {filtered} filtered, {rejected} rejected"
        );
    }
    if run["quarantine"].is_object() {
        let kept = &run["quarantine"];
        let (rows, of, path) = (number(&kept["rows"]), number(&kept["of"]), plain(&kept["path"]));
        let _ = writeln!(out, "  {rows} of {of} rows that went into no partition are in {path} of the warehouse");
    }
    for warning in list(&run["warnings"]) {
        let _ = writeln!(out, "  warning: {}", plain(&warning["detail"]));
    }
    if run["error"].is_object() {
        let _ = writeln!(out, "  error: {}: {}", plain(&run["error"]["title"]), plain(&run["error"]["detail"]));
    }
    out
}

/// One line that says what a run is doing.
pub(super) fn progress(run: &Value) -> String {
    let count = |name: &str| thousands(&run["progress"][name].as_u64().unwrap_or(0).to_string());
    let mut line = stage(run);
    match state(run) {
        "running" => {
            let _ = write!(
                line,
                ", {} of {} files and {} rows read",
                count("files_read"),
                count("files"),
                count("rows_read")
            );
            let _ = write!(line, ", {} of {} partitions staged", count("partitions_staged"), count("partitions"));
        }
        "committing" => {
            let _ = write!(line, ", {} of {} partitions published", count("partitions_published"), count("partitions"));
        }
        _ => {}
    }
    if let Some(end) = time(&run["progress"]["estimated_end"]).filter(|_| !super::has_ended(run)) {
        let _ = write!(line, ", {} left for that", lasting((end - Utc::now()).num_milliseconds()));
    }
    if waits_for_its_time(run) {
        let _ = write!(line, ", not before {}", moment(&run["not_before"]));
    }
    if let Some(for_whom) = run["progress"]["waiting_for"].as_str() {
        let _ = write!(line, ", waiting for {for_whom}");
    }
    if run["error"].is_object() {
        let _ = write!(line, " (the last attempt failed: {})", plain(&run["error"]["detail"]));
    }
    line
}

fn waits_for_its_time(run: &Value) -> bool {
    state(run) == "queued" && time(&run["not_before"]).is_some_and(|time| time > Utc::now())
}

/// The state, and what is done in it.
pub(super) fn stage(run: &Value) -> String {
    match run["progress"]["stage"].as_str() {
        Some(stage) if state(run) != "queued" => format!("{}: {stage}", state(run)),
        _ => state(run).to_owned(),
    }
}

/// A page of runs.
pub(super) fn runs(page: &Value, paint: Paint) -> String {
    let runs = list(&page["runs"]);
    if runs.is_empty() {
        return "no runs\n".to_owned();
    }
    let mut table = Table::new(vec![
        Column::left("run"),
        Column::left("pipeline"),
        Column::left("state"),
        Column::right("partitions"),
        Column::right("attempts"),
        Column::left("accepted"),
        Column::right("took"),
        Column::left("error"),
    ]);
    for run in runs {
        let error = if run["error"].is_object() { plain(&run["error"]["title"]) } else { String::new() };
        table.row(vec![
            plain(&run["id"]),
            plain(&run["pipeline"]),
            plain(&run["state"]),
            number(&run["partitions"]),
            number(&run["attempts"]),
            moment(&run["created_at"]),
            took(run),
            error,
        ]);
    }
    table.render(0, paint)
}

/// A table's partitions with a bar for each where somebody looks, and the totals; `by` is the measure of the bars.
pub(super) fn partitions(listing: &Value, by: Option<&str>, paint: Paint) -> Result<String, String> {
    let entries = list(&listing["partitions"]);
    if entries.is_empty() {
        return Ok("no partitions\n".to_owned());
    }
    let measures = measures(entries);
    if let Some(by) = by.filter(|by| *by != "rows" && !measures.contains(*by)) {
        let known: Vec<&str> = ["rows"].into_iter().chain(measures.iter().map(String::as_str)).collect();
        return Err(format!("--by {by}: the table has no such measure, expected one of {}", known.join(", ")));
    }
    let amount = |entry: &Value| match by {
        None | Some("rows") => amount(&entry["rows"]),
        Some(measure) => amount(&entry["totals"][measure]),
    };
    let most = entries.iter().map(amount).fold(0.0, f64::max);
    let mut columns = vec![Column::left("partition"), Column::right("rows")];
    columns.extend(measures.iter().map(|name| Column::right(name)));
    if paint.terminal {
        columns.push(Column::left(""));
    }
    let mut table = Table::new(columns);
    let line = |name: String, row: &Value, bar: String| {
        let mut cells = vec![name, number(&row["rows"])];
        cells.extend(measures.iter().map(|measure| number(&row["totals"][measure])));
        cells.push(bar);
        cells
    };
    let is_old = |entry: &&Value| entry["definition_current"] == false;
    for entry in entries {
        let mark = if is_old(&entry) { " *" } else { "" };
        let share = if most > 0.0 { amount(entry) / most } else { 0.0 };
        table.row(line(plain(&entry["partition"]) + mark, entry, bar(share)));
    }
    table.rule();
    let total = &listing["total"];
    table.row(line(format!("all {}", number(&total["partitions"])), total, String::new()));
    let mut out = table.render(0, paint);
    if entries.iter().any(|entry| is_old(&entry)) {
        out += "* made by an earlier definition of the pipeline\n";
    }
    Ok(out)
}

/// One partition: what it is now, and what it was.
pub(super) fn history(partition: &Value, paint: Paint) -> String {
    let changes = list(&partition["history"]);
    let rows = number(&partition["rows"]);
    let mut out = format!("{} {}: {rows} rows now\n", plain(&partition["pipeline"]), plain(&partition["partition"]));
    let measures = measures(changes);
    let mut columns =
        vec![Column::right("version"), Column::left("from"), Column::left("outcome"), Column::right("rows")];
    columns.extend(measures.iter().map(|name| Column::right(name)));
    columns.extend([Column::left("run"), Column::left("of")]);
    let mut table = Table::new(columns);
    for change in changes {
        let mut cells = vec![
            number(&change["version"]),
            moment(&change["committed_at"]),
            plain(&change["outcome"]),
            number(&change["rows"]),
        ];
        cells.extend(measures.iter().map(|name| number(&change["totals"][name])));
        cells.extend([plain(&change["run_id"]), plain(&change["principal"])]);
        table.row(cells);
    }
    out += &table.render(2, paint);
    if partition["next_cursor"].is_string() {
        out += "  there are older changes: --limit shows more\n";
    }
    if partition["confirmed_by"].is_string() {
        let (by, at) = (plain(&partition["confirmed_by"]), moment(&partition["confirmed_at"]));
        let _ = writeln!(out, "  found unchanged by run {by} at {at}");
    }
    out
}

/// The pipelines of a server.
pub(super) fn pipelines(answer: &Value, paint: Paint) -> String {
    let mut table = Table::new(vec![Column::left("pipeline"), Column::left("makes")]);
    for pipeline in list(&answer["pipelines"]) {
        table.row(vec![plain(&pipeline["name"]), plain(&pipeline["description"])]);
    }
    table.render(0, paint)
}

/// A text as it may be shown; what could command the terminal is not.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::Null => NOTHING.to_owned(),
        Value::String(text) => text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect(),
        other => other.to_string(),
    }
}

fn number(value: &Value) -> String {
    thousands(&plain(value))
}

/// For the length of a bar alone, which need not be exact.
fn amount(value: &Value) -> f64 {
    value.as_f64().or_else(|| value.as_str()?.parse().ok()).unwrap_or(0.0)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[][..], Vec::as_slice)
}

/// The measures of any of these.
fn measures(of: &[Value]) -> BTreeSet<String> {
    let totals = of.iter().filter_map(|one| one["totals"].as_object());
    totals.flat_map(|totals| totals.keys().cloned()).collect()
}

fn time(value: &Value) -> Option<DateTime<Utc>> {
    DateTime::parse_from_rfc3339(value.as_str()?).ok().map(|time| time.with_timezone(&Utc))
}

fn moment(value: &Value) -> String {
    time(value).map_or_else(|| NOTHING.to_owned(), |time| time.to_rfc3339_opts(SecondsFormat::Secs, true))
}

/// How long a run took from its first claim to its end.
fn took(run: &Value) -> String {
    let (Some(from), Some(to)) = (time(&run["started_at"]), time(&run["ended_at"])) else {
        return NOTHING.to_owned();
    };
    lasting((to - from).num_milliseconds())
}

/// A time for people.
fn lasting(millis: i64) -> String {
    let millis = millis.max(0);
    match millis / 1000 {
        0..60 => format!("{}.{} s", millis / 1000, millis % 1000 / 100),
        seconds @ 60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        seconds => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
#[path = "show_tests.rs"]
mod tests;
