//! The shapes of bodies: a table of fields for each, and types in words.

use super::markdown::inline;
use super::{escaped, text};
use serde_json::{Map, Value};
use std::fmt::Write as _;

/// How deep schemas may lie within each other; a description that goes in circles ends here.
pub(super) const MAX_DEPTH: usize = 8;

/// A schema under its name.
pub(super) fn section(api: &Value, name: &str, schema: &Value) -> String {
    let name = escaped(name);
    let mut out = format!("<section id=\"schema-{name}\"><h3><code>{name}</code></h3>");
    if let Some(what) = schema["description"].as_str() {
        let _ = write!(out, "<p>{}</p>", inline(what));
    }
    let mut rows = String::new();
    for (field, (of, needed)) in &fields(api, schema) {
        let _ = write!(
            rows,
            "<tr><td><code>{}</code></td><td>{}</td><td class=\"soft\">{}</td><td>{}</td></tr>",
            escaped(field),
            type_of(of),
            if *needed { "always" } else { "" },
            inline(text(&of["description"]))
        );
    }
    match rows.is_empty() {
        true => _ = write!(out, "<p>{}</p>", type_of(schema)),
        false => out += &format!("<table><tr><th>field</th><th>type</th><th></th><th>what</th></tr>{rows}</table>"),
    }
    out + "</section>"
}

/// The schema that a reference leads to, or the schema itself.
pub(super) fn resolved<'a>(api: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str().and_then(|target| target.rsplit_once('/')) {
        Some((_, name)) => &api["components"]["schemas"][name],
        None => schema,
    }
}

type Fields<'a> = Vec<(&'a str, (&'a Value, bool))>;

/// The fields of an object, those that it takes over from others too.
fn fields<'a>(api: &'a Value, schema: &'a Value) -> Fields<'a> {
    let mut found = Vec::new();
    collect(api, schema, MAX_DEPTH, &mut found);
    found
}

fn collect<'a>(api: &'a Value, schema: &'a Value, depth: usize, found: &mut Fields<'a>) {
    let schema = resolved(api, schema);
    if depth == 0 {
        return;
    }
    for part in schema["allOf"].as_array().into_iter().flatten() {
        collect(api, part, depth - 1, found);
    }
    let needed = schema["required"].as_array().map_or(&[][..], Vec::as_slice);
    let own = schema["properties"].as_object().into_iter().flatten();
    found.extend(own.map(|(name, of)| (name.as_str(), (of, needed.iter().any(|one| one == name)))));
}

/// A type in words, with links to those that have names.
pub(super) fn type_of(schema: &Value) -> String {
    if let Some((_, name)) = schema["$ref"].as_str().and_then(|target| target.rsplit_once('/')) {
        let name = escaped(name);
        return format!("<a href=\"#schema-{name}\"><code>{name}</code></a>");
    }
    for choice in ["oneOf", "anyOf", "allOf"] {
        if let Some(parts) = schema[choice].as_array() {
            let word = if choice == "allOf" { " and " } else { " or " };
            return parts.iter().map(type_of).collect::<Vec<_>>().join(word);
        }
    }
    if let Some(values) = schema["enum"].as_array() {
        return values
            .iter()
            .map(|value| format!("<code>{}</code>", escaped(&plain(value))))
            .collect::<Vec<_>>()
            .join(" ");
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => vec!["any"],
    };
    let named = |name: &&str| match *name {
        "array" => format!("list of {}", type_of(&schema["items"])),
        "object" if schema["additionalProperties"].is_object() => {
            format!("object of {}", type_of(&schema["additionalProperties"]))
        }
        "string" => schema["format"].as_str().map_or("string".to_owned(), escaped),
        other => escaped(other),
    };
    types.iter().map(named).collect::<Vec<_>>().join(" or ") + &bounds(schema.as_object())
}

fn bounds(schema: Option<&Map<String, Value>>) -> String {
    let bound = |name: &str| schema.and_then(|schema| schema.get(name)).map(plain);
    match (bound("minimum"), bound("maximum")) {
        (Some(least), Some(most)) => format!(", {least} to {most}"),
        (Some(least), None) if least != "0" => format!(", from {least}"),
        _ => String::new(),
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
