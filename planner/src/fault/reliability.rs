//! What a plan promises: how likely a deadline is missed, how likely a day passes without that, how
//! available each sink is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::error::Result;
use super::graph::Delivery;
use super::model::Model;
use super::shock::{self, Plan, Shock};

/// Moments of a snapshot cycle at which a shock of several tasks is looked at.
const MOMENTS: u16 = 64;

/// The promise for one sink, or for all of them together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Promise {
    /// Missed deadlines, expected [1/s].
    pub misses_per_s: f64,
    /// Share of the time in which the sink is current, A.
    pub availability: f64,
    /// Terms of R(T): Gamma rates with the share of their events that misses.
    terms: Vec<(super::graph::FailureRate, f64)>,
}

impl Promise {
    /// Probability that no deadline is missed for `t_s` seconds, R(T).
    ///
    /// Shocks of different causes are independent; each contributes its Gamma predictive
    /// (β/(β+qT))^α, which is exp(−λqT) once its rate is known. For rare shocks that do not overlap.
    pub fn survival(&self, t_s: f64) -> f64 {
        self.terms.iter().map(|(rate, q)| rate.survival(*q, t_s)).product()
    }
}

/// How one shock shows at one sink.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Effect {
    /// P(X > D), q_F.
    pub miss: f64,
    /// Expected outage E[O] [s].
    pub outage_s: f64,
}

/// A task that a shock kills, as it comes back.
struct Restart {
    /// Until its first replayed row, and what each second of age adds [s].
    first_s: f64,
    per_s: f64,
    /// Age of its snapshot: least, and the interval that it varies over; 0 with a replica.
    least_age_s: f64,
    interval_s: f64,
    /// What is buffered between it and the sink [s].
    buffer_s: f64,
    rho: f64,
    /// Its producers that the shock kills too, as places in the list of restarts.
    after: Vec<usize>,
}

/// The killed tasks on a path to a sink, producers first.
fn restarts(model: &Model, plan: &Plan, shock: &Shock, sink: usize) -> Vec<Restart> {
    let level = model.input.mean_level();
    let c = &model.input.cluster;
    let lossy = model.input.sinks[sink].delivery == Delivery::AtMostOnce;
    let mut killed = shock.killed.clone();
    killed.sort_by_key(|&v| model.rank[v]);
    let mut place: BTreeMap<usize, usize> = BTreeMap::new();
    let mut out = Vec::new();
    for v in killed {
        let Some(reach) = model.reach[v].iter().find(|r| r.sink == sink) else { continue };
        let (t, choice) = (&model.input.tasks[v], plan.choices[v]);
        let hit = shock.hit(model, plan.placement.replica[v]);
        let span = model.delay(v, choice, hit, shock.stress, level);
        let replays = span.high_s > span.low_s && !lossy;
        let (least_age_s, interval_s) = match (replays, t.stateful()) {
            (false, _) => (0.0, 0.0),
            (true, true) => (t.snapshot_completion_s, c.interval_s(choice.level)),
            (true, false) => (0.0, c.epoch_s),
        };
        let per_s = if replays { (span.high_s - span.low_s) / interval_s } else { 0.0 };
        place.insert(v, out.len());
        out.push(Restart {
            first_s: span.low_s - per_s * least_age_s,
            per_s,
            least_age_s,
            interval_s,
            buffer_s: reach.buffer_s,
            rho: model.path_rho(v, reach, choice, level),
            after: model.producers[v].iter().filter_map(|u| place.get(u).copied()).collect(),
        });
    }
    out
}

/// How a shock shows at a sink at 64 moments of the snapshot cycle: whether rows are late, and the
/// outage [s]. Empty if it does not show there.
///
/// All tasks take their snapshots on the same grid of epochs, so the ages of those that die together
/// are tied: with t the time since the last common barrier, u = κ + (t mod τ). And they rebuild as a
/// pipeline: a task waits for a killed producer to get from its own, older snapshot to the task's, and
/// then both go on at the pace of the slower.
pub fn outages(model: &Model, plan: &Plan, shock: &Shock, sink: usize) -> Vec<(bool, f64)> {
    let c = &model.input.cluster;
    let slack_s = model.input.sinks[sink].slack_s();
    let tasks = restarts(model, plan, shock, sink);
    if tasks.is_empty() {
        return Vec::new();
    }
    // Beyond capacity the path catches up when the machine is back.
    let outage_s = |x: f64, rho: f64| {
        super::fluid::outage_in_burst_s(x, rho * shock.stress.load, c.repair_s, rho).unwrap_or(f64::MAX)
    };
    let cycle_s = tasks.iter().map(|t| t.interval_s).fold(0.0, f64::max);
    // Per task: when it gets its first row, its pace, its age.
    let mut done: Vec<(f64, f64, f64)> = Vec::with_capacity(tasks.len());
    (0..MOMENTS)
        .map(|i| {
            done.clear();
            let (mut missed, mut longest) = (false, 0.0f64);
            for t in &tasks {
                let now = moment(i) * cycle_s;
                let age = if t.interval_s > 0.0 { t.least_age_s + now % t.interval_s } else { 0.0 };
                let (mut first, mut pace) = (t.first_s, t.per_s);
                for &(f, p, a) in t.after.iter().map(|&u| &done[u]) {
                    first = first.max(f + p * (a - age).max(0.0));
                    pace = pace.max(p);
                }
                done.push((first, pace, age));
                let x = first + pace * age;
                missed |= x > slack_s + t.buffer_s;
                longest = longest.max(outage_s((x - t.buffer_s).max(0.0), t.rho));
            }
            (missed, longest)
        })
        .collect()
}

/// The effect of a shock on a sink: the mean of [`outages`], where a maximum of means would be too
/// low; a task alone misses with a probability in closed form.
pub fn effect(model: &Model, plan: &Plan, shock: &Shock, sink: usize) -> Effect {
    let all = outages(model, plan, shock, sink);
    let mut sum = Effect::default();
    for (missed, outage_s) in &all {
        sum.miss += f64::from(u8::from(*missed)) / f64::from(MOMENTS);
        sum.outage_s += outage_s / f64::from(MOMENTS);
    }
    if let [t] = restarts(model, plan, shock, sink).as_slice() {
        let low_s = t.first_s + t.per_s * t.least_age_s;
        let span = super::fluid::Span { low_s, high_s: low_s + t.per_s * t.interval_s };
        sum.miss = span.exceeds(model.input.sinks[sink].slack_s() + t.buffer_s);
    }
    sum
}

fn moment(i: u16) -> f64 {
    (f64::from(i) + 0.5) / f64::from(MOMENTS)
}

/// All shocks of a plan, lost pairs and the coordinator included.
pub fn all_shocks(model: &Model, plan: &Plan) -> Vec<Shock> {
    let mut all = shock::shocks(model, &plan.placement.primary);
    for v in 0..plan.choices.len() {
        if let (true, Some(r)) = (plan.choices[v].active, plan.placement.replica[v]) {
            let level = plan.choices[v].level;
            let mut pair = shock::pair(v);
            pair.extra_per_s = shock::pair_rate_per_s(model, v, level, plan.placement.primary[v], r);
            all.push(pair);
        }
    }
    all
}

/// The promise for each sink, and for the system: no sink misses, every sink is current.
pub fn promises(model: &Model, plan: &Plan) -> Result<(Vec<Promise>, Promise)> {
    shock::check(model, plan)?;
    let sinks = model.input.sinks.len();
    let none = Promise { misses_per_s: 0.0, availability: 1.0, terms: Vec::new() };
    let mut each = vec![none.clone(); sinks];
    let mut system = none;
    let mut count = |shock: &Shock, effects: &dyn Fn(usize) -> Effect, reached: &[usize]| {
        let per_s = shock.per_s();
        let mut worst = Effect::default();
        let put = |p: &mut Promise, e: Effect| {
            p.misses_per_s += per_s * e.miss;
            p.availability -= per_s * e.outage_s;
            if e.miss > 0.0 {
                p.terms.push((shock.rate, shock.share * e.miss));
                if shock.extra_per_s > 0.0 {
                    let known = super::graph::FailureRate::known(1.0 / shock.extra_per_s);
                    p.terms.push((known, e.miss));
                }
            }
        };
        for &s in reached {
            let e = effects(s);
            // One shock shows at all sinks at the same moment: the worst sink decides.
            worst = Effect { miss: worst.miss.max(e.miss), outage_s: worst.outage_s.max(e.outage_s) };
            put(&mut each[s], e);
        }
        put(&mut system, worst);
    };
    for s in all_shocks(model, plan) {
        let mut reached: Vec<usize> = s.killed.iter().flat_map(|&v| model.reach[v].iter().map(|r| r.sink)).collect();
        reached.sort_unstable();
        reached.dedup();
        count(&s, &|sink| effect(model, plan, &s, sink), &reached);
    }
    let c = &model.input.cluster;
    let lead = Shock { cause: shock::Cause::Coordinator, rate: c.coordinator, killed: Vec::new(), ..shock::pair(0) };
    let level = model.input.mean_level();
    let rho: Vec<f64> = (0..sinks)
        .map(|s| {
            let on_path = |v: &usize| model.reach[*v].iter().any(|r| r.sink == s && r.buffer_s == 0.0);
            (0..plan.choices.len()).filter(on_path).map(|v| model.rho(v, plan.choices[v], level)).fold(0.0, f64::max)
        })
        .collect();
    let all: Vec<usize> = (0..sinks).collect();
    count(
        &lead,
        &|s| Effect {
            miss: f64::from(u8::from(c.failover_s > model.input.sinks[s].slack_s())),
            outage_s: super::fluid::outage_s(c.failover_s, rho[s]).unwrap_or(f64::MAX),
        },
        &all,
    );
    for p in each.iter_mut().chain([&mut system]) {
        p.availability = p.availability.clamp(0.0, 1.0);
    }
    Ok((each, system))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::graph::FailureRate;
    use crate::fault::model::{Choice, Model};
    use crate::fault::shock::Placement;
    use crate::fault::testing::{edge, input};

    fn plan(primary: &[usize], level: u8) -> Plan {
        let n = primary.len();
        Plan {
            placement: Placement { primary: primary.to_vec(), replica: vec![None; n] },
            choices: vec![Choice::checkpoint(level); n],
        }
    }

    #[test]
    fn one_task_by_hand() {
        let mut x = input(1, &[], &[0]);
        x.cluster.coordinator = FailureRate::NEVER;
        for d in &mut x.cluster.domains {
            d.failure = FailureRate::NEVER;
        }
        for w in &mut x.cluster.workers {
            w.failure = FailureRate::known(1e5);
        }
        x.tasks[0].crash = FailureRate::NEVER;
        x.tasks[0].snapshot_pause_s = 0.0;
        x.tasks[0].encode_s_per_byte = 0.0;
        x.sinks[0].deadline_s = 4.0;
        x.sinks[0].steady_latency_s = 0.0;
        let m = Model::new(&x).unwrap();
        let p = plan(&[0], 6);
        let (each, system) = promises(&m, &p).unwrap();
        // X = 0.3 + 0.5 + 1 + 0.1 + 0.01 + 0.5·u, u on [0, 6.4]; D = 4.
        let fixed = 1.91;
        let q = (fixed + 3.2 - 4.0) / 3.2;
        assert!((each[0].misses_per_s - q / 1e5).abs() < 1e-12);
        let outage = (fixed + 1.6) / 0.5;
        assert!((each[0].availability - (1.0 - outage / 1e5)).abs() < 1e-9);
        assert!((system.survival(86_400.0) - (-q * 86_400.0 / 1e5f64).exp()).abs() < 1e-6);
    }

    #[test]
    fn an_uncertain_rate_has_a_heavier_tail() {
        let known = FailureRate::known(1e6);
        let prior = FailureRate::prior(1e6);
        assert!((known.survival(1.0, 1e6) - (-1f64).exp()).abs() < 1e-6);
        assert!((prior.survival(1.0, 1e6) - 0.5).abs() < 1e-12);
        assert_eq!(FailureRate::NEVER.survival(1.0, 1e9), 1.0);
        assert_eq!(prior.survival(0.0, 1e9), 1.0);
    }

    #[test]
    fn replicas_help_but_for_shared_domains_and_pairs() {
        let mut x = input(2, &[edge(0, 1, 1000.0)], &[1]);
        x.cluster = crate::fault::testing::cluster(4, 2, 4);
        let m = Model::new(&x).unwrap();
        let mut p = plan(&[0, 0], 6);
        let bare = promises(&m, &p).unwrap().1;
        p.choices = vec![Choice::active(6); 2];
        p.placement.replica = vec![Some(1), Some(1)];
        let apart = promises(&m, &p).unwrap().1;
        p.placement.replica = vec![Some(2), Some(2)];
        let same_rack = promises(&m, &p).unwrap().1;
        let lead = x.cluster.coordinator.mean_per_s();
        assert!(apart.misses_per_s < same_rack.misses_per_s && same_rack.misses_per_s < bare.misses_per_s);
        // What is left is the coordinator, which takes 2 s of a slack of 1, and lost pairs.
        assert!(apart.misses_per_s > lead && apart.misses_per_s < lead * 1.01);
        assert!(apart.survival(1e5) > same_rack.survival(1e5));
        assert!(apart.availability > bare.availability);
    }
}
