//! A cluster described in a file, for `spate simulate` and for what nobody has measured yet.
//!
//! The structs are what such a file deserialises into (its form is TOML's, but any serde format will
//! do). Unknown keys are refused. Times are in seconds, rates per second, sizes in bytes or MB, as the
//! names say. Everything but the racks has a default.

use serde::{Deserialize, Serialize};

use super::error::{FaultError, Result};
use super::graph::{Cluster, Domain, FailureRate, Input, LoadState, Prices, Worker};
use super::optimize::Goal;
use super::validate::{MAX_LEVEL, non_negative, positive};

/// Most machines.
pub const MAX_WORKERS: usize = 100_000;

/// A cluster file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterFile {
    /// Racks or zones.
    pub rack: Vec<Rack>,
    /// Times of failure handling.
    #[serde(default)]
    pub times: Times,
    /// What things cost.
    #[serde(default)]
    pub price: PriceList,
    /// Load states, in the order in which they follow each other.
    #[serde(default)]
    pub load: Vec<Load>,
    /// What tasks are like, unless a fragment says otherwise.
    #[serde(default)]
    pub task: TaskDefaults,
    /// Single fragments, by name.
    #[serde(default)]
    pub fragment: Vec<FragmentOverride>,
    /// What results are promised.
    #[serde(default)]
    pub sink: SinkDefaults,
    /// What to optimise.
    #[serde(default)]
    pub goal: GoalFile,
}

/// Machines that fail together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rack {
    /// Name.
    pub name: String,
    /// Machines in it.
    pub workers: usize,
    /// Tasks per machine.
    pub slots: usize,
    /// Mean time between failures of a machine [h].
    pub worker_mtbf_h: f64,
    /// Of the whole rack [h]; none: it never fails as a whole.
    #[serde(default)]
    pub rack_mtbf_h: Option<f64>,
}

/// Times of failure handling.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Times {
    /// Until a failure is noticed [s].
    pub detection_s: f64,
    /// Until a task has started elsewhere [s].
    pub launch_s: f64,
    /// Until a replica has taken over [s].
    pub switch_s: f64,
    /// Epoch [s].
    pub epoch_s: f64,
    /// Until an epoch's record is durable [s].
    pub record_s: f64,
    /// Global checkpoints at least so often [s]; rounded down to 2^i epochs.
    pub global_checkpoint_s: f64,
    /// Until another coordinator leads [s].
    pub failover_s: f64,
    /// Mean time between failures of the coordinator [h].
    pub coordinator_mtbf_h: f64,
    /// False alarms per worker and hour.
    pub false_alarms_per_h: f64,
    /// Until a machine is back [s].
    pub repair_s: f64,
    /// What a log between jobs holds [s].
    pub log_budget_s: f64,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            detection_s: 1.0,
            launch_s: 0.3,
            switch_s: 0.1,
            epoch_s: 0.1,
            record_s: 0.01,
            global_checkpoint_s: 12.8,
            failover_s: 3.0,
            coordinator_mtbf_h: 2000.0,
            false_alarms_per_h: 0.0,
            repair_s: 600.0,
            log_budget_s: 600.0,
        }
    }
}

/// Prices, in any one currency.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PriceList {
    /// A core for an hour.
    pub core_h: f64,
    /// A GiB of memory for an hour.
    pub gib_h: f64,
    /// A GiB over the network.
    pub net_gib: f64,
    /// A late row.
    pub late_row: f64,
}

impl Default for PriceList {
    fn default() -> Self {
        Self { core_h: 0.04, gib_h: 0.005, net_gib: 0.01, late_row: 1e-5 }
    }
}

/// A load state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Name.
    pub name: String,
    /// Share of the time.
    pub share: f64,
    /// Mean length of a stay [s].
    pub length_s: f64,
    /// 0: normal rates, 1: peak rates.
    pub level: f64,
}

/// What a task is like.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TaskDefaults {
    /// Input of a source task [rows/s].
    pub source_rows_per_s: f64,
    /// Peak rate over normal rate.
    pub peak_factor: f64,
    /// What a task can take [rows/s].
    pub capacity_rows_per_s: f64,
    /// State of a stateful task [MB].
    pub state_mb: f64,
    /// State touched for the first time per second [MB/s].
    pub first_touch_mb_per_s: f64,
    /// Restore bandwidth [MB/s].
    pub restore_mb_per_s: f64,
    /// Encoding speed of snapshots [MB/s].
    pub encode_mb_per_s: f64,
    /// Pause per snapshot [s].
    pub snapshot_pause_s: f64,
    /// Until a snapshot is durable [s].
    pub snapshot_completion_s: f64,
    /// Size of a row [bytes].
    pub row_bytes: f64,
    /// Memory beyond the state [MB].
    pub base_memory_mb: f64,
    /// Replay speed over live speed.
    pub replay_speedup: f64,
    /// Mean time between crashes [h].
    pub crash_mtbf_h: f64,
    /// Share of crashes that the input causes.
    pub common_cause: f64,
}

impl Default for TaskDefaults {
    fn default() -> Self {
        Self {
            source_rows_per_s: 50_000.0,
            peak_factor: 1.0,
            capacity_rows_per_s: 200_000.0,
            state_mb: 200.0,
            first_touch_mb_per_s: 5.0,
            restore_mb_per_s: 200.0,
            encode_mb_per_s: 500.0,
            snapshot_pause_s: 0.001,
            snapshot_completion_s: 0.2,
            row_bytes: 100.0,
            base_memory_mb: 50.0,
            replay_speedup: 1.5,
            crash_mtbf_h: 2000.0,
            common_cause: 0.02,
        }
    }
}

/// What is different about a fragment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FragmentOverride {
    /// Its name.
    pub name: String,
    /// State per task [MB].
    #[serde(default)]
    pub state_mb: Option<f64>,
    /// Input per task [rows/s].
    #[serde(default)]
    pub rows_per_s: Option<f64>,
    /// Capacity per task [rows/s].
    #[serde(default)]
    pub capacity_rows_per_s: Option<f64>,
    /// Parallel tasks.
    #[serde(default)]
    pub parallelism: Option<usize>,
    /// Rows out per row in.
    #[serde(default)]
    pub selectivity: Option<f64>,
}

/// What results are promised.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SinkDefaults {
    /// How old a result may be [s].
    pub deadline_s: f64,
    /// How old it is without failures [s].
    pub steady_latency_s: f64,
    /// How much a late row counts.
    pub weight: f64,
}

impl Default for SinkDefaults {
    fn default() -> Self {
        Self { deadline_s: 2.0, steady_latency_s: 0.2, weight: 1.0 }
    }
}

/// The goal as in `SET fault.*`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GoalFile {
    /// Strategy.
    pub strategy: super::optimize::Strategy,
    /// Late rows per hour at most.
    pub loss_budget: Option<f64>,
    /// Replicas at most.
    pub replica_slots: Option<usize>,
    /// Share of cores that snapshots may take.
    pub overhead: Option<f64>,
    /// Longest outage [s].
    pub recovery_slo_s: Option<f64>,
    /// With which probability.
    pub slo_confidence: Option<f64>,
}

impl ClusterFile {
    /// Checks every number that is not checked once a query is planned on it.
    pub fn validate(&self) -> Result<()> {
        let workers: usize = self.rack.iter().map(|r| r.workers).fold(0, usize::saturating_add);
        if workers == 0 {
            return Err(FaultError::invalid("the cluster has no worker: add a [[rack]] with workers"));
        }
        if workers > MAX_WORKERS {
            return Err(FaultError::invalid(format!("{workers} workers, at most {MAX_WORKERS}")));
        }
        for (i, r) in self.rack.iter().enumerate() {
            if self.rack[..i].iter().any(|other| other.name == r.name) {
                return Err(FaultError::invalid(format!(
                    "two racks are called \"{}\": each needs a name of its own",
                    r.name
                )));
            }
            let of = format!("rack \"{}\"", r.name);
            positive(&of, "worker_mtbf_h", r.worker_mtbf_h)?;
            r.rack_mtbf_h.map_or(Ok(()), |h| positive(&of, "rack_mtbf_h", h))?;
            if r.slots == 0 {
                return Err(FaultError::invalid(format!("{of}: slots is 0, must be above 0")));
            }
        }
        positive("times", "epoch_s", self.times.epoch_s)?;
        positive("times", "coordinator_mtbf_h", self.times.coordinator_mtbf_h)?;
        let t = &self.task;
        for (name, x) in [
            ("source_rows_per_s", t.source_rows_per_s),
            ("first_touch_mb_per_s", t.first_touch_mb_per_s),
            ("state_mb", t.state_mb),
            ("base_memory_mb", t.base_memory_mb),
        ] {
            non_negative("task", name, x)?;
        }
        for (name, x) in [
            ("false_alarms_per_h", self.times.false_alarms_per_h),
            ("global_checkpoint_s", self.times.global_checkpoint_s),
        ] {
            non_negative("times", name, x)?;
        }
        for (name, x) in [
            ("capacity_rows_per_s", t.capacity_rows_per_s),
            ("restore_mb_per_s", t.restore_mb_per_s),
            ("encode_mb_per_s", t.encode_mb_per_s),
            ("crash_mtbf_h", t.crash_mtbf_h),
            ("replay_speedup", t.replay_speedup),
        ] {
            positive("task", name, x)?;
        }
        if !(t.peak_factor >= 1.0 && t.peak_factor.is_finite()) {
            return Err(FaultError::invalid(format!("task: peak_factor is {}, must be 1 or more", t.peak_factor)));
        }
        self.goal().map(|_| ())
    }

    /// The machines, for the model. Failure rates are taken as known.
    pub fn cluster(&self) -> Result<Cluster> {
        self.validate()?;
        let t = &self.times;
        let known = |h: f64| FailureRate::known(h * 3600.0);
        let mut workers = Vec::new();
        let mut domains = Vec::new();
        for r in &self.rack {
            for i in 0..r.workers {
                workers.push(Worker {
                    name: format!("{}-{}", r.name, i + 1),
                    domain: domains.len(),
                    slots: r.slots,
                    failure: known(r.worker_mtbf_h),
                });
            }
            domains.push(Domain { name: r.name.clone(), failure: r.rack_mtbf_h.map_or(FailureRate::NEVER, known) });
        }
        let levels = (t.global_checkpoint_s / t.epoch_s).max(1.0).log2().floor();
        Ok(Cluster {
            workers,
            domains,
            detection_s: t.detection_s,
            launch_s: t.launch_s,
            switch_s: t.switch_s,
            epoch_s: t.epoch_s,
            record_s: t.record_s,
            // Rounding up by one part in a million lets 12.8 s be 2^7 epochs of 0.1 s.
            global_level: ((levels + 1e-6) as u8).min(MAX_LEVEL),
            in_flight_epochs: 8,
            log_budget_s: t.log_budget_s,
            coordinator: known(t.coordinator_mtbf_h),
            failover_s: t.failover_s,
            false_alarms_per_s: t.false_alarms_per_h / 3600.0,
            repair_s: t.repair_s,
        })
    }

    /// The prices.
    pub fn prices(&self) -> Prices {
        let p = self.price;
        Prices { core_per_h: p.core_h, gib_per_h: p.gib_h, net_per_gib: p.net_gib, late_row: p.late_row }
    }

    /// The load states.
    pub fn load_states(&self) -> Vec<LoadState> {
        let state = |l: &Load| LoadState { name: l.name.clone(), share: l.share, length_s: l.length_s, level: l.level };
        self.load.iter().map(state).collect()
    }

    /// The goal.
    pub fn goal(&self) -> Result<Goal> {
        let g = &self.goal;
        let slo = g
            .recovery_slo_s
            .map(|recovery_s| super::optimize::Slo { recovery_s, confidence: g.slo_confidence.unwrap_or(0.99) });
        let goal = Goal {
            strategy: g.strategy,
            loss_budget_rows_per_h: g.loss_budget,
            replica_slots: g.replica_slots,
            overhead: g.overhead,
            slo,
            level: None,
        };
        goal.validate()?;
        Ok(goal)
    }

    /// The whole input for a dataflow: checked, ready for the model.
    pub fn input(&self, flow: &super::flow::Flow) -> Result<Input> {
        let input = super::flow::expand(self, flow)?;
        input.validate()?;
        Ok(input)
    }
}
