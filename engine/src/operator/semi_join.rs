//! Semi, anti and mark join of two changing inputs (EXISTS, NOT EXISTS, and EXISTS as a
//! value). Keeps the left's rows, and of the right each distinct row with its weight, both in
//! bags keyed by the join key.
//!
//! A right row counts while its weight is above 0. Beside each left row stands its degree,
//! the number of right rows that count and match it; the row is in the output of a semi join
//! while that is not 0, in that of an anti join while it is. A mark join has every left row,
//! with a column that says so. What a delta changes in this is emitted, the changes of an
//! epoch net at its barrier; as they telescope, weights and degrees may be negative in
//! between. Left rows whose key has a NULL match nothing (unless `null_equal`) and are not
//! kept, nor are such right rows.
//!
//! With append-only inputs a row of a semi join is emitted for good with its first match.
//! Rows are freed by watermark as in other joins.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Schema, SchemaRef};

use super::consolidate::{Consolidator, pick, weights_or_none};
use super::join::expire::Expire;
use super::join::residual::Residual;
use super::join::{check_keys, pick_with_weights, without_zeros};
use super::{BarrierInfo, Operator, Output};
use crate::plan::{JoinKind, JoinSpec};
use crate::state::frozen::record_batch;
use crate::state::{BagTable, ProbeCursor, ProbeKeys, Slot, TableDef, Tables};
use crate::types::{Delta, Result, SpateError, Watermark};

/// Most rows of an emitted delta, and of candidate pairs looked at in one go.
const PIECE: usize = 8192;

/// Semi, anti or mark join.
#[derive(Debug)]
pub struct SemiJoin {
    kind: JoinKind,
    /// Key columns per side.
    keys: [Vec<usize>; 2],
    /// Input schemas.
    inputs: [SchemaRef; 2],
    output: SchemaRef,
    null_equal: bool,
    filter: Option<Residual>,
    expire: Expire,
    /// Nothing is taken back on either side, and so nothing in the output.
    append_only: bool,
    /// Changes of the epoch that must be net at the barrier.
    scratch: Consolidator,
}

impl SemiJoin {
    /// The join of `spec`. Errors if keys do not fit the schemas.
    pub fn new(spec: &JoinSpec, left: SchemaRef, right: SchemaRef, output: SchemaRef) -> Result<Self> {
        check_keys(spec, &left, &right)?;
        let marked = match spec.kind {
            JoinKind::Semi | JoinKind::Anti => false,
            JoinKind::Mark => true,
            other => return Err(SpateError::internal(format!("a semi join is not of kind {other:?}"))),
        };
        let mark = output.fields().get(left.fields().len()).map(|f| f.data_type());
        if output.fields().len() != left.fields().len() + usize::from(marked)
            || (marked && mark != Some(&DataType::Boolean))
        {
            return Err(SpateError::internal("a semi join's output must have the columns of its left input"));
        }
        let pairs = Arc::new(Schema::new(left.fields().iter().chain(right.fields()).cloned().collect::<Vec<_>>()));
        Ok(Self {
            kind: spec.kind,
            keys: [spec.left_keys.clone(), spec.right_keys.clone()],
            inputs: [left, right],
            filter: spec.filter.as_ref().map(|f| Residual::new(f, &pairs)).transpose()?,
            expire: Expire::new(spec),
            scratch: Consolidator::new(output.clone())?,
            output,
            null_equal: spec.null_equal,
            append_only: spec.append_only_inputs && spec.kind == JoinKind::Semi,
        })
    }
}

impl Operator for SemiJoin {
    fn tables(&self) -> Vec<TableDef> {
        (0..2)
            .map(|side| TableDef::Bag {
                schema: self.inputs[side].clone(),
                key: self.keys[side].clone(),
                dist: self.keys[side].clone(),
            })
            .collect()
    }

    fn max_input_rows(&self) -> usize {
        // Without keys every row meets every row of the other side.
        if self.keys[0].is_empty() { 16 } else { usize::MAX }
    }

    fn push(&mut self, input: usize, delta: Delta, tables: &mut Tables, out: &mut Output) -> Result<()> {
        let delta = without_zeros(delta)?;
        if delta.is_empty() {
            return Ok(());
        }
        let (left, right) = tables.two_bags(0, 1)?;
        match input {
            0 => self.push_left(delta, left, right, out),
            1 => self.push_right(&delta, left, right, out),
            _ => Err(SpateError::internal(format!("a join has no input {input}"))),
        }
    }

    fn barrier(&mut self, info: &BarrierInfo<'_>, tables: &mut Tables, out: &mut Output) -> Result<()> {
        for delta in self.scratch.finish()? {
            out.emit(delta);
        }
        let (left, right) = tables.two_bags(0, 1)?;
        self.expire.note(info);
        // Left rows are kept for the right rows that turn them; right rows also for each other, as
        // only the first and the last of equal ones turn anything.
        if self.expire.has_ended(1) {
            left.remove_all();
            if self.expire.has_ended(0) {
                right.remove_all();
            }
        }
        self.expire.free(info, left, right)?;
        left.maintain()?;
        right.maintain()
    }

    fn watermark(&self, info: &BarrierInfo<'_>) -> Watermark {
        self.expire.watermark(info)
    }
}

impl SemiJoin {
    fn push_left(&mut self, delta: Delta, left: &mut BagTable, right: &BagTable, out: &mut Output) -> Result<()> {
        let keys = ProbeKeys::new(delta.rows(), &self.keys[0], self.null_equal)?;
        let rows = delta.num_rows();
        let mut degrees = vec![0i64; rows];
        let mut cursor = ProbeCursor::default();
        while cursor.row() < rows {
            let mut found = right.probe(&keys, &mut cursor, PIECE)?;
            if let Some(filter) = &self.filter {
                filter.retain(0, self.inputs[0].fields().len(), &delta, right, &mut found)?;
            }
            for (&p, &slot) in found.probe.iter().zip(&found.slots) {
                degrees[p as usize] += i64::from(right.weight(slot) > 0);
            }
        }
        let mut columns = delta.rows().columns().to_vec();
        let shown = match self.kind {
            JoinKind::Mark => {
                columns.push(Arc::new(degrees.iter().map(|d| Some(*d != 0)).collect::<BooleanArray>()));
                Delta::new(record_batch(&self.output, columns, rows)?, delta.weights().cloned())?
            }
            kind => {
                let wanted = kind == JoinKind::Semi;
                let which = (0..rows as u32).filter(|&i| (degrees[i as usize] != 0) == wanted).collect();
                let whole = Delta::new(record_batch(&self.output, columns, rows)?, delta.weights().cloned())?;
                pick_with_weights(&whole, which)?
            }
        };
        self.show(shown, out)?;
        if self.expire.has_ended(1) {
            return Ok(());
        }
        let keys = self.expire.timeless(0, &delta, keys);
        self.keep_left(left, delta, keys, degrees)
    }

    fn push_right(&mut self, delta: &Delta, left: &mut BagTable, right: &mut BagTable, out: &mut Output) -> Result<()> {
        let keys = ProbeKeys::new(delta.rows(), &self.keys[1], self.null_equal)?;
        let mut keys = self.expire.timeless(1, delta, keys);
        // NULL keys meet nobody, now or later.
        let kept;
        let delta = match keys.valid.take() {
            Some(valid) => {
                let rows = (0..delta.num_rows() as u32).filter(|&i| valid.is_valid(i as usize)).collect();
                kept = pick_with_weights(delta, rows)?;
                keys = ProbeKeys::new(kept.rows(), &self.keys[1], self.null_equal)?;
                &kept
            }
            None => delta,
        };
        if delta.is_empty() {
            return Ok(());
        }
        let changes = right.merge(delta, Some(&keys.hashes), None)?;
        let (mut rows, mut turns) = (Vec::new(), Vec::new());
        for (i, c) in changes.iter().enumerate() {
            let turn = i64::from(c.new > 0) - i64::from(c.old > 0);
            if turn != 0 {
                rows.push(i as u32);
                turns.push(turn);
            }
        }
        if rows.is_empty() {
            return Ok(());
        }
        let turned = pick(delta, rows, None)?;
        let keys = ProbeKeys::new(turned.rows(), &self.keys[1], self.null_equal)?;
        let mut cursor = ProbeCursor::default();
        while cursor.row() < turned.num_rows() {
            let mut found = left.probe(&keys, &mut cursor, PIECE)?;
            if let Some(filter) = &self.filter {
                filter.retain(1, self.inputs[0].fields().len(), &turned, left, &mut found)?;
            }
            // Left rows that get their first match, or lose their last.
            let (mut slots, mut gained): (Vec<Slot>, Vec<bool>) = (Vec::new(), Vec::new());
            for (&p, &slot) in found.probe.iter().zip(&found.slots) {
                let turn = turns[p as usize];
                let after = left.add_aux(slot, turn);
                let (had, has) = (after != turn, after != 0);
                if had != has {
                    slots.push(slot);
                    gained.push(has);
                }
            }
            if !slots.is_empty() {
                let shown = self.turned(left, &slots, &gained)?;
                self.show(shown, out)?;
            }
        }
        Ok(())
    }

    /// What changes in the output when stored left rows gain or lose their match.
    fn turned(&self, left: &BagTable, slots: &[Slot], gained: &[bool]) -> Result<Delta> {
        let all: Vec<usize> = (0..left.schema().fields().len()).collect();
        let columns = left.gather(slots, &all)?;
        let weights = left.weights(slots);
        if self.kind != JoinKind::Mark {
            let wanted = self.kind == JoinKind::Semi;
            let signed = weights.iter().zip(gained);
            let weights = signed.map(|(w, g)| if *g == wanted { *w } else { w.wrapping_neg() }).collect();
            return Delta::new(record_batch(&self.output, columns, slots.len())?, weights_or_none(weights));
        }
        // The row with its old mark goes, the row with the new one comes.
        let twice: UInt32Array = (0..slots.len() as u32).flat_map(|i| [i, i]).collect();
        let mut columns: Vec<ArrayRef> =
            columns.iter().map(|c| Ok(take(c.as_ref(), &twice, None)?)).collect::<Result<_>>()?;
        columns.push(Arc::new(gained.iter().flat_map(|g| [Some(!g), Some(*g)]).collect::<BooleanArray>()));
        let weights = weights.iter().flat_map(|w| [w.wrapping_neg(), *w]).collect();
        Delta::new(record_batch(&self.output, columns, 2 * slots.len())?, weights_or_none(weights))
    }

    fn show(&mut self, delta: Delta, out: &mut Output) -> Result<()> {
        if self.append_only {
            out.emit(delta);
            return Ok(());
        }
        self.scratch.push(&delta)
    }

    /// Adds the delta to the left's rows.
    fn keep_left(&self, left: &mut BagTable, delta: Delta, keys: ProbeKeys, degrees: Vec<i64>) -> Result<()> {
        // What has been emitted for good need not be met again.
        let keeps = |i: u32| {
            let known = keys.valid.as_ref().is_none_or(|v| v.is_valid(i as usize));
            known && !(self.append_only && degrees[i as usize] != 0)
        };
        let rows: Vec<u32> = (0..delta.num_rows() as u32).filter(|&i| keeps(i)).collect();
        if rows.is_empty() {
            return Ok(());
        }
        let (delta, hashes, degrees) = if rows.len() == delta.num_rows() {
            (delta, keys.hashes, degrees)
        } else {
            let hashes = rows.iter().map(|&i| keys.hashes[i as usize]).collect();
            let degrees = rows.iter().map(|&i| degrees[i as usize]).collect();
            (pick_with_weights(&delta, rows)?, hashes, degrees)
        };
        if self.append_only {
            left.append(&delta, Some(&hashes), Some(&degrees))
        } else {
            left.merge(&delta, Some(&hashes), Some(&degrees)).map(drop)
        }
    }
}

#[cfg(test)]
mod tests;
