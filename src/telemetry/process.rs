//! What the kernel says of this process, under the names that Prometheus has for it.

use super::Exposition;
use super::names::{
    METRIC_PROCESS_CPU, METRIC_PROCESS_MAX_FDS, METRIC_PROCESS_OPEN_FDS, METRIC_PROCESS_RESIDENT, METRIC_PROCESS_START,
    METRIC_PROCESS_THREADS, METRIC_PROCESS_VIRTUAL,
};
use std::fs;

/// What a process's times in `/proc` are counted in, on every Linux: `USER_HZ`.
const TICKS_PER_SECOND: f64 = 100.0;

/// The fields of `/proc/PID/stat` after the name, counted from 0: see proc(5).
const USER_TIME: usize = 11;
const CHILDREN_SYSTEM_TIME: usize = 14;
const THREADS: usize = 17;
const START_TIME: usize = 19;
const VIRTUAL_BYTES: usize = 20;

/// What there is to say now; what cannot be read is left out.
pub(super) fn now() -> Exposition {
    let mut found = Exposition::default();
    of_stat(&mut found);
    if let Some(kibibytes) = resident_kibibytes() {
        found.sample(METRIC_PROCESS_RESIDENT, &[], kibibytes * 1024.0);
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        // Listing them takes one.
        found.sample(METRIC_PROCESS_OPEN_FDS, &[], open.count().saturating_sub(1) as f64);
    }
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    found.sample(METRIC_PROCESS_MAX_FDS, &[], limit.current.map_or(f64::INFINITY, |most| most as f64));
    found
}

fn of_stat(found: &mut Exposition) {
    let Ok(text) = fs::read_to_string("/proc/self/stat") else { return };
    // The name before them may hold anything but ends with the last bracket.
    let Some((_, fields)) = text.rsplit_once(')') else { return };
    let fields: Vec<f64> = fields.split_whitespace().map(|field| field.parse().unwrap_or(0.0)).collect();
    if let Some(times) = fields.get(USER_TIME..=CHILDREN_SYSTEM_TIME) {
        found.sample(METRIC_PROCESS_CPU, &[], times.iter().sum::<f64>() / TICKS_PER_SECOND);
    }
    if let (Some(start), Some(booted)) = (fields.get(START_TIME), booted_at()) {
        found.sample(METRIC_PROCESS_START, &[], booted + start / TICKS_PER_SECOND);
    }
    for (name, at) in [(METRIC_PROCESS_THREADS, THREADS), (METRIC_PROCESS_VIRTUAL, VIRTUAL_BYTES)] {
        if let Some(value) = fields.get(at) {
            found.sample(name, &[], *value);
        }
    }
}

fn resident_kibibytes() -> Option<f64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.trim().strip_suffix(" kB")?.parse().ok()
}

/// When the machine started, in seconds since 1970.
fn booted_at() -> Option<f64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("btime ")).and_then(|seconds| seconds.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn the_process_is_described() {
        let text = now().into_text();
        let of = |name: &str| -> f64 {
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap().parse().unwrap()
        };
        assert!(of(METRIC_PROCESS_RESIDENT) > 1e5 && of(METRIC_PROCESS_VIRTUAL) >= of(METRIC_PROCESS_RESIDENT));
        assert!(of(METRIC_PROCESS_OPEN_FDS) >= 3.0 && of(METRIC_PROCESS_THREADS) >= 1.0);
        let age = chrono::Utc::now().timestamp() as f64 - of(METRIC_PROCESS_START);
        assert!((-2.0..3600.0).contains(&age), "started {age} s ago");
        assert!(of(METRIC_PROCESS_CPU) >= 0.0 && of(METRIC_PROCESS_MAX_FDS) > 3.0);
    }
}
