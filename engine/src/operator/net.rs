//! What an epoch's changes of equal rows come to. It stands over rows of which the planner knows that
//! none goes for good, where the columns that changed are left out: what is taken back comes again as
//! it was, and only new rows are left. Keeps nothing between epochs.

use arrow::datatypes::SchemaRef;

use super::consolidate::Consolidator;
use super::{BarrierInfo, Operator, Output};
use crate::state::{TableDef, Tables};
use crate::types::{Delta, Result, SpateError};

/// Adds up the changes of an epoch. See the module's text.
#[derive(Debug)]
pub struct Net {
    changes: Consolidator,
}

impl Net {
    /// `schema` is that of input and output.
    pub fn new(schema: SchemaRef) -> Result<Self> {
        Ok(Self { changes: Consolidator::new(schema)? })
    }
}

impl Operator for Net {
    fn tables(&self) -> Vec<TableDef> {
        vec![]
    }

    fn push(&mut self, _input: usize, delta: Delta, _tables: &mut Tables, _out: &mut Output) -> Result<()> {
        self.changes.push(&delta)
    }

    fn barrier(&mut self, _info: &BarrierInfo<'_>, _tables: &mut Tables, out: &mut Output) -> Result<()> {
        for delta in self.changes.finish()? {
            // Whoever reads this relies on it.
            if delta.weights().is_some_and(|w| w.values().iter().any(|w| *w < 0)) {
                return Err(SpateError::internal("a row is gone that stays by the plan"));
            }
            out.emit(delta);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch};

    use crate::operator::testing::texts;
    use crate::types::Tick;

    fn delta(values: &[(i64, i64)]) -> Delta {
        let a: ArrayRef = Arc::new(Int64Array::from_iter_values(values.iter().map(|v| v.0)));
        let w = Int64Array::from_iter_values(values.iter().map(|v| v.1));
        Delta::new(RecordBatch::try_from_iter([("a", a)]).unwrap(), Some(w)).unwrap()
    }

    fn epoch(op: &mut Net, deltas: &[Delta]) -> Result<Vec<(String, i64)>> {
        let (mut tables, mut out) = (Tables::new(&op.tables())?, Output::default());
        for d in deltas {
            op.push(0, d.clone(), &mut tables, &mut out)?;
        }
        let tick = Tick { incarnation: 1, term: 1, epoch: 1, opened_us: 0, now_us: 1 };
        let info = BarrierInfo { tick, watermark: 0, input_watermarks: &[0], complete: &[] };
        op.barrier(&info, &mut tables, &mut out)?;
        Ok(out.take().iter().flat_map(texts).collect())
    }

    #[test]
    fn only_new_rows_are_left() {
        let mut op = Net::new(delta(&[]).schema()).unwrap();
        let input = [delta(&[(1, -1), (2, 1), (1, 1)]), delta(&[(3, 2), (2, -1), (2, 1)])];
        assert_eq!(epoch(&mut op, &input).unwrap(), [("2".to_owned(), 1), ("3".to_owned(), 2)]);
        assert!(epoch(&mut op, &[]).unwrap().is_empty());
    }

    #[test]
    fn a_row_that_goes_is_a_defect_of_the_plan() {
        let mut op = Net::new(delta(&[]).schema()).unwrap();
        assert!(epoch(&mut op, &[delta(&[(1, 1)])]).is_ok());
        assert!(epoch(&mut op, &[delta(&[(1, -1), (2, 1)])]).is_err());
    }
}
