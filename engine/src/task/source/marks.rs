//! What a source leaf says of event time at the end of an epoch.

use std::collections::BTreeMap;

use super::super::idle::Mark;
use super::{OpenSplit, SourceLeaf};
use crate::connector::Split;
use crate::types::{Epoch, Tick, WATERMARK_MAX, WATERMARK_MIN, Watermark};

/// Splits of one lane.
#[derive(Default)]
struct Lane {
    /// Greatest event time seen in any of them.
    max_time: Option<i64>,
    /// One is open or waits.
    goes_on: bool,
}

impl SourceLeaf {
    /// Whether what the other tasks said at the end of the epoch before `epoch` is known, if this
    /// task has to know it to close `epoch`.
    pub(super) fn knows_others(&self, epoch: Epoch) -> bool {
        let waits = (self.lets_go() || self.may_have_none()) && epoch > self.ctx.start;
        !waits || self.posted_before(epoch).is_some() || self.others(epoch - 1).is_some()
    }

    /// Whether splits are let go that are silent.
    pub(super) fn lets_go(&self) -> bool {
        self.spec.watermark.is_some_and(|w| w.idle_us.is_some())
    }

    /// Whether a task may have no split while others have.
    pub(super) fn may_have_none(&self) -> bool {
        self.spec.watermark.is_some() && self.ctx.connector.discover_every().is_some()
    }

    /// The least watermark of the tasks that are not idle, once it is known. Without a timeout only
    /// tasks that have no split are, and only for the other tasks of their source. Those that have
    /// ended are no reason to say that this one has.
    pub(super) fn others(&self, epoch: Epoch) -> Option<Option<Watermark>> {
        let others = if self.lets_go() { self.ctx.group.active(epoch) } else { self.ctx.group.active_here(epoch) };
        others.map(|least| least.map(|w| w.min(WATERMARK_MAX - 1)))
    }

    pub(super) fn posted_before(&self, epoch: Epoch) -> Option<Mark> {
        self.ctx.group.posted(epoch, self.ctx.task.index as usize)
    }

    /// An idle task follows the others one epoch later: it asks for that epoch.
    pub(super) fn follow(&mut self, epoch: Epoch) {
        let idle = epoch > self.ctx.start && self.posted_before(epoch - 1).is_some_and(|m| m.idle);
        if idle && self.others(epoch - 1).flatten().is_some_and(|w| w > self.posted) {
            self.ask(false);
        }
    }

    /// When, by the clock, a split is let go next.
    pub(in crate::task) fn due(&self) -> Option<i64> {
        self.due_us
    }

    /// The watermark from the end of an epoch on.
    pub(super) fn mark(&mut self, tick: Tick) -> Mark {
        self.due_us = None;
        if self.ended || !(self.lets_go() || self.may_have_none()) {
            return Mark { watermark: self.watermark(), idle: false };
        }
        if let Some(before) = self.posted_before(tick.epoch) {
            return before;
        }
        let others = if tick.epoch > self.ctx.start { self.others(tick.epoch - 1).flatten() } else { None };
        if let Some(idle_us) = self.spec.watermark.and_then(|w| w.idle_us) {
            return self.mark_anew(tick.now_us, idle_us, others);
        }
        let none = self.open.iter().all(|s| s.closed.offset == s.closed.split.start);
        if none {
            let watermark = others.unwrap_or(WATERMARK_MIN).max(self.last_late_below).max(self.posted);
            return Mark { watermark, idle: true };
        }
        Mark { watermark: self.watermark(), idle: false }
    }

    /// The watermark where splits are let go, when it is first asked for; `others` is that of the
    /// tasks, of this source and of others, that are not idle.
    pub(super) fn mark_anew(&mut self, now_us: i64, idle_us: i64, others: Option<Watermark>) -> Mark {
        let watch = self.ctx.connector.discover_every().is_some();
        let begun = |w: &Split| self.open.iter().any(|s| s.closed.split.lane == w.lane);
        if !watch && !self.waiting.iter().all(begun) {
            return Mark { watermark: self.posted, idle: false };
        }
        let delay = self.spec.watermark.map_or(0, |w| w.delay_us);
        let until = |since: Option<i64>| since.unwrap_or(now_us).saturating_add(idle_us);
        let began = |s: &&OpenSplit| s.closed.offset != s.closed.split.start;
        // Each split's watermark, and when it is let go.
        let live: Vec<(Watermark, i64)> = self
            .open
            .iter()
            .filter(|s| !s.ended && (!watch || began(s)))
            .map(|s| (s.max_time.map_or(WATERMARK_MIN, |t| t.saturating_sub(delay)), until(s.closed.moved_us)))
            .collect();
        let active = live.iter().filter(|s| s.1 > now_us);
        self.due_us = active.clone().map(|s| s.1).min();
        let mut idle = false;
        let watermark = match active.map(|s| s.0).min() {
            Some(w) => w,
            None => {
                // The splits that were let go last held it last. Without any, the task is idle in time.
                let last = live.iter().map(|s| s.1).max().unwrap_or(until(self.began_us));
                idle = last <= now_us;
                if !idle {
                    self.due_us = Some(last);
                }
                let own = live.iter().filter(|s| s.1 == last).map(|s| s.0).min().unwrap_or(WATERMARK_MIN);
                if idle { own.max(others.unwrap_or(WATERMARK_MIN)) } else { own }
            }
        };
        Mark { watermark: watermark.max(self.last_late_below).max(self.posted), idle }
    }

    pub(super) fn watermark(&self) -> Watermark {
        if self.ended {
            return WATERMARK_MAX;
        }
        let Some(spec) = self.spec.watermark else { return WATERMARK_MIN };
        let watch = self.ctx.connector.discover_every().is_some();
        let least = if watch {
            // Those splits count from which something was read: which others have been found by
            // now depends on the time, and a replay comes later.
            let began = |s: &&OpenSplit| s.closed.ended || s.closed.offset != s.closed.split.start;
            self.open.iter().filter(began).map(|s| s.max_time).min().unwrap_or(None)
        } else {
            let lanes = self.lanes().into_values();
            match lanes.filter(|l| l.goes_on).map(|l| l.max_time).min() {
                Some(least) => least,
                None => return WATERMARK_MAX,
            }
        };
        // The watermark never goes back, also when a split that was found late is behind.
        least.map_or(WATERMARK_MIN, |t| t.saturating_sub(spec.delay_us)).max(self.last_late_below)
    }

    fn lanes(&self) -> BTreeMap<&str, Lane> {
        let mut lanes: BTreeMap<&str, Lane> = BTreeMap::new();
        for s in &self.open {
            let lane = lanes.entry(&s.closed.split.lane).or_default();
            lane.goes_on |= !s.ended;
            lane.max_time = lane.max_time.max(s.max_time);
        }
        for w in &self.waiting {
            lanes.entry(&w.lane).or_default().goes_on = true;
        }
        lanes
    }
}
