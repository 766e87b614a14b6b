//! `row_number`, `rank`, `dense_rank` and `ntile` count in `bigint`, as everything else does
//! in SQL; DataFusion's count in unsigned integers.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::compute::SortOptions;
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::function::{ExpressionArgs, PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion_expr::window_state::WindowAggState;
use datafusion_expr::{LimitEffect, PartitionEvaluator, Signature, WindowUDF, WindowUDFImpl};
use datafusion_physical_expr::PhysicalExpr;

/// The function itself, or its counting in `bigint`.
pub(crate) fn counting(f: Arc<WindowUDF>) -> Arc<WindowUDF> {
    match f.name() {
        "row_number" | "rank" | "dense_rank" | "ntile" => Arc::new(WindowUDF::new_from_impl(Bigint(f))),
        _ => f,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Bigint(Arc<WindowUDF>);

impl WindowUDFImpl for Bigint {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn expressions(&self, args: ExpressionArgs) -> Vec<Arc<dyn PhysicalExpr>> {
        self.0.expressions(args)
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        Ok(Box::new(Counter(self.0.partition_evaluator_factory(args)?)))
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        let field = self.0.field(args)?;
        Ok(Arc::new(field.as_ref().clone().with_data_type(DataType::Int64)))
    }

    fn sort_options(&self) -> Option<SortOptions> {
        self.0.sort_options()
    }

    fn limit_effect(&self, args: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        self.0.inner().limit_effect(args)
    }
}

#[derive(Debug)]
struct Counter(Box<dyn PartitionEvaluator>);

fn bigint(array: ArrayRef) -> Result<ArrayRef> {
    Ok(cast(&array, &DataType::Int64)?)
}

impl PartitionEvaluator for Counter {
    fn memoize(&mut self, state: &mut WindowAggState) -> Result<()> {
        self.0.memoize(state)
    }

    fn get_range(&self, idx: usize, rows: usize) -> Result<Range<usize>> {
        self.0.get_range(idx, rows)
    }

    fn is_causal(&self) -> bool {
        self.0.is_causal()
    }

    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        self.0.evaluate_all(values, rows).and_then(bigint)
    }

    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        self.0.evaluate(values, range)?.cast_to(&DataType::Int64)
    }

    fn evaluate_all_with_rank(&self, rows: usize, ranks: &[Range<usize>]) -> Result<ArrayRef> {
        self.0.evaluate_all_with_rank(rows, ranks).and_then(bigint)
    }

    fn supports_bounded_execution(&self) -> bool {
        self.0.supports_bounded_execution()
    }

    fn uses_window_frame(&self) -> bool {
        self.0.uses_window_frame()
    }

    fn include_rank(&self) -> bool {
        self.0.include_rank()
    }
}
