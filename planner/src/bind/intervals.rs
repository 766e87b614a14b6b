//! Intervals times and divided by numbers, as PostgreSQL does it: the part of a month that is left
//! over becomes days (30 to a month), that of a day time.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, IntervalMonthDayNanoArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit};
use datafusion_common::{DFSchema, Result, ScalarValue, exec_err};
use datafusion_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion_expr::{
    ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
    cast as cast_expr,
};
use datafusion_sql::sqlparser::ast::BinaryOperator;

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
const DAYS_PER_MONTH: f64 = 30.0;
const SECONDS_PER_DAY: f64 = 86_400.0;

/// Plans `interval * number`, `number * interval` and `interval / number`.
#[derive(Debug)]
pub(super) struct IntervalArithmetic;

impl ExprPlanner for IntervalArithmetic {
    fn plan_binary_op(&self, e: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let (Ok(left), Ok(right)) = (e.left.get_type(schema), e.right.get_type(schema)) else {
            return Ok(PlannerResult::Original(e));
        };
        let scaled = |scale: &LazyLock<ScalarUDF>, interval: Expr, number: Expr| {
            let call = scale.call(vec![cast_expr(interval, INTERVAL), cast_expr(number, DataType::Float64)]);
            Ok(PlannerResult::Planned(call))
        };
        match (&left, &e.op, &right) {
            (DataType::Interval(_), BinaryOperator::Multiply, n) if n.is_numeric() => scaled(&TIMES, e.left, e.right),
            (n, BinaryOperator::Multiply, DataType::Interval(_)) if n.is_numeric() => scaled(&TIMES, e.right, e.left),
            (DataType::Interval(_), BinaryOperator::Divide, n) if n.is_numeric() => scaled(&DIVIDED, e.left, e.right),
            _ => Ok(PlannerResult::Original(e)),
        }
    }
}

static TIMES: LazyLock<ScalarUDF> = LazyLock::new(|| ScalarUDF::new_from_impl(Scale::new(false)));
static DIVIDED: LazyLock<ScalarUDF> = LazyLock::new(|| ScalarUDF::new_from_impl(Scale::new(true)));

/// An interval times or divided by a number.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Scale {
    divide: bool,
    signature: Signature,
}

impl Scale {
    fn new(divide: bool) -> Self {
        Self { divide, signature: Signature::exact(vec![INTERVAL, DataType::Float64], Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for Scale {
    fn name(&self) -> &str {
        if self.divide { "interval_div" } else { "interval_mul" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(INTERVAL)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let scalar = args.args.iter().all(|a| matches!(a, ColumnarValue::Scalar(_)));
        let rows = if scalar { 1 } else { args.number_rows };
        let [interval, number] = args.args.as_slice() else { return exec_err!("an interval and a number are needed") };
        let intervals = cast(&interval.to_array(rows)?, &INTERVAL)?;
        let numbers = cast(&number.to_array(rows)?, &DataType::Float64)?;
        let (intervals, numbers) =
            (intervals.as_primitive::<IntervalMonthDayNanoType>(), numbers.as_primitive::<Float64Type>());
        let made = (0..rows).map(|i| {
            if intervals.is_null(i) || numbers.is_null(i) {
                return Ok(None);
            }
            scale(intervals.value(i), numbers.value(i), self.divide).map(Some)
        });
        let made: ArrayRef = Arc::new(made.collect::<Result<IntervalMonthDayNanoArray>>()?);
        Ok(if scalar {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&made, 0)?)
        } else {
            ColumnarValue::Array(made)
        })
    }
}

fn scale(v: IntervalMonthDayNano, number: f64, divide: bool) -> Result<IntervalMonthDayNano> {
    if divide && number == 0.0 {
        return exec_err!("division by zero");
    }
    let by = |x: f64| if divide { x / number } else { x * number };
    let (months, days, nanos) = (by(f64::from(v.months)), by(f64::from(v.days)), by(v.nanoseconds as f64));
    let part = |x: f64| x - x.trunc();
    // What is beyond is the float's own error.
    let millionths = |x: f64| (x * 1e6).round() / 1e6;
    let month_days = millionths(part(months) * DAYS_PER_MONTH);
    let seconds = millionths((part(days) + part(month_days)) * SECONDS_PER_DAY);
    let (days, nanos) = (days.trunc() + month_days.trunc(), nanos + seconds * 1e9);
    // Whole microseconds, as everywhere.
    let nanos = (nanos / 1e3).round() * 1e3;
    let fits = |x: f64, most: f64| x.is_finite() && x.abs() < most;
    let int = f64::from(i32::MAX);
    if !(fits(months, int) && fits(days, int) && fits(nanos, i64::MAX as f64)) {
        return exec_err!("interval out of range");
    }
    Ok(IntervalMonthDayNano::new(months.trunc() as i32, days as i32, nanos as i64))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn parts_go_down_as_in_postgresql() {
        let hour = 3_600_000_000_000;
        let of = |m, d, n| IntervalMonthDayNano::new(m, d, n);
        assert_eq!(scale(of(0, 0, hour), 3.5, false).unwrap(), of(0, 0, 3 * hour + hour / 2));
        assert_eq!(scale(of(1, 0, 0), 1.5, false).unwrap(), of(1, 15, 0));
        assert_eq!(scale(of(0, 1, 0), 1.5, false).unwrap(), of(0, 1, 12 * hour));
        assert_eq!(scale(of(1, 1, hour), -2.0, false).unwrap(), of(-2, -2, -2 * hour));
        assert_eq!(scale(of(1, 0, 0), 2.0, true).unwrap(), of(0, 15, 0));
        assert_eq!(scale(of(0, 1, 0), 3.0, true).unwrap(), of(0, 0, 8 * hour));
        assert_eq!(scale(of(1, 0, 0), 1.5, true).unwrap(), of(0, 20, 0));
        for (number, divide) in [(0.0, true), (1e300, false), (f64::NAN, false), (f64::INFINITY, false)] {
            assert!(scale(of(1, 1, 1000), number, divide).is_err(), "{number}");
        }
    }
}
