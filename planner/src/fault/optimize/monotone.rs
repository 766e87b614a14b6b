//! Monotone labelling: the cheapest levels with x_a ≤ x_b along given pairs, exactly, by a minimum
//! cut.
//!
//! Each node is a chain of arcs from the source to the sink, one per level, whose capacity is that
//! level's cost; cutting the k-th arc means level k. Arcs of infinite capacity between chains forbid
//! the rest (Ishikawa, *Exact optimization for Markov random fields with convex priors*, PAMI 2003;
//! with no cost between nodes but the order, any costs are allowed). Maximum flow by Dinic.

const INFINITE: i64 = 1 << 60;

/// Beyond so many nodes in a cut it is not worth its time: the caller takes a relaxation.
pub(super) const MAX_CUT_NODES: usize = 20_000;

/// The cheapest levels with x_a ≤ x_b for all pairs (a, b). `cost[v]` has a cost per level, infinite
/// where the level is not allowed. The result is optimal up to rounding of 2⁻⁴⁰ of the greatest
/// finite cost per node. `None` if no labelling is allowed.
pub(super) fn cheapest(cost: &[Vec<f64>], pairs: &[(usize, usize)]) -> Option<Vec<usize>> {
    let levels = cost.first()?.len();
    let mut top = 0.0f64;
    let least: Vec<f64> = cost.iter().map(|c| c.iter().copied().fold(f64::INFINITY, f64::min)).collect();
    if least.iter().any(|l| !l.is_finite()) {
        return None;
    }
    for (c, l) in cost.iter().zip(&least) {
        for x in c.iter().filter(|x| x.is_finite()) {
            top = top.max(x - l);
        }
    }
    let scale = if top > 0.0 { (1i64 << 40) as f64 / top } else { 0.0 };
    // Nodes: 0 source, 1 sink, then levels−1 per task; node k of a task is on the source's side
    // if its level is above k.
    let at = |v: usize, k: usize| 2 + v * (levels - 1) + k;
    let mut net = Network::new(2 + cost.len() * (levels - 1));
    for (v, c) in cost.iter().enumerate() {
        for (k, x) in c.iter().enumerate() {
            let from = if k == 0 { 0 } else { at(v, k - 1) };
            let to = if k + 1 == levels { 1 } else { at(v, k) };
            let capacity = if x.is_finite() { ((x - least[v]) * scale) as i64 } else { INFINITE / 4 };
            net.arc(from, to, capacity, if k == 0 || k + 1 == levels { 0 } else { INFINITE });
        }
    }
    for &(a, b) in pairs {
        for k in 0..levels - 1 {
            net.arc(at(a, k), at(b, k), INFINITE, 0);
        }
    }
    if levels > 1 {
        net.maximum_flow();
    }
    let side = net.reachable();
    let labels: Vec<usize> = (0..cost.len()).map(|v| (0..levels - 1).take_while(|&k| side[at(v, k)]).count()).collect();
    labels.iter().zip(cost).all(|(&l, c)| c[l].is_finite()).then_some(labels)
}

/// A flow network: arcs in pairs, each the reverse of its neighbour.
struct Network {
    to: Vec<u32>,
    rest: Vec<i64>,
    next: Vec<u32>,
    first: Vec<u32>,
    level: Vec<u32>,
    current: Vec<u32>,
}

const NONE: u32 = u32::MAX;

impl Network {
    fn new(nodes: usize) -> Self {
        Self {
            to: Vec::new(),
            rest: Vec::new(),
            next: Vec::new(),
            first: vec![NONE; nodes],
            level: vec![NONE; nodes],
            current: vec![NONE; nodes],
        }
    }

    /// Arcs both ways between two nodes. There are far fewer than 2³² of either.
    fn arc(&mut self, a: usize, b: usize, there: i64, back: i64) {
        for (from, to, capacity) in [(a, b, there), (b, a, back)] {
            self.next.push(self.first[from]);
            self.first[from] = self.to.len() as u32;
            self.to.push(to as u32);
            self.rest.push(capacity);
        }
    }

    fn maximum_flow(&mut self) {
        while self.layer() {
            self.current.copy_from_slice(&self.first);
            while self.augment() {}
        }
    }

    /// Distances from the source over arcs with room; whether the sink is within reach.
    fn layer(&mut self) -> bool {
        self.level.fill(NONE);
        self.level[0] = 0;
        let mut queue = vec![0u32];
        let mut head = 0;
        while head < queue.len() {
            let v = queue[head] as usize;
            head += 1;
            let mut a = self.first[v];
            while a != NONE {
                let (i, w) = (a as usize, self.to[a as usize] as usize);
                if self.rest[i] > 0 && self.level[w] == NONE {
                    self.level[w] = self.level[v] + 1;
                    queue.push(w as u32);
                }
                a = self.next[i];
            }
        }
        self.level[1] != NONE
    }

    /// One path from source to sink along the layers, and flow along it. Without recursion: a chain
    /// of tasks may be long.
    fn augment(&mut self) -> bool {
        let mut path: Vec<u32> = Vec::new();
        let mut v = 0usize;
        loop {
            if v == 1 {
                let flow = path.iter().map(|&a| self.rest[a as usize]).min().unwrap_or(0);
                for &a in &path {
                    self.rest[a as usize] -= flow;
                    self.rest[a as usize ^ 1] += flow;
                }
                return true;
            }
            let a = self.current[v];
            if a == NONE {
                // A dead end: step back and never come here again in this layering.
                let Some(back) = path.pop() else { return false };
                v = self.to[back as usize ^ 1] as usize;
                self.current[v] = self.next[back as usize];
            } else {
                let w = self.to[a as usize] as usize;
                if self.rest[a as usize] > 0 && self.level[w] == self.level[v] + 1 {
                    path.push(a);
                    v = w;
                } else {
                    self.current[v] = self.next[a as usize];
                }
            }
        }
    }

    fn reachable(&mut self) -> Vec<bool> {
        self.layer();
        self.level.iter().map(|&l| l != NONE).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::testing::rng;
    use rand::Rng;

    #[test]
    fn is_as_cheap_as_trying_everything() {
        let mut rng = rng(1);
        for round in 0..600 {
            let n = rng.random_range(1..6usize);
            let levels = rng.random_range(1..5usize);
            let cost: Vec<Vec<f64>> = (0..n)
                .map(|_| {
                    (0..levels)
                        .map(|_| if rng.random_bool(0.1) { f64::INFINITY } else { rng.random_range(0.0..10.0) })
                        .collect()
                })
                .collect();
            let mut pairs = Vec::new();
            for a in 0..n {
                for b in 0..n {
                    if a != b && rng.random_bool(0.3) {
                        pairs.push((a, b));
                    }
                }
            }
            let mut best = f64::INFINITY;
            for code in 0..levels.pow(n as u32) {
                let x: Vec<usize> = (0..n).map(|v| code / levels.pow(v as u32) % levels).collect();
                if pairs.iter().all(|&(a, b)| x[a] <= x[b]) {
                    best = best.min(x.iter().zip(&cost).map(|(&l, c)| c[l]).sum());
                }
            }
            match cheapest(&cost, &pairs) {
                None => assert!(best.is_infinite(), "round {round}: missed a cost of {best}"),
                Some(got) => {
                    assert!(pairs.iter().all(|&(a, b)| got[a] <= got[b]));
                    let sum: f64 = got.iter().zip(&cost).map(|(&l, c)| c[l]).sum();
                    assert!((sum - best).abs() < 1e-6, "round {round}: {sum} is not {best}");
                }
            }
        }
    }
}
