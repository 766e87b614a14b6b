//! Where tasks and replicas run.
//!
//! Tasks that die together cost their maximum, tasks that die apart their sum: so a job is packed onto
//! few reliable workers of one domain, and replicas stand in another. Packing leaves whole workers free,
//! on which what dies can restart.

use std::collections::{BTreeMap, BTreeSet};

use super::super::error::{FaultError, Result};
use super::super::model::Model;
use super::problem::Refuge;

/// Free slots of every worker.
pub(super) fn free_slots(model: &Model, primary: &[usize]) -> Vec<usize> {
    let mut free: Vec<usize> = model.input.cluster.workers.iter().map(|w| w.slots).collect();
    for &w in primary {
        free[w] = free[w].saturating_sub(1);
    }
    free
}

/// Placements worth trying: as given, or packed and spread. Tasks that have a worker keep it.
pub(super) fn candidates(model: &Model) -> Result<Vec<Vec<usize>>> {
    let (tasks, c) = (&model.input.tasks, &model.input.cluster);
    let slots: usize = c.workers.iter().map(|w| w.slots).sum();
    if slots < tasks.len() {
        return Err(FaultError::cannot_meet(
            "a placement",
            format!("{} tasks need a slot each and all workers together have {slots}", tasks.len()),
            "add workers or lower the parallelism",
        ));
    }
    let mut free: Vec<usize> = c.workers.iter().map(|w| w.slots).collect();
    for t in tasks {
        if let Some(w) = t.worker {
            free[w] = free[w].checked_sub(1).ok_or_else(|| {
                FaultError::invalid(format!("worker \"{}\" has fewer slots than tasks", c.workers[w].name))
            })?;
        }
    }
    if tasks.iter().all(|t| t.worker.is_some()) {
        return Ok(vec![tasks.iter().filter_map(|t| t.worker).collect()]);
    }
    // Reliable domains first, reliable workers first within them.
    let mut workers: Vec<usize> = (0..c.workers.len()).collect();
    let domain_rate = |w: usize| c.domains[c.workers[w].domain].failure.mean_per_s();
    workers.sort_by(|&a, &b| {
        domain_rate(a)
            .total_cmp(&domain_rate(b))
            .then(c.workers[a].domain.cmp(&c.workers[b].domain))
            .then(c.workers[a].failure.mean_per_s().total_cmp(&c.workers[b].failure.mean_per_s()))
            .then(a.cmp(&b))
    });
    let free_before = free.clone();
    let packed = packed(model, &workers, free.clone());
    let spread = spread(model, &workers, free);
    let mut out = vec![packed, spread];
    if tasks.len() <= 16 && workers.len() <= 16 {
        // Few enough to start packing on each worker in turn.
        for i in 1..workers.len() {
            let mut order = workers.clone();
            order.swap(0, i);
            out.push(self::packed(model, &order, free_before.clone()));
        }
    }
    out.sort();
    out.dedup();
    Ok(out)
}

/// Job by job, each onto the fewest workers: a job starts on a new worker if the rest of this one
/// would split it and a whole one would not.
fn packed(model: &Model, workers: &[usize], mut free: Vec<usize>) -> Vec<usize> {
    let tasks = &model.input.tasks;
    let mut jobs: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for &v in &model.order {
        if tasks[v].worker.is_none() {
            jobs.entry(tasks[v].job).or_default().push(v);
        }
    }
    let mut jobs: Vec<Vec<usize>> = jobs.into_values().collect();
    jobs.sort_by_key(|j| std::cmp::Reverse(j.len()));
    let mut primary: Vec<usize> = tasks.iter().map(|t| t.worker.unwrap_or(usize::MAX)).collect();
    // Workers before this place are full.
    let mut first = 0;
    for job in jobs {
        while first < workers.len() && free[workers[first]] == 0 {
            first += 1;
        }
        let whole = workers[first..].iter().take(256).copied().find(|&w| free[w] >= job.len());
        let mut at = first;
        for v in job {
            let w = whole.unwrap_or_else(|| {
                while free[workers[at]] == 0 {
                    at += 1;
                }
                workers[at]
            });
            primary[v] = w;
            free[w] -= 1;
        }
    }
    primary
}

/// In turn over all workers.
fn spread(model: &Model, workers: &[usize], mut free: Vec<usize>) -> Vec<usize> {
    let tasks = &model.input.tasks;
    let mut primary: Vec<usize> = tasks.iter().map(|t| t.worker.unwrap_or(usize::MAX)).collect();
    let mut at = 0;
    for &v in model.order.iter().filter(|&&v| tasks[v].worker.is_none()) {
        while free[workers[at % workers.len()]] == 0 {
            at += 1;
        }
        primary[v] = workers[at % workers.len()];
        free[primary[v]] -= 1;
        at += 1;
    }
    primary
}

/// Where replicas could stand, given free slots.
pub(super) fn refuges(model: &Model, primary: &[usize], free: &[usize]) -> Vec<Refuge> {
    let c = &model.input.cluster;
    let mut in_domain = vec![0usize; c.domains.len()];
    for (w, &f) in free.iter().enumerate() {
        in_domain[c.workers[w].domain] += f;
    }
    let all: usize = in_domain.iter().sum();
    primary
        .iter()
        .map(|&w| {
            let d = c.workers[w].domain;
            if all > in_domain[d] {
                Refuge::OtherDomain
            } else if in_domain[d] > free[w] {
                Refuge::SameDomain
            } else {
                Refuge::Nowhere
            }
        })
        .collect()
}

/// Workers for replicas: another domain where that was planned, the most reliable worker there; where
/// that leaves somebody without a slot, the emptiest. `Err` lists tasks for whose replica no slot is left.
pub(super) fn replicas(
    model: &Model,
    primary: &[usize],
    active: &[bool],
    refuge: &[Refuge],
) -> std::result::Result<Vec<Option<usize>>, Vec<usize>> {
    replicas_by(model, primary, active, refuge, true).or_else(|_| replicas_by(model, primary, active, refuge, false))
}

/// Tasks of the domain with most replicas choose first, since they have the least choice.
fn replicas_by(
    model: &Model,
    primary: &[usize],
    active: &[bool],
    refuge: &[Refuge],
    reliable: bool,
) -> std::result::Result<Vec<Option<usize>>, Vec<usize>> {
    let c = &model.input.cluster;
    let mut free = free_slots(model, primary);
    // Per domain: free slots, and its workers, the most reliable or the emptiest first.
    let mut total = vec![0usize; c.domains.len()];
    let mut by_free: Vec<BTreeSet<(u64, std::cmp::Reverse<usize>, usize)>> = vec![BTreeSet::new(); c.domains.len()];
    let rate = |w: usize| {
        // Positive numbers are ordered as their bits are.
        let per_s = c.workers[w].failure.mean_per_s() + c.domains[c.workers[w].domain].failure.mean_per_s();
        if reliable { per_s.to_bits() } else { 0 }
    };
    let key = |w: usize, free: usize| (rate(w), std::cmp::Reverse(free), w);
    for (w, worker) in c.workers.iter().enumerate().filter(|(w, _)| free[*w] > 0) {
        total[worker.domain] += free[w];
        by_free[worker.domain].insert(key(w, free[w]));
    }
    let mut wanted: Vec<usize> = (0..primary.len()).filter(|&v| active[v]).collect();
    let mut count = vec![0usize; c.domains.len()];
    for &v in &wanted {
        count[c.workers[primary[v]].domain] += 1;
    }
    wanted.sort_by_key(|&v| (std::cmp::Reverse(count[c.workers[primary[v]].domain]), v));
    let mut out = vec![None; primary.len()];
    let mut homeless = Vec::new();
    for v in wanted {
        let own = c.workers[primary[v]].domain;
        let apart = refuge[v] == Refuge::OtherDomain;
        let domain = (0..total.len())
            .filter(|&d| total[d] > 0 && (d != own) == apart)
            .min_by_key(|&d| (by_free[d].first().map(|k| k.0), std::cmp::Reverse(total[d]), d));
        let pick = domain.and_then(|d| by_free[d].iter().map(|k| k.2).find(|&w| w != primary[v]));
        let Some(w) = pick else {
            homeless.push(v);
            continue;
        };
        let d = c.workers[w].domain;
        by_free[d].remove(&key(w, free[w]));
        free[w] -= 1;
        total[d] -= 1;
        if free[w] > 0 {
            by_free[d].insert(key(w, free[w]));
        }
        out[v] = Some(w);
    }
    if homeless.is_empty() { Ok(out) } else { Err(homeless) }
}
