//! The coordinator: decides when epochs close, and which of them readers may see. A pure state
//! machine: events in, actions out; whoever drives it brings the time and carries actions out.
//!
//! - At most [`MAX_IN_FLIGHT`] epochs are in flight; a tick that is due waits until one is done.
//! - Epoch e is *recorded* once every source leaf of every task has closed it and, of a durable engine, its record is
//!   on disk; *visible* once it is recorded and every task that ends a job has finished it. Both only rise.
//! - An engine that goes on repeats the ticks that were recorded, verbatim, before there is a new one.
//! - One checkpoint runs at a time, at the end of an epoch that has input.
//! - Without input there is no tick: an idle engine does nothing.

mod times;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use spate_engine::task::TaskId;
use spate_engine::task::ticks::MAX_IN_FLIGHT;
use spate_engine::types::{Epoch, Tick};

pub use times::EpochTimes;
use times::Stopwatch;

/// Longest sleep until a time of the wall clock.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Time as the driver sees it.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Wall clock, µs since 1970 UTC.
    pub wall_us: i64,
    /// Monotonic.
    pub mono: Duration,
}

/// What the driver must do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Close an epoch everywhere.
    Tick(Tick),
    /// The record of this epoch is to be made durable; then its output may be committed.
    Record(Epoch),
    /// Readers may see this epoch.
    Visible(Epoch),
    /// A checkpoint is to be taken at the end of the epoch that this tick closes, which comes next.
    Checkpoint(Tick),
    /// Call [`Coordinator::timer`] at this monotonic time.
    WakeAt(Duration),
}

/// A job as the coordinator sees it.
#[derive(Debug, Clone, Default)]
pub struct JobTracking {
    /// First epoch.
    pub start: Epoch,
    /// Leaves that close epochs over connectors, by task.
    pub ticked: BTreeSet<(TaskId, usize)>,
    /// Tasks that end the job.
    pub terminals: BTreeSet<TaskId>,
}

#[derive(Debug)]
struct Job {
    closed: BTreeMap<(TaskId, usize), Epoch>,
    done: BTreeMap<TaskId, Epoch>,
}

/// The state machine.
#[derive(Debug)]
pub struct Coordinator {
    interval: Duration,
    last: Tick,
    jobs: BTreeMap<u64, Job>,
    /// Closed by all source leaves.
    closed: Epoch,
    recorded: Epoch,
    visible: Epoch,
    /// Records are written to disk; [`Coordinator::recorded`] tells of those that are there.
    durable: bool,
    /// Ticks to be repeated.
    replay: VecDeque<Tick>,
    /// The term of new ticks.
    term: u32,
    /// Time between checkpoints, if there are any.
    checkpoint_every: Option<Duration>,
    last_checkpoint: Duration,
    checkpoint_runs: bool,
    /// When the next tick is due, if any is wanted.
    due: Option<Duration>,
    /// When, by the wall clock, tasks change their output though no input comes.
    times: BTreeMap<TaskId, i64>,
    /// How many hold ticks back, each while a job is being added.
    paused: usize,
    watch: Stopwatch,
}

impl Coordinator {
    /// A coordinator whose ticks are at most `interval` apart while there is input.
    pub fn new(interval: Duration) -> Self {
        Self {
            interval,
            last: Tick { incarnation: 1, term: 1, epoch: 0, opened_us: i64::MIN, now_us: i64::MIN },
            jobs: BTreeMap::new(),
            closed: 0,
            recorded: 0,
            visible: 0,
            durable: false,
            replay: VecDeque::new(),
            term: 1,
            checkpoint_every: None,
            last_checkpoint: Duration::ZERO,
            checkpoint_runs: false,
            due: None,
            times: BTreeMap::new(),
            paused: 0,
            watch: Stopwatch::default(),
        }
    }

    /// How long epochs took.
    pub fn times(&self) -> &EpochTimes {
        &self.watch.times
    }

    /// Goes on after the epoch that `last` closed (`None`: at the very beginning), repeating `replay` first, with
    /// records on disk and a checkpoint in every `checkpoint_every`. To be called before anything else.
    pub fn resume_from(&mut self, last: Option<Tick>, replay: Vec<Tick>, checkpoint_every: Duration) {
        if let Some(last) = last {
            (self.last, self.closed, self.visible) = (last, last.epoch, last.epoch);
        }
        let newest = replay.last().copied().unwrap_or(self.last);
        self.recorded = newest.epoch;
        self.term = newest.term + u32::from(newest.epoch > 0);
        self.replay = replay.into();
        self.durable = true;
        self.checkpoint_every = Some(checkpoint_every);
    }

    /// The newest tick's epoch.
    pub fn last(&self) -> Epoch {
        self.last.epoch
    }

    /// Newest epoch that readers may see.
    pub fn visible(&self) -> Epoch {
        self.visible
    }

    /// Whether all epochs that were begun are visible and none is wanted.
    pub fn is_quiet(&self) -> bool {
        self.visible == self.last.epoch && self.due.is_none()
    }

    /// Whether epochs are still being repeated.
    pub fn is_replaying(&self) -> bool {
        !self.replay.is_empty() || self.durable && self.visible < self.recorded.min(self.last.epoch)
    }

    /// Whether nothing is in flight.
    pub fn is_drained(&self) -> bool {
        self.visible == self.last.epoch
    }

    /// Longest time between ticks from now on.
    pub fn set_interval(&mut self, interval: Duration) {
        self.interval = interval;
    }

    /// The longest time between ticks.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// There is input; with `at_once`, it is to be closed without delay.
    pub fn want(&mut self, at_once: bool, now: Now) -> Vec<Action> {
        let at = if at_once { now.mono } else { now.mono + self.interval };
        let earlier = self.due.is_none_or(|d| at < d);
        if earlier {
            self.due = Some(at);
        }
        let mut actions = self.tick_if_due(now);
        if earlier && let Some(d) = self.due {
            actions.push(Action::WakeAt(d));
        }
        actions
    }

    /// The time that a `WakeAt` named has come.
    pub fn timer(&mut self, now: Now) -> Vec<Action> {
        let mut actions = self.tick_if_due(now);
        if let Some(d) = self.due
            && d > now.mono
        {
            actions.push(Action::WakeAt(d));
        }
        actions.extend(self.wait_for_time(now));
        actions
    }

    /// A task changes its output at this time though no input comes, or no longer does.
    pub fn timed(&mut self, task: TaskId, at_us: Option<i64>, now: Now) -> Vec<Action> {
        match at_us {
            Some(at) if self.jobs.contains_key(&task.job) => drop(self.times.insert(task, at)),
            _ => drop(self.times.remove(&task)),
        }
        self.wait_for_time(now)
    }

    /// Ticks if the open epoch, or one opened now, would show a row entering or leaving; wakes
    /// up for the first one later. An epoch in flight that shows it is enough.
    fn wait_for_time(&mut self, now: Now) -> Vec<Action> {
        let opened = self.last.opened_us;
        let Some(at) = self.times.values().copied().filter(|t| *t > opened || self.last.epoch == 0).min() else {
            return Vec::new();
        };
        let wait = u64::try_from(at.saturating_sub(now.wall_us.max(self.last.now_us))).unwrap_or(0);
        if wait > 0 {
            // The wall clock may be set meanwhile: look again now and then.
            return vec![Action::WakeAt(now.mono + Duration::from_micros(wait).min(LOOK_AGAIN))];
        }
        if self.due.is_none_or(|d| d > now.mono) {
            self.due = Some(now.mono);
        }
        self.tick_if_due(now)
    }

    /// Holds ticks back until [`Coordinator::resume`].
    pub fn pause(&mut self) {
        self.paused += 1;
    }

    /// Lets ticks go on, unless somebody else holds them back too.
    pub fn resume(&mut self, now: Now) -> Vec<Action> {
        self.paused = self.paused.saturating_sub(1);
        self.tick_if_due(now)
    }

    /// The records of all epochs up to this one are on disk.
    pub fn recorded(&mut self, epoch: Epoch, now: Now) -> Vec<Action> {
        self.recorded = self.recorded.max(epoch);
        self.advance(now)
    }

    /// The running checkpoint has ended.
    pub fn checkpointed(&mut self) {
        self.checkpoint_runs = false;
    }

    /// Whether a checkpoint is being taken.
    pub fn checkpoint_runs(&self) -> bool {
        self.checkpoint_runs
    }

    /// Ticks with a checkpoint, although ticks are held back: for whoever does that. Nothing may be in flight,
    /// and no checkpoint may run.
    pub fn checkpoint_now(&mut self, now: Now) -> Vec<Action> {
        self.tick(now, true)
    }

    /// Adds a job; its first epoch must not have been ticked yet.
    pub fn add_job(&mut self, id: u64, job: JobTracking) {
        let before = job.start.saturating_sub(1);
        let closed = job.ticked.into_iter().map(|t| (t, before)).collect();
        let done = job.terminals.into_iter().map(|t| (t, before)).collect();
        self.jobs.insert(id, Job { closed, done });
    }

    /// Forgets a job: it was dropped, or it failed.
    pub fn remove_job(&mut self, id: u64, now: Now) -> Vec<Action> {
        self.jobs.remove(&id);
        self.times.retain(|t, _| t.job != id);
        self.advance(now)
    }

    /// A leaf that reads a connector has closed an epoch.
    pub fn closed(&mut self, task: TaskId, leaf: usize, epoch: Epoch, now: Now) -> Vec<Action> {
        match self.jobs.get_mut(&task.job).and_then(|j| j.closed.get_mut(&(task, leaf))) {
            Some(e) if *e < epoch => {
                *e = epoch;
                self.advance(now)
            }
            _ => Vec::new(),
        }
    }

    /// A task has finished an epoch.
    pub fn completed(&mut self, task: TaskId, epoch: Epoch, now: Now) -> Vec<Action> {
        match self.jobs.get_mut(&task.job).and_then(|j| j.done.get_mut(&task)) {
            Some(e) if *e < epoch => {
                *e = epoch;
                self.advance(now)
            }
            _ => Vec::new(),
        }
    }

    fn advance(&mut self, now: Now) -> Vec<Action> {
        let before = self.visible;
        let mut actions = self.settle(now);
        if self.visible > before {
            actions.extend(self.tick_if_due(now));
        }
        actions
    }

    /// What has been closed and finished by all.
    fn settle(&mut self, now: Now) -> Vec<Action> {
        let mut actions = Vec::new();
        let closed = self.jobs.values().flat_map(|j| j.closed.values()).copied().min();
        let closed = closed.unwrap_or(self.last.epoch).min(self.last.epoch);
        if closed > self.closed {
            self.closed = closed;
            // What is repeated has its record.
            if closed > self.recorded {
                actions.push(Action::Record(closed));
                if !self.durable {
                    self.recorded = closed;
                }
            }
        }
        let done = self.jobs.values().flat_map(|j| j.done.values()).copied().min();
        let visible = done.unwrap_or(self.last.epoch).min(self.recorded).min(self.closed);
        if visible > self.visible {
            self.visible = visible;
            self.watch.stop(visible, now.mono);
            actions.push(Action::Visible(visible));
        }
        actions
    }

    fn tick_if_due(&mut self, now: Now) -> Vec<Action> {
        let mut actions = Vec::new();
        while self.paused == 0 && self.last.epoch - self.visible < MAX_IN_FLIGHT {
            let Some(tick) = self.replay.pop_front() else {
                if self.due.is_some_and(|d| d <= now.mono) {
                    actions.extend(self.tick(now, false));
                }
                return actions;
            };
            self.last = tick;
            self.watch.start(tick.epoch, now.mono);
            actions.push(Action::Tick(tick));
            actions.extend(self.settle(now));
        }
        actions
    }

    fn tick(&mut self, now: Now, checkpoint: bool) -> Vec<Action> {
        self.due = None;
        self.last.epoch += 1;
        self.last.term = self.term;
        let before = self.last.now_us;
        self.last.now_us = now.wall_us.max(before.saturating_add(1));
        self.last.opened_us = if before == i64::MIN { self.last.now_us.saturating_sub(1) } else { before };
        self.watch.start(self.last.epoch, now.mono);
        let due = self.checkpoint_every.is_some_and(|every| now.mono >= self.last_checkpoint + every);
        let mut actions = Vec::new();
        if checkpoint || due && !self.checkpoint_runs {
            self.checkpoint_runs = true;
            self.last_checkpoint = now.mono;
            actions.push(Action::Checkpoint(self.last));
        }
        actions.push(Action::Tick(self.last));
        actions.extend(self.advance(now));
        actions.extend(self.wait_for_time(now));
        actions
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Now {
        Now { wall_us: 1_000, mono: Duration::from_millis(ms) }
    }

    fn task(index: u32) -> TaskId {
        TaskId { job: 1, fragment: 0, index }
    }

    fn ticks(actions: &[Action]) -> Vec<Epoch> {
        actions.iter().filter_map(|a| if let Action::Tick(t) = a { Some(t.epoch) } else { None }).collect()
    }

    #[test]
    fn nothing_happens_without_input() {
        let mut c = Coordinator::new(Duration::from_millis(100));
        assert!(c.timer(at(10_000)).is_empty());
        assert!(c.is_quiet());
    }

    #[test]
    fn a_delayed_want_ticks_after_the_interval_and_an_urgent_one_at_once() {
        let mut c = Coordinator::new(Duration::from_millis(100));
        assert_eq!(c.want(false, at(0)), vec![Action::WakeAt(Duration::from_millis(100))]);
        assert!(ticks(&c.timer(at(99))).is_empty());
        assert_eq!(ticks(&c.timer(at(100))), [1]);
        assert_eq!(ticks(&c.want(true, at(101))), [2]);
    }

    #[test]
    fn an_epoch_is_visible_once_closed_and_finished_everywhere() {
        let mut c = Coordinator::new(Duration::from_millis(100));
        let job = JobTracking { start: 1, ticked: [(task(0), 0), (task(0), 2)].into(), terminals: [task(2)].into() };
        c.add_job(1, job);
        assert_eq!(ticks(&c.want(true, at(0))), [1]);
        assert_eq!(c.closed(task(0), 0, 1, at(0)), vec![]);
        assert_eq!(c.completed(task(2), 1, at(0)), vec![]);
        assert_eq!(c.closed(task(0), 2, 1, at(0)), vec![Action::Record(1), Action::Visible(1)]);
    }

    #[test]
    fn eight_epochs_in_flight_hold_the_ninth_back() {
        let mut c = Coordinator::new(Duration::from_millis(100));
        c.add_job(1, JobTracking { start: 1, ticked: [].into(), terminals: [task(0)].into() });
        for e in 1..=8 {
            assert_eq!(ticks(&c.want(true, at(e))), [e]);
        }
        assert!(ticks(&c.want(true, at(9))).is_empty());
        assert_eq!(ticks(&c.completed(task(0), 1, at(10))), [9]);
    }

    #[test]
    fn time_strictly_rises_even_when_the_clock_does_not() {
        let mut c = Coordinator::new(Duration::ZERO);
        let mut last = i64::MIN;
        for _ in 0..5 {
            for a in c.want(true, at(1)) {
                if let Action::Tick(t) = a {
                    assert!(t.now_us > last);
                    last = t.now_us;
                }
            }
        }
    }

    #[test]
    fn a_time_is_waited_for_and_shown_by_one_epoch() {
        let mut c = Coordinator::new(Duration::from_millis(100));
        c.add_job(1, JobTracking { start: 1, ticked: [].into(), terminals: [task(0)].into() });
        c.want(true, at(0));
        c.completed(task(0), 1, at(0));
        let now = |wall_us, ms| Now { wall_us, mono: Duration::from_millis(ms) };
        assert_eq!(c.timed(task(0), Some(5_000), now(2_000, 1)), vec![Action::WakeAt(Duration::from_millis(4))]);
        assert!(c.is_quiet());
        assert!(ticks(&c.timer(now(4_999, 3))).is_empty());
        // One tick opens an epoch at that time, the next one closes it; then all is quiet again.
        let actions = c.timer(now(5_000, 4));
        assert_eq!(ticks(&actions), [2, 3]);
        assert!(actions.iter().any(|a| matches!(a, Action::Tick(t) if t.epoch == 3 && t.opened_us == 5_000)));
        assert!(ticks(&c.timer(now(9_000, 100))).is_empty());
        c.completed(task(0), 3, now(9_000, 101));
        assert!(c.timed(task(0), None, now(9_000, 102)).is_empty());
        assert!(c.is_quiet());
        // A time that is over already is shown at once, however long nothing happened.
        assert_eq!(ticks(&c.timed(task(0), Some(8_000), now(9_000, 103))), [4, 5]);
        c.remove_job(1, now(9_000, 104));
        assert!(c.timed(task(0), Some(20_000), now(9_000, 105)).is_empty());
    }

    #[test]
    fn a_removed_job_no_longer_holds_epochs_back() {
        let mut c = Coordinator::new(Duration::ZERO);
        c.add_job(1, JobTracking { start: 1, ticked: [].into(), terminals: [task(0)].into() });
        c.want(true, at(0));
        assert!(!c.is_quiet());
        assert_eq!(c.remove_job(1, at(1)), vec![Action::Visible(1)]);
        assert!(c.is_quiet());
    }
}
