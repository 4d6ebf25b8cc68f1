//! Alerts of `ops/alerts.yml` over the metrics of real servers: what they wait for is what there is.

use super::exposition::Family;
use super::{Place, Store, of_month, pipeline, scrape, scrape_until};
use crate::receiver::{Receiver, telling};
use crate::site::Reply;
use std::collections::BTreeMap;

/// The condition of an alert, as far as these tests need one: a metric, its labels, and the value above which it fires.
#[derive(Debug)]
struct Condition {
    metric: String,
    labels: Vec<(String, String)>,
    above: f64,
    /// Whether it is about how much a counter has grown.
    is_increase: bool,
}

impl Condition {
    fn of(alert: &str) -> Self {
        let alerts = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/ops/alerts.yml")).unwrap();
        let rest = alerts.split_once(&format!("- alert: {alert}\n")).unwrap().1;
        let expression = rest.trim_start().strip_prefix("expr: ").unwrap().lines().next().unwrap();
        let (left, above) = expression.rsplit_once(" > ").unwrap();
        let metric = left[left.find("refrain_").unwrap()..].chars();
        let metric: String = metric.take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        let labels = left.split_once('{').map_or("", |(_, rest)| rest.split_once('}').unwrap().0);
        let labels = labels.split(',').filter_map(|label| label.split_once('='));
        let labels = labels.map(|(name, value)| (name.to_owned(), value.trim_matches('"').to_owned())).collect();
        let is_increase = left.contains("increase(");
        Self { metric, labels, above: above.parse().unwrap(), is_increase }
    }

    /// What it is about, of webhooks.
    fn value(&self, found: &BTreeMap<String, Family>) -> f64 {
        let mut labels: Vec<_> = self.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        labels.push(("kind", "webhook"));
        let value = found.get(&self.metric).and_then(|family| family.sum(&labels));
        value.unwrap_or_else(|| panic!("{self:?}: there is no such sample"))
    }

    /// Whether it holds between two looks at a server.
    fn fires(&self, before: &BTreeMap<String, Family>, after: &BTreeMap<String, Family>) -> bool {
        let since = if self.is_increase { self.value(before) } else { 0.0 };
        self.value(after) - since > self.above
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_that_are_late_or_given_up_are_alerted() {
    let (late, given_up) = (Condition::of("RefrainNotificationsLate"), Condition::of("RefrainNotificationsGivenUp"));
    assert_eq!((late.is_increase, given_up.is_increase), (false, true), "{late:?}, {given_up:?}");
    let (gone, failing) =
        (Receiver::start(|_| Reply::status(410)).await, Receiver::start(|_| Reply::status(500)).await);
    let place = Place::new(Store::Postgres).await;
    pipeline(&place);
    let flags = telling(&place, &format!("{},{}", gone.listed(), failing.listed()), "36000");
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = place.start_with(&flags, &[]).await;
    // A counter that is not there before the first one never grows by it.
    let start =
        scrape_until(&server, &[("refrain_oldest_pending_notification_seconds", &[("kind", "webhook")], 0.0)]).await;
    assert!(!late.fires(&start, &start) && !given_up.fires(&start, &start));

    for (key, receiver) in [("gone", &gone), ("failing", &failing)] {
        let mut body = of_month("2024-02");
        body["webhook"] = receiver.url("/").into();
        server.run(key, &body).await;
    }
    let tried = [("kind", "webhook"), ("outcome", "failed")];
    let outcome = [("kind", "webhook"), ("outcome", "gave_up")];
    let name = "refrain_notification_tries_total";
    let end = scrape_until(&server, &[(name, &outcome, 1.0), (name, &tried, 1.0)]).await;
    assert!(given_up.fires(&start, &end));
    assert!(!late.fires(&start, &end), "nobody has waited for an hour");

    place.execute("update outbox set created_at = created_at - interval '2 hours'").await;
    // Another server looks at once.
    let other = place.start_with(&flags, &[]).await;
    let late_now = scrape_until(&other, &[(&late.metric, &[("kind", "webhook")], 1.0)]).await;
    assert!(late.fires(&start, &late_now) && !given_up.fires(&late_now, &scrape(&other).await));
}
