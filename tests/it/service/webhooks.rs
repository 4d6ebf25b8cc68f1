//! Webhooks as their receivers see them.

use super::access::make;
use super::{Place, Server, Store, trips_pipeline, write_quarter};
use crate::receiver::{Receiver, SECRETS, telling};
use crate::site::{Body, Reply, Site};
use futures::future::join_all;
use rstest::rstest;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const WITHIN: Duration = Duration::from_secs(30);

async fn place(store: Store) -> Place {
    let place = Place::new(store).await;
    write_quarter(&place, 50);
    let once = "[retry]\nsource = { attempts = 1 }\n";
    place.pipeline("trips", &format!("{}{once}", trips_pipeline("trips", r#""raw/*.parquet""#, "", "")));
    place
}

fn month(month: &str, webhook: Option<&str>) -> Value {
    let mut body = json!({"pipeline": "trips", "partitions": [month], "labels": {"team": "a"}});
    if let Some(url) = webhook {
        body["webhook"] = json!(url);
    }
    body
}

async fn start(place: &Place, flags: &[String], more: &[&str]) -> Server {
    let flags: Vec<&str> = flags.iter().map(String::as_str).chain(more.iter().copied()).collect();
    place.start_with(&flags, &[]).await
}

/// Waits until the run's deliveries are all in this state; answers them.
async fn all_are(server: &Server, run: &str, state: &str) -> Vec<Value> {
    let end = Instant::now() + WITHIN;
    loop {
        let shown = server.get(&format!("/runs/{run}")).await.json();
        let deliveries = shown["deliveries"].as_array().cloned().unwrap_or_default();
        if !deliveries.is_empty() && deliveries.iter().all(|told| told["state"] == state) {
            return deliveries;
        }
        assert!(Instant::now() < end, "not {state}: {deliveries:#?}\n{}", server.log_tail());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn receivers_are_told_of_each_end_and_what_the_run_says(#[case] store: Store) {
    let (all, own) = (Receiver::willing().await, Receiver::willing().await);
    let place = place(store).await;
    let hosts = format!("{},{}", all.listed(), own.listed());
    let url = all.url("/all?key=hunter2");
    let server = start(&place, &telling(&place, &hosts, "1"), &["--webhook-url", &url]).await;
    let succeeded = server.run("good", &month("2024-01", Some(&own.url("/own?key=hunter3")))).await;
    let nothing = json!({"pipeline": "trips", "partitions": {"from": "2024-01", "to": "2024-01", "only": "missing"}});
    let nothing = server.run("nothing", &nothing).await;
    let not_before = json!({"pipeline": "trips", "partitions": ["2024-02"], "not_before": "2124-01-01T00:00:00Z"});
    assert_eq!(server.submit("late", &not_before).await.status, 422);
    std::fs::write(place.path("raw/trips_2024-02.parquet"), "no Parquet").unwrap();
    let failed = server.run_to("failed", "bad", &month("2024-02", None)).await;

    let told = all.hears(3).await;
    let runs = [(&succeeded, "run.succeeded"), (&nothing, "run.succeeded"), (&failed, "run.failed")];
    for (run, event) in runs {
        let heard = told.iter().find(|heard| run["id"] == heard.run()).unwrap();
        let data = &heard.body["data"];
        assert_eq!((heard.event(), &heard.body["timestamp"]), (event, &run["ended_at"]));
        for field in [
            "pipeline",
            "idempotency_key",
            "mode",
            "state",
            "created_at",
            "started_at",
            "ended_at",
            "labels",
            "definition",
        ] {
            assert_eq!(data[field], run[field], "{field} of {data:#}");
        }
        assert_eq!(data["attempt"], run["attempts"].as_array().unwrap().len());
        assert_eq!(data["rows"]["in_scope"], run["rows"]["in_scope"]);
        assert_eq!(data["error"]["type"], run["error"]["type"]);
        assert_eq!(data["principal"], "default");
        let deliveries = all_are(&server, run["id"].as_str().unwrap(), "delivered").await;
        assert_eq!(
            (deliveries[0]["id"].as_str(), &deliveries[0]["last_status"]),
            (Some(heard.id.as_str()), &json!(204))
        );
    }
    assert_eq!(told[0].body["data"]["partitions"], json!({"named": 1, "outcomes": {"created": 1}}));
    let own = own.hears(1).await;
    assert_eq!((own.len(), own[0].run()), (1, succeeded["id"].as_str().unwrap()));
    assert_ne!(own[0].id, told[0].id, "each receiver has ids of its own");

    let metrics = server.get("/metrics").await.body;
    assert!(
        metrics.contains("refrain_notification_tries_total{kind=\"webhook\",outcome=\"delivered\"} 4"),
        "{metrics}"
    );
    let log = server.log();
    assert!(log.contains("told") && !log.contains("hunter"), "a query is in the log: {log}");
    assert!(SECRETS.iter().all(|secret| !log.contains(&secret["whsec_".len()..])), "a secret is in the log");
    assert_eq!(all.heard().len(), 3, "and nobody is told twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_fails_is_told_again_under_the_same_id() {
    let elsewhere = Receiver::willing().await;
    let (to, asked) = (elsewhere.url("/"), AtomicUsize::new(0));
    let receiver = Receiver::start(move |_| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::status(500),
        1 => Reply::redirect(&to),
        2 => Reply::status(307).with("location", &to),
        3 => Reply::status(200).body(Body::Cut(Vec::new(), 0)).with("content-length", "no number"),
        4 => Reply::status(503).with("retry-after", "2"),
        // The body is nobody's business.
        _ => Reply::status(200).body(Body::Endless),
    })
    .await;
    let place = place(Store::Sqlite).await;
    let hosts = format!("{},{}", receiver.listed(), elsewhere.listed());
    let server = start(&place, &telling(&place, &hosts, "0,0,0,0,0,0"), &[]).await;
    let run = server.run("told", &month("2024-01", Some(&receiver.url("/")))).await;
    let since = Instant::now();
    let told = receiver.hears(6).await;
    assert!(since.elapsed() >= Duration::from_millis(1_500), "it asked to be left alone for two seconds");
    let ids: BTreeSet<&str> = told.iter().map(|heard| heard.id.as_str()).collect();
    assert_eq!((ids.len(), told.len()), (1, 6), "{told:#?}");
    let deliveries = all_are(&server, run["id"].as_str().unwrap(), "delivered").await;
    assert_eq!((&deliveries[0]["tries"], &deliveries[0]["last_status"]), (&json!(6), &json!(200)));
    assert_eq!(elsewhere.heard().len(), 0, "a redirect is a failure, and is not followed");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_wants_no_more_is_not_told_again_and_the_run_is_as_it_was() {
    let (gone, broken) = (Receiver::start(|_| Reply::status(410)).await, Receiver::start(|_| Reply::status(500)).await);
    let place = place(Store::Sqlite).await;
    let hosts = format!("{},{}", gone.listed(), broken.listed());
    let server = start(&place, &telling(&place, &hosts, "0,0"), &[]).await;
    for (key, url, tries, status, why) in
        [("gone", gone.url("/"), 1, json!(410), "410"), ("broken", broken.url("/"), 3, json!(500), "500")]
    {
        let run = server.run(key, &month("2024-01", Some(&url))).await;
        let told = all_are(&server, run["id"].as_str().unwrap(), "gave_up").await;
        assert_eq!((&told[0]["tries"], &told[0]["last_status"]), (&json!(tries), &status), "{told:#?}");
        assert!(told[0]["last_error"].as_str().unwrap().contains(why), "{told:#?}");
        assert_eq!(server.get(&format!("/runs/{}", run["id"].as_str().unwrap())).await.json()["state"], "succeeded");
    }
    assert_eq!((gone.heard().len(), broken.heard().len()), (1, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listed_name_at_an_address_of_this_network_is_not_asked() {
    let receiver = Receiver::willing().await;
    let host = receiver.listed().replace("127.0.0.1", "localhost");
    let place = place(Store::Sqlite).await;
    for (key, hosts, state) in
        [("inside", host.clone(), "gave_up"), ("listed", format!("{host},127.0.0.0/8,::1"), "delivered")]
    {
        let server = start(&place, &telling(&place, &hosts, "0"), &[]).await;
        let run = server.run(key, &month("2024-01", Some(&host))).await;
        let told = all_are(&server, run["id"].as_str().unwrap(), state).await;
        let error = told[0]["last_error"].as_str().unwrap_or_default();
        assert_eq!(error.contains("leads to no public address"), state == "gave_up", "{told:#?}");
        assert!(server.stop().await.success());
    }
    assert_eq!(receiver.heard().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_never_answers_keeps_nobody_waiting() {
    let silent = Site::start(|_| Reply { body: Body::Silence, ..Reply::status(200) }).await;
    let willing = Receiver::willing().await;
    let place = place(Store::Sqlite).await;
    let hosts = format!("{},{}", silent.url(""), willing.listed());
    let server = start(&place, &telling(&place, &hosts, "1"), &[]).await;
    for number in 0..40 {
        let queued = json!({"pipeline": "trips", "partitions": ["2024-02"], "webhook": silent.url("/"),
            "not_before": (chrono::Utc::now() + chrono::TimeDelta::days(1)).to_rfc3339()});
        let id = server.accept(&format!("silent-{number}"), &queued).await;
        assert_eq!(server.call(reqwest::Method::POST, &format!("/runs/{id}/cancel"), None, None).await.status, 200);
    }
    let since = Instant::now();
    server.run("told", &month("2024-01", Some(&willing.url("/")))).await;
    willing.hears(1).await;
    assert!(since.elapsed() < Duration::from_secs(10), "it was told after {:?}", since.elapsed());
    assert_eq!(silent.requests().len(), 4, "so many are under way with one host");
}

/// Has a run end that this URL is told of.
async fn ends(server: &Server, token: &str, key: &str, url: &str) {
    let tomorrow = (chrono::Utc::now() + chrono::TimeDelta::days(1)).to_rfc3339();
    let body = json!({"pipeline": "trips", "partitions": ["2024-02"], "webhook": url, "not_before": tomorrow});
    let post = |path: &str| reqwest::Client::new().post(format!("{}{path}", server.url())).bearer_auth(token);
    let accepted = post("/runs").header("idempotency-key", key).json(&body).send().await.unwrap();
    assert_eq!(accepted.status(), 202, "{}", server.log_tail());
    let run: Value = accepted.json().await.unwrap();
    let cancelled = post(&format!("/runs/{}/cancel", run["id"].as_str().unwrap())).send().await.unwrap();
    assert_eq!(cancelled.status(), 200, "{}", server.log_tail());
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_receivers_of_one_principal_keep_no_other_waiting() {
    let mut silent = Vec::new();
    for _ in 0..9 {
        silent.push(Site::start(|_| Reply { body: Body::Silence, ..Reply::status(200) }).await);
    }
    let willing = Receiver::willing().await;
    let place = place(Store::Sqlite).await;
    let hosts = silent.iter().map(|site| site.url("")).chain([willing.listed()]).collect::<Vec<_>>().join(",");
    // Before it starts: a server notices its first token a moment later.
    let [loud, quiet] = [
        make(&place, &["--principal", "loud", "--scope", "run"]).await,
        make(&place, &["--principal", "quiet", "--scope", "run"]).await,
    ];
    let server = start(&place, &telling(&place, &hosts, "1"), &[]).await;
    // At once, so that no try is over before the last one is to be made.
    let urls: Vec<String> = (0..36).map(|number| silent[number % silent.len()].url("/")).collect();
    let keys: Vec<String> = (0..36).map(|number| number.to_string()).collect();
    join_all(keys.iter().zip(&urls).map(|(key, url)| ends(&server, &loud, key, url))).await;
    let under_way = || silent.iter().map(|site| site.requests().len()).sum::<usize>();
    let end = Instant::now() + WITHIN;
    while under_way() < 24 {
        assert!(Instant::now() < end, "{} are under way\n{}", under_way(), server.log_tail());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let since = Instant::now();
    ends(&server, &quiet, "told", &willing.url("/")).await;
    willing.hears(1).await;
    assert!(since.elapsed() < Duration::from_secs(6), "it was told after {:?}", since.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_cannot_be_read_keeps_no_other_waiting() {
    let (failing, willing) = (Receiver::start(|_| Reply::status(500)).await, Receiver::willing().await);
    let place = place(Store::Postgres).await;
    let hosts = format!("{},{}", failing.listed(), willing.listed());
    let server = start(&place, &telling(&place, &hosts, "2,0,0"), &[]).await;
    let spoilt = server.run("spoilt", &month("2024-01", Some(&failing.url("/")))).await;
    failing.hears(1).await;
    place.execute("update outbox set notice = '{\"state\": \"another version has it\"}'").await;
    let end = Instant::now() + WITHIN;
    let told = loop {
        let told = all_are(&server, spoilt["id"].as_str().unwrap(), "pending").await.remove(0);
        if told["tries"] == 2 {
            break told;
        }
        assert!(Instant::now() < end, "{told:#}\n{}", server.log_tail());
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(told["last_error"].as_str().unwrap().contains("the message cannot be read"), "{told:#}");
    let next: chrono::DateTime<chrono::Utc> = told["next_try_at"].as_str().unwrap().parse().unwrap();
    let pause = (next - chrono::Utc::now()).num_seconds();
    assert!((40..=60).contains(&pause), "it is left alone for {pause} s");
    server.run("good", &month("2024-02", Some(&willing.url("/")))).await;
    willing.hears(1).await;
    assert!(server.log().contains("the message cannot be read"), "{}", server.log_tail());

    place.execute("update outbox set tries = 3, due_at = now() where state = 'pending'").await;
    all_are(&server, spoilt["id"].as_str().unwrap(), "gave_up").await;
    assert_eq!(failing.heard().len(), 1, "it was told once, before it was spoilt");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_could_not_tell_does_not_start() {
    let place = place(Store::Sqlite).await;
    let refused = async |flags: &[&str]| place.launch_with(flags, &[]).refused().await;
    let secrets = telling(&place, "", "1").pop().unwrap();
    let of = |more: &[&str]| -> Vec<String> {
        [&["--webhook-secret-file", &secrets], more].concat().into_iter().map(str::to_owned).collect()
    };
    let with = async |more: &[&str]| {
        let flags = of(more);
        refused(&flags.iter().map(String::as_str).collect::<Vec<_>>()).await
    };
    let said = refused(&["--webhook-url", "https://hooks.example.org/?key=hunter2"]).await;
    assert!(said.contains("--webhook-secret-file") && !said.contains("hunter2"), "{said}");
    let said = with(&["--webhook-url", "https://hooks.example.org/?key=hunter2"]).await;
    assert!(said.contains("--webhook-hosts") && !said.contains("hunter2"), "{said}");
    let said = with(&["--webhook-hosts", "hooks.example.org/path"]).await;
    assert!(said.contains("found \"hooks.example.org/path\", expected a host"), "{said}");
    std::fs::write(&secrets, "whsec_hunter2\n").unwrap();
    let said = with(&[]).await;
    assert!(said.contains("line 1 is no secret") && !said.contains("hunter2"), "{said}");
}

/// A receiver by TLS, whose certificate nobody has signed but itself; its address, and the certificate.
async fn by_tls() -> (String, String) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder().with_no_client_auth();
    let config = config.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = format!("localhost:{}", listener.local_addr().unwrap().port());
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(mut client) = acceptor.accept(client).await else { continue };
            let mut request = vec![0; 64 << 10];
            let _ = client.read(&mut request).await;
            let _ = client.write_all(b"HTTP/1.1 204 x\r\nconnection: close\r\n\r\n").await;
            let _ = client.shutdown().await;
        }
    });
    (host, made.cert.pem())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_by_tls_is_told_where_its_certificate_is_good() {
    let place = place(Store::Sqlite).await;
    let (host, certificate) = by_tls().await;
    std::fs::write(place.path("good.pem"), certificate).unwrap();
    std::fs::write(place.path("other.pem"), by_tls().await.1).unwrap();
    let flags = telling(&place, &format!("{host},127.0.0.0/8"), "0");
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    for (trusted, state) in [("good.pem", "delivered"), ("other.pem", "gave_up")] {
        let trusted = place.path(trusted);
        let server = place.start_with(&flags, &[("SSL_CERT_FILE", trusted.to_str().unwrap())]).await;
        let run = server.run(state, &month("2024-01", Some(&format!("https://{host}/")))).await;
        let told = all_are(&server, run["id"].as_str().unwrap(), state).await;
        let error = told[0]["last_error"].as_str().unwrap_or_default();
        assert_eq!(error.contains("certificate"), state == "gave_up", "{told:#?}");
        assert!(server.stop().await.success());
    }
}
