//! One try with a webhook: who may be asked, the signature, the request.

use super::answer::Answer;
use super::body::WebhookBody;
use super::hosts::Door;
use super::{AllowedHosts, Secrets};
use crate::run::Notice;
use chrono::{DateTime, Utc};
use futures::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::{Client, redirect};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// How long it may take until a receiver is connected to.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// Looks up the addresses of a name.
pub type Lookup = Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync>;

/// The way to the receivers of webhooks.
#[derive(Debug)]
pub struct Webhooks {
    hosts: Arc<AllowedHosts>,
    secrets: Secrets,
    /// One for each scheme and port that is listed: which addresses a name may lead to depends on them.
    clients: BTreeMap<Door, Client>,
}

impl Webhooks {
    /// Asks these hosts, whose addresses `lookup` finds.
    pub fn new(hosts: AllowedHosts, secrets: Secrets, lookup: Lookup) -> anyhow::Result<Self> {
        let hosts = Arc::new(hosts);
        let client = |door: Door| {
            // Another part of the process may have installed it; either way there is one.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let builder = Client::builder()
                .user_agent(concat!("refrain/", env!("CARGO_PKG_VERSION")))
                // A proxy would look names up itself, and ask any address.
                .no_proxy()
                // Standard Webhooks takes a redirect for a failure, and where it leads nobody has listed.
                .redirect(redirect::Policy::none())
                // Each try looks the name up anew, and asks an address that was found to be permitted for it.
                .dns_resolver(Arc::new(Guarded { hosts: Arc::clone(&hosts), door, lookup: Arc::clone(&lookup) }))
                .pool_max_idle_per_host(0)
                .connect_timeout(CONNECT_WITHIN);
            // Small machines have no certificates to hold those of receivers against: none are looked for without need.
            if door.is_tls { builder.https_only(true).build() } else { builder.tls_certs_only([]).build() }
        };
        let clients = hosts.doors().into_iter().map(|door| Ok((door, client(door)?)));
        Ok(Self { clients: clients.collect::<reqwest::Result<_>>()?, hosts, secrets })
    }

    /// Names as the system looks them up.
    pub fn system_lookup() -> Lookup {
        Arc::new(|name| {
            Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.map(|found| found.ip()).collect()) })
        })
    }

    /// Tells a receiver, once.
    pub(super) async fn send(&self, url: &str, id: Uuid, notice: &Notice, now: DateTime<Utc>) -> Answer {
        // Again: the list may be another than that of the server which accepted the run.
        let url = match self.hosts.url(url) {
            Ok(url) => url,
            Err(refused) => return Answer::failed(refused.to_string()),
        };
        let client = Door::of(&url).and_then(|door| self.clients.get(&door));
        let (Some(client), Ok(body)) = (client, serde_json::to_vec(&WebhookBody::from(notice))) else {
            return Answer::failed("the request could not be made".to_owned());
        };
        let (id, timestamp) = (id.to_string(), now.timestamp());
        let request = client
            .post(url)
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .header("webhook-signature", self.secrets.signature(&id, timestamp, &body))
            .header("webhook-id", id)
            .header("webhook-timestamp", timestamp)
            .body(body);
        match request.send().await {
            Ok(response) => Answer::of(&response, now),
            Err(error) => Answer::of_error(&error),
        }
    }
}

/// Gives the client no address but those that may be asked: so what was looked at is what is connected to.
struct Guarded {
    hosts: Arc<AllowedHosts>,
    door: Door,
    lookup: Lookup,
}

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let (hosts, door, looking) = (Arc::clone(&self.hosts), self.door, (self.lookup)(name.as_str().to_owned()));
        Box::pin(async move {
            let permitted = hosts.addresses(name.as_str(), door, looking.await?.into_iter())?;
            let addresses: Addrs = Box::new(permitted.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(addresses)
        })
    }
}

#[cfg(test)]
#[path = "webhook_tests.rs"]
pub(super) mod tests;
