//! Who is let in: by the tokens in the database, or everybody where there are none and nobody else reaches the server.

use crate::config::AccessSettings;
use crate::http::{Gate, OpenTo};
use crate::store::{RunStore, TokenStore};
use anyhow::{Context, bail};
use std::net::SocketAddr;
use std::sync::Arc;

/// The gate of a server that listens there.
pub(super) async fn gate(
    listen: SocketAddr,
    access: &AccessSettings,
    store: &Arc<dyn RunStore>,
) -> anyhow::Result<Gate> {
    let is_alone = listen.ip().is_loopback();
    let tokens = store.tokens().await.context("cannot read the tokens in the database")?.records.len();
    if tokens == 0 && !is_alone && !access.insecure {
        bail!(
            "there are no tokens, and whoever reaches {listen} could do everything: make one by refrain token new \
             --principal NAME --scope admin, or listen on 127.0.0.1, or say --insecure"
        );
    }
    match tokens {
        0 if is_alone => tracing::info!("there are no tokens: everybody on this machine may do everything"),
        0 => tracing::warn!(%listen, "there are no tokens: everybody who reaches this server may do everything"),
        _ => tracing::info!(tokens, "every request needs a token"),
    }
    let store: Arc<dyn TokenStore> = Arc::clone(store) as _;
    let open_to = match (access.insecure, is_alone) {
        (true, _) => OpenTo::Everybody,
        (false, true) => OpenTo::ThisMachine,
        (false, false) => OpenTo::Nobody,
    };
    Ok(Gate::new(store, Gate::FRESH_FOR, open_to))
}
