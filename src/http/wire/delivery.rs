//! Who was told of a run's end.

use crate::pipeline::url::server_of;
use crate::run::{Delivery, DeliveryState};
use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

/// How far the telling of a run's end to one webhook is.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Delivery)]
pub(super) struct DeliveryView<'a> {
    /// The header `webhook-id`: the same for each try.
    id: Uuid,
    /// What is told.
    #[schema(example = "run.succeeded")]
    event: &'a str,
    /// The server that is told; the URL's path and query may be secrets.
    #[schema(example = "https://hooks.example.org")]
    url: &'a str,
    /// `pending`, `delivered` or `gave_up`.
    #[schema(value_type = String, example = "delivered")]
    state: DeliveryState,
    /// Tries of which it is known how they ended.
    tries: u32,
    /// What the receiver answered last; null where it never did.
    last_status: Option<u16>,
    /// Why the last try failed; null where it did not.
    last_error: Option<&'a str>,
    last_try_at: Option<DateTime<Utc>>,
    /// When it is tried next; null where it is over.
    next_try_at: Option<DateTime<Utc>>,
}

impl<'a> From<&'a Delivery> for DeliveryView<'a> {
    fn from(delivery: &'a Delivery) -> Self {
        Self {
            id: delivery.id,
            event: &delivery.event,
            url: server_of(&delivery.url),
            state: delivery.state,
            tries: delivery.tries,
            last_status: delivery.last_status,
            last_error: delivery.last_error.as_deref(),
            last_try_at: delivery.last_try_at,
            next_try_at: delivery.next_try_at,
        }
    }
}
