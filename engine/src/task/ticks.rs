//! Where source tasks see ticks.

use std::collections::VecDeque;

use parking_lot::RwLock;

use super::executor::Waker;
use crate::types::{Epoch, Tick};

/// The last ticks, and who wants to hear of new ones.
///
/// At most [`MAX_IN_FLIGHT`] epochs are in flight, so a task is never further behind than the
/// board reaches.
#[derive(Debug, Default)]
pub struct TickBoard {
    inner: RwLock<Inner>,
    keep_all: bool,
}

#[derive(Debug, Default)]
struct Inner {
    ticks: VecDeque<Tick>,
    wakers: Vec<(u64, Waker)>,
    /// Newest epoch whose record is durable: its output may be shown and committed.
    recorded: Epoch,
}

/// Epochs of a job that may be in flight; then its sources wait.
pub const MAX_IN_FLIGHT: u64 = 8;

impl TickBoard {
    /// A board that keeps every tick, for simulations that replay.
    pub fn keeping_all() -> Self {
        Self { keep_all: true, ..Self::default() }
    }

    /// The tick of `epoch`, if it was issued.
    pub fn get(&self, epoch: Epoch) -> Option<Tick> {
        let inner = self.inner.read();
        let first = inner.ticks.front()?.epoch;
        let i = usize::try_from(epoch.checked_sub(first)?).ok()?;
        inner.ticks.get(i).copied()
    }

    /// The newest tick.
    pub fn last(&self) -> Option<Tick> {
        self.inner.read().ticks.back().copied()
    }

    /// Puts up a tick; epochs follow one another.
    pub fn post(&self, tick: Tick) {
        let mut inner = self.inner.write();
        inner.ticks.push_back(tick);
        while !self.keep_all && inner.ticks.len() > 4 * MAX_IN_FLIGHT as usize {
            inner.ticks.pop_front();
        }
        for (_, w) in &inner.wakers {
            w.wake();
        }
    }

    /// Forgets ticks up to `epoch`: no task goes back that far.
    pub fn trim(&self, epoch: Epoch) {
        let mut inner = self.inner.write();
        while inner.ticks.len() > 1 && inner.ticks.front().is_some_and(|t| t.epoch <= epoch) {
            inner.ticks.pop_front();
        }
    }

    /// Number of ticks that are kept.
    pub fn kept(&self) -> usize {
        self.inner.read().ticks.len()
    }

    /// Newest epoch whose record is durable.
    pub fn recorded(&self) -> Epoch {
        self.inner.read().recorded
    }

    /// The record of `epoch`, and of all before it, is durable.
    pub fn set_recorded(&self, epoch: Epoch) {
        let mut inner = self.inner.write();
        inner.recorded = inner.recorded.max(epoch);
        for (_, w) in &inner.wakers {
            w.wake();
        }
    }

    /// Wakes `waker` at every change; `key` is to stop it with.
    pub fn watch(&self, key: u64, waker: Waker) {
        let mut inner = self.inner.write();
        inner.wakers.retain(|(k, _)| *k != key);
        inner.wakers.push((key, waker));
    }

    /// No longer wakes the waker of `key`.
    pub fn unwatch(&self, key: u64) {
        self.inner.write().wakers.retain(|(k, _)| *k != key);
    }
}
