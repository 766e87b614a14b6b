//! `now()` in a continuous query: the time of the tick that opened the epoch. It stands only in
//! conditions that compare with it; [`with_now`] puts a time in for the batch side.

use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType, TimeUnit};
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::{
    ColumnarValue, Expr, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};

use super::bind_error;
use crate::sql::types::UTC;

/// Name of the function that a comparison with `now()` is bound to.
pub const EPOCH_TIME: &str = "epoch_time";

static NOW: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    Arc::new(ScalarUDF::new_from_impl(Now { name: "now", signature: Signature::exact(vec![], Volatility::Volatile) }))
});
static TIME: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    Arc::new(ScalarUDF::new_from_impl(Now { name: EPOCH_TIME, signature: Signature::any(1, Volatility::Volatile) }))
});

/// `now()` as written.
pub(super) fn now() -> Arc<ScalarUDF> {
    Arc::clone(&NOW)
}

/// The epoch's time, and so many microseconds.
pub(crate) fn epoch_time(shift_us: i64) -> Expr {
    TIME.call(vec![lit(shift_us)])
}

/// Type of `now()`.
pub(crate) fn time_type() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into()))
}

/// The shift, if `e` is the epoch's time with one.
pub(crate) fn shift_of(e: &Expr) -> Option<i64> {
    match e {
        Expr::ScalarFunction(f) if f.func.name() == EPOCH_TIME => match f.args.first() {
            Some(Expr::Literal(ScalarValue::Int64(shift), _)) => *shift,
            _ => None,
        },
        _ => None,
    }
}

/// Whether `e` is `now()` itself.
pub(crate) fn is_now(e: &Expr) -> bool {
    matches!(e, Expr::ScalarFunction(f) if f.func.name() == "now")
}

/// The plan at a time.
pub fn with_now(plan: LogicalPlan, now_us: i64) -> spate_engine::types::error::Result<LogicalPlan> {
    let done = plan.transform_up_with_subqueries(|node| {
        node.map_expressions(|e| {
            e.transform_up(|e| match shift_of(&e) {
                Some(shift) => {
                    let at = ScalarValue::TimestampMicrosecond(Some(now_us.saturating_add(shift)), Some(UTC.into()));
                    Ok(Transformed::yes(Expr::Literal(at, None)))
                }
                None => Ok(Transformed::no(e)),
            })
        })
    });
    Ok(done.map_err(bind_error)?.data)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Now {
    name: &'static str,
    signature: Signature,
}

impl ScalarUDFImpl for Now {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _args: &[DataType]) -> Result<DataType> {
        Ok(time_type())
    }

    /// Only the optimizer asks, to learn what a condition makes of NULLs; the time is not known.
    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(ColumnarValue::Scalar(ScalarValue::try_from(&time_type())?))
    }
}
