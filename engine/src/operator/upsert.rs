//! Records that speak of keys, as changes of rows: of the records of a key in an epoch the last
//! counts, as the new row or as its end (with `keep_first` the first, and only if there is no row
//! yet). State: the rows. Watermarks pass and free nothing.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take};
use arrow::datatypes::{Int16Type, SchemaRef};
use arrow::row::{RowConverter, SortField};

use super::expr::batch_of;
use super::{BarrierInfo, Operator, Output};
use crate::plan::UpsertSpec;
use crate::state::{BagTable, ProbeCursor, ProbeKeys, Slot, TableDef, Tables};
use crate::types::{Delta, Result, SpateError};

/// Candidates that one probe looks at.
const PROBE_ROWS: usize = 64 * 1024;

/// Keeps one row per key.
#[derive(Debug)]
pub struct Upsert {
    spec: UpsertSpec,
    schema: SchemaRef,
    keys: RowConverter,
    /// The open epoch's records: which of them count is known at its end only.
    epoch: Vec<RecordBatch>,
}

impl Upsert {
    /// `schema` is that of the rows; the input has one more column if the spec says so.
    pub fn new(spec: UpsertSpec, schema: SchemaRef) -> Result<Self> {
        let field = |c: &usize| match schema.fields().get(*c) {
            Some(f) => Ok(SortField::new(f.data_type().clone())),
            None => Err(SpateError::internal("a key column is not there")),
        };
        let fields = spec.key.iter().map(field).collect::<Result<Vec<_>>>()?;
        if !RowConverter::supports_fields(&fields) {
            return Err(SpateError::unsupported("a primary key over a column of this type is not supported"));
        }
        Ok(Self { keys: RowConverter::new(fields)?, spec, schema, epoch: Vec::new() })
    }

    /// The records that count, in the order in which their keys came first.
    fn deciding(&self, records: &RecordBatch) -> Result<Vec<u32>> {
        let columns: Vec<ArrayRef> = self.spec.key.iter().map(|&c| records.column(c).clone()).collect();
        let rows = self.keys.convert_columns(&columns)?;
        let mut places: HashMap<&[u8], usize> = HashMap::with_capacity(records.num_rows());
        let mut deciding: Vec<u32> = Vec::new();
        for (i, row) in rows.iter().enumerate() {
            match places.entry(row.data()) {
                Entry::Vacant(place) => {
                    place.insert(deciding.len());
                    deciding.push(i as u32);
                }
                Entry::Occupied(place) if !self.spec.keep_first => deciding[*place.get()] = i as u32,
                Entry::Occupied(_) => {}
            }
        }
        Ok(deciding)
    }
}

impl Operator for Upsert {
    fn tables(&self) -> Vec<TableDef> {
        let key = self.spec.key.clone();
        vec![TableDef::Bag { schema: self.schema.clone(), dist: key.clone(), key }]
    }

    fn push(&mut self, _input: usize, delta: Delta, _: &mut Tables, _: &mut Output) -> Result<()> {
        if delta.weights().is_some() {
            return Err(SpateError::internal("a record of a connector is taken back"));
        }
        self.epoch.push(delta.rows().clone());
        Ok(())
    }

    fn barrier(&mut self, _info: &BarrierInfo<'_>, tables: &mut Tables, out: &mut Output) -> Result<()> {
        let epoch = std::mem::take(&mut self.epoch);
        let Some(first) = epoch.first() else { return tables.bag(0)?.maintain() };
        let records = match epoch.as_slice() {
            [one] => one.clone(),
            many => concat_batches(&first.schema(), many)?,
        };
        let picked = UInt32Array::from(self.deciding(&records)?);
        let n = picked.len();
        let pick = |column: &ArrayRef| Ok(take(column, &picked, None)?);
        let width = self.schema.fields().len();
        let columns = records.columns().iter().take(width).map(pick).collect::<Result<Vec<_>>>()?;
        let stays: Vec<bool> = if self.spec.with_change {
            let change = records.columns().get(width).map(pick).transpose()?;
            let change = change.as_ref().and_then(|c| c.as_primitive_opt::<Int16Type>());
            let change = change.ok_or_else(|| SpateError::internal("records do not say what they change"))?;
            change.values().iter().map(|c| *c > 0).collect()
        } else {
            vec![true; n]
        };

        let bag = tables.bag(0)?;
        let old = stored(bag, &columns, &self.spec.key, n)?;
        // Old rows stand behind the new ones; an update is the one right before the other.
        let (mut gone, mut rows, mut weights) = (Vec::new(), Vec::new(), Vec::new());
        for (i, (old, stays)) in old.iter().zip(&stays).enumerate() {
            if old.is_some() && self.spec.keep_first {
                continue;
            }
            if let Some(slot) = old {
                rows.push((1, gone.len()));
                weights.push(-1);
                gone.push(*slot);
            }
            if *stays {
                rows.push((0, i));
                weights.push(1);
            }
        }
        if rows.is_empty() {
            return bag.maintain();
        }
        let all: Vec<usize> = (0..width).collect();
        let gone = bag.gather(&gone, &all)?;
        let changed = columns
            .iter()
            .zip(&gone)
            .map(|(new, old)| Ok(arrow::compute::interleave(&[new.as_ref(), old.as_ref()], &rows)?))
            .collect::<Result<Vec<ArrayRef>>>()?;
        let count = rows.len();
        let weights = weights.contains(&-1).then(|| weights.into());
        let delta = Delta::new(batch_of(&self.schema, changed, count)?, weights)?;
        bag.merge(&delta, None, None)?;
        // A record that repeats its row changes nothing.
        for delta in super::consolidate::consolidate(self.schema.clone(), vec![delta])? {
            out.emit(delta);
        }
        bag.maintain()
    }
}

/// For each record the stored row of its key.
fn stored(bag: &BagTable, columns: &[ArrayRef], key: &[usize], n: usize) -> Result<Vec<Option<Slot>>> {
    let mut found = vec![None; n];
    // Only the key: a record that takes a row away need not hold more, whatever is NOT NULL.
    let schema = Arc::new(bag.schema().project(key)?);
    let keys = batch_of(&schema, key.iter().map(|&c| columns[c].clone()).collect(), n)?;
    let keys = ProbeKeys::new(&keys, &(0..key.len()).collect::<Vec<_>>(), true)?;
    let mut cursor = ProbeCursor::default();
    while cursor.row() < n {
        let matches = bag.probe(&keys, &mut cursor, PROBE_ROWS)?;
        for (probe, slot) in matches.probe.iter().zip(&matches.slots) {
            if bag.weight(*slot) > 0 {
                found[*probe as usize] = Some(*slot);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
#[path = "upsert_tests.rs"]
mod tests;
