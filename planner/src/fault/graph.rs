//! What the model is told: tasks and the edges between them, sinks with their deadlines, workers in
//! failure domains, times and prices. Plain data, no opinion: the planner and the cluster description
//! fill it in, the estimators keep it up to date.

use serde::{Deserialize, Serialize};

use super::error::{FaultError, Result};

/// A failure rate known as well as it is known: Gamma(α, β) per second.
///
/// The prior says "α failures in β seconds"; seeing n failures in t task-seconds makes it
/// Gamma(α+n, β+t), the conjugate posterior of a Poisson process.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FailureRate {
    /// Failures, seen or imagined.
    pub alpha: f64,
    /// Exposure [s], seen or imagined.
    pub beta_s: f64,
}

impl FailureRate {
    /// Never fails.
    pub const NEVER: Self = Self { alpha: 0.0, beta_s: 1.0 };

    /// As certain as can be: one failure per `mtbf_s` seconds.
    pub fn known(mtbf_s: f64) -> Self {
        Self { alpha: 1e9, beta_s: 1e9 * mtbf_s }
    }

    /// A prior as weak as one failure seen.
    pub fn prior(mtbf_s: f64) -> Self {
        Self { alpha: 1.0, beta_s: mtbf_s }
    }

    /// Expected failures per second.
    pub fn mean_per_s(self) -> f64 {
        if self.alpha <= 0.0 { 0.0 } else { self.alpha / self.beta_s }
    }

    /// Probability of no failure of which a share `q` counts within `t_s`: the Gamma predictive
    /// (β/(β+qt))^α, which tends to exp(−λqt) as the rate becomes known.
    pub fn survival(self, q: f64, t_s: f64) -> f64 {
        if self.alpha <= 0.0 {
            return 1.0;
        }
        (-self.alpha * (q * t_s / self.beta_s).ln_1p()).exp()
    }
}

/// Bytes that change between two snapshots.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Dirty {
    /// Bytes touched for the first time per second, right after a snapshot [bytes/s].
    pub first_touch_bytes_per_s: f64,
    /// Measured dirty bytes after 2^i epochs, where there are any (`None`: not tried).
    pub measured_bytes: Vec<Option<f64>>,
}

/// How a task brings its inputs together, for the information that is lost with one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub enum Merge {
    /// Each input's rows count by themselves (union, aggregation).
    #[default]
    Union,
    /// A row needs a partner in every input (join).
    Join,
}

/// One parallel instance of a fragment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Name, as in `spate.tasks`.
    pub name: String,
    /// The job it belongs to.
    pub job: usize,
    /// Input at normal load [rows/s].
    pub rows_per_s: f64,
    /// Input at peak load [rows/s].
    pub peak_rows_per_s: f64,
    /// Most it can take [rows/s], the work of its snapshots not counted.
    pub capacity_rows_per_s: f64,
    /// State [bytes]; 0 for a stateless task.
    pub state_bytes: f64,
    /// What changes of it.
    pub dirty: Dirty,
    /// CPU time to encode a dirty byte [s/byte].
    pub encode_s_per_byte: f64,
    /// Pause per snapshot [s].
    pub snapshot_pause_s: f64,
    /// From a snapshot's barrier until it is current, κ [s].
    pub snapshot_completion_s: f64,
    /// Download and decoding of a snapshot [bytes/s].
    pub restore_bytes_per_s: f64,
    /// Mean size of an input row in a log [bytes].
    pub row_bytes: f64,
    /// Cores that it takes at full load.
    pub cores: f64,
    /// Memory that it takes [bytes].
    pub memory_bytes: f64,
    /// Replay speed over live speed, s.
    pub replay_speedup: f64,
    /// Fixed cost of each replayed epoch [s].
    pub epoch_replay_s: f64,
    /// How often it crashes by itself.
    pub crash: FailureRate,
    /// Share of its crashes that the input causes, so that a replica crashes too.
    pub common_cause: f64,
    /// How inputs meet.
    pub merge: Merge,
    /// Where it runs, if that is given.
    pub worker: Option<usize>,
    /// Whether it may have a replica.
    pub replicable: bool,
    /// Whether rates and state are measured; else they are priors.
    pub measured: bool,
}

impl Task {
    /// Whether it has state to restore.
    pub fn stateful(&self) -> bool {
        self.state_bytes > 0.0
    }

    /// Input at a load level: 0 is normal, 1 the peak [rows/s].
    pub fn rows_at(&self, level: f64) -> f64 {
        (self.rows_per_s + (self.peak_rows_per_s - self.rows_per_s) * level).max(0.0)
    }

    /// Utilisation at a load level, snapshots not counted.
    pub fn rho_at(&self, level: f64) -> f64 {
        self.rows_at(level) / self.capacity_rows_per_s
    }

    /// Dirty bytes ΔS after 2^`i` epochs of `epoch_s`.
    ///
    /// Where it was measured, that; else a random-touch curve S(1 − e^(−wτ/S)), which starts with
    /// slope w and ends at S: with w bytes of uniformly chosen state touched per second, a byte is
    /// untouched after τ with probability e^(−wτ/S). A measurement at another interval scales it.
    pub fn dirty_bytes(&self, i: u8, epoch_s: f64) -> f64 {
        if let Some(Some(b)) = self.dirty.measured_bytes.get(usize::from(i)) {
            return b.min(self.state_bytes);
        }
        if self.state_bytes <= 0.0 {
            return 0.0;
        }
        let curve = |i: u8| {
            let touched = self.dirty.first_touch_bytes_per_s * epoch_s * f64::from(i).exp2();
            self.state_bytes * -(-touched / self.state_bytes).exp_m1()
        };
        let near = (0..self.dirty.measured_bytes.len())
            .filter_map(|j| Some((j, self.dirty.measured_bytes[j]?)))
            .min_by_key(|(j, _)| j.abs_diff(usize::from(i)));
        let scale = match near {
            // Fewer than 256 intervals are ever measured.
            Some((j, b)) => b / curve(u8::try_from(j).unwrap_or(u8::MAX)).max(1.0),
            None => 1.0,
        };
        (curve(i) * scale).min(self.state_bytes)
    }
}

/// A stream from a task to another.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Edge {
    /// Producer.
    pub from: usize,
    /// Consumer.
    pub to: usize,
    /// Which of the consumer's inputs: a join has two, each of which may come from many tasks.
    pub input: u8,
    /// Rows on it [rows/s].
    pub rows_per_s: f64,
    /// Whether it leads to another job and is logged to disk: a stalled consumer then stalls the
    /// producer only once the log's budget is full, and snapshots on both sides are independent.
    pub logged: bool,
}

/// What a sink promises to those who read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub enum Delivery {
    /// Nothing lost, nothing twice.
    #[default]
    ExactlyOnce,
    /// The rest goes on without what was lost, so only a share of the sink suffers.
    AtMostOnce,
}

/// Where results leave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sink {
    /// Name.
    pub name: String,
    /// Tasks that write to it.
    pub tasks: Vec<usize>,
    /// How old a result may be [s].
    pub deadline_s: f64,
    /// How old results are without failures [s].
    pub steady_latency_s: f64,
    /// How much a late row counts.
    pub weight: f64,
    /// Output [rows/s].
    pub rows_per_s: f64,
    /// Its promise.
    pub delivery: Delivery,
}

impl Sink {
    /// Delay that a failure may add before rows are late [s].
    pub fn slack_s(&self) -> f64 {
        (self.deadline_s - self.steady_latency_s).max(0.0)
    }
}

/// A machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Worker {
    /// Name.
    pub name: String,
    /// Failure domain.
    pub domain: usize,
    /// Tasks and replicas that it can run.
    pub slots: usize,
    /// How often it fails.
    pub failure: FailureRate,
}

/// What fails together: a rack, a zone, a power feed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Domain {
    /// Name.
    pub name: String,
    /// How often all of it fails at once.
    pub failure: FailureRate,
}

/// Machines, and how fast failures are dealt with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cluster {
    /// Machines.
    pub workers: Vec<Worker>,
    /// Failure domains.
    pub domains: Vec<Domain>,
    /// Until a failure is noticed, T_d [s].
    pub detection_s: f64,
    /// Until a task is started elsewhere, T_l, logs open and old generation fenced off [s].
    pub launch_s: f64,
    /// Until a replica has taken over, T_s [s].
    pub switch_s: f64,
    /// Length of an epoch, E [s].
    pub epoch_s: f64,
    /// Until an epoch record is durable [s].
    pub record_s: f64,
    /// The global checkpoint comes every 2^this epochs.
    pub global_level: u8,
    /// Epochs in flight before a stalled sink stalls its job's other sinks.
    pub in_flight_epochs: u32,
    /// What a logged edge holds before it stalls its producer [s of input].
    pub log_budget_s: f64,
    /// Failures of the coordinator or the meta store.
    pub coordinator: FailureRate,
    /// Until another one leads [s].
    pub failover_s: f64,
    /// False alarms per worker at this `detection_s` [1/s].
    pub false_alarms_per_s: f64,
    /// Until a failed machine is back or replaced [s].
    pub repair_s: f64,
}

impl Cluster {
    /// The interval of level `i` [s].
    pub fn interval_s(&self, i: u8) -> f64 {
        self.epoch_s * f64::from(i).exp2()
    }
}

/// One price for what protection takes, in any currency.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Prices {
    /// A core for an hour.
    pub core_per_h: f64,
    /// A GiB of memory for an hour.
    pub gib_per_h: f64,
    /// A GiB over the network.
    pub net_per_gib: f64,
    /// A late row of weight 1.
    pub late_row: f64,
}

/// A state of the load: the normal one, a burst.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadState {
    /// Name.
    pub name: String,
    /// Share of the time.
    pub share: f64,
    /// Mean length of one stay [s].
    pub length_s: f64,
    /// 0: normal rates, 1: peak rates; in between and beyond linearly.
    pub level: f64,
}

/// All that the model is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Input {
    /// Tasks.
    pub tasks: Vec<Task>,
    /// Streams between them.
    pub edges: Vec<Edge>,
    /// Where results leave.
    pub sinks: Vec<Sink>,
    /// Machines and times.
    pub cluster: Cluster,
    /// Prices.
    pub prices: Prices,
    /// Load states in the order in which they follow each other; empty: normal load for ever.
    pub load: Vec<LoadState>,
}

impl Input {
    /// Time-averaged load level.
    pub fn mean_level(&self) -> f64 {
        let shares: f64 = self.load.iter().map(|l| l.share).sum();
        if shares <= 0.0 { 0.0 } else { self.load.iter().map(|l| l.share * l.level).sum::<f64>() / shares }
    }

    /// Checks that every number is in range and everything referred to exists.
    pub fn validate(&self) -> Result<()> {
        super::validate::input(self)
    }

    /// Tasks so that producers stand before consumers, or an error naming a task on a cycle.
    pub fn topological_order(&self) -> Result<Vec<usize>> {
        let n = self.tasks.len();
        let mut waiting = vec![0usize; n];
        let out = self.successors();
        for e in &self.edges {
            waiting[e.to] += 1;
        }
        let mut order: Vec<usize> = (0..n).filter(|&v| waiting[v] == 0).collect();
        let mut next = 0;
        while next < order.len() {
            for &w in &out[order[next]] {
                waiting[w] -= 1;
                if waiting[w] == 0 {
                    order.push(w);
                }
            }
            next += 1;
        }
        match waiting.iter().position(|&w| w > 0) {
            Some(v) => Err(FaultError::invalid(format!("task \"{}\" is on a cycle of edges", self.tasks[v].name))),
            None => Ok(order),
        }
    }

    /// Consumers of every task, once per edge.
    pub fn successors(&self) -> Vec<Vec<usize>> {
        let mut out = vec![Vec::new(); self.tasks.len()];
        for e in &self.edges {
            out[e.from].push(e.to);
        }
        out
    }
}
