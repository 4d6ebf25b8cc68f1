//! A `refrain serve` process, and the calls that an orchestrator makes.

use reqwest::{Client, Method, StatusCode, header::HeaderMap};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Once;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};

const READY_WITHIN: Duration = Duration::from_secs(60);
const RUN_ENDS_WITHIN: Duration = Duration::from_secs(120);
const STOPS_WITHIN: Duration = Duration::from_secs(30);

/// A running server; killed with the test.
pub(crate) struct Server {
    process: Child,
    base: String,
    client: Client,
    log: PathBuf,
}

/// An HTTP answer with its body read.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("no JSON ({e}): {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The id of the run that the answer shows.
    pub(crate) fn run_id(&self) -> String {
        self.json()["id"].as_str().unwrap_or_else(|| panic!("no run: {self:?}")).to_owned()
    }
}

impl Server {
    /// Starts the binary and waits until it is ready.
    pub(crate) async fn start(wrapper: &[&str], work: &Path, flags: &[String], environment: &[(&str, &str)]) -> Self {
        let mut server = Self::launch(wrapper, work, flags, environment);
        server.wait_until_ready().await;
        server
    }

    /// Starts the binary, which may die at any time. A wrapper is a command that does something to its process and then
    /// becomes the command that follows.
    pub(crate) fn launch(wrapper: &[&str], work: &Path, flags: &[String], environment: &[(&str, &str)]) -> Self {
        let port = free_port();
        let log = log_folder().unwrap_or_else(|| work.to_owned()).join(format!("server-{}.log", uuid::Uuid::new_v4()));
        let output = std::fs::File::options().create(true).append(true).open(&log).unwrap();
        let words = [wrapper, &[env!("CARGO_BIN_EXE_refrain")]].concat();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("REFRAIN_")) {
            command.env_remove(name);
        }
        let process = command
            .args(["serve", "--listen", &format!("127.0.0.1:{port}")])
            .args(flags)
            .envs(environment.iter().copied())
            .current_dir(work)
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            // A group of its own, so that a signal can go to all of it, as from a terminal.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let is_secured = flags.iter().any(|flag| flag == "--tls-cert-file");
        let base = format!("{}://127.0.0.1:{port}", if is_secured { "https" } else { "http" });
        Self { process, base, client: client(), log }
    }

    async fn wait_until_ready(&mut self) {
        let end = Instant::now() + READY_WITHIN;
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                panic!("the server ended at once ({status}): {}", self.log_tail());
            }
            match self.client.get(format!("{}/readyz", self.base)).send().await {
                Ok(answer) if answer.status() == StatusCode::OK => return,
                _ if Instant::now() > end => panic!("the server was not ready in time: {}", self.log_tail()),
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Where it listens.
    pub(crate) fn url(&self) -> &str {
        &self.base
    }

    /// The address of the same.
    pub(crate) fn address(&self) -> &str {
        self.base.rsplit('/').next().unwrap()
    }

    /// What the server wrote.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap()).into_owned()
    }

    /// The end of what the server wrote.
    pub(crate) fn log_tail(&self) -> String {
        let text = self.log();
        let lines: Vec<&str> = text.lines().rev().take(30).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// SIGKILL, and wait for its end.
    pub(crate) async fn kill(mut self) {
        self.process.kill().await.unwrap();
    }

    /// Its process.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.process.id().unwrap()).unwrap()).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Waits for its end by a SIGKILL that it was told to send itself.
    pub(crate) async fn died(mut self) {
        match tokio::time::timeout(STOPS_WITHIN, self.process.wait()).await {
            Ok(status) => assert_eq!(status.unwrap().signal(), Some(Signal::KILL.as_raw()), "{}", self.log_tail()),
            Err(_) => panic!("the server did not die: {}", self.log_tail()),
        }
    }

    /// Waits for its end, which must say that it was refused; answers what it said.
    pub(crate) async fn refused(self) -> String {
        let log = self.log.clone();
        assert!(!self.ended().await.success(), "it was not refused");
        String::from_utf8_lossy(&std::fs::read(log).unwrap()).into_owned()
    }

    /// SIGTERM, and wait for its end.
    pub(crate) async fn stop(self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.ended().await
    }

    /// SIGTERM to it and to the engines that it started, as a terminal or a supervisor sends it.
    pub(super) fn stop_group(&self) {
        kill_process_group(self.pid(), Signal::TERM).unwrap();
    }

    /// Waits for its end.
    pub(crate) async fn ended(mut self) -> ExitStatus {
        match tokio::time::timeout(STOPS_WITHIN, self.process.wait()).await {
            Ok(status) => status.unwrap(),
            Err(_) => panic!("the server did not stop in time: {}", self.log_tail()),
        }
    }

    /// Any request; `body` goes as it is, said to be JSON.
    pub(crate) async fn call(&self, method: Method, path: &str, key: Option<&str>, body: Option<String>) -> Answer {
        self.try_call(method, path, key, body).await.unwrap_or_else(|e| panic!("no answer from {path}: {e:?}"))
    }

    async fn try_call(
        &self,
        method: Method,
        path: &str,
        key: Option<&str>,
        body: Option<String>,
    ) -> reqwest::Result<Answer> {
        let mut request = self.client.request(method, format!("{}{path}", self.base));
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body);
        }
        let answer = request.send().await?;
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        Ok(Answer { status, headers, body: answer.text().await? })
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, None, None).await
    }

    pub(crate) async fn submit(&self, key: &str, body: &Value) -> Answer {
        self.call(Method::POST, "/runs", Some(key), Some(body.to_string())).await
    }

    /// Submits a run to a server that may die of it.
    pub(crate) async fn submit_to_the_dying(&self, key: &str, body: &Value) -> Option<Answer> {
        self.try_call(Method::POST, "/runs", Some(key), Some(body.to_string())).await.ok()
    }

    /// Cancels a run, of a server that may die of it.
    pub(crate) async fn cancel_of_the_dying(&self, id: &str) {
        let _ = self.try_call(Method::POST, &format!("/runs/{id}/cancel"), None, None).await;
    }

    /// Waits until it is ready, or dead; whether it is ready.
    pub(crate) async fn is_ready_or_dead(&self) -> bool {
        let end = Instant::now() + READY_WITHIN;
        loop {
            match self.client.get(format!("{}/readyz", self.base)).send().await {
                Ok(answer) if answer.status() == StatusCode::OK => return true,
                _ if crate::crash::has_ended(self.pid()) => return false,
                _ => assert!(Instant::now() < end, "neither ready nor dead: {}", self.log_tail()),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Submits a run that must be accepted; answers its id.
    pub(crate) async fn accept(&self, key: &str, body: &Value) -> String {
        let answer = self.submit(key, body).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        answer.run_id()
    }

    /// Waits until a run has ended.
    pub(crate) async fn wait(&self, id: &str) -> Value {
        let end = Instant::now() + RUN_ENDS_WITHIN;
        loop {
            let answer = self.get(&format!("/runs/{id}?wait=10")).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            let run = answer.json();
            match run["state"].as_str().unwrap() {
                "succeeded" | "failed" | "cancelled" => return run,
                _ => assert!(Instant::now() < end, "it did not end: {run:#}\n{}", self.log_tail()),
            }
        }
    }

    /// Submits a run, which must be new, and waits for its end in this state.
    pub(crate) async fn run_to(&self, state: &str, key: &str, body: &Value) -> Value {
        let id = self.accept(key, body).await;
        let run = self.wait(&id).await;
        assert_eq!(run["state"], state, "{run:#}\n{}", self.log_tail());
        run
    }

    /// Submits a run, which must be new and succeed.
    pub(crate) async fn run(&self, key: &str, body: &Value) -> Value {
        self.run_to("succeeded", key, body).await
    }

    /// A table's listed partitions by their key.
    pub(crate) async fn partitions(&self, pipeline: &str) -> BTreeMap<String, Value> {
        let answer = self.get(&format!("/pipelines/{pipeline}/partitions")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let listed = answer.json()["partitions"].as_array().unwrap().clone();
        listed.into_iter().map(|entry| (entry["partition"].as_str().unwrap().to_owned(), entry)).collect()
    }
}

/// Of a run's partitions, one field of each by its key.
pub(crate) fn field_of(run: &Value, field: &str) -> BTreeMap<String, Value> {
    let partitions = run["partitions"].as_array().unwrap();
    partitions.iter().map(|p| (p["partition"].as_str().unwrap().to_owned(), p[field].clone())).collect()
}

/// Where all that servers and verbs say is kept, to be searched when the tests have ended; none where nobody asks for it.
pub(super) fn log_folder() -> Option<PathBuf> {
    std::env::var_os("REFRAIN_TEST_LOGS").map(PathBuf::from)
}

fn client() -> Client {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
    // Whose certificates are taken is for the tests of TLS to say.
    Client::builder().no_proxy().tls_danger_accept_invalid_certs(true).timeout(Duration::from_secs(60)).build().unwrap()
}

/// A port that nothing listens on, below those that the kernel hands out for outgoing connections.
pub(super) fn free_port() -> u16 {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    let first = u16::try_from(std::process::id() % 100).unwrap() * 90;
    loop {
        let port = 10_000 + (first + TRIED.fetch_add(1, Ordering::Relaxed)) % 10_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
