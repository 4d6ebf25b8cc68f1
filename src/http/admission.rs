//! Letting requests in: each route with what it needs, and the token of whoever asks.

mod rules;

pub(super) use rules::describe;

use super::middleware::go_on;
use super::problem::{Denied, Problem};
use super::{Caller, Gate, Server, body};
use axum::body::{Body, HttpBody};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::StreamExt;
use rules::Need;
use std::future::Future;
use std::io;
use std::task::Poll;

/// Finds out who asks, and calls the handler for those who may. Whose token ends while they wait or are told something is cut
/// off.
pub(super) async fn admit(State(api): State<Server>, mut request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let caller = match rules::needed(request.method(), route) {
        Need::Nothing => return go_on(next, request).await,
        need => {
            let caller =
                api.gate.caller(request.uri(), request.headers()).await.and_then(|caller| allowed(need, caller));
            // Here and not in a layer of its own, which every request that waits would have in memory.
            caller.and_then(|caller| {
                api.fairness.check(&caller, request.method(), route.unwrap_or_default()).map(|()| caller)
            })
        }
    };
    let caller = match caller {
        Ok(caller) => caller,
        Err(problem) => return refuse(&api, request, problem).await,
    };
    request.extensions_mut().insert(caller.clone());
    let answer = tokio::select! {
        answer = go_on(next, request) => answer,
        problem = api.gate.ended(&caller) => return problem.into_response(),
    };
    // What is as long as it is was made before.
    match answer.body().size_hint().exact() {
        Some(_) => answer,
        None => answer.map(|body| cut_off(body, api.gate.clone(), caller)),
    }
}

fn allowed(need: Need, caller: Caller) -> Result<Caller, Problem> {
    let denied = match need {
        Need::Scope(needed) if caller.scope < needed => Denied::InsufficientScope { needed, had: caller.scope },
        Need::AllPipelines if caller.pipelines.is_some() => Denied::SomePipelines,
        _ => return Ok(caller),
    };
    Err(Problem::Denied(denied))
}

/// Takes the body first, as far as bodies are taken: a client that sends before it reads is to see the answer.
async fn refuse(api: &Server, request: Request, problem: Problem) -> Response {
    let is_read = match body::read(request, &api.limits).await {
        Ok(_) => true,
        Err(refused) => refused.drained,
    };
    let mut response = problem.into_response();
    if !is_read {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// A body that breaks off when its caller's token ends.
fn cut_off(body: Body, gate: Gate, caller: Caller) -> Body {
    let mut ended = Box::pin(async move { gate.ended(&caller).await });
    let mut chunks = body.into_data_stream();
    Body::from_stream(futures::stream::poll_fn(move |context| -> Poll<Option<Result<Bytes, axum::Error>>> {
        match ended.as_mut().poll(context) {
            Poll::Ready(_) => {
                Poll::Ready(Some(Err(axum::Error::new(io::Error::from(io::ErrorKind::PermissionDenied)))))
            }
            Poll::Pending => chunks.poll_next_unpin(context),
        }
    }))
}
