//! Snapshots in memory: chains of table segments per task, and which of them are current.
//!
//! No domino: a task's snapshot of epoch e becomes current only once its consumers' snapshots of
//! e (or later) are. So the current snapshots of any set of lost tasks fit together, whoever else
//! lives, and a producer's log can be cut at its consumer's current snapshot.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::task::driver::TaskSnapshot;
use crate::task::events::TaskId;
use crate::task::leaf::LeafState;
use crate::types::Epoch;

/// Snapshots in a chain before a full one is taken, so that what came before can be let go.
pub const CHAIN: usize = 8;

/// Takes the snapshots of tasks. Called from task threads.
pub trait Snapshots: Send + Sync {
    /// Whether a task is to take a snapshot at the end of `epoch`.
    fn is_due(&self, task: TaskId, epoch: Epoch) -> bool;

    /// Whether a task's next snapshot is to hold everything.
    fn wants_full(&self, task: TaskId) -> bool;

    /// Takes a snapshot. Must be quick: what takes time is done elsewhere.
    fn add(&self, task: TaskId, snapshot: TaskSnapshot);
}

/// Snapshots of the tasks of a job.
#[derive(Debug)]
pub struct SnapshotStore {
    inner: Mutex<BTreeMap<TaskId, Entry>>,
}

#[derive(Debug)]
struct Entry {
    every: u64,
    consumers: Vec<TaskId>,
    chain: Vec<TaskSnapshot>,
    current: Epoch,
}

impl SnapshotStore {
    /// A store for these tasks: each with how many epochs lie between its snapshots, and its
    /// consumers. A task whose consumers' number divides its own waits the least for them.
    pub fn new(tasks: impl IntoIterator<Item = (TaskId, u64, Vec<TaskId>)>) -> Self {
        let inner = tasks
            .into_iter()
            .map(|(id, every, consumers)| (id, Entry { every: every.max(1), consumers, chain: Vec::new(), current: 0 }))
            .collect();
        Self { inner: Mutex::new(inner) }
    }

    /// Epoch of a task's current snapshot; 0 if it has none.
    pub fn current(&self, task: TaskId) -> Epoch {
        self.inner.lock().get(&task).map_or(0, |e| e.current)
    }

    /// A task's current snapshot: its epoch and the leaves' state.
    pub fn current_leaves(&self, task: TaskId) -> Option<(Epoch, Vec<LeafState>)> {
        let inner = self.inner.lock();
        let e = inner.get(&task)?;
        e.chain.iter().find(|s| s.epoch == e.current).map(|s| (s.epoch, s.leaves.clone()))
    }

    /// Number of snapshots kept of a task.
    pub fn kept(&self, task: TaskId) -> usize {
        self.inner.lock().get(&task).map_or(0, |e| e.chain.len())
    }

    /// The chain up to a task's current snapshot. What is newer is dropped: the task that comes
    /// back takes it anew.
    pub fn recover(&self, task: TaskId) -> Vec<TaskSnapshot> {
        let mut inner = self.inner.lock();
        match inner.get_mut(&task) {
            Some(e) => {
                let current = e.current;
                e.chain.retain(|s| s.epoch <= current);
                e.chain.clone()
            }
            None => Vec::new(),
        }
    }
}

impl Snapshots for SnapshotStore {
    fn is_due(&self, task: TaskId, epoch: Epoch) -> bool {
        self.inner.lock().get(&task).is_some_and(|e| epoch.is_multiple_of(e.every))
    }

    fn wants_full(&self, task: TaskId) -> bool {
        self.inner.lock().get(&task).is_some_and(|e| {
            let since = e.chain.iter().rev().take_while(|s| !s.full).count();
            e.chain.is_empty() || since + 1 >= CHAIN
        })
    }

    /// Files a snapshot; those that it makes current become so.
    fn add(&self, task: TaskId, snapshot: TaskSnapshot) {
        let mut inner = self.inner.lock();
        if let Some(e) = inner.get_mut(&task)
            && e.chain.last().is_none_or(|s| s.epoch < snapshot.epoch)
        {
            e.chain.push(snapshot);
        }
        // Tasks settle one after another from the sinks up; the graph's depth bounds the rounds.
        loop {
            let mut changed = false;
            let ids: Vec<TaskId> = inner.keys().copied().collect();
            for id in ids {
                let bound = inner[&id]
                    .consumers
                    .iter()
                    .map(|c| inner.get(c).map_or(0, |e| e.current))
                    .min()
                    .unwrap_or(Epoch::MAX);
                if let Some(e) = inner.get_mut(&id) {
                    let newest = e.chain.iter().map(|s| s.epoch).filter(|x| *x <= bound).max().unwrap_or(0);
                    if newest > e.current {
                        e.current = newest;
                        changed = true;
                        // What is older than the newest full snapshot that is current is not needed.
                        let base = e.chain.iter().rposition(|s| s.full && s.epoch <= newest).unwrap_or(0);
                        e.chain.drain(..base);
                    }
                }
            }
            if !changed {
                return;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn task(fragment: u32) -> TaskId {
        TaskId { job: 1, fragment, index: 0 }
    }

    /// Three tasks in a row; 2 ends the job.
    fn store(every: [u64; 3]) -> SnapshotStore {
        SnapshotStore::new([
            (task(0), every[0], vec![task(1)]),
            (task(1), every[1], vec![task(2)]),
            (task(2), every[2], vec![]),
        ])
    }

    fn add(s: &SnapshotStore, t: u32, epoch: Epoch) {
        let full = s.wants_full(task(t));
        s.add(task(t), TaskSnapshot { epoch, full, tables: vec![], leaves: vec![], caught_up: true, watermark: 0 });
    }

    fn current(s: &SnapshotStore) -> [Epoch; 3] {
        [0, 1, 2].map(|t| s.current(task(t)))
    }

    #[test]
    fn a_snapshot_becomes_current_after_those_of_its_consumers() {
        let s = store([1, 1, 1]);
        add(&s, 0, 1);
        add(&s, 0, 2);
        add(&s, 1, 1);
        assert_eq!(current(&s), [0, 0, 0]);
        add(&s, 2, 1);
        assert_eq!(current(&s), [1, 1, 1]);
        add(&s, 2, 2);
        assert_eq!(current(&s), [1, 1, 2]);
        add(&s, 1, 2);
        assert_eq!(current(&s), [2, 2, 2]);
    }

    #[test]
    fn of_uneven_intervals_the_newest_that_fit_together_are_current() {
        let s = store([3, 2, 5]);
        for e in 1..=10 {
            (0..3).filter(|t| s.is_due(task(*t), e)).for_each(|t| add(&s, t, e));
            let [a, b, c] = current(&s);
            assert!(a <= b && b <= c, "{a} {b} {c}");
        }
        assert_eq!(current(&s), [9, 10, 10]);
    }

    #[test]
    fn recovery_drops_what_is_not_current() {
        let s = store([1, 1, 1]);
        (1..=3).for_each(|e| add(&s, 1, e));
        add(&s, 2, 2);
        let epochs: Vec<Epoch> = s.recover(task(1)).iter().map(|x| x.epoch).collect();
        assert_eq!(epochs, [1, 2]);
        add(&s, 1, 3);
        add(&s, 2, 3);
        assert_eq!(s.current(task(1)), 3);
    }

    #[test]
    fn a_chain_starts_with_a_full_snapshot_and_stays_short() {
        let s = store([1, 1, 1]);
        for e in 1..=100 {
            (0..3).rev().for_each(|t| add(&s, t, e));
            for t in 0..3 {
                let chain = s.recover(task(t));
                assert!(chain.first().unwrap().full && chain.len() <= CHAIN, "{}", chain.len());
                assert_eq!(chain.last().unwrap().epoch, e);
            }
        }
    }
}
