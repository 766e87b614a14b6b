//! The plan that makes failures cost least, with proof of how far from the best it can be.
//!
//! Three coupled decisions: snapshot levels in the order that the dataflow demands, replicas, and
//! workers for both. For a placement, `dual` bounds every plan from below and gives starts, and
//! `search` improves them; `place` proposes placements, which small inputs refine by moves. The
//! gap between plan and bound is part of the answer.

mod dual;
mod goal;
mod monotone;
mod place;
mod problem;
mod search;
mod warm;

use serde::{Deserialize, Serialize};

pub use goal::{Goal, Slo, Strategy};
pub use warm::{Change, Switching, replan};

use super::error::{FaultError, Result};
use super::model::{Choice, Model, When};
use super::shock::{self, Cause, Cost, Placement, Plan, Shock};
use problem::{Problem, Refuge, Setting, choice, label};
use search::State;

/// Choices for one load state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mode {
    /// Which of [`super::graph::Input::load`].
    pub state: usize,
    /// Per task; replicas are those of the plan.
    pub choices: Vec<Choice>,
}

/// A plan and what is known about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// Where load changes, the choices for each of its states (strategy `burst`).
    pub modes: Vec<Mode>,
    /// What it costs.
    pub cost: Cost,
    /// Each task's part of the lateness [row·s/h].
    pub shares: Vec<f64>,
    /// What was minimised (in the strategy's own unit).
    pub objective: f64,
    /// No plan on this placement is below this.
    pub bound: f64,
    /// No plan on any placement is below this.
    pub placement_bound: f64,
    /// Budgets that are used up.
    pub binding: Vec<String>,
}

impl Planned {
    /// How far above the best plan on this placement it may be, as a share of its objective.
    pub fn gap(&self) -> f64 {
        share_above(self.objective, self.bound)
    }

    /// The same over all placements.
    pub fn placement_gap(&self) -> f64 {
        share_above(self.objective, self.placement_bound)
    }
}

fn share_above(objective: f64, bound: f64) -> f64 {
    if objective <= 0.0 { 0.0 } else { ((objective - bound) / objective).clamp(0.0, 1.0) }
}

/// Price of running cost and of loss in what a goal minimises.
///
/// Where one of them is only to break ties its price is a millionth of what would count.
pub fn weights(model: &Model, goal: &Goal) -> (f64, f64) {
    const TIE: f64 = 1e-6;
    let price = model.input.prices.late_row;
    if goal.counts_rows() && goal.loss_budget_rows_per_h.is_none() {
        (1.0, price)
    } else if goal.cheapest() {
        (1.0, price * TIE)
    } else {
        let rows: f64 = model.input.sinks.iter().map(|s| s.weight * s.rows_per_s).sum();
        let cores: f64 = model.input.tasks.iter().map(|t| t.cores).sum();
        (TIE * rows / (cores * model.input.prices.core_per_h).max(1e-9), 1.0)
    }
}

/// What a goal minimises.
pub fn objective(model: &Model, goal: &Goal, cost: &Cost) -> f64 {
    let (running, loss) = weights(model, goal);
    running * cost.running_per_h + loss * goal.loss(cost)
}

/// Whether a plan keeps the goal's budgets (not its recovery objective).
pub fn within_budgets(model: &Model, goal: &Goal, cost: &Cost) -> bool {
    let cores: f64 = model.input.tasks.iter().map(|t| t.cores).sum();
    let at_most = |used: f64, cap: f64| used <= cap + 1e-9 * cap.abs();
    goal.replica_slots.is_none_or(|k| cost.replicas <= k)
        && goal.overhead.is_none_or(|o| at_most(cost.overhead_cores, o * cores))
        && (!goal.counts_rows() || goal.loss_budget_rows_per_h.is_none_or(|b| at_most(cost.late_rows_per_h, b)))
}

/// How much is done for an answer, by size.
#[derive(Debug, Clone, Copy)]
struct Effort {
    dual_rounds: usize,
    search_rounds: usize,
    starts: usize,
    /// Steps towards each budget's price.
    halvings: usize,
    deep: bool,
}

impl Effort {
    fn of(tasks: usize, labels: usize) -> Self {
        match tasks * labels {
            0..=64 => Self { dual_rounds: 60, search_rounds: 20, starts: 6, halvings: 8, deep: true },
            65..=200 => Self { dual_rounds: 20, search_rounds: 4, starts: 2, halvings: 6, deep: true },
            201..=3000 => Self { dual_rounds: 4, search_rounds: 2, starts: 1, halvings: 4, deep: false },
            3001..=30_000 => Self { dual_rounds: 20, search_rounds: 3, starts: 1, halvings: 6, deep: false },
            _ => Self { dual_rounds: 12, search_rounds: 1, starts: 1, halvings: 4, deep: false },
        }
    }

    /// For comparing placements.
    fn quick(self) -> Self {
        let (dual_rounds, search_rounds, halvings) = if self.deep { (3, 2, 2) } else { (2, 1, 3) };
        Self { dual_rounds, search_rounds, starts: 1, halvings, deep: false }
    }
}

/// The best plan for a goal that can be found, or why there is none.
pub fn plan(model: &Model, goal: &Goal) -> Result<Planned> {
    goal.validate()?;
    let mut placements = place::candidates(model)?;
    let effort = Effort::of(model.input.tasks.len(), 2 * model.levels());
    let given = model.input.tasks.iter().all(|t| t.worker.is_some());
    if model.input.tasks.len() * model.levels() > 3000 {
        placements.truncate(1);
    }
    let primary = if placements.len() > 1 {
        let mut valued: Vec<(f64, Vec<usize>)> = placements
            .into_iter()
            .map(|p| {
                (on_placement(model, goal, &p, effort.quick(), None, None).map_or(f64::INFINITY, |s| s.objective), p)
            })
            .collect();
        valued.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
        if effort.deep && !given {
            // Moves may lead elsewhere from different starts, and out of where none is feasible.
            valued.truncate(3);
            valued = valued.into_iter().map(|b| refine(model, goal, b, effort)).collect();
            valued.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
        }
        valued.swap_remove(0).1
    } else {
        placements.swap_remove(0)
    };
    let solved = on_placement(model, goal, &primary, effort, None, None)?;
    finish(model, goal, primary, solved, given, effort)
}

/// A plan's choices on a placement of the primaries.
struct Solved {
    labels: Vec<usize>,
    replica: Vec<Option<usize>>,
    objective: f64,
    bound: f64,
}

fn on_placement(
    model: &Model,
    goal: &Goal,
    primary: &[usize],
    effort: Effort,
    start: Option<&[usize]>,
    switching: Option<&[f64]>,
) -> Result<Solved> {
    let free = place::free_slots(model, primary);
    let mut refuge = place::refuges(model, primary, &free);
    let total: usize = free.iter().sum();
    let mut bound = f64::NEG_INFINITY;
    for attempt in 0..8 {
        let setting =
            Setting { primary: Some(primary), refuge: &refuge, when: goal.when(), fixed_active: None, switching };
        let mut problem = Problem::new(model, goal, &setting)?;
        // A replica needs a slot. Numbers of slots are far below 2^52.
        if total < primary.len() {
            problem.caps.replicas = problem.caps.replicas.min(total as f64);
        }
        let (labels, objective, b) = match goal.strategy {
            Strategy::Cost | Strategy::Latency | Strategy::Burst => options(model, goal, &problem, effort, start)?,
            Strategy::None | Strategy::Checkpoint | Strategy::Active => fixed(model, goal, &problem, effort)?,
        };
        if attempt == 0 {
            // Later problems are restricted: theirs would not bound the first.
            bound = b;
        }
        let active: Vec<bool> = labels.iter().map(|l| l % 2 == 1).collect();
        match place::replicas(model, primary, &active, &refuge) {
            Ok(replica) => return Ok(Solved { labels, replica, objective, bound }),
            Err(homeless) => {
                for v in homeless {
                    let own_domain = place::refuges(model, primary, &free)[v] != Refuge::Nowhere && attempt < 4;
                    refuge[v] = match refuge[v] {
                        Refuge::OtherDomain if own_domain && same_domain_room(model, primary, &free, v) => {
                            Refuge::SameDomain
                        }
                        _ => Refuge::Nowhere,
                    };
                }
            }
        }
    }
    Err(FaultError::cannot_meet(
        "the plan",
        "replicas that it needs find no free slot outside their tasks' failure domains",
        "add workers in another domain",
    ))
}

fn same_domain_room(model: &Model, primary: &[usize], free: &[usize], v: usize) -> bool {
    let c = &model.input.cluster;
    let own = primary[v];
    (0..free.len()).any(|w| w != own && free[w] > 0 && c.workers[w].domain == c.workers[own].domain)
}

/// Labels by bound and search.
fn options(
    model: &Model,
    goal: &Goal,
    problem: &Problem,
    effort: Effort,
    start: Option<&[usize]>,
) -> Result<(Vec<usize>, f64, f64)> {
    // A quick plan first: knowing what is possible, the bound gets there in fewer steps.
    let target = if effort.dual_rounds > 1 { quick_target(model, problem, start) } else { None };
    let dual = dual::solve(problem, effort.dual_rounds, target);
    let mut starts: Vec<Vec<usize>> = dual.starts.into_iter().take(effort.starts).collect();
    starts.extend(start.map(<[usize]>::to_vec));
    if effort.deep {
        let n = problem.tasks;
        let top = problem.labels - 2;
        starts.extend([vec![top; n], vec![0; n], vec![top + 1; n], vec![1; n]]);
    } else if problem.caps.overhead_cores.is_finite() || problem.caps.loss.is_finite() {
        starts.push(vec![problem.labels - 2; problem.tasks]);
    }
    let c = &problem.caps;
    let budgeted = c.replicas.is_finite() || c.overhead_cores.is_finite() || c.loss.is_finite();
    let mut best: Option<State> = None;
    for mut x in starts {
        for (v, l) in x.iter_mut().enumerate() {
            // A start may name what is forbidden: take the nearest that is not, longer intervals first.
            let allowed = |l: &usize| problem.allowed[v * problem.labels + l];
            if !allowed(l) {
                let near = (*l..problem.labels).chain((0..*l).rev()).find(allowed);
                *l = near.unwrap_or(*l);
            }
        }
        dual::repair(problem, &model.order, &mut x);
        if x.iter().enumerate().any(|(v, &l)| !problem.allowed[v * problem.labels + l]) {
            continue;
        }
        let mut s = State::new(problem, x);
        s.improve(effort.search_rounds, effort.deep);
        if budgeted && (effort.deep || s.is_tight()) {
            let rounds = if effort.starts > 2 { 4 } else { 1 };
            s.improve_by_prices(dual.prices, effort.halvings, rounds, effort.deep);
        }
        let (a, b) = (s.score(), best.as_ref().map(State::score));
        if b.is_none_or(|b| (a.broken, a.objective) < (b.broken, b.objective)) {
            best = Some(s);
        }
    }
    let Some(best) = best else {
        return Err(FaultError::cannot_meet(
            "the plan",
            "no choice of intervals is allowed for all tasks together: each must take snapshots at least as often as what feeds it",
            "relax recovery_slo or give the tasks more room",
        ));
    };
    if best.score().broken > 0.0 {
        return Err(broken_budget(model, goal, problem, &best));
    }
    let objective = best.score().objective;
    Ok((best.x, objective, dual.bound.min(objective)))
}

/// The objective of some plan that keeps the budgets.
fn quick_target(model: &Model, problem: &Problem, start: Option<&[usize]>) -> Option<f64> {
    let mut x = match start {
        Some(s) => s.to_vec(),
        None => dual::solve(problem, 1, None).starts.pop()?,
    };
    dual::repair(problem, &model.order, &mut x);
    if x.iter().enumerate().any(|(v, &l)| !problem.allowed[v * problem.labels + l]) {
        return None;
    }
    let mut s = State::new(problem, x);
    if problem.tasks <= 1000 {
        s.improve(1, false);
    }
    (s.score().broken <= 0.0).then(|| s.score().objective)
}

fn broken_budget(model: &Model, goal: &Goal, problem: &Problem, best: &State) -> FaultError {
    let (t, c) = (best.totals, &problem.caps);
    let cores: f64 = model.input.tasks.iter().map(|t| t.cores).sum();
    if t.overhead > c.overhead_cores {
        return FaultError::cannot_meet(
            format!("fault.overhead = {}", goal.overhead.unwrap_or(0.0)),
            format!("snapshots take at least {:.3}% of all cores", t.overhead / cores.max(1e-9) * 100.0),
            "raise the budget or the global checkpoint interval",
        );
    }
    if t.loss > c.loss {
        return FaultError::cannot_meet(
            format!("fault.loss_budget = {} rows/h", goal.loss_budget_rows_per_h.unwrap_or(0.0)),
            format!("the best plan found still makes {:.3} rows/h late", t.loss),
            "raise the budget, the deadline, or the number of replicas",
        );
    }
    FaultError::cannot_meet(
        format!("fault.replica_slots = {}", c.replicas),
        format!("at least {} replicas are needed", t.replicas),
        "raise the budget, add workers, or relax recovery_slo",
    )
}

/// Labels of a fixed policy, and how cheap any plan could be.
fn fixed(model: &Model, goal: &Goal, problem: &Problem, effort: Effort) -> Result<(Vec<usize>, f64, f64)> {
    let global = model.input.cluster.global_level;
    let levels = match (goal.strategy, goal.level) {
        (Strategy::Checkpoint, Some(level)) if level > global => {
            return Err(FaultError::invalid(format!("level {level} is above the global checkpoint's, {global}")));
        }
        (Strategy::Checkpoint, Some(level)) => level..=level,
        (Strategy::Checkpoint, None) => 0..=global,
        _ => global..=global,
    };
    let mut best: Option<State> = None;
    let mut refused = None;
    for level in levels.rev() {
        let x = match uniform(model, goal, problem, level) {
            Ok(x) => x,
            Err(e) => {
                refused.get_or_insert(e);
                continue;
            }
        };
        let s = State::new(problem, x);
        let (a, b) = (s.score(), best.as_ref().map(State::score));
        if b.is_none_or(|b| (a.broken, a.objective) < (b.broken, b.objective)) {
            best = Some(s);
        }
    }
    let Some(s) = best else {
        return Err(refused.unwrap_or_else(|| FaultError::invalid("there is no snapshot level")));
    };
    if s.score().broken > 0.0 {
        return Err(broken_budget(model, goal, problem, &s));
    }
    let objective = s.score().objective;
    let bound = dual::solve(problem, effort.dual_rounds, Some(objective)).bound.min(objective);
    Ok((s.x, objective, bound))
}

/// The same level for all tasks, and a replica of each if the policy wants them.
fn uniform(model: &Model, goal: &Goal, problem: &Problem, level: u8) -> Result<Vec<usize>> {
    let mut x = vec![0; problem.tasks];
    for (v, x) in x.iter_mut().enumerate() {
        let want = label(Choice { level, active: goal.strategy == Strategy::Active });
        let allowed = |l: usize| problem.allowed[v * problem.labels + l];
        // Tasks that may not have a replica go without.
        *x = if allowed(want) { want } else { want & !1 };
        if !allowed(*x) {
            return Err(FaultError::cannot_meet(
                format!("fault.strategy = '{}'", goal.strategy.name()),
                format!("task \"{}\" cannot be protected so", model.input.tasks[v].name),
                "choose another strategy",
            ));
        }
    }
    Ok(x)
}

/// Small inputs: moves and exchanges of tasks between workers while that helps.
fn refine(model: &Model, goal: &Goal, start: (f64, Vec<usize>), effort: Effort) -> (f64, Vec<usize>) {
    const MOST: usize = 150;
    let (mut best, mut primary) = start;
    let c = &model.input.cluster;
    let mut tried = 0;
    let mut value = |p: &[usize]| {
        tried += 1;
        (tried <= MOST)
            .then(|| on_placement(model, goal, p, effort.quick(), None, None).map_or(f64::INFINITY, |s| s.objective))
    };
    loop {
        let before = best;
        let movable: Vec<usize> = (0..primary.len()).filter(|&v| model.input.tasks[v].worker.is_none()).collect();
        let mut next: Vec<Vec<usize>> = Vec::new();
        let free = place::free_slots(model, &primary);
        for (i, &v) in movable.iter().enumerate() {
            for w in (0..c.workers.len()).filter(|&w| w != primary[v] && free[w] > 0) {
                let mut p = primary.clone();
                p[v] = w;
                next.push(p);
            }
            for &u in &movable[i + 1..] {
                if primary[u] != primary[v] {
                    let mut p = primary.clone();
                    p.swap(u, v);
                    next.push(p);
                }
            }
        }
        // Whole workers to another one.
        for a in 0..c.workers.len() {
            let on: Vec<usize> = movable.iter().copied().filter(|&v| primary[v] == a).collect();
            for w in (0..c.workers.len()).filter(|&w| w != a && on.len() > 1 && free[w] >= on.len()) {
                let mut p = primary.clone();
                on.iter().for_each(|&v| p[v] = w);
                next.push(p);
            }
            // And what two workers run, exchanged.
            for b in a + 1..c.workers.len() {
                let mut p = primary.clone();
                for &v in movable.iter().filter(|&&v| primary[v] == a || primary[v] == b) {
                    p[v] = a + b - primary[v];
                }
                let count = |w: usize| p.iter().filter(|&&x| x == w).count();
                if !on.is_empty() && count(a) <= c.workers[a].slots && count(b) <= c.workers[b].slots {
                    next.push(p);
                }
            }
        }
        for p in next {
            let Some(x) = value(&p) else { return (best, primary) };
            if x < best - 1e-9 * best.abs().min(1e300) {
                (best, primary) = (x, p);
                break;
            }
        }
        if best >= before {
            return (best, primary);
        }
    }
}

/// Everything about a solved plan.
fn finish(
    model: &Model,
    goal: &Goal,
    primary: Vec<usize>,
    solved: Solved,
    given: bool,
    effort: Effort,
) -> Result<Planned> {
    let choices: Vec<Choice> = solved.labels.iter().map(|&l| choice(l)).collect();
    let plan = Plan { placement: Placement { primary, replica: solved.replica }, choices };
    let (cost, shares) = shock::evaluate(model, &plan, goal.when())?;
    let objective = objective(model, goal, &cost);
    let bound = solved.bound.min(objective);
    let placement_bound = if given {
        bound
    } else {
        let refuge = vec![Refuge::OtherDomain; plan.choices.len()];
        let setting =
            Setting { primary: None, refuge: &refuge, when: goal.when(), fixed_active: None, switching: None };
        let relaxed = Problem::new(model, goal, &setting)?;
        dual::solve(&relaxed, if effort.deep { 20 } else { 2 }, Some(objective)).bound.min(bound)
    };
    let mut binding = Vec::new();
    if goal.replica_slots.is_some_and(|k| cost.replicas == k) {
        binding.push("fault.replica_slots".to_owned());
    }
    let cores: f64 = model.input.tasks.iter().map(|t| t.cores).sum();
    if goal.overhead.is_some_and(|o| cost.overhead_cores > 0.9 * o * cores) {
        binding.push("fault.overhead".to_owned());
    }
    if goal.loss_budget_rows_per_h.is_some_and(|b| goal.counts_rows() && cost.late_rows_per_h > 0.9 * b) {
        binding.push("fault.loss_budget".to_owned());
    }
    if goal.slo.is_some() {
        binding.push("recovery_slo".to_owned());
    }
    let modes = if goal.strategy == Strategy::Burst { modes(model, goal, &plan)? } else { Vec::new() };
    Ok(Planned { plan, modes, cost, shares, objective, bound, placement_bound, binding })
}

/// For every load state the best levels, with the plan's replicas: near capacity a replica cannot be
/// built any more, but the work of snapshots can be put off at the next barrier.
fn modes(model: &Model, goal: &Goal, plan: &Plan) -> Result<Vec<Mode>> {
    if model.input.load.len() < 2 {
        return Ok(Vec::new());
    }
    let active: Vec<bool> = plan.choices.iter().map(|c| c.active).collect();
    let c = &model.input.cluster;
    let refuge: Vec<Refuge> = plan
        .placement
        .primary
        .iter()
        .zip(&plan.placement.replica)
        .map(|(&p, r)| match r {
            None => Refuge::Nowhere,
            Some(r) if c.workers[*r].domain == c.workers[p].domain => Refuge::SameDomain,
            Some(_) => Refuge::OtherDomain,
        })
        .collect();
    let now: Vec<usize> = plan.choices.iter().map(|&c| label(c)).collect();
    let effort = Effort::of(plan.choices.len(), 2 * model.levels());
    (0..model.input.load.len())
        .map(|state| {
            let setting = Setting {
                primary: Some(&plan.placement.primary),
                refuge: &refuge,
                when: When::State(state),
                fixed_active: Some(&active),
                switching: None,
            };
            let problem = Problem::new(model, goal, &setting)?;
            let (labels, ..) = options(model, goal, &problem, effort, Some(&now))?;
            Ok(Mode { state, choices: labels.into_iter().map(choice).collect() })
        })
        .collect()
}

/// Why a recovery objective cannot be kept, and what would help.
fn explain_slo(model: &Model, slo: Slo, task: usize, s: &Shock, nearest_s: f64, refuge: Refuge) -> FaultError {
    let c = &model.input.cluster;
    let t = &model.input.tasks[task];
    let what = match s.cause {
        Cause::Crash(_) => "a crash of its own".to_owned(),
        Cause::Input(_) => "a crash that its input causes (a replica crashes too)".to_owned(),
        Cause::Worker(w) => format!("the failure of worker \"{}\"", c.workers[w].name),
        Cause::Domain(d) => format!("the failure of domain \"{}\"", c.domains[d].name),
        Cause::Pair(_) | Cause::Coordinator => "a double failure".to_owned(),
    };
    let hint = if s.stress.wait_s > 0.0 {
        "add a spare worker"
    } else if s.stress.load > 1.0 {
        "add spare slots: what survives is overloaded"
    } else if refuge != Refuge::OtherDomain && t.replicable {
        "a replica would help: add a worker with a free slot in another failure domain"
    } else if !t.replicable {
        "allow a replica of the task, or make its state smaller or its restore faster"
    } else {
        "make detection faster, raise the task's capacity, or relax recovery_slo"
    };
    FaultError::cannot_meet(
        format!("recovery_slo = {} s at slo_confidence = {}", slo.recovery_s, slo.confidence),
        format!(
            "task \"{}\" takes {nearest_s:.2} s at best after {what} (it is at {:.0}% of its capacity and has {:.0} MB of state)",
            t.name,
            t.rho_at(model.input.mean_level()) * 100.0,
            t.state_bytes / 1e6
        ),
        hint,
    )
}

#[cfg(test)]
mod tests;
