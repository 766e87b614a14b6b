//! Arrow values of fixed width seen as plain `i64`s and back: the fast path of keys, and of
//! values whose order is the order of their encoding.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, PrimitiveArray};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::{self as dt, ArrowPrimitiveType, DataType, IntervalUnit, TimeUnit};

use crate::types::{Result, SpateError};

/// Whether values of this type have an order-preserving `i64` form.
pub(crate) fn fits_i64(data_type: &DataType) -> bool {
    use DataType::*;
    matches!(
        data_type,
        Boolean | Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64 | Float32 | Float64 | Date32 | Date64
    ) || matches!(data_type, Time32(_) | Time64(_) | Timestamp(_, _) | Duration(_) | Decimal32(_, _) | Decimal64(_, _))
        || matches!(data_type, Interval(IntervalUnit::YearMonth))
}

/// Floats in their total order (−NaN, −Inf, …, −0, +0, …, +Inf, NaN) as `i64`; its own inverse.
#[inline]
fn flip(bits: i64) -> i64 {
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

macro_rules! for_native {
    ($dt:expr, $prim:ident, $other:expr) => {
        match $dt {
            DataType::Int8 => $prim!(dt::Int8Type, |v| i64::from(v), |v| v as i8),
            DataType::Int16 => $prim!(dt::Int16Type, |v| i64::from(v), |v| v as i16),
            DataType::Int32 => $prim!(dt::Int32Type, |v| i64::from(v), |v| v as i32),
            DataType::Int64 => $prim!(dt::Int64Type, |v| v, |v| v),
            DataType::UInt8 => $prim!(dt::UInt8Type, |v| i64::from(v), |v| v as u8),
            DataType::UInt16 => $prim!(dt::UInt16Type, |v| i64::from(v), |v| v as u16),
            DataType::UInt32 => $prim!(dt::UInt32Type, |v| i64::from(v), |v| v as u32),
            DataType::UInt64 => $prim!(dt::UInt64Type, |v| (v as i64) ^ i64::MIN, |v| (v ^ i64::MIN) as u64),
            DataType::Float32 => $prim!(
                dt::Float32Type,
                |v| {
                    let b = v.to_bits() as i32;
                    i64::from(b ^ (((b >> 31) as u32) >> 1) as i32)
                },
                |v| {
                    let b = v as i32;
                    f32::from_bits((b ^ (((b >> 31) as u32) >> 1) as i32) as u32)
                }
            ),
            DataType::Float64 => {
                $prim!(dt::Float64Type, |v| flip(v.to_bits() as i64), |v| f64::from_bits(flip(v) as u64))
            }
            DataType::Date32 => $prim!(dt::Date32Type, |v| i64::from(v), |v| v as i32),
            DataType::Date64 => $prim!(dt::Date64Type, |v| v, |v| v),
            DataType::Time32(TimeUnit::Second) => $prim!(dt::Time32SecondType, |v| i64::from(v), |v| v as i32),
            DataType::Time32(_) => $prim!(dt::Time32MillisecondType, |v| i64::from(v), |v| v as i32),
            DataType::Time64(TimeUnit::Nanosecond) => $prim!(dt::Time64NanosecondType, |v| v, |v| v),
            DataType::Time64(_) => $prim!(dt::Time64MicrosecondType, |v| v, |v| v),
            DataType::Timestamp(TimeUnit::Second, _) => $prim!(dt::TimestampSecondType, |v| v, |v| v),
            DataType::Timestamp(TimeUnit::Millisecond, _) => $prim!(dt::TimestampMillisecondType, |v| v, |v| v),
            DataType::Timestamp(TimeUnit::Microsecond, _) => $prim!(dt::TimestampMicrosecondType, |v| v, |v| v),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => $prim!(dt::TimestampNanosecondType, |v| v, |v| v),
            DataType::Duration(TimeUnit::Second) => $prim!(dt::DurationSecondType, |v| v, |v| v),
            DataType::Duration(TimeUnit::Millisecond) => $prim!(dt::DurationMillisecondType, |v| v, |v| v),
            DataType::Duration(TimeUnit::Microsecond) => $prim!(dt::DurationMicrosecondType, |v| v, |v| v),
            DataType::Duration(TimeUnit::Nanosecond) => $prim!(dt::DurationNanosecondType, |v| v, |v| v),
            DataType::Decimal32(_, _) => $prim!(dt::Decimal32Type, |v| i64::from(v), |v| v as i32),
            DataType::Decimal64(_, _) => $prim!(dt::Decimal64Type, |v| v, |v| v),
            DataType::Interval(IntervalUnit::YearMonth) => {
                $prim!(dt::IntervalYearMonthType, |v| i64::from(v), |v| v as i32)
            }
            _ => $other,
        }
    };
}

fn encode<T: ArrowPrimitiveType>(array: &dyn Array, f: impl Fn(T::Native) -> i64) -> Vec<i64> {
    array.as_primitive::<T>().values().iter().map(|&v| f(v)).collect()
}

/// The values of `array` in their order-preserving `i64` form (anything where NULL).
pub(crate) fn to_i64(array: &ArrayRef) -> Result<Vec<i64>> {
    macro_rules! prim {
        ($t:ty, $enc:expr, $dec:expr) => {
            Ok(encode::<$t>(array, $enc))
        };
    }
    for_native!(array.data_type(), prim, {
        if let DataType::Boolean = array.data_type() {
            Ok(array.as_boolean().values().iter().map(i64::from).collect())
        } else {
            Err(SpateError::internal(format!("{} is no plain value", array.data_type())))
        }
    })
}

fn decode<T: ArrowPrimitiveType>(
    data_type: &DataType,
    values: Vec<i64>,
    nulls: Option<NullBuffer>,
    f: impl Fn(i64) -> T::Native,
) -> Result<ArrayRef> {
    let values = values.into_iter().map(f).collect::<Vec<_>>();
    Ok(Arc::new(PrimitiveArray::<T>::try_new(values.into(), nulls)?.with_data_type(data_type.clone())))
}

/// The inverse of [`to_i64`].
pub(crate) fn from_i64(data_type: &DataType, values: Vec<i64>, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    macro_rules! prim {
        ($t:ty, $enc:expr, $dec:expr) => {
            decode::<$t>(data_type, values, nulls, $dec)
        };
    }
    for_native!(data_type, prim, {
        if let DataType::Boolean = data_type {
            let bits: BooleanBuffer = values.iter().map(|&v| v != 0).collect();
            Ok(Arc::new(BooleanArray::new(bits, nulls)))
        } else {
            Err(SpateError::internal(format!("{data_type} is no plain value")))
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use arrow::array::{Float32Array, Float64Array, UInt64Array};

    #[test]
    fn round_trip_keeps_bits_and_order() {
        let floats = vec![f64::NEG_INFINITY, -1.5, -0.0, 0.0, 1e-300, 2.0, f64::INFINITY, f64::NAN];
        let a: ArrayRef = Arc::new(Float64Array::from(floats.clone()));
        let b: ArrayRef = Arc::new(Float32Array::from(floats.iter().map(|&f| f as f32).collect::<Vec<_>>()));
        let c: ArrayRef = Arc::new(UInt64Array::from(vec![0, 1, u64::MAX / 2, u64::MAX / 2 + 1, u64::MAX]));
        for x in [a, b, c] {
            let v = to_i64(&x).unwrap();
            assert!(v.is_sorted(), "{v:?}");
            let back = from_i64(x.data_type(), v, None).unwrap();
            assert_eq!(back.to_data().buffers()[0].as_slice(), x.to_data().buffers()[0].as_slice());
        }
    }
}
