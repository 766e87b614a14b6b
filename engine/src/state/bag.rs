//! `BagTable`: a multiset of rows with weights, found by a hash key.
//!
//! Rows lie in columnar chunks ([`chunk`](super::chunk)) in insertion order. Beside each row:
//! its weight, a number that belongs to the operator (`aux`, e.g. a join degree), the hash of
//! its key, an id that rises with insertion, and its vnode. Rows with the same key hash make
//! a doubly linked chain in insertion order, so a probe yields matches in that order and a
//! row leaves in constant time however many share its key.
//!
//! A table is filled either with `merge` (equal rows add their weights; a row whose weight
//! becomes 0 is gone at once) or with `append` (every row gets a place of its own, no row is
//! looked up), never with both.

mod index;
mod life;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, SchemaRef};

use super::chunk::{NO_SLOT, RowStore, Slot, join_slot, split_slot};
use super::equal::{EqualFn, equal_rows_fn};
use super::slots::{SlotIndex, TOGETHER};
use crate::types::vnode::{VNode, hash_rows, vnode_of};
use crate::types::{Delta, Result, SpateError};

/// A multiset of rows. See the module's text.
#[derive(Debug)]
pub struct BagTable {
    schema: SchemaRef,
    key: Vec<usize>,
    dist: Vec<usize>,
    /// All columns, for whole-row questions.
    all: Vec<usize>,
    /// The key covers every column: its index finds whole rows too.
    key_is_row: bool,
    /// Rows of weight 0 keep their place (see [`BagTable::scratch`]).
    keep_zero: bool,
    store: RowStore,
    meta: Vec<Meta>,
    /// The first row of each chain.
    index: SlotIndex,
    /// Whole rows by their hash; made by the first `merge` or `find` that needs it.
    rows: Option<SlotIndex>,
    slots: usize,
    live: usize,
    total: i64,
    /// No weight has ever been anything but 0 or 1.
    unit: bool,
    next_id: u64,
    /// Ids below this are in the snapshot chain, so their end must be told to it.
    snapshotted_below: u64,
    /// Rows of the snapshot chain that are gone since its last segment.
    gone: Vec<(u64, VNode)>,
}

/// What is kept beside the rows of one chunk, by row. Only the weights are shared with
/// frozen pictures, so only they are copied on write.
#[derive(Debug, Default)]
struct Meta {
    weights: Arc<Vec<i64>>,
    /// Empty means all 0.
    aux: Vec<i64>,
    hashes: Vec<u64>,
    /// Hashes of whole rows; empty without an index of rows.
    row_hashes: Vec<u64>,
    ids: Vec<u64>,
    vnodes: Vec<VNode>,
    /// The rows before and behind in the chain. Before the first comes the last, and behind the
    /// last none.
    links: Vec<(Slot, Slot)>,
    /// Bitmap of rows that changed since the last snapshot.
    dirty: Vec<u64>,
    /// Rows whose weight is not 0.
    live: usize,
    /// Of a timestamp column: no live row has a smaller value.
    min: Option<(usize, i64)>,
}

/// A row's weight before and after one row of a merged delta.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// Where the row is; [`NO_SLOT`] if the delta's weight was 0.
    pub slot: Slot,
    /// Weight before.
    pub old: i64,
    /// Weight after.
    pub new: i64,
}

/// Pairs of a probing row and a stored row with an equal key.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Matches {
    /// Indices of probing rows, rising.
    pub probe: Vec<u32>,
    /// Stored rows; for one probing row in insertion order.
    pub slots: Vec<Slot>,
}

impl Matches {
    /// Keeps the pairs for which `keep` (as long as they are) is true.
    pub fn retain(&mut self, keep: &[bool]) {
        let mut n = 0;
        for (i, _) in keep.iter().enumerate().filter(|(_, keep)| **keep) {
            self.probe[n] = self.probe[i];
            self.slots[n] = self.slots[i];
            n += 1;
        }
        self.probe.truncate(n);
        self.slots.truncate(n);
    }
}

/// How far a probe has come.
#[derive(Debug, Default, Clone, Copy)]
pub struct ProbeCursor {
    row: usize,
    /// Next stored row for `row`, if it has been looked up.
    slot: Option<Slot>,
}

impl ProbeCursor {
    /// Index of the first probing row that may still have matches to come.
    pub fn row(&self) -> usize {
        self.row
    }
}

struct NewRow {
    weight: i64,
    aux: i64,
    hash: u64,
    row_hash: u64,
    id: u64,
    vnode: VNode,
    dirty: bool,
}

/// What a batch of rows asks a table for.
#[derive(Debug, Clone)]
pub struct ProbeKeys {
    /// The key columns.
    pub columns: Vec<ArrayRef>,
    /// Their hashes, one per row.
    pub hashes: Vec<u64>,
    /// Rows that are null here match nothing; `None` lets all rows match.
    pub valid: Option<NullBuffer>,
}

impl ProbeKeys {
    /// The keys of `rows` at `columns`. NULL matches nothing, unless `null_equal`: then NULL.
    pub fn new(rows: &RecordBatch, columns: &[usize], null_equal: bool) -> Result<Self> {
        let columns: Vec<ArrayRef> = columns.iter().map(|&c| rows.column(c).clone()).collect();
        let hashes = hash_rows(&columns, rows.num_rows())?;
        let valid = if null_equal {
            None
        } else {
            let nulls = columns.iter().map(|c| c.logical_nulls());
            let all = nulls.fold(None, |sum, n| NullBuffer::union(sum.as_ref(), n.as_ref()));
            all.filter(|n| n.null_count() > 0)
        };
        Ok(Self { columns, hashes, valid })
    }
}

impl BagTable {
    /// An empty table: columns of the rows, columns of the hash key (may be none: then all
    /// rows share one key), columns that give the vnode.
    pub fn new(schema: SchemaRef, key: Vec<usize>, dist: Vec<usize>) -> Result<Self> {
        let columns = schema.fields().len();
        if let Some(bad) = key.iter().chain(&dist).find(|c| **c >= columns) {
            return Err(SpateError::internal(format!("a table of {columns} columns has no key column {bad}")));
        }
        let key_is_row = (0..columns).all(|c| key.contains(&c));
        let types: Vec<DataType> = schema.fields().iter().map(|f| f.data_type().clone()).collect();
        Ok(Self {
            schema,
            key,
            dist,
            all: (0..columns).collect(),
            key_is_row,
            keep_zero: false,
            store: RowStore::new(types),
            meta: Vec::new(),
            index: SlotIndex::new(),
            rows: None,
            slots: 0,
            live: 0,
            total: 0,
            unit: true,
            next_id: 0,
            snapshotted_below: 0,
            gone: Vec::new(),
        })
    }

    /// Finds whole rows through the key instead of an index of their own. Right for any key, and
    /// cheaper where few rows share one.
    #[must_use]
    pub fn with_unique_key(mut self) -> Self {
        self.key_is_row = true;
        self
    }

    /// An empty table to add up changes in: a row keeps its first place even while its weight
    /// is 0. It is read with `freeze` (which shows no zeros) and emptied with `clear`.
    pub fn scratch(schema: SchemaRef) -> Result<Self> {
        let all: Vec<usize> = (0..schema.fields().len()).collect();
        let mut table = Self::new(schema, all.clone(), all)?;
        table.keep_zero = true;
        Ok(table)
    }

    /// Back to the empty table, as if new.
    pub fn clear(&mut self) {
        if self.slots == 0 {
            return;
        }
        self.store = RowStore::new(self.types());
        self.meta = Vec::new();
        self.index = SlotIndex::new();
        self.rows = None;
        (self.slots, self.live, self.total, self.unit) = (0, 0, 0, true);
        (self.next_id, self.snapshotted_below) = (0, 0);
        self.gone = Vec::new();
    }

    fn types(&self) -> Vec<DataType> {
        self.schema.fields().iter().map(|f| f.data_type().clone()).collect()
    }

    /// Columns of the rows.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Columns of the hash key.
    pub fn key(&self) -> &[usize] {
        &self.key
    }

    /// Number of entries: equal rows that were merged count once.
    pub fn len(&self) -> usize {
        self.live
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Sum of the weights.
    pub fn total_weight(&self) -> i64 {
        self.total
    }

    /// Whether every row has weight 1 (and always had).
    pub fn is_unit(&self) -> bool {
        self.unit
    }

    /// Adds the delta's weights, row by row in order. `hashes` are those of the key columns, if
    /// the caller has them; `aux` becomes the number of rows that are new (0 by default).
    /// Returns one change per row of the delta.
    pub fn merge(&mut self, delta: &Delta, hashes: Option<&[u64]>, aux: Option<&[i64]>) -> Result<Vec<Change>> {
        let columns = delta.rows().columns();
        let n = delta.num_rows();
        self.store.check(columns)?;
        let computed;
        let hashes = match hashes {
            Some(h) => h,
            None => {
                computed = self.hash_columns(columns, &self.key, n)?;
                &computed
            }
        };
        let computed_rows;
        let row_hashes = if self.key_is_row {
            hashes
        } else {
            computed_rows = hash_rows(columns, n)?;
            &computed_rows
        };
        let vnodes = self.vnodes(columns, hashes)?;
        self.ensure_row_index()?;
        if !self.key_is_row {
            self.warm(&self.index, hashes);
        }
        let known = self.known_rows(columns, row_hashes)?;

        let base = self.slots as Slot;
        let mut fresh: Vec<u32> = Vec::new();
        let mut in_batch: Option<EqualFn> = None;
        let mut candidates = Vec::new();
        let mut changes = Vec::with_capacity(n);
        for i in 0..n {
            let w = delta.weight(i);
            if w == 0 {
                changes.push(Change { slot: NO_SLOT, old: 0, new: 0 });
                continue;
            }
            candidates.clear();
            self.candidates(row_hashes[i], &mut candidates);
            let mut found = None;
            for &s in &candidates {
                let same = if s == known[i] {
                    true
                } else if s >= base {
                    let eq = match &mut in_batch {
                        Some(eq) => eq,
                        none => none.insert(equal_rows_fn(columns, columns)?),
                    };
                    eq(fresh[(s - base) as usize] as usize, i)
                } else {
                    self.store.equal(&self.all, &[s], columns, &[i as u32])?[0]
                };
                if same {
                    found = Some(s);
                    break;
                }
            }
            changes.push(match found {
                Some(slot) => {
                    let old = self.weight(slot);
                    let new = old.wrapping_add(w);
                    self.set_weight(slot, new);
                    Change { slot, old, new }
                }
                None => {
                    fresh.push(i as u32);
                    let id = self.next_id;
                    let slot = self.push_row(NewRow {
                        weight: w,
                        aux: aux.map_or(0, |a| a[i]),
                        hash: hashes[i],
                        row_hash: row_hashes[i],
                        id,
                        vnode: vnodes.as_ref().map_or_else(|| vnode_of(hashes[i]), |v| v[i]),
                        dirty: true,
                    });
                    Change { slot, old: 0, new: w }
                }
            });
        }
        self.store.append(columns, &fresh)?;
        Ok(changes)
    }

    /// Adds every row of the delta as a row of its own. Arguments as in [`BagTable::merge`].
    pub fn append(&mut self, delta: &Delta, hashes: Option<&[u64]>, aux: Option<&[i64]>) -> Result<()> {
        let columns = delta.rows().columns();
        let n = delta.num_rows();
        self.store.check(columns)?;
        let computed;
        let hashes = match hashes {
            Some(h) => h,
            None => {
                computed = self.hash_columns(columns, &self.key, n)?;
                &computed
            }
        };
        let vnodes = self.vnodes(columns, hashes)?;
        let row_hashes = if self.rows.is_some() { hash_rows(columns, n)? } else { Vec::new() };
        let mut picked = Vec::with_capacity(n);
        for i in 0..n {
            if i % TOGETHER == 0 {
                self.warm(&self.index, &hashes[i..n.min(i + TOGETHER)]);
            }
            let weight = delta.weight(i);
            if weight == 0 {
                continue;
            }
            picked.push(i as u32);
            self.push_row(NewRow {
                weight,
                aux: aux.map_or(0, |a| a[i]),
                hash: hashes[i],
                row_hash: row_hashes.get(i).copied().unwrap_or(0),
                id: self.next_id,
                vnode: vnodes.as_ref().map_or_else(|| vnode_of(hashes[i]), |v| v[i]),
                dirty: true,
            });
        }
        self.store.append(columns, &picked)
    }

    /// Stored rows with a key equal to that of a probing row. Goes on from `cursor` and stops
    /// after `limit` (at least 1) candidates or at the end, when `cursor.row()` is the number
    /// of probing rows.
    pub fn probe(&self, keys: &ProbeKeys, cursor: &mut ProbeCursor, limit: usize) -> Result<Matches> {
        let mut m = Matches::default();
        let ProbeKeys { columns, hashes, valid } = keys;
        let mut warmed = cursor.row;
        while cursor.row < hashes.len() {
            let i = cursor.row;
            if i == warmed {
                warmed = hashes.len().min(i + TOGETHER);
                self.warm(&self.index, &hashes[i..warmed]);
            }
            let chain = match valid {
                Some(v) if v.is_null(i) => None,
                _ => self.chain(hashes[i]),
            };
            if let Some(head) = chain {
                let mut slot = cursor.slot.take().unwrap_or(head);
                while slot != NO_SLOT {
                    if m.slots.len() >= limit {
                        cursor.slot = Some(slot);
                        return self.checked(m, columns);
                    }
                    m.probe.push(i as u32);
                    m.slots.push(slot);
                    slot = self.next(slot);
                }
            }
            cursor.row += 1;
        }
        self.checked(m, columns)
    }

    /// Those matches whose keys are equal and not only their hashes.
    fn checked(&self, mut m: Matches, keys: &[ArrayRef]) -> Result<Matches> {
        let keep = self.store.equal(&self.key, &m.slots, keys, &m.probe)?;
        if keep.contains(&false) {
            m.retain(&keep);
        }
        Ok(m)
    }

    /// The place of each whole row, if the table has it.
    pub fn find(&mut self, rows: &[ArrayRef], count: usize) -> Result<Vec<Option<Slot>>> {
        self.store.check(rows)?;
        self.ensure_row_index()?;
        let hashes = if self.key_is_row { self.hash_columns(rows, &self.key, count)? } else { hash_rows(rows, count)? };
        let (mut probe, mut slots) = (Vec::new(), Vec::new());
        for (i, h) in hashes.iter().enumerate() {
            self.candidates(*h, &mut slots);
            probe.resize(slots.len(), i as u32);
        }
        let mut found = vec![None; count];
        for (n, same) in self.store.equal(&self.all, &slots, rows, &probe)?.into_iter().enumerate() {
            let place = &mut found[probe[n] as usize];
            if same && place.is_none() {
                *place = Some(slots[n]);
            }
        }
        Ok(found)
    }

    /// Columns `columns` of the rows at `slots`; [`NO_SLOT`] gives NULLs.
    pub fn gather(&self, slots: &[Slot], columns: &[usize]) -> Result<Vec<ArrayRef>> {
        let located = self.store.locate(slots);
        columns.iter().map(|&c| located.gather(c)).collect()
    }

    /// The weight of a row.
    #[inline]
    pub fn weight(&self, slot: Slot) -> i64 {
        let (chunk, row) = split_slot(slot);
        self.meta[chunk].weights[row]
    }

    /// The weights of rows.
    pub fn weights(&self, slots: &[Slot]) -> Vec<i64> {
        slots.iter().map(|&s| self.weight(s)).collect()
    }

    /// The operator's number of a row.
    #[inline]
    pub fn aux(&self, slot: Slot) -> i64 {
        let (chunk, row) = split_slot(slot);
        self.meta[chunk].aux.get(row).copied().unwrap_or(0)
    }

    /// Adds to the operator's number of a row; returns the number after.
    pub fn add_aux(&mut self, slot: Slot, delta: i64) -> i64 {
        let (chunk, row) = split_slot(slot);
        let meta = &mut self.meta[chunk];
        if meta.aux.len() <= row {
            meta.aux.resize(meta.ids.len(), 0);
        }
        meta.aux[row] = meta.aux[row].wrapping_add(delta);
        meta.dirty[row / 64] |= 1 << (row % 64);
        meta.aux[row]
    }

    /// Places of all rows, in insertion order.
    pub fn live_slots(&self) -> impl Iterator<Item = Slot> + '_ {
        self.meta.iter().enumerate().filter(|(_, m)| m.live > 0).flat_map(|(chunk, m)| {
            let live = m.weights.iter().enumerate().filter(|(_, w)| **w != 0);
            live.map(move |(row, _)| join_slot(chunk, row))
        })
    }
}
