//! `ViewStore`: the rows of a table or materialized view, readable at recent epochs, and the log
//! of its changes (the logged edge to other jobs and to subscriptions).
//!
//! The rows are those of the newest epoch (for a table that DML writes, of the open one). An
//! older epoch is read by taking back what came after it, from the log. The log reaches back
//! [`KEEP_EPOCHS`] epochs and as far as the slowest reader needs; it shares the exchanges' memory
//! budget and spills with them. A partition is written by one task; epochs are applied whole,
//! under one lock.

mod life;
mod lookup;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::{Field, Schema, SchemaRef};
use parking_lot::{Mutex, MutexGuard, RwLock};

use super::TableSegment;
use super::bag::{BagTable, ProbeCursor, ProbeKeys};
use super::index::RowIndex;
use super::layout::Layout;
use crate::exchange::Spill;
use crate::exchange::spill::Held;
use crate::operator::consolidate::consolidate;
use crate::task::executor::Waker;
use crate::types::{Barrier, Delta, Epoch, ErrorKind, Result, SpateError, Tick, WATERMARK_MIN, Watermark};

/// Epochs that stay readable.
pub const KEEP_EPOCHS: usize = 64;
/// Bytes of changes kept for reading older epochs.
pub const KEEP_BYTES: usize = 16 << 20;
const CHUNK_ROWS: usize = 8192;

#[derive(Debug)]
// One per partition: its size does not matter, an indirection at every write would.
#[allow(clippy::large_enum_variant)]
enum Rows {
    /// Nothing is ever taken back: no index.
    Log(AppendRows),
    Bag(BagTable),
}

#[derive(Debug, Default, Clone)]
struct AppendRows {
    chunks: Vec<RecordBatch>,
    tail: Vec<RecordBatch>,
    tail_rows: usize,
    rows: usize,
    /// Rows that are in the snapshot chain.
    snapshotted: usize,
}

impl AppendRows {
    fn append(&mut self, schema: &SchemaRef, rows: &RecordBatch) -> Result<()> {
        self.rows += rows.num_rows();
        self.tail_rows += rows.num_rows();
        self.tail.push(rows.clone());
        // Small batches are copied together; a lone one is copied too, since it may be a slice.
        if self.tail_rows >= CHUNK_ROWS || self.tail.len() > 64 {
            let all = concat_batches(schema, &self.tail)?;
            self.tail.clear();
            if self.tail_rows >= CHUNK_ROWS {
                self.chunks.push(all);
                self.tail_rows = 0;
            } else {
                self.tail.push(all);
            }
        }
        Ok(())
    }

    /// All rows but the first `n`.
    fn since(&self, mut n: usize) -> Vec<RecordBatch> {
        let mut out = Vec::new();
        for b in self.chunks.iter().chain(&self.tail) {
            let k = b.num_rows().min(n);
            n -= k;
            if k < b.num_rows() {
                out.push(b.slice(k, b.num_rows() - k));
            }
        }
        out
    }

    /// The first `n` rows.
    fn head(&self, mut n: usize) -> Vec<RecordBatch> {
        let mut out = Vec::with_capacity(self.chunks.len() + self.tail.len());
        for b in self.chunks.iter().chain(&self.tail) {
            if n == 0 {
                break;
            }
            let k = b.num_rows().min(n);
            out.push(if k == b.num_rows() { b.clone() } else { b.slice(0, k) });
            n -= k;
        }
        out
    }
}

#[derive(Debug)]
struct LogEntry {
    barrier: Barrier,
    deltas: Vec<Held>,
    bytes: usize,
}

#[derive(Debug)]
struct Partition {
    rows: Rows,
    indexes: Vec<RowIndex>,
    log: VecDeque<LogEntry>,
    log_bytes: usize,
    /// DML only: what the open epoch holds so far (it is in `rows` already).
    open: Vec<Delta>,
    complete: Epoch,
    watermark: Watermark,
}

/// The rows and recent changes of a table or view.
#[derive(Debug)]
pub struct ViewStore {
    layout: RwLock<Layout>,
    partitions: Vec<Mutex<Partition>>,
    readers: Mutex<BTreeMap<u64, Vec<Epoch>>>,
    watchers: Mutex<Vec<(u64, Waker)>>,
    next_id: AtomicU64,
    /// Newest epoch that readers are shown.
    visible: AtomicU64,
    spill: Arc<Spill>,
}

impl ViewStore {
    /// An empty store. `key`: columns that tell rows apart, if there are such; `start`: the epoch before the first that
    /// will be applied.
    pub fn new(
        schema: SchemaRef,
        key: Option<Vec<usize>>,
        append_only: bool,
        partitions: usize,
        start: Epoch,
        spill: Arc<Spill>,
    ) -> Result<Arc<Self>> {
        let key = key.unwrap_or_else(|| (0..schema.fields().len()).collect());
        let partitions = (0..partitions.max(1))
            .map(|_| {
                Ok(Mutex::new(Partition {
                    rows: if append_only {
                        Rows::Log(AppendRows::default())
                    } else {
                        Rows::Bag(BagTable::new(schema.clone(), key.clone(), key.clone())?.with_unique_key())
                    },
                    indexes: Vec::new(),
                    log: VecDeque::new(),
                    log_bytes: 0,
                    open: Vec::new(),
                    complete: start,
                    watermark: WATERMARK_MIN,
                }))
            })
            .collect::<Result<_>>()?;
        Ok(Arc::new(Self {
            layout: RwLock::new(Layout::new(schema)),
            partitions,
            readers: Mutex::default(),
            watchers: Mutex::default(),
            next_id: AtomicU64::new(1),
            visible: AtomicU64::new(start),
            spill,
        }))
    }

    /// Columns.
    pub fn schema(&self) -> SchemaRef {
        self.layout.read().schema.clone()
    }

    /// Number of partitions.
    pub fn partitions(&self) -> usize {
        self.partitions.len()
    }

    fn partition(&self, p: usize) -> Result<MutexGuard<'_, Partition>> {
        self.partitions.get(p).map(Mutex::lock).ok_or_else(|| SpateError::internal("no such partition"))
    }

    /// Newest epoch that all partitions have closed.
    pub fn complete(&self) -> Epoch {
        self.partitions.iter().map(|p| p.lock().complete).min().unwrap_or(0)
    }

    /// Least watermark of the partitions.
    pub fn watermark(&self) -> Watermark {
        self.partitions.iter().map(|p| p.lock().watermark).min().unwrap_or(WATERMARK_MIN)
    }

    /// Bytes held by the rows.
    pub fn memory_size(&self) -> usize {
        (0..self.partitions.len()).map(|p| self.partition_size(p)).sum()
    }

    /// The same of one partition; 0 if there is no such.
    pub fn partition_size(&self, partition: usize) -> usize {
        let Some(p) = self.partitions.get(partition).map(|p| p.lock()) else { return 0 };
        let rows: usize = match &p.rows {
            Rows::Log(l) => l.chunks.iter().chain(&l.tail).map(RecordBatch::get_array_memory_size).sum(),
            Rows::Bag(b) => b.memory_size(),
        };
        rows + p.indexes.iter().map(RowIndex::memory_size).sum::<usize>()
    }

    /// Wakes `waker` whenever a partition closes an epoch, until [`ViewStore::unwatch`].
    pub fn watch(&self, waker: Waker) -> u64 {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.watchers.lock().push((id, waker));
        id
    }

    /// Stops a watch.
    pub fn unwatch(&self, id: u64) {
        self.watchers.lock().retain(|(i, _)| *i != id);
    }

    fn notify(&self) {
        for (_, w) in self.watchers.lock().iter() {
            w.wake();
        }
    }

    /// Applies all of an epoch to a partition and closes it. An epoch that was applied before (a
    /// replay) is dropped.
    pub fn apply(&self, p: usize, barrier: &Barrier, deltas: Vec<Delta>) -> Result<()> {
        let mut part = self.partition(p)?;
        if barrier.tick.epoch <= part.complete {
            return self.check_replay(&part, barrier, &deltas);
        }
        for d in &deltas {
            part.merge(&self.schema(), d)?;
        }
        self.push_log(&mut part, barrier.clone(), deltas)?;
        drop(part);
        self.notify();
        Ok(())
    }

    fn check_replay(&self, part: &Partition, barrier: &Barrier, again: &[Delta]) -> Result<()> {
        let epoch = barrier.tick.epoch;
        let Some(entry) = part.log.iter().find(|e| e.barrier.tick.epoch == epoch) else { return Ok(()) };
        let before: Result<Vec<Delta>> = entry.deltas.iter().map(|d| d.get(&self.schema())).collect();
        let (a, b) = (Delta::concat(&self.schema(), &before?)?, Delta::concat(&self.schema(), again)?);
        if a.rows() != b.rows() || a.weights_or_ones() != b.weights_or_ones() || entry.barrier != *barrier {
            return Err(SpateError::internal(format!("replay of epoch {epoch} differs from what the view holds")));
        }
        Ok(())
    }

    fn push_log(&self, part: &mut Partition, barrier: Barrier, deltas: Vec<Delta>) -> Result<()> {
        let bytes = deltas.iter().map(Delta::memory_size).sum();
        let held = deltas.into_iter().map(|d| self.spill.hold(d)).collect::<Result<_>>()?;
        part.complete = barrier.tick.epoch;
        part.watermark = barrier.watermark;
        part.log_bytes += bytes;
        part.log.push_back(LogEntry { barrier, deltas: held, bytes });
        let visible = self.visible.load(Ordering::Relaxed);
        let needed = self.readers.lock().values().flatten().copied().min().unwrap_or(Epoch::MAX).min(visible + 1);
        while (part.log.len() > KEEP_EPOCHS || part.log_bytes > KEEP_BYTES)
            && part.log.front().is_some_and(|e| e.barrier.tick.epoch < needed)
        {
            if let Some(gone) = part.log.pop_front() {
                part.log_bytes -= gone.bytes;
            }
        }
        Ok(())
    }

    /// Readers are shown `epoch` from now on; what is older may be let go.
    pub fn set_visible(&self, epoch: Epoch) {
        self.visible.fetch_max(epoch, Ordering::Relaxed);
    }

    /// DML: adds a delta to the open epoch of partition 0. Its rows are visible to
    /// [`ViewStore::head`] at once.
    pub fn write(&self, delta: Delta) -> Result<()> {
        let mut part = self.partition(0)?;
        part.merge(&self.schema(), &delta)?;
        part.open.push(delta);
        Ok(())
    }

    /// DML: closes the open epoch of partition 0. Gives what it held and, if `snapshot` asks for one (with
    /// everything in it or not), a snapshot.
    pub fn close(
        &self,
        tick: Tick,
        watermark: Watermark,
        snapshot: Option<bool>,
    ) -> Result<(Vec<Delta>, Option<TableSegment>)> {
        let schema = self.schema();
        let mut part = self.partition(0)?;
        let deltas = std::mem::take(&mut part.open);
        let barrier = Barrier { tick, ranges: Arc::new([]), watermark, complete: true };
        self.push_log(&mut part, barrier, deltas.clone())?;
        let segment = snapshot.map(|full| part.rows.snapshot(&schema, full)).transpose()?;
        drop(part);
        self.notify();
        Ok((deltas, segment))
    }

    /// Whether the open epoch holds anything.
    pub fn has_open(&self) -> bool {
        self.partitions.first().is_some_and(|p| !p.lock().open.is_empty())
    }

    /// DML: the rows of partition 0, open epoch included, expanded to one per unit of weight.
    pub fn head(&self) -> Result<Vec<RecordBatch>> {
        let part = self.partition(0)?;
        let state = part.freeze()?;
        drop(part);
        expand_all(state)
    }

    /// DML: the current rows whose primary key equals one of `keys`: for each hit, the index of
    /// the key and the row.
    pub fn find(&self, keys: &[ArrayRef]) -> Result<(Vec<u32>, RecordBatch)> {
        let part = self.partition(0)?;
        let Rows::Bag(bag) = &part.rows else {
            return Ok((vec![], RecordBatch::new_empty(self.schema())));
        };
        let fields: Vec<Field> =
            keys.iter().enumerate().map(|(i, k)| Field::new(i.to_string(), k.data_type().clone(), true)).collect();
        let keys = RecordBatch::try_new(Arc::new(Schema::new(fields)), keys.to_vec())?;
        let columns: Vec<usize> = (0..keys.num_columns()).collect();
        let m = bag.probe(&ProbeKeys::new(&keys, &columns, false)?, &mut ProbeCursor::default(), usize::MAX)?;
        let all: Vec<usize> = (0..self.schema().fields().len()).collect();
        let columns = bag.gather(&m.slots, &all)?;
        Ok((m.probe, RecordBatch::try_new(self.schema(), columns)?))
    }

    /// Rows of all partitions at `epoch`, expanded to one per unit of weight. Fails if a partition
    /// has not closed the epoch yet, or if it is no longer kept.
    pub fn rows_at(&self, epoch: Epoch) -> Result<Vec<RecordBatch>> {
        let mut out = Vec::new();
        for p in 0..self.partitions.len() {
            out.extend(expand_all(self.weighted_at(p, epoch)?)?);
        }
        Ok(out)
    }

    /// Rows of all partitions at `epoch`, with weights.
    pub fn freeze_at(&self, epoch: Epoch) -> Result<Vec<(RecordBatch, Option<Int64Array>)>> {
        let mut out = Vec::new();
        for p in 0..self.partitions.len() {
            out.extend(self.weighted_at(p, epoch)?);
        }
        Ok(out)
    }

    fn weighted_at(&self, p: usize, epoch: Epoch) -> Result<Vec<(RecordBatch, Option<Int64Array>)>> {
        let part = self.partition(p)?;
        let undo = self.newer(&part, epoch)?;
        if let Rows::Log(l) = &part.rows {
            let weight = |d: &Delta| d.weights().map_or(d.num_rows(), |w| w.values().iter().sum::<i64>() as usize);
            let newer: usize = undo.iter().map(weight).sum();
            return Ok(l.head(l.rows - newer.min(l.rows)).into_iter().map(|b| (b, None)).collect());
        }
        let state = part.freeze()?;
        drop(part);
        if undo.is_empty() {
            return Ok(state);
        }
        let mut all: Vec<Delta> = state.into_iter().map(|(rows, w)| Delta::new(rows, w)).collect::<Result<_>>()?;
        all.extend(undo.iter().map(Delta::negate));
        let net = consolidate(self.schema(), all)?;
        Ok(net.into_iter().map(Delta::into_parts).collect())
    }

    /// Keeps `epoch` readable until the reader is dropped. Fails if it is not complete or not kept.
    pub fn pin(self: &Arc<Self>, epoch: Epoch) -> Result<ViewReader> {
        let pin = self.reader(1, epoch + 1);
        self.partitions.iter().try_for_each(|p| p.lock().keeps(epoch))?;
        Ok(pin)
    }

    /// What came after `epoch`. Fails if the partition has not closed it yet, or if it is no longer kept.
    fn newer(&self, part: &Partition, epoch: Epoch) -> Result<Vec<Delta>> {
        part.keeps(epoch)?;
        let mut undo = Vec::new();
        for e in part.log.iter().filter(|e| e.barrier.tick.epoch > epoch) {
            for d in &e.deltas {
                undo.push(d.get(&self.schema())?);
            }
        }
        undo.extend(part.open.iter().cloned());
        Ok(undo)
    }

    /// Identities of columns, which [`ViewStore::alter`] does not change.
    pub fn column_ids(&self, columns: &[usize]) -> Result<Vec<u32>> {
        self.layout.read().ids(columns)
    }

    /// Where the columns with these identities are now.
    pub fn places(&self, ids: &[u32]) -> Result<Vec<usize>> {
        self.layout.read().places(ids)
    }

    /// Gives the rows and their recent changes other columns: `from` says for each new column which
    /// old one it is, and `convert` makes new rows of old ones. Nothing changes if it fails. The
    /// caller has stopped ticks and writers.
    pub fn alter(
        &self,
        schema: SchemaRef,
        key: Option<Vec<usize>>,
        from: &[Option<usize>],
        convert: &dyn Fn(&RecordBatch) -> Result<RecordBatch>,
    ) -> Result<()> {
        let key = key.unwrap_or_else(|| (0..schema.fields().len()).collect());
        let mut parts: Vec<MutexGuard<'_, Partition>> = self.partitions.iter().map(Mutex::lock).collect();
        let old = self.schema();
        let mut made = Vec::with_capacity(parts.len());
        for part in &parts {
            let mut rows = match &part.rows {
                Rows::Log(_) => Rows::Log(AppendRows::default()),
                Rows::Bag(_) => Rows::Bag(BagTable::new(schema.clone(), key.clone(), key.clone())?.with_unique_key()),
            };
            for (batch, weights) in part.freeze()? {
                rows.merge(&schema, &Delta::new(convert(&batch)?, weights)?)?;
            }
            let mut log = Vec::with_capacity(part.log.len());
            for entry in &part.log {
                let mut deltas = Vec::with_capacity(entry.deltas.len());
                for d in &entry.deltas {
                    let d = d.get(&old)?;
                    deltas.push(self.spill.hold(d.with_rows(convert(d.rows())?)?)?);
                }
                log.push(deltas);
            }
            let open = part.open.iter().map(|d| d.with_rows(convert(d.rows())?)).collect::<Result<Vec<_>>>()?;
            let mut indexes = Vec::with_capacity(part.indexes.len());
            for index in &part.indexes {
                let place = |c: &usize| from.iter().position(|f| *f == Some(*c));
                // An index of a column that goes, goes.
                let Some(columns) = index.columns.iter().map(place).collect::<Option<Vec<usize>>>() else { continue };
                indexes.push(rows.index(index.id, &schema, &columns)?);
            }
            made.push((rows, log, open, indexes));
        }
        self.layout.write().alter(schema, from);
        for (part, (rows, log, open, indexes)) in parts.iter_mut().zip(made) {
            part.rows = rows;
            part.indexes = indexes;
            part.open = open;
            for (entry, deltas) in part.log.iter_mut().zip(log) {
                entry.deltas = deltas;
            }
        }
        Ok(())
    }

    /// Registers a reader of the log with `tasks` positions, from `next` on.
    pub fn reader(self: &Arc<Self>, tasks: usize, next: Epoch) -> ViewReader {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.readers.lock().insert(id, vec![next; tasks.max(1)]);
        ViewReader { store: self.clone(), id }
    }
}

impl Rows {
    fn merge(&mut self, schema: &SchemaRef, delta: &Delta) -> Result<()> {
        match self {
            Rows::Bag(b) => {
                b.merge(delta, None, None)?;
                b.maintain()
            }
            Rows::Log(l) => match delta.weights() {
                None => l.append(schema, delta.rows()),
                Some(w) if w.values().iter().all(|w| *w >= 0) => l.append(schema, &expand(delta.rows(), Some(w))?),
                Some(_) => Err(SpateError::internal("an append-only view was told to take rows back")),
            },
        }
    }

    fn freeze(&self) -> Result<Vec<(RecordBatch, Option<Int64Array>)>> {
        match self {
            Rows::Log(l) => Ok(l.head(l.rows).into_iter().map(|b| (b, None)).collect()),
            Rows::Bag(b) => b.freeze().batches().map(|r| r.map(|(rows, w)| (rows, Some(w)))).collect(),
        }
    }

    /// An index of the rows as they are.
    fn index(&self, id: u64, schema: &SchemaRef, columns: &[usize]) -> Result<RowIndex> {
        let mut index = RowIndex::new(id, schema, columns)?;
        for (rows, weights) in self.freeze()? {
            index.merge(&Delta::new(rows, weights)?)?;
        }
        Ok(index)
    }
}

impl Partition {
    fn merge(&mut self, schema: &SchemaRef, delta: &Delta) -> Result<()> {
        self.rows.merge(schema, delta)?;
        self.indexes.iter_mut().try_for_each(|i| i.merge(delta))
    }

    fn freeze(&self) -> Result<Vec<(RecordBatch, Option<Int64Array>)>> {
        self.rows.freeze()
    }

    /// Fails if `epoch` is not complete or no longer kept.
    fn keeps(&self, epoch: Epoch) -> Result<()> {
        if epoch > self.complete {
            return Err(SpateError::internal(format!("epoch {epoch} is not complete yet")));
        }
        let oldest = self.log.front().map_or(self.complete + 1, |e| e.barrier.tick.epoch);
        if epoch + 1 < oldest {
            return Err(SpateError::new(
                ErrorKind::NotFound,
                format!("epoch {epoch} is no longer kept; the oldest is {}", oldest.saturating_sub(1)),
            ));
        }
        Ok(())
    }

    fn index(&self, id: u64, schema: &SchemaRef, columns: &[usize]) -> Result<RowIndex> {
        self.rows.index(id, schema, columns)
    }
}

fn expand_all(state: Vec<(RecordBatch, Option<Int64Array>)>) -> Result<Vec<RecordBatch>> {
    state.into_iter().map(|(rows, w)| expand(&rows, w.as_ref())).collect()
}

/// One row per unit of weight.
///
/// # Errors
/// When a weight is negative: a row was taken back that was never there.
pub fn expand(rows: &RecordBatch, weights: Option<&Int64Array>) -> Result<RecordBatch> {
    let Some(w) = weights else { return Ok(rows.clone()) };
    if w.values().iter().all(|w| *w == 1) {
        return Ok(rows.clone());
    }
    if w.values().iter().any(|w| *w < 0) {
        return Err(SpateError::internal("a view holds a row with a negative weight"));
    }
    let mut indices = Vec::with_capacity(w.len());
    for (i, w) in w.values().iter().enumerate() {
        for _ in 0..*w {
            indices.push(i as u32);
        }
    }
    Ok(take_record_batch(rows, &UInt32Array::from(indices))?)
}

/// A reader of a store's log. It keeps the log from its slowest position on, until dropped.
#[derive(Debug)]
pub struct ViewReader {
    store: Arc<ViewStore>,
    id: u64,
}

impl ViewReader {
    /// The store.
    pub fn store(&self) -> &Arc<ViewStore> {
        &self.store
    }

    /// Whether all partitions have closed `epoch`.
    pub fn is_complete(&self, epoch: Epoch) -> bool {
        self.store.complete() >= epoch
    }

    fn with_entry<T>(&self, p: usize, epoch: Epoch, f: impl FnOnce(&LogEntry) -> Result<T>) -> Result<T> {
        let part = self.store.partition(p)?;
        let first = part.log.front().map_or(Epoch::MAX, |e| e.barrier.tick.epoch);
        let entry = epoch.checked_sub(first).and_then(|i| part.log.get(usize::try_from(i).ok()?));
        match entry {
            Some(e) => f(e),
            None => Err(SpateError::new(ErrorKind::NotFound, format!("epoch {epoch} is not in the log"))),
        }
    }

    /// The deltas of a complete epoch, per partition.
    pub fn epoch(&self, epoch: Epoch) -> Result<Vec<Vec<Delta>>> {
        (0..self.store.partitions())
            .map(|p| self.with_entry(p, epoch, |e| e.deltas.iter().map(|d| d.get(&self.store.schema())).collect()))
            .collect()
    }

    /// The barriers of a complete epoch, per partition.
    pub fn barriers(&self, epoch: Epoch) -> Result<Vec<Barrier>> {
        (0..self.store.partitions()).map(|p| self.with_entry(p, epoch, |e| Ok(e.barrier.clone()))).collect()
    }

    /// Task `task` needs only epochs after `epoch` from now on.
    pub fn release(&self, task: usize, epoch: Epoch) {
        if let Some(positions) = self.store.readers.lock().get_mut(&self.id)
            && let Some(p) = positions.get_mut(task)
        {
            *p = (*p).max(epoch + 1);
        }
    }
}

impl Drop for ViewReader {
    fn drop(&mut self) {
        self.store.readers.lock().remove(&self.id);
    }
}
