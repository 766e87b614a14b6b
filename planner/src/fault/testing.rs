//! Inputs for tests: small graphs by hand, and random ones by seed.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::flow::{Flow, Fragment, Outlet, Route, Stream};
use super::graph::{
    Cluster, Delivery, Dirty, Domain, Edge, FailureRate, Input, LoadState, Merge, Prices, Sink, Task, Worker,
};

const MB: f64 = 1e6;

/// A task at half load with 100 MB of state.
pub(crate) fn task(name: &str) -> Task {
    Task {
        name: name.into(),
        job: 0,
        rows_per_s: 1000.0,
        peak_rows_per_s: 1000.0,
        capacity_rows_per_s: 2000.0,
        state_bytes: 100.0 * MB,
        dirty: Dirty { first_touch_bytes_per_s: MB, measured_bytes: Vec::new() },
        encode_s_per_byte: 2e-9,
        snapshot_pause_s: 0.002,
        snapshot_completion_s: 0.0,
        restore_bytes_per_s: 100.0 * MB,
        row_bytes: 100.0,
        cores: 1.0,
        memory_bytes: 300.0 * MB,
        replay_speedup: 1.0,
        epoch_replay_s: 0.0,
        crash: FailureRate::known(30.0 * 86_400.0),
        common_cause: 0.0,
        merge: Merge::Union,
        worker: None,
        replicable: true,
        measured: true,
    }
}

/// Two sources, a join, an aggregate, with the rows that each gives per row it takes.
pub(crate) fn flow(selectivity: [f64; 4]) -> Flow {
    let fragment = |i: usize, name: &str, parallelism, stateful, merge| Fragment {
        name: name.into(),
        job: 0,
        parallelism,
        stateful,
        selectivity: selectivity[i],
        merge,
        reads_rows_per_s: None,
    };
    let stream = |from, to, input| Stream { from, to, input, route: Route::Shuffle, logged: false };
    Flow {
        fragments: vec![
            fragment(0, "bids", 2, false, Merge::Union),
            fragment(1, "auctions", 1, false, Merge::Union),
            fragment(2, "join", 2, true, Merge::Join),
            fragment(3, "sum", 2, true, Merge::Union),
        ],
        streams: vec![stream(0, 2, 0), stream(1, 2, 1), stream(2, 3, 0)],
        outlets: vec![Outlet {
            name: "v".into(),
            fragment: 3,
            delivery: Delivery::ExactlyOnce,
            deadline_s: None,
            weight: None,
        }],
    }
}

pub(crate) fn edge(from: usize, to: usize, rows_per_s: f64) -> Edge {
    Edge { from, to, input: 0, rows_per_s, logged: false }
}

pub(crate) fn sink(tasks: &[usize]) -> Sink {
    Sink {
        name: "out".into(),
        tasks: tasks.to_vec(),
        deadline_s: 1.2,
        steady_latency_s: 0.2,
        weight: 1.0,
        rows_per_s: 1000.0,
        delivery: Delivery::ExactlyOnce,
    }
}

/// `n` workers in `domains` domains, in turn.
pub(crate) fn cluster(n: usize, domains: usize, slots: usize) -> Cluster {
    Cluster {
        workers: (0..n)
            .map(|i| Worker {
                name: format!("w{i}"),
                domain: i % domains,
                slots,
                failure: FailureRate::known(10.0 * 86_400.0),
            })
            .collect(),
        domains: (0..domains)
            .map(|i| Domain { name: format!("rack{i}"), failure: FailureRate::known(60.0 * 86_400.0) })
            .collect(),
        detection_s: 0.3,
        launch_s: 0.5,
        switch_s: 0.1,
        epoch_s: 0.1,
        record_s: 0.01,
        global_level: 6,
        in_flight_epochs: 8,
        log_budget_s: 60.0,
        coordinator: FailureRate::known(90.0 * 86_400.0),
        failover_s: 2.0,
        false_alarms_per_s: 0.0,
        repair_s: 600.0,
    }
}

pub(crate) fn prices() -> Prices {
    Prices { core_per_h: 0.04, gib_per_h: 0.005, net_per_gib: 0.01, late_row: 1e-4 }
}

/// A graph of `n` tasks, one sink, three workers in three domains; rates from the edges.
pub(crate) fn input(n: usize, edges: &[Edge], sinks: &[usize]) -> Input {
    let mut tasks: Vec<Task> = (0..n).map(|i| task(&format!("t{i}"))).collect();
    for (i, t) in tasks.iter_mut().enumerate() {
        let rate: f64 = edges.iter().filter(|e| e.to == i).map(|e| e.rows_per_s).sum();
        if rate > 0.0 {
            t.rows_per_s = rate;
            t.peak_rows_per_s = rate;
            t.capacity_rows_per_s = 2.0 * rate;
        }
    }
    Input {
        tasks,
        edges: edges.to_vec(),
        sinks: vec![sink(sinks)],
        cluster: cluster(n.max(3), 3, 4),
        prices: prices(),
        load: Vec::new(),
    }
}

/// Normal load and bursts to the peak: 10 minutes each hour.
pub(crate) fn burst_load() -> Vec<LoadState> {
    vec![
        LoadState { name: "normal".into(), share: 5.0 / 6.0, length_s: 3000.0, level: 0.0 },
        LoadState { name: "burst".into(), share: 1.0 / 6.0, length_s: 600.0, level: 1.0 },
    ]
}

/// Shapes of dataflow graphs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Chain,
    Tree,
    Diamond,
    Join,
    Dag,
}

pub(crate) const SHAPES: [Shape; 5] = [Shape::Chain, Shape::Tree, Shape::Diamond, Shape::Join, Shape::Dag];

/// How many rounds a proof takes: all of them in an optimised build, fewer where each is slow.
pub(crate) fn rounds(all: u64) -> u64 {
    if cfg!(debug_assertions) { all / 10 } else { all }
}

pub(crate) fn rng(seed: u64) -> SmallRng {
    SmallRng::seed_from_u64(seed)
}

/// Edges of a shape over `n` ≥ 2 tasks that end in the last one.
pub(crate) fn shape(shape: Shape, n: usize, rng: &mut SmallRng) -> Vec<Edge> {
    let mut out = Vec::new();
    match shape {
        Shape::Chain => out.extend((1..n).map(|i| edge(i - 1, i, 1000.0))),
        // Everybody's consumer stands later: a tree towards the last.
        Shape::Tree => out.extend((0..n - 1).map(|i| edge(i, rng.random_range(i + 1..n), 1000.0))),
        Shape::Diamond => {
            for i in 1..n - 1 {
                out.extend([edge(0, i, 500.0), edge(i, n - 1, 500.0)]);
            }
            if n == 2 {
                out.push(edge(0, 1, 1000.0));
            }
        }
        // Two chains that meet in the last task.
        Shape::Join => {
            let half = (n - 1) / 2;
            out.extend((1..half).map(|i| edge(i - 1, i, 1000.0)));
            out.extend((half + 1..n - 1).map(|i| edge(i - 1, i, 1000.0)));
            if half > 0 {
                out.push(edge(half - 1, n - 1, 1000.0));
            }
            out.push(Edge { input: 1, ..edge(n - 2, n - 1, 1000.0) });
        }
        Shape::Dag => {
            for i in 0..n - 1 {
                let to = rng.random_range(i + 1..n);
                out.push(edge(i, to, 700.0));
                for j in i + 1..n {
                    if j != to && rng.random_bool(0.25) {
                        out.push(edge(i, j, 300.0));
                    }
                }
            }
        }
    }
    out
}

/// A random input of a shape with everything drawn at random; `workers` in `domains`.
pub(crate) fn random_input(shape_of: Shape, n: usize, workers: usize, domains: usize, rng: &mut SmallRng) -> Input {
    let edges = shape(shape_of, n, rng);
    let mut x = input(n, &edges, &[n - 1]);
    x.cluster = cluster(workers, domains, n.div_ceil(workers.saturating_sub(1).max(1)) + 2);
    x.cluster.global_level = 3;
    x.cluster.epoch_s = 2.0;
    x.prices.late_row = 10f64.powf(rng.random_range(-6.0..-3.0));
    for w in &mut x.cluster.workers {
        w.failure = FailureRate::known(86_400.0 * rng.random_range(1.0..30.0));
    }
    for d in &mut x.cluster.domains {
        d.failure = FailureRate::known(86_400.0 * rng.random_range(10.0..90.0));
    }
    for t in &mut x.tasks {
        let rho: f64 = rng.random_range(0.1..0.9);
        t.capacity_rows_per_s = t.rows_per_s / rho;
        t.peak_rows_per_s = t.rows_per_s * rng.random_range(1.0..1.4);
        t.state_bytes = if rng.random_bool(0.2) { 0.0 } else { 10f64.powf(rng.random_range(6.0..9.3)) };
        t.memory_bytes = 2.0 * t.state_bytes + 5e7;
        t.dirty.first_touch_bytes_per_s = t.state_bytes * 10f64.powf(rng.random_range(-3.5..-1.0));
        t.snapshot_pause_s = 10f64.powf(rng.random_range(-3.5..-1.5));
        t.crash = FailureRate::known(86_400.0 * rng.random_range(3.0..60.0));
        t.common_cause = if rng.random_bool(0.3) { 0.2 } else { 0.0 };
        t.replicable = rng.random_bool(0.9);
    }
    let s = &mut x.sinks[0];
    s.deadline_s = s.steady_latency_s + 10f64.powf(rng.random_range(-1.0..1.3));
    s.weight = rng.random_range(0.5..3.0);
    x
}
