//! Each row as often as a column of it says (INTERSECT ALL, EXCEPT ALL): its weight times
//! that, nothing if the column is NULL or not above 0. Stateless.

use arrow::array::AsArray;
use arrow::datatypes::{Int64Type, SchemaRef};

use super::consolidate::{pick, weights_or_none};
use super::{BarrierInfo, Operator, Output};
use crate::plan::RepeatSpec;
use crate::state::frozen::record_batch;
use crate::state::{TableDef, Tables};
use crate::types::{Delta, Result, SpateError};

/// Repeats rows.
#[derive(Debug)]
pub struct Repeat {
    spec: RepeatSpec,
    schema: SchemaRef,
}

impl Repeat {
    /// The operator for this spec; `schema` has the columns of the input.
    pub fn new(spec: RepeatSpec, schema: SchemaRef) -> Self {
        Self { spec, schema }
    }
}

impl Operator for Repeat {
    fn tables(&self) -> Vec<TableDef> {
        vec![]
    }

    fn push(&mut self, _input: usize, delta: Delta, _tables: &mut Tables, out: &mut Output) -> Result<()> {
        let counts = delta.rows().columns().get(self.spec.count).and_then(|c| c.as_primitive_opt::<Int64Type>());
        let Some(counts) = counts else {
            return Err(SpateError::internal("a column that counts copies is not there"));
        };
        let (mut rows, mut weights) = (Vec::new(), Vec::new());
        for (i, count) in counts.iter().enumerate() {
            let weight = delta.weight(i).wrapping_mul(count.unwrap_or(0).max(0));
            if weight != 0 {
                rows.push(i as u32);
                weights.push(weight);
            }
        }
        let rows = pick(&delta, rows, weights_or_none(weights))?;
        let n = rows.num_rows();
        let batch = record_batch(&self.schema, rows.rows().columns().to_vec(), n)?;
        out.emit(Delta::new(batch, rows.weights().cloned())?);
        Ok(())
    }

    fn barrier(&mut self, _info: &BarrierInfo<'_>, _tables: &mut Tables, _out: &mut Output) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch};

    use super::super::testing::{Run, texts};
    use super::*;

    #[test]
    fn weights_are_multiplied() {
        let n: ArrayRef = Arc::new(Int64Array::from(vec![Some(2), None, Some(-1), Some(0), Some(1), Some(3)]));
        let rows = RecordBatch::try_from_iter_with_nullable([("n", n, true)]).unwrap();
        let schema = rows.schema();
        let mut run = Run::new(move || Box::new(Repeat::new(RepeatSpec { count: 0 }, schema.clone())));
        let input = Delta::new(rows, Some(Int64Array::from(vec![1, 1, 1, 5, -2, -1]))).unwrap();
        let expect = vec![("2".to_owned(), 2), ("1".to_owned(), -2), ("3".to_owned(), -3)];
        assert_eq!(run.epoch(vec![input.clone()], i64::MIN), expect);
        assert_eq!(texts(&input).len(), 6);
    }
}
