//! Changing a plan while it runs: only where that pays.

use serde::{Deserialize, Serialize};

use super::super::error::Result;
use super::super::model::{Choice, GIB, Model};
use super::super::shock::{self, Plan};
use super::problem::label;
use super::{Effort, Goal, Planned, finish, objective, on_placement, weights};

/// What a change must earn.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Switching {
    /// How long a change is expected to last [s]: the load's mean stay in a state, or the
    /// time between plans.
    pub dwell_s: f64,
    /// More protection must earn this many times its switching cost.
    pub up: f64,
    /// Less protection must earn this many times what building it again would cost.
    pub down: f64,
    /// Smaller gains than this share of the present objective are noise.
    pub least_gain: f64,
}

impl Default for Switching {
    fn default() -> Self {
        Self { dwell_s: 600.0, up: 1.0, down: 2.0, least_gain: 0.02 }
    }
}

/// One task's change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Which.
    pub task: usize,
    /// How it is protected now.
    pub from: Choice,
    /// How it will be.
    pub to: Choice,
}

/// What it costs to go from one choice to another, once [currency]: a new replica loads the snapshot
/// over the network and burns a core until it has caught up; a new interval takes one snapshot.
pub fn switching_cost(model: &Model, task: usize, from: Choice, to: Choice) -> f64 {
    let (t, p) = (&model.input.tasks[task], &model.input.prices);
    let build = || {
        shock::rebuild_s(model, task, from.level) / 3600.0 * t.cores * p.core_per_h
            + t.state_bytes / GIB * p.net_per_gib
    };
    let replica = if from.active == to.active { 0.0 } else { build() };
    let interval = if from.level == to.level || !t.stateful() {
        0.0
    } else {
        let bytes = t.dirty_bytes(from.level.min(to.level), model.input.cluster.epoch_s);
        bytes / GIB * p.net_per_gib + bytes * t.encode_s_per_byte * t.cores * p.core_per_h / 3600.0
    };
    replica + interval
}

/// A new plan on the present placement, if it earns its switching costs; else the present one.
///
/// Switching costs, spread over the expected stay, are part of what is minimised, so that changes which
/// pay only together are seen as one. What protects more and what protects less have thresholds of
/// their own, so that a plan does not swing.
pub fn replan(model: &Model, goal: &Goal, current: &Plan, switching: &Switching) -> Result<(Planned, Vec<Change>)> {
    goal.validate()?;
    shock::check(model, current)?;
    let labels = 2 * model.levels();
    let n = current.choices.len();
    let (now, _) = shock::evaluate(model, current, goal.when())?;
    let (price, _) = weights(model, goal);
    // For strategies that count lateness, money is no measure: a change must earn its share of
    // the least gain.
    let least = switching.least_gain * objective(model, goal, &now) / n as f64 / price.max(f64::MIN_POSITIVE);
    let mut extra = vec![0.0; n * labels];
    for v in 0..n {
        for l in 0..labels {
            let (from, to) = (current.choices[v], super::choice(l));
            if from == to {
                continue;
            }
            let more = to.active && !from.active || to.active == from.active && to.level < from.level;
            let factor = if more { switching.up } else { switching.down };
            let money = factor * switching_cost(model, v, from, to) * 3600.0 / switching.dwell_s.max(1.0);
            extra[v * labels + l] = if goal.cheapest() { money } else { money.max(least) };
        }
    }
    let start: Vec<usize> = current.choices.iter().map(|&c| label(c)).collect();
    let effort = Effort::of(n, labels);
    let primary = current.placement.primary.clone();
    let mut solved = on_placement(model, goal, &primary, effort, Some(&start), Some(&extra))?;
    // Replicas that stay, stay where they are.
    keep_replicas(model, current, &mut solved.labels, &mut solved.replica);
    let changed: f64 = (0..n).map(|v| extra[v * labels + solved.labels[v]]).sum::<f64>() * price;
    // The bound that counts is the one without switching costs.
    solved.bound = on_placement(model, goal, &primary, effort.quick(), Some(&start), None)?.bound;
    let new = finish(model, goal, primary, solved, true, effort)?;
    let before = objective(model, goal, &now);
    let keeps = super::within_budgets(model, goal, &now) && goal.slo.is_none();
    if keeps && before - new.objective <= changed.max(switching.least_gain * before.abs()) {
        let solved = super::Solved {
            labels: start,
            replica: current.placement.replica.clone(),
            objective: before,
            bound: new.bound,
        };
        let kept = finish(model, goal, current.placement.primary.clone(), solved, true, effort)?;
        return Ok((kept, Vec::new()));
    }
    let changes = (0..n)
        .filter(|&v| new.plan.choices[v] != current.choices[v])
        .map(|v| Change { task: v, from: current.choices[v], to: new.plan.choices[v] })
        .collect();
    Ok((new, changes))
}

/// Puts replicas that exist back where they run, as far as slots allow.
fn keep_replicas(model: &Model, current: &Plan, labels: &mut [usize], replica: &mut [Option<usize>]) {
    let mut wanted = replica.to_vec();
    for v in 0..labels.len() {
        if labels[v] % 2 == 1
            && let Some(r) = current.placement.replica[v]
        {
            wanted[v] = Some(r);
        }
    }
    let mut free: Vec<usize> = super::place::free_slots(model, &current.placement.primary);
    let fits = wanted.iter().flatten().all(|&w| {
        let room = free[w] > 0;
        free[w] = free[w].saturating_sub(1);
        room
    });
    if fits {
        replica.copy_from_slice(&wanted);
    }
}
