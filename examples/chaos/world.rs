//! The working folder, the versions of the sources, and what was seen.

use anyhow::{Context, Result, bail};
use chrono::{DateTime, Utc};
use serde_json::Value;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) const TABLE: &str = "zone_hour";
pub(crate) const MONTHS: [&str; 3] = ["2024-01", "2024-02", "2024-03"];
/// Four sizes of the sample; in the last version the first and the last month have the file of the other.
pub(crate) const VERSIONS: usize = 5;

const PIPELINE: &str = r#"
name = "zone_hour"
[source]
format = "parquet"
path = "data/yellow_tripdata_%Y-%m.parquet"
[source.columns]
tpep_pickup_datetime = "datetime"
PULocationID = "int32"
total_amount = "decimal(18,2)"
[partition]
pickup_month = { month_of = "tpep_pickup_datetime" }
[dimensions]
zone = "PULocationID"
pickup_hour = { truncate = "tpep_pickup_datetime", to = "hour" }
[measures]
trips = "count(*)"
revenue = "sum(total_amount)"
[retry]
source = { attempts = 1000, delay_seconds = 1, max_delay_seconds = 1 }
service = { attempts = 1000, delay_seconds = 1, max_delay_seconds = 1 }
"#;

/// Versions and when they came into place.
type Placed = Vec<(DateTime<Utc>, usize)>;

/// A run that was accepted.
#[derive(Clone)]
pub(crate) struct Submitted {
    pub(crate) key: String,
    pub(crate) body: Value,
    pub(crate) id: String,
    pub(crate) sent: DateTime<Utc>,
}

pub(crate) struct World {
    pub(crate) folder: PathBuf,
    pub(crate) program: PathBuf,
    pub(crate) database_url: Option<String>,
    /// The sha256 that a version of a month's source makes; none where it makes no rows.
    pub(crate) known: Mutex<HashMap<(usize, usize), Option<String>>>,
    /// Of each month, which version came into place when.
    placed: Mutex<[Placed; 3]>,
    submitted: Mutex<Vec<Submitted>>,
    violations: Mutex<Vec<String>>,
    pub(crate) kills: AtomicU64,
    pub(crate) stops: AtomicU64,
    pub(crate) answers: AtomicU64,
    pub(crate) looks: AtomicU64,
    pub(crate) lost: AtomicU64,
    temporary: tempfile::TempDir,
}

impl World {
    pub(crate) fn new(program: PathBuf, database_url: Option<String>) -> Result<Self> {
        let temporary = tempfile::Builder::new().prefix("refrain-chaos-").tempdir()?;
        let folder = temporary.path().to_owned();
        fs::create_dir(folder.join("pipelines"))?;
        fs::create_dir(folder.join("data"))?;
        fs::write(folder.join("pipelines/zone_hour.toml"), PIPELINE)?;
        let counter = || AtomicU64::new(0);
        Ok(Self {
            folder,
            program,
            database_url,
            known: Mutex::default(),
            placed: Mutex::default(),
            submitted: Mutex::default(),
            violations: Mutex::default(),
            kills: counter(),
            stops: counter(),
            answers: counter(),
            looks: counter(),
            lost: counter(),
            temporary,
        })
    }

    pub(crate) fn make_versions(&self) -> Result<()> {
        for version in 0..VERSIONS - 1 {
            let out = self.folder.join(format!("versions/{version}"));
            fs::create_dir_all(&out)?;
            let scale = format!("0.00{}", version + 2);
            let made = Command::new(&self.program).args(["sample", "--scale", &scale, "--out"]).arg(&out).output();
            let made = made.with_context(|| format!("cannot run {}", self.program.display()))?;
            if !made.status.success() {
                bail!("no sample: {}", String::from_utf8_lossy(&made.stderr));
            }
        }
        Ok(())
    }

    /// Replaces a month's source at once.
    pub(crate) fn put_in_place(&self, month: usize, version: usize) -> Result<()> {
        let name = |month: usize| format!("yellow_tripdata_{}.parquet", MONTHS[month]);
        let from = match version {
            last if last == VERSIONS - 1 => self.folder.join("versions/0").join(name(2 - month)),
            version => self.folder.join(format!("versions/{version}")).join(name(month)),
        };
        let new = self.folder.join("new.parquet");
        fs::copy(&from, &new).with_context(|| format!("cannot copy {}", from.display()))?;
        // It counts as in place a little earlier than it is.
        locked(&self.placed)[month].push((Utc::now(), version));
        fs::rename(&new, self.folder.join("data").join(name(month)))?;
        Ok(())
    }

    /// What a month may have become by a run of this time.
    pub(crate) fn possible(&self, month: usize, from: DateTime<Utc>, to: DateTime<Utc>) -> Vec<Option<String>> {
        let placed = &locked(&self.placed)[month];
        let known = locked(&self.known);
        let slack = chrono::TimeDelta::milliseconds(50);
        let until = |at: usize| placed.get(at + 1).map_or(DateTime::<Utc>::MAX_UTC, |next| next.0 + slack);
        let there = placed.iter().enumerate().filter(|(at, (since, _))| *since <= to && until(*at) >= from);
        there.filter_map(|(_, (_, version))| known.get(&(month, *version)).cloned()).collect()
    }

    pub(crate) fn is_known(&self, month: usize, sha256: Option<&str>) -> bool {
        let known = locked(&self.known);
        (0..VERSIONS).any(|version| known.get(&(month, version)).is_some_and(|k| k.as_deref() == sha256))
    }

    pub(crate) fn placements(&self) -> usize {
        locked(&self.placed).iter().map(Vec::len).sum()
    }

    pub(crate) fn submitted(&self, run: Submitted) {
        locked(&self.submitted).push(run);
    }

    pub(crate) fn runs(&self) -> Vec<Submitted> {
        locked(&self.submitted).clone()
    }

    pub(crate) fn violation(&self, what: String) {
        locked(&self.violations).push(what);
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        locked(&self.violations).clone()
    }

    pub(crate) fn looked(&self) {
        self.looks.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn warehouse(&self) -> PathBuf {
        self.folder.join("refrain-data/warehouse")
    }

    /// Keeps a copy of everything for whoever looks into a violation.
    pub(crate) fn keep(&self) -> PathBuf {
        let kept = std::env::temp_dir().join(format!("refrain-chaos-kept-{}", std::process::id()));
        let _ = Command::new("cp").arg("-a").args([self.temporary.path(), Path::new(&kept)]).status();
        kept
    }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A random number below `sides`.
pub(crate) fn dice(sides: u64) -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().1 % sides.max(1)
}
