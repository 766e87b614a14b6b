//! Output fidelity: how much of a sink's information survives if tasks are gone and the rest goes
//! on, after Su & Zhou, *Tolerating correlated failures in massively parallel stream processing
//! engines* (arXiv 1508.04907).
//!
//! The information loss IL of a failed task's output is 1. A stream that comes from several tasks
//! loses the rate-weighted mean of theirs. A task that takes its inputs one by one (union) loses the
//! rate-weighted mean of its streams; one whose inputs must meet (join) keeps a row only if every
//! partner is there: 1 − Π(1 − IL). Output fidelity is 1 less the rate-weighted loss at the sink.

use std::collections::BTreeMap;

use super::error::Result;
use super::graph::{Input, Merge, Sink};

/// Information loss of every task's output, 0 to 1, with `failed` tasks gone.
pub fn information_loss(input: &Input, failed: &[bool]) -> Result<Vec<f64>> {
    let order = input.topological_order()?;
    let mut into = vec![Vec::new(); input.tasks.len()];
    for e in &input.edges {
        into[e.to].push(e);
    }
    let mut lost = vec![0.0; input.tasks.len()];
    for v in order {
        if failed.get(v).copied().unwrap_or(false) {
            lost[v] = 1.0;
            continue;
        }
        // Per input: rate, and rate times loss.
        let mut streams: BTreeMap<u8, (f64, f64)> = BTreeMap::new();
        for e in &into[v] {
            let s = streams.entry(e.input).or_default();
            s.0 += e.rows_per_s;
            s.1 += e.rows_per_s * lost[e.from];
        }
        let mean = |(rate, gone): &(f64, f64)| if *rate > 0.0 { gone / rate } else { 0.0 };
        lost[v] = match input.tasks[v].merge {
            Merge::Join => 1.0 - streams.values().map(|s| 1.0 - mean(s)).product::<f64>(),
            Merge::Union => {
                let all = streams.values().fold((0.0, 0.0), |a, s| (a.0 + s.0, a.1 + s.1));
                mean(&all)
            }
        };
    }
    Ok(lost)
}

/// Output fidelity of a sink, 0 to 1. Tasks that write to it count by their share of its rows.
pub fn output_fidelity(input: &Input, sink: &Sink, failed: &[bool]) -> Result<f64> {
    let lost = information_loss(input, failed)?;
    Ok(1.0 - sink_loss(input, sink, &lost))
}

/// The loss at a sink, given that of every task.
pub(super) fn sink_loss(input: &Input, sink: &Sink, lost: &[f64]) -> f64 {
    let rate: f64 = sink.tasks.iter().map(|&t| input.tasks[t].rows_per_s).sum();
    if rate <= 0.0 {
        return sink.tasks.iter().map(|&t| lost[t]).fold(0.0, f64::max);
    }
    sink.tasks.iter().map(|&t| input.tasks[t].rows_per_s * lost[t]).sum::<f64>() / rate
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::testing::{edge, input};

    /// Two source tasks feed one aggregation each, both feed the last task.
    fn tree(merge: Merge) -> Input {
        let mut x = input(5, &[edge(0, 2, 30.0), edge(1, 3, 10.0), edge(2, 4, 30.0), edge(3, 4, 10.0)], &[4]);
        if merge == Merge::Join {
            x.edges[3].input = 1;
        }
        x.tasks[4].merge = merge;
        x
    }

    fn fidelity(x: &Input, gone: &[usize]) -> f64 {
        let failed: Vec<bool> = (0..x.tasks.len()).map(|v| gone.contains(&v)).collect();
        output_fidelity(x, &x.sinks[0], &failed).unwrap()
    }

    #[test]
    fn union_tree_by_hand() {
        let x = tree(Merge::Union);
        assert_eq!(fidelity(&x, &[]), 1.0);
        // The source with three quarters of the rows is gone: IL = 30/40.
        assert!((fidelity(&x, &[0]) - 0.25).abs() < 1e-12);
        assert!((fidelity(&x, &[3]) - 0.75).abs() < 1e-12);
        // Both on one path lose no more than one of them.
        assert!((fidelity(&x, &[0, 2]) - 0.25).abs() < 1e-12);
        assert_eq!(fidelity(&x, &[0, 1]), 0.0);
        assert_eq!(fidelity(&x, &[4]), 0.0);
    }

    #[test]
    fn join_by_hand() {
        let x = tree(Merge::Join);
        // Without either side a join gives nothing.
        assert_eq!(fidelity(&x, &[0]), 0.0);
        assert_eq!(fidelity(&x, &[1]), 0.0);
    }

    #[test]
    fn join_of_partly_lost_streams_by_hand() {
        // Left stream from tasks 0, 1 (half each), right from 2, 3 (a fifth and four fifths).
        let mut x = input(5, &[edge(0, 4, 10.0), edge(1, 4, 10.0), edge(2, 4, 5.0), edge(3, 4, 20.0)], &[4]);
        for e in &mut x.edges[2..] {
            e.input = 1;
        }
        x.tasks[4].merge = Merge::Join;
        // 1 − (1 − 1/2)(1 − 1/5) = 0.6 lost.
        assert!((fidelity(&x, &[0, 2]) - 0.4).abs() < 1e-12);
        assert!((fidelity(&x, &[0]) - 0.5).abs() < 1e-12);
        // The same as a union: (10 + 5)/45 lost.
        x.tasks[4].merge = Merge::Union;
        assert!((fidelity(&x, &[0, 2]) - (1.0 - 15.0 / 45.0)).abs() < 1e-12);
    }

    #[test]
    fn losing_more_tasks_never_helps() {
        let x = tree(Merge::Union);
        for bits in 0u32..32 {
            let gone: Vec<usize> = (0..5).filter(|v| bits >> v & 1 == 1).collect();
            let f = fidelity(&x, &gone);
            for extra in 0..5 {
                let mut more = gone.clone();
                more.push(extra);
                assert!(fidelity(&x, &more) <= f + 1e-12);
            }
        }
    }
}
