//! `GET /docs`: the interface for people, made of its own description. It needs no network: one page, no script.

mod example;
mod markdown;
mod operation;
mod schema;

use super::Server;
use super::problem::Problem;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use markdown::inline;
use serde_json::Value;
use std::fmt::Write as _;
use std::sync::LazyLock;
use utoipa_axum::{router::OpenApiRouter, routes};

const STYLE: &str = include_str!("page.css");

/// What every problem means, for the page too.
const PROBLEMS: &str = include_str!("../../../docs/problems.md");

/// Nothing is loaded and nothing is run, wherever a text of the page should have come from.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new().routes(routes!(docs))
}

/// This description, as a page for people.
#[utoipa::path(get, path = "/docs", operation_id = "docs", tag = "operations", responses(
    (status = 200, description = "A page that needs no network", content_type = "text/html", body = String),
    (status = 500, description = "It cannot be written", content_type = "application/problem+json", body = super::problem::ProblemDetails),
))]
async fn docs() -> Result<Response, Problem> {
    static PAGE: LazyLock<Result<String, String>> =
        LazyLock::new(|| serde_json::to_value(super::openapi()).map(|api| page(&api)).map_err(|e| e.to_string()));
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::CACHE_CONTROL, "no-cache"),
        (HeaderName::from_static("x-content-type-options"), "nosniff"),
    ]
    .map(|(name, value)| (name, HeaderValue::from_static(value)));
    match &*PAGE {
        Ok(page) => Ok((headers, page.as_str()).into_response()),
        Err(error) => {
            tracing::error!(error, "the page of the interface cannot be written");
            Err(Problem::Internal)
        }
    }
}

/// The whole page.
fn page(api: &Value) -> String {
    let title = text(&api["info"]["title"]);
    let (mut listed, mut told) = (String::new(), String::new());
    for tag in api["tags"].as_array().into_iter().flatten() {
        let name = text(&tag["name"]);
        let _ = write!(listed, "<p>{}</p><ul>", escaped(name));
        let _ = write!(told, "<h2>{}</h2><p>{}</p>", escaped(name), inline(text(&tag["description"])));
        for operation in operation::all(api).iter().filter(|operation| operation.is_tagged(name)) {
            let _ = write!(
                listed,
                "<li><a href=\"#{}\"><code>{} {}</code></a></li>",
                operation.id(),
                operation.method(),
                escaped(operation.path)
            );
            told += &operation.section(api);
        }
        listed += "</ul>";
    }
    let mut schemas = String::new();
    for (name, one) in api["components"]["schemas"].as_object().into_iter().flatten() {
        schemas += &schema::section(api, name, one);
    }
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}: the interface</title>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><style>{STYLE}</style></head><body>\
         <nav><h1>{title}</h1>{listed}<p>more</p><ul><li><a href=\"#schemas\">the fields of bodies</a></li>\
         <li><a href=\"#problems\">problems</a></li><li><a href=\"/openapi.yaml\">openapi.yaml</a></li>\
         <li><a href=\"/openapi.json\">openapi.json</a></li></ul></nav>\
         <main><p>{about} Version {version}. The examples are for a shell in which <code>REFRAIN_URL</code> says where the \
         server is:</p><pre>REFRAIN_URL=http://127.0.0.1:8080</pre>{told}\
         <h2 id=\"schemas\">the fields of bodies</h2>{schemas}<div id=\"problems\">{problems}</div></main></body></html>\n",
        title = escaped(title),
        about = inline(text(&api["info"]["description"])),
        version = escaped(text(&api["info"]["version"])),
        problems = markdown::render(PROBLEMS),
    )
}

/// A text of the description; empty where there is none.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A text as HTML shows it.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_cannot_be_tags() {
        assert_eq!(escaped("<a href='x'>\"&"), "&lt;a href=&#39;x&#39;&gt;&quot;&amp;");
        let api = serde_json::json!({
            "info": {"title": "<script>", "description": "a `<b>`", "version": "<i>"},
            "tags": [{"name": "<u>", "description": "<s>"}],
            "paths": {"/<p>": {"get": {"operationId": "x", "tags": ["<u>"], "summary": "<var>", "parameters":
                [{"name": "<q>", "in": "query", "description": "<tt>"}], "responses": {"200": {"description": "<li>"}}}}},
            "components": {"schemas": {"S": {"description": "<dl>", "properties": {"<dt>": {"example": "<dd>"}}}}},
        });
        let page = page(&api);
        for tag in
            ["<script>", "<b>", "<i>", "<u>", "<s>", "<p>\"", "/<p>", "<var>", "<q>", "<tt>", "<dl>", "<dt>", "<dd>"]
        {
            assert!(!page.contains(tag), "{tag}");
        }
    }
}
