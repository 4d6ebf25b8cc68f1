//! Error answers that are not problems yet.

use super::Problem;
use crate::http::REQUEST_ID;
use crate::http::middleware::go_on;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use std::future::Future;

/// Makes every error answer a problem: those of the router and of other layers too, and puts the request's id in those
/// whose cause is only in the log.
pub(in crate::http) fn render_problems(request: Request, next: Next) -> impl Future<Output = Response> + Send {
    let request_id = request.headers().get(&REQUEST_ID).and_then(|id| id.to_str().ok()).map(str::to_owned);
    let answer = go_on(next, request);
    async move { rendered(answer.await, request_id.as_deref()) }
}

fn rendered(response: Response, request_id: Option<&str>) -> Response {
    let status = response.status();
    if !status.is_client_error() && !status.is_server_error() {
        return response;
    }
    let made_here = response.extensions().get::<Problem>().cloned();
    let problem = match (made_here, status) {
        // Complete as it is: nothing of its cause is in the log.
        (Some(_), _) if !status.is_server_error() => return response,
        (Some(problem), _) => problem,
        (None, StatusCode::METHOD_NOT_ALLOWED) => Problem::MethodNotAllowed,
        (None, StatusCode::NOT_FOUND) => Problem::NoSuchPath,
        (None, StatusCode::INTERNAL_SERVER_ERROR) => Problem::Internal,
        (None, StatusCode::BAD_REQUEST) => Problem::Malformed("a part of the path or the query cannot be read".into()),
        (None, other) => Problem::Other(other),
    };
    problem.render(request_id)
}
