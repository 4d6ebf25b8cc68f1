//! URLs as source paths: how they are written in a pipeline, and how they are shown.

/// How a URL starts, in whatever case it is written.
const STARTS: [&str; 2] = ["https://", "http://"];
/// What ends a URL in a text, as a blank does.
const QUOTES: [char; 2] = ['"', '\''];

/// Whether a source path is a URL.
pub fn is_url(path: &str) -> bool {
    STARTS.iter().any(|start| path.get(..start.len()).is_some_and(|found| found.eq_ignore_ascii_case(start)))
}

/// A source path as it may be shown: the query of a URL may hold what opens the door (tokens, signatures).
pub fn shown(path: &str) -> &str {
    match path.split_once('?') {
        Some((before, _)) if is_url(path) => before,
        _ => path,
    }
}

/// The server of a URL, where its path may be a secret too: scheme, host and port.
pub fn server_of(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + 3);
    url.get(host..).and_then(|rest| rest.find(['/', '?', '#'])).and_then(|end| url.get(..host + end)).unwrap_or(url)
}

/// The causes of an error of a request, none where it has none. The outermost error is left out: it says little but the URL, whose
/// query may hold what must not be shown.
pub fn causes(error: &dyn std::error::Error) -> Option<String> {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    let texts: Vec<String> = causes.map(ToString::to_string).collect();
    (!texts.is_empty()).then(|| texts.join(": "))
}

/// A text with the URLs in it as they may be shown. A URL ends at a blank or a quote, and before the punctuation there.
pub fn shown_in(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    // As long as the text, byte for byte.
    let lower = text.to_ascii_lowercase();
    let next = |rest: &str| {
        let (_, lower) = lower.split_at(lower.len() - rest.len());
        STARTS.iter().filter_map(|start| lower.find(start)).min()
    };
    let mut rest = text;
    while let Some(at) = next(rest) {
        let (before, url) = rest.split_at(at);
        let (url, after) =
            url.split_at(url.find(|c: char| c.is_whitespace() || QUOTES.contains(&c)).unwrap_or(url.len()));
        let end = url.trim_end_matches([':', ';', ',', ')']).len();
        let (url, punctuation) = url.split_at(end);
        out.extend([before, shown(url), punctuation]);
        rest = after;
    }
    out.push_str(rest);
    out
}

/// One spelling for one URL, and what a pipeline may not say in one; none where it is no URL. Messages do not repeat what
/// may be a password.
pub(super) fn tidy(written: &str) -> Result<Option<String>, String> {
    let Some((scheme, rest)) = written.split_once("://") else { return Ok(None) };
    let lower = scheme.to_ascii_lowercase();
    if !matches!(lower.as_str(), "https" | "http") {
        let is_scheme = !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
        let unknown = || format!("found the scheme {scheme}, expected https, http, or a path of files");
        return if is_scheme { Err(unknown()) } else { Ok(None) };
    }
    let (host, path) = rest.split_at(rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len()));
    if host.contains('@') {
        return Err(
            "a URL with a user or password before its host, expected none: a definition is shown to all".to_owned()
        );
    }
    if host.is_empty() || !host.chars().all(|c| c.is_ascii_alphanumeric() || "-._:[]".contains(c)) {
        return Err(format!("found {host:?} as the host of a URL, expected a name or an address, without fields"));
    }
    if path.contains(['*', '[', ']']) {
        return Err("a URL with * or [, expected a plain one or one with strftime fields: no server lists its files; \
                    as characters of the URL they are written %%2A, %%5B and %%5D"
            .to_owned());
    }
    if path.contains(['#', '\\'])
        || path.contains(QUOTES)
        || path.contains(char::is_whitespace)
        || path.contains(char::is_control)
    {
        return Err(
            "a URL with #, \\, a quote or a blank, expected none of them: as characters of the URL they are written \
                    %%23, %%5C, %%22, %%27 and %%20"
                .to_owned(),
        );
    }
    Ok(Some(format!("{lower}://{}{path}", host.to_ascii_lowercase())))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn urls_are_told_from_paths_and_have_one_spelling() {
        for path in ["a/b.csv", "/a/b.csv", "http:/a", "a/b://c", "://a", "a:b/c"] {
            assert_eq!((tidy(path), is_url(path)), (Ok(None), false), "{path}");
        }
        assert_eq!(
            tidy("HTTPS://Data.Example.org:8443/A//b?C=d").unwrap().unwrap(),
            "https://data.example.org:8443/A//b?C=d"
        );
        assert_eq!(tidy("http://[::1]:80/a").unwrap().unwrap(), "http://[::1]:80/a");
        assert!(is_url("https://h/a") && is_url("http://h") && is_url("HttpS://h/a") && !is_url("http:/ä/a"));
    }

    #[test]
    fn wrong_urls_say_why() {
        for (url, reason) in [
            ("s3://bucket/a", "found the scheme s3, expected https"),
            ("https://", "as the host of a URL"),
            ("https:///a", "as the host of a URL"),
            ("https://h-%Y/a", "as the host of a URL"),
            ("https://h/a*.csv", "no server lists"),
            ("https://h/[ab].csv", "no server lists"),
            ("https://h/a b", "a blank"),
            ("https://h/a?b='c'", "a quote"),
            ("https://h/a#b", "a URL with #"),
            ("https://h\\@i/a", "a URL with #, \\"),
        ] {
            let error = tidy(url).unwrap_err();
            assert!(error.contains(reason), "{url}: {error}");
        }
        let error = tidy("https://ann:secret@h/a").unwrap_err();
        assert!(error.contains("user or password") && !error.contains("secret"), "{error}");
    }

    #[test]
    fn queries_are_not_shown() {
        assert_eq!(
            [shown("https://h/a.gz?k=v"), shown("https://h/a"), shown("a?.csv")],
            ["https://h/a.gz", "https://h/a", "a?.csv"]
        );
        assert_eq!(
            shown_in("https://h/a?k=1: is gone; see (http://i/b?k=2), https://h/c or a?b: https://h/d?k=3"),
            "https://h/a: is gone; see (http://i/b), https://h/c or a?b: https://h/d"
        );
        assert_eq!(shown_in("nothing?"), "nothing?");
        assert_eq!([shown("HTTPS://h/a?k=v"), shown("Http://h/a?k")], ["HTTPS://h/a", "Http://h/a"]);
        assert_eq!(
            shown_in("é HTTPS://h/a?k=1 İ Http://h/b?k: hTTp://h/c?k"),
            "é HTTPS://h/a İ Http://h/b: hTTp://h/c"
        );
        assert_eq!(
            shown_in("path = [\"https://h/a?k\",'http://h/b?k']\n?"),
            "path = [\"https://h/a\",'http://h/b']\n?"
        );
    }
}
