//! What protects a task, what that costs while nothing fails, and what a failure costs then.
//!
//! A task has one [`Choice`]: how often it takes snapshots, and whether a hot replica runs beside it.
//! [`Model`] knows the graph: which sinks a failure of the task holds up, how soon, and how fast the
//! path to them catches up.

use serde::{Deserialize, Serialize};

use super::error::Result;
use super::fluid::{self, Loss, Phase, Span};
use super::graph::{Delivery, Input, Task};
use super::{fidelity, interval};

/// Bytes in a GiB.
pub const GIB: f64 = 1_073_741_824.0;

/// How a task is protected.
///
/// A stateful task with `level` = the global one has no snapshots of its own: "replay". A
/// replica has a level too: it is what is left when both copies die, and by the rule
/// τ_downstream ≤ τ_upstream it counts for its neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Choice {
    /// Snapshots every 2^level epochs.
    pub level: u8,
    /// A hot replica on another worker.
    pub active: bool,
}

impl Choice {
    /// Snapshots only.
    pub fn checkpoint(level: u8) -> Self {
        Self { level, active: false }
    }

    /// A replica, and snapshots behind it.
    pub fn active(level: u8) -> Self {
        Self { level, active: true }
    }
}

/// Which copies of a task a failure takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hit {
    /// The task alone: a replica can take over.
    Primary,
    /// Its replica too, or there is none.
    All,
}

/// How hard a shock is on those who must recover from it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stress {
    /// Tasks that restore per surviving worker, at least 1: they share its bandwidth.
    pub restore: f64,
    /// Load per surviving slot, at least 1: tasks share cores until the machine is back.
    pub load: f64,
    /// Seconds to wait before anything can restart, if nothing is left to restart on.
    pub wait_s: f64,
}

impl Stress {
    /// Room for everybody.
    pub const NONE: Self = Self { restore: 1.0, load: 1.0, wait_s: 0.0 };
}

/// What a choice takes while nothing fails.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Running {
    /// All of it, priced [currency/h].
    pub cost_per_h: f64,
    /// Share of the task's time that snapshots take.
    pub utilisation: f64,
    /// Cores for snapshots.
    pub overhead_cores: f64,
    /// Cores of the replica.
    pub replica_cores: f64,
    /// Memory of the replica and of upstream logs [bytes].
    pub memory_bytes: f64,
    /// Snapshots uploaded and input sent to the replica [bytes/s].
    pub net_bytes_per_s: f64,
    /// Latency that pauses add on average [s].
    pub added_latency_s: f64,
}

/// A sink that a task's failure holds up.
#[derive(Debug, Clone, PartialEq)]
pub struct Reach {
    /// Which.
    pub sink: usize,
    /// What is buffered in between before it is noticed there [s]: 0 downstream, the epochs in
    /// flight for the job's other sinks, a log's budget for a producer's.
    pub buffer_s: f64,
    /// Share of the sink's rows that is held up.
    pub share: f64,
    /// Utilisation of the busiest task on a path there, its own not counted, at the normal and at
    /// the peak level.
    pub rho: [f64; 2],
}

/// Which load a failure meets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum When {
    /// The load's mean over time.
    Mean,
    /// Always this state of [`Input::load`], and whatever follows it.
    State(usize),
    /// The states, each as often as it comes.
    States,
}

/// An input, checked, with what follows from its graph alone.
#[derive(Debug, Clone)]
pub struct Model<'a> {
    /// What it was told.
    pub input: &'a Input,
    /// Producers before consumers.
    pub order: Vec<usize>,
    /// Place of each task in that order.
    pub rank: Vec<usize>,
    /// Producers of each task within its job.
    pub producers: Vec<Vec<usize>>,
    /// Sinks that each task holds up.
    pub reach: Vec<Vec<Reach>>,
}

impl<'a> Model<'a> {
    /// Checks an input and walks its graph.
    pub fn new(input: &'a Input) -> Result<Self> {
        input.validate()?;
        let order = input.topological_order()?;
        let reach = super::reach::reach(input, &order)?;
        let mut rank = vec![0; order.len()];
        order.iter().enumerate().for_each(|(i, &v)| rank[v] = i);
        let mut producers = vec![Vec::new(); order.len()];
        for e in input.edges.iter().filter(|e| !e.logged) {
            producers[e.to].push(e.from);
        }
        Ok(Self { input, order, rank, producers, reach })
    }

    /// Levels there are: 0 to the global one.
    pub fn levels(&self) -> usize {
        usize::from(self.input.cluster.global_level) + 1
    }

    /// What there is to choose for a task. A stateless one has no snapshots of its own; its level says
    /// only that its consumers' may not be greater, so all levels are free.
    pub fn choices(&self, task: usize) -> Vec<Choice> {
        let t = &self.input.tasks[task];
        let replica = t.replicable && self.input.cluster.workers.len() > 1;
        (0..=self.input.cluster.global_level)
            .flat_map(|l| [Some(Choice::checkpoint(l)), replica.then_some(Choice::active(l))])
            .flatten()
            .filter(|&c| self.rho(task, c, self.input.mean_level()) < 1.0)
            .collect()
    }

    /// Share of a task's time that snapshots of a level take: (encode·ΔS(τ) + c)/τ.
    fn snapshot_share(&self, t: &Task, level: u8) -> f64 {
        if !t.stateful() {
            return 0.0;
        }
        let epoch_s = self.input.cluster.epoch_s;
        let work_s = t.encode_s_per_byte * t.dirty_bytes(level, epoch_s) + t.snapshot_pause_s;
        work_s / self.input.cluster.interval_s(level)
    }

    /// Utilisation of a task at a load level, its snapshots included.
    pub fn rho(&self, task: usize, choice: Choice, level: f64) -> f64 {
        let t = &self.input.tasks[task];
        t.rho_at(level) + self.snapshot_share(t, choice.level)
    }

    /// What a choice takes while nothing fails.
    pub fn running(&self, task: usize, choice: Choice) -> Running {
        let (t, c, p) = (&self.input.tasks[task], &self.input.cluster, &self.input.prices);
        let rows_per_s = t.rows_at(self.input.mean_level());
        let mut out = Running::default();
        if t.stateful() {
            let tau_s = c.interval_s(choice.level);
            out.utilisation = self.snapshot_share(t, choice.level);
            out.overhead_cores = out.utilisation * t.cores;
            out.net_bytes_per_s = t.dirty_bytes(choice.level, c.epoch_s) / tau_s;
            // What upstream keeps for us from our snapshot on: on average between τ and 2κ+τ; the
            // peak is what has to be there.
            out.memory_bytes = rows_per_s * tau_s * t.row_bytes;
            let rho = t.rho_at(self.input.mean_level());
            out.added_latency_s = interval::pause_latency_s(t.snapshot_pause_s, tau_s, rho).unwrap_or(0.0);
        }
        if choice.active {
            out.replica_cores = t.cores;
            out.memory_bytes += t.memory_bytes;
            out.net_bytes_per_s += rows_per_s * t.row_bytes;
        }
        out.cost_per_h = (out.overhead_cores + out.replica_cores) * p.core_per_h
            + out.memory_bytes / GIB * p.gib_per_h
            + out.net_bytes_per_s * 3600.0 / GIB * p.net_per_gib;
        out
    }

    /// Time to the first replayed row, T0 [s]: T_d + T_l + S/B, or T_d + T_s with a replica.
    pub fn first_row_s(&self, task: usize, choice: Choice, hit: Hit, stress: Stress) -> f64 {
        let (t, c) = (&self.input.tasks[task], &self.input.cluster);
        if choice.active && hit == Hit::Primary {
            return c.detection_s + c.switch_s;
        }
        c.detection_s + c.launch_s + stress.wait_s + t.state_bytes / t.restore_bytes_per_s * stress.restore
    }

    /// Delay X that the failure of a task causes, at a load level.
    ///
    /// X = T0 + (ρ/s)u + (u/E)c_E + E + t_record, with the snapshot's age u uniform on [κ, κ+τ]. A
    /// replica has u = 0. A stateless task owes its consumers, which live or replay by themselves, no
    /// more than the open epoch: u on [0, E]. ρ is the task's own, without snapshots: none is taken
    /// before it is current, and whoever has the replayed epochs already does not wait for them.
    pub fn delay(&self, task: usize, choice: Choice, hit: Hit, stress: Stress, level: f64) -> Span {
        let (t, c) = (&self.input.tasks[task], &self.input.cluster);
        let fixed = self.first_row_s(task, choice, hit, stress) + c.epoch_s + c.record_s;
        if choice.active && hit == Hit::Primary {
            return Span::point(fixed);
        }
        let per_s = t.rho_at(level) * stress.load / t.replay_speedup + t.epoch_replay_s / c.epoch_s;
        let (youngest, oldest) = if t.stateful() {
            (t.snapshot_completion_s, t.snapshot_completion_s + c.interval_s(choice.level))
        } else {
            (0.0, c.epoch_s)
        };
        Span { low_s: fixed + per_s * youngest, high_s: fixed + per_s * oldest }
    }

    /// Utilisation of the path from a task to a sink, at a load level: the busiest task on it.
    pub fn path_rho(&self, task: usize, reach: &Reach, choice: Choice, level: f64) -> f64 {
        let down = reach.rho[0] + (reach.rho[1] - reach.rho[0]) * level;
        self.rho(task, choice, level).max(down)
    }

    /// Expected loss of one failure of a task at one sink, weighted by the sink.
    ///
    /// `None`: at the mean load the path never catches up with this choice.
    pub fn loss(
        &self,
        task: usize,
        reach: &Reach,
        choice: Choice,
        hit: Hit,
        stress: Stress,
        when: When,
    ) -> Option<Loss> {
        let sink = &self.input.sinks[reach.sink];
        let deadline_s = sink.slack_s() + reach.buffer_s;
        let rows_per_s = sink.weight * sink.rows_per_s * reach.share;
        let delay = |level: f64| {
            let d = self.delay(task, choice, hit, stress, level);
            // Nothing is replayed for a sink that takes what comes.
            if sink.delivery == Delivery::AtMostOnce { Span::point(d.low_s) } else { d }
        };
        let mean = self.input.mean_level();
        match when {
            When::Mean => {
                let rho = self.path_rho(task, reach, choice, mean);
                if stress.load <= 1.0 {
                    return fluid::loss(delay(mean), rho, deadline_s, rows_per_s);
                }
                let phases = [
                    Phase { rho: rho * stress.load, rows_per_s, length_s: self.input.cluster.repair_s },
                    Phase { rho, rows_per_s, length_s: 0.0 },
                ];
                average(midpoints(delay(mean)).map(|x| fluid::loss_in_phases(x, 0.0, &phases, deadline_s)))
            }
            When::State(i) => self.loss_in_state(task, reach, choice, stress, i, &delay),
            When::States if self.input.load.len() < 2 => self.loss(task, reach, choice, hit, stress, When::Mean),
            When::States => {
                let mut sum = Loss::default();
                for (i, l) in self.input.load.iter().enumerate() {
                    let one = self.loss_in_state(task, reach, choice, stress, i, &delay)?;
                    sum.late_rows += l.share * one.late_rows;
                    sum.lateness_row_s += l.share * one.lateness_row_s;
                }
                Some(sum)
            }
        }
    }

    /// The same for a failure at a uniformly random moment of load state `i`. The states follow each
    /// other in their order, each for its mean length, twice; then the mean load goes on.
    fn loss_in_state(
        &self,
        task: usize,
        reach: &Reach,
        choice: Choice,
        stress: Stress,
        i: usize,
        delay: &dyn Fn(f64) -> Span,
    ) -> Option<Loss> {
        let load = &self.input.load;
        let Some(state) = load.get(i) else {
            let rho = self.path_rho(task, reach, choice, self.input.mean_level());
            let sink = &self.input.sinks[reach.sink];
            let rows = sink.weight * sink.rows_per_s * reach.share;
            return fluid::loss(delay(self.input.mean_level()), rho, sink.slack_s() + reach.buffer_s, rows);
        };
        let sink = &self.input.sinks[reach.sink];
        let t = &self.input.tasks[task];
        let mean = self.input.mean_level();
        let phase = |level: f64, length_s: f64, load: f64| Phase {
            rho: self.path_rho(task, reach, choice, level) * load,
            // Output follows input.
            rows_per_s: sink.weight * sink.rows_per_s * reach.share * ratio(t.rows_at(level), t.rows_per_s),
            length_s,
        };
        let mut phases = Vec::with_capacity(2 * load.len() + 1);
        let queue_slope = (self.path_rho(task, reach, choice, state.level) - 1.0).max(0.0);
        let span = delay(state.level);
        average((0..4u8).flat_map(|k| {
            let gone = (f64::from(k) + 0.5) / 4.0 * state.length_s;
            phases.clear();
            phases.push(phase(state.level, state.length_s - gone, stress.load));
            for j in 1..2 * load.len() {
                let next = &load[(i + j) % load.len()];
                phases.push(phase(next.level, next.length_s, 1.0));
            }
            phases.push(phase(mean, 0.0, 1.0));
            let phases = &phases;
            midpoints(span)
                .map(|x| fluid::loss_in_phases(x, queue_slope * gone, phases, sink.slack_s() + reach.buffer_s))
                .collect::<Vec<_>>()
        }))
    }

    /// Share of a sink's information that is lost with a task while it is gone.
    pub fn information_share(&self, task: usize, sink: usize) -> Result<f64> {
        let mut failed = vec![false; self.input.tasks.len()];
        failed[task] = true;
        Ok(1.0 - fidelity::output_fidelity(self.input, &self.input.sinks[sink], &failed)?)
    }
}

fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 1.0 }
}

/// A span by the middles of its four quarters, or once if it has no width.
fn midpoints(span: Span) -> impl Iterator<Item = f64> {
    let n: u8 = if span.high_s > span.low_s { 4 } else { 1 };
    (0..n).map(move |i| span.quantile_s((f64::from(i) + 0.5) / f64::from(n)))
}

fn average(losses: impl Iterator<Item = Option<Loss>>) -> Option<Loss> {
    let (mut sum, mut n) = (Loss::default(), 0.0);
    for l in losses {
        let l = l?;
        sum.late_rows += l.late_rows;
        sum.lateness_row_s += l.lateness_row_s;
        n += 1.0;
    }
    Some(Loss { late_rows: sum.late_rows / n, lateness_row_s: sum.lateness_row_s / n })
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
