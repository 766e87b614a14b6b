//! A lower bound on every plan, and good plans to start from: Lagrangian duality.
//!
//! A maximum is at least any weighted mean: max_v h_v ≥ Σ y_v h_v for weights y that add up to 1. With
//! the maxima replaced so, and budgets by prices, tasks are coupled by the order of their intervals
//! alone, which a minimum cut solves exactly. Its value is below that of every plan, whatever the
//! weights and prices; good ones bring it close. Weights move towards the tasks
//! that are the maximum (subgradient steps); prices are those at which the budget is just kept.

use super::monotone;
use super::problem::Problem;
use super::search::Totals;

/// What a relaxation says.
pub(super) struct Dual {
    /// No plan's objective is below this.
    pub bound: f64,
    /// Plans that obey the order of intervals, best relaxations first; budgets may be broken.
    pub starts: Vec<Vec<usize>>,
    /// Prices of the budgets at the best bound.
    pub prices: Totals,
}

#[derive(Clone, Copy, Default)]
struct PricesOf {
    replica: f64,
    overhead: f64,
    loss: f64,
}

/// `rounds` of improving weights and prices; `target` is the objective of some plan, if one is known.
pub(super) fn solve(p: &Problem, rounds: usize, target: Option<f64>) -> Dual {
    let mut weights: Vec<Vec<f64>> =
        p.cells.iter().map(|c| vec![1.0 / c.members.len() as f64; c.members.len()]).collect();
    let mut found: Vec<(f64, Vec<usize>)> = Vec::new();
    let mut loss = vec![0.0; p.tasks * p.labels];
    let mut best = (f64::NEG_INFINITY, weights.clone(), PricesOf::default());
    // How far a step goes; less when steps stop helping.
    let mut reach = 1.0;
    let mut stale = 0;
    for _ in 0..rounds {
        loss.copy_from_slice(&p.alone_least);
        for (cell, y) in p.cells.iter().zip(&weights) {
            for (&(v, table), &y) in cell.members.iter().zip(y).filter(|(_, y)| **y > 0.0) {
                for l in 0..p.labels {
                    loss[v * p.labels + l] += cell.per_h * y * p.tables[table + l];
                }
            }
        }
        let prices = prices(p, &loss);
        let (value, x) = ordered(p, &loss, prices);
        stale += 1;
        if value > best.0 + 1e-3 * (target.unwrap_or(value) - value).abs() {
            stale = 0;
        }
        if value > best.0 {
            best = (value, weights.clone(), prices);
        }
        if stale >= 4 {
            (reach, stale) = (reach / 2.0, 0);
            weights.clone_from(&best.1);
        }
        let goal = target.unwrap_or(value.abs() * 1.1).max(value);
        found.push((value, x));
        if p.cells.is_empty() || reach < 1e-2 || goal - best.0 <= 1e-6 * goal.abs() {
            break;
        }
        let x = &found[found.len() - 1].1;
        step(p, x, p.weights.1 + prices.loss, reach * (goal - value), &mut weights);
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.dedup_by(|a, b| a.1 == b.1);
    let q = best.2;
    let prices = Totals { running: 0.0, loss: q.loss, overhead: q.overhead, replicas: q.replica };
    Dual { bound: best.0, starts: found.into_iter().map(|f| f.1).collect(), prices }
}

/// A step of the weights up the slope, which is each member's loss, of Polyak's length: the missing
/// value over the squared slope; then back onto weights that add up to 1.
fn step(p: &Problem, x: &[usize], price: f64, missing: f64, weights: &mut [Vec<f64>]) {
    let slope = |cell: &super::problem::Cell, m: usize| {
        let (v, table) = cell.members[m];
        price * cell.per_h * p.tables[table + x[v]]
    };
    let mut square = 0.0;
    for (cell, y) in p.cells.iter().zip(weights.iter()) {
        // Only differences between members count, and only where weights can go down.
        let live: Vec<f64> = (0..y.len()).map(|m| slope(cell, m)).collect();
        let mean: f64 = live.iter().zip(y).map(|(g, y)| g * y).sum();
        square +=
            live.iter().zip(y).filter(|(g, y)| **y > 0.0 || **g > mean).map(|(g, _)| (g - mean).powi(2)).sum::<f64>();
    }
    if square <= 0.0 {
        return;
    }
    let length = missing / square;
    for (cell, y) in p.cells.iter().zip(weights) {
        for (m, y) in y.iter_mut().enumerate() {
            *y += length * slope(cell, m);
        }
        onto_simplex(y);
    }
}

/// The nearest point with parts of 0 or more that add up to 1: what is above one level, found by
/// sorting.
fn onto_simplex(y: &mut [f64]) {
    let mut sorted = y.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let (mut sum, mut level) = (0.0, 0.0);
    for (i, v) in sorted.iter().enumerate() {
        sum += v;
        let l = (sum - 1.0) / (i as f64 + 1.0);
        if *v > l {
            level = l;
        }
    }
    y.iter_mut().for_each(|v| *v = (*v - level).max(0.0));
    // After a long step the level is rounded; the sum must not be, for the bound rests on it.
    let sum: f64 = y.iter().sum();
    let even = 1.0 / y.len() as f64;
    y.iter_mut().for_each(|v| *v = if sum.is_finite() && sum > 0.0 { *v / sum } else { even });
}

impl PricesOf {
    fn cost(self, p: &Problem, loss: &[f64], i: usize) -> f64 {
        if !p.allowed[i] {
            return f64::INFINITY;
        }
        let active = i % p.labels % 2 == 1;
        p.weights.0 * p.running[i]
            + (p.weights.1 + self.loss) * loss[i]
            + self.overhead * p.overhead[i]
            + if active { self.replica } else { 0.0 }
    }
}

/// The cheapest label of a task at prices.
fn cheapest(p: &Problem, loss: &[f64], prices: PricesOf, v: usize) -> usize {
    let mut best = (f64::INFINITY, 0);
    // From the longest interval down, so that ties go to the least work.
    for l in (0..p.labels / 2).rev().flat_map(|k| [2 * k, 2 * k + 1]) {
        let c = prices.cost(p, loss, v * p.labels + l);
        if c < best.0 {
            best = (c, l);
        }
    }
    best.1
}

/// Prices at which budgets are just kept, the order of intervals left aside.
fn prices(p: &Problem, loss: &[f64]) -> PricesOf {
    let mut out = PricesOf::default();
    if p.caps.replicas.is_infinite() && p.caps.overhead_cores.is_infinite() && p.caps.loss.is_infinite() {
        return out;
    }
    let used = |prices: PricesOf, of: &[f64]| -> f64 {
        (0..p.tasks).map(|v| of[v * p.labels + cheapest(p, loss, prices, v)]).sum()
    };
    for _ in 0..2 {
        if p.caps.replicas.is_finite() {
            let free = PricesOf { replica: 0.0, ..out };
            let mut gains: Vec<f64> = (0..p.tasks)
                .map(|v| {
                    let best = |odd: usize| {
                        (odd..p.labels)
                            .step_by(2)
                            .map(|l| free.cost(p, loss, v * p.labels + l))
                            .fold(f64::INFINITY, f64::min)
                    };
                    let (without, with) = (best(0), best(1));
                    if with.is_finite() { without - with } else { f64::NEG_INFINITY }
                })
                .collect();
            gains.sort_by(|a, b| b.total_cmp(a));
            // Tasks that must have a replica gain infinitely; no finite price forbids that.
            let next = gains.get(p.caps.replicas as usize).copied().unwrap_or(0.0);
            out.replica = if next.is_finite() { next.max(0.0) } else { 0.0 };
        }
        if p.caps.overhead_cores.is_finite() {
            out.overhead = just_enough(p.caps.overhead_cores, |x| used(PricesOf { overhead: x, ..out }, &p.overhead));
        }
        if p.caps.loss.is_finite() {
            out.loss = just_enough(p.caps.loss - p.fixed_loss, |x| used(PricesOf { loss: x, ..out }, loss));
        }
    }
    out
}

/// The least price at which no more than `cap` is used; use falls as the price rises. A budget that
/// cannot be kept gets some great price.
fn just_enough(cap: f64, used: impl Fn(f64) -> f64) -> f64 {
    if used(0.0) <= cap {
        return 0.0;
    }
    let (mut low, mut high) = (0.0, 1e-6);
    while used(high) > cap {
        low = high;
        high *= 8.0;
        if high > 1e15 {
            return 0.0;
        }
    }
    for _ in 0..30 {
        let mid = f64::midpoint(low, high);
        if used(mid) > cap { low = mid } else { high = mid }
    }
    high
}

/// The cheapest labels at prices that obey the order of intervals, and a bound from them.
fn ordered(p: &Problem, loss: &[f64], prices: PricesOf) -> (f64, Vec<usize>) {
    let mut x: Vec<usize> = (0..p.tasks).map(|v| cheapest(p, loss, prices, v)).collect();
    let of = |v: usize, l: usize| prices.cost(p, loss, v * p.labels + l);
    let mut value = p.weights.1 * p.fixed_loss;
    for part in &p.parts {
        let free: f64 = part.tasks.iter().map(|&v| of(v, x[v])).sum();
        let broken = part.tasks.iter().any(|&v| p.down[v].iter().any(|&w| x[w] / 2 > x[v] / 2));
        let levels = p.labels / 2;
        let nodes = (part.tasks.len() + part.hubs) * (levels - 1);
        if !broken || nodes > monotone::MAX_CUT_NODES {
            value += free;
            continue;
        }
        let mut cost: Vec<Vec<f64>> =
            part.tasks.iter().map(|&v| (0..levels).map(|k| of(v, 2 * k).min(of(v, 2 * k + 1))).collect()).collect();
        cost.resize(part.tasks.len() + part.hubs, vec![0.0; levels]);
        let Some(level) = monotone::cheapest(&cost, &part.pairs) else {
            value = f64::INFINITY;
            continue;
        };
        let mut sum = 0.0;
        let mut top = 0.0f64;
        for (i, &v) in part.tasks.iter().enumerate() {
            let (a, b) = (2 * level[i], 2 * level[i] + 1);
            x[v] = if of(v, b) < of(v, a) { b } else { a };
            sum += of(v, x[v]);
            top = cost[i].iter().copied().filter(|c| c.is_finite()).fold(top, f64::max);
        }
        // The cut rounds each cost to 2⁻⁴⁰ of the greatest.
        value += (sum - top * part.tasks.len() as f64 * 2f64.powi(-39)).max(free);
    }
    let kept = |price: f64, cap: f64| if price > 0.0 { price * cap } else { 0.0 };
    value -= kept(prices.replica, p.caps.replicas)
        + kept(prices.overhead, p.caps.overhead_cores)
        + kept(prices.loss, p.caps.loss - p.fixed_loss);
    (value, x)
}

/// Lowers levels until no task's is above that of a producer; where that level is not allowed,
/// the next lower one that is.
pub(super) fn repair(p: &Problem, order: &[usize], x: &mut [usize]) {
    for &v in order {
        let most = p.up[v].iter().map(|&u| x[u] / 2).min().unwrap_or(usize::MAX);
        if x[v] / 2 > most {
            let active = x[v] % 2;
            let allowed = |l: &usize| p.allowed[v * p.labels + l];
            let lower = (0..=most).rev().flat_map(|k| [2 * k + active, 2 * k + 1 - active]).find(allowed);
            x[v] = lower.unwrap_or(2 * most + active);
        }
    }
}
