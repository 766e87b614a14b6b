//! The functions that TUMBLE, HOP and CUMULATE are made of. They are ordinary scalar functions, so
//! that DataFusion can run the very same plan in batch, and the planner recognises them
//! to learn which columns are window bounds.
//!
//! Windows of `size` start at `offset + k × size` (HOP: at `offset + k × slide`) for every
//! integer k, also before 1970; a window holds the times `start ≤ t < start + size`. All lengths
//! are microseconds. A bound that no timestamp can hold is NULL.

use std::sync::{Arc, LazyLock};

use arrow::array::{
    Array, ArrayBuilder, ArrayRef, AsArray, Int32BufferBuilder, ListArray, NullBufferBuilder, PrimitiveArray,
    PrimitiveBuilder,
};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, Int64Type, TimeUnit, TimestampMicrosecondType};
use datafusion_common::{Result, ScalarValue, exec_err, plan_err};
use datafusion_expr::{ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit};

/// Name of the function that gives a tumbling window's start.
pub const TUMBLE_START: &str = "tumble_start";
/// Name of the function that lists the starts of the hopping windows around a time.
pub const HOP_STARTS: &str = "hop_starts";
/// Name of the function that lists the ends of the growing windows around a time.
pub const CUMULATE_ENDS: &str = "cumulate_ends";
/// Name of the function that gives a window's end from its start.
pub const WINDOW_END: &str = "window_end_of";

/// `tumble_start(ts, size, offset)`: start of the tumbling window that holds `ts`.
pub fn tumble_start(ts: Expr, size_us: i64, offset_us: i64) -> Expr {
    TUMBLE.call(vec![ts, lit(size_us), lit(offset_us)])
}

/// `hop_starts(ts, slide, size, offset)`: starts of the windows that hold `ts`, rising.
pub fn hop_starts(ts: Expr, slide_us: i64, size_us: i64, offset_us: i64) -> Expr {
    HOP.call(vec![ts, lit(slide_us), lit(size_us), lit(offset_us)])
}

/// `cumulate_ends(ts, step, size, offset)`: ends of the windows that hold `ts`, rising. They
/// start together, every `size`, and grow by `step`, of which `size` is a multiple.
pub fn cumulate_ends(ts: Expr, step_us: i64, size_us: i64, offset_us: i64) -> Expr {
    CUMULATE.call(vec![ts, lit(step_us), lit(size_us), lit(offset_us)])
}

/// `window_end_of(start, size)`.
pub fn window_end(start: Expr, size_us: i64) -> Expr {
    END.call(vec![start, lit(size_us)])
}

static TUMBLE: LazyLock<ScalarUDF> = LazyLock::new(|| ScalarUDF::new_from_impl(WindowFn::new(Kind::TumbleStart)));
static HOP: LazyLock<ScalarUDF> = LazyLock::new(|| ScalarUDF::new_from_impl(WindowFn::new(Kind::HopStarts)));
static CUMULATE: LazyLock<ScalarUDF> = LazyLock::new(|| ScalarUDF::new_from_impl(WindowFn::new(Kind::CumulateEnds)));
static END: LazyLock<ScalarUDF> = LazyLock::new(|| ScalarUDF::new_from_impl(WindowFn::new(Kind::WindowEnd)));

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    TumbleStart,
    HopStarts,
    CumulateEnds,
    WindowEnd,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct WindowFn {
    kind: Kind,
    signature: Signature,
}

impl WindowFn {
    fn new(kind: Kind) -> Self {
        let arity = match kind {
            Kind::WindowEnd => 2,
            Kind::TumbleStart => 3,
            Kind::HopStarts | Kind::CumulateEnds => 4,
        };
        Self { kind, signature: Signature::any(arity, Volatility::Immutable) }
    }
}

/// The latest start at or before `t`; `None` where no timestamp can hold it.
fn floor_to(t: i64, size: i64, offset: i64) -> Option<i64> {
    let (t, size, offset) = (i128::from(t), i128::from(size), i128::from(offset));
    i64::try_from((t - offset).div_euclid(size) * size + offset).ok()
}

fn constant(args: &ScalarFunctionArgs, i: usize) -> Result<i64> {
    match args.args.get(i) {
        Some(ColumnarValue::Scalar(ScalarValue::Int64(Some(v)))) => Ok(*v),
        // A one-valued array is what a constant becomes when rows are evaluated apart.
        Some(ColumnarValue::Array(a)) if !a.is_empty() && a.data_type() == &DataType::Int64 => {
            Ok(a.as_primitive::<Int64Type>().value(0))
        }
        _ => exec_err!("a window's length must be a constant"),
    }
}

impl ScalarUDFImpl for WindowFn {
    fn name(&self) -> &str {
        match self.kind {
            Kind::TumbleStart => TUMBLE_START,
            Kind::HopStarts => HOP_STARTS,
            Kind::CumulateEnds => CUMULATE_ENDS,
            Kind::WindowEnd => WINDOW_END,
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match arg_types.first() {
            Some(t @ DataType::Timestamp(TimeUnit::Microsecond, _)) => Ok(match self.kind {
                Kind::HopStarts | Kind::CumulateEnds => {
                    DataType::List(Arc::new(Field::new_list_field(t.clone(), true)))
                }
                _ => t.clone(),
            }),
            _ => plan_err!("{} needs a timestamp", self.name()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(first) = args.args.first() else {
            return exec_err!("{} needs a timestamp", self.name());
        };
        let was_scalar = matches!(first, ColumnarValue::Scalar(_));
        let rows = if was_scalar { 1 } else { args.number_rows };
        let array = first.to_array(rows)?;
        let DataType::Timestamp(TimeUnit::Microsecond, tz) = array.data_type().clone() else {
            return exec_err!("{} needs a timestamp", self.name());
        };
        let ts = array.as_primitive::<TimestampMicrosecondType>();
        let a = constant(&args, 1)?;
        let result: ArrayRef = match self.kind {
            Kind::TumbleStart => {
                let offset = constant(&args, 2)?;
                let starts: PrimitiveArray<TimestampMicrosecondType> = if a > 0 {
                    ts.unary_opt(|t| floor_to(t, a, offset))
                } else {
                    return exec_err!("a window's size must be positive");
                };
                Arc::new(starts.with_timezone_opt(tz))
            }
            Kind::WindowEnd => {
                let ends: PrimitiveArray<TimestampMicrosecondType> = ts.unary_opt(|t| t.checked_add(a));
                Arc::new(ends.with_timezone_opt(tz))
            }
            Kind::HopStarts => Arc::new(hop(ts, a, constant(&args, 2)?, constant(&args, 3)?, tz)?),
            Kind::CumulateEnds => Arc::new(cumulate(ts, a, constant(&args, 2)?, constant(&args, 3)?, tz)?),
        };
        if was_scalar {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?));
        }
        Ok(ColumnarValue::Array(result))
    }
}

fn hop(
    ts: &PrimitiveArray<TimestampMicrosecondType>,
    slide: i64,
    size: i64,
    offset: i64,
    tz: Option<Arc<str>>,
) -> Result<ListArray> {
    if slide <= 0 || size <= 0 {
        return exec_err!("a window's slide and size must be positive");
    }
    // Starts s with t - size < s <= t: the first one above t - size.
    let (slide, size, offset) = (i128::from(slide), i128::from(size), i128::from(offset));
    let first = |t: i128| ((t - size - offset).div_euclid(slide) + 1) * slide + offset;
    lists(ts, size / slide + 1, tz, |t| (first(t), slide, t))
}

fn cumulate(
    ts: &PrimitiveArray<TimestampMicrosecondType>,
    step: i64,
    size: i64,
    offset: i64,
    tz: Option<Arc<str>>,
) -> Result<ListArray> {
    if step <= 0 || size <= 0 {
        return exec_err!("a window's step and size must be positive");
    }
    let (step, size, offset) = (i128::from(step), i128::from(size), i128::from(offset));
    let start = |t: i128| (t - offset).div_euclid(size) * size + offset;
    // Ends e with t < e <= start + size: the first one above t.
    lists(ts, size / step, tz, |t| (start(t) + ((t - start(t)).div_euclid(step) + 1) * step, step, start(t) + size))
}

/// For each time the times from the first up to the last, by steps: (first, step, last). NULL for NULL.
fn lists(
    ts: &PrimitiveArray<TimestampMicrosecondType>,
    per_row: i128,
    tz: Option<Arc<str>>,
    of: impl Fn(i128) -> (i128, i128, i128),
) -> Result<ListArray> {
    let per_row = usize::try_from(per_row).unwrap_or(1).clamp(1, 1 << 16);
    let mut values =
        PrimitiveBuilder::<TimestampMicrosecondType>::with_capacity(ts.len().saturating_mul(per_row).min(1 << 24));
    let mut offsets = Int32BufferBuilder::new(ts.len() + 1);
    offsets.append(0);
    let mut nulls = NullBufferBuilder::new(ts.len());
    for i in 0..ts.len() {
        if ts.is_null(i) {
            nulls.append_null();
        } else {
            nulls.append_non_null();
            let (mut s, step, last) = of(i128::from(ts.value(i)));
            while s <= last {
                if let Ok(bound) = i64::try_from(s) {
                    values.append_value(bound);
                }
                s += step;
            }
        }
        match i32::try_from(values.len()) {
            Ok(end) => offsets.append(end),
            Err(_) => return exec_err!("too many windows in one batch"),
        }
    }
    let values = values.finish().with_timezone_opt(tz);
    let field = Arc::new(Field::new_list_field(values.data_type().clone(), true));
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets.finish()));
    Ok(ListArray::try_new(field, offsets, Arc::new(values), nulls.finish())?)
}
