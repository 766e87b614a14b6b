//! What survives the process: epoch records, checkpoints and the catalog, in a data directory.
//!
//! - An epoch is shown to nobody before its record is on disk; a write to a table is acknowledged
//!   only then. Records of several epochs share one commit.
//! - A checkpoint is made of snapshots of all tasks and tables at the end of one epoch; records up to it are
//!   deleted with the commit that makes it current.
//! - An engine that is opened again makes all objects anew from the catalog, fills tables and tasks from the
//!   checkpoint, and repeats the epochs since: the same ticks, the same ranges of the sources, the
//!   same writes. What they put out is the same bit by bit, so sinks drop what they have.

pub mod catalog;
pub mod checkpointer;
pub mod meta;
pub mod record;
pub mod snapshot;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;
use spate_engine::env::DurableDir;
use spate_engine::plan::ObjectId;
use spate_engine::task::TaskId;
use spate_engine::types::{Delta, Epoch, Result, SpateError, SplitRange, Tick, Watermark};

use checkpointer::{Checkpointer, Manifest, record_key};
use meta::{Batch, Meta};
use record::{Record, TableEpoch};

/// How long a failed commit waits before it is tried again.
const RETRY: Duration = Duration::from_millis(200);

/// Told that all epochs up to one have their records on disk.
pub type Recorded = Box<dyn Fn(Epoch) + Send + Sync>;

/// The durable side of an engine. See the module's text.
#[derive(Debug)]
pub struct Durable {
    pub(crate) meta: Arc<Meta>,
    /// Checkpoints.
    pub checkpoints: Arc<Checkpointer>,
    /// The checkpoint that was found.
    pub manifest: Option<Manifest>,
    /// Epochs to be repeated, until all have been.
    replay: Mutex<BTreeMap<Epoch, Arc<Record>>>,
    /// The newest epoch whose record was found.
    last_found: Epoch,
    /// Records that are being put together.
    pending: Mutex<BTreeMap<Epoch, Record>>,
    work: Sender<Epoch>,
    todo: Mutex<Option<Receiver<Epoch>>>,
}

impl Durable {
    /// Opens a data directory, making it if need be.
    ///
    /// # Errors
    /// If it cannot be read or written, if another process has it, or if it is damaged.
    pub fn open(dir: &Path) -> Result<Arc<Self>> {
        let failed = |e: std::io::Error| {
            SpateError::from(e).context(format!("cannot open the data directory \"{}\"", dir.display()))
        };
        let snapshots = DurableDir::open(dir.join("snapshots")).map_err(failed)?;
        let meta = Arc::new(Meta::open(&dir.join("meta.redb"))?);
        let (checkpoints, manifest) = Checkpointer::open(meta.clone(), snapshots)?;
        let mut replay = BTreeMap::new();
        let mut next = manifest.as_ref().map_or(0, |m| m.tick().epoch) + 1;
        for (name, bytes) in meta.scan("record/")? {
            let record = Record::decode(&bytes)?;
            if record.tick.epoch < next {
                // It was written just after the checkpoint that holds its epoch; the next one deletes it.
                continue;
            }
            if record.tick.epoch != next {
                return Err(SpateError::internal(format!("the data directory lacks epoch {next} before {name}")));
            }
            replay.insert(next, Arc::new(record));
            next += 1;
        }
        let (work, todo) = channel();
        Ok(Arc::new(Self {
            meta,
            checkpoints,
            manifest,
            replay: Mutex::new(replay),
            last_found: next - 1,
            pending: Mutex::default(),
            work,
            todo: Mutex::new(Some(todo)),
        }))
    }

    /// Starts the thread that writes records; it tells of those that are on disk.
    pub fn start(self: &Arc<Self>, recorded: Recorded) -> Result<()> {
        let Some(todo) = self.todo.lock().take() else { return Ok(()) };
        let weak = Arc::downgrade(self);
        std::thread::Builder::new().name("spate-records".into()).spawn(move || {
            while let Ok(mut epoch) = todo.recv() {
                // What has come meanwhile shares the commit.
                while let Ok(later) = todo.try_recv() {
                    epoch = epoch.max(later);
                }
                let Some(this) = weak.upgrade() else { return };
                if this.commit_upto(epoch) {
                    recorded(epoch);
                }
            }
        })?;
        Ok(())
    }

    /// The tick of the checkpoint that was found.
    pub fn checkpoint_tick(&self) -> Option<Tick> {
        self.manifest.as_ref().map(Manifest::tick)
    }

    /// The newest epoch whose record was found.
    pub fn last_found(&self) -> Epoch {
        self.last_found
    }

    /// Ticks to be repeated.
    pub fn ticks(&self) -> Vec<Tick> {
        self.replay.lock().values().map(|r| r.tick).collect()
    }

    /// What was written to a table in an epoch that is being repeated.
    pub fn written(&self, table: ObjectId, epoch: Epoch) -> Option<TableEpoch> {
        self.replay.lock().get(&epoch)?.tables.get(&table).cloned()
    }

    /// What a leaf read in an epoch that is being repeated.
    pub fn ranges(&self, task: TaskId, leaf: usize, epoch: Epoch) -> Option<Arc<[SplitRange]>> {
        if epoch > self.last_found {
            return None;
        }
        let replay = self.replay.lock();
        let record = replay.get(&epoch)?;
        Some(record.ranges.get(&(task, leaf)).cloned().unwrap_or_else(|| Arc::new([])))
    }

    /// All up to `epoch` has been repeated.
    pub fn replayed(&self, epoch: Epoch) {
        if epoch <= self.last_found {
            self.replay.lock().retain(|e, _| *e > epoch);
        }
    }

    fn note(&self, tick: Tick, f: impl FnOnce(&mut Record)) {
        if tick.epoch > self.last_found {
            f(self.pending.lock().entry(tick.epoch).or_insert_with(|| Record::new(tick)));
        }
    }

    /// An epoch was closed.
    pub fn ticked(&self, tick: Tick) {
        self.note(tick, |_| {});
    }

    /// A leaf has closed an epoch over these ranges.
    pub fn closed(&self, task: TaskId, leaf: usize, tick: Tick, ranges: &[SplitRange]) {
        if !ranges.is_empty() {
            self.note(tick, |r| drop(r.ranges.insert((task, leaf), ranges.into())));
        }
    }

    /// What an epoch wrote to a table.
    pub fn wrote(&self, table: ObjectId, tick: Tick, watermark: Watermark, deltas: Vec<Delta>) {
        if !deltas.is_empty() {
            self.note(tick, |r| drop(r.tables.insert(table, TableEpoch { watermark, deltas })));
        }
    }

    /// The records of all epochs up to this one are complete: they are to be written.
    pub fn record(&self, epoch: Epoch) {
        let _ = self.work.send(epoch);
    }

    /// Lets go of the data directory: nothing is written to it any more.
    pub fn close(&self) {
        self.meta.close();
    }

    /// Writes records; false if the directory was closed before.
    fn commit_upto(&self, epoch: Epoch) -> bool {
        let mut told = false;
        loop {
            let records: Vec<(Epoch, Result<Vec<u8>>)> =
                self.pending.lock().range(..=epoch).map(|(e, r)| (*e, r.encode())).collect();
            let puts = records.into_iter().map(|(e, r)| Ok((record_key(e), r?))).collect::<Result<Vec<_>>>();
            match puts.and_then(|puts| self.meta.commit(Batch { puts, deletes: vec![] })) {
                Ok(()) => break,
                Err(_) if self.meta.is_closed() => return false,
                Err(e) if !told => {
                    told = true;
                    tracing::error!("cannot write the record of epoch {epoch}: {e}; trying again until it works");
                }
                Err(_) => {}
            }
            std::thread::sleep(RETRY);
        }
        let mut pending = self.pending.lock();
        *pending = pending.split_off(&(epoch + 1));
        true
    }
}
