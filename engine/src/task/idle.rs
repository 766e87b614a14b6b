//! What the tasks of the sources of a job tell each other of their watermarks, epoch by epoch.
//!
//! With `idle_timeout` a split from which nothing has come for so long, by the times of the ticks, does
//! not hold back its task's watermark. A task all of whose splits are idle keeps the watermark that
//! the last of them had, and follows the tasks that are not idle, of its source and of the other
//! sources of the job: at the end of epoch e it takes the least of theirs at the end of e−1, if that
//! is later. So an idle source holds nothing back, and what comes from it later is judged by the
//! watermark that it had followed to.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::executor::Waker;
use crate::types::{Epoch, Result, SpateError, WATERMARK_MAX, Watermark};

/// What a task says at the end of an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) watermark: Watermark,
    /// Nothing has come for long: the watermark follows others.
    pub(super) idle: bool,
}

/// What the tasks of one source share: their watermarks, epoch by epoch.
#[derive(Debug)]
pub struct SourceGroup {
    tasks: usize,
    inner: Mutex<GroupInner>,
    keep_all: bool,
}

#[derive(Debug, Default)]
struct GroupInner {
    epochs: BTreeMap<Epoch, Vec<Option<Mark>>>,
    trimmed: Epoch,
    wakers: Vec<Waker>,
    /// The other sources of the job that have a watermark.
    peers: Vec<Weak<SourceGroup>>,
}

impl SourceGroup {
    /// A group of `tasks` tasks.
    pub fn new(tasks: usize, keep_all: bool) -> Arc<Self> {
        Arc::new(Self { tasks, inner: Mutex::default(), keep_all })
    }

    /// Wakes `waker` when the watermark of an epoch becomes known.
    pub fn watch(&self, waker: Waker) {
        self.inner.lock().wakers.push(waker);
    }

    /// The sources whose watermarks it follows while it is idle.
    pub(super) fn follow(&self, peer: &Arc<SourceGroup>) {
        self.inner.lock().peers.push(Arc::downgrade(peer));
    }

    /// What a task has said of an epoch.
    pub(super) fn posted(&self, epoch: Epoch, task: usize) -> Option<Mark> {
        self.inner.lock().epochs.get(&epoch)?.get(task).copied().flatten()
    }

    /// The least watermark at the end of `epoch` of all tasks that are not idle, of this source and of
    /// those that it follows (`None` within if all are), once all have closed it.
    pub(super) fn active(&self, epoch: Epoch) -> Option<Option<Watermark>> {
        let peers: Vec<Arc<SourceGroup>> = self.inner.lock().peers.iter().filter_map(Weak::upgrade).collect();
        let mut least = self.active_here(epoch)?;
        for p in peers {
            least = [least, p.active_here(epoch)?].into_iter().flatten().min();
        }
        Some(least)
    }

    /// The same, of this source alone.
    pub(super) fn active_here(&self, epoch: Epoch) -> Option<Option<Watermark>> {
        let inner = self.inner.lock();
        let marks = inner.epochs.get(&epoch)?.iter().copied().collect::<Option<Vec<Mark>>>()?;
        Some(marks.iter().filter(|m| !m.idle).map(|m| m.watermark).min())
    }

    pub(super) fn post(&self, epoch: Epoch, task: usize, mark: Mark) -> Result<()> {
        let mut inner = self.inner.lock();
        if epoch < inner.trimmed {
            return Ok(());
        }
        let tasks = self.tasks;
        let e = inner.epochs.entry(epoch).or_insert_with(|| vec![None; tasks]);
        if let Some(slot) = e.get_mut(task) {
            if slot.is_some_and(|before| before != mark) {
                return Err(SpateError::internal(format!("replay of epoch {epoch} gives another watermark")));
            }
            *slot = Some(mark);
        }
        if e.iter().all(Option::is_some) {
            inner.wakers.iter().for_each(Waker::wake);
        }
        while !self.keep_all && inner.epochs.len() > 4 * super::ticks::MAX_IN_FLIGHT as usize {
            inner.epochs.pop_first();
        }
        Ok(())
    }

    /// Forgets epochs before `epoch`: no task of the source goes back that far.
    pub(super) fn trim(&self, epoch: Epoch) {
        let mut inner = self.inner.lock();
        inner.trimmed = inner.trimmed.max(epoch);
        inner.epochs = inner.epochs.split_off(&epoch);
    }

    /// Number of epochs that are kept.
    pub(super) fn kept(&self) -> usize {
        self.inner.lock().epochs.len()
    }

    /// The source-wide watermark at the end of `epoch`, once all tasks have closed it.
    pub(super) fn watermark(&self, epoch: Epoch) -> Option<Watermark> {
        let inner = self.inner.lock();
        inner.epochs.get(&epoch)?.iter().copied().try_fold(WATERMARK_MAX, |m, w| w.map(|w| m.min(w.watermark)))
    }
}
