//! Faults on purpose. At a named step the process kills or stops itself, waits, or lets the step fail: so that tests of
//! the real binary hit the very moment they mean.
//!
//! `REFRAIN_FAULT` is a list, by commas, of `STEP=ACTION`. An action is `kill`, `stop` (SIGKILL and SIGSTOP to itself),
//! `delay:MILLISECONDS`, `fail` or `panic`. With `@FILE` at its end it happens once: only while the file is not there, which is made
//! just before. Where the variable is not set nothing listens, and each step costs one look at an empty list.

use rustix::process::{Signal, getpid, kill_process};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The environment variable that switches faults on.
pub const VARIABLE: &str = "REFRAIN_FAULT";

/// The steps that have one place in an attempt, before it, before an answer, or around a try to tell of a run.
const STEPS: [&str; 13] = [
    "answering",
    "claiming",
    "claimed",
    "scanned",
    "staged",
    "quarantined",
    "decided",
    "locked",
    "manifested",
    "published",
    "finished",
    "delivering",
    "delivered",
];
/// The steps of which there are several, as in `published-1`.
const NUMBERED: [&str; 3] = ["staged-", "checkpointed-", "published-"];
/// A signal to the own process is taken up within this time, though not always at once.
const SIGNALLED_WITHIN: Duration = Duration::from_millis(100);

/// What happens at which steps; nothing where nobody asked.
#[derive(Debug, Clone, Default)]
pub struct Faults(Arc<[Fault]>);

#[derive(Debug, PartialEq, Eq)]
struct Fault {
    step: String,
    action: Action,
    once: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Kill,
    Stop,
    Delay(Duration),
    Fail,
    Panic,
}

/// The step should fail as if the service could not do it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the step was told to fail by {VARIABLE}")]
pub struct Failed;

/// A fault that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{VARIABLE}: found {0:?}, expected STEP=kill, =stop, =delay:MILLISECONDS, =fail or =panic, then @FILE or nothing, with a \
     step of answering, claiming, claimed, scanned, staged-N, checkpointed-N, staged, quarantined, decided, locked, published-N, manifested, \
     published, finished"
)]
pub struct FaultError(String);

impl Faults {
    /// Reads the environment variable; no faults where it is not set.
    pub fn from_environment() -> Result<Self, FaultError> {
        match std::env::var(VARIABLE) {
            Ok(text) => Self::parse(&text),
            Err(std::env::VarError::NotPresent) => Ok(Self::default()),
            Err(error @ std::env::VarError::NotUnicode(_)) => Err(FaultError(error.to_string())),
        }
    }

    /// Reads a list of faults.
    pub fn parse(text: &str) -> Result<Self, FaultError> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let faults: Option<Vec<Fault>> = parts.map(fault).collect();
        faults.map(|faults| Self(faults.into())).ok_or_else(|| FaultError(text.to_owned()))
    }

    /// Whether nothing was asked for.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Comes to a step. What is to happen there happens before this returns, if it returns.
    pub async fn reached(&self, step: &str) -> Result<(), Failed> {
        match self.strike(step) {
            Some(Action::Delay(time)) => tokio::time::sleep(time).await,
            Some(Action::Fail) => return Err(Failed),
            _ => {}
        }
        Ok(())
    }

    /// [`Faults::reached`], outside the runtime.
    pub fn reached_blocking(&self, step: &str) -> Result<(), Failed> {
        match self.strike(step) {
            Some(Action::Delay(time)) => std::thread::sleep(time),
            Some(Action::Fail) => return Err(Failed),
            _ => {}
        }
        Ok(())
    }

    #[expect(clippy::panic, reason = "it was asked for")]
    fn strike(&self, step: &str) -> Option<Action> {
        let fault = self.0.iter().find(|fault| fault.step == step && fault.is_due())?;
        let signal = match fault.action {
            Action::Kill => Some(Signal::KILL),
            Action::Stop => Some(Signal::STOP),
            Action::Panic => panic!("the step was told to panic by {VARIABLE}"),
            Action::Delay(_) | Action::Fail => None,
        };
        if let Some(signal) = signal {
            let _ = kill_process(getpid(), signal);
            std::thread::sleep(SIGNALLED_WITHIN);
        }
        Some(fault.action)
    }
}

impl Fault {
    /// Whether it happens now; one that happens once is marked as done, and the mark lasts.
    fn is_due(&self) -> bool {
        let Some(mark) = &self.once else { return true };
        match make_synced(mark) {
            Ok(()) => true,
            Err(error) => {
                if error.kind() != ErrorKind::AlreadyExists {
                    tracing::error!(%error, path = %mark.display(), "a fault's mark cannot be made");
                }
                false
            }
        }
    }
}

fn make_synced(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).open(path)?.sync_all()?;
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        _ => Ok(()),
    }
}

fn fault(text: &str) -> Option<Fault> {
    let (step, action) = text.split_once('=')?;
    let numbered = |prefix: &&str| step.strip_prefix(prefix).is_some_and(|n| n.parse().is_ok_and(|n: usize| n > 0));
    if !STEPS.contains(&step) && !NUMBERED.iter().any(numbered) {
        return None;
    }
    let (action, once) = match action.split_once('@') {
        Some((action, mark)) => (action, Some(PathBuf::from(mark))),
        None => (action, None),
    };
    let action = match action {
        "kill" => Action::Kill,
        "stop" => Action::Stop,
        "fail" => Action::Fail,
        "panic" => Action::Panic,
        delay => Action::Delay(Duration::from_millis(delay.strip_prefix("delay:")?.parse().ok()?)),
    };
    Some(Fault { step: step.to_owned(), action, once })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

    use super::*;

    #[test]
    fn faults_are_read_or_refused() {
        let read = Faults::parse("claimed=kill, published-12=stop@/x/y,staged=delay:250,answering=fail").unwrap();
        let one = |step: &str, action, once: Option<&str>| Fault {
            step: step.to_owned(),
            action,
            once: once.map(PathBuf::from),
        };
        let expected = [
            one("claimed", Action::Kill, None),
            one("published-12", Action::Stop, Some("/x/y")),
            one("staged", Action::Delay(Duration::from_millis(250)), None),
            one("answering", Action::Fail, None),
        ];
        assert_eq!(*read.0, expected);
        assert!(Faults::parse("").unwrap().is_empty());
        for wrong in ["claimed", "claimed=", "claimed=die", "staged-0=kill", "staged-=kill", "deciding=kill", "x"] {
            assert!(Faults::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_fault_with_a_mark_happens_once() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("mark");
        let faults = Faults::parse(&format!("locked=fail@{}", mark.display())).unwrap();
        assert_eq!(faults.reached_blocking("decided"), Ok(()));
        assert!(!mark.exists());
        assert_eq!(faults.reached_blocking("locked"), Err(Failed));
        assert!(mark.exists());
        assert_eq!(faults.reached_blocking("locked"), Ok(()));
    }
}
