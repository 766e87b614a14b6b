//! What the strategies are worth: their plans against fixed policies, by simulation.

use rand::Rng;

use super::graph::{FailureRate, Input, LoadState};
use super::model::Model;
use super::optimize::{Goal, Planned, Strategy, plan};
use super::simulate::stats::Estimate;
use super::simulate::system::System;
use super::simulate::{Mission, run};
use super::testing::{SHAPES, Shape, cluster, edge, input, rng, shape};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Profile {
    Steady,
    Diurnal,
    Burst,
}

fn state(name: &str, share: f64, length_s: f64, level: f64) -> LoadState {
    LoadState { name: name.into(), share, length_s, level }
}

fn load(profile: Profile) -> Vec<LoadState> {
    match profile {
        Profile::Steady => Vec::new(),
        Profile::Diurnal => vec![
            state("night", 0.25, 21_600.0, 0.0),
            state("morning", 0.25, 21_600.0, 0.5),
            state("day", 0.25, 21_600.0, 1.0),
            state("evening", 0.25, 21_600.0, 0.5),
        ],
        Profile::Burst => vec![state("normal", 0.9, 5400.0, 0.0), state("burst", 0.1, 600.0, 1.0)],
    }
}

/// Five tasks of different kinds: small and large states, idle and busy; failures every few hours.
fn setting(kind: Shape, profile: Profile) -> Input {
    let seed = SHAPES.iter().position(|&s| s == kind).unwrap() as u64;
    let mut rng = rng(seed + 40);
    let mut x = input(5, &shape(kind, 5, &mut rng), &[4]);
    x.cluster = cluster(8, 4, 4);
    x.cluster.workers.iter_mut().for_each(|w| w.failure = FailureRate::known(60.0 * 3600.0));
    x.cluster.domains.iter_mut().for_each(|d| d.failure = FailureRate::known(400.0 * 3600.0));
    x.cluster.coordinator = FailureRate::NEVER;
    // Late rows cost from next to nothing to more than all machines.
    x.prices.late_row = 10f64.powf(-6.0 + 0.9 * seed as f64);
    for (i, t) in x.tasks.iter_mut().enumerate() {
        let rho = rng.random_range(0.2..0.6);
        t.capacity_rows_per_s = t.rows_per_s / rho;
        t.peak_rows_per_s = if profile == Profile::Steady { t.rows_per_s } else { t.rows_per_s * 0.9 / rho.max(0.45) };
        t.state_bytes = if i % 2 == 0 { 5e6 } else { 10f64.powf(rng.random_range(8.0..9.3)) };
        t.dirty.first_touch_bytes_per_s = t.state_bytes * 0.001;
        t.snapshot_pause_s = 0.003;
        t.crash = FailureRate::known(300.0 * 3600.0);
    }
    x.sinks[0].deadline_s = 1.5;
    x.load = load(profile);
    x
}

/// Simulated cost per hour: running cost and priced late rows.
fn simulated(x: &Input, p: &Planned, years: f64) -> Estimate {
    let m = Model::new(x).unwrap();
    let s = System::new(&m, &p.plan, &p.modes).unwrap();
    let r = run(&s, &Mission { years, ..Mission::default() }).unwrap();
    let price = x.prices.late_row;
    Estimate {
        mean: p.cost.running_per_h + price * r.late_rows_per_h.mean,
        half_width: price * r.late_rows_per_h.half_width,
    }
}

#[test]
fn cost_is_never_beaten_by_a_fixed_policy_and_beats_each_somewhere() {
    let years = if cfg!(debug_assertions) { 0.3 } else { 3.0 };
    let fixed: Vec<(&str, Goal)> = vec![
        ("none", Goal::of(Strategy::None)),
        ("0.1 s", Goal { level: Some(0), ..Goal::of(Strategy::Checkpoint) }),
        ("0.8 s", Goal { level: Some(3), ..Goal::of(Strategy::Checkpoint) }),
        ("3.2 s", Goal { level: Some(5), ..Goal::of(Strategy::Checkpoint) }),
        ("active", Goal::of(Strategy::Active)),
    ];
    let mut most_won = vec![0.0f64; fixed.len()];
    println!("| shape | load | cost | {} |", fixed.iter().map(|f| f.0).collect::<Vec<_>>().join(" | "));
    for kind in SHAPES {
        for profile in [Profile::Steady, Profile::Diurnal, Profile::Burst] {
            let x = setting(kind, profile);
            let m = Model::new(&x).unwrap();
            let ours = plan(&m, &Goal::of(Strategy::Cost)).unwrap();
            let mine = simulated(&x, &ours, years);
            let mut line = format!("| {kind:?} | {profile:?} | {:.4} ± {:.4} |", mine.mean, mine.half_width);
            let mut best = Estimate { mean: f64::INFINITY, half_width: 0.0 };
            for (i, (_, goal)) in fixed.iter().enumerate() {
                // A policy that the machines cannot run is beaten by any that they can.
                let Ok(p) = plan(&m, goal) else {
                    line += " impossible |";
                    continue;
                };
                let theirs = simulated(&x, &p, years);
                line += &format!(" {:.4} |", theirs.mean);
                most_won[i] = most_won[i].max(1.0 - mine.mean / theirs.mean);
                if theirs.mean < best.mean {
                    best = theirs;
                }
            }
            println!("{line}");
            let noise = mine.half_width + best.half_width + 0.02 * best.mean;
            assert!(mine.mean <= best.mean + noise, "{kind:?} {profile:?}: {mine:?}, the best fixed policy {best:?}");
        }
    }
    println!("most won: {most_won:?}");
    assert!(most_won.iter().all(|w| *w >= 0.2), "{most_won:?}");
}

/// Two jobs, one replica: one job is always busy, the other only in bursts.
fn two_jobs(profile: Profile) -> Input {
    let mut x = input(4, &[edge(0, 1, 1000.0), edge(2, 3, 1000.0)], &[1]);
    x.sinks.push(super::testing::sink(&[3]));
    x.tasks[2].job = 1;
    x.tasks[3].job = 1;
    x.cluster = cluster(6, 3, 4);
    x.cluster.workers.iter_mut().for_each(|w| w.failure = FailureRate::known(60.0 * 3600.0));
    x.cluster.coordinator = FailureRate::NEVER;
    for (i, t) in x.tasks.iter_mut().enumerate() {
        t.crash = FailureRate::known(60.0 * 3600.0);
        t.state_bytes = if i % 2 == 0 { 0.0 } else { 3e8 };
        t.capacity_rows_per_s = if i < 2 { 1000.0 / 0.6 } else { 1000.0 / 0.45 };
        if i >= 2 && profile == Profile::Burst {
            t.peak_rows_per_s = 0.97 * t.capacity_rows_per_s;
        }
        t.worker = Some(i);
    }
    x.load = load(profile);
    x
}

#[test]
fn burst_beats_latency_in_bursts_and_equals_it_without() {
    let years = if cfg!(debug_assertions) { 0.5 } else { 5.0 };
    let lateness = |x: &Input, s: Strategy| {
        let m = Model::new(x).unwrap();
        let goal = Goal { replica_slots: Some(1), overhead: Some(0.05), ..Goal::of(s) };
        let p = plan(&m, &goal).unwrap();
        let sys = System::new(&m, &p.plan, &p.modes).unwrap();
        run(&sys, &Mission { years, ..Mission::default() }).unwrap().lateness_row_s_per_h
    };
    let x = two_jobs(Profile::Burst);
    let (latency, burst) = (lateness(&x, Strategy::Latency), lateness(&x, Strategy::Burst));
    println!("bursts: latency {latency:?}, burst {burst:?}");
    assert!(burst.mean < 0.9 * latency.mean, "{burst:?} {latency:?}");
    let x = two_jobs(Profile::Steady);
    let (latency, burst) = (lateness(&x, Strategy::Latency), lateness(&x, Strategy::Burst));
    println!("steady: latency {latency:?}, burst {burst:?}");
    assert!((burst.mean / latency.mean - 1.0).abs() < 0.02);
}
