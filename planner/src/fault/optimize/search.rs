//! Improves a plan by moves that the duals cannot see: single labels, whole cells, pairs, jobs.
//!
//! Only the worst task of a cell counts, so that protecting one task may gain nothing until another is
//! protected too. Hence moves of whole cells: every member gets its cheapest label with a loss of at
//! most θ, for several θ above and below the present maximum. A move that changes a level takes along the
//! neighbours that the order of intervals makes follow.

use super::problem::Problem;

/// Sums over a plan.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Totals {
    pub running: f64,
    pub loss: f64,
    pub overhead: f64,
    pub replicas: f64,
}

/// Broken budgets first, then the objective.
#[derive(Debug, Clone, Copy)]
pub(super) struct Score {
    pub broken: f64,
    pub objective: f64,
}

impl Score {
    fn better_than(self, other: Self) -> bool {
        self.broken < other.broken - 1e-9
            || self.broken <= other.broken + 1e-12
                && self.objective < other.objective - 1e-10 * other.objective.abs() - 1e-15
    }
}

/// A plan with its sums, kept up to date under changes.
#[derive(Clone)]
pub(super) struct State<'a> {
    p: &'a Problem,
    pub x: Vec<usize>,
    pub totals: Totals,
    /// Prices that stand for budgets while some are looked for, if so.
    prices: Option<Totals>,
    /// Per cell: greatest loss, which member has it, and the greatest among the others.
    top: Vec<(f64, usize, f64)>,
}

impl<'a> State<'a> {
    pub fn new(p: &'a Problem, x: Vec<usize>) -> Self {
        let mut s =
            Self { p, x, totals: Totals { loss: p.fixed_loss, ..Totals::default() }, prices: None, top: Vec::new() };
        for v in 0..p.tasks {
            let i = v * p.labels + s.x[v];
            s.totals.running += p.running[i];
            s.totals.loss += p.alone[i];
            s.totals.overhead += p.overhead[i];
            s.totals.replicas += (s.x[v] % 2) as f64;
        }
        for c in 0..p.cells.len() {
            let t = s.scan(c);
            s.totals.loss += p.cells[c].per_h * t.0;
            s.top.push(t);
        }
        s
    }

    fn scan(&self, c: usize) -> (f64, usize, f64) {
        let mut out = (f64::NEG_INFINITY, 0, f64::NEG_INFINITY);
        for (m, &(v, table)) in self.p.cells[c].members.iter().enumerate() {
            let h = self.p.tables[table + self.x[v]];
            if h > out.0 {
                out = (h, m, out.0);
            } else if h > out.2 {
                out.2 = h;
            }
        }
        out
    }

    pub fn score(&self) -> Score {
        self.score_of(self.totals)
    }

    fn score_of(&self, t: Totals) -> Score {
        let c = &self.p.caps;
        if let Some(q) = &self.prices {
            let priced = q.loss * t.loss + q.overhead * t.overhead + q.replicas * t.replicas;
            return Score { broken: 0.0, objective: self.p.weights.0 * t.running + self.p.weights.1 * t.loss + priced };
        }
        let over = |used: f64, cap: f64| {
            // Sums are rounded; a budget is not broken by that.
            if cap.is_infinite() || used <= cap + 1e-9 * cap.abs() { 0.0 } else { (used - cap) / cap.abs().max(1e-9) }
        };
        Score {
            broken: over(t.replicas, c.replicas) + over(t.overhead, c.overhead_cores) + over(t.loss, c.loss),
            objective: self.p.weights.0 * t.running + self.p.weights.1 * t.loss,
        }
    }

    /// The sums if one task changed its label.
    fn with(&self, v: usize, l: usize) -> Totals {
        let p = self.p;
        let (old, new) = (v * p.labels + self.x[v], v * p.labels + l);
        let mut t = self.totals;
        t.running += p.running[new] - p.running[old];
        t.overhead += p.overhead[new] - p.overhead[old];
        t.replicas += (l % 2) as f64 - (self.x[v] % 2) as f64;
        t.loss += p.alone[new] - p.alone[old];
        for &(c, m) in &p.cells_of[v] {
            let (max, who, second) = self.top[c];
            let others = if who == m { second } else { max };
            let mine = p.tables[p.cells[c].members[m].1 + l];
            t.loss += p.cells[c].per_h * (others.max(mine) - max);
        }
        t
    }

    fn set(&mut self, v: usize, l: usize) {
        if self.x[v] == l {
            return;
        }
        let p = self.p;
        let before = self.x[v];
        self.totals = self.with(v, l);
        self.x[v] = l;
        for &(c, m) in &p.cells_of[v] {
            let table = p.cells[c].members[m].1;
            let (old, new) = (p.tables[table + before], p.tables[table + l]);
            let t = &mut self.top[c];
            if t.1 == m {
                if new >= t.2 {
                    t.0 = new;
                } else {
                    self.top[c] = self.scan(c);
                }
            } else if new > t.0 {
                *t = (new, m, t.0);
            } else if new >= t.2 {
                t.2 = new;
            } else if old >= t.2 {
                self.top[c] = self.scan(c);
            }
        }
    }

    fn allowed(&self, v: usize, l: usize) -> bool {
        self.p.allowed[v * self.p.labels + l]
    }

    /// Whether a label fits the intervals around it.
    fn fits(&self, v: usize, l: usize) -> bool {
        self.p.down[v].iter().all(|&w| self.x[w] / 2 <= l / 2) && self.p.up[v].iter().all(|&u| self.x[u] / 2 >= l / 2)
    }

    /// Sets a label and makes neighbours follow; every change goes to `log` with the label before.
    /// False if one of them cannot, with the changes so far in place.
    fn push(&mut self, v: usize, l: usize, log: &mut Vec<(usize, usize)>) -> bool {
        if !self.allowed(v, l) {
            return false;
        }
        log.push((v, self.x[v]));
        self.set(v, l);
        let mut todo = vec![v];
        while let Some(u) = todo.pop() {
            let k = self.x[u] / 2;
            for down in [true, false] {
                let p = self.p;
                for &w in if down { &p.down[u] } else { &p.up[u] } {
                    let bad = if down { self.x[w] / 2 > k } else { self.x[w] / 2 < k };
                    if bad {
                        let same = 2 * k + self.x[w] % 2;
                        let other = 2 * k + 1 - self.x[w] % 2;
                        let l = if self.allowed(w, same) { same } else { other };
                        if !self.allowed(w, l) {
                            return false;
                        }
                        log.push((w, self.x[w]));
                        self.set(w, l);
                        todo.push(w);
                    }
                }
            }
        }
        true
    }

    fn undo(&mut self, log: &mut Vec<(usize, usize)>) {
        while let Some((v, l)) = log.pop() {
            self.set(v, l);
        }
    }

    /// Whether some budget is broken or nearly used up.
    pub fn is_tight(&self) -> bool {
        let (t, c) = (&self.totals, &self.p.caps);
        [(t.replicas, c.replicas), (t.overhead, c.overhead_cores), (t.loss, c.loss)].iter().any(|(u, c)| *u > 0.8 * c)
    }

    /// Does some changes, keeps them if that is better.
    fn attempt(&mut self, changes: &[(usize, usize)], log: &mut Vec<(usize, usize)>) -> bool {
        let before = self.score();
        log.clear();
        let done = changes.iter().all(|&(v, l)| self.x[v] == l || self.push(v, l, log));
        if done && self.score().better_than(before) {
            log.clear();
            return true;
        }
        self.undo(log);
        false
    }

    /// Moves until none helps, `rounds` times at most.
    pub fn improve(&mut self, rounds: usize, deep: bool) {
        self.improve_with(rounds, deep, true);
    }

    /// `whole`: moves of whole jobs too.
    fn improve_with(&mut self, rounds: usize, deep: bool, whole: bool) {
        let mut log = Vec::new();
        for round in 0..rounds {
            let mut better = self.singles(&mut log, deep);
            better |= self.whole_cells(&mut log, deep);
            if deep || round == 0 && whole {
                better |= self.whole_parts(&mut log);
            }
            if !better {
                better = self.swaps(&mut log, deep);
            }
            if !better && deep && self.p.tasks * self.p.labels <= 64 {
                better = self.pairs(&mut log);
            }
            // Sums drift by rounding; start them afresh.
            let prices = self.prices;
            *self = Self { prices, ..Self::new(self.p, std::mem::take(&mut self.x)) };
            if !better {
                break;
            }
        }
    }

    /// Goes for the budgets by prices: with a price per replica, core and late row instead of limits,
    /// whole groups of tasks can move in and out. Each price is sought by halving until its budget is
    /// just kept; then the limits are back and what they leave is filled up. Keeps the best plan seen.
    pub fn improve_by_prices(&mut self, hint: Totals, halvings: usize, rounds: usize, deep: bool) {
        let caps = self.p.caps;
        let mut best = self.clone();
        let mut prices = Totals::default();
        let cap_of = [caps.overhead_cores, caps.loss, caps.replicas];
        for (which, cap) in cap_of.into_iter().enumerate().filter(|(_, c)| c.is_finite()) {
            let used = |t: &Totals| [t.overhead, t.loss, t.replicas][which];
            let hinted = [hint.overhead, hint.loss, hint.replicas][which];
            let (mut low, mut high) = (0.0, f64::INFINITY);
            let mut price = if hinted > 0.0 { hinted } else { 0.0 };
            for step in 0..halvings {
                let q = match which {
                    0 => &mut prices.overhead,
                    1 => &mut prices.loss,
                    _ => &mut prices.replicas,
                };
                *q = price;
                self.prices = Some(prices);
                self.improve_with(rounds, deep, false);
                let over = used(&self.totals) > cap * (1.0 + 1e-9);
                let mut full = Self { prices: None, ..self.clone() };
                if deep || !over {
                    full.improve_with(rounds, deep, false);
                }
                if full.score().better_than(best.score()) {
                    best = full;
                }
                if over {
                    low = price;
                } else {
                    high = price;
                }
                if high <= 0.0 {
                    break;
                }
                price = match (low > 0.0, high.is_finite()) {
                    (false, false) => best.score().objective.abs().max(1e-9) / self.p.tasks as f64 * 0.01,
                    (_, false) => low * 4.0,
                    // Until it is known how small it is, it shrinks fast.
                    (false, true) if step + 1 < halvings => high / 4.0,
                    _ => (low.max(high / 16.0) * high).sqrt(),
                };
            }
            if high.is_finite() {
                let q = match which {
                    0 => &mut prices.overhead,
                    1 => &mut prices.loss,
                    _ => &mut prices.replicas,
                };
                *q = high;
            }
        }
        *self = best;
    }

    fn singles(&mut self, log: &mut Vec<(usize, usize)>, deep: bool) -> bool {
        let mut any = false;
        for v in 0..self.p.tasks {
            let mut best = (self.score(), self.x[v]);
            let mut forced = Vec::new();
            for l in (0..self.p.labels).filter(|&l| l != self.x[v] && self.allowed(v, l)) {
                if self.fits(v, l) {
                    let s = self.score_of(self.with(v, l));
                    if s.better_than(best.0) {
                        best = (s, l);
                    }
                } else if deep {
                    // Elsewhere the relaxation has settled what goes together.
                    forced.push(l);
                }
            }
            if best.1 != self.x[v] {
                self.set(v, best.1);
                any = true;
            }
            for l in forced {
                any |= self.attempt(&[(v, l)], log);
            }
        }
        any
    }

    /// A task's cheapest label with a loss of at most `line` in a cell; the rest of its cost
    /// counts, other cells at what they would cost it alone.
    fn cheapest_below(&self, v: usize, table: usize, line: f64, deep: bool) -> Option<usize> {
        let p = self.p;
        let mut best = (f64::INFINITY, None);
        // In large problems the relaxation has settled the levels; replicas are what moves.
        let range = if deep { 0..p.labels } else { self.x[v] & !1..(self.x[v] | 1) + 1 };
        for l in range.rev().filter(|&l| self.allowed(v, l) && p.tables[table + l] <= line) {
            let i = v * p.labels + l;
            let q = self.prices.unwrap_or_default();
            let cost = p.weights.0 * p.running[i]
                + (p.weights.1 + q.loss) * p.alone[i]
                + q.overhead * p.overhead[i]
                + (q.replicas + 1e-9) * (l % 2) as f64;
            if cost < best.0 {
                best = (cost, Some(l));
            }
        }
        best.1
    }

    fn whole_cells(&mut self, log: &mut Vec<(usize, usize)>, deep: bool) -> bool {
        let mut any = false;
        for c in 0..self.p.cells.len() {
            let p = self.p;
            let cell = &p.cells[c];
            let mut lines: Vec<f64> = Vec::new();
            for &(v, table) in &cell.members {
                let range = if deep { 0..p.labels } else { self.x[v] & !1..(self.x[v] | 1) + 1 };
                lines.extend(range.filter(|&l| self.allowed(v, l)).map(|l| p.tables[table + l]));
            }
            lines.sort_by(f64::total_cmp);
            lines.dedup();
            let most = if deep { 64 } else { 6 };
            let step = lines.len().div_ceil(most).max(1);
            for line in lines.into_iter().step_by(step) {
                let changes: Vec<(usize, usize)> = cell
                    .members
                    .iter()
                    .filter_map(|&(v, table)| {
                        // Without a label below the line the member stays.
                        Some((v, self.cheapest_below(v, table, line, deep)?))
                    })
                    .collect();
                any |= self.attempt(&changes, log);
                // The same, but only for those above the line.
                let above: Vec<(usize, usize)> = changes
                    .iter()
                    .zip(&cell.members)
                    .filter(|(_, m)| p.tables[m.1 + self.x[m.0]] > line)
                    .map(|(c, _)| *c)
                    .collect();
                if above.len() < changes.len() {
                    any |= self.attempt(&above, log);
                }
            }
        }
        any
    }

    /// All tasks of a job to one label, or all up or down a level.
    fn whole_parts(&mut self, log: &mut Vec<(usize, usize)>) -> bool {
        let mut any = false;
        let p = self.p;
        for part in p.parts.iter().filter(|part| part.tasks.len() > 1) {
            for l in 0..p.labels {
                let changes: Vec<(usize, usize)> = part
                    .tasks
                    .iter()
                    .map(|&v| (v, if self.allowed(v, l) { l } else { l - l % 2 }))
                    .filter(|&(v, l)| self.allowed(v, l))
                    .collect();
                any |= self.attempt(&changes, log);
                // Levels only.
                let keep: Vec<(usize, usize)> = part
                    .tasks
                    .iter()
                    .map(|&v| (v, l - l % 2 + self.x[v] % 2))
                    .filter(|&(v, l)| self.allowed(v, l))
                    .collect();
                any |= l % 2 == 0 && self.attempt(&keep, log);
            }
            for up in [true, false] {
                let moved = |l: usize| if up { l + 2 } else { l.wrapping_sub(2) };
                let changes: Vec<(usize, usize)> = part
                    .tasks
                    .iter()
                    .map(|&v| (v, moved(self.x[v])))
                    .filter(|&(v, l)| l < p.labels && self.allowed(v, l))
                    .collect();
                any |= self.attempt(&changes, log);
            }
        }
        any
    }

    /// Under a budget: takes a replica or snapshots from one task to give them to another.
    fn swaps(&mut self, log: &mut Vec<(usize, usize)>, deep: bool) -> bool {
        let p = self.p;
        if p.caps.replicas.is_infinite() && p.caps.overhead_cores.is_infinite() && p.caps.loss.is_infinite() {
            return false;
        }
        // By what the change alone would gain or lose, the best few of each.
        let price = |s: &Self, v: usize, l: usize| s.score_of(s.with(v, l)).objective;
        let mut give = Vec::new();
        let mut take = Vec::new();
        for v in 0..p.tasks {
            for l in (0..p.labels).filter(|&l| l != self.x[v] && self.allowed(v, l)) {
                if !deep && !self.fits(v, l) {
                    continue;
                }
                let (i, j) = (v * p.labels + l, v * p.labels + self.x[v]);
                let more = l % 2 > self.x[v] % 2 || p.overhead[i] > p.overhead[j];
                if more { &mut give } else { &mut take }.push((price(self, v, l), v, l));
            }
        }
        for list in [&mut give, &mut take] {
            list.sort_by(|a, b| a.0.total_cmp(&b.0));
            list.truncate(if deep { 24 } else { 12 });
        }
        let mut any = false;
        for &(_, a, la) in &take {
            for &(_, b, lb) in give.iter().filter(|g| g.1 != a) {
                any |= self.attempt(&[(a, la), (b, lb)], log);
            }
        }
        any
    }

    /// Every pair of changes, for small problems.
    fn pairs(&mut self, log: &mut Vec<(usize, usize)>) -> bool {
        let p = self.p;
        let n = p.tasks;
        for a in 0..n {
            for b in a + 1..n {
                for la in (0..p.labels).filter(|&l| p.allowed[a * p.labels + l]) {
                    for lb in (0..p.labels).filter(|&l| p.allowed[b * p.labels + l]) {
                        if (la != self.x[a] || lb != self.x[b]) && self.attempt(&[(a, la), (b, lb)], log) {
                            return true;
                        }
                    }
                }
            }
        }
        false
    }
}
