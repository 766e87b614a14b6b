//! From a query's fragments to tasks: what the planner knows of a dataflow before it runs, filled up
//! with the defaults of a cluster description.

use serde::{Deserialize, Serialize};

use super::cluster::ClusterFile;
use super::error::{FaultError, Result};
use super::graph::{Delivery, Dirty, Edge, FailureRate, Input, Merge, Sink, Task};

/// Operators between two exchanges.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fragment {
    /// Name; overrides go by it.
    pub name: String,
    /// Job.
    pub job: usize,
    /// Parallel tasks.
    pub parallelism: usize,
    /// Whether it keeps state.
    pub stateful: bool,
    /// Rows out per row in.
    pub selectivity: f64,
    /// How its inputs meet.
    pub merge: Merge,
    /// Rows that it reads per second, of all its tasks, if that is known: constants are read once.
    #[serde(default)]
    pub reads_rows_per_s: Option<f64>,
}

/// How rows go from fragment to fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Route {
    /// From the i-th task to the i-th task (modulo the parallelism).
    Forward,
    /// From every task to every task.
    Shuffle,
}

/// A stream between fragments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    /// Producer.
    pub from: usize,
    /// Consumer.
    pub to: usize,
    /// Which input of the consumer.
    pub input: u8,
    /// How.
    pub route: Route,
    /// Whether it is logged between jobs.
    pub logged: bool,
}

/// Where a fragment's results leave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outlet {
    /// Name of the view or sink.
    pub name: String,
    /// The fragment.
    pub fragment: usize,
    /// Its promise.
    pub delivery: Delivery,
    /// Its own deadline [s], else the default.
    pub deadline_s: Option<f64>,
    /// Its own weight, else the default.
    pub weight: Option<f64>,
}

/// A query, or several, as fragments.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Flow {
    /// Fragments.
    pub fragments: Vec<Fragment>,
    /// Streams.
    pub streams: Vec<Stream>,
    /// Results.
    pub outlets: Vec<Outlet>,
}

const MB: f64 = 1e6;

/// One task per parallel instance, rates from the sources down.
pub(super) fn expand(file: &ClusterFile, flow: &Flow) -> Result<Input> {
    let n = flow.fragments.len();
    if flow.streams.iter().any(|s| s.from >= n || s.to >= n) || flow.outlets.iter().any(|o| o.fragment >= n) {
        return Err(FaultError::invalid("a stream or an outlet names a fragment that does not exist"));
    }
    for o in &file.fragment {
        if !flow.fragments.iter().any(|f| f.name == o.name) {
            return Err(FaultError::invalid(format!("there is no fragment \"{}\" in the query", o.name)));
        }
    }
    let own = |f: usize| file.fragment.iter().find(|o| o.name == flow.fragments[f].name);
    let parallel: Vec<usize> =
        (0..n).map(|f| own(f).and_then(|o| o.parallelism).unwrap_or(flow.fragments[f].parallelism).max(1)).collect();
    let selectivity: Vec<f64> =
        (0..n).map(|f| own(f).and_then(|o| o.selectivity).unwrap_or(flow.fragments[f].selectivity).max(0.0)).collect();
    let order = order(n, &flow.streams)?;
    // Rows per second into all tasks of a fragment together.
    let mut rows = vec![0.0; n];
    for &f in &order {
        let into: Vec<&Stream> = flow.streams.iter().filter(|s| s.to == f).collect();
        let fed: f64 = into.iter().map(|s| rows[s.from] * selectivity[s.from]).sum();
        let prior = flow.fragments[f].reads_rows_per_s.unwrap_or(file.task.source_rows_per_s * parallel[f] as f64);
        let source = if into.is_empty() { prior } else { fed };
        rows[f] = own(f).and_then(|o| o.rows_per_s).map_or(source, |r| r * parallel[f] as f64);
    }
    let mut first = Vec::with_capacity(n);
    let mut tasks = Vec::new();
    for f in 0..n {
        first.push(tasks.len());
        for i in 0..parallel[f] {
            tasks.push(task(file, flow, f, i, rows[f] / parallel[f] as f64));
        }
    }
    let mut edges = Vec::new();
    for s in &flow.streams {
        let out = rows[s.from] * selectivity[s.from];
        let edge = |i: usize, j: usize, share: f64| Edge {
            from: first[s.from] + i,
            to: first[s.to] + j,
            input: s.input,
            rows_per_s: out * share,
            logged: s.logged,
        };
        let (a, b) = (parallel[s.from], parallel[s.to]);
        match s.route {
            Route::Forward => {
                let k = a.max(b);
                edges.extend((0..k).map(|i| edge(i % a, i % b, 1.0 / k as f64)));
            }
            Route::Shuffle => {
                edges.extend(
                    (0..a).flat_map(|i| (0..b).map(move |j| (i, j))).map(|(i, j)| edge(i, j, 1.0 / (a * b) as f64)),
                );
            }
        }
    }
    let sinks = flow
        .outlets
        .iter()
        .map(|o| Sink {
            name: o.name.clone(),
            tasks: (first[o.fragment]..first[o.fragment] + parallel[o.fragment]).collect(),
            deadline_s: o.deadline_s.unwrap_or(file.sink.deadline_s),
            steady_latency_s: file.sink.steady_latency_s,
            weight: o.weight.unwrap_or(file.sink.weight),
            rows_per_s: rows[o.fragment] * selectivity[o.fragment],
            delivery: o.delivery,
        })
        .collect();
    Ok(Input { tasks, edges, sinks, cluster: file.cluster()?, prices: file.prices(), load: file.load_states() })
}

fn task(file: &ClusterFile, flow: &Flow, f: usize, i: usize, rows_per_s: f64) -> Task {
    let d = &file.task;
    let fragment = &flow.fragments[f];
    let own = file.fragment.iter().find(|o| o.name == fragment.name);
    let state_mb = own.and_then(|o| o.state_mb).unwrap_or(if fragment.stateful { d.state_mb } else { 0.0 });
    Task {
        name: format!("{}.{i}", fragment.name),
        job: fragment.job,
        rows_per_s,
        peak_rows_per_s: rows_per_s * d.peak_factor,
        capacity_rows_per_s: own.and_then(|o| o.capacity_rows_per_s).unwrap_or(d.capacity_rows_per_s),
        state_bytes: state_mb * MB,
        dirty: Dirty { first_touch_bytes_per_s: d.first_touch_mb_per_s * MB, measured_bytes: Vec::new() },
        encode_s_per_byte: 1.0 / (d.encode_mb_per_s * MB),
        snapshot_pause_s: d.snapshot_pause_s,
        snapshot_completion_s: d.snapshot_completion_s,
        restore_bytes_per_s: d.restore_mb_per_s * MB,
        row_bytes: d.row_bytes,
        cores: 1.0,
        memory_bytes: (state_mb + d.base_memory_mb) * MB,
        replay_speedup: d.replay_speedup,
        epoch_replay_s: 0.0,
        crash: FailureRate::known(d.crash_mtbf_h * 3600.0),
        common_cause: d.common_cause,
        merge: fragment.merge,
        worker: None,
        replicable: true,
        measured: false,
    }
}

fn order(n: usize, streams: &[Stream]) -> Result<Vec<usize>> {
    let mut waiting = vec![0; n];
    for s in streams {
        waiting[s.to] += 1;
    }
    let mut out: Vec<usize> = (0..n).filter(|&f| waiting[f] == 0).collect();
    let mut next = 0;
    while next < out.len() {
        let f = out[next];
        for s in streams.iter().filter(|s| s.from == f) {
            waiting[s.to] -= 1;
            if waiting[s.to] == 0 {
                out.push(s.to);
            }
        }
        next += 1;
    }
    if out.len() == n { Ok(out) } else { Err(FaultError::invalid("the fragments form a cycle")) }
}
