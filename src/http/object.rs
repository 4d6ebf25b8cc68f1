//! Reading bodies: JSON with every error at its place. Pure.

use super::problem::{FieldError, Problem};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_path_to_error::{Path, Segment};

/// The JSON object that a body is, with every error at its place.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    // Read once for its grammar alone: a wrong field before a broken end is broken JSON and not a wrong field.
    serde_json::from_slice::<IgnoredAny>(body).map_err(|e| Problem::NotJson(format!("the body is not JSON: {e}")))?;
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(Problem::InvalidRequest(vec![FieldError::new("", "expected a JSON object")]));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let pointer = pointer(error.path());
        if !error.inner().is_data() {
            // Such as half a surrogate pair, which the first reading passes over.
            return Problem::NotJson(format!("the body is not JSON: {}", error.inner()));
        }
        let text = error.into_inner().to_string();
        let detail = text.split(" at line ").next().unwrap_or_default();
        Problem::InvalidRequest(vec![FieldError::new(pointer, detail)])
    })
}

/// Where in the body a field is.
fn pointer(path: &Path) -> String {
    let mut pointer = String::new();
    for segment in path.iter() {
        match segment {
            Segment::Seq { index } => pointer.push_str(&format!("/{index}")),
            Segment::Map { key } | Segment::Enum { variant: key } => pointer.push_str(&member(key)),
            Segment::Unknown => {}
        }
    }
    pointer
}

/// One step of a JSON pointer.
pub(super) fn member(key: &str) -> String {
    format!("/{}", key.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Small {
        #[expect(dead_code, reason = "only its type matters")]
        list: Option<Vec<u8>>,
    }

    fn outcome(body: &str) -> Result<Small, Problem> {
        read(body.as_bytes())
    }

    fn field(body: &str) -> FieldError {
        match outcome(body).unwrap_err() {
            Problem::InvalidRequest(errors) => errors.into_iter().next().unwrap(),
            other => panic!("expected a field error, found {other:?}"),
        }
    }

    #[test]
    fn what_is_not_json_is_told_from_what_is_of_the_wrong_shape() {
        for broken in ["", "{", "{not json", r#"{"nope": 1, "#, r#"{"list": []} x"#, "\u{1}", r#"{"\ud800": 1}"#] {
            assert!(matches!(outcome(broken), Err(Problem::NotJson(_))), "{broken:?}");
        }
        assert_eq!(field("[]").pointer, "");
        assert_eq!(field(r#"{"list": [1, "x"]}"#).pointer, "/list/1");
        assert_eq!(field(r#"{"nope": 1}"#).detail, "unknown field `nope`, expected `list`");
        assert_eq!(field(r#"{"list": [], "list": []}"#).detail, "duplicate field `list`");
        assert!(outcome(r#"{"list": null}"#).is_ok());
    }

    #[test]
    fn pointers_are_escaped() {
        assert_eq!(member("a/b~c"), "/a~1b~0c");
    }
}
