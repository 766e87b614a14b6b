//! A bag table over time: freezing, freeing by watermark, compaction, snapshots, restore.

use std::mem;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, new_null_array};
use arrow::compute::{concat, interleave};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, TimeUnit, TimestampMicrosecondType};

use super::{BagTable, Meta, NewRow};
use crate::state::chunk::{CHUNK_ROWS, RowStore, Slot, join_slot, split_slot};
use crate::state::frozen::{FrozenBag, FrozenPart, record_batch};
use crate::state::slots::SlotIndex;
use crate::state::snapshot::TableSegment;
use crate::types::{Result, SpateError};

/// Name of the segment column that holds the operator's numbers.
const AUX: &str = "__aux";

impl BagTable {
    /// The table as it is now, for readers; costs a pointer per chunk.
    pub fn freeze(&self) -> FrozenBag {
        let mut parts = Vec::with_capacity(self.meta.len() + 16);
        for (chunk, meta) in self.meta.iter().enumerate().filter(|(_, m)| m.live > 0) {
            for piece in self.store.pieces(chunk) {
                parts.push(FrozenPart { piece: piece.clone(), weights: meta.weights.clone() });
            }
        }
        FrozenBag::new(self.schema.clone(), parts, self.live, self.total)
    }

    /// Drops rows whose value in `column` (a timestamp of microseconds) is below `bound`; NULLs
    /// stay. Returns how many. Chunks without such rows are not looked at.
    pub fn delete_below(&mut self, column: usize, bound: i64) -> Result<usize> {
        let late = self.below(column, bound)?;
        self.remove(&late);
        Ok(late.len())
    }

    /// Drops the rows at these places.
    pub fn remove(&mut self, slots: &[Slot]) {
        for &slot in slots {
            self.set_weight(slot, 0);
        }
    }

    /// Drops all rows.
    pub fn remove_all(&mut self) {
        let all: Vec<Slot> = match self.is_empty() {
            true => Vec::new(),
            false => self.live_slots().collect(),
        };
        self.remove(&all);
    }

    /// Places of the rows whose value in `column` (a timestamp of microseconds) is below `bound`, in
    /// insertion order. Chunks without such rows are not looked at.
    pub fn below(&mut self, column: usize, bound: i64) -> Result<Vec<Slot>> {
        match self.schema.fields().get(column).map(|f| f.data_type()) {
            Some(DataType::Timestamp(TimeUnit::Microsecond, _)) => {}
            other => {
                return Err(SpateError::internal(format!("rows cannot be freed by column {column} of type {other:?}")));
            }
        }
        let mut late = Vec::new();
        for chunk in 0..self.meta.len() {
            let meta = &self.meta[chunk];
            let untouched = meta.min.is_some_and(|(c, min)| c == column && min >= bound);
            if meta.live == 0 || untouched {
                continue;
            }
            let mut min = i64::MAX;
            for piece in self.store.pieces(chunk) {
                let Some(values) = piece.columns[column].as_primitive_opt::<TimestampMicrosecondType>() else {
                    return Err(SpateError::internal("a timestamp column has values of another type"));
                };
                for i in 0..piece.rows {
                    if meta.weights[piece.start + i] != 0 && !values.is_null(i) {
                        let v = values.value(i);
                        min = min.min(v);
                        if v < bound {
                            late.push(join_slot(chunk, piece.start + i));
                        }
                    }
                }
            }
            self.meta[chunk].min = Some((column, min));
        }
        Ok(late)
    }

    /// Frees the room of dead rows. To be called at barriers: slots do not outlive it.
    pub fn maintain(&mut self) -> Result<()> {
        let dead = self.slots - self.live;
        if self.keep_zero || dead == 0 {
            return Ok(());
        }
        if dead * 2 > self.slots && dead >= CHUNK_ROWS / 4 {
            return self.compact();
        }
        for chunk in 0..self.slots / CHUNK_ROWS {
            let meta = &mut self.meta[chunk];
            if meta.live == 0 && !meta.ids.is_empty() {
                *meta = Meta::default();
                self.store.free(chunk);
            }
        }
        Ok(())
    }

    /// Moves the live rows together, in order.
    fn compact(&mut self) -> Result<()> {
        let live: Vec<Slot> = self.live_slots().collect();
        let empty = RowStore::new(self.types());
        let store = mem::replace(&mut self.store, empty);
        let old = mem::take(&mut self.meta);
        self.index = SlotIndex::with_capacity(self.index.len());
        if let Some(rows) = &mut self.rows {
            *rows = SlotIndex::with_capacity(live.len());
        }
        (self.slots, self.live, self.total) = (0, 0, 0);
        let unit = self.unit;
        for block in live.chunks(CHUNK_ROWS) {
            let located = store.locate(block);
            let columns = self.all.iter().map(|&c| located.gather(c)).collect::<Result<Vec<_>>>()?;
            self.store.append_owned(columns, block.len())?;
            for &slot in block {
                let (chunk, row) = split_slot(slot);
                let meta = &old[chunk];
                self.push_row(NewRow {
                    weight: meta.weights[row],
                    aux: meta.aux.get(row).copied().unwrap_or(0),
                    hash: meta.hashes[row],
                    row_hash: meta.row_hashes.get(row).copied().unwrap_or(0),
                    id: meta.ids[row],
                    vnode: meta.vnodes[row],
                    dirty: meta.dirty[row / 64] >> (row % 64) & 1 == 1,
                });
            }
        }
        self.unit = unit;
        Ok(())
    }

    /// All rows (`full`), or what changed since the last snapshot. Segment rows are this
    /// table's columns (nullable) and the operator's number; gone rows come first, as NULLs.
    pub fn snapshot(&mut self, full: bool) -> Result<TableSegment> {
        let mut gone = mem::take(&mut self.gone);
        if full {
            gone.clear();
        }
        gone.sort_unstable();
        let slots: Vec<Slot> = if full { self.live_slots().collect() } else { self.dirty_slots() };
        let rows = gone.len() + slots.len();
        let (mut ids, mut vnodes) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        let (mut weights, mut aux) = (vec![0; gone.len()], vec![0; gone.len()]);
        for (id, vnode) in &gone {
            ids.push(*id);
            vnodes.push(*vnode);
        }
        for &slot in &slots {
            let (chunk, row) = split_slot(slot);
            let meta = &self.meta[chunk];
            ids.push(meta.ids[row]);
            vnodes.push(meta.vnodes[row]);
            weights.push(meta.weights[row]);
            aux.push(meta.aux.get(row).copied().unwrap_or(0));
        }
        let located = self.store.locate(&slots);
        let mut columns = Vec::with_capacity(self.all.len() + 1);
        for (c, field) in self.schema.fields().iter().enumerate() {
            let values = located.gather(c)?;
            columns.push(if gone.is_empty() {
                values
            } else {
                let nulls = new_null_array(field.data_type(), gone.len());
                concat(&[nulls.as_ref(), values.as_ref()])?
            });
        }
        columns.push(Arc::new(Int64Array::from(aux)));
        let mut fields: Vec<Field> =
            self.schema.fields().iter().map(|f| f.as_ref().clone().with_nullable(true)).collect();
        fields.push(Field::new(AUX, DataType::Int64, false));
        let rows = record_batch(&Arc::new(Schema::new(fields)), columns, rows)?;
        for meta in &mut self.meta {
            meta.dirty.fill(0);
        }
        self.snapshotted_below = self.next_id;
        Ok(TableSegment { full, ids, vnodes, weights, rows })
    }

    fn dirty_slots(&self) -> Vec<Slot> {
        let mut slots = Vec::new();
        for (chunk, meta) in self.meta.iter().enumerate() {
            for (word, &bits) in meta.dirty.iter().enumerate() {
                let mut bits = bits;
                while bits != 0 {
                    let row = word * 64 + bits.trailing_zeros() as usize;
                    bits &= bits - 1;
                    if meta.weights[row] != 0 {
                        slots.push(join_slot(chunk, row));
                    }
                }
            }
        }
        slots
    }

    /// Fills the table from a chain of segments, oldest first; what was in it is dropped.
    pub fn restore(&mut self, chain: &[&TableSegment]) -> Result<()> {
        self.clear();
        let start = chain.iter().rposition(|s| s.full).unwrap_or(0);
        let chain = &chain[start..];
        for s in chain {
            let rows = s.rows.num_rows();
            if s.ids.len() != rows || s.vnodes.len() != rows || s.weights.len() != rows {
                return Err(SpateError::internal("a table segment has columns of different lengths"));
            }
            match s.rows.columns().split_last() {
                Some((aux, columns)) if aux.data_type() == &DataType::Int64 => self.store.check(columns)?,
                _ => return Err(SpateError::internal("a table segment does not fit its table")),
            }
        }
        // Of each id the newest state counts.
        let mut states: Vec<(u64, usize, usize)> = Vec::new();
        for (n, s) in chain.iter().enumerate() {
            states.extend(s.ids.iter().enumerate().map(|(row, id)| (*id, n, row)));
        }
        let next_id = states.iter().map(|s| s.0 + 1).max().unwrap_or(0);
        states.sort_unstable();
        let newest: Vec<(u64, usize, usize)> = states
            .iter()
            .enumerate()
            .filter(|(i, s)| states.get(i + 1).is_none_or(|next| next.0 != s.0) && chain[s.1].weights[s.2] != 0)
            .map(|(_, s)| *s)
            .collect();
        drop(states);
        for block in newest.chunks(CHUNK_ROWS) {
            let at: Vec<(usize, usize)> = block.iter().map(|s| (s.1, s.2)).collect();
            let column = |c: usize| -> Result<ArrayRef> {
                let parts: Vec<&dyn Array> = chain.iter().map(|s| s.rows.column(c).as_ref()).collect();
                Ok(interleave(&parts, &at)?)
            };
            let columns = self.all.iter().map(|&c| column(c)).collect::<Result<Vec<_>>>()?;
            let aux = column(self.all.len())?;
            let aux = aux.as_primitive::<Int64Type>();
            let hashes = self.hash_columns(&columns, &self.key, block.len())?;
            self.store.append_owned(columns, block.len())?;
            for (i, &(id, n, row)) in block.iter().enumerate() {
                self.push_row(NewRow {
                    weight: chain[n].weights[row],
                    aux: aux.value(i),
                    hash: hashes[i],
                    row_hash: 0,
                    id,
                    vnode: chain[n].vnodes[row],
                    dirty: false,
                });
            }
        }
        self.next_id = next_id;
        self.snapshotted_below = next_id;
        Ok(())
    }

    /// Bytes held: rows, what is kept beside them, indexes.
    pub fn memory_size(&self) -> usize {
        let beside: usize = self.meta.iter().map(Meta::memory_size).sum();
        let rows = self.rows.as_ref().map_or(0, SlotIndex::memory_size);
        self.store.memory_size() + beside + self.index.memory_size() + rows + self.gone.capacity() * 16
    }
}

impl Meta {
    fn memory_size(&self) -> usize {
        let words = self.weights.capacity()
            + self.aux.capacity()
            + self.hashes.capacity()
            + self.row_hashes.capacity()
            + self.ids.capacity()
            + self.links.capacity()
            + self.dirty.capacity();
        words * 8 + self.vnodes.capacity() + size_of::<Self>()
    }
}
