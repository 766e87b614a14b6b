//! Consolidation: weights of equal rows are added, rows that come to 0 vanish, the others
//! stay in the order in which they were first touched. Stateful operators let the changes of
//! an epoch through it, so that each row changes at most once. Keeps nothing between epochs.

use arrow::array::{Int64Array, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::SchemaRef;

use crate::state::BagTable;
use crate::state::frozen::record_batch;
use crate::types::{Delta, Result};

/// Adds up the changes of one epoch.
#[derive(Debug)]
pub struct Consolidator {
    sum: BagTable,
}

impl Consolidator {
    /// An empty one for rows of this shape.
    pub fn new(schema: SchemaRef) -> Result<Self> {
        Ok(Self { sum: BagTable::scratch(schema)? })
    }

    /// Adds a delta.
    pub fn push(&mut self, delta: &Delta) -> Result<()> {
        if !delta.is_empty() {
            self.sum.merge(delta, None, None)?;
        }
        Ok(())
    }

    /// The net change, and empty again. The row sequence does not depend on how the deltas
    /// were cut.
    pub fn finish(&mut self) -> Result<Vec<Delta>> {
        let net = self.sum.freeze();
        self.sum.clear();
        net.batches()
            .map(|b| {
                let (rows, weights) = b?;
                Delta::new(rows, weights_or_none(weights.values().to_vec()))
            })
            .collect()
    }

    /// Bytes held.
    pub fn memory_size(&self) -> usize {
        self.sum.memory_size()
    }
}

/// The net change of `deltas`.
pub fn consolidate(schema: SchemaRef, deltas: Vec<Delta>) -> Result<Vec<Delta>> {
    let mut all = Consolidator::new(schema)?;
    for d in &deltas {
        all.push(d)?;
    }
    all.finish()
}

/// Weights as a delta has them: `None` if all are +1.
pub(crate) fn weights_or_none(weights: Vec<i64>) -> Option<Int64Array> {
    weights.iter().any(|w| *w != 1).then(|| Int64Array::from(weights))
}

/// The rows of `delta` at `rows`, with other weights.
pub(crate) fn pick(delta: &Delta, rows: Vec<u32>, weights: Option<Int64Array>) -> Result<Delta> {
    let count = rows.len();
    let rows = UInt32Array::from(rows);
    let columns = delta.rows().columns().iter().map(|c| Ok(take(c.as_ref(), &rows, None)?)).collect::<Result<_>>()?;
    Delta::new(record_batch(&delta.schema(), columns, count)?, weights)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use arrow::array::{ArrayRef, RecordBatch};
    use std::sync::Arc;

    fn delta(values: &[(i64, i64)]) -> Delta {
        let a: ArrayRef = Arc::new(Int64Array::from_iter_values(values.iter().map(|v| v.0)));
        let w = Int64Array::from_iter_values(values.iter().map(|v| v.1));
        Delta::new(RecordBatch::try_from_iter([("a", a)]).unwrap(), Some(w)).unwrap()
    }

    #[test]
    fn first_touch_order_and_zeros() {
        let input = [(3, 1), (1, 1), (3, -1), (2, 2), (1, 1), (3, 1), (2, -2)];
        let expect = vec![delta(&[(3, 1), (1, 2)])];
        for cut in 0..=input.len() {
            let (a, b) = input.split_at(cut);
            let schema = delta(&[]).schema();
            assert_eq!(consolidate(schema, vec![delta(a), delta(b)]).unwrap(), expect);
        }
    }

    #[test]
    fn all_ones_have_no_weights() {
        let schema = delta(&[]).schema();
        let net = consolidate(schema, vec![delta(&[(1, 2), (2, 1), (1, -1)])]).unwrap();
        assert!(net[0].weights().is_none());
    }
}
