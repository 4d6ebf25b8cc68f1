//! The service that the tour is about, started in this process.

use crate::app::{self, Running};
use crate::config::Settings;
use anyhow::Context;
use std::net::SocketAddr;
use std::path::Path;

/// The shipped examples that the tour uses.
const PIPELINES: [(&str, &str); 2] = [
    ("zone_hour.toml", include_str!("../../pipelines/zone_hour.toml")),
    ("zone_hour_by_file.toml", include_str!("../../pipelines/zone_hour_by_file.toml")),
];

/// Starts the service on the embedded database, with all it writes in `state` and its sources under `dir`.
pub(super) async fn start(dir: &Path, state: &Path, listen: SocketAddr) -> anyhow::Result<Running> {
    let pipelines = state.join("pipelines");
    std::fs::create_dir(&pipelines).with_context(|| format!("cannot make {}", pipelines.display()))?;
    for (name, text) in PIPELINES {
        let file = pipelines.join(name);
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    let mut settings = Settings::for_folders(state, &pipelines, dir);
    settings.listen = listen;
    app::start(settings).await.context("the service did not start")
}
