//! Which version of a table a listing is of, and where its page begins. The pages of what is listed as of a moment are of one
//! version, also where the moment has come to mean another meanwhile: their cursors carry it.

use crate::http::Api;
use crate::http::params::{Params, cursor, invalid, read_cursor};
use crate::http::problem::Problem;
use crate::partition::PartitionKey;
use crate::run::RunId;
use crate::store::AsOf;
use chrono::{DateTime, Utc};
use uuid::Uuid;

/// Where a page begins.
#[derive(Debug, Clone, Default)]
pub(super) struct Page {
    /// The version that was asked for; none for now.
    pub(super) as_of: Option<i64>,
    /// The last key of the page before.
    pub(super) after: Option<PartitionKey>,
}

impl Page {
    /// What gives the page after one that ends with this key.
    pub(super) fn cursor(&self, last: &PartitionKey) -> String {
        match self.as_of {
            Some(version) => cursor(&format!("{version}{BEFORE_KEY}{last}")),
            None => cursor(last.as_str()),
        }
    }
}

/// Between the version and the key of a cursor. No key begins with digits and this, since each begins with a column's name.
const BEFORE_KEY: char = '@';

/// Reads `as_of` and `cursor`.
pub(super) async fn page(api: &Api, pipeline: &str, params: &Params) -> Result<Page, Problem> {
    let moment = params.read("as_of", read_moment)?;
    let is_past = moment.is_some();
    let after = params.read("cursor", |text| {
        let after = read_cursor(text).and_then(|text| read_position(&text, is_past));
        after.ok_or_else(|| format!("found {text:?}, expected the next_cursor of an earlier page of the same query"))
    })?;
    let Some(moment) = moment else { return Ok(Page { as_of: None, after: after.map(|(_, key)| key) }) };
    let (moment, after) = match after {
        Some((Some(version), _)) if matches!(moment, AsOf::Version(asked) if asked != version) => {
            return Err(invalid("cursor", "expected the next_cursor of an earlier page of the same query"));
        }
        Some((version, key)) => (version.map_or(moment, AsOf::Version), Some(key)),
        None => (moment, None),
    };
    match api.store.version_as_of(pipeline, moment).await? {
        Some(version) => Ok(Page { as_of: Some(version), after }),
        None if after.is_some() => {
            Err(invalid("cursor", "expected the next_cursor of an earlier page of the same query"))
        }
        None => Err(Problem::NoSuchVersion {
            pipeline: pipeline.to_owned(),
            as_of: params.get("as_of").unwrap_or_default().to_owned(),
        }),
    }
}

/// The version of a cursor, which those of a moment have and no others, and its key.
fn read_position(text: &str, is_past: bool) -> Option<(Option<i64>, PartitionKey)> {
    let versioned = text.split_once(BEFORE_KEY).and_then(|(version, key)| Some((read_version(version)?, key)));
    let (version, key) = versioned.map_or((None, text), |(version, key)| (Some(version), key));
    // Keys have control characters escaped, and not every database takes NUL.
    let is_key = !key.contains(|c: char| c.is_ascii_control());
    (is_key && version.is_some() == is_past).then(|| (version, PartitionKey::from_canonical(key)))
}

fn read_version(text: &str) -> Option<i64> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

fn read_moment(text: &str) -> Result<AsOf, String> {
    if let Some(version) = read_version(text) {
        return Ok(AsOf::Version(version));
    }
    if let Ok(id) = Uuid::try_parse(text) {
        return Ok(AsOf::Run(RunId(id)));
    }
    DateTime::parse_from_rfc3339(text).map(|time| AsOf::Time(time.with_timezone(&Utc))).map_err(|_| {
        format!(
            "found {text:?}, expected a version of the table, the id of a run, or an RFC 3339 time such as \
             2024-03-01T00:00:00Z (a + is %2B in a query)"
        )
    })
}
