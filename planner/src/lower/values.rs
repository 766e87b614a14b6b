//! VALUES and queries without FROM: rows computed now, emitted once by one task.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions, new_null_array};
use arrow::compute;
use arrow::datatypes::Schema;
use datafusion_common::DFSchema;
use datafusion_expr::{EmptyRelation, LogicalPlan, Values};
use spate_engine::plan::{Distribution, OpSpec, Properties, StreamNode, ValuesSpec};
use spate_engine::types::error::Result;

use super::{Lowered, Lowerer, expr, stream_schema};

impl Lowerer {
    pub(super) fn values(&self, v: &Values) -> Result<Lowered> {
        let schema = stream_schema(&LogicalPlan::Values(v.clone()));
        let one = unit(&Schema::empty())?;
        let none = DFSchema::empty();
        let mut columns = Vec::with_capacity(schema.fields().len());
        for (i, field) in schema.fields().iter().enumerate() {
            let mut cells = Vec::with_capacity(v.values.len());
            for e in v.values.iter().filter_map(|row| row.get(i)) {
                let cell = expr::physical(e, &none)?
                    .evaluate(&one)
                    .and_then(|c| c.into_array(1))
                    .map_err(crate::bind::bind_error)?;
                cells.push(compute::cast_with_options(&cell, field.data_type(), &strict())?);
            }
            let cells: Vec<_> = cells.iter().map(AsRef::as_ref).collect();
            columns.push(if cells.is_empty() {
                new_null_array(field.data_type(), 0)
            } else {
                compute::concat(&cells)?
            });
        }
        Ok(node(RecordBatch::try_new(schema, columns)?).into())
    }

    pub(super) fn empty(&self, e: &EmptyRelation) -> Result<Lowered> {
        let schema = stream_schema(&LogicalPlan::EmptyRelation(e.clone()));
        let rows = usize::from(e.produce_one_row);
        let columns = schema.fields().iter().map(|f| new_null_array(f.data_type(), rows)).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(node(RecordBatch::try_new_with_options(schema, columns, &options)?).into())
    }
}

fn strict() -> compute::CastOptions<'static> {
    compute::CastOptions { safe: false, ..Default::default() }
}

/// One row of NULLs.
pub(super) fn unit(schema: &Schema) -> Result<RecordBatch> {
    let fields: Vec<_> = schema.fields().iter().map(|f| f.as_ref().clone().with_nullable(true)).collect();
    let columns = fields.iter().map(|f| new_null_array(f.data_type(), 1)).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?)
}

/// A Values node over computed rows.
pub(super) fn node(rows: RecordBatch) -> StreamNode {
    let props = Properties {
        append_only: true,
        stream_key: (rows.num_rows() <= 1).then(Vec::new),
        watermarks: Vec::new(),
        distribution: Distribution::Single,
        ..Properties::default()
    };
    StreamNode { schema: rows.schema(), op: OpSpec::Values(ValuesSpec { rows }), inputs: vec![], props }
}
