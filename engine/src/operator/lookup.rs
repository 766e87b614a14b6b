//! `JOIN t FOR SYSTEM_TIME AS OF PROCTIME()`: each probing row meets the rows that the other side has
//! when it comes, and what it gave is never taken back.
//!
//! State: the other side's rows as of the last barrier, which is what the rows of an epoch meet; and,
//! until that side is complete for the first time (its backfill, or all of a bounded source), the
//! probing rows that have come so far. They wait, so that a query begins with all that was there
//! when it was created.

use arrow::array::UInt32Array;
use arrow::compute::take;
use arrow::datatypes::SchemaRef;

use super::consolidate::weights_or_none;
use super::join::residual::Residual;
use super::{BarrierInfo, Operator, Output};
use crate::plan::LookupSpec;
use crate::state::frozen::record_batch;
use crate::state::{BagTable, NO_SLOT, ProbeCursor, ProbeKeys, Slot, TableDef, Tables};
use crate::types::{Delta, Result, SpateError};

/// Most rows of an emitted delta, and of candidate pairs looked at in one go.
const PIECE: usize = 8192;
/// The one key of the table that says that the other side is complete.
const COMPLETE: &[u8] = b"complete";

/// Looks up the current rows of the other side. See the module's text.
#[derive(Debug)]
pub struct Lookup {
    spec: LookupSpec,
    inputs: [SchemaRef; 2],
    output: SchemaRef,
    filter: Option<Residual>,
    /// Changes of the other side in the open epoch.
    changes: Vec<Delta>,
}

impl Lookup {
    /// The operator for this spec.
    pub fn new(spec: LookupSpec, left: SchemaRef, right: SchemaRef, output: SchemaRef) -> Result<Self> {
        if output.fields().len() != left.fields().len() + right.fields().len() {
            return Err(SpateError::internal("a lookup's output must have the columns of both inputs"));
        }
        let filter = spec.filter.as_ref().map(|f| Residual::new(f, &output)).transpose()?;
        Ok(Self { spec, inputs: [left, right], output, filter, changes: Vec::new() })
    }

    /// Emits what the rows of `delta` meet, row by row.
    fn probe(&self, delta: &Delta, other: &BagTable, out: &mut Output) -> Result<()> {
        let rows = delta.num_rows();
        let keys = ProbeKeys::new(delta.rows(), &self.spec.left_keys, false)?;
        let mut cursor = ProbeCursor::default();
        // Rows before this one have met what they meet.
        let mut settled = 0usize;
        while cursor.row() < rows {
            let mut found = other.probe(&keys, &mut cursor, PIECE)?;
            if let Some(filter) = &self.filter {
                filter.retain(0, self.inputs[0].fields().len(), delta, other, &mut found)?;
            }
            if !self.spec.outer {
                self.emit(delta, other, &found.probe, &found.slots, out)?;
                continue;
            }
            // Rows without a match stand in their place.
            let most = found.probe.len() + cursor.row().saturating_sub(settled);
            let (mut probe, mut slots) = (Vec::with_capacity(most), Vec::with_capacity(most));
            let last = (cursor.row() as u32, NO_SLOT);
            let pairs = found.probe.iter().copied().zip(found.slots.iter().copied());
            for (row, slot) in pairs.chain([last]) {
                probe.extend(settled as u32..row);
                slots.resize(probe.len(), NO_SLOT);
                settled = settled.max(row as usize);
                if slot != NO_SLOT {
                    probe.push(row);
                    slots.push(slot);
                    settled = row as usize + 1;
                }
            }
            self.emit(delta, other, &probe, &slots, out)?;
        }
        Ok(())
    }

    fn emit(&self, delta: &Delta, other: &BagTable, probe: &[u32], slots: &[Slot], out: &mut Output) -> Result<()> {
        let theirs: Vec<usize> = (0..self.inputs[1].fields().len()).collect();
        for (probe, slots) in probe.chunks(PIECE).zip(slots.chunks(PIECE)) {
            let at = UInt32Array::from(probe.to_vec());
            let mine = delta.rows().columns().iter().map(|c| Ok(take(c.as_ref(), &at, None)?));
            let mut columns = mine.collect::<Result<Vec<_>>>()?;
            columns.extend(other.gather(slots, &theirs)?);
            let weight = |(&row, &slot): (&u32, &Slot)| {
                delta.weight(row as usize).wrapping_mul(if slot == NO_SLOT { 1 } else { other.weight(slot) })
            };
            let weights = weights_or_none(probe.iter().zip(slots).map(weight).collect());
            out.emit(Delta::new(record_batch(&self.output, columns, probe.len())?, weights)?);
        }
        Ok(())
    }
}

impl Operator for Lookup {
    fn tables(&self) -> Vec<TableDef> {
        let all: Vec<usize> = (0..self.inputs[0].fields().len()).collect();
        let (left, right) = (self.spec.left_keys.clone(), self.spec.right_keys.clone());
        vec![
            TableDef::Bag { schema: self.inputs[1].clone(), key: right.clone(), dist: right },
            TableDef::Bag { schema: self.inputs[0].clone(), key: all, dist: left },
            TableDef::Ordered,
        ]
    }

    fn push(&mut self, input: usize, delta: Delta, tables: &mut Tables, out: &mut Output) -> Result<()> {
        if input == 1 {
            self.changes.push(delta);
            return Ok(());
        }
        if tables.ordered(2)?.is_empty() {
            return tables.bag(1)?.append(&delta, None, None);
        }
        self.probe(&delta, tables.bag(0)?, out)
    }

    fn barrier(&mut self, info: &BarrierInfo<'_>, tables: &mut Tables, out: &mut Output) -> Result<()> {
        for delta in std::mem::take(&mut self.changes) {
            tables.bag(0)?.merge(&delta, None, None)?;
        }
        tables.bag(0)?.maintain()?;
        if !info.complete.get(1).copied().unwrap_or(true) || !tables.ordered(2)?.is_empty() {
            return Ok(());
        }
        tables.ordered(2)?.add(COMPLETE, 1, 0);
        let (other, waiting) = tables.two_bags(0, 1)?;
        for batch in waiting.freeze().batches() {
            let (rows, weights) = batch?;
            self.probe(&Delta::new(rows, weights_or_none(weights.values().to_vec()))?, other, out)?;
        }
        let all: Vec<Slot> = waiting.live_slots().collect();
        waiting.remove(&all);
        waiting.maintain()
    }
}

#[cfg(test)]
#[path = "lookup_tests.rs"]
mod tests;
