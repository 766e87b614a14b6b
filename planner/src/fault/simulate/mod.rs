//! A simulator of failing systems, to check the model against and to answer what it cannot:
//! overlapping failures, distributions.
//!
//! It shares no formula with the model. [`rows`] follows one task row by row; [`system`] a cluster
//! epoch by epoch; [`run`] lets years pass, [`rare`] looks only at what follows a failure, with rare
//! ones drawn more often than they are and weighted accordingly.

pub mod rows;
pub mod stats;
pub mod system;

use rand::Rng;
use serde::{Deserialize, Serialize};

use self::stats::Estimate;
use self::system::{Event, Run, SinkTally, System};
use super::error::{FaultError, Result};

/// Longest mission.
pub const MOST_YEARS: f64 = 10_000.0;

/// Most failures in one mission.
pub const MOST_FAILURES: usize = 50_000_000;

const YEAR_S: f64 = 365.25 * 86_400.0;

/// How long and how.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Mission {
    /// Simulated time.
    pub years: f64,
    /// Seed of everything random.
    pub seed: u64,
    /// Length of the windows whose survival is counted [s].
    pub window_s: f64,
    /// Whether anything fails; if not, what remains is what the load does by itself.
    pub failures: bool,
}

impl Default for Mission {
    fn default() -> Self {
        Self { years: 1.0, seed: 1, window_s: 86_400.0, failures: true }
    }
}

/// What a mission was like.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Weighted late rows of all sinks [rows/h].
    pub late_rows_per_h: Estimate,
    /// Weighted lateness of all sinks [row·s/h].
    pub lateness_row_s_per_h: Estimate,
    /// Outages with late rows, all sinks [1/h].
    pub misses_per_h: Estimate,
    /// Share of the time in which a sink is current, mean over sinks.
    pub availability: Estimate,
    /// Windows in which no sink missed its deadline.
    pub survival: Estimate,
    /// Failures.
    pub failures: usize,
    /// Lengths of outages [s], sorted.
    pub outages_s: Vec<f64>,
}

/// Rates of everything that can fail, per second, with a running sum to pick from.
struct Causes {
    events: Vec<(Event, f64)>,
    sums: Vec<f64>,
}

impl Causes {
    fn new(s: &System) -> Self {
        let c = &s.input.cluster;
        let crash = s.input.tasks.iter().enumerate().map(|(v, t)| (Event::Crash(v), t.crash.mean_per_s()));
        let worker = c
            .workers
            .iter()
            .enumerate()
            .map(|(w, x)| (Event::Worker(w), x.failure.mean_per_s() + c.false_alarms_per_s));
        let domain = c.domains.iter().enumerate().map(|(d, x)| (Event::Domain(d), x.failure.mean_per_s()));
        let lead = std::iter::once((Event::Coordinator, c.coordinator.mean_per_s()));
        let events: Vec<(Event, f64)> = crash.chain(worker).chain(domain).chain(lead).filter(|e| e.1 > 0.0).collect();
        let mut sum = 0.0;
        let sums = events
            .iter()
            .map(|e| {
                sum += e.1;
                sum
            })
            .collect();
        Self { events, sums }
    }

    fn total_per_s(&self) -> f64 {
        self.sums.last().copied().unwrap_or(0.0)
    }

    fn pick(&self, x: f64) -> Event {
        let i = self.sums.partition_point(|&s| s < x * self.total_per_s());
        self.events[i.min(self.events.len() - 1)].0
    }
}

fn exponential(rng: &mut impl Rng, per_s: f64) -> f64 {
    -(1.0 - rng.random::<f64>()).ln() / per_s
}

fn happen(run: &mut Run, s: &System, event: Event) {
    let common = match event {
        Event::Crash(v) => run.rng.random_bool(s.input.tasks[v].common_cause.clamp(0.0, 1.0)),
        _ => false,
    };
    run.fail(event, common);
}

fn total(t: &[SinkTally]) -> SinkTally {
    t.iter().fold(SinkTally::default(), |a, b| SinkTally {
        late_rows: a.late_rows + b.late_rows,
        lateness_row_s: a.lateness_row_s + b.lateness_row_s,
        outage_s: a.outage_s + b.outage_s,
        misses: a.misses + b.misses,
        outages: a.outages + b.outages,
    })
}

/// Lets a system run and fail for years. Confidence intervals come from 40 equal parts of the
/// mission, which are independent but for failures that lie across a border.
pub fn run(s: &System, mission: &Mission) -> Result<Report> {
    const PARTS: usize = 40;
    let sound = mission.years > 0.0 && mission.years <= MOST_YEARS && mission.window_s > 0.0;
    if !sound {
        return Err(FaultError::invalid(format!(
            "a mission of {} years in windows of {} s: years must be above 0 and at most {MOST_YEARS}, windows above 0",
            mission.years, mission.window_s
        )));
    }
    let causes = Causes::new(s);
    let rate = if mission.failures { causes.total_per_s() } else { 0.0 };
    let length = mission.years * YEAR_S;
    if rate * length > MOST_FAILURES as f64 {
        return Err(FaultError::invalid(format!(
            "about {:.0} failures in {} years, at most {MOST_FAILURES} can be simulated: shorten the mission",
            rate * length,
            mission.years
        )));
    }
    let mut run = Run::new(s, mission.seed);
    let begin = run.now;
    let mut parts = Vec::with_capacity(PARTS);
    let mut before = SinkTally::default();
    let mut windows: Vec<f64> = Vec::new();
    let mut missed = 0.0;
    let mut next = if rate > 0.0 { begin + exponential(&mut run.rng, rate) } else { f64::INFINITY };
    let mut window_end = begin + mission.window_s;
    for part in 1..=PARTS {
        let end = begin + length * part as f64 / PARTS as f64;
        loop {
            let stop = next.min(end).min(window_end);
            run.advance(stop);
            if stop >= window_end {
                let now = total(&run.tally).misses;
                windows.push(f64::from(u8::from(now <= missed)));
                missed = now;
                window_end += mission.window_s;
            } else if stop >= next {
                let event = causes.pick(run.rng.random::<f64>());
                happen(&mut run, s, event);
                next += exponential(&mut run.rng, rate);
            } else {
                break;
            }
        }
        let now = total(&run.tally);
        parts.push((now, before));
        before = now;
    }
    let hours = length / 3600.0 / PARTS as f64;
    let per_h = |f: &dyn Fn(&SinkTally) -> f64| {
        Estimate::of(&parts.iter().map(|(a, b)| (f(a) - f(b)) / hours).collect::<Vec<_>>())
    };
    let sinks = s.input.sinks.len() as f64;
    let out = per_h(&|t| t.outage_s / 3600.0 / sinks);
    let mut outages_s = std::mem::take(&mut run.outages);
    outages_s.sort_by(f64::total_cmp);
    Ok(Report {
        late_rows_per_h: per_h(&|t| t.late_rows),
        lateness_row_s_per_h: per_h(&|t| t.lateness_row_s),
        misses_per_h: per_h(&|t| t.misses),
        availability: Estimate { mean: 1.0 - out.mean, half_width: out.half_width },
        survival: Estimate::of(&windows),
        failures: run.failures,
        outages_s,
    })
}

/// What rare failures cost, by importance sampling.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rare {
    /// Weighted late rows of all sinks [rows/h].
    pub late_rows_per_h: Estimate,
    /// Weighted lateness [row·s/h].
    pub lateness_row_s_per_h: Estimate,
    /// Outages with late rows, all sinks [1/h].
    pub misses_per_h: Estimate,
    /// Share of the time in which a sink is not current, mean over sinks.
    pub unavailability: Estimate,
}

/// Looks at `cycles` cycles, each from a first failure until all is current again.
///
/// Failures come at the total rate Λ to a system that is current almost always; so what a cycle
/// costs on average, times Λ, is what failures cost per second. The first failure is drawn by its
/// kind (crash, machine, domain, coordinator: each as often), further ones within the cycle at
/// `boost` times their rate; each cycle counts with the ratio of its true to its drawn likelihood.
pub fn rare(s: &System, cycles: usize, boost: f64, seed: u64) -> Result<Rare> {
    if cycles < 2 || !(boost.is_finite() && boost > 0.0) {
        return Err(FaultError::invalid("importance sampling needs at least 2 cycles and a boost above 0"));
    }
    let causes = Causes::new(s);
    let rate = causes.total_per_s();
    let kind = |e: &Event| match e {
        Event::Crash(_) => 0,
        Event::Worker(_) => 1,
        Event::Domain(_) => 2,
        Event::Coordinator => 3,
    };
    let mut by_kind: [(f64, Vec<(Event, f64)>); 4] = Default::default();
    for e in &causes.events {
        let k = &mut by_kind[kind(&e.0)];
        k.0 += e.1;
        k.1.push(*e);
    }
    let kinds: Vec<&(f64, Vec<(Event, f64)>)> = by_kind.iter().filter(|k| k.0 > 0.0).collect();
    let mut samples: Vec<(f64, SinkTally)> = Vec::with_capacity(cycles);
    for i in 0..cycles {
        let mut run = Run::new(s, seed.wrapping_add(i as u64));
        // Stratified: every kind gets its share of the cycles.
        let Some(k) = kinds.get(i % kinds.len().max(1)) else { break };
        let mut pick = run.rng.random_range(0.0..k.0);
        let event = k.1.iter().find(|e| {
            pick -= e.1;
            pick <= 0.0
        });
        let event = event.unwrap_or(&k.1[k.1.len() - 1]).0;
        let mut weight = k.0 / rate * kinds.len() as f64;
        happen(&mut run, s, event);
        let boosted = rate * boost;
        while !run.quiet() {
            let start = run.now;
            let next = start + exponential(&mut run.rng, boosted);
            while run.now < next && !run.quiet() {
                let step = (run.now + 1.0).min(next);
                run.advance(step);
            }
            let gone = run.now.min(next) - start;
            weight *= ((boost - 1.0) * rate * gone).exp();
            if run.now >= next {
                weight /= boost;
                let event = causes.pick(run.rng.random::<f64>());
                happen(&mut run, s, event);
            }
        }
        samples.push((weight, total(&run.tally)));
    }
    // Strata of equal size: their means are averaged, and so are their variances.
    let strata = kinds.len().max(1);
    let per_h = |f: &dyn Fn(&SinkTally) -> f64| {
        let each: Vec<Estimate> = (0..strata)
            .map(|k| {
                let x: Vec<f64> =
                    samples.iter().skip(k).step_by(strata).map(|(w, t)| w * f(t) * rate * 3600.0).collect();
                Estimate::of(&x)
            })
            .collect();
        let n = each.len() as f64;
        Estimate {
            mean: each.iter().map(|e| e.mean).sum::<f64>() / n,
            half_width: each.iter().map(|e| e.half_width.powi(2)).sum::<f64>().sqrt() / n,
        }
    };
    let sinks = s.input.sinks.len() as f64;
    Ok(Rare {
        late_rows_per_h: per_h(&|t| t.late_rows),
        lateness_row_s_per_h: per_h(&|t| t.lateness_row_s),
        misses_per_h: per_h(&|t| t.misses),
        unavailability: per_h(&|t| t.outage_s / 3600.0 / sinks),
    })
}

#[cfg(test)]
mod tests;
