//! Checkpoints: snapshots of all tasks and tables at the end of one epoch, and the manifest that names
//! them.
//!
//! One checkpoint runs at a time. Tasks hand over what changed; encoding and writing happen on a thread
//! of its own. A manifest is written once all parts are on disk, in one commit with the removal of
//! the records that it makes needless; what no manifest names is deleted after that. A checkpoint
//! at which something cannot be gone on from (a view that still reads what was there when it
//! was made) becomes no manifest; its parts stay in their chains.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use spate_engine::checkpoint::Snapshots;
use spate_engine::env::DurableDir;
use spate_engine::plan::ObjectId;
use spate_engine::state::TableSegment;
use spate_engine::task::TaskId;
use spate_engine::task::driver::TaskSnapshot;
use spate_engine::types::{Epoch, Result, SpateError, Tick, Watermark};

use super::meta::{Batch, Meta};
use super::snapshot;

/// Name of the manifest.
const MANIFEST: &str = "manifest";
/// Snapshots in a chain at the most.
const CHAIN: usize = 64;
/// Bytes of a file of snapshots, about.
const PACK_BYTES: usize = 16 << 20;
/// How long a failed write waits before it is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// What has snapshots of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Part {
    /// A task.
    Task(TaskId),
    /// A table that DML writes.
    Table(ObjectId),
}

impl From<TaskId> for Part {
    fn from(t: TaskId) -> Self {
        Self::Task(t)
    }
}

/// A snapshot on disk: where in which file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Stored {
    file: String,
    at: usize,
    bytes: usize,
    full: bool,
}

/// Snapshots that go into one file: every file costs the disk as much as some megabytes.
#[derive(Debug, Default)]
struct Pack {
    epoch: Epoch,
    bytes: Vec<u8>,
    parts: Vec<Packed>,
}

#[derive(Debug)]
struct Packed {
    part: Part,
    at: usize,
    bytes: usize,
    full: bool,
    caught_up: bool,
}

/// What a checkpoint consists of.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Manifest {
    tick: Tick,
    /// Chains, oldest snapshot first.
    parts: Vec<(Part, Vec<Stored>)>,
}

impl Manifest {
    /// The tick at whose end it is.
    pub fn tick(&self) -> Tick {
        self.tick
    }

    /// Everything that belongs to a job or table: which parts, and the files of each.
    fn chains(&self) -> BTreeMap<Part, Vec<Stored>> {
        self.parts.iter().cloned().collect()
    }
}

/// The checkpoint that is being taken.
#[derive(Debug)]
struct Running {
    tick: Tick,
    waiting: BTreeSet<Part>,
    caught_up: bool,
}

#[derive(Debug, Default)]
struct Inner {
    /// Tasks of each job that is part of checkpoints, and tables.
    members: BTreeMap<u64, BTreeSet<Part>>,
    running: Option<Running>,
    chains: BTreeMap<Part, Vec<Stored>>,
    /// Files that the manifest on disk names.
    named: BTreeSet<String>,
    current: Epoch,
    /// What is to come into the commit of the next manifest.
    along: Batch,
    /// The last checkpoint that ended, whether or not it became current.
    ended: Epoch,
}

enum Work {
    Part(Part, TaskSnapshot),
    /// The running checkpoint may be complete now.
    Look,
}

/// Told when a checkpoint has ended.
pub type Ended = Box<dyn Fn(Epoch) + Send + Sync>;

/// Takes checkpoints.
pub struct Checkpointer {
    meta: Arc<Meta>,
    dir: DurableDir,
    inner: Mutex<Inner>,
    work: Sender<Work>,
    todo: Mutex<Option<Receiver<Work>>>,
}

impl std::fmt::Debug for Checkpointer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Checkpointer")
    }
}

/// The name of an epoch's record.
pub(super) fn record_key(epoch: Epoch) -> String {
    format!("record/{epoch:020}")
}

impl Checkpointer {
    /// Checkpoints of this data directory; and the manifest that is in it.
    pub fn open(meta: Arc<Meta>, dir: DurableDir) -> Result<(Arc<Self>, Option<Manifest>)> {
        let manifest: Option<Manifest> = match meta.get(MANIFEST)? {
            None => None,
            Some(bytes) => Some(
                serde_json::from_slice(&bytes)
                    .map_err(|e| SpateError::internal(format!("the manifest in the data directory is damaged: {e}")))?,
            ),
        };
        let chains = manifest.as_ref().map(Manifest::chains).unwrap_or_default();
        let named: BTreeSet<String> = chains.values().flatten().map(|s| s.file.clone()).collect();
        let files = dir.list()?;
        if let Some(lost) = named.iter().find(|n| !files.contains(n)) {
            return Err(SpateError::internal(format!("the data directory lacks the snapshot \"{lost}\"")));
        }
        // What a crash left behind before a manifest named it, or after none did any more.
        for orphan in files.iter().filter(|f| !named.contains(*f)) {
            dir.delete(orphan)?;
        }
        let current = manifest.as_ref().map_or(0, |m| m.tick().epoch);
        let (work, todo) = channel();
        let inner = Inner { chains, named, current, ended: current, ..Inner::default() };
        let this = Self { meta, dir, inner: Mutex::new(inner), work, todo: Mutex::new(Some(todo)) };
        Ok((Arc::new(this), manifest))
    }

    /// Starts the thread that writes; `ended` is told of each checkpoint that has ended.
    pub fn start(self: &Arc<Self>, ended: Ended) -> Result<()> {
        let Some(todo) = self.todo.lock().take() else { return Ok(()) };
        let weak = Arc::downgrade(self);
        std::thread::Builder::new().name("spate-snapshots".into()).spawn(move || {
            let (mut pack, mut files) = (Pack::default(), 0);
            while let Ok(work) = todo.recv() {
                let Some(this) = weak.upgrade().filter(|t| !t.meta.is_closed()) else { return };
                if let Work::Part(part, snapshot) = work
                    && let Err(e) = pack.add(part, &snapshot)
                {
                    // Its chain would have a gap: the next snapshot begins it anew.
                    tracing::error!("cannot encode a snapshot: {e}");
                    this.give_up(part);
                }
                if !pack.parts.is_empty() && (pack.bytes.len() >= PACK_BYTES || this.is_all_in(&pack)) {
                    this.write(&mut pack, &mut files);
                }
                this.complete(&ended);
            }
        })?;
        Ok(())
    }

    /// The chain of a part, oldest first; empty if the manifest has none.
    pub fn chain(&self, part: Part) -> Result<Vec<TaskSnapshot>> {
        let chain = self.inner.lock().chains.get(&part).cloned().unwrap_or_default();
        let read = |s: &Stored| {
            let bytes = self.dir.get(&s.file, s.at as u64, s.bytes)?;
            snapshot::decode(&s.file, &bytes)
        };
        chain.iter().map(read).collect()
    }

    /// Makes tasks of a job, or a table, part of all checkpoints from now on.
    pub fn join(&self, id: u64, parts: impl IntoIterator<Item = Part>) {
        self.inner.lock().members.insert(id, parts.into_iter().collect());
    }

    /// A job or table is no more, or has failed: checkpoints go on without it.
    pub fn leave(&self, id: u64) {
        let mut inner = self.inner.lock();
        let Some(parts) = inner.members.remove(&id) else { return };
        for part in &parts {
            inner.chains.remove(part);
            if let Some(r) = &mut inner.running {
                r.waiting.remove(part);
            }
        }
        drop(inner);
        let _ = self.work.send(Work::Look);
    }

    /// Begins a checkpoint at the end of the epoch that this tick closes. It must be called before any
    /// task can see the tick, and while none runs.
    pub fn begin(&self, tick: Tick) {
        let mut inner = self.inner.lock();
        let waiting = inner.members.values().flatten().copied().collect();
        inner.running = Some(Running { tick, waiting, caught_up: true });
        drop(inner);
        let _ = self.work.send(Work::Look);
    }

    /// A part has become another one: its next snapshot holds everything, and these changes come into the
    /// same commit as the manifest that names it.
    pub fn restart(&self, part: Part, along: Batch) {
        let mut inner = self.inner.lock();
        inner.chains.remove(&part);
        inner.along = std::mem::take(&mut inner.along).and(along);
    }

    /// Whether a table's snapshot is to be taken with this epoch, and then whether with everything.
    pub fn wants(&self, table: ObjectId, epoch: Epoch) -> Option<bool> {
        let inner = self.inner.lock();
        let part = Part::Table(table);
        let due = inner.running.as_ref().is_some_and(|r| r.tick.epoch == epoch && r.waiting.contains(&part));
        due.then(|| inner.wants_full(part))
    }

    /// Takes a table's snapshot.
    pub fn add_table(&self, table: ObjectId, epoch: Epoch, segment: TableSegment, watermark: Watermark) {
        let full = segment.full;
        let snapshot =
            TaskSnapshot { epoch, full, tables: vec![vec![segment]], leaves: vec![], caught_up: true, watermark };
        let _ = self.work.send(Work::Part(Part::Table(table), snapshot));
    }

    /// The epoch of the newest checkpoint that is current, and of the last one that ended.
    pub fn state(&self) -> (Epoch, Epoch) {
        let inner = self.inner.lock();
        (inner.current, inner.ended)
    }

    /// The running checkpoint cannot become current without this part.
    fn give_up(&self, part: Part) {
        let mut inner = self.inner.lock();
        inner.chains.remove(&part);
        if let Some(r) = &mut inner.running {
            r.waiting.remove(&part);
            r.caught_up = false;
        }
    }

    /// Whether the running checkpoint waits for nothing that is not in the pack.
    fn is_all_in(&self, pack: &Pack) -> bool {
        let inner = self.inner.lock();
        let packed = |p: &Part| pack.parts.iter().any(|x| x.part == *p);
        inner.running.as_ref().is_none_or(|r| r.waiting.iter().all(packed))
    }

    /// Writes snapshots and puts them into their chains. What fails is tried again until it works: nothing
    /// that was handed over may be missing from a chain.
    fn write(&self, pack: &mut Pack, files: &mut u64) {
        let pack = std::mem::take(pack);
        *files += 1;
        let name = format!("{:020}-{files}", pack.epoch);
        let mut told = false;
        while let Err(e) = self.dir.put(&name, &pack.bytes) {
            if self.meta.is_closed() {
                return;
            }
            if !told {
                tracing::error!("cannot write snapshots of epoch {}: {e}; trying again until it works", pack.epoch);
            }
            told = true;
            std::thread::sleep(RETRY);
        }
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        for p in pack.parts {
            if !inner.members.values().any(|m| m.contains(&p.part)) {
                continue;
            }
            let chain = inner.chains.entry(p.part).or_default();
            if p.full {
                chain.clear();
            }
            chain.push(Stored { file: name.clone(), at: p.at, bytes: p.bytes, full: p.full });
            if let Some(r) = inner.running.as_mut().filter(|r| r.tick.epoch == pack.epoch) {
                r.waiting.remove(&p.part);
                r.caught_up &= p.caught_up;
            }
        }
    }

    /// Ends the running checkpoint if all of its parts are there.
    fn complete(&self, ended: &Ended) {
        let mut inner = self.inner.lock();
        if !inner.running.as_ref().is_some_and(|r| r.waiting.is_empty()) {
            return;
        }
        let Some(running) = inner.running.take() else { return };
        let epoch = running.tick.epoch;
        if running.caught_up {
            let parts: Vec<(Part, Vec<Stored>)> = inner.chains.iter().map(|(p, c)| (*p, c.clone())).collect();
            let manifest = Manifest { tick: running.tick, parts };
            let along = std::mem::take(&mut inner.along);
            drop(inner);
            self.commit_surely(&manifest, &along);
            inner = self.inner.lock();
        }
        inner.ended = epoch;
        drop(inner);
        ended(epoch);
    }

    /// Commits a manifest. What fails is tried again until it works: until then the old one and the records
    /// since say everything.
    fn commit_surely(&self, manifest: &Manifest, along: &Batch) {
        let mut told = false;
        while let Err(e) = self.commit(manifest, along) {
            if self.meta.is_closed() {
                return;
            }
            if !told {
                tracing::error!("cannot write the manifest of epoch {}: {e}; trying again", manifest.tick().epoch);
            }
            told = true;
            std::thread::sleep(RETRY);
        }
    }

    fn commit(&self, manifest: &Manifest, along: &Batch) -> Result<()> {
        let epoch = manifest.tick().epoch;
        let bytes = serde_json::to_vec(manifest).map_err(|e| SpateError::internal(format!("a manifest: {e}")))?;
        let upto = record_key(epoch);
        let needless = self.meta.names("record/")?.into_iter().filter(|name| *name <= upto).collect();
        let own = Batch { puts: vec![(MANIFEST.to_owned(), bytes)], deletes: needless };
        self.meta.commit(own.and(along.clone()))?;
        let now: BTreeSet<String> = manifest.parts.iter().flat_map(|p| &p.1).map(|s| s.file.clone()).collect();
        let mut inner = self.inner.lock();
        inner.current = epoch;
        let before = std::mem::replace(&mut inner.named, now.clone());
        drop(inner);
        for gone in before.difference(&now) {
            if let Err(e) = self.dir.delete(gone) {
                // It is found again, and deleted, when the directory is next opened.
                tracing::warn!("cannot delete the snapshot {gone}: {e}");
            }
        }
        Ok(())
    }
}

impl Pack {
    fn add(&mut self, part: Part, snapshot: &TaskSnapshot) -> Result<()> {
        let bytes = snapshot::encode(snapshot)?;
        self.epoch = snapshot.epoch;
        let (full, caught_up) = (snapshot.full, snapshot.caught_up);
        self.parts.push(Packed { part, at: self.bytes.len(), bytes: bytes.len(), full, caught_up });
        self.bytes.extend(bytes);
        Ok(())
    }
}

impl Inner {
    /// A chain begins with everything, and does so again once what changed since is as much.
    fn wants_full(&self, part: Part) -> bool {
        let Some(chain) = self.chains.get(&part).filter(|c| !c.is_empty() && c.len() < CHAIN) else { return true };
        let base = chain.iter().find(|s| s.full).map_or(0, |s| s.bytes);
        let since: usize = chain.iter().filter(|s| !s.full).map(|s| s.bytes).sum();
        since > base.max(64 << 10)
    }
}

impl Snapshots for Checkpointer {
    fn is_due(&self, task: TaskId, epoch: Epoch) -> bool {
        let inner = self.inner.lock();
        inner.running.as_ref().is_some_and(|r| r.tick.epoch == epoch && r.waiting.contains(&task.into()))
    }

    fn wants_full(&self, task: TaskId) -> bool {
        self.inner.lock().wants_full(task.into())
    }

    fn add(&self, task: TaskId, snapshot: TaskSnapshot) {
        let _ = self.work.send(Work::Part(task.into(), snapshot));
    }
}
