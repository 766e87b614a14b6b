//! A whole failing system, event by event.
//!
//! Time passes in jumps from event to event (failures, repairs, changes of load) while everything is
//! current, and epoch by epoch for jobs that are not. A task works off epochs: each costs it the time
//! that its rows need, snapshots cost time when their barrier passes, a task waits for what feeds
//! it, sources wait for the sinks when too many epochs are in flight and for logs that are full. When a
//! sink has an epoch complete, its rows' delay is looked at. No formula of the model is used: neither
//! outages, late rows nor probabilities are computed but by what happens.

use std::collections::VecDeque;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::super::error::Result;
use super::super::graph::Input;
use super::super::model::{Choice, Model};
use super::super::shock::{self, Plan};

/// Longest time for which a job is followed in trouble [s of simulated time]; it is then taken to be
/// current, which can only flatter it.
const MOST_TROUBLE_S: f64 = 48.0 * 3600.0;

/// A time this share of an epoch before a barrier is at the barrier.
const GRID: f64 = 1e-3;

/// Most outages whose lengths are kept.
pub const MOST_OUTAGES: usize = 200_000;

/// What runs and how it is protected.
#[derive(Debug, Clone)]
pub struct System<'a> {
    pub(super) input: &'a Input,
    pub(super) plan: &'a Plan,
    /// Choices per load state; empty: the plan's always.
    pub(super) modes: Vec<Vec<Choice>>,
    into: Vec<Vec<usize>>,
    logged_out: Vec<Vec<usize>>,
    out: Vec<Vec<usize>>,
    rank: Vec<usize>,
    /// Which jobs are simulated together, and their tasks in topological order.
    pub(super) group_of: Vec<usize>,
    groups: Vec<Vec<usize>>,
    sinks_of_group: Vec<Vec<usize>>,
}

impl<'a> System<'a> {
    /// A system that runs a plan. `modes` as in [`super::super::optimize::Planned`].
    pub fn new(model: &Model<'a>, plan: &'a Plan, modes: &[super::super::optimize::Mode]) -> Result<Self> {
        shock::check(model, plan)?;
        let input = model.input;
        let n = input.tasks.len();
        let mut into = vec![Vec::new(); n];
        let mut logged_out = vec![Vec::new(); n];
        let mut out = vec![Vec::new(); n];
        // Tasks joined by any edge are followed together.
        let mut root: Vec<usize> = (0..n).collect();
        fn find(root: &mut [usize], mut v: usize) -> usize {
            while root[v] != v {
                root[v] = root[root[v]];
                v = root[v];
            }
            v
        }
        for e in &input.edges {
            into[e.to].push(e.from);
            let consumers = if e.logged { &mut logged_out } else { &mut out };
            consumers[e.from].push(e.to);
            let (a, b) = (find(&mut root, e.from), find(&mut root, e.to));
            root[a] = b;
        }
        for s in &input.sinks {
            for w in s.tasks.windows(2) {
                let (a, b) = (find(&mut root, w[0]), find(&mut root, w[1]));
                root[a] = b;
            }
        }
        let mut number = vec![usize::MAX; n];
        let mut groups: Vec<Vec<usize>> = Vec::new();
        let mut group_of = vec![0; n];
        for &v in &model.order {
            let r = find(&mut root, v);
            if number[r] == usize::MAX {
                number[r] = groups.len();
                groups.push(Vec::new());
            }
            group_of[v] = number[r];
            groups[number[r]].push(v);
        }
        let mut sinks_of_group = vec![Vec::new(); groups.len()];
        for (s, sink) in input.sinks.iter().enumerate() {
            sinks_of_group[group_of[sink.tasks[0]]].push(s);
        }
        let mut by_state = vec![Vec::new(); if modes.is_empty() { 0 } else { input.load.len() }];
        for m in modes {
            by_state[m.state].clone_from(&m.choices);
        }
        for choices in by_state.iter_mut().filter(|c| c.is_empty()) {
            choices.clone_from(&plan.choices);
        }
        Ok(Self {
            input,
            plan,
            modes: by_state,
            into,
            logged_out,
            out,
            rank: model.rank.clone(),
            group_of,
            groups,
            sinks_of_group,
        })
    }

    pub(super) fn level_of(&self, v: usize, state: usize) -> u8 {
        self.modes.get(state).map_or(self.plan.choices[v].level, |m| m[v].level)
    }
}

/// What went wrong at one sink.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SinkTally {
    /// Weighted late rows.
    pub late_rows: f64,
    /// Weighted lateness [row·s].
    pub lateness_row_s: f64,
    /// Time not current [s].
    pub outage_s: f64,
    /// Outages in which rows were late.
    pub misses: f64,
    /// Outages.
    pub outages: f64,
}

/// Which event a failure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    Crash(usize),
    Worker(usize),
    Domain(usize),
    Coordinator,
}

/// One copy of a task.
#[derive(Debug, Clone, Copy)]
struct Copy {
    home: usize,
    at: usize,
    /// From when on it can take over; infinite while it has no place.
    ready: f64,
}

#[derive(Debug, Clone)]
struct Task {
    copies: Vec<Copy>,
    serving: usize,
    /// Works from this time on.
    up_at: f64,
    /// Epochs done.
    done: u64,
    /// Epochs that had been done once; those before are replayed.
    seen: u64,
    /// Work that it has put into the epoch at hand [s].
    credit: f64,
    /// Barriers passed in trouble, and when their snapshots are current.
    pending: VecDeque<(u64, f64)>,
    /// Epoch of the current snapshot, if one was made in trouble.
    snapshot: Option<u64>,
}

/// The state of a run.
pub(super) struct Run<'a> {
    s: &'a System<'a>,
    pub rng: SmallRng,
    pub now: f64,
    tasks: Vec<Task>,
    /// Until when each worker is down.
    down: Vec<f64>,
    /// Copies on each worker.
    load: Vec<usize>,
    /// Per group: when its trouble began, if it is in trouble, and the sinks' part in it.
    trouble: Vec<Option<f64>>,
    sink_done: Vec<u64>,
    sink_behind: Vec<Option<f64>>,
    sink_missed: Vec<bool>,
    sink_peak: Vec<f64>,
    stalled_until: f64,
    /// Load: start and state, in order; the last goes on.
    segments: Vec<(f64, usize)>,
    next_change: f64,
    /// Tasks that a copy other than the first serves.
    promoted: Vec<usize>,
    /// When the next machine comes back.
    next_repair: f64,
    pub tally: Vec<SinkTally>,
    pub outages: Vec<f64>,
    pub failures: usize,
}

impl<'a> Run<'a> {
    pub fn new(s: &'a System<'a>, seed: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let n = s.input.tasks.len();
        let workers = s.input.cluster.workers.len();
        let mut load = vec![0; workers];
        let tasks = (0..n)
            .map(|v| {
                let homes = [Some(s.plan.placement.primary[v]), s.plan.placement.replica[v]];
                let copies: Vec<Copy> =
                    homes.into_iter().flatten().map(|home| Copy { home, at: home, ready: 0.0 }).collect();
                copies.iter().for_each(|c| load[c.at] += 1);
                Task {
                    copies,
                    serving: 0,
                    up_at: 0.0,
                    done: 0,
                    seen: 0,
                    credit: 0.0,
                    pending: VecDeque::new(),
                    snapshot: None,
                }
            })
            .collect();
        // Start anywhere in the cycle of load states.
        let (mut segments, mut next_change) = (vec![(0.0, 0)], f64::INFINITY);
        if s.input.load.len() > 1 {
            let shares: f64 = s.input.load.iter().map(|l| l.share).sum();
            let mut pick = rng.random_range(0.0..shares);
            let mut state = 0;
            while state + 1 < s.input.load.len() && pick > s.input.load[state].share {
                pick -= s.input.load[state].share;
                state += 1;
            }
            segments = vec![(0.0, state)];
            next_change = s.input.load[state].length_s * rng.random_range(0.0..1.0);
        }
        let sinks = s.input.sinks.len();
        // Well past the first global checkpoint.
        let start = s.input.cluster.interval_s(s.input.cluster.global_level) * 4.0
            + rng.random_range(0.0..s.input.cluster.interval_s(s.input.cluster.global_level));
        Self {
            s,
            rng,
            now: start,
            tasks,
            down: vec![0.0; workers],
            load,
            trouble: vec![None; s.groups.len()],
            sink_done: vec![0; sinks],
            sink_behind: vec![None; sinks],
            sink_missed: vec![false; sinks],
            sink_peak: vec![0.0; sinks],
            stalled_until: 0.0,
            segments,
            next_change: start + next_change,
            promoted: Vec::new(),
            next_repair: f64::INFINITY,
            tally: vec![SinkTally::default(); sinks],
            outages: Vec::new(),
            failures: 0,
        }
    }

    fn epoch_s(&self) -> f64 {
        self.s.input.cluster.epoch_s
    }

    /// Load state at a time, as far back as anybody replays.
    fn state_at(&self, t: f64) -> usize {
        self.segments.iter().rev().find(|s| s.0 <= t).map_or(self.segments[0].1, |s| s.1)
    }

    fn level_at(&self, t: f64) -> f64 {
        self.s.input.load.get(self.state_at(t)).map_or(0.0, |l| l.level)
    }

    /// The last barrier before an epoch at which a task took a snapshot that was current at `t`.
    fn last_snapshot(&self, v: usize, t: f64) -> u64 {
        let e = self.epoch_s();
        let limit = (t - self.s.input.tasks[v].snapshot_completion_s).max(0.0);
        let mut end = limit;
        for &(start, state) in self.segments.iter().rev().filter(|s| s.0 <= limit) {
            let tau = 1u64 << self.s.level_of(v, state);
            let barrier = (end / e) as u64 / tau * tau;
            if barrier as f64 * e >= start || start <= 0.0 {
                return barrier;
            }
            end = start;
        }
        0
    }

    /// Puts a group under the microscope: everybody is current at this moment.
    fn watch(&mut self, group: usize) {
        if self.trouble[group].is_some() {
            return;
        }
        self.trouble[group] = Some(self.now);
        let epoch = (self.now / self.epoch_s()) as u64;
        for i in 0..self.s.groups[group].len() {
            let v = self.s.groups[group][i];
            let t = &mut self.tasks[v];
            (t.done, t.seen, t.credit, t.snapshot) = (epoch, epoch, 0.0, None);
            t.pending.clear();
        }
        for &s in &self.s.sinks_of_group[group] {
            self.sink_done[s] = epoch;
        }
    }

    /// A failure happens now. `common`: a crash takes the replica along.
    pub fn fail(&mut self, event: Event, common: bool) {
        let c = &self.s.input.cluster;
        self.failures += 1;
        match event {
            Event::Coordinator => {
                self.stalled_until = self.stalled_until.max(self.now + c.failover_s);
                (0..self.s.groups.len()).for_each(|g| self.watch(g));
            }
            Event::Crash(v) => {
                let serving = self.tasks[v].serving;
                let which: Vec<usize> = (0..self.tasks[v].copies.len()).filter(|&i| common || i == serving).collect();
                self.kill(&[(v, which)]);
            }
            Event::Worker(w) => self.kill_workers(&[w]),
            Event::Domain(d) => {
                let all: Vec<usize> = (0..c.workers.len()).filter(|&w| c.workers[w].domain == d).collect();
                self.kill_workers(&all);
            }
        }
    }

    fn kill_workers(&mut self, workers: &[usize]) {
        let hit: Vec<usize> = workers.iter().copied().filter(|&w| self.down[w] <= self.now).collect();
        for &w in &hit {
            self.down[w] = self.now + self.s.input.cluster.repair_s;
            self.next_repair = self.next_repair.min(self.down[w]);
        }
        let mut killed = Vec::new();
        for (v, t) in self.tasks.iter().enumerate() {
            let which: Vec<usize> = (0..t.copies.len()).filter(|&i| hit.contains(&t.copies[i].at)).collect();
            if !which.is_empty() {
                killed.push((v, which));
            }
        }
        self.kill(&killed);
    }

    /// Copies die: what served is replaced, all are started again somewhere.
    fn kill(&mut self, killed: &[(usize, Vec<usize>)]) {
        let c = &self.s.input.cluster;
        for (v, which) in killed {
            for &i in which {
                self.load[self.tasks[*v].copies[i].at] -= 1;
                self.tasks[*v].copies[i].ready = f64::INFINITY;
            }
        }
        // Tasks that nobody serves start first, replicas in the background; those that restore on
        // one worker share its bandwidth.
        let mut urgent = vec![0usize; c.workers.len()];
        let mut restoring = vec![0usize; c.workers.len()];
        let mut started: Vec<(usize, usize)> = Vec::new();
        for first in [true, false] {
            for (v, which) in killed {
                let serving = self.tasks[*v].serving;
                for &i in which.iter().filter(|&&i| (serving == i) == first) {
                    let at = self.place(*v, i);
                    self.tasks[*v].copies[i].at = at;
                    self.load[at] += 1;
                    let stateful = usize::from(self.s.input.tasks[*v].stateful());
                    restoring[at] += stateful;
                    urgent[at] += if first { stateful } else { 0 };
                    started.push((*v, i));
                }
            }
        }
        for &(v, i) in &started {
            let t = &self.s.input.tasks[v];
            let at = self.tasks[v].copies[i].at;
            // Nowhere to start before that machine is back.
            let wait = (self.down[at] - self.now).max(0.0);
            let serving = self.tasks[v].serving == i;
            let sharing = if serving { urgent[at] } else { restoring[at] };
            let restore = t.state_bytes / t.restore_bytes_per_s * sharing.max(1) as f64;
            let up = self.now + c.detection_s + c.launch_s + wait + restore;
            let other = (0..self.tasks[v].copies.len()).find(|&j| j != i && self.tasks[v].copies[j].ready <= self.now);
            if serving {
                self.watch(self.s.group_of[v]);
            }
            let snapshot = self.snapshot_of(v);
            match (serving, other) {
                (true, Some(j)) => {
                    self.promoted.push(v);
                    let task = &mut self.tasks[v];
                    task.serving = j;
                    task.up_at = self.now + c.detection_s + c.switch_s;
                    task.credit = 0.0;
                }
                (true, None) => {
                    let task = &mut self.tasks[v];
                    task.up_at = up;
                    task.credit = 0.0;
                    task.seen = task.seen.max(task.done);
                    if t.stateful() {
                        task.done = snapshot.min(task.done);
                    }
                    task.pending.clear();
                    task.copies[i].ready = up;
                    continue;
                }
                (false, _) => {}
            }
            self.tasks[v].copies[i].ready = self.caught_up(v, snapshot, up);
        }
        self.lost_logs(&started);
    }

    /// What a stateless task had put out since its consumers' snapshots was in its memory: it must put
    /// it out again. Consumers first, since they may be of the same kind.
    fn lost_logs(&mut self, started: &[(usize, usize)]) {
        let mut lost: Vec<usize> = started
            .iter()
            .map(|s| s.0)
            .filter(|&v| !self.s.input.tasks[v].stateful() && self.tasks[v].up_at > self.now)
            .filter(|&v| self.tasks[v].copies[self.tasks[v].serving].ready > self.now)
            .collect();
        lost.sort_by_key(|&v| std::cmp::Reverse(self.s.rank[v]));
        for v in lost {
            let needed = self.s.out[v].iter().map(|&w| self.tasks[w].done).min();
            let task = &mut self.tasks[v];
            task.seen = task.seen.max(task.done);
            task.done = task.done.min(needed.unwrap_or(task.done));
        }
    }

    /// Where a copy can start: at home, else on the emptiest live worker outside the other copy's
    /// domain, else on any live one, else at home once that is back.
    fn place(&self, v: usize, i: usize) -> usize {
        let c = &self.s.input.cluster;
        let copies = &self.tasks[v].copies;
        let home = copies[i].home;
        if self.down[home] <= self.now {
            return home;
        }
        let other = copies.iter().enumerate().find(|(j, _)| *j != i).map(|(_, o)| o.at);
        let apart = |w: usize| other.is_none_or(|o| c.workers[o].domain != c.workers[w].domain);
        (0..c.workers.len())
            .filter(|&w| self.down[w] <= self.now && Some(w) != other)
            .max_by_key(|&w| {
                let free = c.workers[w].slots as i64 - self.load[w] as i64;
                (free > 0, apart(w), free, std::cmp::Reverse(w))
            })
            .unwrap_or(home)
    }

    fn snapshot_of(&mut self, v: usize) -> u64 {
        let now = self.now;
        if self.trouble[self.s.group_of[v]].is_none() {
            return self.last_snapshot(v, now);
        }
        let t = &mut self.tasks[v];
        while t.pending.front().is_some_and(|p| p.1 <= now) {
            t.snapshot = t.pending.pop_front().map(|p| p.0);
        }
        match t.snapshot {
            Some(s) => s,
            // None since the trouble began: what was current then.
            None => {
                let began = self.trouble[self.s.group_of[v]].unwrap_or(now);
                self.last_snapshot(v, began)
            }
        }
    }

    /// When a copy that starts at `up` from a snapshot has caught up with what comes in.
    fn caught_up(&self, v: usize, snapshot: u64, up: f64) -> f64 {
        let e = self.epoch_s();
        let mut t = up;
        let mut epoch = if self.s.input.tasks[v].stateful() { snapshot } else { (up / e) as u64 };
        let end = up + MOST_TROUBLE_S;
        while ((epoch + 1) as f64) * e <= t && t < end {
            t += self.work_s(v, epoch, true, false);
            epoch += 1;
        }
        t
    }

    /// Time that an epoch takes a task.
    fn work_s(&self, v: usize, epoch: u64, replayed: bool, snapshot: bool) -> f64 {
        let t = &self.s.input.tasks[v];
        let e = self.epoch_s();
        let rows = t.rows_at(self.level_at(epoch as f64 * e)) * e;
        let mut s = rows / t.capacity_rows_per_s;
        if replayed {
            s = s / t.replay_speedup + t.epoch_replay_s;
        }
        if snapshot && t.stateful() {
            let level = self.s.level_of(v, self.state_at(epoch as f64 * e));
            s += t.snapshot_pause_s + t.encode_s_per_byte * t.dirty_bytes(level, e);
        }
        s
    }

    /// One epoch of time for a group in trouble.
    fn step(&mut self, group: usize) {
        let e = self.epoch_s();
        let c = &self.s.input.cluster;
        let closed = (self.now / e + GRID) as u64;
        let stalled = self.now < self.stalled_until;
        let in_flight = u64::from(c.in_flight_epochs);
        let log_epochs = (c.log_budget_s / e) as u64;
        let groups = &self.s.groups[group];
        let slowest_sink = self.s.sinks_of_group[group].iter().map(|&s| self.sink_done[s]).min().unwrap_or(0);
        for &v in groups {
            if self.tasks[v].up_at > self.now {
                continue;
            }
            let mut limit = closed;
            for &u in &self.s.into[v] {
                limit = limit.min(self.tasks[u].done);
            }
            if self.s.into[v].is_empty() && self.tasks[v].done >= self.tasks[v].seen {
                limit = limit.min(slowest_sink + in_flight);
            }
            for &w in &self.s.logged_out[v] {
                limit = limit.min(self.tasks[w].done + log_epochs);
            }
            // It may have come up in the middle of the step.
            let available = (self.now - self.tasks[v].up_at).min(e);
            let at = self.tasks[v].copies[self.tasks[v].serving].at;
            let crowd = self.load[at] as f64 / c.workers[at].slots.max(1) as f64;
            self.tasks[v].credit += available / crowd.max(1.0);
            while self.tasks[v].done < limit {
                let (done, replayed) = (self.tasks[v].done, self.tasks[v].done < self.tasks[v].seen);
                let tau = 1u64 << self.s.level_of(v, self.state_at(done as f64 * e));
                let snapshot = !replayed && (done + 1) % tau == 0;
                let work = self.work_s(v, done, replayed, snapshot);
                if self.tasks[v].credit < work {
                    break;
                }
                let t = &mut self.tasks[v];
                t.credit -= work;
                t.done += 1;
                if snapshot {
                    let current = self.now + self.s.input.tasks[v].snapshot_completion_s;
                    t.pending.push_back((t.done, current));
                    if t.pending.len() > 64 {
                        t.snapshot = t.pending.pop_front().map(|p| p.0);
                    }
                }
            }
            let t = &mut self.tasks[v];
            if t.done >= limit {
                // Nothing to do: time is not saved up.
                t.credit = 0.0;
            }
            t.seen = t.seen.max(t.done);
        }
        if !stalled {
            for i in 0..self.s.sinks_of_group[group].len() {
                let s = self.s.sinks_of_group[group][i];
                self.deliver(s, closed);
            }
        }
        let lagging = groups.iter().any(|&v| self.tasks[v].done + 1 < closed || self.tasks[v].up_at > self.now)
            || self.s.sinks_of_group[group].iter().any(|&s| self.sink_done[s] + 1 < closed);
        let overload = groups.iter().any(|&v| self.s.input.tasks[v].rho_at(self.level_at(self.now)) >= 0.98);
        let began = self.trouble[group].unwrap_or(self.now);
        if (!lagging && !overload && !stalled) || self.now - began > MOST_TROUBLE_S {
            self.trouble[group] = None;
            for i in 0..self.s.sinks_of_group[group].len() {
                let s = self.s.sinks_of_group[group][i];
                self.recovered(s);
            }
        }
    }

    /// Epochs that a sink has complete leave now.
    fn deliver(&mut self, s: usize, closed: u64) {
        let e = self.epoch_s();
        let sink = &self.s.input.sinks[s];
        let done = sink.tasks.iter().map(|&t| self.tasks[t].done).min().unwrap_or(0);
        let source = sink.tasks[0];
        while self.sink_done[s] < done {
            let epoch = self.sink_done[s];
            self.sink_done[s] += 1;
            let end = (epoch + 1) as f64 * e;
            let delay = self.now - end + self.s.input.cluster.record_s;
            // In the steady state an epoch leaves within the next.
            let beyond = delay - sink.slack_s();
            let t = &self.s.input.tasks[source];
            let output =
                if t.rows_per_s > 0.0 { t.rows_at(self.level_at(epoch as f64 * e)) / t.rows_per_s } else { 1.0 };
            let rows = sink.weight * sink.rows_per_s * output * e;
            self.sink_peak[s] = self.sink_peak[s].max(delay);
            if beyond > 0.0 && delay > 2.0 * e {
                self.tally[s].late_rows += rows;
                self.tally[s].lateness_row_s += rows * beyond;
                self.sink_missed[s] = true;
            }
        }
        if self.sink_done[s] + 1 >= closed {
            self.recovered(s);
        } else if self.sink_behind[s].is_none() {
            // The first epoch that is missing was due when it closed.
            self.sink_behind[s] = Some((self.sink_done[s] + 1) as f64 * e);
        }
    }

    fn recovered(&mut self, s: usize) {
        if let Some(since) = self.sink_behind[s].take() {
            let outage = self.now - since;
            let t = &mut self.tally[s];
            t.outage_s += outage;
            t.outages += 1.0;
            t.misses += f64::from(u8::from(self.sink_missed[s]));
            if self.outages.len() < MOST_OUTAGES {
                self.outages.push(outage);
            }
        }
        self.sink_missed[s] = false;
    }

    /// Lets time pass until `until`.
    pub fn advance(&mut self, until: f64) {
        while self.now < until {
            if self.now >= self.next_change {
                self.change_load();
            }
            if self.trouble.iter().all(Option::is_none) {
                self.now = until.min(self.next_change).min(self.next_repair);
            } else {
                // On the grid of epochs.
                let e = self.epoch_s();
                // After years, times are rounded to far more than nothing.
                let next = ((self.now / e + GRID).floor() + 1.0) * e;
                self.now = if next > self.now { next } else { self.now + e };
                for g in 0..self.trouble.len() {
                    if self.trouble[g].is_some() {
                        self.step(g);
                    }
                }
            }
            self.repair();
        }
    }

    /// Machines come back and get their tasks back, at a barrier and so without loss.
    fn repair(&mut self) {
        if self.next_repair <= self.now {
            let back: Vec<bool> = self.down.iter().map(|&d| d > 0.0 && d <= self.now).collect();
            for t in &mut self.tasks {
                for c in t.copies.iter_mut().filter(|c| back[c.home] && c.at != c.home) {
                    self.load[c.at] -= 1;
                    self.load[c.home] += 1;
                    c.at = c.home;
                }
            }
            self.down.iter_mut().zip(&back).filter(|(_, b)| **b).for_each(|(d, _)| *d = 0.0);
            self.next_repair = self.down.iter().copied().filter(|&d| d > 0.0).fold(f64::INFINITY, f64::min);
        }
        let (tasks, now) = (&mut self.tasks, self.now);
        self.promoted.retain(|&v| {
            // The first copy serves again when it can.
            let t = &mut tasks[v];
            if t.copies[0].ready <= now && t.up_at <= now {
                t.serving = 0;
            }
            t.serving != 0
        });
    }

    fn change_load(&mut self) {
        let load = &self.s.input.load;
        let state = (self.segments[self.segments.len() - 1].1 + 1) % load.len();
        self.segments.push((self.now, state));
        if self.segments.len() > 64 {
            self.segments.remove(0);
        }
        self.next_change = self.now + load[state].length_s * self.rng.random_range(0.75..1.25);
        for g in 0..self.s.groups.len() {
            if self.s.groups[g].iter().any(|&v| self.s.input.tasks[v].rho_at(load[state].level) >= 0.98) {
                self.watch(g);
            }
        }
    }

    /// Whether everybody is current and every machine and copy is there.
    pub fn quiet(&self) -> bool {
        self.trouble.iter().all(Option::is_none)
            && self.down.iter().all(|&d| d <= 0.0)
            && self.tasks.iter().all(|t| t.copies.iter().all(|c| c.ready <= self.now))
    }
}
