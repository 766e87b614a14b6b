//! The insides of a bag table: its two indexes, and giving rows their place and weight.

use std::hint::black_box;
use std::sync::Arc;

use arrow::array::ArrayRef;

use super::{BagTable, Meta, NewRow};
use crate::state::chunk::{NO_SLOT, Slot, join_slot, split_slot};
use crate::state::slots::{SlotIndex, TOGETHER};
use crate::types::Result;
use crate::types::vnode::{VNode, hash_rows, vnode_of};

impl BagTable {
    pub(super) fn hash_columns(&self, columns: &[ArrayRef], which: &[usize], rows: usize) -> Result<Vec<u64>> {
        let picked: Vec<ArrayRef> = which.iter().map(|&c| columns[c].clone()).collect();
        hash_rows(&picked, rows)
    }

    /// Vnodes where they do not follow from the key's hash.
    pub(super) fn vnodes(&self, columns: &[ArrayRef], hashes: &[u64]) -> Result<Option<Vec<VNode>>> {
        if self.dist == self.key {
            return Ok(None);
        }
        let hashes = self.hash_columns(columns, &self.dist, hashes.len())?;
        Ok(Some(hashes.into_iter().map(vnode_of).collect()))
    }

    /// Reads what an index of this table leads to for these hashes without waiting for any of it, if it
    /// is so large that this pays.
    pub(super) fn warm(&self, index: &SlotIndex, hashes: &[u64]) {
        if !index.is_large() {
            return;
        }
        let mut likely = Vec::new();
        index.warm(hashes, &mut likely);
        let read = |sum: u64, &slot: &Slot| {
            let (chunk, row) = split_slot(slot);
            // `NO_SLOT` is in no chunk.
            let Some(meta) = self.meta.get(chunk) else { return sum };
            let at = |v: &[u64]| v.get(row).copied().unwrap_or(0);
            sum ^ at(&meta.hashes) ^ meta.links.get(row).map_or(0, |l| u64::from(l.1))
        };
        black_box(likely.iter().fold(0, read));
    }

    /// The first row of the chain of a hash.
    #[inline]
    pub(super) fn chain(&self, hash: u64) -> Option<Slot> {
        self.index.find(hash, |slot| hash_of(&self.meta, slot) == hash)
    }

    /// The row behind another in its chain, or [`NO_SLOT`].
    #[inline]
    pub(super) fn next(&self, slot: Slot) -> Slot {
        let (chunk, row) = split_slot(slot);
        self.meta[chunk].links[row].1
    }

    /// Rows that may be the one with this hash of the whole row.
    pub(super) fn candidates(&self, row_hash: u64, into: &mut Vec<Slot>) {
        if let Some(rows) = &self.rows {
            rows.candidates(row_hash, into);
        } else if let Some(mut slot) = self.chain(row_hash) {
            while slot != NO_SLOT {
                into.push(slot);
                slot = self.next(slot);
            }
        }
    }

    /// For each row the stored row that equals it, as far as the first candidate tells
    /// ([`NO_SLOT`] says nothing). Checked column by column for the whole batch.
    pub(super) fn known_rows(&self, columns: &[ArrayRef], row_hashes: &[u64]) -> Result<Vec<Slot>> {
        let mut known = vec![NO_SLOT; row_hashes.len()];
        let (mut probe, mut slots) = (Vec::new(), Vec::new());
        for (i, &h) in row_hashes.iter().enumerate() {
            if i % TOGETHER == 0 {
                self.warm(
                    self.rows.as_ref().unwrap_or(&self.index),
                    &row_hashes[i..row_hashes.len().min(i + TOGETHER)],
                );
            }
            let first = match &self.rows {
                Some(rows) => rows.find(h, |_| true),
                None => self.chain(h),
            }
            .unwrap_or(NO_SLOT);
            if first != NO_SLOT {
                probe.push(i as u32);
                slots.push(first);
            }
        }
        let same = self.store.equal(&self.all, &slots, columns, &probe)?;
        for ((i, s), same) in probe.into_iter().zip(slots).zip(same) {
            if same {
                known[i as usize] = s;
            }
        }
        Ok(known)
    }

    pub(super) fn ensure_row_index(&mut self) -> Result<()> {
        if self.key_is_row || self.rows.is_some() {
            return Ok(());
        }
        let mut entries = Vec::with_capacity(self.live);
        for (chunk, meta) in self.meta.iter_mut().enumerate() {
            if meta.ids.is_empty() {
                continue;
            }
            meta.row_hashes = Vec::with_capacity(meta.ids.len());
            for piece in self.store.pieces(chunk) {
                meta.row_hashes.extend(hash_rows(&piece.columns, piece.rows)?);
            }
            for (row, (&w, &hash)) in meta.weights.iter().zip(&meta.row_hashes).enumerate() {
                if w != 0 {
                    entries.push((hash, join_slot(chunk, row)));
                }
            }
        }
        let mut table = SlotIndex::with_capacity(entries.len());
        entries.into_iter().for_each(|(hash, slot)| table.insert(hash, slot));
        self.rows = Some(table);
        Ok(())
    }

    /// Gives a row its place; its columns must follow (`store.append`) before it is read.
    pub(super) fn push_row(&mut self, new: NewRow) -> Slot {
        let slot = self.slots as Slot;
        let (chunk, row) = split_slot(slot);
        if chunk == self.meta.len() {
            self.meta.push(Meta::default());
        }
        let before = self.link_last(new.hash, slot);
        let meta = &mut self.meta[chunk];
        Arc::make_mut(&mut meta.weights).push(new.weight);
        if new.aux != 0 || !meta.aux.is_empty() {
            meta.aux.resize(row, 0);
            meta.aux.push(new.aux);
        }
        meta.hashes.push(new.hash);
        meta.ids.push(new.id);
        meta.vnodes.push(new.vnode);
        meta.links.push((before, NO_SLOT));
        if row % 64 == 0 {
            meta.dirty.push(0);
        }
        if new.dirty {
            meta.dirty[row / 64] |= 1 << (row % 64);
        }
        meta.live += usize::from(new.weight != 0);
        meta.min = None;
        if let Some(rows) = &mut self.rows {
            meta.row_hashes.push(new.row_hash);
            rows.insert(new.row_hash, slot);
        }
        self.slots += 1;
        self.live += usize::from(new.weight != 0);
        self.total = self.total.wrapping_add(new.weight);
        self.unit &= new.weight == 1;
        self.next_id = self.next_id.max(new.id + 1);
        slot
    }

    /// Puts a row at the end of its chain; returns the row before it, itself if there is none.
    fn link_last(&mut self, hash: u64, slot: Slot) -> Slot {
        match self.chain(hash) {
            Some(head) => {
                let (chunk, row) = split_slot(head);
                let tail = std::mem::replace(&mut self.meta[chunk].links[row].0, slot);
                let (chunk, row) = split_slot(tail);
                self.meta[chunk].links[row].1 = slot;
                tail
            }
            None => {
                self.index.insert(hash, slot);
                slot
            }
        }
    }

    pub(super) fn unlink(&mut self, slot: Slot) {
        let (chunk, row) = split_slot(slot);
        let hash = self.meta[chunk].hashes[row];
        let (prev, next) = self.meta[chunk].links[row];
        if let Some(rows) = &mut self.rows {
            rows.remove(self.meta[chunk].row_hashes[row], slot);
        }
        if prev == slot {
            return self.index.remove(hash, slot);
        }
        let (c, r) = split_slot(prev);
        let first = self.meta[c].links[r].1 == NO_SLOT;
        if first {
            self.index.replace(hash, slot, next);
        } else {
            self.meta[c].links[r].1 = next;
        }
        // The first row leads back to the last.
        let behind = if next == NO_SLOT { self.chain(hash) } else { Some(next) };
        if let Some(behind) = behind {
            let (c, r) = split_slot(behind);
            self.meta[c].links[r].0 = prev;
        }
    }

    pub(super) fn set_weight(&mut self, slot: Slot, new: i64) {
        let (chunk, row) = split_slot(slot);
        let meta = &mut self.meta[chunk];
        let old = std::mem::replace(&mut Arc::make_mut(&mut meta.weights)[row], new);
        meta.dirty[row / 64] |= 1 << (row % 64);
        self.total = self.total.wrapping_add(new).wrapping_sub(old);
        self.unit &= new == 0 || new == 1;
        match (old, new) {
            (0, 0) => {}
            (0, _) => {
                meta.live += 1;
                self.live += 1;
            }
            (_, 0) => {
                meta.live -= 1;
                self.live -= 1;
                if !self.keep_zero {
                    if meta.ids[row] < self.snapshotted_below {
                        self.gone.push((meta.ids[row], meta.vnodes[row]));
                    }
                    self.unlink(slot);
                }
            }
            _ => {}
        }
    }
}

#[inline]
fn hash_of(meta: &[Meta], slot: Slot) -> u64 {
    let (chunk, row) = split_slot(slot);
    meta[chunk].hashes[row]
}
