//! Top-n per group: the rows of each partition whose number or rank is at most n.
//!
//! State: the rows, as memcomparable bytes that begin with the partition and the order. At the
//! barrier the first rows of each partition that changed are read, as they were and as they
//! are, and the difference goes out. Of append-only input only rows that are among the first
//! can ever come out again; the others are forgotten. Where a watermark closes partitions, closed
//! ones are freed; with `emit_on_close` the first rows of a partition go out only then.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::SchemaRef;

use super::encoded::EncodedRows;
use super::expr::batch_of;
use super::row_keys::{Closed, RowKeys};
use super::{BarrierInfo, Operator, Output};
use crate::plan::{GroupTopNSpec, RankKind};
use crate::state::{OrderedTable, TableDef, Tables};
use crate::types::{Delta, Result, SpateError};

/// Rows per emitted delta.
const EMIT_ROWS: usize = 8 * 1024;
/// What stands behind a key to tell where its peers' common part ends.
const LENGTH: usize = 4;

/// Keeps the first rows of each partition.
#[derive(Debug)]
pub struct GroupTopN {
    spec: GroupTopNSpec,
    output: SchemaRef,
    keys: RowKeys,
    /// Changes of the epoch.
    changes: EncodedRows,
}

/// A row among the first: its key, its rank (0 if nobody asks), how often.
type Item<'a> = (&'a [u8], i64, i64);

/// The first rows of a partition, taken one key after the other.
struct First<'a> {
    kind: RankKind,
    limit: i64,
    ranked: bool,
    passed: i64,
    rank: i64,
    peers: Option<&'a [u8]>,
    items: Vec<Item<'a>>,
    full: bool,
}

impl<'a> First<'a> {
    fn new(spec: &GroupTopNSpec) -> Self {
        let limit = i64::try_from(spec.limit).unwrap_or(i64::MAX);
        Self {
            kind: spec.kind,
            limit,
            ranked: spec.with_rank,
            passed: 0,
            rank: 0,
            peers: None,
            items: Vec::new(),
            full: limit == 0,
        }
    }

    fn take(&mut self, key: &'a [u8], weight: i64) {
        if self.full || weight <= 0 {
            return;
        }
        match self.kind {
            RankKind::RowNumber => {
                let weight = weight.min(self.limit - self.passed);
                if self.ranked {
                    self.items.extend((1..=weight).map(|n| (key, self.passed + n, 1)));
                } else {
                    self.items.push((key, 0, weight));
                }
                self.passed += weight;
                self.full = self.passed >= self.limit;
            }
            RankKind::Rank | RankKind::DenseRank => {
                let peers = common(key);
                if self.peers != Some(peers) {
                    self.peers = Some(peers);
                    self.rank = if self.kind == RankKind::Rank { self.passed + 1 } else { self.rank + 1 };
                    self.full = self.rank > self.limit;
                    if self.full {
                        return;
                    }
                }
                self.items.push((key, if self.ranked { self.rank } else { 0 }, weight));
                self.passed = self.passed.saturating_add(weight);
            }
        }
    }
}

/// The part of a key that its peers share.
fn common(key: &[u8]) -> &[u8] {
    let Some((row, length)) = key.split_last_chunk::<LENGTH>() else { return key };
    row.get(..u32::from_be_bytes(*length) as usize).unwrap_or(row)
}

impl GroupTopN {
    /// The operator for this spec.
    pub fn new(spec: GroupTopNSpec, input: SchemaRef, output: SchemaRef) -> Result<Self> {
        let mut keys = RowKeys::closing(input.clone(), &spec.partition, &spec.order, spec.window, "top-n per group")?;
        if spec.kind != RankKind::RowNumber {
            keys = keys.with_peers(&spec.order)?;
        }
        if output.fields().len() != input.fields().len() + usize::from(spec.with_rank) {
            return Err(SpateError::internal("a top-n per group has the wrong number of columns"));
        }
        Ok(Self { spec, output, keys, changes: EncodedRows::default() })
    }

    /// A key without what stands behind it.
    fn bare<'a>(&self, key: &'a [u8]) -> &'a [u8] {
        let tail = if self.spec.kind == RankKind::RowNumber { 0 } else { LENGTH };
        key.get(..key.len().saturating_sub(tail)).unwrap_or(key)
    }

    /// Emits the first rows of closed partitions.
    fn finish(&self, rows: &OrderedTable, closed: &Closed, out: &mut Output) -> Result<()> {
        let mut net = Vec::new();
        let mut partition: Option<&[u8]> = None;
        let mut first = First::new(&self.spec);
        let mut entries = rows.scan_from(&closed.from).take_while(|(k, _)| closed.has(k));
        loop {
            let block: Vec<(&[u8], i64)> = entries.by_ref().take(EMIT_ROWS).collect();
            let lengths = self.keys.partition_lengths(block.iter().map(|(k, _)| self.bare(k)))?;
            for (&(key, weight), len) in block.iter().zip(lengths) {
                let own = key.get(..len);
                if own != partition {
                    partition = own;
                    net.append(&mut first.items);
                    first = First::new(&self.spec);
                }
                first.take(key, weight);
            }
            if block.is_empty() {
                net.append(&mut first.items);
            }
            if block.is_empty() || net.len() >= EMIT_ROWS {
                self.emit(&net, out)?;
                net.clear();
            }
            if block.is_empty() {
                return Ok(());
            }
        }
    }

    fn emit(&self, net: &[Item<'_>], out: &mut Output) -> Result<()> {
        for part in net.chunks(EMIT_ROWS) {
            let rows = self.keys.decode(part.iter().map(|(k, _, _)| self.bare(k)))?;
            let mut columns: Vec<ArrayRef> = rows.columns().to_vec();
            if self.spec.with_rank {
                columns.push(Arc::new(part.iter().map(|(_, r, _)| *r).collect::<Int64Array>()));
            }
            let rows = batch_of(&self.output, columns, part.len())?;
            let weighted = part.iter().any(|(_, _, w)| *w != 1);
            out.emit(Delta::new(rows, weighted.then(|| part.iter().map(|(_, _, w)| *w).collect()))?);
        }
        Ok(())
    }
}

/// The first rows of a partition before and after the changes `run`.
fn sides<'a>(
    spec: &GroupTopNSpec,
    rows: &'a OrderedTable,
    changes: &'a EncodedRows,
    run: Range<usize>,
    prefix: &'a [u8],
) -> (Vec<Item<'a>>, Vec<Item<'a>>) {
    let (mut old, mut new) = (First::new(spec), First::new(spec));
    let mut changed = run.map(|i| (changes.key(i), changes.weight(i))).peekable();
    let mut stored = rows.scan_prefix(prefix).peekable();
    while !(old.full && new.full) {
        let order = match (stored.peek(), changed.peek()) {
            (None, None) => break,
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some((a, _)), Some((b, _))) => a.cmp(b),
        };
        let before = if order.is_le() { stored.next() } else { None };
        let change = if order.is_ge() { changed.next() } else { None };
        let weight = before.map_or(0, |b| b.1);
        if let Some((key, _)) = before.or(change) {
            old.take(key, weight);
            new.take(key, weight.wrapping_add(change.map_or(0, |c| c.1)));
        }
    }
    (old.items, new.items)
}

/// What leaves and what enters, in order.
fn difference<'a>(old: &[Item<'a>], new: &[Item<'a>], net: &mut Vec<Item<'a>>) {
    let (mut i, mut j) = (0, 0);
    loop {
        let order = match (old.get(i), new.get(j)) {
            (None, None) => return,
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(a), Some(b)) => (a.0, a.1).cmp(&(b.0, b.1)),
        };
        let mut weight = 0;
        let mut item = None;
        if order.is_le() {
            item = old.get(i);
            weight -= item.map_or(0, |o| o.2);
            i += 1;
        }
        if order.is_ge() {
            item = new.get(j);
            weight += item.map_or(0, |n| n.2);
            j += 1;
        }
        if let (Some((key, rank, _)), true) = (item, weight != 0) {
            net.push((key, *rank, weight));
        }
    }
}

impl Operator for GroupTopN {
    fn tables(&self) -> Vec<TableDef> {
        vec![TableDef::Ordered]
    }

    fn push(&mut self, _input: usize, delta: Delta, _tables: &mut Tables, _out: &mut Output) -> Result<()> {
        let changes = &mut self.changes;
        let plain = self.spec.kind == RankKind::RowNumber;
        self.keys.encode(&delta, |row| {
            let length = (row.peers as u32).to_be_bytes();
            let tail = if plain { &[][..] } else { &length[..] };
            changes.push(row.key, tail, row.partition.len(), row.weight, row.vnode);
        })
    }

    fn barrier(&mut self, info: &BarrierInfo<'_>, tables: &mut Tables, out: &mut Output) -> Result<()> {
        let rows = tables.ordered(0)?;
        let mut changes = std::mem::take(&mut self.changes);
        changes.sort();
        // What is not kept of the changes, and from where on partitions are cut off.
        let mut unkept: Vec<Range<usize>> = Vec::new();
        let mut forget: Vec<(Box<[u8]>, &[u8])> = Vec::new();
        {
            let rows: &OrderedTable = rows;
            let mut net = Vec::new();
            let mut start = 0;
            while start < changes.len() {
                let (prefix, end) = (changes.partition(start), changes.run_end(start));
                let (old, new) = sides(&self.spec, rows, &changes, start..end, prefix);
                if !self.spec.emit_on_close {
                    difference(&old, &new, &mut net);
                }
                if self.spec.append_only_input {
                    // Nothing behind the last of the first rows will ever come out.
                    let last = new.last().map_or(prefix, |l| l.0);
                    let mut after = rows.scan_from(last).skip_while(|(k, _)| *k == last && !new.is_empty());
                    if let Some((key, _)) = after.next().filter(|(k, _)| k.starts_with(prefix)) {
                        forget.push((key.into(), prefix));
                    }
                    let behind = |i: &usize| changes.key(*i) > last || new.is_empty();
                    let kept = (start..end).find(behind).unwrap_or(end);
                    if kept < end {
                        unkept.push(kept..end);
                    }
                }
                if net.len() >= EMIT_ROWS {
                    self.emit(&net, out)?;
                    net.clear();
                }
                start = end;
            }
            self.emit(&net, out)?;
        }
        for (from, prefix) in forget {
            rows.delete_prefix_from(prefix, &from);
        }
        let mut unkept = unkept.into_iter().peekable();
        let mut i = 0;
        while i < changes.len() {
            if let Some(cut) = unkept.next_if(|r| r.start == i) {
                i = cut.end;
                continue;
            }
            rows.add(changes.key(i), changes.weight(i), changes.vnode(i));
            i += 1;
        }
        changes.clear();
        self.changes = changes;
        if let Some(closed) = self.keys.closed(info.watermark)? {
            if self.spec.emit_on_close {
                self.finish(rows, &closed, out)?;
            }
            rows.delete_range(&closed.from, closed.to.as_deref());
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "group_topn_tests.rs"]
mod tests;
