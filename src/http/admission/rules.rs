//! What each route needs, and the same in the interface's description.

use crate::access::TokenScope::{self, Read, Run};
use axum::http::Method;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ContentBuilder, OpenApi, PathItem, Ref, Response, ResponseBuilder};

/// What a route needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// It is for everybody.
    Nothing,
    /// A token with this scope.
    Scope(TokenScope),
    /// A token that is for all pipelines, to read.
    AllPipelines,
}

/// Every route; a HEAD is as its GET. One that is not here is for admins alone, which the test that walks through them takes for a mistake.
const RULES: [(Method, &str, Need); 17] = [
    (Method::GET, "/docs", Need::Nothing),
    (Method::GET, "/healthz", Need::Nothing),
    (Method::GET, "/metrics", Need::AllPipelines),
    (Method::GET, "/openapi.json", Need::Nothing),
    (Method::GET, "/openapi.yaml", Need::Nothing),
    (Method::GET, "/pipelines", Need::Scope(Read)),
    (Method::GET, "/pipelines/{name}", Need::Scope(Read)),
    (Method::GET, "/pipelines/{name}/data/{*key}", Need::Scope(Read)),
    (Method::GET, "/pipelines/{name}/partitions", Need::Scope(Read)),
    (Method::GET, "/pipelines/{name}/partitions/{*key}", Need::Scope(Read)),
    (Method::GET, "/readyz", Need::Nothing),
    (Method::GET, "/runs", Need::Scope(Read)),
    (Method::POST, "/runs", Need::Scope(Run)),
    (Method::GET, "/runs/{id}", Need::Scope(Read)),
    (Method::GET, "/runs/{id}/events", Need::Scope(Read)),
    (Method::POST, "/runs/{id}/cancel", Need::Scope(Run)),
    (Method::POST, "/runs/{id}/retry", Need::Scope(Run)),
];

/// What this method of a route needs. No route is a 404 for everybody, and a method that a route does not have is a 405 for all
/// who may see anything.
pub(super) fn needed(method: &Method, route: Option<&str>) -> Need {
    let Some(route) = route else { return Need::Nothing };
    let method = if method == Method::HEAD { &Method::GET } else { method };
    let mut of_route = RULES.iter().filter(|(_, path, _)| *path == route).peekable();
    if of_route.peek().is_none() {
        return Need::Scope(TokenScope::Admin);
    }
    of_route.find(|(of, _, _)| of == method).map_or(Need::Scope(Read), |(_, _, need)| *need)
}

const SCHEME: &str = "token";

/// Says of each operation what it needs, with the refusals.
pub(in crate::http) fn describe(api: &mut OpenApi) {
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(
        "A token of `refrain token new`, with the scope `read`, `run` or `admin`, each of which has what the ones before it have. \
         A server without any token lets everybody on its machine in.",
    ));
    let components = api.components.get_or_insert_default();
    components.add_security_scheme(SCHEME, SecurityScheme::Http(bearer.build()));
    for (method, path, need) in &RULES {
        if let Some(operation) = api.paths.paths.get_mut(*path).and_then(|item| operation(item, method)) {
            restrict(operation, *need);
        }
    }
}

fn operation<'a>(item: &'a mut PathItem, method: &Method) -> Option<&'a mut Operation> {
    match *method {
        Method::GET => item.get.as_mut(),
        Method::POST => item.post.as_mut(),
        _ => None,
    }
}

fn restrict(operation: &mut Operation, need: Need) {
    let (scope, forbidden) = match need {
        Need::Nothing => {
            operation.security = Some(Vec::new());
            return;
        }
        Need::AllPipelines => {
            (Read, "The token is for some pipelines, and this tells of all of them; or the request is another site's")
        }
        Need::Scope(Read) => (Read, "The token does not allow it; or, without tokens, the request is another site's"),
        Need::Scope(scope) => (
            scope,
            "The token does not allow it, or the run is another principal's; or, without tokens, the request is another site's",
        ),
    };
    operation.security = Some(vec![SecurityRequirement::new(SCHEME, [scope.as_str()])]);
    let responses = &mut operation.responses.responses;
    responses.insert("401".to_owned(), refusal("No token came, or it is not valid").into());
    responses.insert("403".to_owned(), refusal(forbidden).into());
}

fn refusal(description: &str) -> Response {
    let details = ContentBuilder::new().schema(Some(Ref::from_schema_name("ProblemDetails"))).build();
    ResponseBuilder::new().description(description).content("application/problem+json", details).build()
}
