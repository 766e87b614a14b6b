//! What may be deleted: what no manifest that must stay restorable reaches, and nobody can still
//! make reachable.
//!
//! The order is what makes it safe: objects are listed *first*, then manifests, pins and
//! generations are read. An object of the list that is unreachable by then, and not among those
//! that a living writer may still file, can never become reachable: only the current generation
//! files snapshots, generations only rise, and a pin is written on the condition that the manifest
//! which it holds is still the current one. So even a
//! leader that was deposed in the middle does no harm with what it goes on to delete.

use std::collections::{BTreeMap, BTreeSet};

use super::manifest::Manifest;
use super::names::{ObjectName, PartName};
use super::objects::{ObjectRef, SnapshotObjects};
use super::{StoreError, StoreResult};
use spate_engine::task::TaskId;
use spate_engine::types::Epoch;

/// What must stay, read from the meta store after the objects were listed.
#[derive(Debug, Clone, Default)]
pub struct Needed {
    /// The current manifest of every job, and the object that it was read from.
    pub manifests: Vec<(Manifest, Option<ObjectRef>)>,
    /// Manifests that a reader or a backup holds by a lease, likewise.
    pub pinned: Vec<(Manifest, Option<ObjectRef>)>,
    /// Tasks of jobs that have no manifest yet, and their generations. Of the others the manifest
    /// says it: a generation rises in one write with all that the one before it has filed.
    pub starting: BTreeMap<TaskId, u64>,
    /// Rises with every restore from a backup.
    pub incarnation: u32,
    /// Of the leader that now is.
    pub term: u32,
}

/// How far a task has come by its job's manifest.
#[derive(Debug, Clone, Copy)]
struct Filed {
    /// Of the task that runs.
    generation: u64,
    /// Newest snapshot filed.
    newest: Epoch,
    /// Epoch of the snapshot that the chain begins with.
    first: Epoch,
}

/// Which of the listed objects may be deleted.
pub fn unreachable(listed: &[(ObjectName, u64)], needed: &Needed) -> Vec<ObjectName> {
    let all = || needed.manifests.iter().chain(&needed.pinned);
    let mut reached: BTreeSet<ObjectName> = BTreeSet::new();
    for (manifest, own) in all() {
        reached.extend(manifest.objects().map(|o| o.name));
        reached.extend(own.map(|o| o.name));
    }
    let fresh = |(task, generation): (&TaskId, &u64)| (*task, Filed { generation: *generation, newest: 0, first: 0 });
    let mut filed: BTreeMap<TaskId, Filed> = needed.starting.iter().map(fresh).collect();
    let mut sequences: BTreeMap<u64, u64> = BTreeMap::new();
    for (manifest, _) in &needed.manifests {
        sequences.insert(manifest.job, manifest.sequence);
        for t in &manifest.tasks {
            let newest = t.chain.last().map_or(0, |s| s.epoch);
            let first = t.chain.first().map_or(0, |s| s.epoch);
            filed.insert(t.task, Filed { generation: t.generation, newest, first });
        }
    }
    let may_come = |name: &ObjectName| match name {
        // Of an incarnation to come, or one that this knows nothing of: not ours to judge.
        n if n.incarnation() > needed.incarnation => true,
        n if n.incarnation() < needed.incarnation => false,
        ObjectName::Part(p) => filed.get(&p.task).is_some_and(|f| part_may_come(p, f)),
        ObjectName::Manifest(m) => {
            m.term >= needed.term && sequences.get(&m.job).is_none_or(|current| m.sequence > *current)
        }
    };
    listed.iter().map(|(name, _)| *name).filter(|n| !reached.contains(n) && !may_come(n)).collect()
}

/// Whether a living task may still file this part.
fn part_may_come(p: &PartName, filed: &Filed) -> bool {
    let above = if p.merged { filed.first } else { filed.newest };
    // A newer generation than the one that was read has just been made.
    p.generation > filed.generation || p.generation == filed.generation && p.epoch > above
}

/// Lists, reads what is needed, and deletes the rest: how many objects. An error anywhere before
/// the first delete deletes nothing; one in between leaves the rest to the next time.
///
/// # Errors
/// If the list or what is needed cannot be read, or an object cannot be deleted.
pub async fn collect(
    objects: &SnapshotObjects,
    needed: impl AsyncFnOnce() -> StoreResult<Needed>,
) -> StoreResult<usize> {
    let listed = objects.list(None).await?;
    let needed = needed().await?;
    if needed.manifests.is_empty() && needed.starting.is_empty() && !needed.pinned.is_empty() {
        // Backups of jobs that nobody knows: more likely that the jobs were not read.
        return Err(StoreError::Invalid("there are backups but no jobs; nothing is deleted".into()));
    }
    let gone = unreachable(&listed, &needed);
    let count = gone.len();
    objects.delete(gone).await?;
    Ok(count)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
#[path = "collect_tests.rs"]
mod tests;
