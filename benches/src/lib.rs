//! Workloads that the benchmarks share: data made on the spot, the queries, and both ways of
//! running them (continuously with Spate, in batch with DataFusion), with the answers compared.

pub mod batch;
pub mod checksum;
pub mod data;
pub mod latency;
pub mod nexmark;
pub mod queries;
pub mod stream;

use std::time::{Duration, Instant};

/// Runs `f` `runs` times and gives the median of what it took, and its last result.
///
/// # Errors
/// The first error of `f`.
pub fn median<T, E>(runs: usize, mut f: impl FnMut() -> Result<T, E>) -> Result<(Duration, T), E> {
    let mut times = Vec::with_capacity(runs);
    let mut last = None;
    for _ in 0..runs.max(1) {
        let start = now();
        let r = f()?;
        times.push(start.elapsed());
        last = Some(r);
    }
    times.sort_unstable();
    match last {
        Some(r) => Ok((times[times.len() / 2], r)),
        None => unreachable!("at least one run"),
    }
}

/// A benchmark is what wall clocks are for.
#[allow(clippy::disallowed_methods)]
pub fn now() -> Instant {
    Instant::now()
}

/// Resident memory of this process now, in bytes (Linux; 0 elsewhere).
pub fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|p| p.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// Most memory that was resident since [`forget_peak`], in bytes (Linux; 0 elsewhere).
pub fn peak_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib = line.and_then(|l| l.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Lets [`peak_bytes`] start at what is resident now.
pub fn forget_peak() {
    // Where this is not allowed the peak is that of the whole process.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// CPU time of this process so far (Linux; 0 elsewhere).
pub fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Fields after the parenthesised name: state is the first, utime the 12th, stime the 13th.
    let after = text.rsplit(')').next().unwrap_or_default();
    let ticks: u64 = after.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}
