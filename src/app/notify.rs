//! Makes what tells others of runs, as the settings say.

use super::source_root;
use crate::config::{DatabaseSettings, NotifySettings, WorkSettings, secret_in};
use crate::fault::Faults;
use crate::notify::{AllowedHosts, Audiences, Lineage, Notifier, Schedule, Secrets, Sink, Webhooks};
use crate::store::RunStore;
use anyhow::{Context, anyhow, bail};
use secrecy::ExposeSecret;
use std::path::Path;
use std::sync::Arc;

/// Who is told of the runs that this server accepts.
pub(super) fn audiences(settings: &NotifySettings) -> anyhow::Result<Audiences> {
    let hosts =
        settings.webhook_secret_file.as_ref().map(|_| AllowedHosts::parse(&settings.webhook_hosts)).transpose()?;
    let urls: Vec<&str> = settings.webhook_url.iter().map(ExposeSecret::expose_secret).collect();
    let lineage = settings.openlineage_file.is_some() || settings.openlineage_url.is_some();
    Audiences::new(hosts, &urls, lineage).map_err(|why| anyhow!(why))
}

/// What tells them in this process; none where it tells nobody.
pub(super) fn notifier(
    settings: &NotifySettings,
    database: &DatabaseSettings,
    work: &WorkSettings,
    store: &Arc<dyn RunStore>,
) -> anyhow::Result<Option<Notifier>> {
    let webhooks = settings.webhook_secret_file.as_deref().map(|file| webhooks(settings, file)).transpose()?;
    let lineage = lineage(settings, database, work)?;
    if webhooks.is_none() && lineage.is_none() {
        return Ok(None);
    }
    Ok(Some(Notifier {
        store: Arc::clone(store),
        webhooks,
        lineage,
        schedule: Schedule::of_seconds(&settings.notify_retry_seconds),
        faults: Faults::from_environment()?,
    }))
}

fn webhooks(settings: &NotifySettings, secrets: &Path) -> anyhow::Result<Webhooks> {
    let hosts = AllowedHosts::parse(&settings.webhook_hosts)?;
    let text = secret_in(secrets)?;
    let secrets = Secrets::parse(text.expose_secret())
        .with_context(|| format!("cannot take the webhooks' secrets in {}", secrets.display()))?;
    Webhooks::new(hosts, secrets, Webhooks::system_lookup()).context("cannot make the client of webhooks")
}

fn lineage(
    settings: &NotifySettings,
    database: &DatabaseSettings,
    work: &WorkSettings,
) -> anyhow::Result<Option<Lineage>> {
    let sink = match (&settings.openlineage_file, &settings.openlineage_url) {
        (None, None) => return Ok(None),
        (Some(file), None) => Sink::file(file)?,
        (None, Some(url)) => {
            let token = settings.openlineage_token_file.as_deref().map(secret_in).transpose()?;
            Sink::url(url, token).context("--openlineage-url")?
        }
        (Some(_), Some(_)) => bail!("found --openlineage-file and --openlineage-url, expected one of them"),
    };
    let warehouse = std::path::absolute(database.warehouse_path()).context("cannot find the warehouse")?;
    let (namespace, source_root) = (settings.openlineage_namespace.clone(), source_root(work)?);
    Ok(Some(Lineage { sink, namespace, source_root, warehouse }))
}
