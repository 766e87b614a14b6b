//! `EXPLAIN FAULT`: a plan told in words and numbers, each with its unit, with a legend.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::error::Result;
use super::fluid;
use super::model::{Choice, Hit, Model, When};
use super::optimize::{Goal, Planned};
use super::reliability;
use super::shock::{Cause, Shock};

/// One task of the plan: a row of `spate.fault_plan`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskReport {
    /// Name.
    pub task: String,
    /// `replay`, `checkpoint` or `active`.
    pub option: String,
    /// Interval between snapshots [s]; none for a task without state.
    pub interval_s: Option<f64>,
    /// Worker.
    pub worker: String,
    /// Worker of the replica.
    pub replica: Option<String>,
    /// Utilisation, snapshots included, 0 to 1.
    pub utilisation: f64,
    /// State [MB].
    pub state_mb: f64,
    /// Failures that stop it, replicas or not [1/year].
    pub failures_per_year: f64,
    /// Mean outage that such a failure causes [s].
    pub outage_mean_s: f64,
    /// 99 of 100 are shorter [s].
    pub outage_p99_s: f64,
    /// Rows late per failure (weighted).
    pub late_rows_per_failure: f64,
    /// Its part of all expected lateness, 0 to 1.
    pub loss_share: f64,
    /// What its protection costs [currency/h].
    pub running_cost_per_h: f64,
    /// Whether its rates and sizes were measured; else they are priors.
    pub measured: bool,
}

/// One sink.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SinkReport {
    /// Name.
    pub sink: String,
    /// How old a result may be [s].
    pub deadline_s: f64,
    /// Probability that a day passes without a missed deadline.
    pub survives_day: f64,
    /// Missed deadlines [1/year].
    pub misses_per_year: f64,
    /// Share of the time in which it is current.
    pub availability: f64,
}

/// The whole plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Strategy.
    pub strategy: String,
    /// What protection costs [currency/h].
    pub running_cost_per_h: f64,
    /// Late rows expected [rows/h] (weighted).
    pub late_rows_per_h: f64,
    /// Their delay beyond the deadline, summed up [row·s/h] (weighted).
    pub lateness_row_s_per_h: f64,
    /// Probability that a day passes in which no sink misses its deadline.
    pub survives_day: f64,
    /// Share of the time in which all sinks are current.
    pub availability: f64,
    /// Replicas.
    pub replicas: usize,
    /// At most so far from the best plan on these workers, 0 to 1.
    pub gap: f64,
    /// At most so far from the best plan on any workers, 0 to 1.
    pub placement_gap: f64,
    /// Budgets and objectives that are used up.
    pub binding: Vec<String>,
    /// What should be known before the numbers are believed.
    pub notes: Vec<String>,
    /// Sinks.
    pub sinks: Vec<SinkReport>,
    /// Tasks.
    pub tasks: Vec<TaskReport>,
    /// Interval per load state, where it changes: state, task, interval [s].
    pub modes: Vec<(String, String, f64)>,
    /// What the words mean.
    pub legend: Vec<(String, String)>,
}

const YEAR_S: f64 = 365.25 * 86_400.0;

/// Explains a plan.
pub fn explain(model: &Model, goal: &Goal, planned: &Planned) -> Result<Report> {
    let plan = &planned.plan;
    let (each, system) = reliability::promises(model, plan)?;
    let day = 86_400.0;
    let sinks = model
        .input
        .sinks
        .iter()
        .zip(&each)
        .map(|(s, p)| SinkReport {
            sink: s.name.clone(),
            deadline_s: s.deadline_s,
            survives_day: p.survival(day),
            misses_per_year: p.misses_per_s * YEAR_S,
            availability: p.availability,
        })
        .collect();
    let shocks = reliability::all_shocks(model, plan);
    let mut hits: Vec<Vec<&Shock>> = vec![Vec::new(); model.input.tasks.len()];
    for s in &shocks {
        for &v in &s.killed {
            hits[v].push(s);
        }
    }
    // What the shares of the tasks leave is the coordinator's, whose failures no protection of tasks shortens.
    let of_tasks: f64 = planned.shares.iter().sum();
    let total = planned.cost.lateness_row_s_per_h.max(of_tasks);
    let coordinator = if total > 0.0 { (total - of_tasks) / total } else { 0.0 };
    let tasks = (0..plan.choices.len())
        .map(|v| {
            let part = if total > 0.0 { planned.shares[v] / total } else { 0.0 };
            task_report(model, planned, v, &hits[v], part)
        })
        .collect();
    let seconds = |c: &Choice| model.input.cluster.interval_s(c.level);
    let mut modes = Vec::new();
    for m in &planned.modes {
        for (v, c) in m.choices.iter().enumerate() {
            if c.level != plan.choices[v].level && model.input.tasks[v].stateful() {
                modes.push((model.input.load[m.state].name.clone(), model.input.tasks[v].name.clone(), seconds(c)));
            }
        }
    }
    Ok(Report {
        strategy: goal.strategy.name().to_owned(),
        running_cost_per_h: planned.cost.running_per_h,
        late_rows_per_h: planned.cost.late_rows_per_h,
        lateness_row_s_per_h: planned.cost.lateness_row_s_per_h,
        survives_day: system.survival(day),
        availability: system.availability,
        replicas: planned.cost.replicas,
        gap: planned.gap(),
        placement_gap: planned.placement_gap(),
        binding: planned.binding.clone(),
        notes: notes(model, &shocks, coordinator),
        sinks,
        tasks,
        modes,
        legend: legend(),
    })
}

fn task_report(model: &Model, planned: &Planned, v: usize, shocks: &[&Shock], loss_share: f64) -> TaskReport {
    let (t, c) = (&model.input.tasks[v], &model.input.cluster);
    let plan = &planned.plan;
    let choice = plan.choices[v];
    let level = model.input.mean_level();
    let mut per_s = 0.0;
    let mut rows = 0.0;
    // Outages at 64 ages of the snapshot, with their rates.
    let mut outages: Vec<(f64, f64)> = Vec::new();
    for s in shocks {
        let hit = s.hit(model, plan.placement.replica[v]);
        let span = model.delay(v, choice, hit, s.stress, level);
        let rho = model.reach[v]
            .iter()
            .filter(|r| r.buffer_s <= 0.0)
            .map(|r| model.path_rho(v, r, choice, level))
            .fold(model.rho(v, choice, level), f64::max);
        let moments: u16 = if hit == Hit::Primary { 1 } else { 64 };
        for i in 0..moments {
            let x = span.quantile_s((f64::from(i) + 0.5) / f64::from(moments));
            if let Some(o) = fluid::outage_in_burst_s(x, rho * s.stress.load, c.repair_s, rho) {
                outages.push((o, s.per_s() / f64::from(moments)));
            }
        }
        per_s += s.per_s();
        for r in &model.reach[v] {
            let l = model.loss(v, r, choice, hit, s.stress, When::Mean).unwrap_or_default();
            rows += s.per_s() * l.late_rows;
        }
    }
    outages.sort_by(|a, b| a.0.total_cmp(&b.0));
    let weight: f64 = outages.iter().map(|o| o.1).sum();
    let mean = if weight > 0.0 { outages.iter().map(|o| o.0 * o.1).sum::<f64>() / weight } else { 0.0 };
    let mut below = 0.0;
    let p99 = outages.iter().find(|o| {
        below += o.1;
        below >= 0.99 * weight
    });
    let replay = !t.stateful() || choice.level == c.global_level;
    TaskReport {
        task: t.name.clone(),
        option: if choice.active {
            "active"
        } else if replay {
            "replay"
        } else {
            "checkpoint"
        }
        .to_owned(),
        interval_s: t.stateful().then(|| c.interval_s(choice.level)),
        worker: c.workers[plan.placement.primary[v]].name.clone(),
        replica: plan.placement.replica[v].map(|w| c.workers[w].name.clone()),
        utilisation: model.rho(v, choice, level),
        state_mb: t.state_bytes / 1e6,
        failures_per_year: per_s * YEAR_S,
        outage_mean_s: mean,
        outage_p99_s: p99.map_or(0.0, |o| o.0),
        late_rows_per_failure: if per_s > 0.0 { rows / per_s } else { 0.0 },
        loss_share,
        running_cost_per_h: model.running(v, choice).cost_per_h,
        measured: t.measured,
    }
}

fn notes(model: &Model, shocks: &[Shock], coordinator: f64) -> Vec<String> {
    let x = model.input;
    let mut out = Vec::new();
    if coordinator >= 0.0005 {
        out.push(format!(
            "{} of the expected lateness comes from failures of the coordinator, while no epoch closes: protecting \
             tasks does not change that",
            percent(coordinator)
        ));
    }
    let priors = x.tasks.iter().filter(|t| !t.measured).count();
    if priors > 0 {
        out.push(format!(
            "{priors} of {} tasks have not been measured yet: their rates, sizes and times are priors",
            x.tasks.len()
        ));
    }
    for s in shocks {
        let name = match s.cause {
            Cause::Worker(w) => format!("worker \"{}\"", x.cluster.workers[w].name),
            Cause::Domain(d) => format!("domain \"{}\"", x.cluster.domains[d].name),
            _ => continue,
        };
        if s.stress.wait_s > 0.0 {
            out.push(format!("if {name} fails, nothing is left to restart on until it is back"));
        } else if s.stress.load > 1.0 {
            out.push(format!(
                "if {name} fails, the rest has {:.0}% of the load that it has slots for until it is back",
                s.stress.load * 100.0
            ));
        }
        if out.len() >= 8 {
            out.push("more such notes are left out".to_owned());
            break;
        }
    }
    for l in &x.load {
        let late = x.sinks.iter().enumerate().find_map(|(s, sink)| {
            let busiest = (0..x.tasks.len())
                .filter(|&v| model.reach[v].iter().any(|r| r.sink == s && r.buffer_s <= 0.0))
                .max_by(|&a, &b| x.tasks[a].rho_at(l.level).total_cmp(&x.tasks[b].rho_at(l.level)))?;
            let rho = x.tasks[busiest].rho_at(l.level);
            fluid::burst_alone_is_late(rho, l.length_s, sink.slack_s()).then_some((busiest, rho, &sink.name))
        });
        if let Some((v, rho, sink)) = late {
            out.push(format!(
                "load state \"{}\" makes \"{sink}\" late without any failure: task \"{}\" gets {:.0}% of what it can take for {:.0} s",
                l.name,
                x.tasks[v].name,
                rho * 100.0,
                l.length_s
            ));
        }
    }
    out
}

fn legend() -> Vec<(String, String)> {
    [
        ("replay", "no snapshots of its own: after a failure a stateful task starts from the last global checkpoint, one without state reads its input again"),
        ("checkpoint", "snapshots of its own, one per interval; after a failure it loads the last and recomputes what came since"),
        ("active", "a replica on another worker does the same work and takes over; snapshots remain for when both are lost"),
        ("util", "share of its time that a task is busy, snapshots included; near 100% it catches up slowly"),
        ("fail/yr", "failures of the task, its worker or its rack per year"),
        ("outage", "from a failure until results are as fresh as before: mean, and the length that 99 of 100 stay below"),
        ("late/fail", "result rows that leave after their deadline because of one failure, times the sink's weight"),
        ("loss", "the task's part of all expected lateness"),
        ("cost/h", "price of its protection per hour: snapshots, replica, memory of logs, network"),
        ("R(1 day)", "probability that a day passes without a missed deadline"),
        ("available", "share of the time in which results are fresh"),
        ("gap", "no plan can be better than this one by more"),
        ("~", "not measured yet: computed from priors"),
    ]
    .map(|(a, b)| (a.to_owned(), b.to_owned()))
    .to_vec()
}

/// At most so many tasks are printed; JSON and `spate.fault_plan` have all.
const MOST_ROWS: usize = 60;

/// A number with as many digits as say something.
fn short(x: f64) -> String {
    let a = x.abs();
    if x == 0.0 {
        "0".to_owned()
    } else if !(1e-4..1e7).contains(&a) {
        format!("{x:.1e}")
    } else if a >= 100.0 {
        format!("{x:.0}")
    } else if a >= 1.0 {
        format!("{x:.2}")
    } else {
        format!("{x:.4}")
    }
}

fn percent(x: f64) -> String {
    let x = x * 100.0;
    // 99.99995% must not be told as 100%.
    if x > 99.0 && x < 100.0 {
        let digits = (-(100.0 - x).log10()).ceil().clamp(1.0, 9.0) as usize;
        format!("{x:.*}%", digits + 1)
    } else {
        format!("{x:.1}%")
    }
}

impl Report {
    /// As JSON, every number under a name with its unit.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_else(|e| format!("{{\"error\": \"{e}\"}}"))
    }

    /// As text.
    pub fn to_text(&self) -> String {
        let mut o = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(o, "Fault plan, strategy {}", self.strategy);
        let _ = writeln!(
            o,
            "  protection costs {}/h; {} late rows/h, {} row·s/h of lateness; {} replicas",
            short(self.running_cost_per_h),
            short(self.late_rows_per_h),
            short(self.lateness_row_s_per_h),
            self.replicas
        );
        let _ = writeln!(
            o,
            "  R(1 day) {}, available {}; gap {} (on any workers: {})",
            percent(self.survives_day),
            percent(self.availability),
            percent(self.gap),
            percent(self.placement_gap)
        );
        if !self.binding.is_empty() {
            let _ = writeln!(o, "  binding: {}", self.binding.join(", "));
        }
        for n in &self.notes {
            let _ = writeln!(o, "  note: {n}");
        }
        for s in &self.sinks {
            let _ = writeln!(
                o,
                "  sink {}: deadline {} s, R(1 day) {}, {} misses/year, available {}",
                s.sink,
                short(s.deadline_s),
                percent(s.survives_day),
                short(s.misses_per_year),
                percent(s.availability)
            );
        }
        let head = [
            "task",
            "option",
            "interval s",
            "worker",
            "replica",
            "util",
            "state MB",
            "fail/yr",
            "outage s",
            "p99 s",
            "late/fail",
            "loss",
            "cost/h",
        ];
        let mut rows: Vec<Vec<String>> = vec![head.map(str::to_owned).to_vec()];
        // The dearest first, if not all fit.
        let mut order: Vec<usize> = (0..self.tasks.len()).collect();
        if order.len() > MOST_ROWS {
            order.sort_by(|&a, &b| self.tasks[b].loss_share.total_cmp(&self.tasks[a].loss_share).then(a.cmp(&b)));
        }
        for t in order.iter().take(MOST_ROWS).map(|&v| &self.tasks[v]) {
            rows.push(vec![
                format!("{}{}", t.task, if t.measured { "" } else { " ~" }),
                t.option.clone(),
                t.interval_s.map_or("-".to_owned(), short),
                t.worker.clone(),
                t.replica.clone().unwrap_or_else(|| "-".to_owned()),
                percent(t.utilisation),
                short(t.state_mb),
                short(t.failures_per_year),
                short(t.outage_mean_s),
                short(t.outage_p99_s),
                short(t.late_rows_per_failure),
                percent(t.loss_share),
                short(t.running_cost_per_h),
            ]);
        }
        let width: Vec<usize> =
            (0..head.len()).map(|i| rows.iter().map(|r| r[i].chars().count()).max().unwrap_or(0)).collect();
        for r in &rows {
            let cells: Vec<String> = r.iter().zip(&width).map(|(c, w)| format!("{c:<w$}")).collect();
            let _ = writeln!(o, "{}", cells.join("  ").trim_end());
        }
        if self.tasks.len() > MOST_ROWS {
            let _ = writeln!(o, "({} more tasks: see FORMAT JSON or spate.fault_plan)", self.tasks.len() - MOST_ROWS);
        }
        for (state, task, s) in &self.modes {
            let _ = writeln!(o, "in load state {state}: {task} takes snapshots every {} s", short(*s));
        }
        let _ = writeln!(o, "Legend");
        for (word, meaning) in &self.legend {
            let _ = writeln!(o, "  {word}: {meaning}");
        }
        o
    }
}

#[cfg(test)]
#[path = "explain_tests.rs"]
mod tests;
