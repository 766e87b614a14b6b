//! Reading few rows of a store: by its key, or through an index.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use arrow::datatypes::{Field, Schema};
use arrow::row::{RowConverter, SortField};

use super::super::bag::{ProbeCursor, ProbeKeys};
use super::super::index::Wanted;
use super::{Rows, ViewStore, expand};
use crate::operator::consolidate::consolidate;
use crate::types::{Delta, Epoch, ErrorKind, Result, SpateError};

impl ViewStore {
    /// Rows at `epoch` that an index gives, one per unit of weight.
    pub fn indexed_at(&self, epoch: Epoch, index: u64, wanted: &Wanted) -> Result<Vec<RecordBatch>> {
        let mut out = Vec::with_capacity(self.partitions.len());
        for p in 0..self.partitions.len() {
            let part = self.partition(p)?;
            let index = part.indexes.iter().find(|i| i.id == index);
            let index = index.ok_or_else(|| SpateError::new(ErrorKind::NotFound, "an index was dropped"))?;
            let (rows, weights) = index.rows(&index.ranges(wanted)?, &self.newer(&part, epoch)?)?;
            drop(part);
            out.push(expand(&rows, Some(&weights.into()))?);
        }
        Ok(out)
    }

    /// Rows at `epoch` with one of these keys: values of the columns of [`ViewStore::key`].
    pub fn keyed_at(&self, epoch: Epoch, keys: &[ArrayRef]) -> Result<Vec<RecordBatch>> {
        let Some(columns) = self.key() else { return Err(SpateError::internal("a store without a key")) };
        let schema = self.schema();
        let converter =
            RowConverter::new(columns.iter().map(|c| SortField::new(schema.field(*c).data_type().clone())).collect())?;
        let wanted = converter.convert_columns(keys)?;
        let wanted: HashSet<&[u8]> = wanted.iter().map(|r| r.data()).collect();
        let fields: Vec<Field> = columns.iter().map(|c| schema.field(*c).clone().with_nullable(true)).collect();
        let keys = RecordBatch::try_new(Arc::new(Schema::new(fields)), keys.to_vec())?;
        let probe = ProbeKeys::new(&keys, &(0..columns.len()).collect::<Vec<_>>(), true)?;
        let all: Vec<usize> = (0..schema.fields().len()).collect();
        let mut out = Vec::with_capacity(self.partitions.len());
        for p in 0..self.partitions.len() {
            let part = self.partition(p)?;
            let newer = self.newer(&part, epoch)?;
            let Rows::Bag(bag) = &part.rows else { return Err(SpateError::internal("a store without a key")) };
            let slots = bag.probe(&probe, &mut ProbeCursor::default(), usize::MAX)?.slots;
            let rows = RecordBatch::try_new(schema.clone(), bag.gather(&slots, &all)?)?;
            let mut deltas = vec![Delta::new(rows, Some(bag.weights(&slots).into()))?];
            drop(part);
            for delta in newer {
                let columns: Vec<ArrayRef> = columns.iter().map(|c| delta.column(*c).clone()).collect();
                let rows = converter.convert_columns(&columns)?;
                let hit: BooleanArray = rows.iter().map(|r| Some(wanted.contains(r.data()))).collect();
                deltas.push(delta.filter(&hit)?.negate());
            }
            for delta in consolidate(schema.clone(), deltas)? {
                let (rows, weights) = delta.into_parts();
                out.push(expand(&rows, weights.as_ref())?);
            }
        }
        Ok(out)
    }

    /// Columns by which a row is found at once; `None` if rows are not told apart.
    pub fn key(&self) -> Option<Vec<usize>> {
        match &self.partitions.first()?.lock().rows {
            Rows::Bag(bag) if bag.key().len() < self.schema().fields().len() => Some(bag.key().to_vec()),
            _ => None,
        }
    }

    /// Keeps the rows in the order of these columns too, from now on. The caller tells nobody of
    /// the index before this is done.
    pub fn add_index(&self, id: u64, columns: &[usize]) -> Result<()> {
        for (p, part) in self.partitions.iter().enumerate() {
            let mut part = part.lock();
            let made = part.index(id, &self.schema(), columns);
            match made {
                Ok(index) => part.indexes.push(index),
                Err(e) => {
                    drop(part);
                    self.partitions[..p].iter().for_each(|p| p.lock().indexes.retain(|i| i.id != id));
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    /// Lets go of an index.
    pub fn remove_index(&self, id: u64) {
        self.partitions.iter().for_each(|p| p.lock().indexes.retain(|i| i.id != id));
    }
}

#[cfg(test)]
#[path = "lookup_tests.rs"]
mod tests;
