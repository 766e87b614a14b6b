//! The optimizer against trying everything, and what must hold of its plans.

use rand::Rng;
use rand::rngs::SmallRng;

use super::*;
use crate::fault::graph::{FailureRate, Input};
use crate::fault::testing::{self, SHAPES, burst_load, cluster, edge, input, random_input, rng, rounds};

/// Every plan of a small input with its cost, under given placements of the primaries; replicas on
/// every worker there is.
fn everything(model: &Model, primaries: &[Vec<usize>], when: When) -> Vec<(Plan, Cost)> {
    let n = model.input.tasks.len();
    let workers = model.input.cluster.workers.len();
    let mut out = Vec::new();
    for primary in primaries {
        // Per task: a choice and a worker for the replica.
        let options: Vec<Vec<(Choice, Option<usize>)>> = (0..n)
            .map(|v| {
                let mut o = Vec::new();
                for c in model.choices(v) {
                    // A stateless task's level costs nothing; its consumers' must fit, so try all.
                    if c.active {
                        o.extend((0..workers).filter(|&w| w != primary[v]).map(|w| (c, Some(w))));
                    } else {
                        o.push((c, None));
                    }
                }
                o
            })
            .collect();
        let mut at = vec![0; n];
        'plans: loop {
            let picked: Vec<_> = at.iter().zip(&options).map(|(&i, o)| o[i]).collect();
            let ordered = model.input.edges.iter().all(|e| picked[e.to].0.level <= picked[e.from].0.level);
            if ordered {
                let plan = Plan {
                    placement: Placement { primary: primary.clone(), replica: picked.iter().map(|p| p.1).collect() },
                    choices: picked.iter().map(|p| p.0).collect(),
                };
                if let Ok((cost, _)) = shock::evaluate(model, &plan, when) {
                    out.push((plan, cost));
                }
            }
            for v in 0..=n {
                if v == n {
                    break 'plans;
                }
                at[v] += 1;
                if at[v] < options[v].len() {
                    break;
                }
                at[v] = 0;
            }
        }
    }
    out
}

fn keeps_slo(model: &Model, plan: &Plan, slo: Slo) -> bool {
    let level = model.input.mean_level();
    shock::shocks(model, &plan.placement.primary).iter().all(|s| {
        s.killed.iter().all(|&v| {
            let hit = s.hit(model, plan.placement.replica[v]);
            let x = model.delay(v, plan.choices[v], hit, s.stress, level).quantile_s(slo.confidence);
            model.reach[v].iter().all(|r| {
                let rho = model.path_rho(v, r, plan.choices[v], level);
                let x = (x - r.buffer_s).max(0.0);
                let o =
                    crate::fault::fluid::outage_in_burst_s(x, rho * s.stress.load, model.input.cluster.repair_s, rho);
                o.unwrap() <= slo.recovery_s
            })
        })
    })
}

/// Goals of all kinds whose budgets lie somewhere between what is possible and what is not.
fn goals(all: &[(Plan, Cost)], model: &Model, rng: &mut SmallRng) -> Vec<Goal> {
    let between = |f: &dyn Fn(&Cost) -> f64, rng: &mut SmallRng| {
        let mut x: Vec<f64> = all.iter().map(|p| f(&p.1)).collect();
        x.sort_by(f64::total_cmp);
        x[rng.random_range(0..x.len())]
    };
    let cores: f64 = model.input.tasks.iter().map(|t| t.cores).sum();
    let mut out = vec![Goal::of(Strategy::Cost)];
    let mut g = Goal::of(Strategy::Latency);
    g.replica_slots = Some(rng.random_range(0..3));
    if rng.random_bool(0.5) {
        g.overhead = Some((between(&|c| c.overhead_cores, rng) / cores * 1.000_001).min(1.0));
    }
    out.push(g);
    let mut g = Goal::of(Strategy::Cost);
    match rng.random_range(0..3) {
        0 => g.loss_budget_rows_per_h = Some(between(&|c| c.late_rows_per_h, rng) * rng.random_range(0.7..1.3)),
        1 => {
            g.slo = Some(Slo {
                recovery_s: 10f64.powf(rng.random_range(-0.5..2.0)),
                confidence: rng.random_range(0.5..1.0),
            })
        }
        _ => {
            g.strategy = Strategy::Burst;
            g.replica_slots = Some(rng.random_range(0..3));
        }
    }
    out.push(g);
    out
}

struct Tally {
    checked: usize,
    impossible: usize,
    worst: f64,
    mean: f64,
    gap: f64,
}

/// Compares plan and bound with the best of all plans for a goal.
fn compare(model: &Model, goal: &Goal, all: &[(Plan, Cost)], on_placement: bool, tally: &mut Tally, what: &str) {
    let fits =
        |p: &&(Plan, Cost)| within_budgets(model, goal, &p.1) && goal.slo.is_none_or(|slo| keeps_slo(model, &p.0, slo));
    let best = all.iter().filter(fits).map(|p| objective(model, goal, &p.1)).fold(f64::INFINITY, f64::min);
    match plan(model, goal) {
        Err(e) => {
            assert!(best.is_infinite(), "{what}: {goal:?}: {e}, but {best} is possible");
            assert!(matches!(e, FaultError::CannotMeet { .. }), "{what}: {e}");
            tally.impossible += 1;
        }
        Ok(got) => {
            assert!(best.is_finite(), "{what}: {goal:?}: a plan where none is possible");
            let (cost, _) = shock::evaluate(model, &got.plan, goal.when()).unwrap();
            let value = objective(model, goal, &cost);
            assert!((value - got.objective).abs() <= 1e-9 * value.abs());
            assert!(within_budgets(model, goal, &cost), "{what}: {goal:?}: {cost:?}");
            assert!(goal.slo.is_none_or(|slo| keeps_slo(model, &got.plan, slo)), "{what}");
            let bound = if on_placement { got.bound } else { got.placement_bound };
            assert!(bound <= best * (1.0 + 1e-9) + 1e-12, "{what}: {goal:?}: bound {bound} above the best {best}");
            let above = if best > 0.0 { value / best - 1.0 } else { value };
            assert!(
                above <= 0.01,
                "{what}: {goal:?}: {value} where {best} is possible ({:.2}% more)\n{:?}",
                above * 100.0,
                got.plan
            );
            tally.checked += 1;
            tally.worst = tally.worst.max(above);
            tally.mean += above;
            tally.gap += share_above(got.objective, bound);
        }
    }
}

fn report(t: &Tally, what: &str) {
    let n = t.checked as f64;
    println!(
        "{what}: {} plans, {} impossible goals; above the best: worst {:.4}%, mean {:.5}%; mean reported gap {:.3}%",
        t.checked,
        t.impossible,
        t.worst * 100.0,
        t.mean / n * 100.0,
        t.gap / n * 100.0
    );
}

fn tally() -> Tally {
    Tally { checked: 0, impossible: 0, worst: 0.0, mean: 0.0, gap: 0.0 }
}

/// A random input with 2 to 4 tasks, and random workers for them.
fn placed(seed: u64) -> (Input, Vec<usize>) {
    let mut rng = rng(seed);
    let shape = SHAPES[seed as usize % SHAPES.len()];
    let n = rng.random_range(2..=4);
    let (workers, domains) = [(2, 1), (2, 2), (3, 1), (3, 2), (3, 3)][rng.random_range(0..5)];
    let mut x = random_input(shape, n, workers, domains, &mut rng);
    x.cluster.global_level = if n == 4 { 1 } else { 2 };
    if seed.is_multiple_of(3) {
        x.load = burst_load();
    }
    let primary: Vec<usize> = loop {
        let p: Vec<usize> = (0..n).map(|_| rng.random_range(0..workers)).collect();
        if (0..workers).all(|w| p.iter().filter(|&&x| x == w).count() <= x.cluster.workers[w].slots) {
            break p;
        }
    };
    for (t, &w) in x.tasks.iter_mut().zip(&primary) {
        t.worker = Some(w);
    }
    (x, primary)
}

#[test]
fn is_within_one_percent_of_trying_everything_on_a_thousand_inputs() {
    let mut t = tally();
    let mut inputs = 0u64;
    for seed in 0..rounds(1100) {
        let (x, primary) = placed(seed);
        let Ok(model) = Model::new(&x) else { continue };
        if (0..x.tasks.len()).any(|v| model.choices(v).is_empty()) {
            let e = plan(&model, &Goal::of(Strategy::Cost)).unwrap_err();
            assert!(matches!(e, FaultError::CannotMeet { .. }));
            continue;
        }
        inputs += 1;
        let all = everything(&model, std::slice::from_ref(&primary), When::Mean);
        let mut rng = rng(seed + 1_000_000);
        for goal in goals(&all, &model, &mut rng) {
            let burst;
            let all = if goal.when() == When::Mean {
                &all
            } else {
                burst = everything(&model, std::slice::from_ref(&primary), goal.when());
                &burst
            };
            compare(&model, &goal, all, true, &mut t, &format!("seed {seed}"));
        }
    }
    report(&t, &format!("{inputs} inputs, placement given"));
    assert!(inputs >= rounds(1000) && t.checked as u64 >= rounds(2000) && t.impossible as u64 >= rounds(100));
}

#[test]
fn places_tasks_as_well_as_trying_everything() {
    let mut t = tally();
    for seed in 0..150 {
        let (mut x, _) = placed(seed);
        if x.tasks.len() > 3 {
            continue;
        }
        x.cluster.global_level = 1;
        x.load.clear();
        for task in &mut x.tasks {
            task.worker = None;
        }
        if seed % 2 == 0 {
            x.cluster.workers.iter_mut().for_each(|w| w.slots = 2);
        }
        let Ok(model) = Model::new(&x) else { continue };
        if (0..x.tasks.len()).any(|v| model.choices(v).is_empty()) {
            continue;
        }
        let workers = x.cluster.workers.len();
        let n = x.tasks.len();
        let primaries: Vec<Vec<usize>> =
            (0..workers.pow(n as u32)).map(|i| (0..n).map(|v| i / workers.pow(v as u32) % workers).collect()).collect();
        let all = everything(&model, &primaries, When::Mean);
        if all.is_empty() {
            assert!(plan(&model, &Goal::of(Strategy::Cost)).is_err());
            continue;
        }
        let mut rng = rng(seed + 1_000_000);
        for goal in goals(&all, &model, &mut rng).into_iter().filter(|g| g.strategy != Strategy::Burst) {
            compare(&model, &goal, &all, false, &mut t, &format!("seed {seed}"));
        }
    }
    report(&t, "placement free");
    assert!(t.checked > 200);
}

/// Many jobs on many machines: `jobs` × `fragments` × `parallel` tasks.
pub(super) fn large(jobs: usize, fragments: usize, parallel: usize, workers: usize, seed: u64) -> Input {
    let mut rng = rng(seed);
    let mut x = input(1, &[], &[0]);
    let model_task = x.tasks.remove(0);
    x.sinks.clear();
    for j in 0..jobs {
        let first = x.tasks.len();
        let state: f64 = 10f64.powf(rng.random_range(6.0..9.0));
        for f in 0..fragments {
            let rho: f64 = rng.random_range(0.1..0.8);
            let stateless = rng.random_bool(0.3);
            for i in 0..parallel {
                let mut t = model_task.clone();
                t.name = format!("j{j}.f{f}.{i}");
                t.job = j;
                t.state_bytes = if stateless { 0.0 } else { state * rng.random_range(0.5..2.0) };
                t.capacity_rows_per_s = t.rows_per_s / rho;
                t.dirty.first_touch_bytes_per_s = t.state_bytes * 0.003;
                x.tasks.push(t);
                if f > 0 {
                    let before = first + (f - 1) * parallel;
                    for k in 0..parallel {
                        x.edges.push(edge(before + k, first + f * parallel + i, 1000.0 / parallel as f64));
                    }
                }
            }
        }
        let last = first + (fragments - 1) * parallel;
        let mut s = testing::sink(&(last..last + parallel).collect::<Vec<_>>());
        s.name = format!("out{j}");
        s.deadline_s = 0.2 + 10f64.powf(rng.random_range(-0.5..1.0));
        s.rows_per_s = 1000.0 * parallel as f64;
        x.sinks.push(s);
    }
    let per_worker = x.tasks.len().div_ceil(workers) + 4;
    x.cluster = cluster(workers, workers.div_ceil(20).max(2), per_worker);
    x.prices.late_row = 1e-5;
    x
}

#[test]
fn large_inputs_are_planned_with_a_small_gap() {
    for (jobs, workers) in [(1, 12), (4, 40)] {
        let x = large(jobs, 10, 10, workers, 7);
        let model = Model::new(&x).unwrap();
        for strategy in [Strategy::Cost, Strategy::Latency] {
            let mut goal = Goal::of(strategy);
            if strategy == Strategy::Latency {
                goal.replica_slots = Some(10 * jobs);
                goal.overhead = Some(0.02);
            }
            let p = plan(&model, &goal).unwrap();
            println!("{} tasks, {strategy:?}: gap {:.3}%", x.tasks.len(), p.gap() * 100.0);
            assert!(p.gap() < if strategy == Strategy::Cost { 0.05 } else { 0.25 }, "{strategy:?} {}", p.gap());
        }
    }
}

#[test]
fn more_budget_never_raises_loss() {
    for seed in 0..rounds(120) {
        let (mut x, _) = placed(seed);
        x.load.clear();
        let Ok(model) = Model::new(&x) else { continue };
        let mut last = f64::INFINITY;
        for k in 0..4 {
            let goal = Goal { replica_slots: Some(k), ..Goal::of(Strategy::Latency) };
            let p = plan(&model, &goal).unwrap();
            // What serves as a tie-breaker may shift by as much.
            assert!(p.objective <= last * (1.0 + 1e-9), "seed {seed}: {} after {last}", p.objective);
            last = p.objective;
        }
        let mut last = f64::INFINITY;
        for overhead in [0.001, 0.003, 0.01, 0.03, 0.1, 0.3] {
            let goal = Goal { replica_slots: Some(0), overhead: Some(overhead), ..Goal::of(Strategy::Latency) };
            if let Ok(p) = plan(&model, &goal) {
                assert!(p.objective <= last * (1.0 + 1e-9), "seed {seed}: {} after {last}", p.objective);
                last = p.objective;
            } else {
                assert!(last.is_infinite(), "seed {seed}: no plan for more budget");
            }
        }
    }
}

/// How strongly a task is protected: its worst delay, all shocks alike.
fn exposure(model: &Model, plan: &Plan, v: usize) -> f64 {
    let hit = if plan.choices[v].active { super::super::model::Hit::Primary } else { super::super::model::Hit::All };
    model.delay(v, plan.choices[v], hit, super::super::model::Stress::NONE, 0.0).high_s
}

#[test]
fn dearer_failures_never_weaken_protection() {
    // One task: more failures or more weight make each second of outage dearer at the same price of
    // protection. (More state makes protection dearer too; then the loss must not fall.)
    for seed in 0..rounds(300) {
        let mut rng = rng(seed);
        let mut x = random_input(testing::Shape::Chain, 2, 3, 3, &mut rng);
        x.tasks.iter_mut().for_each(|t| (t.worker, t.common_cause) = (Some(0), 0.0));
        let Ok(model) = Model::new(&x) else { continue };
        let goal = Goal::of(Strategy::Cost);
        let before = plan(&model, &goal).unwrap();
        let mut dearer = x.clone();
        match seed % 3 {
            0 => dearer.sinks[0].weight *= 3.0,
            1 => {
                let faster = |f: &mut FailureRate| f.alpha *= 3.0;
                dearer.cluster.workers.iter_mut().for_each(|w| faster(&mut w.failure));
                dearer.cluster.domains.iter_mut().for_each(|d| faster(&mut d.failure));
                dearer.tasks.iter_mut().for_each(|t| faster(&mut t.crash));
            }
            _ => dearer.prices.late_row *= 3.0,
        }
        let model2 = Model::new(&dearer).unwrap();
        let after = plan(&model2, &goal).unwrap();
        // The whole plan's loss, at the old prices, must not rise: exact solutions of
        // min run + k·loss have a loss that falls in k.
        let loss = |p: &Plan| shock::evaluate(&model, p, When::Mean).unwrap().0.late_rows_per_h;
        assert!(
            loss(&after.plan) <= loss(&before.plan) * (1.0 + 1e-6) + 1e-9,
            "seed {seed}: {:?} became {:?}",
            before.plan.choices,
            after.plan.choices
        );
    }
}

#[test]
fn more_state_rate_or_failures_never_weaken_protection_at_the_same_budget() {
    for seed in 0..rounds(200) {
        let mut rng = rng(seed);
        // A busier task makes failures of its producers dearer, too; where such a producer shares a
        // worker with a third task, that may rightly win it the replica. So there: a worker for each.
        let workers = if seed % 3 == 2 { 4 } else { 3 };
        let mut x = random_input(testing::SHAPES[seed as usize % 5], 4, workers, workers, &mut rng);
        for t in &mut x.tasks {
            // Alike, so that only what changes decides.
            t.state_bytes = 1e8;
            t.replicable = true;
            t.common_cause = 0.0;
            t.capacity_rows_per_s = t.rows_per_s * 2.0;
            t.peak_rows_per_s = t.rows_per_s;
            t.crash = FailureRate::known(1e6);
        }
        x.tasks.iter_mut().enumerate().for_each(|(i, t)| t.worker = Some(i % workers));
        let v = rng.random_range(0..4);
        let goal = Goal { replica_slots: Some(1), overhead: Some(1.0), ..Goal::of(Strategy::Latency) };
        let model = Model::new(&x).unwrap();
        let before = plan(&model, &goal).unwrap();
        if !before.plan.choices[v].active {
            continue;
        }
        // Who has the only replica keeps it when a failure of it becomes worse.
        let mut worse = x.clone();
        match seed % 3 {
            0 => worse.tasks[v].state_bytes *= 4.0,
            1 => worse.tasks[v].crash.alpha *= 4.0,
            _ => {
                worse.tasks[v].rows_per_s *= 1.5;
                worse.tasks[v].peak_rows_per_s *= 1.5;
            }
        }
        let model = Model::new(&worse).unwrap();
        let after = plan(&model, &goal).unwrap();
        assert!(after.plan.choices[v].active, "seed {seed}: {:?}", after.plan.choices);
        assert!(exposure(&model, &after.plan, v) <= exposure(&model, &before.plan, v) + 1e-9, "seed {seed}");
    }
}

#[test]
fn says_what_cannot_be_met_and_why() {
    let mut x = input(2, &[edge(0, 1, 1000.0)], &[1]);
    x.tasks[1].replicable = false;
    x.tasks[1].state_bytes = 1e10;
    let slo = Goal { slo: Some(Slo { recovery_s: 2.0, confidence: 0.99 }), ..Goal::of(Strategy::Latency) };
    let error = |x: &Input, g: &Goal| plan(&Model::new(x).unwrap(), g).unwrap_err().to_string();
    let e = error(&x, &slo);
    assert!(e.contains("recovery_slo = 2 s") && e.contains("\"t1\"") && e.contains("allow a replica"), "{e}");
    // With a replica it can.
    x.tasks[1].replicable = true;
    let p = plan(&Model::new(&x).unwrap(), &slo).unwrap();
    assert!(p.plan.choices[1].active);
    // One worker and no spare: nothing can restart.
    let mut one = x.clone();
    one.cluster = cluster(1, 1, 4);
    let e = error(&one, &slo);
    assert!(e.contains("add a worker"), "{e}");
    let none = Goal { loss_budget_rows_per_h: Some(0.0), ..Goal::of(Strategy::Cost) };
    let e = error(&x, &none);
    assert!(e.contains("fault.loss_budget = 0 rows/h"), "{e}");
    let none = Goal { overhead: Some(0.0), ..Goal::of(Strategy::Latency) };
    let e = error(&x, &none);
    assert!(e.contains("fault.overhead = 0"), "{e}");
    let none = Goal { replica_slots: Some(0), ..slo.clone() };
    let e = error(&x, &none);
    assert!(e.contains("replica"), "{e}");
    let mut small = x.clone();
    small.cluster = cluster(1, 1, 1);
    let e = error(&small, &Goal::of(Strategy::Cost));
    assert!(e.contains("need a slot each"), "{e}");
    let bad = Goal { overhead: Some(f64::NAN), ..Goal::default() };
    assert!(matches!(plan(&Model::new(&x).unwrap(), &bad), Err(FaultError::Invalid { .. })));
}

#[test]
fn fixed_policies_are_what_they_say() {
    let x = input(3, &[edge(0, 1, 1000.0), edge(1, 2, 1000.0)], &[2]);
    let m = Model::new(&x).unwrap();
    let all = |s: Strategy, level: Option<u8>| plan(&m, &Goal { level, ..Goal::of(s) }).unwrap().plan.choices;
    assert_eq!(all(Strategy::None, None), vec![Choice::checkpoint(6); 3]);
    assert_eq!(all(Strategy::Checkpoint, Some(2)), vec![Choice::checkpoint(2); 3]);
    assert_eq!(all(Strategy::Active, None), vec![Choice::active(6); 3]);
    // The gap of a fixed policy is what the strategy `cost` would save at most.
    let (cost, active) = (plan(&m, &Goal::of(Strategy::Cost)).unwrap(), plan(&m, &Goal::of(Strategy::Active)).unwrap());
    assert!(cost.objective < active.objective && active.bound <= cost.objective * (1.0 + 1e-9));
    assert!(active.gap() > 0.0);
    assert!(plan(&m, &Goal { level: Some(9), ..Goal::of(Strategy::Checkpoint) }).is_err());
}

#[test]
fn burst_modes_shed_snapshots_near_capacity() {
    let mut x = input(2, &[edge(0, 1, 1000.0)], &[1]);
    for t in &mut x.tasks {
        t.peak_rows_per_s = 1850.0;
        t.snapshot_pause_s = 0.02;
        t.replicable = false;
    }
    x.load = burst_load();
    let m = Model::new(&x).unwrap();
    let goal = Goal::of(Strategy::Burst);
    let p = plan(&m, &goal).unwrap();
    assert_eq!(p.modes.len(), 2);
    let level = |mode: usize| p.modes[mode].choices[1].level;
    assert!(level(1) > level(0), "{:?}", p.modes);
    // A flat load has no modes.
    x.load.clear();
    assert!(plan(&Model::new(&x).unwrap(), &goal).unwrap().modes.is_empty());
}

#[test]
fn small_changes_do_not_move_a_plan_and_great_ones_do() {
    let mut x = large(1, 4, 4, 8, 3);
    let goal = Goal::of(Strategy::Cost);
    let first = plan(&Model::new(&x).unwrap(), &goal).unwrap();
    for (t, &w) in x.tasks.iter_mut().zip(&first.plan.placement.primary) {
        t.worker = Some(w);
    }
    let sw = Switching::default();
    let mut current = first.plan.clone();
    let mut moved = 0;
    for step in 0..20 {
        // Noise of 3% on every rate.
        let mut y = x.clone();
        let mut rng = rng(step);
        for t in &mut y.tasks {
            t.rows_per_s *= rng.random_range(0.97..1.03);
            t.peak_rows_per_s = t.rows_per_s;
        }
        let m = Model::new(&y).unwrap();
        let (p, changes) = replan(&m, &goal, &current, &sw).unwrap();
        moved += changes.len();
        current = p.plan;
    }
    assert!(moved <= 2, "{moved} changes for noise");
    // Ten times the failures, and late rows a hundred times as dear: protection pays.
    let mut y = x.clone();
    y.prices.late_row *= 100.0;
    y.cluster.workers.iter_mut().for_each(|w| w.failure = FailureRate::known(86_400.0));
    let m = Model::new(&y).unwrap();
    let (p, changes) = replan(&m, &goal, &current, &sw).unwrap();
    assert!(!changes.is_empty());
    let stay = shock::evaluate(&m, &current, When::Mean).unwrap().0;
    assert!(p.objective < objective(&m, &goal, &stay));
    // Nothing pays within a second.
    let hasty = Switching { dwell_s: 1.0, ..sw };
    let (_, few) = replan(&m, &goal, &current, &hasty).unwrap();
    assert!(few.len() <= changes.len());
}

#[test]
fn the_same_input_gives_the_same_plan() {
    let x = large(2, 5, 4, 12, 1);
    let m = Model::new(&x).unwrap();
    let goal = Goal { replica_slots: Some(5), ..Goal::of(Strategy::Latency) };
    assert_eq!(plan(&m, &goal).unwrap(), plan(&m, &goal).unwrap());
}

#[test]
#[ignore = "times a release build: cargo test --release -- --ignored planning_time"]
#[allow(clippy::disallowed_methods)]
fn planning_time() {
    // The best of several runs: other work on the machine only ever makes one slower.
    for (jobs, workers, runs, most_s) in [(1, 12, 40, 0.005), (100, 1000, 5, 1.0)] {
        let x = large(jobs, 10, 10, workers, 7);
        for strategy in [Strategy::Cost, Strategy::Latency, Strategy::Burst] {
            let mut goal = Goal::of(strategy);
            if strategy != Strategy::Cost {
                goal.replica_slots = Some(10 * jobs);
                goal.overhead = Some(0.02);
            }
            let mut best = f64::INFINITY;
            let mut gap = 0.0;
            for _ in 0..runs {
                let start = std::time::Instant::now();
                let m = Model::new(&x).unwrap();
                gap = plan(&m, &goal).unwrap().gap();
                best = best.min(start.elapsed().as_secs_f64());
            }
            let n = x.tasks.len();
            println!("{n} tasks, {workers} workers, {strategy:?}: {:.1} ms, gap {:.3}%", best * 1e3, gap * 100.0);
            assert!(best < most_s, "{strategy:?}: {best} s");
        }
    }
}
