//! As much of Markdown as the page's texts have: headings, paragraphs, lists, code, bold and slanted.

use super::escaped;

/// Blocks apart by empty lines. Headings of the third rank can be linked to by `problem-` and their text.
pub(super) fn render(text: &str) -> String {
    text.split("\n\n").map(|block| self::block(block.trim())).collect()
}

fn block(block: &str) -> String {
    if block.is_empty() {
        return String::new();
    }
    if let Some(name) = block.strip_prefix("### ") {
        return format!("<h3 id=\"problem-{}\"><code>{}</code></h3>", escaped(name), escaped(name));
    }
    if let Some(heading) = block.strip_prefix("## ").or(block.strip_prefix("# ")) {
        let rank = if block.starts_with("## ") { 3 } else { 2 };
        return format!("<h{rank}>{}</h{rank}>", inline(heading));
    }
    if let Some(first) = block.strip_prefix("- ") {
        let items = first.split("\n- ").map(|item| format!("<li>{}</li>", inline(item)));
        return format!("<ul>{}</ul>", items.collect::<String>());
    }
    format!("<p>{}</p>", inline(block))
}

/// A line or a paragraph.
pub(super) fn inline(text: &str) -> String {
    let mut out = String::new();
    for (i, part) in text.split('`').enumerate() {
        out += &if i % 2 == 1 { format!("<code>{}</code>", escaped(part)) } else { marked(&escaped(part)) };
    }
    out
}

/// Bold and slanted, in a text without code.
fn marked(text: &str) -> String {
    let bold = pairs(text, "**", "strong");
    pairs(&bold, "*", "em")
}

/// What stands between two marks becomes an element; a mark without another stays.
fn pairs(text: &str, mark: &str, element: &str) -> String {
    let parts: Vec<&str> = text.split(mark).collect();
    let mut out = String::new();
    for (i, part) in parts.iter().enumerate() {
        match i % 2 {
            1 if i + 1 < parts.len() => out += &format!("<{element}>{part}</{element}>"),
            1 => out += &format!("{mark}{part}"),
            _ => out += part,
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_become_elements() {
        let text = "# T\n\n### a-b\n\n*x*. One `<c> *d*`\ntwo 3 * 4\n\n- **Cause**: p\n- q\n";
        assert_eq!(
            render(text),
            "<h2>T</h2><h3 id=\"problem-a-b\"><code>a-b</code></h3><p><em>x</em>. One <code>&lt;c&gt; *d*</code>\ntwo \
             3 * 4</p><ul><li><strong>Cause</strong>: p</li><li>q</li></ul>"
        );
    }
}
