//! Which sinks the failure of a task holds up, how soon, and how busy the way there is.

use std::collections::BTreeMap;

use super::error::Result;
use super::fidelity;
use super::graph::{Delivery, Input};
use super::model::Reach;

/// The sinks of every task, by sink.
///
/// Downstream a stall is noticed at once. The other sinks of its job notice once the epochs in flight
/// are used up; producers in other jobs once the log between is full, and so their sinks after that.
pub(super) fn reach(input: &Input, order: &[usize]) -> Result<Vec<Vec<Reach>>> {
    let n = input.tasks.len();
    let out = input.successors();
    let rho = |v: usize| [input.tasks[v].rho_at(0.0), input.tasks[v].rho_at(1.0)];
    let max = |a: [f64; 2], b: [f64; 2]| [a[0].max(b[0]), a[1].max(b[1])];
    // Downstream: per task and sink, the busiest task behind it.
    let mut down: Vec<BTreeMap<usize, [f64; 2]>> = vec![BTreeMap::new(); n];
    for (s, sink) in input.sinks.iter().enumerate() {
        for &t in &sink.tasks {
            down[t].insert(s, [0.0, 0.0]);
        }
    }
    for &v in order.iter().rev() {
        let mut mine = std::mem::take(&mut down[v]);
        // Consumers of a shuffle are alike: only what is new to us costs.
        for &w in &out[v] {
            let busy = rho(w);
            for (&s, &r) in &down[w] {
                let r = max(r, busy);
                mine.entry(s).and_modify(|m| *m = max(*m, r)).or_insert(r);
            }
        }
        down[v] = mine;
    }
    // Sinks by job, with the busiest task of the job; and jobs that feed a job through logs.
    let jobs = input.tasks.iter().map(|t| t.job + 1).max().unwrap_or(0);
    let mut sinks_of = vec![Vec::new(); jobs];
    for (s, sink) in input.sinks.iter().enumerate() {
        for &t in &sink.tasks {
            let job = input.tasks[t].job;
            if !sinks_of[job].contains(&s) {
                sinks_of[job].push(s);
            }
        }
    }
    let mut feeds = vec![Vec::new(); jobs];
    for e in input.edges.iter().filter(|e| e.logged) {
        let (a, b) = (input.tasks[e.from].job, input.tasks[e.to].job);
        if a != b && !feeds[b].contains(&a) {
            feeds[b].push(a);
        }
    }
    let mut busiest = vec![[0.0f64; 2]; jobs];
    for (v, t) in input.tasks.iter().enumerate() {
        busiest[t.job] = max(busiest[t.job], rho(v));
    }
    let in_flight_s = f64::from(input.cluster.in_flight_epochs) * input.cluster.epoch_s;
    let lossy = input.sinks.iter().any(|s| s.delivery == Delivery::AtMostOnce);
    let mut failed = vec![false; if lossy { n } else { 0 }];
    let mut all = Vec::with_capacity(n);
    for v in 0..n {
        let mut mine: Vec<Reach> =
            down[v].iter().map(|(&sink, &rho)| Reach { sink, buffer_s: 0.0, share: 1.0, rho }).collect();
        let job = input.tasks[v].job;
        // The own job, then upstream jobs, each with one more log in between.
        let mut seen = vec![job];
        let mut layer = vec![job];
        let mut buffer_s = in_flight_s;
        while !layer.is_empty() {
            for &j in &layer {
                for &s in &sinks_of[j] {
                    if !mine.iter().any(|r| r.sink == s) && input.sinks[s].delivery == Delivery::ExactlyOnce {
                        mine.push(Reach { sink: s, buffer_s, share: 1.0, rho: busiest[j] });
                    }
                }
            }
            let mut next = Vec::new();
            for &j in &layer {
                for &a in &feeds[j] {
                    if !seen.contains(&a) {
                        seen.push(a);
                        next.push(a);
                    }
                }
            }
            layer = next;
            buffer_s += input.cluster.log_budget_s;
        }
        if lossy && mine.iter().any(|r| input.sinks[r.sink].delivery == Delivery::AtMostOnce) {
            failed[v] = true;
            let lost = fidelity::information_loss(input, &failed)?;
            failed[v] = false;
            for r in &mut mine {
                let sink = &input.sinks[r.sink];
                if sink.delivery == Delivery::AtMostOnce {
                    r.share = fidelity::sink_loss(input, sink, &lost);
                }
            }
        }
        all.push(mine);
    }
    Ok(all)
}
