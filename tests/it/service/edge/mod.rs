//! Where connections come in: clients that are slow, silent or too many, and TLS.

mod beside;
mod certificates;
mod connections;
mod limits;
mod load;
mod raw;
mod slow;
mod tls;

use super::slow::quick_pipeline;
use super::{Place, Server, Store};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(20);

/// A place with a small pipeline, over the embedded database: none of this depends on the store.
async fn place() -> Place {
    let place = Place::new(Store::Sqlite).await;
    quick_pipeline(&place);
    place
}

/// Waits until the server has written this.
async fn wait_for_log(server: &Server, text: &str) {
    let end = Instant::now() + SOON;
    while !server.log().contains(text) {
        assert!(Instant::now() < end, "the log does not say {text:?}: {}", server.log_tail());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The value of a metric; 0 where there is none.
async fn metric(server: &Server, name: &str) -> f64 {
    let text = server.get("/metrics").await.body;
    let line = text.lines().find(|line| line.starts_with(name));
    line.map_or(0.0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}
