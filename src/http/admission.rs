//! Letting requests in.

use super::{Api, Caller};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;

/// Finds out who asks.
pub(super) async fn admit(State(_): State<Api>, mut request: Request, next: Next) -> Response {
    request.extensions_mut().insert(Caller::anybody());
    next.run(request).await
}
