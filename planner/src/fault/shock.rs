//! Shocks: what fails at once, how often, and how hard it is to recover from; and what a whole plan
//! costs under all of them.
//!
//! For one shock and one sink the slowest of the killed tasks on a path to it counts, not their sum:
//! they rebuild side by side. So a shock's loss is a maximum over tasks, and a plan's loss is the sum
//! of rate × loss over shocks and sinks.

use serde::{Deserialize, Serialize};

use super::error::{FaultError, Result};
use super::fluid::Loss;
use super::graph::FailureRate;
use super::model::{Choice, Hit, Model, Stress, When};

/// Where everything runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Worker of each task.
    pub primary: Vec<usize>,
    /// Worker of each task's replica.
    pub replica: Vec<Option<usize>>,
}

/// A placement and a choice for each task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Where.
    pub placement: Placement,
    /// How protected.
    pub choices: Vec<Choice>,
}

/// Why tasks die together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// A task by itself.
    Crash(usize),
    /// A task's input, which kills its replica too.
    Input(usize),
    /// A machine.
    Worker(usize),
    /// A failure domain.
    Domain(usize),
    /// Both copies of a task, the second before the first was rebuilt.
    Pair(usize),
    /// The coordinator: nothing dies, but no epoch closes.
    Coordinator,
}

/// One kind of failure.
#[derive(Debug, Clone, PartialEq)]
pub struct Shock {
    /// Why.
    pub cause: Cause,
    /// How often the cause happens.
    pub rate: FailureRate,
    /// Share of those events that are this shock.
    pub share: f64,
    /// What comes on top, as a known rate [1/s].
    pub extra_per_s: f64,
    /// Tasks whose primary dies.
    pub killed: Vec<usize>,
    /// How hard recovery is.
    pub stress: Stress,
}

impl Shock {
    /// Expected events per second.
    pub fn per_s(&self) -> f64 {
        self.rate.mean_per_s() * self.share + self.extra_per_s
    }

    /// Which copies of a task it takes, if its replica runs on `replica`.
    pub fn hit(&self, model: &Model, replica: Option<usize>) -> Hit {
        let Some(r) = replica else { return Hit::All };
        let both = match self.cause {
            Cause::Crash(_) | Cause::Coordinator => false,
            Cause::Input(_) | Cause::Pair(_) => true,
            Cause::Worker(w) => w == r,
            Cause::Domain(d) => model.input.cluster.workers[r].domain == d,
        };
        if both { Hit::All } else { Hit::Primary }
    }
}

/// All shocks under a placement of the primaries, rarest kinds last.
pub fn shocks(model: &Model, primary: &[usize]) -> Vec<Shock> {
    let c = &model.input.cluster;
    let mut on = vec![Vec::new(); c.workers.len()];
    for (v, &w) in primary.iter().enumerate() {
        on[w].push(v);
    }
    let mut out = Vec::new();
    for (v, t) in model.input.tasks.iter().enumerate() {
        for (cause, share) in [(Cause::Crash(v), 1.0 - t.common_cause), (Cause::Input(v), t.common_cause)] {
            if t.crash.mean_per_s() * share > 0.0 {
                let (rate, killed, stress) = (t.crash, vec![v], Stress::NONE);
                out.push(Shock { cause, rate, share, extra_per_s: 0.0, killed, stress });
            }
        }
    }
    let totals = Totals {
        slots: c.workers.iter().map(|w| w.slots).sum(),
        used: primary.len(),
        workers: c.workers.len(),
        repair_s: c.repair_s,
    };
    for (i, w) in c.workers.iter().enumerate() {
        if on[i].is_empty() || w.failure.mean_per_s() + c.false_alarms_per_s <= 0.0 {
            continue;
        }
        let stress = totals.stress(1, w.slots, on[i].len());
        out.push(Shock {
            cause: Cause::Worker(i),
            rate: w.failure,
            share: 1.0,
            extra_per_s: c.false_alarms_per_s,
            killed: on[i].clone(),
            stress,
        });
    }
    for (d, domain) in c.domains.iter().enumerate() {
        let members: Vec<usize> = (0..c.workers.len()).filter(|&w| c.workers[w].domain == d).collect();
        let killed: Vec<usize> = members.iter().flat_map(|&w| on[w].iter().copied()).collect();
        if killed.is_empty() || domain.failure.mean_per_s() <= 0.0 {
            continue;
        }
        let slots = members.iter().map(|&w| c.workers[w].slots).sum();
        let stress = totals.stress(members.len(), slots, killed.len());
        out.push(Shock { cause: Cause::Domain(d), rate: domain.failure, share: 1.0, extra_per_s: 0.0, killed, stress });
    }
    out
}

struct Totals {
    slots: usize,
    used: usize,
    workers: usize,
    repair_s: f64,
}

impl Totals {
    /// What is left when `workers` with `slots` die and `killed` tasks must go elsewhere.
    fn stress(&self, workers: usize, slots: usize, killed: usize) -> Stress {
        let (left, slots_left) = (self.workers - workers, self.slots - slots);
        if left == 0 || slots_left == 0 {
            return Stress { wait_s: self.repair_s, ..Stress::NONE };
        }
        // Counts of machines and tasks: far below 2^52.
        let ratio = |a: usize, b: usize| (a as f64 / b as f64).max(1.0);
        Stress { restore: ratio(killed, left), load: ratio(self.used, slots_left), wait_s: 0.0 }
    }
}

/// Rate at which both copies of a replicated task are lost one after the other [1/s].
///
/// The first failure is either copy's; the second must hit the other while the first is rebuilt:
/// (λ_p + λ_r)·… = λ_p·λ_r·t + λ_r·λ_p·t = 2λ_pλ_r·t_rebuild, for t_rebuild ≪ 1/λ.
pub fn pair_rate_per_s(model: &Model, task: usize, level: u8, primary: usize, replica: usize) -> f64 {
    let c = &model.input.cluster;
    let t = &model.input.tasks[task];
    let crash = t.crash.mean_per_s() * (1.0 - t.common_cause);
    let rate = |w: usize| {
        let machine = &c.workers[w];
        // A shared domain kills both at once and is counted by itself.
        let apart = c.workers[primary].domain != c.workers[replica].domain;
        let rack = if apart { c.domains[machine.domain].failure.mean_per_s() } else { 0.0 };
        crash + machine.failure.mean_per_s() + c.false_alarms_per_s + rack
    };
    2.0 * rate(primary) * rate(replica) * rebuild_s(model, task, level)
}

/// Time to build a new replica while its twin runs [s]: start, load the snapshot, catch up.
///
/// It must replay what came since the snapshot, and what comes meanwhile: (S/B + ρu)/(1−ρ), with the
/// mean age u = κ + τ/2.
pub fn rebuild_s(model: &Model, task: usize, level: u8) -> f64 {
    let (t, c) = (&model.input.tasks[task], &model.input.cluster);
    let rho = t.rho_at(model.input.mean_level());
    let age_s = if t.stateful() { t.snapshot_completion_s + c.interval_s(level) / 2.0 } else { c.epoch_s };
    c.detection_s + c.launch_s + (t.state_bytes / t.restore_bytes_per_s + rho * age_s) / (1.0 - rho)
}

/// What a plan costs per hour.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Cost {
    /// Protection [currency/h].
    pub running_per_h: f64,
    /// Late rows, weighted [rows/h].
    pub late_rows_per_h: f64,
    /// Their lateness, weighted [row·s/h].
    pub lateness_row_s_per_h: f64,
    /// Replicas.
    pub replicas: usize,
    /// Cores that snapshots take.
    pub overhead_cores: f64,
}

/// What a plan costs, and each task's part in the lateness.
pub fn evaluate(model: &Model, plan: &Plan, when: When) -> Result<(Cost, Vec<f64>)> {
    check(model, plan)?;
    let n = model.input.tasks.len();
    let mut cost = Cost::default();
    let mut share = vec![0.0; n];
    for v in 0..n {
        let r = model.running(v, plan.choices[v]);
        cost.running_per_h += r.cost_per_h;
        cost.overhead_cores += r.overhead_cores;
        cost.replicas += usize::from(plan.choices[v].active);
    }
    for s in shocks(model, &plan.placement.primary) {
        add(model, plan, when, &s, s.per_s(), &mut cost, &mut share)?;
    }
    for v in 0..n {
        if let (true, Some(r)) = (plan.choices[v].active, plan.placement.replica[v]) {
            let per_s = pair_rate_per_s(model, v, plan.choices[v].level, plan.placement.primary[v], r);
            add(model, plan, when, &pair(v), per_s, &mut cost, &mut share)?;
        }
    }
    let failover = failover_loss(model);
    let per_h = model.input.cluster.coordinator.mean_per_s() * 3600.0;
    cost.late_rows_per_h += per_h * failover.late_rows;
    cost.lateness_row_s_per_h += per_h * failover.lateness_row_s;
    Ok((cost, share))
}

/// The loss of both copies of a task.
pub(super) fn pair(v: usize) -> Shock {
    Shock {
        cause: Cause::Pair(v),
        rate: FailureRate::NEVER,
        share: 1.0,
        extra_per_s: 0.0,
        killed: vec![v],
        stress: Stress::NONE,
    }
}

fn add(
    model: &Model,
    plan: &Plan,
    when: When,
    shock: &Shock,
    per_s: f64,
    cost: &mut Cost,
    share: &mut [f64],
) -> Result<()> {
    let sinks = model.input.sinks.len();
    // Per sink the worst late rows and lateness, and the tasks whose it is: those that are alike share the blame.
    let mut worst: Vec<(f64, f64, Vec<usize>)> = vec![(0.0, 0.0, Vec::new()); sinks];
    for &v in &shock.killed {
        let hit = shock.hit(model, plan.placement.replica[v]);
        for reach in &model.reach[v] {
            let loss = model.loss(v, reach, plan.choices[v], hit, shock.stress, when).ok_or_else(|| {
                let t = &model.input.tasks[v];
                FaultError::cannot_meet(
                    "any deadline",
                    format!("task \"{}\" never catches up after a failure", t.name),
                    "raise its parallelism or take snapshots less often",
                )
            })?;
            let w = &mut worst[reach.sink];
            w.0 = w.0.max(loss.late_rows);
            let near = 1e-9 * w.1.max(loss.lateness_row_s);
            if loss.lateness_row_s > w.1 + near {
                w.1 = loss.lateness_row_s;
                w.2.clear();
            }
            if loss.lateness_row_s > 0.0 && loss.lateness_row_s >= w.1 - near && !w.2.contains(&v) {
                w.2.push(v);
            }
        }
    }
    for (rows, lateness, who) in worst {
        cost.late_rows_per_h += per_s * 3600.0 * rows;
        cost.lateness_row_s_per_h += per_s * 3600.0 * lateness;
        for &v in &who {
            share[v] += per_s * 3600.0 * lateness / who.len() as f64;
        }
    }
    Ok(())
}

/// Loss while no coordinator leads: every sink waits, nothing is replayed, all catch up.
pub fn failover_loss(model: &Model) -> Loss {
    let c = &model.input.cluster;
    let mut sum = Loss::default();
    for (s, sink) in model.input.sinks.iter().enumerate() {
        let level = model.input.mean_level();
        let rho = (0..model.input.tasks.len())
            .filter(|&v| model.reach[v].iter().any(|r| r.sink == s && r.buffer_s == 0.0))
            .map(|v| model.input.tasks[v].rho_at(level))
            .fold(0.0, f64::max);
        let delay = super::fluid::Span::point(c.failover_s);
        // Validation has refused ρ ≥ 1 at the mean load.
        if let Some(l) = super::fluid::loss(delay, rho, sink.slack_s(), sink.weight * sink.rows_per_s) {
            sum.late_rows += l.late_rows;
            sum.lateness_row_s += l.lateness_row_s;
        }
    }
    sum
}

/// Checks that a plan is one: slots, replicas apart, τ_downstream ≤ τ_upstream.
pub fn check(model: &Model, plan: &Plan) -> Result<()> {
    let (n, c) = (model.input.tasks.len(), &model.input.cluster);
    let bad = |what: String| Err(FaultError::Invalid { what });
    if plan.choices.len() != n || plan.placement.primary.len() != n || plan.placement.replica.len() != n {
        return bad(format!("the plan is not one for {n} tasks"));
    }
    let mut used = vec![0; c.workers.len()];
    for v in 0..n {
        let (p, r) = (plan.placement.primary[v], plan.placement.replica[v]);
        let name = &model.input.tasks[v].name;
        if p >= c.workers.len() || r.is_some_and(|r| r >= c.workers.len() || r == p) {
            return bad(format!("task \"{name}\" or its replica has no worker, or they share one"));
        }
        if r.is_some() != plan.choices[v].active {
            return bad(format!("task \"{name}\" has a replica without a place or a place without a replica"));
        }
        if plan.choices[v].level > c.global_level {
            return bad(format!("task \"{name}\" takes snapshots less often than the global checkpoint"));
        }
        used[p] += 1;
        if let Some(r) = r {
            used[r] += 1;
        }
    }
    if let Some(w) = (0..used.len()).find(|&w| used[w] > c.workers[w].slots) {
        return bad(format!("worker \"{}\" has {} slots for {} tasks", c.workers[w].name, c.workers[w].slots, used[w]));
    }
    for e in model.input.edges.iter().filter(|e| !e.logged) {
        if plan.choices[e.to].level > plan.choices[e.from].level {
            return bad(format!(
                "task \"{}\" takes snapshots less often than \"{}\", which feeds it",
                model.input.tasks[e.to].name, model.input.tasks[e.from].name
            ));
        }
    }
    Ok(())
}
