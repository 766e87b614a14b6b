//! Hash join of two changing inputs: inner, left, right and full, with several keys and a
//! residual filter. Keeps each side's rows in a bag keyed by the join key.
//!
//! A delta of one side is joined with the other side's rows as they are (weights multiply),
//! then added to its own side. An outer side's row also stands in the output with NULLs while
//! its degree — the sum of weights of the opposite rows that match it — is 0; the degree is
//! kept beside the row, and each step emits the difference that it makes. As those
//! differences telescope, the sum over an epoch is right at the barrier even if weights or
//! degrees were negative in between. Rows whose key has a NULL match nothing (unless
//! `null_equal`) and are not kept.
//!
//! Unless both inputs are append-only, an epoch's output goes out net at the barrier.
//! With append-only inputs a row is freed once the other side's watermark says that it meets
//! nobody any more, if the condition bounds how far two times may be apart. Once a side has ended
//! the other side's rows are not kept any more, whatever the inputs.

pub(super) mod expire;
pub(super) mod residual;

use arrow::array::UInt32Array;
use arrow::buffer::NullBuffer;
use arrow::compute::take;
use arrow::datatypes::SchemaRef;

use self::expire::Expire;
use self::residual::Residual;
use super::consolidate::{Consolidator, pick, weights_or_none};
use super::{BarrierInfo, Operator, Output};
use crate::plan::{JoinKind, JoinSpec};
use crate::state::frozen::record_batch;
use crate::state::{BagTable, NO_SLOT, ProbeCursor, ProbeKeys, Slot, TableDef, Tables};
use crate::types::{Delta, Result, SpateError, Watermark};

/// Most rows of an emitted delta, and of candidate pairs looked at in one go.
const PIECE: usize = 8192;

/// No probing row: NULLs stand for it.
const NO_ROW: u32 = u32::MAX;

/// Hash join.
#[derive(Debug)]
pub struct HashJoin {
    /// Key columns per side.
    keys: [Vec<usize>; 2],
    /// Input schemas.
    inputs: [SchemaRef; 2],
    output: SchemaRef,
    /// Whether rows of the side without a match are in the output.
    outer: [bool; 2],
    null_equal: bool,
    filter: Option<Residual>,
    append_only_inputs: bool,
    expire: Expire,
    /// Matched pairs leave at once.
    stream_pairs: bool,
    /// Changes of the epoch that must be net at the barrier.
    scratch: Consolidator,
}

impl HashJoin {
    /// The join of `spec`. Errors if keys do not fit the schemas.
    pub fn new(spec: &JoinSpec, left: SchemaRef, right: SchemaRef, output: SchemaRef) -> Result<Self> {
        check_keys(spec, &left, &right)?;
        if output.fields().len() != left.fields().len() + right.fields().len() {
            return Err(SpateError::internal("a join's output must have the columns of both inputs"));
        }
        let outer = match spec.kind {
            JoinKind::Inner => [false, false],
            JoinKind::Left => [true, false],
            JoinKind::Right => [false, true],
            JoinKind::Full => [true, true],
            JoinKind::Semi | JoinKind::Anti | JoinKind::Mark => {
                return Err(SpateError::internal(format!("a hash join is not of kind {:?}", spec.kind)));
            }
        };
        // A pair can look like a NULL-extended row only if a row of NULLs can match.
        let told_apart = !spec.null_equal && !spec.left_keys.is_empty();
        Ok(Self {
            keys: [spec.left_keys.clone(), spec.right_keys.clone()],
            inputs: [left, right],
            filter: spec.filter.as_ref().map(|f| Residual::new(f, &output)).transpose()?,
            scratch: Consolidator::new(output.clone())?,
            output,
            outer,
            null_equal: spec.null_equal,
            append_only_inputs: spec.append_only_inputs,
            expire: Expire::new(spec),
            stream_pairs: spec.append_only_inputs && (outer == [false, false] || told_apart),
        })
    }
}

impl Operator for HashJoin {
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
        if input > 1 {
            return Err(SpateError::internal(format!("a join has no input {input}")));
        }
        let delta = without_zeros(delta)?;
        if delta.is_empty() {
            return Ok(());
        }
        let (left, right) = tables.two_bags(0, 1)?;
        let (own, other) = if input == 0 { (left, right) } else { (right, left) };
        let keys = ProbeKeys::new(delta.rows(), &self.keys[input], self.null_equal)?;
        let degrees = self.join(input, &delta, &keys, other, out)?;
        if self.expire.has_ended(1 - input) {
            return Ok(());
        }
        let keys = self.expire.timeless(input, &delta, keys);
        self.keep(own, delta, keys, degrees)
    }

    fn barrier(&mut self, info: &BarrierInfo<'_>, tables: &mut Tables, out: &mut Output) -> Result<()> {
        for delta in self.scratch.finish()? {
            out.emit(delta);
        }
        let (left, right) = tables.two_bags(0, 1)?;
        self.expire.note(info);
        // Rows of one side are kept for those of the other.
        for (table, other) in [(&mut *left, 1), (&mut *right, 0)] {
            if self.expire.has_ended(other) {
                table.remove_all();
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

impl HashJoin {
    /// Emits what the delta changes; returns the degree of each of its rows, if its side is
    /// an outer one.
    fn join(
        &mut self,
        input: usize,
        delta: &Delta,
        keys: &ProbeKeys,
        other: &mut BagTable,
        out: &mut Output,
    ) -> Result<Option<Vec<i64>>> {
        let rows = delta.num_rows();
        let (own_outer, other_outer) = (self.outer[input], self.outer[1 - input]);
        let mut degrees = own_outer.then(|| vec![0i64; rows]);
        let mut pairs = Pending::default();
        // NULL-extended rows, where they must not go out together with the pairs.
        let mut extended = Pending::default();
        let apart = self.stream_pairs;
        // Rows before this one have had their NULL-extended row, if they need one.
        let mut settled = 0;
        let mut cursor = ProbeCursor::default();
        let plain = delta.weights().is_none() && other.is_unit();
        while cursor.row() < rows {
            let mut found = other.probe(keys, &mut cursor, PIECE)?;
            if let Some(filter) = &self.filter {
                filter.retain(input, self.inputs[0].fields().len(), delta, other, &mut found)?;
            }
            if !own_outer && !other_outer {
                if plain {
                    pairs.weights.resize(pairs.weights.len() + found.slots.len(), 1);
                } else {
                    let product = |(&p, &s): (&u32, &Slot)| delta.weight(p as usize).wrapping_mul(other.weight(s));
                    pairs.weights.extend(found.probe.iter().zip(&found.slots).map(product));
                }
                pairs.probe.append(&mut found.probe);
                pairs.slots.append(&mut found.slots);
            } else {
                for (&p, &slot) in found.probe.iter().zip(&found.slots) {
                    let (wp, ws) = (delta.weight(p as usize), other.weight(slot));
                    if let Some(degrees) = &mut degrees {
                        let ext = if apart { &mut extended } else { &mut pairs };
                        settle(delta, degrees, &mut settled, p as usize, ext);
                        degrees[p as usize] = degrees[p as usize].wrapping_add(ws);
                    }
                    pairs.push(p, slot, wp.wrapping_mul(ws));
                    if other_outer {
                        let after = other.add_aux(slot, wp);
                        let before = after.wrapping_sub(wp);
                        let change = i64::from(after == 0) - i64::from(before == 0);
                        if change != 0 {
                            let ext = if apart { &mut extended } else { &mut pairs };
                            ext.push(NO_ROW, slot, ws.wrapping_mul(change));
                        }
                    }
                }
            }
            let last = cursor.row() >= rows;
            if last && let Some(degrees) = &degrees {
                let ext = if apart { &mut extended } else { &mut pairs };
                settle(delta, degrees, &mut settled, rows, ext);
            }
            let least = if last { 1 } else { PIECE };
            while pairs.len() >= least {
                let piece = self.build(input, delta, other, pairs.take(PIECE))?;
                if self.stream_pairs {
                    out.emit(piece);
                } else {
                    self.scratch.push(&piece)?;
                }
            }
            while extended.len() >= least {
                let piece = self.build(input, delta, other, extended.take(PIECE))?;
                self.scratch.push(&piece)?;
            }
        }
        Ok(degrees)
    }

    /// Output rows of pending pairs.
    fn build(&self, input: usize, delta: &Delta, other: &BagTable, pending: Pending) -> Result<Delta> {
        let rows = pending.len();
        let Pending { probe, slots, weights } = pending;
        let nulls = probe.contains(&NO_ROW).then(|| probe.iter().map(|p| *p != NO_ROW).collect::<NullBuffer>());
        let probe: Vec<u32> = match &nulls {
            Some(_) => probe.into_iter().map(|p| if p == NO_ROW { 0 } else { p }).collect(),
            None => probe,
        };
        let probe = UInt32Array::new(probe.into(), nulls);
        let mine = delta.rows().columns().iter().map(|c| Ok(take(c.as_ref(), &probe, None)?));
        let mut mine = mine.collect::<Result<Vec<_>>>()?;
        let all: Vec<usize> = (0..other.schema().fields().len()).collect();
        let mut theirs = other.gather(&slots, &all)?;
        if input == 0 {
            mine.append(&mut theirs);
        } else {
            theirs.append(&mut mine);
            mine = theirs;
        }
        Delta::new(record_batch(&self.output, mine, rows)?, weights_or_none(weights))
    }

    /// Adds the delta to its own side.
    fn keep(&self, own: &mut BagTable, mut delta: Delta, keys: ProbeKeys, mut degrees: Option<Vec<i64>>) -> Result<()> {
        let mut hashes = keys.hashes;
        if let Some(valid) = keys.valid {
            let rows: Vec<u32> = (0..delta.num_rows() as u32).filter(|&i| valid.is_valid(i as usize)).collect();
            hashes = rows.iter().map(|&i| hashes[i as usize]).collect();
            degrees = degrees.map(|d| rows.iter().map(|&i| d[i as usize]).collect());
            delta = pick_with_weights(&delta, rows)?;
        }
        if delta.is_empty() {
            return Ok(());
        }
        if self.append_only_inputs {
            own.append(&delta, Some(&hashes), degrees.as_deref())
        } else {
            own.merge(&delta, Some(&hashes), degrees.as_deref()).map(drop)
        }
    }
}

/// Adds the NULL-extended rows of the delta's rows from `settled` to `until` (not included),
/// whose degrees are final.
fn settle(delta: &Delta, degrees: &[i64], settled: &mut usize, until: usize, into: &mut Pending) {
    for (i, degree) in degrees.iter().enumerate().take(until).skip(*settled) {
        if *degree == 0 {
            into.push(i as u32, NO_SLOT, delta.weight(i));
        }
    }
    *settled = until.max(*settled);
}

/// Output rows still to be built: a row of the delta, a stored row, a weight.
#[derive(Debug, Default)]
struct Pending {
    probe: Vec<u32>,
    slots: Vec<Slot>,
    weights: Vec<i64>,
}

impl Pending {
    fn push(&mut self, probe: u32, slot: Slot, weight: i64) {
        self.probe.push(probe);
        self.slots.push(slot);
        self.weights.push(weight);
    }

    fn len(&self) -> usize {
        self.weights.len()
    }

    /// The first `n` of them, or all.
    fn take(&mut self, n: usize) -> Self {
        if n >= self.len() {
            return std::mem::take(self);
        }
        let (probe, slots, weights) = (self.probe.split_off(n), self.slots.split_off(n), self.weights.split_off(n));
        std::mem::replace(self, Self { probe, slots, weights })
    }
}

/// Errors unless the keys of both sides fit each other.
pub(super) fn check_keys(spec: &JoinSpec, left: &SchemaRef, right: &SchemaRef) -> Result<()> {
    if spec.left_keys.len() != spec.right_keys.len() {
        return Err(SpateError::internal("a join has different numbers of keys left and right"));
    }
    for (&l, &r) in spec.left_keys.iter().zip(&spec.right_keys) {
        let types = (left.fields().get(l).map(|f| f.data_type()), right.fields().get(r).map(|f| f.data_type()));
        match types {
            (Some(a), Some(b)) if a == b => {}
            _ => return Err(SpateError::internal(format!("join keys {l} and {r} do not fit: {types:?}"))),
        }
    }
    Ok(())
}

/// The rows at `rows` with their weights.
pub(super) fn pick_with_weights(delta: &Delta, rows: Vec<u32>) -> Result<Delta> {
    let weights =
        delta.weights().and_then(|_| weights_or_none(rows.iter().map(|&i| delta.weight(i as usize)).collect()));
    pick(delta, rows, weights)
}

/// The delta without rows of weight 0.
pub(super) fn without_zeros(delta: Delta) -> Result<Delta> {
    match delta.weights() {
        Some(w) if w.values().contains(&0) => {
            let rows = (0..delta.num_rows() as u32).filter(|&i| delta.weight(i as usize) != 0).collect();
            pick_with_weights(&delta, rows)
        }
        _ => Ok(delta),
    }
}

#[cfg(test)]
pub(crate) mod tests;
