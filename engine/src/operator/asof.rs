//! ASOF JOIN: each left row with the one right row of its key that is nearest to it in time: the
//! latest before it (or at the same time), or the first after it. Of several right rows of that time
//! it is the greatest by all of its columns, in order, with NULL above all values.
//!
//! State: the rows of both sides, as memcomparable bytes that begin with the key and the time (in
//! the order in which the nearest is the last before the left row). Changes wait until the barrier.
//! A right row that comes or goes concerns the left rows between its time and that of the next right
//! row, so only those are looked at again. Right rows without a key or a time match nothing and
//! are not kept. What watermarks close is freed, and with `emit_on_close` left rows wait for that: see
//! `close`. Left rows that can match nothing never wait.

mod close;

use std::collections::BTreeMap;

use arrow::array::{Array, BooleanArray, UInt32Array};
use arrow::buffer::NullBuffer;
use arrow::compute::take;
use arrow::datatypes::SchemaRef;

use self::close::Closer;
use super::expr::batch_of;
use super::row_keys::RowKeys;
use super::{BarrierInfo, Operator, Output};
use crate::plan::{AsOfSpec, OrderBy};
use crate::state::ordered::successor;
use crate::state::{OrderedTable, Table, TableDef, Tables};
use crate::types::{Delta, Result, SpateError};

/// Rows per emitted delta.
const EMIT_ROWS: usize = 8 * 1024;
/// What stands behind a row: the lengths of its partition and of that with its time, and its vnode.
const TAIL: usize = 9;

/// Joins by nearest time. See the module's text.
#[derive(Debug)]
pub struct AsOf {
    spec: AsOfSpec,
    output: SchemaRef,
    sides: [RowKeys; 2],
    /// Net changes of the epoch.
    changes: [OrderedTable; 2],
    /// Net changes of left rows that can match nothing.
    alone: OrderedTable,
    closer: Option<Closer>,
}

/// A key in its parts.
#[derive(Clone, Copy)]
struct Parts<'a> {
    partition: &'a [u8],
    /// The partition and the time.
    timed: &'a [u8],
    vnode: u8,
}

fn parts(key: &[u8]) -> Result<Parts<'_>> {
    let read = || {
        let (row, tail) = key.split_last_chunk::<TAIL>()?;
        let [a, b, c, d, e, f, g, h, vnode] = *tail;
        let partition = row.get(..u32::from_be_bytes([a, b, c, d]) as usize)?;
        let timed = row.get(..u32::from_be_bytes([e, f, g, h]) as usize)?;
        Some(Parts { partition, timed, vnode })
    };
    read().ok_or_else(|| SpateError::internal("a row of an ASOF JOIN has no end"))
}

/// A left row that the epoch may change.
struct Left {
    weight: i64,
    /// What it matched, if that may be another now.
    matched: Option<Option<Box<[u8]>>>,
}

/// A left row, what it matches, how often.
type Item<'a> = (&'a [u8], Option<&'a [u8]>, i64);

impl AsOf {
    /// The operator for this spec. Errors if a column cannot be ordered.
    pub fn new(spec: AsOfSpec, left: SchemaRef, right: SchemaRef, output: SchemaRef) -> Result<Self> {
        if output.fields().len() != left.fields().len() + right.fields().len() {
            return Err(SpateError::internal("an ASOF JOIN's output must have the columns of both inputs"));
        }
        let time = |column: usize| OrderBy { column, descending: !spec.backward, nulls_first: !spec.backward };
        let closer = Closer::new(&spec, &left)?;
        if spec.emit_on_close && closer.is_none() {
            return Err(SpateError::internal("an ASOF JOIN that nothing closes cannot wait"));
        }
        let by = [time(spec.left_time)];
        let left = RowKeys::new(left, &spec.left_keys, &by, "ASOF JOIN")?.with_peers(&by)?;
        let width = right.fields().len();
        let mut by = vec![time(spec.right_time)];
        by.extend((0..width).map(|column| OrderBy { column, descending: false, nulls_first: false }));
        let right = RowKeys::new(right, &spec.right_keys, &by, "ASOF JOIN")?.with_peers(&by[..1])?;
        let changes = [OrderedTable::new(), OrderedTable::new()];
        Ok(Self { spec, output, sides: [left, right], changes, alone: OrderedTable::new(), closer })
    }

    /// Where the left rows begin that a right row of this key and time may match.
    fn first_left(&self, timed: &[u8]) -> Vec<u8> {
        let above = if self.spec.strict { successor(timed) } else { None };
        above.unwrap_or_else(|| timed.to_vec())
    }

    /// The right row that a left row matches.
    fn nearest<'a>(&self, left: Parts<'_>, right: &'a OrderedTable) -> Option<&'a [u8]> {
        let above = if self.spec.strict { None } else { successor(left.timed) };
        let above = above.unwrap_or_else(|| left.timed.to_vec());
        let mut before = right.scan_back(&above).take_while(|(k, _)| k.starts_with(left.partition));
        before.find(|(_, w)| *w > 0).map(|(k, _)| k)
    }

    /// The left rows that the epoch may change, with what they matched before it.
    fn concerned(&self, left: &OrderedTable, right: &OrderedTable) -> Result<BTreeMap<Box<[u8]>, Left>> {
        let mut found = BTreeMap::new();
        let mut times: Vec<Parts<'_>> = Vec::new();
        for (key, _) in self.changes[1].scan_from(&[]) {
            let p = parts(key)?;
            if times.last().is_none_or(|t| t.timed != p.timed) {
                times.push(p);
            }
        }
        for (i, p) in times.iter().enumerate() {
            // As far as the next right time, of those that were there and of those that changed.
            let above = successor(p.timed).unwrap_or_else(|| p.timed.to_vec());
            let old = right.scan_from(&above).next().map(|(k, _)| parts(k)).transpose()?.map(|n| n.timed);
            let next = [old, times.get(i + 1).map(|n| n.timed)].into_iter().flatten().min();
            let end = next.filter(|n| n.starts_with(p.partition)).map(|n| self.first_left(n));
            let rows = left
                .scan_from(&self.first_left(p.timed))
                .take_while(|(k, _)| k.starts_with(p.partition) && end.as_deref().is_none_or(|end| *k < end));
            for (key, weight) in rows {
                let matched = self.nearest(parts(key)?, right).map(Box::from);
                found.insert(key.into(), Left { weight, matched: Some(matched) });
            }
        }
        for (key, _) in self.changes[0].scan_from(&[]) {
            if !found.contains_key(key) {
                found.insert(key.into(), Left { weight: left.weight(key), matched: None });
            }
        }
        Ok(found)
    }

    fn emit(&self, items: &[Item<'_>], out: &mut Output) -> Result<()> {
        let bare = |key: &'_ [u8]| key.len().saturating_sub(TAIL);
        for part in items.chunks(EMIT_ROWS) {
            let mut columns = self.sides[0].decode(part.iter().map(|i| &i.0[..bare(i.0)]))?.columns().to_vec();
            let matched: Vec<&[u8]> = part.iter().filter_map(|i| i.1).map(|k| &k[..bare(k)]).collect();
            let theirs = self.sides[1].decode(matched.iter().copied())?;
            let mut next = 0u32;
            let place = |i: &Item<'_>| {
                i.1.map(|_| {
                    next += 1;
                    next - 1
                })
            };
            let places: UInt32Array = part.iter().map(place).collect();
            for c in theirs.columns() {
                columns.push(take(c.as_ref(), &places, None)?);
            }
            let rows = batch_of(&self.output, columns, part.len())?;
            let weighted = part.iter().any(|i| i.2 != 1);
            out.emit(Delta::new(rows, weighted.then(|| part.iter().map(|i| i.2).collect()))?);
        }
        Ok(())
    }

    /// Adds the rows of `delta` to `to`.
    fn encode(keys: &RowKeys, delta: &Delta, to: &mut OrderedTable) -> Result<()> {
        let mut whole = Vec::new();
        keys.encode(delta, |row| {
            whole.clear();
            whole.extend_from_slice(row.key);
            whole.extend_from_slice(&(row.partition.len() as u32).to_be_bytes());
            whole.extend_from_slice(&(row.peers as u32).to_be_bytes());
            whole.push(row.vnode);
            to.add(&whole, row.weight, row.vnode);
        })
    }
}

impl Operator for AsOf {
    fn tables(&self) -> Vec<TableDef> {
        vec![TableDef::Ordered; if self.closer.is_some() { 3 } else { 2 }]
    }

    fn push(&mut self, input: usize, delta: Delta, _tables: &mut Tables, _out: &mut Output) -> Result<()> {
        let (keys, time) = match input {
            0 => (&self.spec.left_keys, self.spec.left_time),
            1 => (&self.spec.right_keys, self.spec.right_time),
            _ => return Err(SpateError::internal(format!("an ASOF JOIN has no input {input}"))),
        };
        let nulls = keys.iter().chain([&time]).map(|&c| delta.column(c).logical_nulls());
        let nulls = nulls.fold(None, |all, n| NullBuffer::union(all.as_ref(), n.as_ref()));
        let Some(valid) = nulls.filter(|n| n.null_count() > 0) else {
            return Self::encode(&self.sides[input], &delta, &mut self.changes[input]);
        };
        let valid = BooleanArray::new(valid.into_inner(), None);
        if input == 0 && self.spec.outer {
            let alone = delta.filter(&arrow::compute::not(&valid)?)?;
            Self::encode(&self.sides[0], &alone, &mut self.alone)?;
        }
        Self::encode(&self.sides[input], &delta.filter(&valid)?, &mut self.changes[input])
    }

    fn barrier(&mut self, info: &BarrierInfo<'_>, tables: &mut Tables, out: &mut Output) -> Result<()> {
        let mut none = OrderedTable::new();
        let (left, right, index) = match tables.all() {
            [Table::Ordered(left), Table::Ordered(right)] => (left, right, &mut none),
            [Table::Ordered(left), Table::Ordered(right), Table::Ordered(index)] => (left, right, index),
            _ => return Err(SpateError::internal("the tables of an ASOF JOIN are missing")),
        };
        // Rows that wait are looked at when they are final.
        let concerned = if self.spec.emit_on_close { BTreeMap::new() } else { self.concerned(left, right)? };
        for (side, table) in [(0u8, &mut *left), (1, &mut *right)] {
            for (key, weight) in std::mem::take(&mut self.changes[usize::from(side)]).scan_from(&[]) {
                let p = parts(key)?;
                table.add(key, weight, p.vnode);
                if let Some(closer) = &self.closer {
                    closer.note(side, p, weight, index);
                }
            }
        }
        let alone = std::mem::take(&mut self.alone);
        let mut items: Vec<Item<'_>> = alone.scan_from(&[]).map(|(k, w)| (k, None, w)).collect();
        let mut add = |left, matched: Option<_>, weight: i64| {
            if weight != 0 && (self.spec.outer || matched.is_some()) {
                items.push((left, matched, weight));
            }
        };
        for (key, before) in &concerned {
            let weight = left.weight(key);
            let now = self.nearest(parts(key)?, right);
            match &before.matched {
                Some(was) if was.as_deref() != now => {
                    add(key, was.as_deref(), before.weight.wrapping_neg());
                    add(key, now, weight);
                }
                _ => add(key, now, weight.wrapping_sub(before.weight)),
            }
        }
        self.emit(&items, out)?;
        self.close(info.input_watermarks, left, right, index, out)
    }
}

#[cfg(test)]
#[path = "asof_tests.rs"]
mod tests;
