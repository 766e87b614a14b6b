//! The planning problem as numbers: what each task's labels cost by themselves, and the cells in
//! which only the worst task counts.
//!
//! A label is a level and whether there is a replica: `2·level + active`. Losses that one task
//! has alone (its crashes) are part of its own cost. A worker's or a domain's failure makes a *cell*
//! per sink: rate × the maximum over the tasks that it kills. Everything the solvers see is here; they
//! know nothing of tasks, time or money.

use std::collections::BTreeMap;

use super::super::error::{FaultError, Result};
use super::super::model::{Choice, Hit, Model, Stress, When};
use super::super::shock::{self, Cause, Shock};
use super::goal::{Goal, Slo};

/// Limits on sums over all tasks; infinite where there is none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caps {
    pub replicas: f64,
    pub overhead_cores: f64,
    pub loss: f64,
}

/// A shock at a sink.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    /// Shocks per hour.
    pub per_h: f64,
    /// Tasks and where their losses per label start in [`Problem::tables`].
    pub members: Vec<(usize, usize)>,
}

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct Problem {
    pub tasks: usize,
    /// Labels per task: twice the levels.
    pub labels: usize,
    /// Per task and label.
    pub allowed: Vec<bool>,
    pub running: Vec<f64>,
    pub alone: Vec<f64>,
    /// The same with the most favourable place for each replica, for bounds.
    pub alone_least: Vec<f64>,
    pub overhead: Vec<f64>,
    pub cells: Vec<Cell>,
    pub tables: Vec<f64>,
    /// Cells of each task, and its place among their members.
    pub cells_of: Vec<Vec<(usize, usize)>>,
    /// Loss that no choice changes.
    pub fixed_loss: f64,
    /// Price of running cost and of loss in the objective.
    pub weights: (f64, f64),
    pub caps: Caps,
    /// Consumers and producers within a job.
    pub down: Vec<Vec<usize>>,
    pub up: Vec<Vec<usize>>,
    /// Tasks that hang together by such edges, and their order pairs (a ≤ b) in local numbers,
    /// shuffles through nodes beyond the tasks.
    pub parts: Vec<Part>,
}

/// Tasks that hang together.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub tasks: Vec<usize>,
    /// Helper nodes beyond them.
    pub hubs: usize,
    pub pairs: Vec<(usize, usize)>,
}

/// Where a task's replica can stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refuge {
    Nowhere,
    /// Another worker of the same domain only.
    SameDomain,
    OtherDomain,
}

/// What a problem is made from besides the model.
pub(super) struct Setting<'a> {
    /// Worker of each task; none: the relaxation in which all tasks share one ideal worker, which no
    /// placement can beat.
    pub primary: Option<&'a [usize]>,
    pub refuge: &'a [Refuge],
    pub when: When,
    /// Replicas that are given, if they are.
    pub fixed_active: Option<&'a [bool]>,
    /// Added running cost per task and label, for switching.
    pub switching: Option<&'a [f64]>,
}

pub(super) fn choice(label: usize) -> Choice {
    // Levels are at most 24.
    Choice { level: (label / 2) as u8, active: label % 2 == 1 }
}

pub(super) fn label(c: Choice) -> usize {
    2 * usize::from(c.level) + usize::from(c.active)
}

impl Problem {
    pub fn new(model: &Model, goal: &Goal, setting: &Setting) -> Result<Self> {
        let n = model.input.tasks.len();
        let labels = 2 * model.levels();
        let mut out = Self {
            tasks: n,
            labels,
            allowed: vec![false; n * labels],
            running: vec![0.0; n * labels],
            alone: vec![0.0; n * labels],
            alone_least: Vec::new(),
            overhead: vec![0.0; n * labels],
            cells: Vec::new(),
            tables: Vec::new(),
            cells_of: vec![Vec::new(); n],
            fixed_loss: 0.0,
            weights: (1.0, 1.0),
            caps: Caps { replicas: f64::INFINITY, overhead_cores: f64::INFINITY, loss: f64::INFINITY },
            down: vec![Vec::new(); n],
            up: vec![Vec::new(); n],
            parts: Vec::new(),
        };
        for v in 0..n {
            for c in model.choices(v) {
                let l = v * labels + label(c);
                if c.active && setting.refuge[v] == Refuge::Nowhere
                    || setting.fixed_active.is_some_and(|f| f[v] != c.active)
                {
                    continue;
                }
                let r = model.running(v, c);
                out.allowed[l] = true;
                out.running[l] = r.cost_per_h + setting.switching.map_or(0.0, |s| s[l]);
                out.overhead[l] = r.overhead_cores;
            }
        }
        let shocks = match setting.primary {
            Some(p) => shock::shocks(model, p),
            None => relaxed_shocks(model),
        };
        out.losses(model, goal, setting, &shocks);
        let failover = shock::failover_loss(model);
        let failover = if goal.counts_rows() { failover.late_rows } else { failover.lateness_row_s };
        out.fixed_loss = failover * model.input.cluster.coordinator.mean_per_s() * 3600.0;
        if let Some(slo) = goal.slo {
            out.keep_slo(model, slo, setting, &shocks)?;
        }
        out.budgets(model, goal);
        out.graph(model);
        match (0..n).find(|&v| !(0..labels).any(|l| out.allowed[v * labels + l])) {
            Some(v) => Err(FaultError::cannot_meet(
                "any deadline",
                format!("task \"{}\" has no room for snapshots, however seldom", model.input.tasks[v].name),
                "raise its parallelism",
            )),
            None => Ok(out),
        }
    }

    /// Fills in what failures cost: alone, and in cells.
    fn losses(&mut self, model: &Model, goal: &Goal, setting: &Setting, shocks: &[Shock]) {
        let mut known: BTreeMap<(usize, usize, bool, [u64; 3]), usize> = BTreeMap::new();
        let best = BestRates::new(model);
        let mut cells: Vec<Vec<(usize, usize)>> = vec![Vec::new(); model.input.sinks.len()];
        for s in shocks {
            let per_h = s.per_s() * 3600.0;
            for &v in &s.killed {
                let all = match s.cause {
                    Cause::Input(_) | Cause::Pair(_) => true,
                    Cause::Domain(_) => setting.primary.is_some() && setting.refuge[v] != Refuge::OtherDomain,
                    _ => false,
                };
                for r in 0..model.reach[v].len() {
                    let table = self.table(model, goal, setting.when, v, r, all, s.stress, &mut known);
                    let values = &self.tables[table..table + self.labels];
                    if values.iter().any(|&x| x > 0.0) {
                        cells[model.reach[v][r].sink].push((v, table));
                    }
                }
            }
            for members in &mut cells {
                match members.as_slice() {
                    [] => {}
                    [(v, table)] => {
                        for l in 0..self.labels {
                            self.alone[v * self.labels + l] += per_h * self.tables[table + l];
                        }
                    }
                    _ => self.cells.push(Cell { per_h, members: members.clone() }),
                }
                members.clear();
            }
        }
        self.alone_least.clone_from(&self.alone);
        // Pairs lost one after the other; the replica's worker is at best the best one outside.
        for v in 0..self.tasks {
            if setting.refuge[v] == Refuge::Nowhere {
                continue;
            }
            let t = &model.input.tasks[v];
            let crash = t.crash.mean_per_s() * (1.0 - t.common_cause);
            let (own, other) = best.of(model, setting.primary.map(|p| p[v]), setting.refuge[v]);
            for r in 0..model.reach[v].len() {
                let table = self.table(model, goal, setting.when, v, r, true, Stress::NONE, &mut known);
                for l in (1..self.labels).step_by(2).filter(|l| self.allowed[v * self.labels + l]) {
                    let pairs = |own: f64, other: f64| {
                        2.0 * (crash + own) * (crash + other) * shock::rebuild_s(model, v, choice(l).level) * 3600.0
                    };
                    let (i, loss) = (v * self.labels + l, self.tables[table + l]);
                    self.alone[i] += pairs(own, other) * loss;
                    self.alone_least[i] += pairs(best.anywhere, best.anywhere) * loss;
                }
            }
        }
        for (c, cell) in self.cells.iter().enumerate() {
            for (m, &(v, _)) in cell.members.iter().enumerate() {
                self.cells_of[v].push((c, m));
            }
        }
    }

    /// Losses of a task at one of its sinks by label, computed once for all shocks alike.
    #[allow(clippy::too_many_arguments)]
    fn table(
        &mut self,
        model: &Model,
        goal: &Goal,
        when: When,
        v: usize,
        r: usize,
        all: bool,
        stress: Stress,
        known: &mut BTreeMap<(usize, usize, bool, [u64; 3]), usize>,
    ) -> usize {
        let key = (v, r, all, [stress.restore, stress.load, stress.wait_s].map(f64::to_bits));
        if let Some(&at) = known.get(&key) {
            return at;
        }
        let at = self.tables.len();
        self.tables.resize(at + self.labels, 0.0);
        let stateful = model.input.tasks[v].stateful();
        for l in 0..self.labels {
            if !self.allowed[v * self.labels + l] {
                continue;
            }
            if l >= 2 && !stateful && self.allowed[v * self.labels + l - 2] {
                // Levels mean nothing to a stateless task.
                self.tables[at + l] = self.tables[at + l - 2];
                continue;
            }
            let c = choice(l);
            let hit = if c.active && !all { Hit::Primary } else { Hit::All };
            match model.loss(v, &model.reach[v][r], c, hit, stress, when) {
                Some(x) => self.tables[at + l] = if goal.counts_rows() { x.late_rows } else { x.lateness_row_s },
                None => self.allowed[v * self.labels + l] = false,
            }
        }
        known.insert(key, at);
        at
    }

    /// Forbids labels with which some shock takes longer than the objective too often.
    fn keep_slo(&mut self, model: &Model, slo: Slo, setting: &Setting, shocks: &[Shock]) -> Result<()> {
        let level = model.input.mean_level();
        let repair_s = model.input.cluster.repair_s;
        for s in shocks {
            for &v in &s.killed {
                let all = match s.cause {
                    Cause::Input(_) => true,
                    Cause::Domain(_) => setting.primary.is_some() && setting.refuge[v] != Refuge::OtherDomain,
                    _ => false,
                };
                let before: Vec<usize> = (0..self.labels).filter(|l| self.allowed[v * self.labels + l]).collect();
                let mut nearest = f64::INFINITY;
                for &l in &before {
                    let c = choice(l);
                    let hit = if c.active && !all { Hit::Primary } else { Hit::All };
                    let span = model.delay(v, c, hit, s.stress, level);
                    let x = span.quantile_s(slo.confidence);
                    let worst = model.reach[v]
                        .iter()
                        .map(|r| {
                            let rho = model.path_rho(v, r, c, level);
                            let x = (x - r.buffer_s).max(0.0);
                            super::super::fluid::outage_in_burst_s(x, rho * s.stress.load, repair_s, rho)
                                .unwrap_or(f64::INFINITY)
                        })
                        .fold(0.0, f64::max);
                    nearest = nearest.min(worst);
                    if worst > slo.recovery_s {
                        self.allowed[v * self.labels + l] = false;
                    }
                }
                if !before.iter().any(|l| self.allowed[v * self.labels + l]) {
                    return Err(super::explain_slo(model, slo, v, s, nearest, setting.refuge[v]));
                }
            }
        }
        Ok(())
    }

    fn budgets(&mut self, model: &Model, goal: &Goal) {
        let cores: f64 = model.input.tasks.iter().map(|t| t.cores).sum();
        // Numbers of tasks are far below 2^52.
        self.caps.replicas = goal.replica_slots.map_or(f64::INFINITY, |k| k as f64);
        self.caps.overhead_cores = goal.overhead.map_or(f64::INFINITY, |o| o * cores);
        if let (true, Some(b)) = (goal.counts_rows(), goal.loss_budget_rows_per_h) {
            self.caps.loss = b;
        }
        self.weights = super::weights(model, goal);
    }

    /// Edges within jobs, and the parts that hang together by them.
    fn graph(&mut self, model: &Model) {
        let n = self.tasks;
        for e in model.input.edges.iter().filter(|e| !e.logged) {
            self.down[e.from].push(e.to);
            self.up[e.to].push(e.from);
        }
        for list in self.down.iter_mut().chain(&mut self.up) {
            list.sort_unstable();
            list.dedup();
        }
        let mut part_of = vec![usize::MAX; n];
        for start in 0..n {
            if part_of[start] != usize::MAX {
                continue;
            }
            let p = self.parts.len();
            let mut tasks = vec![start];
            part_of[start] = p;
            let mut next = 0;
            while next < tasks.len() {
                let v = tasks[next];
                next += 1;
                for &w in self.down[v].iter().chain(&self.up[v]) {
                    if part_of[w] == usize::MAX {
                        part_of[w] = p;
                        tasks.push(w);
                    }
                }
            }
            tasks.sort_unstable();
            self.parts.push(Part { tasks, hubs: 0, pairs: Vec::new() });
        }
        let mut local = vec![0; n];
        for p in &self.parts {
            for (i, &v) in p.tasks.iter().enumerate() {
                local[v] = i;
            }
        }
        // Tasks with the same consumers, as before a shuffle, share a helper node: a + b pairs
        // instead of a·b.
        let mut groups: BTreeMap<&[usize], Vec<usize>> = BTreeMap::new();
        for v in 0..n {
            if !self.down[v].is_empty() {
                groups.entry(&self.down[v]).or_default().push(v);
            }
        }
        for (&consumers, producers) in &groups {
            let part = &mut self.parts[part_of[producers[0]]];
            if producers.len() > 1 && consumers.len() > 1 {
                let hub = part.tasks.len() + part.hubs;
                part.hubs += 1;
                part.pairs.extend(consumers.iter().map(|&w| (local[w], hub)));
                part.pairs.extend(producers.iter().map(|&v| (hub, local[v])));
            } else {
                for &v in producers {
                    part.pairs.extend(consumers.iter().map(|&w| (local[w], local[v])));
                }
            }
        }
    }
}

/// All tasks on one worker and in one domain, each as good as the best there is: no placement
/// is hit less often, for each used worker's shock costs at least the maximum over its tasks.
fn relaxed_shocks(model: &Model) -> Vec<Shock> {
    let c = &model.input.cluster;
    let everybody = vec![0; model.input.tasks.len()];
    let mut out = shock::shocks(model, &everybody);
    out.retain(|s| matches!(s.cause, Cause::Crash(_) | Cause::Input(_)));
    let worker = c.workers.iter().map(|w| w.failure.mean_per_s()).fold(f64::INFINITY, f64::min);
    let domain = c.domains.iter().map(|d| d.failure.mean_per_s()).fold(f64::INFINITY, f64::min);
    let killed: Vec<usize> = (0..model.input.tasks.len()).collect();
    for (cause, per_s) in [(Cause::Worker(0), worker + c.false_alarms_per_s), (Cause::Domain(0), domain)] {
        if per_s > 0.0 && per_s.is_finite() {
            out.push(Shock { cause, extra_per_s: per_s, killed: killed.clone(), ..shock::pair(0) });
        }
    }
    out
}

/// The most reliable places: what a replica is hit by at least [1/s].
struct BestRates {
    /// Per domain, of its best worker without the domain's own shocks, and those.
    by_domain: Vec<(f64, f64)>,
    anywhere: f64,
}

impl BestRates {
    fn new(model: &Model) -> Self {
        let c = &model.input.cluster;
        let mut by_domain: Vec<(f64, f64)> =
            c.domains.iter().map(|d| (f64::INFINITY, d.failure.mean_per_s())).collect();
        let mut anywhere = f64::INFINITY;
        for w in &c.workers {
            let rate = w.failure.mean_per_s() + c.false_alarms_per_s;
            let d = &mut by_domain[w.domain];
            d.0 = d.0.min(rate);
            anywhere = anywhere.min(rate);
        }
        Self { by_domain, anywhere }
    }

    /// Rates for a primary and, at best, its replica.
    fn of(&self, model: &Model, primary: Option<usize>, refuge: Refuge) -> (f64, f64) {
        let Some(p) = primary else { return (self.anywhere, self.anywhere) };
        let c = &model.input.cluster;
        let w = &c.workers[p];
        let own = w.failure.mean_per_s() + c.false_alarms_per_s;
        if refuge == Refuge::SameDomain {
            return (own, self.by_domain[w.domain].0);
        }
        let others = self.by_domain.iter().enumerate().filter(|(d, _)| *d != w.domain);
        let other = others.map(|(_, (rate, domain))| rate + domain).fold(f64::INFINITY, f64::min);
        (own + self.by_domain[w.domain].1, if other.is_finite() { other } else { self.anywhere })
    }
}
