//! The condition of a join beside its keys.

use std::sync::Arc;

use arrow::array::{Array, AsArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_physical_expr::expressions::Column;
use datafusion_physical_expr::utils::collect_columns;

use crate::plan::ExprRef;
use crate::state::frozen::record_batch;
use crate::state::{BagTable, Matches};
use crate::types::{Delta, Result, SpateError};

/// The condition beside the keys, over just the columns that it uses.
#[derive(Debug)]
pub(in crate::operator) struct Residual {
    expr: ExprRef,
    /// Output columns it reads.
    columns: Vec<usize>,
    schema: SchemaRef,
}

impl Residual {
    /// `expr` over `output`, the columns of the left input and then those of the right.
    pub(in crate::operator) fn new(expr: &ExprRef, output: &SchemaRef) -> Result<Self> {
        let mut columns: Vec<usize> = collect_columns(expr).iter().map(Column::index).collect();
        columns.sort_unstable();
        columns.dedup();
        let mut fields = Vec::with_capacity(columns.len());
        for &c in &columns {
            match output.fields().get(c) {
                Some(f) => fields.push(f.as_ref().clone().with_nullable(true)),
                None => {
                    return Err(SpateError::internal(format!("a join filter reads column {c}, which is not there")));
                }
            }
        }
        let expr = expr
            .clone()
            .transform(|e| {
                let Some(column) = e.downcast_ref::<Column>() else {
                    return Ok(Transformed::no(e));
                };
                let index = columns.partition_point(|&c| c < column.index());
                Ok(Transformed::yes(Arc::new(Column::new(column.name(), index)) as ExprRef))
            })?
            .data;
        let schema = Arc::new(Schema::new(fields));
        match expr.data_type(&schema)? {
            DataType::Boolean | DataType::Null => Ok(Self { expr, columns, schema }),
            other => Err(SpateError::internal(format!("a join filter is of type {other}, not boolean"))),
        }
    }

    /// Drops the pairs for which the condition is not true: rows of `delta`, which came on
    /// `input`, with rows of the `other` side. `split` is the number of left columns.
    pub(in crate::operator) fn retain(
        &self,
        input: usize,
        split: usize,
        delta: &Delta,
        other: &BagTable,
        found: &mut Matches,
    ) -> Result<()> {
        let rows = found.slots.len();
        if rows == 0 {
            return Ok(());
        }
        let own = |c: usize| (c < split) == (input == 0);
        let local = |c: usize| if c < split { c } else { c - split };
        let stored: Vec<usize> = self.columns.iter().filter(|c| !own(**c)).map(|&c| local(c)).collect();
        let mut stored = other.gather(&found.slots, &stored)?.into_iter();
        let probe = UInt32Array::from(found.probe.clone());
        let mut columns = Vec::with_capacity(self.columns.len());
        for &c in &self.columns {
            if own(c) {
                columns.push(take(delta.column(local(c)).as_ref(), &probe, None)?);
            } else {
                columns.extend(stored.next());
            }
        }
        let batch = record_batch(&self.schema, columns, rows)?;
        let mask = self.expr.evaluate(&batch)?.into_array(rows)?;
        let Some(mask) = mask.as_boolean_opt() else {
            // The type Null: never true.
            *found = Matches::default();
            return Ok(());
        };
        let keep: Vec<bool> = (0..rows).map(|i| mask.is_valid(i) && mask.value(i)).collect();
        found.retain(&keep);
        Ok(())
    }
}
