//! `GET /pipelines/{name}/partitions`: the totals, now or as they were; and one partition with its history.

mod as_of;

use super::params::{Params, cursor, invalid, read_cursor};
use super::problem::{Problem, ProblemDetails};
use super::wire::{ListOrMissing, MissingList, PartitionDetail, PartitionList};
use super::{Api, Caller, Server, answer};
use crate::partition::{KeyError, PartitionKey, PartitionSpec, Transform};
use crate::pipeline::Definition;
use crate::store::PartitionFilter;
use as_of::Page;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use std::collections::BTreeSet;
use utoipa_axum::{router::OpenApiRouter, routes};

pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(get))
}

/// Lists the partitions of a pipeline's table with their current totals, and the sum over all of them.
#[utoipa::path(get, path = "/pipelines/{name}/partitions", operation_id = "list_partitions", tag = "pipelines",
    params(
        ("name" = String, Path, description = "The pipeline's name", example = "zone_hour"),
        ("from" = Option<String>, Query, description = "From this partition on, for time partitions: a value of the \
            first partition column or a canonical key"),
        ("to" = Option<String>, Query, description = "Up to this partition, inclusive"),
        ("missing" = Option<bool>, Query, description = "Whether to list the periods from `from` to `to` that have no partition, \
            where the partition columns are one series of periods; all on one page"),
        ("as_of" = Option<String>, Query, description = "The table as it was: at this version of it, when the run of this id had \
            succeeded, or at this RFC 3339 time (the last version that was committed by then). All pages of an answer are \
            of one version", example = "7"),
        ("cursor" = Option<String>, Query, description = "The `next_cursor` of the page before"),
        ("limit" = Option<u32>, Query, description = "The most entries of the page; a server may be set to more or less", minimum = 1, maximum = 1000),
        ("If-None-Match" = Option<String>, Header, description = "The tag of an earlier answer"),
    ),
    responses(
        (status = 200, description = "A page of partitions, and the sum over all; or the missing ones", body = ListOrMissing<'_>, headers(
            ("ETag" = String, description = "The table's version, and a mark of the query and the definition"),
        )),
        (status = 304, description = "The table is as the tag's answer said"),
        (status = 400, description = "The query cannot be read", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 404, description = "There is no such pipeline, or its table never had such a version", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 410, description = "The table's version is not kept any more", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 503, description = "The database does not answer, or not in time", body = ProblemDetails, content_type = "application/problem+json"),
    ),
)]
async fn list(
    State(api): State<Server>,
    Path(name): Path<String>,
    caller: Caller,
    params: Params,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    params.only(&["from", "to", "missing", "as_of", "cursor", "limit"])?;
    let definition = &api.pipeline(&caller, &name)?;
    if params.flag("missing")? {
        return list_missing(&api, definition, &params, &headers).await;
    }
    let limit = params.limit(api.limits.default_page, api.limits.max_page)?;
    let page = as_of::page(&api, &name, &params).await?;
    let filter = filter(&definition.partition, &params, page.clone(), limit)?;
    if answer::is_conditional(&headers) {
        let version = match page.as_of {
            Some(version) => version,
            None => api.store.table_version(&name).await?,
        };
        if let Some(known) = answer::if_known(&headers, &tag(version, definition, &params)) {
            return Ok(known);
        }
    }
    let listing = api.store.partitions(&name, &filter).await?;
    if page.as_of.is_some_and(|version| version < listing.history_from) {
        let as_of = params.get("as_of").unwrap_or_default().to_owned();
        return Err(Problem::HistoryGone { pipeline: name, as_of, oldest: listing.history_from });
    }
    let last = listing.entries.last().filter(|_| listing.more);
    let next_cursor = last.map(|entry| page.cursor(&entry.partition));
    let tag = tag(listing.version, definition, &params);
    answer::json_tagged(&headers, &tag, &PartitionList::new(&name, &definition.hash, &listing, next_cursor))
}

/// The periods that have no partition, all at once: there are no more than a run may name.
async fn list_missing(
    api: &Api,
    definition: &Definition,
    params: &Params,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    if let Some(name) = ["as_of", "cursor", "limit"].into_iter().find(|name| params.get(name).is_some()) {
        return Err(invalid(name, "expected none with missing=true, whose answer is of now and has one page"));
    }
    let (Some(from), Some(to)) = (params.get("from"), params.get("to")) else {
        return Err(invalid("missing", "expected `from` and `to` with it, the first and the last period"));
    };
    let range = definition.partition.range(from, to, api.limits.max_partitions_per_run);
    let mut missing = range.map_err(|error| invalid("missing", &error.to_string()))?;
    let (name, periods) = (&definition.name, missing.len());
    // Before the entries: what changes between the two is then asked for again under the tag.
    let version = api.store.table_version(name).await?;
    let entries = api.store.entries(name, Some(&missing)).await?;
    let there: BTreeSet<&PartitionKey> = entries.iter().map(|entry| &entry.partition).collect();
    missing.retain(|key| !there.contains(key));
    answer::json_tagged(headers, &tag(version, definition, params), &MissingList::new(name, version, periods, &missing))
}

/// The version, told apart by what else the answer depends on.
fn tag(version: i64, definition: &Definition, params: &Params) -> String {
    let mark = answer::digest(format!("{}?{}", definition.hash, params.canonical()).as_bytes());
    format!("\"v{version}-{}\"", &mark[..12])
}

fn filter(spec: &PartitionSpec, params: &Params, page: Page, limit: u32) -> Result<PartitionFilter, Problem> {
    let bound = |text: &str| read_bound(spec, text).map_err(|error| error.to_string());
    let (from, to) = (params.read("from", bound)?, params.read("to", bound)?);
    if let (Some(from), Some(to)) = (&from, &to)
        && from.key > to.key
    {
        return Err(invalid("to", &format!("found {}, expected {} or later", to.key, from.key)));
    }
    Ok(PartitionFilter {
        from: from.map(|bound| bound.key),
        until: to.map(|bound| bound.after()),
        after: page.after,
        as_of: page.as_of,
        limit,
    })
}

/// An end of a range: a whole key, or a value of the first column, which stands for all keys below it.
struct Bound {
    key: PartitionKey,
    whole: bool,
}

impl Bound {
    /// A text after this key and all below it, and before any later key.
    fn after(&self) -> PartitionKey {
        // Keys hold no control characters, which are escaped; and `0` is the character after `/`.
        let next = if self.whole { '\u{1}' } else { '0' };
        PartitionKey::from_canonical(format!("{}{next}", self.key))
    }
}

/// Reads an end of a range. Keys whose first column is a time sort by it.
fn read_bound(spec: &PartitionSpec, text: &str) -> Result<Bound, KeyError> {
    let Some(first) = spec.columns().first() else {
        return Err(KeyError("the table has no partition columns".to_owned()));
    };
    let is_time =
        matches!(first.transform, Transform::YearOf | Transform::MonthOf | Transform::DayOf | Transform::HourOf);
    if !is_time {
        let name = &first.name;
        return Err(KeyError(format!("the first partition column, {name}, is no year, month, day or hour")));
    }
    if spec.columns().len() > 1 && text.contains('/') {
        return Ok(Bound { key: spec.parse_key(text)?, whole: true });
    }
    let key = PartitionSpec::new(vec![first.clone()]).parse_text(text)?;
    Ok(Bound { key, whole: spec.columns().len() == 1 })
}

/// Shows one partition as it is now, with its history.
#[utoipa::path(get, path = "/pipelines/{name}/partitions/{*key}", operation_id = "get_partition", tag = "pipelines",
    params(
        ("name" = String, Path, description = "The pipeline's name", example = "zone_hour"),
        ("key" = String, Path, description = "The canonical key, percent-encoded once; its slashes may stay",
            example = "pickup_month=2024-02"),
        ("cursor" = Option<String>, Query, description = "The `next_cursor` of an answer, for the changes before those"),
        ("limit" = Option<u32>, Query, description = "The most changes of the answer; a server may be set to more or less", minimum = 1, maximum = 1000),
        ("If-None-Match" = Option<String>, Header, description = "The tag of an earlier answer"),
    ),
    responses(
        (status = 200, description = "The partition", body = PartitionDetail<'_>),
        (status = 304, description = "The partition is as the tag's answer said"),
        (status = 400, description = "The query cannot be read", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 404, description = "There is no such pipeline or partition", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 503, description = "The database does not answer, or not in time", body = ProblemDetails, content_type = "application/problem+json"),
    ),
)]
async fn get(
    State(api): State<Server>,
    Path((name, key)): Path<(String, String)>,
    caller: Caller,
    params: Params,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    params.only(&["cursor", "limit"])?;
    let definition = &api.pipeline(&caller, &name)?;
    let limit = params.limit(api.limits.default_page, api.limits.max_page)?;
    let before = params.read("cursor", |text| {
        read_cursor(text)
            .and_then(|version| version.parse::<i64>().ok())
            .ok_or_else(|| format!("found {text:?}, expected the next_cursor of an earlier answer"))
    })?;
    // Not checked against the definition: a partition of an earlier one still has its history.
    let key = PartitionKey::from_canonical(key);
    let absent = || Problem::NoSuchPartition { pipeline: name.clone(), partition: key.as_str().to_owned() };
    if key.as_str().contains(|c: char| c.is_ascii_control()) {
        // Canonical keys have these escaped, and not every database takes NUL. Other control characters stand in keys.
        return Err(absent());
    }
    // One more than the page tells whether others follow.
    let (entry, mut history) = api.store.partition(&name, &key, before, limit.saturating_add(1)).await?;
    let more = history.len() > limit as usize;
    history.truncate(limit as usize);
    if entry.is_none() && history.is_empty() {
        // Behind the last page of a partition that was cleared; or of one that never was.
        let was_there = before.is_some() && !api.store.partition(&name, &key, None, 1).await?.1.is_empty();
        if !was_there {
            return Err(absent());
        }
    }
    let next_cursor = history.last().filter(|_| more).map(|change| cursor(&change.version.to_string()));
    let detail = PartitionDetail::new(&name, key.as_str(), &definition.hash, entry.as_ref(), &history, next_cursor);
    answer::json(StatusCode::OK, &headers, &detail)
}
