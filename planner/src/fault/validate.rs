//! Refuses input from which no sound number can follow, with the place and the reason.

use std::collections::BTreeSet;

use super::error::{FaultError, Result};
use super::graph::{FailureRate, Input};

/// Largest input: tasks.
pub const MAX_TASKS: usize = 1_000_000;

/// Largest global checkpoint interval: 2^this epochs.
pub const MAX_LEVEL: u8 = 24;

fn bad<T>(what: String) -> Result<T> {
    Err(FaultError::invalid(what))
}

/// Greatest and least number that means anything here; products of several stay finite.
const MOST: f64 = 1e15;
const LEAST: f64 = 1e-12;

/// A number that must be 0 or more.
pub(super) fn non_negative(of: &str, name: &str, x: f64) -> Result<()> {
    if (0.0..=MOST).contains(&x) { Ok(()) } else { bad(format!("{of}: {name} is {x}, must be between 0 and {MOST:e}")) }
}

/// A number that must be above 0.
pub(super) fn positive(of: &str, name: &str, x: f64) -> Result<()> {
    if (LEAST..=MOST).contains(&x) {
        Ok(())
    } else {
        bad(format!("{of}: {name} is {x}, must be above 0 ({LEAST:e} to {MOST:e})"))
    }
}

fn share(of: &str, name: &str, x: f64) -> Result<()> {
    if (0.0..=1.0).contains(&x) { Ok(()) } else { bad(format!("{of}: {name} is {x}, must be between 0 and 1")) }
}

fn rate(of: &str, r: FailureRate) -> Result<()> {
    non_negative(of, "alpha of the failure rate", r.alpha)?;
    // A rate that is known for certain has both in the billions.
    positive(of, "beta of the failure rate [s]", r.beta_s / (1.0 + r.alpha))
}

/// Checks all of an input.
pub(super) fn input(x: &Input) -> Result<()> {
    if x.tasks.is_empty() {
        return bad("there is no task".into());
    }
    if x.tasks.len() > MAX_TASKS {
        return bad(format!("{} tasks, at most {MAX_TASKS} can be planned", x.tasks.len()));
    }
    cluster(x)?;
    tasks(x)?;
    edges_and_sinks(x)?;
    let p = x.prices;
    for (name, v) in [
        ("price of a core hour", p.core_per_h),
        ("price of a GiB hour", p.gib_per_h),
        ("price of a GiB sent", p.net_per_gib),
        ("price of a late row", p.late_row),
    ] {
        non_negative("prices", name, v)?;
    }
    for l in &x.load {
        let of = format!("load state \"{}\"", l.name);
        share(&of, "share", l.share)?;
        positive(&of, "length [s]", l.length_s)?;
        non_negative(&of, "level", l.level)?;
    }
    let shares: f64 = x.load.iter().map(|l| l.share).sum();
    if !x.load.is_empty() && (shares - 1.0).abs() > 1e-6 {
        return bad(format!("the shares of the load states add up to {shares}, must be 1"));
    }
    x.topological_order().map(|_| ())
}

fn cluster(x: &Input) -> Result<()> {
    let c = &x.cluster;
    for (name, v) in [
        ("detection [s]", c.detection_s),
        ("launch [s]", c.launch_s),
        ("switch [s]", c.switch_s),
        ("record [s]", c.record_s),
        ("log budget [s]", c.log_budget_s),
        ("failover [s]", c.failover_s),
        ("false alarms [1/s]", c.false_alarms_per_s),
        ("repair [s]", c.repair_s),
    ] {
        non_negative("cluster", name, v)?;
    }
    positive("cluster", "epoch [s]", c.epoch_s)?;
    rate("coordinator", c.coordinator)?;
    if c.global_level > MAX_LEVEL {
        return bad(format!("the global checkpoint comes every 2^{} epochs, at most 2^{MAX_LEVEL}", c.global_level));
    }
    if c.workers.is_empty() {
        return bad("there is no worker".into());
    }
    for d in &c.domains {
        rate(&format!("domain \"{}\"", d.name), d.failure)?;
    }
    for w in &c.workers {
        let of = format!("worker \"{}\"", w.name);
        rate(&of, w.failure)?;
        if w.domain >= c.domains.len() {
            return bad(format!("{of} is in a domain that does not exist"));
        }
    }
    Ok(())
}

fn tasks(x: &Input) -> Result<()> {
    for t in &x.tasks {
        let of = format!("task \"{}\"", t.name);
        for (name, v) in [
            ("input rate [rows/s]", t.rows_per_s),
            ("state [bytes]", t.state_bytes),
            ("first touches [bytes/s]", t.dirty.first_touch_bytes_per_s),
            ("encoding [s/byte]", t.encode_s_per_byte),
            ("snapshot pause [s]", t.snapshot_pause_s),
            ("snapshot completion [s]", t.snapshot_completion_s),
            ("row size [bytes]", t.row_bytes),
            ("cores", t.cores),
            ("memory [bytes]", t.memory_bytes),
            ("replay of an epoch [s]", t.epoch_replay_s),
        ] {
            non_negative(&of, name, v)?;
        }
        for b in t.dirty.measured_bytes.iter().flatten() {
            non_negative(&of, "dirty bytes", *b)?;
        }
        positive(&of, "capacity [rows/s]", t.capacity_rows_per_s)?;
        positive(&of, "restore bandwidth [bytes/s]", t.restore_bytes_per_s)?;
        positive(&of, "replay speedup", t.replay_speedup)?;
        non_negative(&of, "peak rate [rows/s]", t.peak_rows_per_s)?;
        if t.peak_rows_per_s < t.rows_per_s {
            return bad(format!(
                "{of}: the peak rate ({} rows/s) is below the rate ({} rows/s)",
                t.peak_rows_per_s, t.rows_per_s
            ));
        }
        share(&of, "share of crashes caused by the input", t.common_cause)?;
        rate(&of, t.crash)?;
        if t.worker.is_some_and(|w| w >= x.cluster.workers.len()) {
            return bad(format!("{of} is on a worker that does not exist"));
        }
        let rho = t.rho_at(x.mean_level());
        if rho >= 1.0 {
            return Err(FaultError::cannot_meet(
                "any deadline",
                format!("{of} gets {:.0}% of what it can take (rho = {rho:.3} >= 1) and never catches up", rho * 100.0),
                "raise its parallelism or slow its source",
            ));
        }
    }
    Ok(())
}

fn edges_and_sinks(x: &Input) -> Result<()> {
    let n = x.tasks.len();
    for e in &x.edges {
        if e.from >= n || e.to >= n {
            return bad(format!("an edge joins tasks {} and {}, but there are {n}", e.from, e.to));
        }
        non_negative(
            &format!("edge from \"{}\" to \"{}\"", x.tasks[e.from].name, x.tasks[e.to].name),
            "rate",
            e.rows_per_s,
        )?;
        if !e.logged && x.tasks[e.from].job != x.tasks[e.to].job {
            return bad(format!(
                "the edge from \"{}\" to \"{}\" joins two jobs but is not logged",
                x.tasks[e.from].name, x.tasks[e.to].name
            ));
        }
    }
    if x.sinks.is_empty() {
        return bad("there is no sink".into());
    }
    let mut reaches = BTreeSet::new();
    for s in &x.sinks {
        let of = format!("sink \"{}\"", s.name);
        non_negative(&of, "deadline [s]", s.deadline_s)?;
        non_negative(&of, "steady latency [s]", s.steady_latency_s)?;
        non_negative(&of, "weight", s.weight)?;
        non_negative(&of, "output rate [rows/s]", s.rows_per_s)?;
        if s.tasks.is_empty() {
            return bad(format!("{of} cannot be reached: no task writes to it"));
        }
        for &t in &s.tasks {
            if t >= n {
                return bad(format!("{of} is written by task {t}, but there are {n}"));
            }
            reaches.insert(t);
        }
    }
    // Backwards from the sinks: every task must matter to one.
    let mut into = vec![Vec::new(); n];
    for e in &x.edges {
        into[e.to].push(e.from);
    }
    let mut todo: Vec<usize> = reaches.iter().copied().collect();
    while let Some(v) = todo.pop() {
        todo.extend(into[v].iter().copied().filter(|&u| reaches.insert(u)));
    }
    match (0..n).find(|v| !reaches.contains(v)) {
        Some(v) => bad(format!("no sink can be reached from task \"{}\"", x.tasks[v].name)),
        None => Ok(()),
    }
}
