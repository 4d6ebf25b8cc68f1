//! The escaping of folder names, as Hive and Spark do it.

/// Writes `text` with the characters that Hive escapes percent-encoded.
pub(super) fn escape_into(text: &str, out: &mut String) {
    for c in text.chars() {
        if is_escaped(c) {
            let byte = u32::from(c);
            out.push('%');
            for digit in [byte >> 4, byte & 0xf] {
                out.extend(char::from_digit(digit, 16).map(|d| d.to_ascii_uppercase()));
            }
        } else {
            out.push(c);
        }
    }
}

/// The escaped form of `text`.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    escape_into(text, &mut out);
    out
}

/// What an escaped text means. Lenient, so that an error can give the canonical form: a `%` that starts no escape
/// means itself.
pub(super) fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%').then(|| hex_pair(bytes.get(at + 1..at + 3)?)).flatten();
        out.push(escaped.unwrap_or(bytes[at]));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
}

fn is_escaped(c: char) -> bool {
    matches!(c, '\u{1}'..='\u{1f}' | '\u{7f}')
        || matches!(c, '"' | '#' | '%' | '\'' | '*' | '/' | ':' | '=' | '?' | '\\' | '{' | '[' | ']' | '^')
}

fn hex_pair(pair: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|d| u8::try_from(d).ok());
    Some(digit(*pair.first()?)? * 16 + digit(*pair.get(1)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_characters_of_hive_are_escaped() {
        let escaped: Vec<char> = ('\u{1}'..='\u{ff}').filter(|c| escape(&c.to_string()) != c.to_string()).collect();
        let control = ('\u{1}'..='\u{1f}').collect::<Vec<_>>();
        let mut expected = [control, "\"#%'*/:=?\\{[]^\u{7f}".chars().collect()].concat();
        expected.sort_unstable();
        assert_eq!(escaped, expected);
    }

    #[test]
    fn escapes_are_upper_case_and_come_back() {
        for (text, escaped) in [
            ("a/b", "a%2Fb"),
            ("a:b", "a%3Ab"),
            ("a b", "a b"),
            ("a%2Fb", "a%252Fb"),
            ("..", ".."),
            ("é}", "é}"),
            ("\u{1}\u{1f}\u{7f}", "%01%1F%7F"),
        ] {
            assert_eq!(escape(text), escaped);
            assert_eq!(unescape(escaped), text);
        }
        assert_eq!([unescape("50%"), unescape("%zz%2"), unescape("%2f")], ["50%", "%zz%2", "/"]);
    }
}
