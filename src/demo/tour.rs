//! The five steps of the tour, each with what it shows and the checks that it does.

use super::orchestrator::{Listing, Orchestrator, Rows, Run};
use super::screen::Screen;
use crate::client::thousands;
use crate::sample::{Contents, MonthTotals};
use anyhow::{Context, bail, ensure};
use reqwest::StatusCode;
use serde_json::{Value, json};
use std::time::Instant;

const TABLE: &str = "zone_hour";
const TABLE_BY_FILE: &str = "zone_hour_by_file";
const FEBRUARY: &str = "pickup_month=2024-02";

/// The keys are what an orchestrator would send: what is scheduled, and for when.
const QUARTER_KEY: &str = "zone_hour/2024-Q1/scheduled__2024-04-01";

/// Walks through all the steps.
pub(super) async fn go(http: &Orchestrator, expected: &Contents, screen: &mut Screen) -> anyhow::Result<()> {
    let (run, first) = rebuild_the_quarter(http, expected, screen).await?;
    send_it_again(http, &run, screen).await?;
    rerun_february(http, &first, screen).await?;
    run_without_neighbours(http, expected, screen).await?;
    show_it_again(http, &first, screen).await?;
    screen.say("\nEvery total, outcome and answer was as it should be.")
}

async fn rebuild_the_quarter(
    http: &Orchestrator,
    expected: &Contents,
    screen: &mut Screen,
) -> anyhow::Result<(Run, Listing)> {
    screen.say(&format!(
        "\n(a) A run rebuilds the partitions it names, each from its own file and the files of the months next door, since late \
         trips are in them. POST /runs under the key {QUARTER_KEY}:"
    ))?;
    let run = submit_new(http, QUARTER_KEY, TABLE, quarter(), screen).await?;
    outcomes(&run, "created", 3)?;
    let rows = books(&run)?;
    let all: u64 = expected.file_rows.iter().sum();
    equal("rows read", rows.read, all)?;
    equal("rows outside the quarter", rows.out_of_scope, expected.strays_outside)?;
    let table = http.totals(TABLE).await?;
    totals_are(&table, &expected.months)?;
    screen.table(&table)?;
    screen.say(&format!(
        "    {} rows read; {} are of no month of the quarter (their meters' clocks were wrong): counted, and not written.",
        thousands(&rows.read.to_string()),
        rows.out_of_scope,
    ))?;
    Ok((run, table))
}

async fn send_it_again(http: &Orchestrator, first: &Run, screen: &mut Screen) -> anyhow::Result<()> {
    screen
        .say("\n(b) The same request again, as after a time-out. One key is one run, so the run of (a) comes back:")?;
    let again = http.submit(QUARTER_KEY, TABLE, quarter()).await?;
    equal("the status of a repeated request", again.status, StatusCode::OK)?;
    ensure!(again.replayed, "the answer to a repeated request has no Idempotent-Replayed: true");
    equal("the run of a repeated request", again.run.id.as_str(), first.id.as_str())?;
    equal("attempts of the run", again.run.attempts.len(), 1)?;
    screen.say(&format!("    200, Idempotent-Replayed: true, run {}, still with one attempt.", again.run.id))
}

async fn rerun_february(http: &Orchestrator, before: &Listing, screen: &mut Screen) -> anyhow::Result<()> {
    screen.say(
        "\n(c) February once more under a new key. The same input gives the same bytes, so there is nothing to write:",
    )?;
    let run = submit_new(http, "zone_hour/2024-02/manual__1", TABLE, json!(["2024-02"]), screen).await?;
    outcomes(&run, "unchanged", 1)?;
    let after = http.totals(TABLE).await?;
    untouched(before, &after)?;
    equal("the table's version", after.version, before.version)?;
    screen.say(&format!("    {FEBRUARY}: unchanged; the table is still at version {}.", after.version))
}

async fn run_without_neighbours(http: &Orchestrator, expected: &Contents, screen: &mut Screen) -> anyhow::Result<()> {
    screen.say(
        "\n(d) The same job with each month from its own file only. Trips that lie in the file of another month are strays: they \
         are counted, a warning names the setting that finds them, and no partition is made or replaced by them:",
    )?;
    let key = "zone_hour_by_file/2024-Q1/scheduled__2024-04-01";
    let run = submit_new(http, key, TABLE_BY_FILE, quarter(), screen).await?;
    outcomes(&run, "created", 3)?;
    let rows = books(&run)?;
    let next_door: u64 = expected.months.iter().map(|m| strays_of(rows, m.month)).sum();
    equal("strays", rows.out_of_scope, expected.strays_next_door + expected.strays_outside)?;
    equal("strays of the months next door", next_door, expected.strays_next_door)?;
    let before = http.totals(TABLE_BY_FILE).await?;
    totals_are(&before, &expected.own_files)?;
    let warning = run.warnings.first().context("the run has no warning, expected one about strays next door")?;
    screen.table(&before)?;
    screen.say(&format!("    {} strays, {next_door} of them of the months next door.", rows.out_of_scope))?;
    screen.say(&format!("    warning: {}", warning.detail))?;

    screen.say("\n    Then February alone, whose file holds a few trips of January and March:")?;
    let run =
        submit_new(http, "zone_hour_by_file/2024-02/manual__1", TABLE_BY_FILE, json!(["2024-02"]), screen).await?;
    outcomes(&run, "unchanged", 1)?;
    let rows = books(&run)?;
    let (january, march) = (strays_of(rows, "2024-01"), strays_of(rows, "2024-03"));
    equal("strays of January in the file of February", january, expected.january_in_february)?;
    equal("strays of March in the file of February", march, expected.march_in_february)?;
    untouched(&before, &http.totals(TABLE_BY_FILE).await?)?;
    screen.say(&format!(
        "    {FEBRUARY}: unchanged; {january} strays of January and {march} of March counted, and those months untouched. A plain \
         dynamic partition overwrite would have replaced January by {january} trips and March by {march}."
    ))
}

async fn show_it_again(http: &Orchestrator, first: &Listing, screen: &mut Screen) -> anyhow::Result<()> {
    screen.say("\n(e) The first table, after all that:")?;
    let now = http.totals(TABLE).await?;
    untouched(first, &now)?;
    screen.table(&now)?;
    screen.say("    The same to the cent, and its files the same to the byte.")
}

fn quarter() -> Value {
    json!([{"from": "2024-01", "to": "2024-03"}])
}

/// Submits under a key that is new and waits for the run.
async fn submit_new(
    http: &Orchestrator,
    key: &str,
    pipeline: &str,
    partitions: Value,
    screen: &mut Screen,
) -> anyhow::Result<Run> {
    let started = Instant::now();
    let submitted = http.submit(key, pipeline, partitions).await?;
    equal("the status of a new request", submitted.status, StatusCode::ACCEPTED)?;
    let run = http.wait(&submitted.run.id, screen).await?;
    screen.say(&format!("    202, run {}: succeeded in {:.1} s", run.id, started.elapsed().as_secs_f64()))?;
    Ok(run)
}

/// The run's books, which must balance.
fn books(run: &Run) -> anyhow::Result<&Rows> {
    let rows = run.rows.as_ref().with_context(|| format!("run {} succeeded without row counts", run.id))?;
    let sum = rows.in_scope + rows.out_of_scope + rows.filtered + rows.rejected;
    equal("in scope + out of scope + filtered + rejected", sum, rows.read)?;
    Ok(rows)
}

fn strays_of(rows: &Rows, month: &str) -> u64 {
    rows.out_of_scope_by_partition.get(&format!("pickup_month={month}")).copied().unwrap_or_default()
}

fn outcomes(run: &Run, expected: &str, partitions: usize) -> anyhow::Result<()> {
    equal("partitions of the run", run.partitions.len(), partitions)?;
    for p in &run.partitions {
        equal(&format!("the outcome of {}", p.partition), p.outcome.as_deref(), Some(expected))?;
    }
    Ok(())
}

/// The table holds exactly these months, and its sum is theirs.
fn totals_are(table: &Listing, expected: &[MonthTotals; 3]) -> anyhow::Result<()> {
    let cents = |c: i64| format!("{}.{:02}", c / 100, c % 100);
    let found =
        table.partitions.iter().map(|p| (p.partition.clone(), p.rows, p.totals.trips, p.totals.revenue.clone()));
    let months = expected.iter().map(|m| (format!("pickup_month={}", m.month), m.buckets, m.trips, cents(m.cents)));
    equal("the months of the table", found.collect::<Vec<_>>(), months.collect())?;
    let sum = |of: fn(&MonthTotals) -> u64| expected.iter().map(of).sum::<u64>();
    let revenue = cents(expected.iter().map(|m| m.cents).sum());
    let all = (table.total.rows, table.total.totals.trips, table.total.totals.revenue.clone());
    equal("the sum of the table", all, (sum(|m| m.buckets), sum(|m| m.trips), revenue))
}

/// Every partition is what it was, written by the run that it was written by.
fn untouched(before: &Listing, after: &Listing) -> anyhow::Result<()> {
    equal("the partitions of the table", &after.partitions, &before.partitions)?;
    equal("the sum of the table", &after.total, &before.total)
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> anyhow::Result<()> {
    if found != expected {
        bail!("{what}: found {found:?}, expected {expected:?}");
    }
    Ok(())
}

#[cfg(test)]
#[path = "tour_tests.rs"]
mod tests;
