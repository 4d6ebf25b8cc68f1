//! What a request asks: keys, ranges, fingerprints, tokens, and the definitions that they are read by.

use super::{Part, Work, work};
use refrain::access::Token;
use refrain::http::SubmitRequest;
use refrain::notify::Secrets;
use refrain::partition::{PartitionKey, PartitionSpec};
use refrain::pipeline::{self, Definition};
use refrain::run::{Asked, AskedPartitions, Mode};
use serde_json::json;

/// How many partitions a request names.
const PARTITIONS: usize = 1_000;

/// A table of days, whose sources are days too.
pub(super) const DAILY: &str = r#"
name = "daily"
[source]
format = "parquet"
path = "data/trips_%Y-%m-%d.parquet"
neighbours = 1
[source.columns]
at = "datetime"
zone = "int32"
amount = "decimal(18,2)"
[partition]
day = { day_of = "at" }
[dimensions]
zone = "zone"
hour = { truncate = "at", to = "hour" }
[measures]
trips = "count(*)"
revenue = "sum(amount)"
dearest = "max(amount)"
[where]
sql = "amount >= 0 and zone is not null"
"#;

pub(super) const PARTS: &[Part] = &[
    Part { name: "definitions_parsed", prepare: definitions_parsed },
    Part { name: "submission_read", prepare: submission_read },
    Part { name: "range_expanded", prepare: range_expanded },
    Part { name: "keys_parsed", prepare: keys_parsed },
    Part { name: "keys_written", prepare: keys_written },
    Part { name: "fingerprint", prepare: fingerprint },
    Part { name: "token_checked", prepare: token_checked },
    Part { name: "webhook_signed", prepare: webhook_signed },
];

pub(super) fn definition() -> Definition {
    pipeline::parse(DAILY, "daily").unwrap()
}

/// So many days, in their order.
pub(super) fn days() -> Vec<PartitionKey> {
    definition().partition.range("2023-01-01", "2025-09-26", PARTITIONS).unwrap()
}

fn definitions_parsed() -> Work {
    let shipped = [
        ("zone_hour", include_str!("../../pipelines/zone_hour.toml")),
        ("zone_hour_by_file", include_str!("../../pipelines/zone_hour_by_file.toml")),
        ("green_zone_hour", include_str!("../../pipelines/green_zone_hour.toml")),
        ("github_stars", include_str!("../../pipelines/github_stars.toml")),
        ("github_events_by_type", include_str!("../../pipelines/github_events_by_type.toml")),
    ];
    work(move || shipped.map(|(name, text)| pipeline::parse(text, name).unwrap().hash))
}

fn submission_read() -> Work {
    let definition = definition();
    let bare = days().iter().rev().map(|key| key.as_str().trim_start_matches("day=").to_owned()).collect::<Vec<_>>();
    let body = json!({ "pipeline": "daily", "partitions": bare, "labels": { "team": "mobility" } }).to_string();
    work(move || {
        let request: SubmitRequest = serde_json::from_str(&body).unwrap();
        request.read(&definition, PARTITIONS).unwrap()
    })
}

fn range_expanded() -> Work {
    let spec = definition().partition;
    work(move || spec.range("2023-01-01", "2025-09-26", PARTITIONS).unwrap())
}

fn keys_parsed() -> Work {
    let (spec, keys) = (definition().partition, days());
    work(move || keys.iter().filter_map(|key| spec.values(key)).count())
}

fn keys_written() -> Work {
    let (spec, keys): (PartitionSpec, _) = (definition().partition, days());
    let values: Vec<_> = keys.iter().filter_map(|key| spec.values(key)).collect();
    work(move || values.iter().filter_map(|values| spec.key(values)).collect::<Vec<_>>())
}

fn fingerprint() -> Work {
    let asked = Asked::new("daily", Mode::Overwrite, AskedPartitions(days()));
    work(move || asked.fingerprint())
}

fn token_checked() -> Work {
    let token = Token::of(&[7; Token::RANDOM_BYTES]);
    let (digest, text) = (token.digest(), token.text());
    work(move || {
        use secrecy::ExposeSecret;
        Token::parse(text.expose_secret()).unwrap().digest().is(&digest)
    })
}

fn webhook_signed() -> Work {
    let secrets = Secrets::parse("whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz").unwrap();
    let body = [b'x'; 2_000];
    work(move || secrets.signature("0199d3c2-8a6b-7c3e-9f10-5a5a5a5a5a5a", 1_700_000_000, &body))
}
