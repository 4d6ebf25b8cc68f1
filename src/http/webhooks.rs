//! The description of the webhooks that are told of runs' ends; `notify` sends them.

use crate::notify::WebhookBody;
use utoipa::OpenApi as _;
use utoipa::openapi::OpenApi;

/// Adds the webhooks and what they say to the description of the interface.
pub(super) fn describe(api: &mut OpenApi) {
    let mut told = Told::openapi();
    let webhooks = std::mem::take(&mut told.paths);
    api.merge(told);
    api.webhooks = Some(webhooks);
}

#[derive(utoipa::OpenApi)]
#[openapi(paths(run_ended))]
struct Told;

/// A run has ended.
///
/// Sent by Standard Webhooks (https://www.standardwebhooks.com) to the webhook of the submission and to those of the server, until
/// the receiver answers 2xx, or 410 where it does not want it. The same run's end may come more than once, under the same `webhook-id`.
#[utoipa::path(post, path = "run_ended", operation_id = "run_ended", tag = "runs",
    request_body(content = WebhookBody<'_>),
    params(
        ("webhook-id" = Uuid, Header, description = "The same for each try: what repeats are dropped by"),
        ("webhook-timestamp" = i64, Header, description = "When it was sent, in seconds since 1970"),
        ("webhook-signature" = String, Header, description = "`v1,` and the HMAC-SHA256 of `id.timestamp.body` in base64; several, by blanks, \
            while secrets change"),
    ),
    responses(
        (status = "2XX", description = "It is not sent again"),
        (status = 410, description = "Nor is it after this"),
        (status = "default", description = "It is sent again, later each time, for three days"),
    ),
)]
#[expect(dead_code, reason = "it stands for its description")]
fn run_ended() {}
