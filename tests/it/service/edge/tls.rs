//! TLS, by certificates that are exchanged while the service runs.

use super::certificates::{Authority, Signed};
use super::raw::{connect, silent, trickle};
use super::{SOON, metric, place};
use crate::service::cli::refrain_with;
use crate::service::slow::wait_until_unwell;
use crate::service::{Place, Server};
use refrain::edge::tls::Certificates;
use reqwest::tls::{TlsInfo, Version};
use rustix::process::Signal;
use serde_json::json;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// A server that speaks TLS by a certificate that was mounted.
async fn secured(place: &Place, signed: &Signed, flags: &[&str]) -> Server {
    let (cert, key) = signed.mount(&place.path("tls"), "1");
    let tls = ["--tls-cert-file", cert.to_str().unwrap(), "--tls-key-file", key.to_str().unwrap()];
    place.start_with(&[&tls[..], flags].concat(), &[]).await
}

/// A client that takes what the authority has signed, and nothing else.
fn client(authority: &Authority, newest: Version) -> reqwest::Client {
    let root = reqwest::Certificate::from_pem(authority.pem()).unwrap();
    let builder = reqwest::Client::builder().no_proxy().tls_certs_only([root]).tls_info(true);
    builder.tls_version_max(newest).timeout(SOON).build().unwrap()
}

/// The certificate that the server shows now, to somebody who has no session with it that could go on.
async fn shown(server: &Server, authority: &Authority, newest: Version) -> Vec<u8> {
    let client = client(authority, newest);
    let answer = client.get(format!("{}/healthz", server.url())).send().await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.version()), (200, reqwest::Version::HTTP_11));
    answer.extensions().get::<TlsInfo>().unwrap().peer_certificate().unwrap().to_vec()
}

async fn wait_until_shown(server: &Server, authority: &Authority, signed: &Signed) {
    let end = Instant::now() + SOON;
    while shown(server, authority, Version::TLS_1_3).await != signed.der {
        assert!(Instant::now() < end, "{}", server.log_tail());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_exchanged_while_the_service_runs() {
    let (place, authority) = (place().await, Authority::new());
    let (first, second, third) = (authority.sign(2090), authority.sign(2091), authority.sign(2092));
    let server = secured(&place, &first, &[]).await;
    let folder = place.path("tls");
    for version in [Version::TLS_1_2, Version::TLS_1_3] {
        assert_eq!(shown(&server, &authority, version).await, first.der);
    }
    // A connection that is open goes on.
    let kept = reqwest::Client::builder().no_proxy().tls_danger_accept_invalid_certs(true).build().unwrap();
    let ask = async || kept.get(format!("{}/readyz", server.url())).send().await.unwrap().text().await.unwrap();
    assert!(ask().await.contains("2090-01-01"));

    second.mount(&folder, "2");
    wait_until_shown(&server, &authority, &second).await;
    assert!(ask().await.contains("2091-01-01"), "{}", ask().await);
    let left = metric(&server, "refrain_tls_certificate_expires_seconds").await;
    assert!(left > 60.0 * 365.0 * 86_400.0, "{left}");

    // A certificate without its key: the one before stays, and it is told.
    Signed { cert: third.cert.clone(), key: second.key.clone(), der: Vec::new() }.mount(&folder, "3");
    wait_until_unwell(&server, 200, &["tls", "cannot be used with the key in", "2091-01-01"]).await;
    assert_eq!(shown(&server, &authority, Version::TLS_1_3).await, second.der);
    fs::remove_file(folder.join("..data")).unwrap();
    server.signal(Signal::HUP);
    wait_until_unwell(&server, 200, &["tls", "cannot read"]).await;
    assert_eq!(shown(&server, &authority, Version::TLS_1_3).await, second.der);
    third.mount(&folder, "4");
    server.signal(Signal::HUP);
    wait_until_shown(&server, &authority, &third).await;
    let end = Instant::now() + SOON;
    while server.get("/readyz").await.json()["degraded"] != false {
        assert!(Instant::now() < end, "it stays unwell");
    }
    assert!(!server.log().contains("PRIVATE KEY"));
}

/// Whoever waits for the next look of the server waits for two seconds.
#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_read_at_once_when_it_is_asked() {
    let (place, authority) = (place().await, Authority::new());
    let server = secured(&place, &authority.sign(2090), &[]).await;
    let mut fastest = SOON;
    for (number, year) in [(2, 2091), (3, 2092), (4, 2093)] {
        let signed = authority.sign(year);
        let since = Instant::now();
        signed.mount(&place.path("tls"), &number.to_string());
        server.signal(Signal::HUP);
        wait_until_shown(&server, &authority, &signed).await;
        // The first one may have come with a look of the server, which the others come right after.
        fastest = if number == 2 { fastest } else { fastest.min(since.elapsed()) };
    }
    assert!(fastest < Duration::from_millis(1500), "{fastest:?}");
}

/// As `openssl ecparam -genkey` and `openssl genrsa -traditional` write them.
#[test]
fn keys_of_older_kinds_are_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/service/edge/keys");
    for (kind, first) in [("sec1", "-----BEGIN EC PRIVATE KEY-----"), ("pkcs1", "-----BEGIN RSA PRIVATE KEY-----")] {
        let (cert, key) = (folder.join(format!("{kind}.crt")), folder.join(format!("{kind}.key")));
        assert!(fs::read_to_string(&key).unwrap().starts_with(first));
        let read = Certificates::load(&cert, &key).and_then(|read| read.tls().map(drop));
        assert_eq!(read, Ok(()), "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_ends_soon_is_told() {
    let (place, authority) = (place().await, Authority::new());
    let server = secured(&place, &authority.sign(2090), &["--tls-expiry-days", "40000"]).await;
    wait_until_unwell(&server, 200, &["tls", "2090-01-01", "hours"]).await;
    authority.sign(2001).mount(&place.path("tls"), "2");
    server.signal(Signal::HUP);
    wait_until_unwell(&server, 200, &["2001-01-01", "which is over"]).await;
    let end = Instant::now() + SOON;
    while metric(&server, "refrain_tls_certificate_expires_seconds").await >= 0.0 {
        assert!(Instant::now() < end, "the gauge does not say so");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_speak_tls_is_told_or_dropped() {
    let (place, authority) = (place().await, Authority::new());
    let server = secured(&place, &authority.sign(2090), &["--header-timeout-seconds", "1"]).await;
    let address = server.address();
    let plain = silent(connect(address).await, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    for expected in ["HTTP/1.1 400 ", "application/problem+json", "urn:refrain:problem:tls-expected", "https"] {
        assert!(plain.answer.contains(expected), "{plain:?}");
    }
    plain.within(0.0, 3.0);
    // A record of a handshake, of 512 bytes.
    let hello = [&[0x16, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3], &[0; 500][..]].concat();
    let (slow, half, nothing) = tokio::join!(
        async { trickle(connect(address).await, &hello).await },
        async { silent(connect(address).await, &hello[..100]).await },
        async { silent(connect(address).await, b"").await },
    );
    for closed in [slow, half, nothing] {
        closed.within(0.8, 4.0);
        assert_eq!(closed.answer, "");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_takes_the_authority_that_it_is_told() {
    let (place, authority) = (place().await, Authority::new());
    let signed = authority.sign(2090);
    let server = secured(&place, &signed, &[]).await;
    let (ca, cert) = (place.path("ca.pem"), place.path("tls/tls.crt"));
    authority.write(&ca);
    let (url, ca, cert) = (server.url(), ca.to_str().unwrap(), cert.to_str().unwrap());
    let ran =
        refrain_with(&["run", "quick", "2024-02", "--key", "k", "--wait", "--url", url, "--ca-file", ca], &[]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let status = refrain_with(&["status", "--json"], &[("REFRAIN_URL", url), ("REFRAIN_CA_FILE", ca)]).await;
    assert_eq!((status.code, &status.json()["runs"][0]["state"]), (0, &json!("succeeded")), "{status:?}");
    let wrong = refrain_with(&["status", "--url", url, "--ca-file", place.path("raw").to_str().unwrap()], &[]).await;
    assert!(wrong.code == 2 && wrong.err.contains("cannot read certificates in"), "{wrong:?}");

    let asked = |arguments: &'static [&'static str], environment: Vec<(&'static str, String)>| async move {
        let environment: Vec<_> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        refrain_with(arguments, &environment).await.code
    };
    let listen = ("REFRAIN_LISTEN", server.address().to_owned());
    assert_eq!(asked(&["healthcheck"], vec![listen.clone(), ("REFRAIN_TLS_CERT_FILE", cert.to_owned())]).await, 0);
    assert_eq!(asked(&["healthcheck"], vec![listen]).await, 1, "it does not speak TLS");
    let by_url = |trust: &str| refrain_with_url(url.to_owned(), trust.to_owned());
    assert_eq!(by_url(ca).await, 0);
    let others = place.path("others.pem");
    Authority::new().write(&others);
    assert_eq!(by_url(others.to_str().unwrap()).await, 1, "another authority");
}

async fn refrain_with_url(url: String, ca: String) -> i32 {
    refrain_with(&["healthcheck", "--url", &url, "--ca-file", &ca], &[]).await.code
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_usable_certificate_nothing_is_served() {
    let (place, authority) = (place().await, Authority::new());
    let (one, other) = (authority.sign(2090), authority.sign(2090));
    let (cert, key) = Signed { cert: one.cert, key: other.key, der: Vec::new() }.mount(&place.path("tls"), "1");
    let tls = ["--tls-cert-file", cert.to_str().unwrap(), "--tls-key-file", key.to_str().unwrap()];
    let said = place.launch_with(&tls, &[]).refused().await;
    assert!(said.contains("cannot speak TLS") && said.contains("cannot be used with the key in"), "{said}");
    let said = place.launch_with(&tls[..2], &[]).refused().await;
    assert!(said.contains("--tls-key-file"), "{said}");
}
