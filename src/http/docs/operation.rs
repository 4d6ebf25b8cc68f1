//! One operation of the interface: what goes in, what comes out, and a line to try it.

use super::markdown::inline;
use super::{escaped, example, schema, text};
use serde_json::Value;
use std::fmt::Write as _;

/// An operation of the description.
pub(super) struct Operation<'a> {
    method: &'a str,
    pub(super) path: &'a str,
    what: &'a Value,
}

/// Every operation, by path.
pub(super) fn all(api: &Value) -> Vec<Operation<'_>> {
    let paths = api["paths"].as_object().into_iter().flatten();
    let operations = paths.flat_map(|(path, methods)| {
        let methods = methods.as_object().into_iter().flatten();
        methods.map(move |(method, what)| Operation { method, path, what })
    });
    operations.filter(|operation| operation.what["operationId"].is_string()).collect()
}

impl Operation<'_> {
    pub(super) fn id(&self) -> String {
        escaped(text(&self.what["operationId"]))
    }

    pub(super) fn method(&self) -> String {
        escaped(&self.method.to_ascii_uppercase())
    }

    pub(super) fn is_tagged(&self, tag: &str) -> bool {
        self.what["tags"].as_array().is_some_and(|tags| tags.iter().any(|one| one == tag))
    }

    /// All that there is to say of it.
    pub(super) fn section(&self, api: &Value) -> String {
        let mut out = format!(
            "<section id=\"{}\"><h3><code><span class=\"method\">{}</span> {}</code></h3><p>{}</p>",
            self.id(),
            self.method(),
            escaped(self.path),
            inline(text(&self.what["summary"]))
        );
        if let Some(more) = self.what["description"].as_str() {
            let _ = write!(out, "<p>{}</p>", inline(more));
        }
        if let Some(scope) = self.scope() {
            let _ = write!(out, "<p>Needs a token with the scope <code>{}</code>.</p>", escaped(scope));
        }
        out += &self.parameters();
        let body = &self.what["requestBody"];
        if body.is_object() {
            let (media_type, content) = content(body);
            let _ = write!(
                out,
                "<h4>Body</h4><p>{}, {}{}</p>{}",
                schema::type_of(&content["schema"]),
                escaped(media_type),
                body["description"].as_str().map(|text| format!(": {}", inline(text))).unwrap_or_default(),
                shown(&example::of(api, content))
            );
        }
        out += &self.answers(api);
        let _ = write!(out, "<h4>Try it</h4><pre>{}</pre></section>", escaped(&self.curl(api)));
        out
    }

    /// The scope of the token that it needs, where it needs one.
    fn scope(&self) -> Option<&str> {
        self.what["security"][0]["token"][0].as_str()
    }

    fn all_parameters(&self) -> &[Value] {
        self.what["parameters"].as_array().map_or(&[][..], Vec::as_slice)
    }

    fn parameters(&self) -> String {
        let mut rows = String::new();
        for parameter in self.all_parameters() {
            let needed = if parameter["required"] == true { ", needed" } else { "" };
            let _ = write!(
                rows,
                "<tr><td><code>{}</code></td><td>{}{needed}</td><td>{}</td><td>{}</td></tr>",
                escaped(text(&parameter["name"])),
                escaped(text(&parameter["in"])),
                schema::type_of(&parameter["schema"]),
                inline(text(&parameter["description"]))
            );
        }
        match rows.is_empty() {
            true => rows,
            false => format!(
                "<h4>Parameters</h4><table><tr><th>name</th><th>in</th><th>type</th><th>what</th></tr>{rows}</table>"
            ),
        }
    }

    fn answers(&self, api: &Value) -> String {
        let (mut rows, mut examples) = (String::new(), String::new());
        for (status, answer) in self.what["responses"].as_object().into_iter().flatten() {
            let (media_type, content) = content(answer);
            let body = match media_type {
                "" => String::new(),
                "application/problem+json" => "<a href=\"#problems\">a problem</a>".to_owned(),
                _ => format!(
                    "{}<br><span class=\"soft\">{}</span>",
                    schema::type_of(&content["schema"]),
                    escaped(media_type)
                ),
            };
            let _ = write!(
                rows,
                "<tr><td>{}</td><td>{}{}</td><td>{body}</td></tr>",
                escaped(status),
                inline(text(&answer["description"])),
                headers(answer)
            );
            if examples.is_empty() && media_type == "application/json" && content["schema"].is_object() {
                examples = format!(
                    "<details><summary>An answer ({})</summary>{}</details>",
                    escaped(status),
                    shown(&example::of(api, content))
                );
            }
        }
        format!("<h4>Answers</h4><table><tr><th>status</th><th>when</th><th>body</th></tr>{rows}</table>{examples}")
    }

    /// A line for a shell.
    fn curl(&self, api: &Value) -> String {
        let mut path = self.path.to_owned();
        let mut flags = String::new();
        if self.scope().is_some() {
            flags += " \\\n  -H \"Authorization: Bearer $REFRAIN_TOKEN\"";
        }
        for parameter in self.all_parameters() {
            let name = text(&parameter["name"]);
            let value = example::of(api, parameter);
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            match text(&parameter["in"]) {
                "path" => path = path.replace(&format!("{{{name}}}"), &value),
                "header" if parameter["example"].is_string() => {
                    let _ = write!(flags, " \\\n  -H '{name}: {value}'");
                }
                _ => {}
            }
        }
        let body = &self.what["requestBody"];
        if body.is_object() {
            let _ = write!(flags, " \\\n  --json '{}'", example::of(api, content(body).1));
        }
        let method = match self.method {
            "post" if body.is_object() => "",
            "get" => "",
            _ => " -X POST",
        };
        format!("curl{method} \"$REFRAIN_URL{path}\"{flags}")
    }
}

fn headers(answer: &Value) -> String {
    let headers =
        answer["headers"].as_object().into_iter().flatten().map(|(name, header)| {
            format!("<br><code>{}</code>: {}", escaped(name), inline(text(&header["description"])))
        });
    headers.collect()
}

/// The first media type of a body or an answer, and what it has.
fn content(of: &Value) -> (&str, &Value) {
    let first = of["content"].as_object().and_then(|content| content.iter().next());
    first.map_or(("", &Value::Null), |(media_type, content)| (media_type.as_str(), content))
}

fn shown(example: &Value) -> String {
    format!("<pre>{}</pre>", escaped(&format!("{example:#}")))
}
