//! ORDER BY arrays, structs and maps in batch. DataFusion's top-n leaves rows out by a comparison that
//! orders NULLs within such values otherwise than its sort does. So it sorts by bytes instead, whose
//! order is that of the values.

use std::sync::Arc;

use arrow::array::{Array, BinaryArray};
use arrow::compute::SortOptions;
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, SortField};
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, ExprSchemable, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, SortExpr,
    Volatility,
};

/// Sorts by bytes where `plan` sorts by nested values.
pub(super) fn sort_by_bytes(plan: LogicalPlan) -> Result<LogicalPlan> {
    let done = plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::Sort(mut sort) = node else { return Ok(Transformed::no(node)) };
        let mut changed = false;
        for key in &mut sort.expr {
            if key.expr.get_type(sort.input.schema())?.is_nested() {
                changed = true;
                let bytes = ScalarUDF::new_from_impl(Bytes { signature: Signature::any(1, Volatility::Immutable) });
                let SortExpr { expr, asc, nulls_first } = key.clone();
                *key = SortExpr { expr: bytes.call(vec![expr]), asc, nulls_first };
            }
        }
        Ok(if changed { Transformed::yes(LogicalPlan::Sort(sort)) } else { Transformed::no(LogicalPlan::Sort(sort)) })
    })?;
    Ok(done.data)
}

/// Whether `plan` joins by nested values. (DataFusion's filters on the range of a join's keys compare
/// them like its top-n.)
pub(super) fn joins_by_nested(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Join(j) = node {
            for (left, _) in &j.on {
                found |= left.get_type(j.left.schema())?.is_nested();
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Bytes {
    signature: Signature,
}

impl ScalarUDFImpl for Bytes {
    fn name(&self) -> &str {
        "order_bytes"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Binary)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value] = args.args.as_slice() else { return exec_err!("order_bytes takes one argument") };
        let scalar = matches!(value, ColumnarValue::Scalar(_));
        let array = value.to_array(if scalar { 1 } else { args.number_rows })?;
        let options = SortOptions { descending: false, nulls_first: false };
        let converter = RowConverter::new(vec![SortField::new_with_options(array.data_type().clone(), options)])?;
        let rows = converter.convert_columns(&[Arc::clone(&array)])?;
        let bytes: BinaryArray = rows.iter().enumerate().map(|(i, row)| array.is_valid(i).then_some(row)).collect();
        if scalar {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&bytes, 0)?));
        }
        Ok(ColumnarValue::Array(Arc::new(bytes)))
    }
}
