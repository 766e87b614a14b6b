//! `OrderedTable`: memcomparable keys with weights, kept in order.
//!
//! A two-level tree: a list of blocks of some hundred sorted entries, each behind an `Arc`,
//! so that `freeze` clones pointers and a later write copies one block. An entry whose
//! weight becomes 0 leaves at once. Negative weights (a retraction that came before its
//! insertion) are kept, but such an entry is not *present*: `first` and `last` pass over it.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray, BinaryArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};

use super::TableSegment;
use crate::types::{Result, SpateError};

/// A block is split when it reaches this many entries.
const BLOCK_MAX: usize = 256;
/// A block with fewer is joined to a neighbour that has room.
const BLOCK_MIN: usize = BLOCK_MAX / 8;

#[derive(Debug, Clone)]
struct Entry {
    key: Box<[u8]>,
    weight: i64,
    id: u64,
    vnode: u8,
    dirty: bool,
}

/// Sorted entries, never none outside a call.
#[derive(Debug, Clone, Default)]
struct Block {
    entries: Vec<Entry>,
    /// Whether one of them is.
    dirty: bool,
}

impl Block {
    /// Whether the block begins at or before `key`.
    fn begins_by(&self, key: &[u8]) -> bool {
        self.entries.first().is_some_and(|e| *e.key <= *key)
    }
}

/// Keys with weights, in order. See the module's text.
#[derive(Debug, Default)]
pub struct OrderedTable {
    view: FrozenOrdered,
    next_id: u64,
    snapshot_below: u64,
    gone: Vec<(u64, u8)>,
    key_bytes: usize,
}

/// A state of a table that later changes do not reach; also how a table is read.
#[derive(Debug, Clone, Default)]
pub struct FrozenOrdered {
    blocks: Vec<Arc<Block>>,
    len: usize,
}

/// The least byte string above all that start with `prefix`; `None` if there is none.
pub(crate) fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let keep = prefix.iter().rposition(|&b| b != 0xff)?;
    let mut next = prefix[..=keep].to_vec();
    next[keep] += 1;
    Some(next)
}

impl FrozenOrdered {
    /// Number of entries, present or not.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the first entry `>= key` stands: block and place (perhaps behind the last block).
    fn seek(&self, key: &[u8]) -> (usize, usize) {
        // The last block whose first key is <= key may hold it; else the next one begins above.
        let b = self.blocks.partition_point(|b| b.begins_by(key));
        if b == 0 {
            return (0, 0);
        }
        let entries = &self.blocks[b - 1].entries;
        let i = entries.partition_point(|e| *e.key < *key);
        if i < entries.len() { (b - 1, i) } else { (b, 0) }
    }

    fn entries_from(&self, (block, place): (usize, usize)) -> impl Iterator<Item = &Entry> {
        self.blocks.iter().skip(block).enumerate().flat_map(move |(n, b)| &b.entries[if n == 0 { place } else { 0 }..])
    }

    /// The weight of `key`, 0 if it is not there.
    pub fn weight(&self, key: &[u8]) -> i64 {
        match self.entries_from(self.seek(key)).next() {
            Some(e) if *e.key == *key => e.weight,
            _ => 0,
        }
    }

    /// All entries `>= key` with their weights, ascending (negative ones included).
    pub fn scan_from<'a>(&'a self, key: &[u8]) -> impl Iterator<Item = (&'a [u8], i64)> + use<'a> {
        self.entries_from(self.seek(key)).map(|e| (&*e.key, e.weight))
    }

    /// All entries `< key` with their weights, descending (negative ones included).
    pub fn scan_back<'a>(&'a self, key: &[u8]) -> impl Iterator<Item = (&'a [u8], i64)> + use<'a> {
        self.entries_before(self.seek(key)).map(|e| (&*e.key, e.weight))
    }

    fn entries_before(&self, (block, place): (usize, usize)) -> impl Iterator<Item = &Entry> {
        let head = self.blocks.get(block).map_or(&[][..], |b| &b.entries[..place]);
        let before = self.blocks[..block].iter().rev().flat_map(|b| b.entries.iter().rev());
        head.iter().rev().chain(before)
    }

    /// All entries that start with `prefix`, ascending (negative ones included).
    pub fn scan_prefix<'a>(&'a self, prefix: &'a [u8]) -> impl Iterator<Item = (&'a [u8], i64)> {
        self.scan_from(prefix).take_while(move |(k, _)| k.starts_with(prefix))
    }

    /// The least key present that starts with `prefix`.
    pub fn first(&self, prefix: &[u8]) -> Option<&[u8]> {
        self.scan_from(prefix).take_while(|(k, _)| k.starts_with(prefix)).find(|(_, w)| *w > 0).map(|(k, _)| k)
    }

    /// The greatest key present that starts with `prefix`.
    pub fn last(&self, prefix: &[u8]) -> Option<&[u8]> {
        let end = match successor(prefix) {
            Some(end) => self.seek(&end),
            None => (self.blocks.len(), 0),
        };
        self.entries_before(end).take_while(|e| e.key.starts_with(prefix)).find(|e| e.weight > 0).map(|e| &*e.key)
    }

    /// All rows, as a full snapshot.
    pub fn segment(&self) -> Result<TableSegment> {
        segment(true, self.entries_from((0, 0)), &[])
    }
}

impl std::ops::Deref for OrderedTable {
    type Target = FrozenOrdered;

    fn deref(&self) -> &FrozenOrdered {
        &self.view
    }
}

impl OrderedTable {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `weight` to `key` and returns the weights before and after.
    pub fn add(&mut self, key: &[u8], weight: i64, vnode: u8) -> (i64, i64) {
        if weight == 0 {
            let w = self.view.weight(key);
            return (w, w);
        }
        let blocks = &mut self.view.blocks;
        let at = blocks.partition_point(|b| b.begins_by(key)).saturating_sub(1);
        if blocks.is_empty() {
            blocks.push(Arc::default());
        }
        let block = Arc::make_mut(&mut blocks[at]);
        block.dirty = true;
        let block = &mut block.entries;
        let place = block.partition_point(|e| *e.key < *key);
        if let Some(e) = block.get_mut(place).filter(|e| *e.key == *key) {
            let old = e.weight;
            e.weight = e.weight.wrapping_add(weight);
            e.dirty = true;
            let new = e.weight;
            if new == 0 {
                let e = block.remove(place);
                self.settle(at);
                self.forget(&e);
            }
            return (old, new);
        }
        block.insert(place, Entry { key: key.into(), weight, id: self.next_id, vnode, dirty: true });
        if block.len() >= BLOCK_MAX {
            // Ascending insertion fills blocks; elsewhere halves are best.
            let cut = if place + 1 == block.len() { BLOCK_MAX - BLOCK_MAX / 8 } else { BLOCK_MAX / 2 };
            let mut upper = block.split_off(cut);
            upper.shrink_to_fit();
            blocks.insert(at + 1, Arc::new(Block { entries: upper, dirty: true }));
        }
        self.next_id += 1;
        self.view.len += 1;
        self.key_bytes += key.len();
        (0, weight)
    }

    /// [`Self::add`] for many keys, one after the other; weights before and after, in order.
    pub fn merge<'a>(
        &mut self,
        keys: impl IntoIterator<Item = &'a [u8]>,
        weights: &[i64],
        vnodes: &[u8],
    ) -> Vec<(i64, i64)> {
        keys.into_iter().zip(weights.iter().zip(vnodes)).map(|(k, (&w, &v))| self.add(k, w, v)).collect()
    }

    /// Keeps blocks from growing small and many after removals at `at`.
    fn settle(&mut self, at: usize) {
        let blocks = &mut self.view.blocks;
        let size = |blocks: &[Arc<Block>], i: usize| blocks.get(i).map_or(BLOCK_MAX, |b| b.entries.len());
        let len = size(blocks, at);
        if at >= blocks.len() || len >= BLOCK_MIN {
            return;
        }
        if len == 0 {
            blocks.remove(at);
            return;
        }
        let fits = |other: usize| other + len <= BLOCK_MAX / 2;
        let lower = if at > 0 && fits(size(blocks, at - 1)) {
            at - 1
        } else if fits(size(blocks, at + 1)) {
            at
        } else {
            Arc::make_mut(&mut blocks[at]).entries.shrink_to(BLOCK_MIN);
            return;
        };
        let upper = Arc::unwrap_or_clone(blocks.remove(lower + 1));
        let block = Arc::make_mut(&mut blocks[lower]);
        block.dirty |= upper.dirty;
        block.entries.extend(upper.entries);
        block.entries.shrink_to(BLOCK_MAX / 2);
    }

    /// Book-keeping for an entry that has left its block.
    fn forget(&mut self, e: &Entry) {
        if e.id < self.snapshot_below {
            self.gone.push((e.id, e.vnode));
        }
        self.view.len -= 1;
        self.key_bytes -= e.key.len();
    }

    /// Removes the keys in `[from, to)` (no upper end if `None`); their number.
    pub fn delete_range(&mut self, from: &[u8], to: Option<&[u8]>) -> usize {
        let (first, place) = self.view.seek(from);
        let mut removed: Vec<Entry> = Vec::new();
        let mut at = first;
        let mut empty = Vec::new();
        while at < self.view.blocks.len() {
            let start = if at == first { place } else { 0 };
            let b = &self.view.blocks[at].entries;
            let end = to.map_or(b.len(), |t| b.partition_point(|e| *e.key < *t));
            if end > start {
                let block = &mut Arc::make_mut(&mut self.view.blocks[at]).entries;
                let whole = end == block.len();
                removed.extend(block.drain(start..end));
                if block.is_empty() {
                    empty.push(at);
                }
                if !whole {
                    break;
                }
            } else if end < b.len() {
                break;
            }
            at += 1;
        }
        if let (Some(&a), Some(&b)) = (empty.first(), empty.last()) {
            // Emptied blocks are neighbours.
            self.view.blocks.drain(a..=b);
        }
        removed.iter().for_each(|e| self.forget(e));
        if !removed.is_empty() {
            self.settle(first + 1);
            self.settle(first);
        }
        removed.len()
    }

    /// Removes all keys that start with `prefix`; their number.
    pub fn delete_prefix(&mut self, prefix: &[u8]) -> usize {
        let end = successor(prefix);
        self.delete_range(prefix, end.as_deref())
    }

    /// Removes the keys `>= from` that start with `prefix`; their number.
    pub fn delete_prefix_from(&mut self, prefix: &[u8], from: &[u8]) -> usize {
        let end = successor(prefix);
        self.delete_range(from, end.as_deref())
    }

    /// The present state, for reading it while the table goes on.
    pub fn freeze(&self) -> FrozenOrdered {
        self.view.clone()
    }

    /// What changed since the last call, or everything.
    pub fn snapshot(&mut self, full: bool) -> Result<TableSegment> {
        let gone = std::mem::take(&mut self.gone);
        let blocks = self.view.blocks.iter().filter(|b| full || b.dirty);
        let wanted = blocks.flat_map(|b| &b.entries).filter(|e| full || e.dirty);
        let result = segment(full, wanted, if full { &[] } else { &gone })?;
        for b in self.view.blocks.iter_mut().filter(|b| b.dirty) {
            let b = Arc::make_mut(b);
            b.dirty = false;
            b.entries.iter_mut().for_each(|e| e.dirty = false);
        }
        self.snapshot_below = self.next_id;
        Ok(result)
    }

    /// Fills an empty table from a chain of segments, oldest first.
    pub fn restore(&mut self, chain: &[&TableSegment]) -> Result<()> {
        if !self.view.is_empty() {
            return Err(SpateError::internal("a table must be empty to be restored"));
        }
        let bad = || SpateError::internal("a snapshot of an ordered table is damaged");
        let mut live: BTreeMap<u64, (usize, usize)> = BTreeMap::new();
        for (s, segment) in chain.iter().enumerate() {
            if segment.full {
                live.clear();
            }
            for (row, (&id, &w)) in segment.ids.iter().zip(&segment.weights).enumerate() {
                self.next_id = self.next_id.max(id + 1);
                if w == 0 {
                    live.remove(&id);
                } else {
                    live.insert(id, (s, row));
                }
            }
        }
        let mut entries: Vec<Entry> = Vec::with_capacity(live.len());
        for (id, (s, row)) in live {
            let segment = chain[s];
            let keys = segment.rows.columns().first().and_then(|c| c.as_binary_opt::<i32>()).ok_or_else(bad)?;
            if row >= keys.len() || row >= segment.vnodes.len() {
                return Err(bad());
            }
            let key: Box<[u8]> = keys.value(row).into();
            self.key_bytes += key.len();
            entries.push(Entry { key, weight: segment.weights[row], id, vnode: segment.vnodes[row], dirty: false });
        }
        entries.sort_by(|a, b| a.key.cmp(&b.key));
        self.view.len = entries.len();
        let mut rest = entries.into_iter().peekable();
        while rest.peek().is_some() {
            let entries = rest.by_ref().take(BLOCK_MAX / 2).collect();
            self.view.blocks.push(Arc::new(Block { entries, dirty: false }));
        }
        self.snapshot_below = self.next_id;
        Ok(())
    }

    /// Bytes held, estimated.
    pub fn memory_size(&self) -> usize {
        self.view.blocks.iter().map(|b| b.entries.capacity() * size_of::<Entry>() + 56).sum::<usize>()
            + self.key_bytes
            + self.view.len * 8
            + self.gone.capacity() * 16
    }
}

fn segment<'a>(full: bool, entries: impl Iterator<Item = &'a Entry>, gone: &[(u64, u8)]) -> Result<TableSegment> {
    let entries: Vec<&Entry> = entries.collect();
    let keys = entries.iter().map(|e| Some(&*e.key)).chain(gone.iter().map(|_| None));
    let keys: BinaryArray = keys.collect();
    let ids = entries.iter().map(|e| e.id).chain(gone.iter().map(|g| g.0)).collect();
    let vnodes = entries.iter().map(|e| e.vnode).chain(gone.iter().map(|g| g.1)).collect();
    let weights = entries.iter().map(|e| e.weight).chain(gone.iter().map(|_| 0)).collect();
    let schema = Schema::new(vec![Field::new("key", DataType::Binary, true)]);
    let rows = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(keys)])?;
    Ok(TableSegment { full, ids, vnodes, weights, rows })
}

#[cfg(test)]
#[path = "ordered_tests.rs"]
mod tests;
