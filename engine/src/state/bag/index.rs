//! The insides of a bag table: its two indexes, and giving rows their place and weight.

use std::sync::Arc;

use arrow::array::ArrayRef;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::{BagTable, Chain, Meta, NewRow, RowEntry};
use crate::state::chunk::{NO_SLOT, Slot, join_slot, split_slot};
use crate::types::Result;
use crate::types::vnode::{VNode, hash_rows, vnode_of};

/// The hash as the tables use it: its low bits name the vnode, of which a task has few, so
/// they must decide neither the bucket nor hashbrown's control byte.
#[inline]
pub(super) fn spread(hash: u64) -> u64 {
    hash.rotate_left(32)
}

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

    #[inline]
    pub(super) fn chain(&self, hash: u64) -> Option<&Chain> {
        self.index.find(spread(hash), |c| c.hash == hash)
    }

    /// The row behind another in its chain.
    #[inline]
    pub(super) fn next(&self, slot: Slot) -> Slot {
        let (chunk, row) = split_slot(slot);
        self.meta[chunk].links[row].1
    }

    /// Rows that may be the one with this hash of the whole row.
    pub(super) fn candidates(&self, row_hash: u64, into: &mut Vec<Slot>) {
        if let Some(rows) = &self.rows {
            let tag = row_hash as u32;
            into.extend(rows.iter_hash(spread(row_hash)).filter(|e| e.tag == tag).map(|e| e.slot));
        } else if let Some(chain) = self.chain(row_hash) {
            into.push(chain.head);
            let mut slot = chain.head;
            while slot != chain.tail {
                slot = self.next(slot);
                into.push(slot);
            }
        }
    }

    /// For each row the stored row that equals it, as far as the first candidate tells
    /// ([`NO_SLOT`] says nothing). Checked column by column for the whole batch.
    pub(super) fn known_rows(&self, columns: &[ArrayRef], row_hashes: &[u64]) -> Result<Vec<Slot>> {
        let mut known = vec![NO_SLOT; row_hashes.len()];
        let (mut probe, mut slots) = (Vec::new(), Vec::new());
        for (i, &h) in row_hashes.iter().enumerate() {
            let first = match &self.rows {
                Some(rows) => rows.find(spread(h), |e| e.tag == h as u32).map_or(NO_SLOT, |e| e.slot),
                None => self.chain(h).map_or(NO_SLOT, |c| c.head),
            };
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
        let mut table = HashTable::with_capacity(entries.len());
        let meta = &self.meta;
        for (hash, slot) in entries {
            table.insert_unique(spread(hash), RowEntry { tag: hash as u32, slot }, |e| row_hash_of(meta, e.slot));
        }
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
        let tail = self.link_last(new.hash, slot);
        let meta = &mut self.meta[chunk];
        Arc::make_mut(&mut meta.weights).push(new.weight);
        if new.aux != 0 || !meta.aux.is_empty() {
            meta.aux.resize(row, 0);
            meta.aux.push(new.aux);
        }
        meta.hashes.push(new.hash);
        meta.ids.push(new.id);
        meta.vnodes.push(new.vnode);
        meta.links.push((tail, NO_SLOT));
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
            let meta = &self.meta;
            let entry = RowEntry { tag: new.row_hash as u32, slot };
            rows.insert_unique(spread(new.row_hash), entry, |e| row_hash_of(meta, e.slot));
        }
        self.slots += 1;
        self.live += usize::from(new.weight != 0);
        self.total = self.total.wrapping_add(new.weight);
        self.unit &= new.weight == 1;
        self.next_id = self.next_id.max(new.id + 1);
        slot
    }

    /// Puts a row at the end of its chain; returns the row before it.
    pub(super) fn link_last(&mut self, hash: u64, slot: Slot) -> Slot {
        match self.index.entry(spread(hash), |c| c.hash == hash, |c| spread(c.hash)) {
            Entry::Occupied(mut e) => {
                let tail = std::mem::replace(&mut e.get_mut().tail, slot);
                let (chunk, row) = split_slot(tail);
                self.meta[chunk].links[row].1 = slot;
                tail
            }
            Entry::Vacant(e) => {
                e.insert(Chain { hash, head: slot, tail: slot });
                NO_SLOT
            }
        }
    }

    pub(super) fn unlink(&mut self, slot: Slot) {
        let (chunk, row) = split_slot(slot);
        let hash = self.meta[chunk].hashes[row];
        let (prev, next) = self.meta[chunk].links[row];
        if prev != NO_SLOT {
            let (c, r) = split_slot(prev);
            self.meta[c].links[r].1 = next;
        }
        if next != NO_SLOT {
            let (c, r) = split_slot(next);
            self.meta[c].links[r].0 = prev;
        }
        if (prev == NO_SLOT || next == NO_SLOT)
            && let Ok(mut e) = self.index.find_entry(spread(hash), |c| c.hash == hash)
        {
            match (prev, next) {
                (NO_SLOT, NO_SLOT) => drop(e.remove()),
                (NO_SLOT, _) => e.get_mut().head = next,
                _ => e.get_mut().tail = prev,
            }
        }
        if let Some(rows) = &mut self.rows {
            let row_hash = self.meta[chunk].row_hashes[row];
            if let Ok(e) = rows.find_entry(spread(row_hash), |e| e.slot == slot) {
                e.remove();
            }
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

fn row_hash_of(meta: &[Meta], slot: Slot) -> u64 {
    let (chunk, row) = split_slot(slot);
    spread(meta[chunk].row_hashes[row])
}
