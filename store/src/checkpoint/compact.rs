//! Merging a chain of segments into one full segment, batch by batch.
//!
//! Of each id the newest segment's state counts; weight 0 takes the row away. Segments come in
//! order of their ids ([`codec`](super::codec)), so one batch of each is enough to go on, and what
//! is held is one part of each segment and one batch of the result.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::interleave_record_batch;
use arrow::datatypes::SchemaRef;

use super::codec::{Assembler, Encoder, Layout, Part, PartReader, Parts, Rows, row_bytes};
use super::manifest::SnapshotEntry;
use super::names::{ObjectName, PartName};
use super::objects::{ObjectRef, SnapshotObjects};
use super::{StoreError, StoreResult};
use spate_engine::state::TableSegment;
use spate_engine::task::TaskId;

/// Merges segments, oldest first. Knows no I/O: says of which segment it needs more.
#[derive(Debug)]
pub struct Merger {
    inputs: Vec<Input>,
    /// Batches that picked rows are in.
    held: Vec<RecordBatch>,
    picked: Vec<(usize, usize)>,
    ids: Vec<u64>,
    vnodes: Vec<u8>,
    weights: Vec<i64>,
    /// Bytes of what is picked, by the average of its batches.
    bytes: usize,
    layout: Layout,
}

#[derive(Debug, Default)]
struct Input {
    current: Option<Rows>,
    at: usize,
    /// Where `current` is among the held batches, if it is.
    held: Option<usize>,
    /// Of a row of `current`, on average.
    row_bytes: usize,
    done: bool,
}

impl Input {
    fn head(&self) -> Option<u64> {
        self.current.as_ref().and_then(|c| c.ids.get(self.at).copied())
    }
}

impl Merger {
    /// A merger of so many segments.
    pub fn new(inputs: usize, layout: Layout) -> Self {
        Self {
            inputs: (0..inputs).map(|_| Input::default()).collect(),
            held: Vec::new(),
            picked: Vec::new(),
            ids: Vec::new(),
            vnodes: Vec::new(),
            weights: Vec::new(),
            bytes: 0,
            layout,
        }
    }

    /// The segment that more is needed of.
    pub fn wants(&self) -> Option<usize> {
        self.inputs.iter().position(|i| !i.done && i.head().is_none())
    }

    /// The next batch of a segment; `None` at its end.
    pub fn feed(&mut self, input: usize, rows: Option<Rows>) {
        if let Some(i) = self.inputs.get_mut(input) {
            let row_bytes = rows.as_ref().map_or(0, |r| row_bytes(&r.rows));
            *i = Input { done: rows.is_none(), current: rows, at: 0, held: None, row_bytes };
        }
    }

    /// The next batch of the result, if the segments allow one: until it is there, feed what
    /// [`Self::wants`] says. `None` with nothing wanted: that was all.
    pub fn next_rows(&mut self) -> StoreResult<Option<Rows>> {
        while self.wants().is_none() {
            let full = self.picked.len() >= self.layout.batch_rows || self.bytes >= self.layout.batch_bytes;
            if full && !self.picked.is_empty() {
                return self.flush().map(Some);
            }
            let Some(id) = self.inputs.iter().filter_map(Input::head).min() else {
                return if self.picked.is_empty() { Ok(None) } else { self.flush().map(Some) };
            };
            // The newest that has it decides; all that have it move on.
            let newest = self.inputs.iter().rposition(|i| i.head() == Some(id));
            if let Some(i) = newest.map(|n| &mut self.inputs[n])
                && let Some(c) = &i.current
                && c.weights[i.at] != 0
            {
                let held = *i.held.get_or_insert_with(|| {
                    self.held.push(c.rows.clone());
                    self.held.len() - 1
                });
                self.picked.push((held, i.at));
                self.bytes += i.row_bytes;
                self.ids.push(id);
                self.vnodes.push(c.vnodes[i.at]);
                self.weights.push(c.weights[i.at]);
            }
            self.inputs.iter_mut().filter(|i| i.head() == Some(id)).for_each(|i| i.at += 1);
        }
        // Many batches of which little was picked must not pile up.
        if self.held.len() > 4 * self.inputs.len() && !self.picked.is_empty() {
            return self.flush().map(Some);
        }
        Ok(None)
    }

    fn flush(&mut self) -> StoreResult<Rows> {
        let held = std::mem::take(&mut self.held);
        let picked = std::mem::take(&mut self.picked);
        self.bytes = 0;
        self.inputs.iter_mut().for_each(|i| i.held = None);
        let bad = |e: arrow::error::ArrowError| StoreError::Invalid(format!("segments of one chain do not fit: {e}"));
        let schema = held.first().map(RecordBatch::schema).ok_or_else(|| StoreError::Invalid("no rows".into()))?;
        if let Some(other) = held.iter().find(|b| b.schema() != schema) {
            return Err(StoreError::Invalid(format!(
                "segments of one chain do not fit: {schema} and {}",
                other.schema()
            )));
        }
        let rows = if schema.fields().is_empty() {
            let options = RecordBatchOptions::new().with_row_count(Some(picked.len()));
            RecordBatch::try_new_with_options(schema, vec![], &options).map_err(bad)?
        } else {
            interleave_record_batch(&held.iter().collect::<Vec<_>>(), &picked).map_err(bad)?
        };
        Ok(Rows {
            ids: std::mem::take(&mut self.ids),
            vnodes: std::mem::take(&mut self.vnodes),
            weights: std::mem::take(&mut self.weights),
            rows,
        })
    }
}

/// One segment being read, part by part.
struct Segment<'a> {
    parts: std::slice::Iter<'a, ObjectRef>,
    reader: Option<PartReader>,
    last: Option<u64>,
}

impl Segment<'_> {
    async fn next(&mut self, objects: &SnapshotObjects, schema: &mut Option<SchemaRef>) -> StoreResult<Option<Rows>> {
        loop {
            if let Some(reader) = &mut self.reader
                && let Some(rows) = reader.next_rows()?
            {
                return Ok(Some(rows));
            }
            let Some(part) = self.parts.next() else { return Ok(None) };
            let reader = PartReader::new(&part.name.to_string(), objects.get(part).await?)?;
            let follows = reader.bounds().is_none_or(|(first, _)| self.last.is_none_or(|last| last < first));
            if !follows || schema.as_ref().is_some_and(|s| s != reader.schema()) {
                return Err(StoreError::corrupt(part.name.to_string(), "it does not fit the parts before it"));
            }
            schema.get_or_insert_with(|| reader.schema().clone());
            self.last = reader.bounds().map(|b| b.1).or(self.last);
            self.reader = Some(reader);
        }
    }
}

/// Merges one table's segments, each a list of parts, oldest first, and hands over the parts of
/// the full segment. Nothing comes out if no segment has parts.
async fn merge_table(
    objects: &SnapshotObjects,
    segments: &[&[ObjectRef]],
    layout: Layout,
    mut out: impl AsyncFnMut(Part) -> StoreResult<()>,
) -> StoreResult<()> {
    let mut schema = None;
    let mut inputs: Vec<Segment> =
        segments.iter().map(|parts| Segment { parts: parts.iter(), reader: None, last: None }).collect();
    let mut merger = Merger::new(inputs.len(), layout);
    let mut encoder: Option<Encoder> = None;
    loop {
        while let Some(i) = merger.wants() {
            merger.feed(i, inputs[i].next(objects, &mut schema).await?);
        }
        if encoder.is_none() {
            encoder = schema.as_ref().map(|s| Encoder::new(s, true, layout));
        }
        let Some(encoder) = &mut encoder else { return Ok(()) };
        match merger.next_rows()? {
            Some(r) => {
                if let Some(part) = encoder.push(&r.ids, &r.vnodes, &r.weights, &r.rows)? {
                    out(part).await?;
                }
            }
            None if merger.wants().is_some() => {}
            None => {
                if let Some(part) = encoder.finish()? {
                    out(part).await?;
                }
                return Ok(());
            }
        }
    }
}

/// Merges a task's chain (from a full snapshot on) into one full snapshot of the same epoch, whose
/// objects are durable on return. They count once the manifest has
/// [replaced](super::chains::Chains::replace) the chain.
///
/// # Errors
/// If the chain does not begin with a full snapshot, or snapshots have other tables.
pub async fn compact(
    objects: &SnapshotObjects,
    incarnation: u32,
    task: TaskId,
    generation: u64,
    chain: &[Arc<SnapshotEntry>],
    layout: Layout,
) -> StoreResult<SnapshotEntry> {
    let start = chain.iter().rposition(|s| s.is_full());
    let Some((start, last)) = start.zip(chain.last()) else {
        return Err(StoreError::Invalid(format!("the chain of {task} has no full snapshot")));
    };
    let chain = &chain[start..];
    let mut tables: Vec<Vec<Vec<ObjectRef>>> = Vec::new();
    for op in 0..last.tables.len() {
        let mut of_op = Vec::new();
        for table in 0..last.tables[op].len() {
            let parts =
                |s: &Arc<SnapshotEntry>| s.tables.get(op).and_then(|o| o.get(table)).map(Vec::as_slice).is_none();
            if chain.iter().any(parts) {
                return Err(StoreError::Invalid(format!("snapshots of {task} have other tables")));
            }
            let segments: Vec<&[ObjectRef]> = chain.iter().map(|s| s.tables[op][table].as_slice()).collect();
            let mut put = Vec::new();
            merge_table(objects, &segments, layout, async |part: Part| {
                let name = PartName {
                    incarnation,
                    task,
                    generation,
                    epoch: last.epoch,
                    merged: true,
                    op: number(op)?,
                    table: number(table)?,
                    part: number(put.len())?,
                };
                put.push(objects.put(ObjectName::Part(name), &part.chunks).await?);
                Ok(())
            })
            .await?;
            of_op.push(put);
        }
        tables.push(of_op);
    }
    Ok(SnapshotEntry { epoch: last.epoch, since: None, generation, tables, leaves: last.leaves.clone() })
}

/// Puts a table's segment, of which all is named but the part, and gives its parts. Blocks while
/// it encodes; a part at a time is held.
pub async fn put_segment(
    objects: &SnapshotObjects,
    name: PartName,
    segment: &TableSegment,
    layout: Layout,
) -> StoreResult<Vec<ObjectRef>> {
    let mut parts = Parts::new(segment, layout)?;
    let mut put = Vec::new();
    while let Some(part) = parts.next_part()? {
        let name = PartName { part: number(put.len())?, ..name };
        put.push(objects.put(ObjectName::Part(name), &part.chunks).await?);
    }
    Ok(put)
}

/// Gets a table's segment; `None` if nothing had changed.
pub async fn get_segment(objects: &SnapshotObjects, parts: &[ObjectRef]) -> StoreResult<Option<TableSegment>> {
    let mut all = Assembler::default();
    for part in parts {
        all.add(&part.name.to_string(), objects.get(part).await?)?;
    }
    all.finish()
}

fn number(n: usize) -> StoreResult<u32> {
    u32::try_from(n).map_err(|_| StoreError::Invalid("a snapshot has too many parts".into()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
#[path = "compact_tests.rs"]
mod tests;
