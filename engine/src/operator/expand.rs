//! GROUPING SETS: one row per grouping set for each row, with the columns that the set leaves out
//! as NULL and a number that tells the sets apart. The Aggregate above groups by them.

use arrow::array::{ArrayRef, UInt32Array, UInt64Array};
use arrow::compute::{cast, take};
use arrow::datatypes::SchemaRef;

use super::expr::batch_of;
use super::{BarrierInfo, Operator, Output};
use crate::plan::ExpandSpec;
use crate::state::{TableDef, Tables};
use crate::types::{Delta, Result, SpateError};

/// Rows per emitted delta, about.
const EMIT_ROWS: usize = 16 * 1024;

/// Repeats rows. Stateless; each copy has the weight of its row.
#[derive(Debug)]
pub struct Expand {
    spec: ExpandSpec,
    schema: SchemaRef,
}

impl Expand {
    /// The operator for this spec; `schema` is the input's columns, the group columns, the number.
    pub fn new(spec: ExpandSpec, schema: SchemaRef) -> Self {
        Self { spec, schema }
    }

    fn piece(&self, delta: &Delta) -> Result<Delta> {
        let (rows, n, sets) = (delta.rows(), delta.num_rows(), &self.spec.sets);
        let total = n * sets.len();
        // All copies of a row stand together, so that it does not matter how input is cut.
        let of = |keep: &dyn Fn(usize) -> bool| -> UInt32Array {
            (0..n as u32)
                .flat_map(|r| (0..sets.len()).map(move |s| (r, s)))
                .map(|(r, s)| keep(s).then_some(r))
                .collect()
        };
        let every = of(&|_| true);
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        for c in rows.columns() {
            columns.push(take(c, &every, None)?);
        }
        for (i, &c) in self.spec.columns.iter().enumerate() {
            let column = rows.columns().get(c).ok_or_else(|| SpateError::internal("a group column is not there"))?;
            let kept = of(&|s| sets[s].keep.get(i).copied().unwrap_or(false));
            columns.push(take(column, &kept, None)?);
        }
        let ids = UInt64Array::from_iter_values((0..total).map(|i| sets[i % sets.len()].id));
        let id_type = self.schema.field(self.schema.fields().len() - 1).data_type();
        columns.push(cast(&ids, id_type)?);
        let batch = batch_of(&self.schema, columns, total)?;
        let weights = delta.weights().map(|w| every.values().iter().map(|&r| w.value(r as usize)).collect());
        Delta::new(batch, weights)
    }
}

impl Operator for Expand {
    fn tables(&self) -> Vec<TableDef> {
        vec![]
    }

    fn push(&mut self, _input: usize, delta: Delta, _tables: &mut Tables, out: &mut Output) -> Result<()> {
        let step = (EMIT_ROWS / self.spec.sets.len().max(1)).max(1);
        for start in (0..delta.num_rows()).step_by(step) {
            out.emit(self.piece(&delta.slice(start, step.min(delta.num_rows() - start)))?);
        }
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

    use arrow::array::{Int64Array, RecordBatch};
    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;
    use crate::operator::testing::{Run, delta};
    use crate::plan::GroupingSet;

    #[test]
    fn copies_of_a_row_stand_together() {
        let field = |n: &str| Field::new(n, DataType::Int64, true);
        let input = Arc::new(Schema::new(vec![field("a"), field("b")]));
        let mut fields = vec![field("a"), field("b"), field("a"), field("b")];
        fields.push(Field::new("id", DataType::UInt8, true));
        let output = Arc::new(Schema::new(fields));
        let column = |v: Vec<i64>| Arc::new(Int64Array::from(v)) as ArrayRef;
        let rows = RecordBatch::try_new(input, vec![column(vec![1, 2]), column(vec![3, 4])]).unwrap();
        let set = |keep: [bool; 2], id| GroupingSet { keep: keep.to_vec(), id };
        let sets = vec![set([true, true], 0), set([true, false], 1), set([false, false], 3)];
        let spec = ExpandSpec { columns: vec![0, 1], sets };
        let mut run = Run::new(move || Box::new(Expand::new(spec.clone(), output.clone())));
        let whole = run.epoch(vec![delta(&rows, &[(0, 1), (1, -2)], true)], 0);
        let want = [
            ("1|3|1|3|0", 1),
            ("1|3|1|NULL|1", 1),
            ("1|3|NULL|NULL|3", 1),
            ("2|4|2|4|0", -2),
            ("2|4|2|NULL|1", -2),
            ("2|4|NULL|NULL|3", -2),
        ];
        assert_eq!(whole, want.map(|(r, w)| (r.to_string(), w)));
        let cut = run.epoch(vec![delta(&rows, &[(0, 1)], true), delta(&rows, &[(1, -2)], true)], 0);
        assert_eq!(cut, whole);
    }
}
