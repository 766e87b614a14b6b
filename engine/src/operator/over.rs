//! Window functions: a column each, computed per partition over its rows in order.
//!
//! State: all rows, as memcomparable bytes that begin with the partition and the order. At the
//! barrier the functions are evaluated over each partition that changed, as it was and as it
//! is, and the difference goes out. What a partition was follows from the changes of the
//! epoch, so no results are stored. Copies of a row are rows of their own. Where a watermark
//! closes partitions, closed ones are freed; with `emit_on_close` a partition is computed only then.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat;
use arrow::datatypes::{Schema, SchemaRef};

use super::consolidate::Consolidator;
use super::expr::batch_of;
use super::row_keys::{Closed, RowKeys};
use super::{BarrierInfo, Operator, Output};
use crate::plan::OverSpec;
use crate::state::{OrderedTable, TableDef, Tables};
use crate::types::{Delta, Result, SpateError};

/// Rows that are decoded at once, unless a partition has more.
const BATCH_ROWS: usize = 8 * 1024;

/// Window functions over partitions.
#[derive(Debug)]
pub struct Over {
    spec: OverSpec,
    /// Schemas before each stage.
    stages: Vec<SchemaRef>,
    output: SchemaRef,
    rows: RowKeys,
    /// Net changes of the epoch.
    changes: OrderedTable,
    /// Partitions that changed in the epoch.
    touched: BTreeSet<Box<[u8]>>,
    net: Consolidator,
}

type Keys<'a> = Vec<&'a [u8]>;

/// Rows of partitions, decoded and computed together.
#[derive(Default)]
struct Work<'a> {
    keys: Keys<'a>,
    /// Lengths of the runs that are one partition each, and whether it is the old one.
    runs: Vec<(usize, bool)>,
}

impl Over {
    /// The operator for this spec. Errors if a column cannot be ordered.
    pub fn new(spec: OverSpec, input: SchemaRef, output: SchemaRef) -> Result<Self> {
        let width = input.fields().len();
        let rows = RowKeys::closing(input, &spec.partition, &spec.order, spec.window, "OVER")?;
        let mut stages = Vec::with_capacity(spec.stages.len());
        let mut at = width;
        for stage in &spec.stages {
            let fields: Vec<_> = output.fields().iter().take(at).cloned().collect();
            stages.push(Arc::new(Schema::new(fields)));
            at += stage.len();
        }
        if at != output.fields().len() {
            return Err(SpateError::internal("window functions and columns differ in number"));
        }
        let net = Consolidator::new(output.clone())?;
        Ok(Self { spec, stages, output, rows, changes: OrderedTable::new(), touched: BTreeSet::new(), net })
    }

    /// Adds what the epoch changes to the net change.
    fn compare(&mut self, rows: &OrderedTable) -> Result<()> {
        let changes = std::mem::take(&mut self.changes);
        let touched = std::mem::take(&mut self.touched);
        let mut work = Work::default();
        for prefix in &touched {
            if changes.scan_prefix(prefix).next().is_none() {
                continue;
            }
            let (old, new) = sides(rows, &changes, prefix);
            for (side, is_old) in [(old, true), (new, false)] {
                if !side.is_empty() {
                    work.runs.push((side.len(), is_old));
                    work.keys.extend(side);
                }
            }
            if work.keys.len() >= BATCH_ROWS {
                self.compute(&mut work)?;
            }
        }
        self.compute(&mut work)
    }

    /// Adds the closed partitions to the net change.
    fn finish(&mut self, rows: &OrderedTable, closed: &Closed) -> Result<()> {
        let mut work = Work::default();
        let mut partition: Option<&[u8]> = None;
        let mut entries = rows.scan_from(&closed.from).take_while(|(k, _)| closed.has(k));
        loop {
            let block: Vec<(&[u8], i64)> = entries.by_ref().take(BATCH_ROWS).collect();
            if block.is_empty() {
                return self.compute(&mut work);
            }
            let lengths = self.rows.partition_lengths(block.iter().map(|(k, _)| *k))?;
            for ((key, weight), len) in block.into_iter().zip(lengths) {
                let own = key.get(..len);
                if own != partition {
                    if work.keys.len() >= BATCH_ROWS {
                        self.compute(&mut work)?;
                    }
                    partition = own;
                    work.runs.push((0, false));
                }
                if let Some((run, _)) = work.runs.last_mut() {
                    let copies = usize::try_from(weight).unwrap_or(0);
                    *run += copies;
                    work.keys.extend(std::iter::repeat_n(key, copies));
                }
            }
        }
    }

    /// Decodes and computes what is gathered, and adds it to the net change.
    fn compute(&mut self, work: &mut Work<'_>) -> Result<()> {
        let Work { keys, runs } = std::mem::take(work);
        if keys.is_empty() {
            return Ok(());
        }
        let mut batch = self.rows.decode(keys.iter().copied())?;
        drop(keys);
        for (stage, schema) in self.spec.stages.iter().zip(&self.stages) {
            batch = RecordBatch::try_new(schema.clone(), batch.columns().to_vec())?;
            let mut columns = batch.columns().to_vec();
            for function in stage {
                let mut parts = Vec::with_capacity(runs.len());
                let mut at = 0;
                for (len, _) in &runs {
                    parts.push(function.evaluate(&batch.slice(at, *len))?);
                    at += len;
                }
                let parts: Vec<_> = parts.iter().map(AsRef::as_ref).collect();
                columns.push(concat(&parts)?);
            }
            let fields: Vec<_> = self.output.fields().iter().take(columns.len()).cloned().collect();
            batch = batch_of(&Arc::new(Schema::new(fields)), columns, batch.num_rows())?;
        }
        let batch = RecordBatch::try_new(self.output.clone(), batch.columns().to_vec())?;
        let mut at = 0;
        for (len, old) in &runs {
            let rows = Delta::insert(batch.slice(at, *len));
            self.net.push(&if *old { rows.negate() } else { rows })?;
            at += len;
        }
        Ok(())
    }
}

/// The keys of a partition before and after the changes, each as often as it is there.
fn sides<'a>(rows: &'a OrderedTable, changes: &'a OrderedTable, prefix: &'a [u8]) -> (Keys<'a>, Keys<'a>) {
    let (mut old, mut new) = (Keys::new(), Keys::new());
    let add = |to: &mut Keys<'a>, key: &'a [u8], weight: i64| {
        to.extend((0..weight.max(0)).map(|_| key));
    };
    let mut changed = changes.scan_prefix(prefix).peekable();
    for (key, weight) in rows.scan_prefix(prefix) {
        while let Some((gone, change)) = changed.next_if(|(k, _)| *k < key) {
            add(&mut old, gone, -change);
        }
        let change = changed.next_if(|(k, _)| *k == key).map_or(0, |(_, w)| w);
        add(&mut old, key, weight - change);
        add(&mut new, key, weight);
    }
    for (gone, change) in changed {
        add(&mut old, gone, -change);
    }
    (old, new)
}

impl Operator for Over {
    fn tables(&self) -> Vec<TableDef> {
        vec![TableDef::Ordered]
    }

    fn push(&mut self, _input: usize, delta: Delta, tables: &mut Tables, _out: &mut Output) -> Result<()> {
        let rows = tables.ordered(0)?;
        let (changes, touched) = (&mut self.changes, &mut self.touched);
        let waits = self.spec.emit_on_close;
        self.rows.encode(&delta, |row| {
            rows.add(row.key, row.weight, row.vnode);
            if waits {
                return;
            }
            changes.add(row.key, row.weight, row.vnode);
            if !touched.contains(row.partition) {
                touched.insert(row.partition.into());
            }
        })
    }

    fn barrier(&mut self, info: &BarrierInfo<'_>, tables: &mut Tables, out: &mut Output) -> Result<()> {
        let rows = tables.ordered(0)?;
        let closed = self.rows.closed(info.watermark)?;
        match &closed {
            _ if !self.spec.emit_on_close => self.compare(rows)?,
            Some(closed) => self.finish(rows, closed)?,
            None => {}
        }
        if let Some(closed) = closed {
            rows.delete_range(&closed.from, closed.to.as_deref());
        }
        for delta in self.net.finish()? {
            out.emit(delta);
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "over_tests.rs"]
pub(crate) mod tests;
