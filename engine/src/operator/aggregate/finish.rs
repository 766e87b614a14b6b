//! From accumulators to results: the columns of the calls for some rows.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Decimal128Array, Decimal256Array, Float64Array, Int64Array, new_null_array,
};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type, Decimal256Type, DecimalType, i256};

use super::accumulate::SCALE;
use super::layout::{Acc, AccKind, CallResult, Layout};
use super::moments;
use crate::plan::AggFunc;
use crate::state::chunked::Chunked;
use crate::state::group::Column;
use crate::state::native::from_i64;
use crate::types::{Result, SpateError};

fn i64s(columns: &[Column], at: usize) -> Result<&Chunked<i64>> {
    match columns.get(at) {
        Some(Column::I64(c)) => Ok(c),
        _ => Err(wrong()),
    }
}

fn f64s(columns: &[Column], at: usize) -> Result<&Chunked<f64>> {
    match columns.get(at) {
        Some(Column::F64(c)) => Ok(c),
        _ => Err(wrong()),
    }
}

fn wrong() -> SpateError {
    SpateError::internal("an accumulator's column has the wrong kind")
}

/// The results of all calls at `slots` of `columns`, cast to `types`.
pub(super) fn results(layout: &Layout, columns: &[Column], slots: &[u32], types: &[DataType]) -> Result<Vec<ArrayRef>> {
    let one = |(call, t): (&CallResult, &DataType)| {
        let array: ArrayRef = match call {
            CallResult::Count(column) => Arc::new(Int64Array::from(i64s(columns, *column)?.gather(slots))),
            CallResult::Value { feed, acc, func } => {
                let acc = layout.feeds.get(*feed).and_then(|f| f.accs.get(*acc)).ok_or_else(wrong)?;
                value(acc, *func, columns, slots, t)?
            }
        };
        if array.data_type() == t { Ok(array) } else { Ok(cast(&array, t)?) }
    };
    layout.calls.iter().zip(types).map(one).collect()
}

fn value(acc: &Acc, func: AggFunc, columns: &[Column], slots: &[u32], t: &DataType) -> Result<ArrayRef> {
    let avg = func == AggFunc::Avg;
    let counts = i64s(columns, acc.count)?.gather(slots);
    let valid: Vec<bool> = counts.iter().map(|&n| n != 0).collect();
    if *t == DataType::Null {
        return Ok(new_null_array(t, slots.len()));
    }
    let nulls = valid.iter().any(|v| !v).then(|| NullBuffer::from(valid));
    match &acc.kind {
        AccKind::Count => Err(wrong()),
        AccKind::SumI64 => {
            let c = i64s(columns, acc.column)?.gather(slots);
            if *t == DataType::UInt64 {
                let v: Vec<u64> = c.into_iter().map(|v| v as u64).collect();
                return Ok(Arc::new(arrow::array::UInt64Array::try_new(v.into(), nulls)?));
            }
            from_i64(t, c, nulls)
        }
        AccKind::SumI128 | AccKind::SumI256 => decimal(acc, avg, columns, slots, &counts, nulls, t),
        AccKind::SumF64 => {
            let (hi, lo) = (f64s(columns, acc.column)?, f64s(columns, acc.column + 1)?);
            let (huge_hi, huge_lo) = (f64s(columns, acc.column + 5)?, f64s(columns, acc.column + 6)?);
            let special = |k| i64s(columns, acc.column + k);
            let (nan, pos, neg) = (special(2)?, special(3)?, special(4)?);
            let sums = slots.iter().zip(&counts).map(|(&s, &n)| {
                let sum = match (*nan.get(s) != 0, *pos.get(s) != 0, *neg.get(s) != 0) {
                    (true, _, _) | (_, true, true) => f64::NAN,
                    (_, true, _) => f64::INFINITY,
                    (_, _, true) => f64::NEG_INFINITY,
                    _ => finite_sum(*hi.get(s), *lo.get(s), *huge_hi.get(s), *huge_lo.get(s)),
                };
                if avg { sum / n as f64 } else { sum }
            });
            Ok(Arc::new(Float64Array::try_new(sums.collect::<Vec<_>>().into(), nulls)?))
        }
        AccKind::ExtremeI64 { .. } => {
            let mut v = i64s(columns, acc.column)?.gather(slots);
            // Functions compute what stands under a NULL too; the least integer may be too much for them.
            v.iter_mut().zip(&counts).filter(|(_, n)| **n == 0).for_each(|(v, _)| *v = 0);
            from_i64(t, v, nulls)
        }
        AccKind::ExtremeI128 { .. } => {
            let Some(Column::I128(c)) = columns.get(acc.column) else { return Err(wrong()) };
            let a = Decimal128Array::try_new(c.gather(slots).into(), nulls)?;
            Ok(Arc::new(a.with_data_type(t.clone())))
        }
        AccKind::ExtremeBytes { codec, .. } | AccKind::ExtremeSet { codec, .. } => {
            let Some(Column::Bytes(c)) = columns.get(acc.column) else { return Err(wrong()) };
            codec.decode(slots.iter().map(|&s| c.get(s).as_deref()))
        }
        AccKind::Moments { other } => {
            let AggFunc::Moment(m) = func else { return Err(wrong()) };
            let values = moments::results(acc, m, other.is_some(), columns, slots)?;
            Ok(Arc::new(values.into_iter().collect::<Float64Array>()))
        }
        AccKind::Rows(rows) => {
            let Some(Column::Bytes(c)) = columns.get(acc.column) else { return Err(wrong()) };
            rows.codec.decode(slots.iter().map(|&s| c.get(s).as_deref()))
        }
        AccKind::Trues => {
            let trues = i64s(columns, acc.column)?;
            let all = func == AggFunc::BoolAnd;
            let holds =
                slots.iter().zip(&counts).map(|(&s, n)| if all { trues.get(s) == n } else { *trues.get(s) > 0 });
            Ok(Arc::new(BooleanArray::new(holds.collect::<BooleanBuffer>(), nulls)))
        }
        AccKind::BitXor | AccKind::BitFold { .. } => from_bits(t, i64s(columns, acc.column)?.gather(slots), nulls),
        AccKind::BitCounts { bits } => {
            let mut v = vec![0i64; slots.len()];
            for bit in 0..*bits {
                let having = i64s(columns, acc.column + bit)?;
                for (v, (&s, n)) in v.iter_mut().zip(slots.iter().zip(&counts)) {
                    let on = if func == AggFunc::BitAnd { having.get(s) == n } else { *having.get(s) > 0 };
                    *v |= i64::from(on) << bit;
                }
            }
            from_bits(t, v, nulls)
        }
    }
}

/// Integers from their bits in the low end of a word.
fn from_bits(t: &DataType, mut v: Vec<i64>, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    if *t == DataType::UInt64 {
        v.iter_mut().for_each(|v| *v ^= i64::MIN);
    }
    from_i64(t, v, nulls)
}

/// Sums and means of decimals. A mean is truncated towards zero at the result's scale, as
/// DataFusion does; one that does not fit its precision is NULL.
fn decimal(
    acc: &Acc,
    avg: bool,
    columns: &[Column],
    slots: &[u32],
    counts: &[i64],
    nulls: Option<NullBuffer>,
    t: &DataType,
) -> Result<ArrayRef> {
    let sums: Vec<i256> = match columns.get(acc.column) {
        Some(Column::I128(c)) if !avg => {
            let v = c.gather(slots);
            return Ok(match t {
                // Wraps at the width of the result, as DataFusion's sums do.
                DataType::Decimal32(..) => from_i64(t, v.into_iter().map(|v| i64::from(v as i32)).collect(), nulls)?,
                DataType::Decimal64(..) => from_i64(t, v.into_iter().map(|v| v as i64).collect(), nulls)?,
                DataType::Decimal128(..) => {
                    Arc::new(Decimal128Array::try_new(v.into(), nulls)?.with_data_type(t.clone()))
                }
                _ => return Err(wrong()),
            });
        }
        Some(Column::I256(c)) if !avg => {
            return Ok(Arc::new(Decimal256Array::try_new(c.gather(slots).into(), nulls)?.with_data_type(t.clone())));
        }
        Some(Column::I128(c)) => slots.iter().map(|&s| i256::from_i128(*c.get(s))).collect(),
        Some(Column::I256(c)) => c.gather(slots),
        _ => return Err(wrong()),
    };
    let (DataType::Decimal128(_, from) | DataType::Decimal256(_, from)) = acc.input else { return Err(wrong()) };
    let (precision, scale) = match *t {
        DataType::Decimal32(p, s) | DataType::Decimal64(p, s) | DataType::Decimal128(p, s) => (p, s),
        DataType::Decimal256(p, s) => (p, s),
        _ => return Err(wrong()),
    };
    let up = i256::from_i128(10).wrapping_pow(u32::from((scale - from).unsigned_abs()));
    let mean = |(sum, n): (i256, &i64)| {
        let v = sum.checked_mul(up)?.checked_div(i256::from_i128(i128::from(*n)))?;
        Decimal256Type::validate_decimal_precision(v, precision, scale).ok().map(|()| v)
    };
    let means = sums.into_iter().zip(counts).map(mean);
    Ok(match t {
        DataType::Decimal256(..) => Arc::new(means.collect::<Decimal256Array>().with_data_type(t.clone())),
        _ => {
            let narrow: Decimal128Array = means.map(|v| v.and_then(i256::to_i128)).collect();
            let wide = DataType::Decimal128(<Decimal128Type as DecimalType>::MAX_PRECISION, scale);
            let narrow: ArrayRef = Arc::new(narrow.with_data_type(wide));
            if matches!(t, DataType::Decimal128(..)) {
                let a = arrow::array::AsArray::as_primitive::<Decimal128Type>(&narrow).clone();
                Arc::new(a.with_data_type(t.clone()))
            } else {
                cast(&narrow, t)?
            }
        }
    })
}

/// The sum of ordinary values and of huge ones, which are scaled down by [`SCALE`].
fn finite_sum(hi: f64, lo: f64, huge_hi: f64, huge_lo: f64) -> f64 {
    if huge_hi == 0.0 && huge_lo == 0.0 {
        return hi + lo;
    }
    (huge_hi + (huge_lo + hi * SCALE) + lo * SCALE) / SCALE
}
