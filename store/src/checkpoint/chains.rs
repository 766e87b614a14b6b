//! The books of which snapshots are current. No I/O; what they say counts once a manifest of it
//! is durable.
//!
//! No domino: on every edge from U to T the consumer T takes snapshots at least as often, and a
//! snapshot of U becomes current only once T has one of that epoch or later that is current. So
//! the current snapshots of any set of lost tasks fit together, whoever else lives, and a
//! producer's log can be cut at its consumer's current snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::manifest::{Manifest, SnapshotEntry, TaskEntry};
use super::{StoreError, StoreResult};
use spate_engine::task::TaskId;
use spate_engine::types::Epoch;

/// Snapshots in a chain before a full one is taken, so that what came before can be let go.
pub const CHAIN: usize = 8;

/// Snapshots of the tasks of a job.
#[derive(Debug, Clone)]
pub struct Chains {
    tasks: BTreeMap<TaskId, TaskEntry>,
    /// Snapshots in a chain before a full one is taken.
    limit: usize,
}

impl Chains {
    /// Books of these tasks, without snapshots: each task with its generation, how many epochs lie
    /// between its snapshots, and its consumers.
    ///
    /// # Errors
    /// If a consumer is not among them, or takes snapshots less often than what feeds it, or at
    /// other epochs.
    pub fn new(tasks: impl IntoIterator<Item = (TaskId, u64, u64, Vec<TaskId>)>, limit: usize) -> StoreResult<Self> {
        let entry = |(task, generation, every, consumers)| {
            (task, TaskEntry { task, generation, every, consumers, current: 0, chain: Vec::new() })
        };
        Self::of(tasks.into_iter().map(entry).collect(), limit)
    }

    /// The books as a manifest has them.
    pub fn from_manifest(manifest: &Manifest, limit: usize) -> StoreResult<Self> {
        Self::of(manifest.tasks.iter().map(|t| (t.task, t.clone())).collect(), limit)
    }

    fn of(tasks: BTreeMap<TaskId, TaskEntry>, limit: usize) -> StoreResult<Self> {
        for t in tasks.values() {
            for c in &t.consumers {
                let fits = tasks.get(c).is_some_and(|c| c.every > 0 && t.every.is_multiple_of(c.every));
                if !fits || t.every == 0 {
                    return Err(StoreError::Invalid(format!("{} takes snapshots at other epochs than {c}", t.task)));
                }
            }
        }
        Ok(Self { tasks, limit: limit.max(1) })
    }

    /// What a manifest is to say.
    pub fn manifest(&self, incarnation: u32, job: u64, term: u32, sequence: u64) -> Manifest {
        let epoch = self.tasks.values().map(|t| t.current).min().unwrap_or(0);
        Manifest { incarnation, job, term, sequence, epoch, tasks: self.tasks.values().cloned().collect() }
    }

    /// Whether a task is to take a snapshot at the end of `epoch`.
    pub fn is_due(&self, task: TaskId, epoch: Epoch) -> bool {
        self.tasks.get(&task).is_some_and(|t| epoch > 0 && epoch.is_multiple_of(t.every))
    }

    /// The epoch since which a task's next snapshot is to hold changes; `None`: everything. A task
    /// that has taken snapshots which are not filed yet goes on from the last of those instead; if
    /// one of them is lost on the way, those after it are refused, and the next is to be full.
    pub fn since(&self, task: TaskId) -> Option<Epoch> {
        let chain = &self.tasks.get(&task)?.chain;
        let changes = chain.iter().rev().take_while(|s| !s.is_full()).count();
        chain.last().filter(|_| changes + 1 < self.limit).map(|s| s.epoch)
    }

    /// Files a snapshot whose objects are all durable. Says whether others became current.
    ///
    /// # Errors
    /// If the task is another's by now, or the snapshot does not go on from the one before.
    pub fn file(&mut self, task: TaskId, snapshot: SnapshotEntry) -> StoreResult<bool> {
        let t = self.tasks.get_mut(&task).ok_or_else(|| StoreError::Invalid(format!("{task} is not known")))?;
        if snapshot.generation != t.generation {
            return Err(StoreError::Conflict { what: format!("a snapshot of {task}") });
        }
        let last = t.chain.last().map(|s| s.epoch);
        let follows = snapshot.epoch > last.unwrap_or(0) && (snapshot.is_full() || snapshot.since == last);
        if !follows {
            let text = format!("a snapshot of {task} at epoch {} does not follow that of {last:?}", snapshot.epoch);
            return Err(StoreError::Invalid(text));
        }
        t.chain.push(Arc::new(snapshot));
        Ok(self.settle())
    }

    /// Makes current what can be. Tasks settle one after another from the sinks up; the graph's
    /// depth bounds the rounds.
    fn settle(&mut self) -> bool {
        let mut any = false;
        loop {
            let mut changed = false;
            let ids: Vec<TaskId> = self.tasks.keys().copied().collect();
            for id in ids {
                let current = |c: &TaskId| self.tasks.get(c).map_or(0, |c| c.current);
                let bound = self.tasks[&id].consumers.iter().map(current).min().unwrap_or(Epoch::MAX);
                let Some(t) = self.tasks.get_mut(&id) else { continue };
                let newest = t.chain.iter().map(|s| s.epoch).filter(|e| *e <= bound).max().unwrap_or(0);
                if newest > t.current {
                    t.current = newest;
                    changed = true;
                    // What is older than the newest full snapshot that is current is not needed.
                    let base = t.chain.iter().rposition(|s| s.is_full() && s.epoch <= newest).unwrap_or(0);
                    t.chain.drain(..base);
                }
            }
            if !changed {
                return any;
            }
            any = true;
        }
    }

    /// Epoch of a task's current snapshot; 0 if it has none.
    pub fn current(&self, task: TaskId) -> Epoch {
        self.tasks.get(&task).map_or(0, |t| t.current)
    }

    /// The chain up to a task's current snapshot.
    pub fn chain(&self, task: TaskId) -> &[Arc<SnapshotEntry>] {
        self.tasks.get(&task).map_or(&[], |t| {
            let to = t.chain.iter().position(|s| s.epoch == t.current).map_or(0, |i| i + 1);
            &t.chain[..to]
        })
    }

    /// A task starts again, as a new generation: the chain that it starts from. What is newer than
    /// its current snapshot is dropped; the task takes it anew.
    ///
    /// # Errors
    /// If the generation is not above the last one.
    pub fn restart(&mut self, task: TaskId, generation: u64) -> StoreResult<Vec<Arc<SnapshotEntry>>> {
        let t = self.tasks.get_mut(&task).ok_or_else(|| StoreError::Invalid(format!("{task} is not known")))?;
        if generation <= t.generation {
            return Err(StoreError::Conflict { what: task.to_string() });
        }
        t.generation = generation;
        let current = t.current;
        t.chain.retain(|s| s.epoch <= current);
        Ok(t.chain.clone())
    }

    /// Puts a full snapshot in the place of the chain up to its epoch, out of which it was made.
    /// `false` if that chain is no longer there, or the task has started again (what a generation
    /// before has not filed may be deleted): then the merged snapshot is of no use.
    pub fn replace(&mut self, task: TaskId, merged: SnapshotEntry) -> bool {
        let Some(t) = self.tasks.get_mut(&task) else { return false };
        let at = t.chain.iter().position(|s| s.epoch == merged.epoch);
        match at {
            // Of a snapshot that is not current yet a new generation would take another.
            Some(at)
                if at > 0 && merged.is_full() && merged.generation == t.generation && merged.epoch <= t.current =>
            {
                t.chain.splice(..=at, [Arc::new(merged)]);
                true
            }
            _ => false,
        }
    }

    /// Every object that is or may become part of a restore.
    pub fn objects(&self) -> impl Iterator<Item = &super::objects::ObjectRef> {
        self.tasks.values().flat_map(|t| t.chain.iter()).flat_map(|s| s.objects())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
#[path = "chains_tests.rs"]
mod tests;
