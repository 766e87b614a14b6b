//! SESSION windows: each row with the start and end of the session that it belongs to. A session
//! is a run of rows of one partition in which each comes less than the gap after the one before;
//! it begins at its first time and ends the gap after its last.
//!
//! State: the rows by partition and time; the sessions by partition and start; and, where a
//! watermark closes them, the sessions by end. Changes wait until the barrier. Then the sessions
//! around each changed time are cut anew; rows whose session is another than before are taken
//! back and given again. With `emit_on_close` a row is given once, when its session is over. On
//! append-only input the rows of closed sessions are freed.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, TimestampMicrosecondArray, new_null_array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, SchemaRef, TimeUnit, TimestampMicrosecondType};
use arrow::row::{RowConverter, SortField};

use super::expr::batch_of;
use super::{BarrierInfo, Operator, Output};
use crate::plan::SessionSpec;
use crate::state::{OrderedTable, Table, TableDef, Tables};
use crate::types::epoch::{WATERMARK_MAX, WATERMARK_MIN};
use crate::types::vnode::{hash_rows, vnode_of};
use crate::types::{Delta, Result, SpateError, decoded};

/// Rows per emitted delta.
const EMIT_ROWS: usize = 8 * 1024;

/// The first and the last time of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Session {
    first: i64,
    last: i64,
}

/// Times as bytes that sort as they do.
fn time_bytes(t: i64) -> [u8; 8] {
    ((t as u64) ^ (1 << 63)).to_be_bytes()
}

fn time_at(bytes: &[u8], at: usize) -> Result<i64> {
    match bytes.get(at..at + 8).and_then(|b| <[u8; 8]>::try_from(b).ok()) {
        Some(b) => Ok((u64::from_be_bytes(b) ^ (1 << 63)) as i64),
        None => Err(SpateError::internal("a row of a session has no time")),
    }
}

/// What changed in one partition.
#[derive(Debug, Default)]
struct Changes {
    vnode: u8,
    /// By time and rest of the row.
    rows: BTreeMap<(i64, Box<[u8]>), i64>,
}

/// A row of a region, as often as it was there and as it is.
#[derive(Debug, Clone, Copy)]
struct Merged<'a> {
    time: i64,
    rest: &'a [u8],
    before: i64,
    now: i64,
}

/// Rows on their way out.
#[derive(Debug, Default)]
struct Rows {
    partitions: Vec<Arc<[u8]>>,
    rests: Vec<Box<[u8]>>,
    times: Vec<i64>,
    starts: Vec<i64>,
    ends: Vec<Option<i64>>,
    weights: Vec<i64>,
}

/// SESSION windows. See the module's text.
#[derive(Debug)]
pub struct SessionWindows {
    spec: SessionSpec,
    schema: SchemaRef,
    /// Input columns that are neither key nor time.
    others: Vec<usize>,
    key_rows: Option<RowConverter>,
    other_rows: Option<RowConverter>,
    changes: BTreeMap<Box<[u8]>, Changes>,
}

fn converter(schema: &SchemaRef, columns: &[usize]) -> Result<Option<RowConverter>> {
    if columns.is_empty() {
        return Ok(None);
    }
    let fields: Vec<SortField> = columns.iter().map(|&c| SortField::new(schema.field(c).data_type().clone())).collect();
    for (f, &c) in fields.iter().zip(columns) {
        if !RowConverter::supports_fields(std::slice::from_ref(f)) {
            let t = schema.field(c).data_type();
            return Err(SpateError::unsupported(format!("SESSION over rows with a column of type {t}")));
        }
    }
    Ok(Some(RowConverter::new(fields)?))
}

impl SessionWindows {
    /// The operator for this spec; `schema` is the input's columns, then the window's start and end.
    pub fn new(spec: SessionSpec, input: &SchemaRef, schema: SchemaRef) -> Result<Self> {
        let width = input.fields().len();
        if spec.time >= width || spec.partition.iter().any(|&c| c >= width) || schema.fields().len() != width + 2 {
            return Err(SpateError::internal("a session's columns are not there"));
        }
        if !matches!(input.field(spec.time).data_type(), DataType::Timestamp(TimeUnit::Microsecond, _)) {
            return Err(SpateError::internal("a session's time is no timestamp"));
        }
        let others: Vec<usize> = (0..width).filter(|c| *c != spec.time && !spec.partition.contains(c)).collect();
        let key_rows = converter(input, &spec.partition)?;
        let other_rows = converter(input, &others)?;
        Ok(Self { spec, schema, others, key_rows, other_rows, changes: BTreeMap::new() })
    }

    /// Whether a row at `next` belongs to the session whose last row is at `last`.
    fn joined(&self, last: i64, next: i64) -> bool {
        last.checked_add(self.spec.gap_us).is_none_or(|end| next < end)
    }

    fn end(&self, s: Session) -> Option<i64> {
        s.last.checked_add(self.spec.gap_us)
    }

    /// Key of the table of ends.
    fn end_key(&self, prefix: &[u8], s: Session) -> Vec<u8> {
        let end = self.end(s).unwrap_or(i64::MAX);
        [&time_bytes(end)[..], prefix, &time_bytes(s.first), &time_bytes(s.last)].concat()
    }

    fn frees(&self) -> bool {
        self.spec.append_only_input
    }

    /// Cuts the sessions of one partition anew.
    fn settle(&self, prefix: &[u8], changes: Changes, tables: &mut [Table], out: &mut Emitter<'_>) -> Result<()> {
        let [Table::Ordered(rows), Table::Ordered(sessions), Table::Ordered(ends)] = tables else {
            return Err(SpateError::internal("the tables of a session are missing"));
        };
        let vnode = changes.vnode;
        let changed: Vec<(i64, Box<[u8]>, i64)> =
            changes.rows.into_iter().filter(|(_, w)| *w != 0).map(|((t, rest), w)| (t, rest, w)).collect();
        let shared: Arc<[u8]> = prefix.into();
        let mut at = 0;
        while at < changed.len() {
            let first = at;
            let (region, old) = self.region(prefix, &changed, &mut at, sessions)?;
            let changed = &changed[first..at];
            let new = self.sessions_in(prefix, region, changed, rows)?;
            if !self.spec.emit_on_close {
                self.difference(&shared, region, changed, (&old, &new), rows, out)?;
            }
            for (t, rest, w) in changed {
                rows.add(&[prefix, &time_bytes(*t), rest].concat(), *w, vnode);
            }
            for (all, w) in [(&old, -1), (&new, 1)] {
                for s in all {
                    sessions.add(&[prefix, &time_bytes(s.first), &time_bytes(s.last)].concat(), w, vnode);
                    if self.frees() {
                        ends.add(&self.end_key(prefix, *s), w, vnode);
                    }
                }
            }
        }
        Ok(())
    }

    /// The times around the change at `at` that may belong together, with the sessions that are
    /// there now; `at` moves behind the changes in it.
    fn region(
        &self,
        prefix: &[u8],
        changed: &[(i64, Box<[u8]>, i64)],
        at: &mut usize,
        sessions: &OrderedTable,
    ) -> Result<(Session, Vec<Session>)> {
        let start = changed[*at].0;
        let mut region = Session { first: start, last: start };
        let mut old = Vec::new();
        let session = |key: &[u8]| -> Result<Session> {
            Ok(Session { first: time_at(key, prefix.len())?, last: time_at(key, prefix.len() + 8)? })
        };
        let above = [prefix, &time_bytes(start), &[0xff; 9][..]].concat();
        let before = sessions.scan_back(&above).next().map(|(k, _)| k).filter(|k| k.starts_with(prefix));
        if let Some(s) = before.map(session).transpose()?
            && self.joined(s.last, start)
        {
            region = Session { first: s.first, last: s.last.max(start) };
            old.push(s);
        }
        let mut later = sessions.scan_from(&above).map(|(k, _)| k).take_while(|k| k.starts_with(prefix)).peekable();
        *at += 1;
        loop {
            let change = changed.get(*at).map(|c| c.0).filter(|t| self.joined(region.last, *t));
            let next = later.peek().map(|k| session(k)).transpose()?.filter(|s| self.joined(region.last, s.first));
            match (change, next) {
                (None, None) => return Ok((region, old)),
                (Some(t), n) if n.is_none_or(|s| t <= s.first) => {
                    region.last = region.last.max(t);
                    *at += 1;
                }
                (_, Some(s)) => {
                    region.last = region.last.max(s.last);
                    old.push(s);
                    later.next();
                }
                (Some(_), None) => *at += 1,
            }
        }
    }

    /// The rows of a region as they were and as they are.
    fn merged<'a>(
        &self,
        prefix: &[u8],
        region: Session,
        changed: &'a [(i64, Box<[u8]>, i64)],
        rows: &'a OrderedTable,
    ) -> Result<Vec<Merged<'a>>> {
        let mut all = Vec::new();
        let mut changed = changed.iter().peekable();
        for (key, w) in self.rows_of(prefix, region, rows) {
            let (t, rest) = (time_at(key, prefix.len())?, &key[prefix.len() + 8..]);
            while let Some((ct, crest, cw)) = changed.next_if(|c| (c.0, &*c.1) < (t, rest)) {
                all.push(Merged { time: *ct, rest: crest, before: 0, now: (*cw).max(0) });
            }
            let change = changed.next_if(|c| (c.0, &*c.1) == (t, rest)).map_or(0, |c| c.2);
            all.push(Merged { time: t, rest, before: w.max(0), now: w.saturating_add(change).max(0) });
        }
        all.extend(changed.map(|(time, rest, w)| Merged { time: *time, rest, before: 0, now: (*w).max(0) }));
        Ok(all)
    }

    fn rows_of<'a>(
        &self,
        prefix: &[u8],
        region: Session,
        rows: &'a OrderedTable,
    ) -> impl Iterator<Item = (&'a [u8], i64)> + use<'a> {
        let from = [prefix, &time_bytes(region.first)].concat();
        let last = [prefix, &time_bytes(region.last)].concat();
        let len = last.len();
        rows.scan_from(&from).take_while(move |(k, _)| k.get(..len).is_some_and(|k| *k <= *last))
    }

    /// The sessions that a region holds with the changes.
    fn sessions_in(
        &self,
        prefix: &[u8],
        region: Session,
        changed: &[(i64, Box<[u8]>, i64)],
        rows: &OrderedTable,
    ) -> Result<Vec<Session>> {
        // Nothing went, so nothing fell apart.
        if self.spec.append_only_input {
            return Ok(vec![region]);
        }
        let mut new: Vec<Session> = Vec::new();
        for Merged { time: t, now, .. } in self.merged(prefix, region, changed, rows)? {
            match new.last_mut() {
                _ if now == 0 => {}
                Some(s) if self.joined(s.last, t) => s.last = t,
                _ => new.push(Session { first: t, last: t }),
            }
        }
        Ok(new)
    }

    fn difference(
        &self,
        prefix: &Arc<[u8]>,
        region: Session,
        changed: &[(i64, Box<[u8]>, i64)],
        (old, new): (&[Session], &[Session]),
        rows: &OrderedTable,
        out: &mut Emitter<'_>,
    ) -> Result<()> {
        let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
        for Merged { time: t, rest, before, now } in self.merged(prefix, region, changed, rows)? {
            while old.next_if(|s| s.last < t).is_some() {}
            while new.next_if(|s| s.last < t).is_some() {}
            let was = old.peek().map(|s| **s).filter(|_| before > 0);
            let is = new.peek().map(|s| **s).filter(|_| now > 0);
            match (was, is) {
                (Some(a), Some(b)) if a == b => out.row(prefix, t, rest, b, now - before)?,
                _ => {
                    if let Some(a) = was {
                        out.row(prefix, t, rest, a, -before)?;
                    }
                    if let Some(b) = is {
                        out.row(prefix, t, rest, b, now)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Gives (if so wanted) and frees what the watermark has closed.
    fn close(&self, watermark: i64, tables: &mut [Table], out: &mut Emitter<'_>) -> Result<()> {
        let [Table::Ordered(rows), Table::Ordered(sessions), Table::Ordered(ends)] = tables else {
            return Err(SpateError::internal("the tables of a session are missing"));
        };
        if watermark == WATERMARK_MIN || !self.frees() {
            return Ok(());
        }
        let bound = (watermark != WATERMARK_MAX).then(|| time_bytes(watermark.saturating_add(1)).to_vec());
        let over = |k: &[u8]| bound.as_ref().is_none_or(|b| k < b.as_slice());
        for (key, _) in ends.scan_from(&[]).take_while(|(k, _)| over(k)) {
            let tail = key.len().saturating_sub(16);
            let s = Session { first: time_at(key, tail)?, last: time_at(key, tail + 8)? };
            let prefix = key.get(8..tail).ok_or_else(|| SpateError::internal("a session has no key"))?;
            if self.spec.emit_on_close {
                let shared: Arc<[u8]> = prefix.into();
                for (key, w) in self.rows_of(prefix, s, rows).filter(|(_, w)| *w > 0) {
                    out.row(&shared, time_at(key, prefix.len())?, &key[prefix.len() + 8..], s, w)?;
                }
            }
            let from = [prefix, &time_bytes(s.first)].concat();
            let to = s.last.checked_add(1).map(|t| [prefix, &time_bytes(t)].concat());
            match to {
                Some(to) => rows.delete_range(&from, Some(&to)),
                // No time is later: what begins with the last one goes too.
                None => {
                    rows.delete_range(&from, Some(&[prefix, &time_bytes(s.last)].concat()));
                    rows.delete_prefix(&[prefix, &time_bytes(s.last)].concat())
                }
            };
            sessions.delete_prefix(&[prefix, &time_bytes(s.first), &time_bytes(s.last)].concat());
        }
        ends.delete_range(&[], bound.as_deref());
        Ok(())
    }

    /// Rows from their bytes.
    fn decode(&self, rows: Rows) -> Result<Delta> {
        let n = rows.times.len();
        let mut columns: Vec<Option<ArrayRef>> = vec![None; self.schema.fields().len()];
        let mut put = |converter: &Option<RowConverter>, at: &[usize], keys: &mut dyn Iterator<Item = &[u8]>| {
            if let Some(c) = converter {
                let parser = c.parser();
                for (&i, array) in at.iter().zip(decoded::columns(c, keys.map(|k| parser.parse(k)))?) {
                    columns[i] = Some(array);
                }
            }
            Ok::<_, SpateError>(())
        };
        put(&self.key_rows, &self.spec.partition, &mut rows.partitions.iter().map(|k| &**k))?;
        put(&self.other_rows, &self.others, &mut rows.rests.iter().map(|k| &**k))?;
        let width = self.schema.fields().len() - 2;
        columns[self.spec.time] = Some(Arc::new(TimestampMicrosecondArray::from(rows.times)));
        columns[width] = Some(Arc::new(TimestampMicrosecondArray::from(rows.starts)));
        columns[width + 1] = Some(Arc::new(TimestampMicrosecondArray::from(rows.ends)));
        let mut fitted = Vec::with_capacity(columns.len());
        for (c, f) in columns.into_iter().zip(self.schema.fields()) {
            fitted.push(match c {
                Some(c) => cast(&c, f.data_type())?,
                None => new_null_array(f.data_type(), n),
            });
        }
        let weights = rows.weights.iter().any(|w| *w != 1).then(|| Int64Array::from(rows.weights));
        Delta::new(batch_of(&self.schema, fitted, n)?, weights)
    }
}

/// Collects rows and emits them in deltas of a bounded size.
struct Emitter<'a> {
    op: &'a SessionWindows,
    rows: Rows,
    out: &'a mut Output,
}

impl Emitter<'_> {
    fn row(&mut self, prefix: &Arc<[u8]>, time: i64, rest: &[u8], s: Session, weight: i64) -> Result<()> {
        if weight == 0 {
            return Ok(());
        }
        self.rows.partitions.push(Arc::clone(prefix));
        self.rows.rests.push(rest.into());
        self.rows.times.push(time);
        self.rows.starts.push(s.first);
        self.rows.ends.push(self.op.end(s));
        self.rows.weights.push(weight);
        if self.rows.times.len() >= EMIT_ROWS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        let rows = std::mem::take(&mut self.rows);
        if !rows.times.is_empty() {
            self.out.emit(self.op.decode(rows)?);
        }
        Ok(())
    }
}

impl Operator for SessionWindows {
    fn tables(&self) -> Vec<TableDef> {
        vec![TableDef::Ordered, TableDef::Ordered, TableDef::Ordered]
    }

    fn push(&mut self, _input: usize, delta: Delta, _tables: &mut Tables, _out: &mut Output) -> Result<()> {
        let n = delta.num_rows();
        if n == 0 {
            return Ok(());
        }
        let Some(times) = delta.column(self.spec.time).as_primitive_opt::<TimestampMicrosecondType>() else {
            return Err(SpateError::internal("a session's time is no timestamp"));
        };
        let pick = |columns: &[usize]| columns.iter().map(|&c| delta.column(c).clone()).collect::<Vec<ArrayRef>>();
        let keys = pick(&self.spec.partition);
        let hashes = hash_rows(&keys, n)?;
        let key_rows = self.key_rows.as_ref().map(|c| c.convert_columns(&keys)).transpose()?;
        let other_rows = self.other_rows.as_ref().map(|c| c.convert_columns(&pick(&self.others))).transpose()?;
        for (i, h) in hashes.iter().enumerate() {
            // A row without a time belongs to no session.
            if times.is_null(i) {
                continue;
            }
            let key = key_rows.as_ref().map_or(&[][..], |r| r.row(i).data());
            let rest = other_rows.as_ref().map_or(&[][..], |r| r.row(i).data());
            if !self.changes.contains_key(key) {
                self.changes.insert(key.into(), Changes { vnode: vnode_of(*h), rows: BTreeMap::new() });
            }
            if let Some(c) = self.changes.get_mut(key) {
                let w = c.rows.entry((times.value(i), rest.into())).or_default();
                *w = w.wrapping_add(delta.weight(i));
            }
        }
        Ok(())
    }

    fn barrier(&mut self, info: &BarrierInfo<'_>, tables: &mut Tables, out: &mut Output) -> Result<()> {
        let changes = std::mem::take(&mut self.changes);
        let mut emitter = Emitter { op: self, rows: Rows::default(), out };
        for (prefix, changes) in changes {
            self.settle(&prefix, changes, tables.all(), &mut emitter)?;
        }
        self.close(info.watermark, tables.all(), &mut emitter)?;
        emitter.flush()
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
