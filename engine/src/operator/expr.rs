//! Evaluation of bound expressions over batches.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::{DataType, SchemaRef};

use crate::plan::ExprRef;
use crate::types::{ErrorKind, Result, SpateError};

/// One value per row of `batch`; a constant is repeated.
pub fn evaluate(expr: &ExprRef, batch: &RecordBatch) -> Result<ArrayRef> {
    Ok(expr.evaluate(batch)?.into_array_of_size(batch.num_rows())?)
}

/// [`evaluate`] for a predicate. Errors if it is not boolean.
pub fn evaluate_predicate(expr: &ExprRef, batch: &RecordBatch) -> Result<BooleanArray> {
    let array = evaluate(expr, batch)?;
    match array.data_type() {
        DataType::Boolean => Ok(array.as_boolean().clone()),
        // `WHERE NULL` drops every row.
        DataType::Null => Ok(cast(&array, &DataType::Boolean)?.as_boolean().clone()),
        other => Err(SpateError::new(ErrorKind::Type, format!("a condition must be boolean, not {other}"))),
    }
}

/// A batch of `schema` with `rows` rows, whose columns are cast where their types differ.
pub fn batch_of(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let columns = columns
        .into_iter()
        .zip(schema.fields())
        .map(|(c, f)| if c.data_type() == f.data_type() { Ok(c) } else { Ok(cast(&c, f.data_type())?) })
        .collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}
