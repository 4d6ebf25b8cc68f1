//! Examples: those that the description has, and where it has none one that its schemas allow.

use super::schema::{MAX_DEPTH, resolved};
use serde_json::{Map, Value, json};

/// An example of a parameter, or of a body or an answer of one media type.
pub(super) fn of(api: &Value, described: &Value) -> Value {
    given(described).unwrap_or_else(|| made(api, &described["schema"], MAX_DEPTH))
}

/// What the description itself gives.
fn given(described: &Value) -> Option<Value> {
    let first = described["examples"].as_array().and_then(|examples| examples.first());
    [Some(&described["example"]), first, Some(&described["default"])]
        .into_iter()
        .flatten()
        .find(|value| !value.is_null())
        .cloned()
}

fn made(api: &Value, schema: &Value, depth: usize) -> Value {
    let schema = resolved(api, schema);
    if depth == 0 {
        return Value::Null;
    }
    if let Some(given) = given(schema) {
        return given;
    }
    if let Some(first) = schema["enum"].as_array().and_then(|values| values.first()) {
        return first.clone();
    }
    for choice in ["oneOf", "anyOf"] {
        if let Some(parts) = schema[choice].as_array() {
            let part = parts.iter().find(|part| part["type"] != "null");
            return part.map_or(Value::Null, |part| made(api, part, depth - 1));
        }
    }
    if let Some(parts) = schema["allOf"].as_array() {
        let objects = parts.iter().map(|part| made(api, part, depth - 1));
        return objects.filter_map(|object| object.as_object().cloned()).flatten().collect::<Map<_, _>>().into();
    }
    let name = schema["type"].as_str().or_else(|| schema["type"].as_array()?.first()?.as_str()).unwrap_or_default();
    match (name, schema["format"].as_str()) {
        ("object", _) => {
            let fields = schema["properties"].as_object().into_iter().flatten();
            fields.map(|(name, of)| (name.clone(), made(api, of, depth - 1))).collect::<Map<_, _>>().into()
        }
        ("array", _) => json!([made(api, &schema["items"], depth - 1)]),
        ("string", Some("date-time")) => "2024-03-01T06:00:00Z".into(),
        ("string", Some("uuid")) => "01a2279b-6a91-771c-9cd3-d0d5bb9a7f9c".into(),
        ("string", _) => "…".into(),
        ("integer" | "number", _) => schema["minimum"].as_u64().unwrap_or(0).into(),
        ("boolean", _) => false.into(),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_comes_first_and_circles_end() {
        let api = json!({"components": {"schemas": {
            "Pair": {"allOf": [
                {"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}}},
                {"type": "object", "properties": {"b": {"oneOf": [{"type": "null"}, {"type": "string", "example": "x"}]}}},
            ]},
            "Circle": {"type": "array", "items": {"$ref": "#/components/schemas/Circle"}},
        }}});
        let of = |name: &str| of(&api, &json!({"schema": {"$ref": format!("#/components/schemas/{name}")}}));
        assert_eq!(of("Pair"), json!({"a": 3, "b": "x"}));
        assert_eq!(of("Circle").to_string(), "[[[[[[[[null]]]]]]]]");
        assert_eq!(super::of(&api, &json!({"example": 7, "schema": {"type": "string"}})), json!(7));
    }
}
