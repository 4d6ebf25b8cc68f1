//! Rust source as the tidy rules see it: files, and the paths that their code names.

use std::fs;
use std::path::{Path, PathBuf};

/// A source file.
pub(super) struct Source {
    /// From the package's root, with slashes.
    pub(super) path: String,
    /// As it is.
    pub(super) text: String,
}

/// The `.rs` files below a folder of the package, sorted.
pub(super) fn sources(folder: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    walk(&root.join(folder), &mut found);
    found.retain(|path| path.extension().is_some_and(|ext| ext == "rs"));
    found.sort();
    assert!(!found.is_empty(), "no source in {folder}");
    let read = |path: PathBuf| Source {
        text: fs::read_to_string(&path).unwrap(),
        path: path.strip_prefix(root).unwrap().to_str().unwrap().to_owned(),
    };
    found.into_iter().map(read).collect()
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { walk(&path, found) } else { found.push(path) }
    }
}

impl Source {
    /// The module path: `["store", "postgres"]` for `src/store/postgres.rs`, `["main"]` for `src/main.rs`.
    pub(super) fn module(&self) -> Vec<&str> {
        let mut parts: Vec<&str> = self.path.trim_end_matches(".rs").split('/').skip(1).collect();
        if parts.len() > 1 && parts.last() == Some(&"mod") {
            parts.pop();
        }
        parts
    }

    /// Every path that the code names, with groups taken apart: `use a::{b, c::d}` gives `a::b` and `a::c::d`. Comments,
    /// literals and `#[cfg(test)]` items are left out.
    pub(super) fn paths(&self) -> Vec<Vec<String>> {
        if self.path.ends_with("/tests.rs") || self.path.ends_with("_tests.rs") {
            return Vec::new();
        }
        let tokens = tokens(&without_tests(&blanked(&self.text)));
        let mut found = Vec::new();
        let mut at = 0;
        while at < tokens.len() {
            if is_name(&tokens[at]) && (at == 0 || tokens[at - 1] != "::") {
                at = path(&tokens, at, &[], &mut found);
            } else {
                at += 1;
            }
        }
        found
    }
}

/// Reads one path (or group of paths) from `at` on; answers where it ends.
fn path(tokens: &[String], mut at: usize, prefix: &[String], found: &mut Vec<Vec<String>>) -> usize {
    let mut names = prefix.to_vec();
    loop {
        match tokens.get(at).map(String::as_str) {
            Some("{") => {
                at += 1;
                while at < tokens.len() && tokens[at] != "}" {
                    at = match tokens[at].as_str() {
                        "as" => at + 2,
                        token if is_name(token) => path(tokens, at, &names, found),
                        _ => at + 1,
                    };
                }
                return at + 1;
            }
            Some(token) if is_name(token) => {
                names.push(token.to_owned());
                at += 1;
            }
            _ => break,
        }
        if tokens.get(at).map(String::as_str) != Some("::") {
            break;
        }
        at += 1;
    }
    found.push(names);
    at
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Names, `::`, and every other visible character by itself.
fn tokens(code: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let taken = match first {
            c if c.is_alphanumeric() || c == '_' => {
                rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
            }
            ':' if rest.starts_with("::") => 2,
            c => c.len_utf8(),
        };
        if !first.is_whitespace() {
            found.push(rest[..taken].to_owned());
        }
        rest = &rest[taken..];
    }
    found
}

/// The code with comments and literals replaced by blanks; lines stay.
fn blanked(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let after_name = code.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let taken = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => block_comment(rest),
            '"' => quoted(rest),
            'r' if !after_name && raw_string(rest).is_some() => raw_string(rest).unwrap(),
            '\'' => character(rest).unwrap_or(0),
            _ => 0,
        };
        if taken == 0 {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            code.extend(rest[..taken].chars().map(|c| if c == '\n' { c } else { ' ' }));
            rest = &rest[taken..];
        }
    }
    code
}

fn block_comment(text: &str) -> usize {
    text.find("*/").map_or(text.len(), |end| end + 2)
}

fn quoted(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn raw_string(text: &str) -> Option<usize> {
    let hashes = text[1..].chars().take_while(|c| *c == '#').count();
    let body = text[1 + hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(body.find(&end).map_or(text.len(), |at| 2 + hashes + at + end.len()))
}

/// The length of a character literal; none for a lifetime.
fn character(text: &str) -> Option<usize> {
    let mut chars = text.char_indices().skip(1);
    match chars.next()?.1 {
        '\\' => chars.skip(1).find(|(_, c)| *c == '\'').map(|(at, _)| at + 1),
        _ => chars.next().filter(|(_, c)| *c == '\'').map(|(at, _)| at + 1),
    }
}

/// The code without `#[cfg(test)]` items. An item ends, as rustfmt writes it, at the first line of its own indentation
/// that closes it.
fn without_tests(code: &str) -> String {
    let mut kept = String::new();
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        if line.trim() != "#[cfg(test)]" {
            kept.push_str(line);
            kept.push('\n');
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        for line in lines.by_ref() {
            let inner = line.trim();
            let own = !inner.is_empty() && line.len() - line.trim_start().len() == indent;
            if own && (inner.starts_with('}') || inner.ends_with(';') || inner.ends_with("{}")) {
                break;
            }
        }
    }
    kept
}

#[test]
fn paths_are_read_as_the_compiler_reads_them() {
    let text = concat!(
        "use a::{b, c::{self, d as e}};\n",
        "// use no::comment;\n/* no::block */ /// no::doc\n",
        "fn f<'x>(s: &'x str) -> g::H { let c = ['\"', '\\'', 'y']; i::j(\"no::text\", r#\"no::\"raw\"#) }\n",
        "#[cfg(test)]\nmod tests {\n    use no::test;\n}\nuse after::it;\n",
    );
    let source = Source { path: "src/store/postgres.rs".to_owned(), text: text.to_owned() };
    let found: Vec<String> = source.paths().iter().filter(|p| p.len() > 1).map(|p| p.join("::")).collect();
    assert_eq!(found, ["a::b", "a::c::self", "a::c::d", "g::H", "i::j", "after::it"]);
    assert_eq!(source.module(), ["store", "postgres"]);
}
