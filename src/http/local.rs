//! Whether a request is of this machine. That it comes over the loopback does not say so: a browser here sends what a page from
//! anywhere asks for, and the page's own name may lead to 127.0.0.1 by then (DNS rebinding).

use super::problem::Denied;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, Uri, header};
use std::net::IpAddr;

/// How much of a header is told again.
const TOLD_CHARS: usize = 100;

/// Refuses what names another host, or is sent by a page of another site. A program may leave out both; a browser names the
/// host always, and the site with all that could change something.
pub(super) fn check(uri: &Uri, headers: &HeaderMap) -> Result<(), Denied> {
    let named = uri.authority().map(|authority| authority.as_str().to_owned());
    let mut hosts = named.into_iter().chain(texts(headers, header::HOST));
    if let Some(host) = hosts.find(|host| !is_local(host)) {
        return Err(foreign("Host", &host));
    }
    match texts(headers, header::ORIGIN).find(|origin| !is_local_site(origin)) {
        Some(origin) => Err(foreign("Origin", &origin)),
        None => Ok(()),
    }
}

fn texts(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = String> {
    headers.get_all(name).into_iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

fn foreign(header: &'static str, found: &str) -> Denied {
    Denied::ForeignRequest { header, found: found.chars().take(TOLD_CHARS).collect() }
}

/// Any port will do.
fn is_local(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    let is_loopback = |address: IpAddr| address.to_canonical().is_loopback();
    !host.contains('@') && (name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(is_loopback))
}

fn is_local_site(origin: &str) -> bool {
    let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    host.is_some_and(is_local)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_known_by_name_and_address() {
        for local in
            ["localhost", "LocalHost:8080", "127.0.0.1", "127.9.8.7:80", "[::1]", "[::1]:8080", "[::ffff:127.0.0.1]:1"]
        {
            assert!(is_local(local) && is_local_site(&format!("http://{local}")), "{local}");
        }
        for foreign in [
            "",
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "127.0.0.1@evil.example",
            "evil.example@127.0.0.1",
            "10.0.0.1",
            "0.0.0.0",
            "[::]",
            "[fe80::1]",
            "2130706433",
            "localhost/",
            "localhost evil.example",
        ] {
            assert!(!is_local(foreign) && !is_local_site(&format!("https://{foreign}")), "{foreign}");
        }
        for foreign in ["null", "localhost", "file://localhost", "chrome-extension://localhost", "http://localhost/"] {
            assert!(!is_local_site(foreign), "{foreign}");
        }
    }
}
