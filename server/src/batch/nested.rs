//! ORDER BY arrays, structs and maps in batch. DataFusion's top-n leaves rows out by a comparison that
//! orders NULLs within such values otherwise than its sort does. So it sorts by bytes instead, whose
//! order is that of the values.

use std::sync::Arc;

use arrow::array::{Array, BinaryArray};
use arrow::compute::SortOptions;
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, SortField};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue, exec_err};
use datafusion::logical_expr::{
    Aggregate, ColumnarValue, Expr, ExprSchemable, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, SortExpr, Volatility,
};

/// Sorts by bytes where `plan` sorts by nested values, also within aggregates.
pub(super) fn sort_by_bytes(plan: LogicalPlan) -> Result<LogicalPlan> {
    let done = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Sort(mut sort) => {
            let changed = by_bytes(&mut sort.expr, sort.input.schema())?;
            Ok(Transformed::new_transformed(LogicalPlan::Sort(sort), changed))
        }
        LogicalPlan::Aggregate(a) => {
            let mut changed = false;
            let mut calls = Vec::with_capacity(a.aggr_expr.len());
            for e in &a.aggr_expr {
                let call = e.clone().transform(|e| {
                    let Expr::AggregateFunction(mut f) = e else { return Ok(Transformed::no(e)) };
                    let sorted = by_bytes(&mut f.params.order_by, a.input.schema())?;
                    Ok(Transformed::new_transformed(Expr::AggregateFunction(f), sorted))
                })?;
                changed |= call.transformed;
                calls.push(if call.transformed { call.data.alias(e.schema_name().to_string()) } else { call.data });
            }
            if !changed {
                return Ok(Transformed::no(LogicalPlan::Aggregate(a)));
            }
            Ok(Transformed::yes(LogicalPlan::Aggregate(Aggregate::try_new(a.input, a.group_expr, calls)?)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(done.data)
}

fn by_bytes(keys: &mut [SortExpr], schema: &DFSchema) -> Result<bool> {
    let mut changed = false;
    for key in keys {
        if key.expr.get_type(schema)?.is_nested() {
            changed = true;
            let bytes = ScalarUDF::new_from_impl(Bytes { signature: Signature::any(1, Volatility::Immutable) });
            let SortExpr { expr, asc, nulls_first } = key.clone();
            *key = SortExpr { expr: bytes.call(vec![expr]), asc, nulls_first };
        }
    }
    Ok(changed)
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
