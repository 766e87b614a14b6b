//! `min` and `max` that order floats as everything else does: NaN greatest. DataFusion's grouped
//! ones begin with the greatest finite value and compare NaNs by chance, so that
//! `min('Infinity')` is finite and the answer depends on the order of rows.

use arrow::datatypes::{ArrowPrimitiveType, DataType, Field, FieldRef, Float32Type, Float64Type};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion_expr::utils::AggregateOrderSensitivity;
use datafusion_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, SetMonotonicity, Signature,
    StatisticsArgs,
};
use datafusion_functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::prim_op::PrimitiveGroupsAccumulator;
use spate_engine::types::error::SpateError;

use crate::sql::types::display;

/// Both functions.
pub(super) fn all() -> [AggregateUDF; 2] {
    let wrap = |inner: std::sync::Arc<AggregateUDF>, max| {
        AggregateUDF::new_from_impl(MinMax { inner: inner.as_ref().clone(), max })
    };
    [wrap(min_udaf(), false), wrap(max_udaf(), true)]
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct MinMax {
    /// DataFusion's function, for all other types.
    inner: AggregateUDF,
    max: bool,
}

impl MinMax {
    /// DataFusion fails on maps and on nested arrays when it comes to compute, and orders structs by
    /// chance where a field is NULL.
    fn check<'a>(&self, types: impl IntoIterator<Item = &'a DataType>) -> Result<()> {
        match types.into_iter().find(|t| !is_ordered(t)) {
            Some(t) => {
                let what = format!("{} of type {} is not supported", self.inner.name(), display(t));
                let hint = match t {
                    DataType::Map(..) => "take it of the map's keys or of one of its values",
                    DataType::Struct(_) => "take it of one of its fields, or the first row by ORDER BY … LIMIT 1",
                    _ => "take the first row by ORDER BY … LIMIT 1",
                };
                Err(SpateError::unsupported(what).with_hint(hint).into())
            }
            None => Ok(()),
        }
    }
}

/// Types whose values `min` and `max` order as ORDER BY does.
fn is_ordered(t: &DataType) -> bool {
    match t {
        DataType::Map(..) | DataType::Struct(_) => false,
        DataType::List(f) => !f.data_type().is_nested(),
        _ => true,
    }
}

fn floats<T: ArrowPrimitiveType + Send>(
    data_type: &DataType,
    max: bool,
    start: T::Native,
    order: fn(&T::Native, &T::Native) -> std::cmp::Ordering,
) -> Box<dyn GroupsAccumulator>
where
    T::Native: Copy,
{
    let better = if max { std::cmp::Ordering::Greater } else { std::cmp::Ordering::Less };
    let step = move |now: &mut T::Native, new: T::Native| {
        if order(&new, now) == better {
            *now = new;
        }
    };
    Box::new(PrimitiveGroupsAccumulator::<T, _>::new(data_type, step).with_starting_value(start))
}

impl AggregateUDFImpl for MinMax {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.check(arg_types)?;
        self.inner.return_type(arg_types)
    }

    fn return_field(&self, arg_fields: &[FieldRef]) -> Result<FieldRef> {
        self.check(arg_fields.iter().map(|f| f.data_type()))?;
        self.inner.return_field(arg_fields)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.inner.accumulator(args)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let name = format!("{}[{}]", args.name, self.inner.name());
        Ok(vec![std::sync::Arc::new(Field::new(name, args.return_field.data_type().clone(), true))])
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        // The value that any other replaces: negative NaN does not come up.
        match args.return_field.data_type() {
            t @ DataType::Float64 => {
                let start = if self.max { f64::NEG_INFINITY } else { f64::NAN };
                Ok(floats::<Float64Type>(t, self.max, start, f64::total_cmp))
            }
            t @ DataType::Float32 => {
                let start = if self.max { f32::NEG_INFINITY } else { f32::NAN };
                Ok(floats::<Float32Type>(t, self.max, start, f32::total_cmp))
            }
            _ => self.inner.create_groups_accumulator(args),
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.inner.create_sliding_accumulator(args)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arg_types)
    }

    fn is_descending(&self) -> Option<bool> {
        Some(self.max)
    }

    fn value_from_stats(&self, args: &StatisticsArgs<'_>) -> Option<ScalarValue> {
        self.inner.value_from_stats(args)
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.inner.inner().set_monotonicity(data_type)
    }
}
