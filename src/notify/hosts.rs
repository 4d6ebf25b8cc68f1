//! Which hosts webhooks may go to: those that the operator has listed, and at no address of this network that is not listed too.

use super::address::{is_in, is_public};
use ipnet::IpNet;
use reqwest::Url;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The longest URL, in characters.
const MAX_URL: usize = 2_000;

/// The hosts that the operator has listed.
#[derive(Debug, Clone, Default)]
pub struct AllowedHosts {
    hosts: Vec<Listed>,
}

/// One entry of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Listed {
    door: Door,
    host: Host,
    /// It says neither scheme nor port: names may lead to this address, or this net, by any.
    is_bare: bool,
}

/// What is asked of an address: by TLS or not, at which port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Door {
    pub(super) is_tls: bool,
    port: u16,
}

impl Door {
    /// That of a URL; none where its scheme is another one.
    pub(super) fn of(url: &Url) -> Option<Self> {
        let is_tls = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        Some(Self { is_tls, port: url.port_or_known_default()? })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    Name(String),
    /// Any name that ends so, with a point before it.
    Below(String),
    Net(IpNet),
}

/// An entry that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "--webhook-hosts: found {0:?}, expected a host such as hooks.example.org, *.example.org or 10.1.2.0/24, with a port where it is \
     not the usual one, and with http:// before it where there is no TLS"
)]
pub struct HostError(String);

/// Why a URL, or the address that it leads to, is not asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Refused(String);

impl AllowedHosts {
    /// Reads the entries: a name (`hooks.example.org`), all names below one (`*.example.org`), an address, or a net
    /// (`10.1.2.0/24`); with `:port` where it is not the scheme's own, and with `http://` before it for a host without TLS.
    pub fn parse(entries: &[String]) -> Result<Self, HostError> {
        let listed =
            entries.iter().map(|entry| listed(&entry.to_ascii_lowercase()).ok_or_else(|| HostError(entry.clone())));
        Ok(Self { hosts: listed.collect::<Result<_, _>>()? })
    }

    /// All that is asked of any host.
    pub(super) fn doors(&self) -> BTreeSet<Door> {
        self.hosts.iter().map(|listed| listed.door).collect()
    }

    /// A URL that may be asked, as far as it says itself. A name in it may still lead to an address that may not: see
    /// [`AllowedHosts::addresses`].
    pub(super) fn url(&self, text: &str) -> Result<Url, Refused> {
        let refused = |why: String| Err(Refused(why));
        if text.len() > MAX_URL {
            return refused(format!("found {} characters, expected at most {MAX_URL}", text.len()));
        }
        // A URL would be read without some of them, and not every database takes NUL.
        if text.contains(char::is_control) {
            return refused("found a control character, expected none".to_owned());
        }
        // What is not a URL may be a password, so it is not repeated.
        let Ok(url) = Url::parse(text) else {
            return refused("found no URL, expected one such as https://host/path".to_owned());
        };
        let Some(door) = Door::of(&url) else {
            return refused(format!("found the scheme {}, expected https", url.scheme()));
        };
        if !url.username().is_empty() || url.password().is_some() {
            return refused("found a user or password before the host, expected none".to_owned());
        }
        if url.fragment().is_some() {
            return refused("found a fragment (#), expected none".to_owned());
        }
        let Some(host) = url.host_str() else {
            return refused("found no host, expected one".to_owned());
        };
        if !self.hosts.iter().any(|listed| listed.door == door && listed.host.is(host)) {
            return refused(format!(
                "found {}://{host}:{}, expected a host that the operator has listed (--webhook-hosts)",
                url.scheme(),
                door.port
            ));
        }
        // An address in place of a name is in the list itself, or it was refused just now.
        Ok(url)
    }

    /// Of the addresses of a name, those at which this door may be asked.
    pub(super) fn addresses(
        &self,
        name: &str,
        door: Door,
        found: impl Iterator<Item = IpAddr>,
    ) -> Result<Vec<IpAddr>, Refused> {
        let permitted: Vec<IpAddr> = found.filter(|address| self.permits(*address, door)).collect();
        if permitted.is_empty() { Err(not_permitted(name)) } else { Ok(permitted) }
    }

    /// A public address, or one that is listed itself: with this scheme and port, or without any.
    fn permits(&self, address: IpAddr, door: Door) -> bool {
        let is_listed = |listed: &Listed| {
            (listed.is_bare || listed.door == door) && matches!(&listed.host, Host::Net(net) if is_in(address, net))
        };
        is_public(address) || self.hosts.iter().any(is_listed)
    }
}

/// The address is not told: who asks may not be of this network.
fn not_permitted(host: &str) -> Refused {
    Refused(format!(
        "{host} leads to no public address, expected one, or an address that the operator has listed (--webhook-hosts)"
    ))
}

fn listed(entry: &str) -> Option<Listed> {
    let (is_tls, rest) = match entry.split_once("://") {
        Some(("http", rest)) => (false, rest),
        Some(("https", rest)) => (true, rest),
        Some(_) => return None,
        None => (true, entry),
    };
    let usual = if is_tls { 443 } else { 80 };
    if let Ok(net) = rest.parse::<IpNet>() {
        return Some(Listed { door: Door { is_tls, port: usual }, host: Host::Net(net), is_bare: rest == entry });
    }
    let (is_below, rest) = rest.strip_prefix("*.").map_or((false, rest), |rest| (true, rest));
    if rest.is_empty() || !rest.chars().all(|c| c.is_ascii_alphanumeric() || "-._:[]".contains(c)) {
        return None;
    }
    let bare = if rest.parse::<std::net::Ipv6Addr>().is_ok() { format!("[{rest}]") } else { rest.to_owned() };
    let url = Url::parse(&format!("{}://{bare}/", if is_tls { "https" } else { "http" })).ok()?;
    let (host, port) = (url.host_str()?, url.port_or_known_default()?);
    let host = match (literal(host), is_below) {
        (Some(address), false) => Host::Net(address.into()),
        (Some(_), true) => return None,
        (None, true) => Host::Below(format!(".{host}")),
        (None, false) => Host::Name(host.to_owned()),
    };
    Some(Listed { door: Door { is_tls, port }, host, is_bare: literal(entry).is_some() })
}

/// The address that a host is written as, if it is one.
fn literal(host: &str) -> Option<IpAddr> {
    host.trim_matches(['[', ']']).parse().ok()
}

impl Host {
    fn is(&self, host: &str) -> bool {
        match self {
            Host::Name(name) => name == host,
            Host::Below(end) => host.len() > end.len() && host.ends_with(end.as_str()),
            Host::Net(net) => literal(host).is_some_and(|address| is_in(address, net)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn allowed(entries: &[&str]) -> AllowedHosts {
        AllowedHosts::parse(&entries.iter().map(|entry| (*entry).to_owned()).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn a_host_is_listed_with_its_scheme_and_port() {
        let list = allowed(&[
            "Hooks.example.org",
            "other.example.org:8443",
            "*.tenants.example.org",
            "http://plain.example.org:81",
        ]);
        for listed in [
            "https://hooks.example.org/a?b=c",
            "https://HOOKS.example.org:443/a",
            "https://other.example.org:8443/",
            "https://a.tenants.example.org/",
            "https://a.b.tenants.example.org/",
            "http://plain.example.org:81/a",
            "https://hooks.example.org\\@evil.example/",
        ] {
            assert!(list.url(listed).is_ok(), "{listed}: {:?}", list.url(listed));
        }
        for other in [
            "http://hooks.example.org/",
            "https://hooks.example.org:8443/",
            "https://other.example.org/",
            "https://tenants.example.org/",
            "https://atenants.example.org/",
            "https://hooks.example.org.evil.example/",
            "https://hooks.example.org./",
            "https://hooks.example.org@evil.example/",
            "https://user:secret@hooks.example.org/",
            "https://secret@hooks.example.org/",
            "https://hooks.example.org/#a",
            "https://plain.example.org:81/",
            "http://plain.example.org/",
            "https://1.1.1.1/",
            "ftp://hooks.example.org/",
            "file:///etc/passwd",
            "hooks.example.org",
            "",
        ] {
            let refused = list.url(other).unwrap_err();
            assert!(!refused.to_string().contains("secret"), "{refused}");
        }
        assert!(list.url(&format!("https://hooks.example.org/{}", "a".repeat(2_000))).is_err());
        assert!(allowed(&[]).url("https://hooks.example.org/").is_err());
    }

    #[test]
    fn addresses_of_this_network_are_refused_unless_they_are_listed() {
        let list = allowed(&["10.1.2.0/24", "http://127.0.0.1:9000", "[fd00::7]:8443", "1.1.1.1", "*.example.org"]);
        for listed in [
            "https://10.1.2.3/",
            "http://127.0.0.1:9000/a",
            "http://0x7f.1:9000/",
            "http://2130706433:9000/",
            "http://[::ffff:127.0.0.1]:9000/",
            "https://[fd00::7]:8443/",
            "https://1.1.1.1/",
        ] {
            assert!(list.url(listed).is_ok(), "{listed}: {:?}", list.url(listed));
        }
        for other in
            ["https://10.1.3.1/", "http://127.0.0.2:9000/", "http://127.0.0.1:9001/", "https://[fd00::8]:8443/"]
        {
            assert!(list.url(other).is_err(), "{other}");
        }
    }

    #[test]
    fn a_name_is_asked_at_its_public_and_listed_addresses_alone() {
        let list = allowed(&["hooks.example.org", "10.1.2.0/24"]);
        let of = |found: &[&str]| {
            let found = found.iter().map(|address| address.parse().unwrap());
            let door = Door { is_tls: true, port: 443 };
            list.addresses("hooks.example.org", door, found)
                .map(|left| left.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(of(&["1.1.1.1", "127.0.0.1", "10.1.2.9"]).unwrap(), ["1.1.1.1", "10.1.2.9"]);
        let refused = of(&["169.254.169.254", "::1", "::ffff:10.0.0.1", "10.1.3.1"]).unwrap_err().to_string();
        assert!(
            refused.contains("hooks.example.org leads to no public address") && !refused.contains("169"),
            "{refused}"
        );
        assert!(of(&[]).is_err());
    }

    #[test]
    fn an_address_that_is_listed_with_scheme_and_port_opens_no_other_door() {
        let list = allowed(&[
            "http://127.0.0.1:9999",
            "127.0.0.2:8443",
            "https://127.0.0.3",
            "http://127.1.0.0/16",
            "127.0.0.4",
            "::1",
            "[fd00::1]",
        ]);
        let permits = |address: &str, is_tls, port| list.permits(address.parse().unwrap(), Door { is_tls, port });
        for (address, is_tls, port) in
            [("127.0.0.1", false, 9999), ("127.0.0.2", true, 8443), ("127.0.0.3", true, 443), ("127.1.2.3", false, 80)]
        {
            assert!(permits(address, is_tls, port), "{address}");
            assert!(!permits(address, !is_tls, port), "{address} by the other scheme");
            assert!(!permits(address, is_tls, port + 1), "{address} at another port");
        }
        for bare in ["127.0.0.4", "::1", "fd00::1"] {
            assert!(permits(bare, true, 443) && permits(bare, false, 81), "{bare}");
        }
    }

    #[test]
    fn entries_that_say_more_than_a_host_are_refused() {
        for wrong in [
            "",
            "*",
            "*.",
            "https://",
            "ftp://h",
            "h/a",
            "h?a",
            "u@h",
            "10.1.2.0/33",
            "*.10.1.2.3",
            "a,b",
            "h:99999",
            "a b",
            "*.*.example.org",
        ] {
            let error = AllowedHosts::parse(&[wrong.to_owned()]).unwrap_err();
            assert!(error.to_string().starts_with(&format!("--webhook-hosts: found {wrong:?}, expected")), "{error}");
        }
    }
}
