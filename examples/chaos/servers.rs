//! The servers, and the calls of clients who expect them to be dead at any time.

use crate::world::{World, dice, locked};
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::File;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long a run may take once the chaos is over.
const RUN_ENDS_WITHIN: Duration = Duration::from_secs(300);

pub(crate) struct Servers {
    ports: Vec<u16>,
    processes: Mutex<Vec<Child>>,
    client: reqwest::Client,
}

impl Servers {
    pub(crate) fn start(world: &World) -> Result<Self> {
        let count = if world.database_url.is_some() { 2 } else { 1 };
        let held: Vec<TcpListener> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
        let ports = held.iter().map(|l| Ok(l.local_addr()?.port())).collect::<Result<Vec<u16>>>()?;
        drop(held);
        let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(20)).build()?;
        let processes = ports.iter().map(|port| spawn(world, *port)).collect::<Result<_>>()?;
        Ok(Self { ports, processes: Mutex::new(processes), client })
    }

    pub(crate) fn count(&self) -> usize {
        self.ports.len()
    }

    pub(crate) async fn kill_and_start(&self, world: &World, which: usize) -> Result<()> {
        let mut killed = {
            let mut processes = locked(&self.processes);
            let killed = processes.get_mut(which).context("no such server")?;
            killed.kill()?;
            killed.wait()?;
            spawn(world, self.ports[which])?
        };
        std::mem::swap(&mut killed, &mut locked(&self.processes)[which]);
        Ok(())
    }

    pub(crate) async fn pause(&self, which: usize, time: Duration) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(locked(&self.processes)[which].id())?).context("no process")?;
        kill_process(pid, Signal::STOP)?;
        tokio::time::sleep(time).await;
        kill_process(pid, Signal::CONT)?;
        Ok(())
    }

    /// Starts those again that have ended by themselves, which none should.
    pub(crate) fn revive(&self, world: &World) -> Result<()> {
        let mut processes = locked(&self.processes);
        for (process, port) in processes.iter_mut().zip(&self.ports) {
            if let Some(status) = process.try_wait()? {
                world.violation(format!("the server on port {port} ended by itself: {status}"));
                *process = spawn(world, *port)?;
            }
        }
        Ok(())
    }

    /// A call to any server; none where no answer came.
    pub(crate) async fn get(&self, path: &str) -> Option<(u16, Value)> {
        read(self.client.get(self.url(path))).await
    }

    pub(crate) async fn submit(&self, key: &str, body: &Value) -> Option<(u16, Value)> {
        read(self.client.post(self.url("/runs")).header("idempotency-key", key).json(body)).await
    }

    /// Submits again and again, as a client does that gets no answer: the last server may be starting still.
    pub(crate) async fn submit_until_answered(&self, key: &str, body: &Value) -> Option<(u16, Value)> {
        let end = Instant::now() + RUN_ENDS_WITHIN;
        loop {
            match self.submit(key, body).await {
                None | Some((503, _)) if Instant::now() < end => tokio::time::sleep(Duration::from_millis(100)).await,
                answer => return answer,
            }
        }
    }

    /// Waits for the end of a run, through whatever happens to the servers.
    pub(crate) async fn wait(&self, id: &str) -> Result<Value> {
        match self.wait_until(id, Instant::now() + RUN_ENDS_WITHIN).await {
            Some(run) => Ok(run),
            None => bail!("run {id} did not end: {:?}", self.get(&format!("/runs/{id}")).await),
        }
    }

    pub(crate) async fn wait_until(&self, id: &str, end: Instant) -> Option<Value> {
        while Instant::now() < end {
            match self.get(&format!("/runs/{id}?wait=2")).await {
                Some((200, run)) if ["succeeded", "failed", "cancelled"].iter().any(|s| run["state"] == *s) => {
                    return Some(run);
                }
                Some((200, _)) => {}
                _ => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
        None
    }

    fn url(&self, path: &str) -> String {
        let port = self.ports[dice(self.ports.len() as u64) as usize];
        format!("http://127.0.0.1:{port}{path}")
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for process in locked(&self.processes).iter_mut() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

async fn read(request: reqwest::RequestBuilder) -> Option<(u16, Value)> {
    let answer = request.send().await.ok()?;
    let status = answer.status().as_u16();
    Some((status, answer.json().await.ok()?))
}

fn spawn(world: &World, port: u16) -> Result<Child> {
    let log = File::options().create(true).append(true).open(world.folder.join(format!("server-{port}.log")))?;
    let mut command = Command::new(&world.program);
    command.args(["serve", "--workers", "2", "--lease-seconds", "2", "--sweep-seconds", "1"]);
    command.args(["--max-lost-workers", "1000000", "--listen", &format!("127.0.0.1:{port}")]);
    if let Some(url) = &world.database_url {
        command.args(["--database-url", url]);
    }
    command.current_dir(&world.folder).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    command.spawn().with_context(|| format!("cannot start {}", world.program.display()))
}
