//! Equality of rows as the engine's hash sees it: NULL equals NULL, −0.0 equals 0.0, every
//! NaN equals every other, dictionaries compare by value. Everything that is found by hash is
//! then checked with these kernels, so a hash collision can never merge different rows.

use std::cmp::Ordering;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, FixedSizeBinaryArray, LargeBinaryArray,
    LargeStringArray, PrimitiveArray, StringArray, StringViewArray, make_comparator,
};
use arrow::compute::{SortOptions, cast, interleave};
use arrow::datatypes::{self as dt, DataType, TimeUnit};

use crate::types::{Result, SpateError};

/// Whether row `i` of one array equals row `j` of another.
pub(crate) type EqualFn = Box<dyn Fn(usize, usize) -> bool + Send + Sync>;

/// Work that can be done once the concrete array type `A` is known; `eq` compares two
/// values that are not NULL.
trait Typed {
    type Out;
    fn typed<A, F>(self, eq: F) -> Self::Out
    where
        A: Array + Clone + 'static,
        F: Fn(&A, usize, &A, usize) -> bool + Send + Sync + 'static;
}

/// Runs `work` with the array type of `data_type`; `None` if there is no typed kernel.
fn dispatch<W: Typed>(data_type: &DataType, work: W) -> Option<W::Out> {
    macro_rules! prim {
        ($t:ty) => {
            Some(work.typed::<PrimitiveArray<$t>, _>(|a, i, b, j| a.value(i) == b.value(j)))
        };
    }
    macro_rules! float {
        ($t:ty) => {
            Some(work.typed::<PrimitiveArray<$t>, _>(|a, i, b, j| {
                let (x, y) = (a.value(i), b.value(j));
                x == y || (x.is_nan() && y.is_nan())
            }))
        };
    }
    macro_rules! bytes {
        ($t:ty) => {
            Some(work.typed::<$t, _>(|a, i, b, j| a.value(i) == b.value(j)))
        };
    }
    match data_type {
        DataType::Boolean => bytes!(BooleanArray),
        DataType::Int8 => prim!(dt::Int8Type),
        DataType::Int16 => prim!(dt::Int16Type),
        DataType::Int32 => prim!(dt::Int32Type),
        DataType::Int64 => prim!(dt::Int64Type),
        DataType::UInt8 => prim!(dt::UInt8Type),
        DataType::UInt16 => prim!(dt::UInt16Type),
        DataType::UInt32 => prim!(dt::UInt32Type),
        DataType::UInt64 => prim!(dt::UInt64Type),
        DataType::Float32 => float!(dt::Float32Type),
        DataType::Float64 => float!(dt::Float64Type),
        DataType::Decimal128(_, _) => prim!(dt::Decimal128Type),
        DataType::Decimal256(_, _) => prim!(dt::Decimal256Type),
        DataType::Date32 => prim!(dt::Date32Type),
        DataType::Date64 => prim!(dt::Date64Type),
        DataType::Time64(TimeUnit::Microsecond) => prim!(dt::Time64MicrosecondType),
        DataType::Timestamp(TimeUnit::Microsecond, _) => prim!(dt::TimestampMicrosecondType),
        DataType::Utf8 => bytes!(StringArray),
        DataType::LargeUtf8 => bytes!(LargeStringArray),
        DataType::Utf8View => bytes!(StringViewArray),
        DataType::Binary => bytes!(BinaryArray),
        DataType::LargeBinary => bytes!(LargeBinaryArray),
        DataType::BinaryView => bytes!(BinaryViewArray),
        DataType::FixedSizeBinary(_) => bytes!(FixedSizeBinaryArray),
        _ => None,
    }
}

fn concrete<A: Array + 'static>(array: &dyn Array) -> Result<&A> {
    array
        .as_any()
        .downcast_ref::<A>()
        .ok_or_else(|| SpateError::internal(format!("rows of different types compared: {}", array.data_type())))
}

struct Pairs<'a> {
    stored: &'a [&'a dyn Array],
    at: &'a [(usize, usize)],
    probe: &'a dyn Array,
    rows: &'a [u32],
    keep: &'a mut [bool],
}

impl Typed for Pairs<'_> {
    type Out = Result<()>;

    fn typed<A, F>(self, eq: F) -> Result<()>
    where
        A: Array + Clone + 'static,
        F: Fn(&A, usize, &A, usize) -> bool + Send + Sync + 'static,
    {
        let stored = self.stored.iter().map(|a| concrete::<A>(*a)).collect::<Result<Vec<_>>>()?;
        let probe = concrete::<A>(self.probe)?;
        let pairs = self.keep.iter_mut().zip(self.at).zip(self.rows);
        if probe.null_count() == 0 && stored.iter().all(|a| a.null_count() == 0) {
            for ((keep, &(piece, row)), &i) in pairs {
                *keep = *keep && eq(stored[piece], row, probe, i as usize);
            }
        } else {
            for ((keep, &(piece, row)), &i) in pairs {
                let (a, i) = (stored[piece], i as usize);
                *keep = *keep
                    && match (a.is_null(row), probe.is_null(i)) {
                        (false, false) => eq(a, row, probe, i),
                        (x, y) => x && y,
                    };
            }
        }
        Ok(())
    }
}

/// Clears `keep[n]` unless the value at `at[n]` (which array of `stored`, which row in it)
/// equals row `rows[n]` of `probe`. All slices but `stored` have the same length.
pub(crate) fn equal_pairs(
    stored: &[&dyn Array],
    at: &[(usize, usize)],
    probe: &ArrayRef,
    rows: &[u32],
    keep: &mut [bool],
) -> Result<()> {
    if at.is_empty() || matches!(probe.data_type(), DataType::Null) {
        return Ok(());
    }
    let work = Pairs { stored, at, probe: probe.as_ref(), rows, keep: &mut *keep };
    if let Some(done) = dispatch(probe.data_type(), work) {
        return done;
    }
    let gathered = interleave(stored, at)?;
    let eq = equal_fn(&gathered, probe)?;
    for (n, (keep, &i)) in keep.iter_mut().zip(rows).enumerate() {
        *keep = *keep && eq(n, i as usize);
    }
    Ok(())
}

struct Closure<'a> {
    a: &'a dyn Array,
    b: &'a dyn Array,
}

impl Typed for Closure<'_> {
    type Out = Result<EqualFn>;

    fn typed<A, F>(self, eq: F) -> Result<EqualFn>
    where
        A: Array + Clone + 'static,
        F: Fn(&A, usize, &A, usize) -> bool + Send + Sync + 'static,
    {
        let (a, b) = (concrete::<A>(self.a)?.clone(), concrete::<A>(self.b)?.clone());
        Ok(Box::new(move |i, j| match (a.is_null(i), b.is_null(j)) {
            (false, false) => eq(&a, i, &b, j),
            (x, y) => x && y,
        }))
    }
}

/// Compares single rows of two arrays of the same type.
pub(crate) fn equal_fn(a: &ArrayRef, b: &ArrayRef) -> Result<EqualFn> {
    match a.data_type() {
        DataType::Null => return Ok(Box::new(|_, _| true)),
        DataType::Dictionary(_, value) => {
            return equal_fn(&cast(a, value)?, &cast(b, value)?);
        }
        _ => {}
    }
    if let Some(f) = dispatch(a.data_type(), Closure { a: a.as_ref(), b: b.as_ref() }) {
        return f;
    }
    let compare = make_comparator(a.as_ref(), b.as_ref(), SortOptions::default())?;
    Ok(Box::new(move |i, j| compare(i, j) == Ordering::Equal))
}

/// Compares single rows over several columns.
pub(crate) fn equal_rows_fn(a: &[ArrayRef], b: &[ArrayRef]) -> Result<EqualFn> {
    let columns = a.iter().zip(b).map(|(a, b)| equal_fn(a, b)).collect::<Result<Vec<_>>>()?;
    Ok(Box::new(move |i, j| columns.iter().all(|eq| eq(i, j))))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use arrow::array::{DictionaryArray, Float64Array, Int64Array};
    use std::sync::Arc;

    fn all(a: ArrayRef, b: ArrayRef) -> Vec<bool> {
        let n = a.len();
        let mut keep = vec![true; n];
        let at: Vec<_> = (0..n).map(|i| (0, i)).collect();
        let rows: Vec<_> = (0..n as u32).collect();
        equal_pairs(&[a.as_ref()], &at, &b, &rows, &mut keep).unwrap();
        let eq = equal_fn(&a, &b).unwrap();
        assert_eq!(keep, (0..n).map(|i| eq(i, i)).collect::<Vec<_>>());
        keep
    }

    #[test]
    fn nulls_zeros_and_nans() {
        let a = Float64Array::from(vec![Some(0.0), Some(f64::NAN), None, None, Some(1.0), Some(1.0)]);
        let b = Float64Array::from(vec![Some(-0.0), Some(-f64::NAN), None, Some(0.0), Some(1.0), Some(2.0)]);
        assert_eq!(all(Arc::new(a), Arc::new(b)), vec![true, true, true, false, true, false]);
    }

    #[test]
    fn dictionaries_compare_by_value() {
        let a: DictionaryArray<dt::Int32Type> = vec!["x", "y", "x"].into_iter().collect();
        let b: DictionaryArray<dt::Int32Type> = vec!["x", "x", "x"].into_iter().collect();
        assert_eq!(all(Arc::new(a), Arc::new(b)), vec![true, false, true]);
    }

    #[test]
    fn different_types_are_an_error() {
        let a: ArrayRef = Arc::new(Float64Array::from(vec![1.0]));
        let b: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        assert!(equal_pairs(&[a.as_ref()], &[(0, 0)], &b, &[0], &mut [true]).is_err());
    }
}
