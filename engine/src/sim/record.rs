//! What a simulated run leaves behind: epoch records, the output epoch by epoch, and what the
//! tasks reported. Whatever a task reports twice must be the same both times.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use parking_lot::Mutex;

use crate::connector::{DeadLetter, SinkWriter};
use crate::state::view::ViewReader;
use crate::task::{Events, TaskId};
use crate::types::{Delta, Epoch, Result, SpateError, SplitRange, Tick, Watermark};

/// The records of all epochs of a run: enough to run it again.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Ticks.
    pub ticks: Vec<Tick>,
    /// Ranges by task, source leaf and epoch.
    pub ranges: BTreeMap<(TaskId, usize, Epoch), Arc<[SplitRange]>>,
}

impl History {
    /// Rows that a leaf's tasks have closed epochs over.
    pub fn consumed(&self, fragment: u32, leaf: usize) -> u64 {
        let of_leaf = self.ranges.iter().filter(|((t, l, _), _)| t.fragment == fragment && *l == leaf);
        of_leaf.flat_map(|(_, r)| r.iter()).map(|r| r.end - r.start).sum()
    }
}

/// What one epoch put out, per partition of the target.
#[derive(Debug, Clone, PartialEq)]
pub struct EpochOutput {
    /// The epoch.
    pub epoch: Epoch,
    /// Rows and weights in order, with the watermark.
    pub partitions: Vec<(Delta, Watermark)>,
}

impl EpochOutput {
    /// Reads an epoch of a view's log.
    pub fn read(reader: &ViewReader, epoch: Epoch) -> Result<Self> {
        let schema = reader.store().schema().clone();
        let barriers = reader.barriers(epoch)?;
        let deltas = reader.epoch(epoch)?;
        let partitions = deltas.iter().zip(&barriers).map(|(d, b)| Ok((canonical(&schema, d)?, b.watermark)));
        Ok(Self { epoch, partitions: partitions.collect::<Result<_>>()? })
    }

    /// One that a sink wrote.
    pub fn written(epoch: Epoch, deltas: &[Delta]) -> Result<Self> {
        let delta = match deltas.first() {
            Some(d) => vec![(canonical(&d.schema(), deltas)?, 0)],
            None => Vec::new(),
        };
        Ok(Self { epoch, partitions: delta })
    }

    /// Rows in all partitions.
    pub fn num_rows(&self) -> usize {
        self.partitions.iter().map(|(d, _)| d.num_rows()).sum()
    }
}

/// All rows in one delta with weights.
fn canonical(schema: &arrow::datatypes::SchemaRef, deltas: &[Delta]) -> Result<Delta> {
    let all = Delta::concat(schema, deltas)?;
    let weights = all.weights_or_ones();
    Delta::new(all.rows().clone(), Some(weights))
}

#[derive(Debug, Default)]
struct Inner {
    history: History,
    want: Option<bool>,
    completed: BTreeMap<TaskId, BTreeMap<Epoch, Watermark>>,
    late: u64,
    accepted: u64,
    replayed: u64,
    failed: Option<String>,
}

/// Receives what tasks report, and answers for closed epochs.
#[derive(Debug, Default)]
pub struct Recorder {
    inner: Mutex<Inner>,
    /// The run to repeat.
    repeat: Option<History>,
}

impl Recorder {
    /// A recorder of a run that repeats another, or of a new one.
    pub fn new(repeat: Option<History>) -> Arc<Self> {
        Arc::new(Self { inner: Mutex::default(), repeat })
    }

    /// Whether a tick is wanted, and whether at once.
    pub fn wanted(&self) -> Option<bool> {
        self.inner.lock().want
    }

    /// Notes that a tick was issued.
    pub fn ticked(&self, tick: Tick) {
        let mut inner = self.inner.lock();
        inner.want = None;
        inner.history.ticks.push(tick);
    }

    /// Why a task could not go on, if one could not.
    pub fn failure(&self) -> Option<String> {
        self.inner.lock().failed.clone()
    }

    /// The newest epoch that all these leaves have closed; `start` if there are none.
    pub fn closed_by(&self, leaves: &[(TaskId, usize)], start: Epoch, none: Epoch) -> Epoch {
        let inner = self.inner.lock();
        let newest = |(task, leaf): &(TaskId, usize)| {
            let range = (*task, *leaf, 0)..=(*task, *leaf, Epoch::MAX);
            inner.history.ranges.range(range).next_back().map_or(start, |((_, _, e), _)| *e)
        };
        leaves.iter().map(newest).min().unwrap_or(none)
    }

    /// The newest epoch that all these tasks have finished.
    pub fn done_by(&self, tasks: &[TaskId], start: Epoch) -> Epoch {
        let inner = self.inner.lock();
        let newest = |t: &TaskId| inner.completed.get(t).and_then(|c| c.last_key_value()).map_or(start, |(e, _)| *e);
        tasks.iter().map(newest).min().unwrap_or(start)
    }

    /// The records so far.
    pub fn history(&self) -> History {
        self.inner.lock().history.clone()
    }

    /// Rows that were consumed by a leaf.
    pub fn consumed(&self, fragment: u32, leaf: usize) -> u64 {
        self.inner.lock().history.consumed(fragment, leaf)
    }

    /// Late rows told of; rows accepted (also in vain); epochs that were closed again.
    pub fn counts(&self) -> (u64, u64, u64) {
        let inner = self.inner.lock();
        (inner.late, inner.accepted, inner.replayed)
    }
}

impl Inner {
    fn fail(&mut self, text: String) {
        self.failed.get_or_insert(text);
    }
}

impl Events for Recorder {
    fn want_tick(&self, _: TaskId, now: bool) {
        let mut inner = self.inner.lock();
        inner.want = Some(inner.want.unwrap_or(false) || now);
    }

    fn closed(&self, task: TaskId, leaf: usize, tick: Tick, ranges: &[SplitRange]) {
        let mut inner = self.inner.lock();
        let key = (task, leaf, tick.epoch);
        match inner.history.ranges.get(&key) {
            None => {
                inner.history.ranges.insert(key, ranges.into());
            }
            Some(before) => {
                let same = **before == *ranges;
                inner.replayed += 1;
                if !same {
                    inner.fail(format!("{task} closes epoch {} over other ranges than before", tick.epoch));
                }
            }
        }
    }

    fn completed(&self, task: TaskId, epoch: Epoch, watermark: Watermark) {
        let mut inner = self.inner.lock();
        let before = inner.completed.entry(task).or_default().insert(epoch, watermark);
        if before.is_some_and(|b| b != watermark) {
            inner.fail(format!("{task} ends epoch {epoch} with watermark {watermark}, before it was {before:?}"));
        }
    }

    fn replay(&self, task: TaskId, leaf: usize, epoch: Epoch) -> Option<Arc<[SplitRange]>> {
        let key = (task, leaf, epoch);
        match &self.repeat {
            Some(h) => h.ranges.get(&key).cloned(),
            None => self.inner.lock().history.ranges.get(&key).cloned(),
        }
    }

    fn dead_letters(&self, source: &Arc<str>, letters: Vec<DeadLetter>) {
        self.inner.lock().fail(format!("{} dead letters of {source}", letters.len()));
    }

    fn late(&self, _: &Arc<str>, _: Epoch, rows: RecordBatch) {
        self.inner.lock().late += rows.num_rows() as u64;
    }

    fn accepted(&self, _: TaskId, _: usize, _: Epoch, rows: &RecordBatch) {
        self.inner.lock().accepted += rows.num_rows() as u64;
    }

    fn caught_up(&self, _: TaskId, _: Epoch, _: bool) {}

    fn failed(&self, task: TaskId, epoch: Epoch, error: SpateError) {
        self.inner.lock().fail(format!("{task} fails in epoch {epoch}: {error}"));
    }
}

/// What a sink wrote.
pub type Written = Arc<Mutex<Vec<(Epoch, Vec<Delta>)>>>;

/// A sink that remembers, and refuses an epoch that does not follow.
#[derive(Debug)]
pub struct MemorySink(pub Written);

impl SinkWriter for MemorySink {
    fn write_epoch(&mut self, epoch: Epoch, deltas: &[Delta]) -> Result<()> {
        let mut all = self.0.lock();
        if all.last().is_some_and(|(e, _)| *e >= epoch) {
            return Err(SpateError::internal(format!("epoch {epoch} was written before")));
        }
        all.push((epoch, deltas.to_vec()));
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}
