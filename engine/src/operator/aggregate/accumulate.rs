//! The inner loops: one pass per accumulator over the rows of a delta.
//!
//! `weights[i]` says how often row `i` counts for this accumulator; 0 leaves it out (NULL,
//! filtered, or no change of a distinct value). Sums are linear, so retractions are exact;
//! floats are summed in double-double (Knuth's TwoSum, Dekker's fast TwoSum) with NaN and
//! ±Inf counted apart.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Decimal128Type, Decimal256Type, Float64Type, UInt64Type, i256};

use super::layout::{Acc, AccKind};
use crate::state::chunked::Chunked;
use crate::state::group::Column;
use crate::state::native::to_i64;
use crate::types::{Result, SpateError};

fn wrong_column() -> SpateError {
    SpateError::internal("an accumulator's column has the wrong kind")
}

pub(super) fn i64s(c: &mut Column) -> Result<&mut Chunked<i64>> {
    if let Column::I64(c) = c { Ok(c) } else { Err(wrong_column()) }
}

fn i128s(c: &mut Column) -> Result<&mut Chunked<i128>> {
    if let Column::I128(c) = c { Ok(c) } else { Err(wrong_column()) }
}

fn f64s(c: &mut Column) -> Result<&mut Chunked<f64>> {
    if let Column::F64(c) = c { Ok(c) } else { Err(wrong_column()) }
}

pub(super) fn bytes(c: &mut Column) -> Result<&mut Chunked<Option<Box<[u8]>>>> {
    if let Column::Bytes(c) = c { Ok(c) } else { Err(wrong_column()) }
}

/// Adds every weight at its slot.
pub(super) fn count(column: &mut Column, slots: &[u32], weights: &[i64]) -> Result<()> {
    let c = i64s(column)?;
    for (&s, &w) in slots.iter().zip(weights) {
        if w != 0 {
            let v = c.get_mut(s);
            *v = v.wrapping_add(w);
        }
    }
    Ok(())
}

/// `hi + lo` plus `x`, with the error of the addition kept in `lo`.
#[inline]
fn add_exact(hi: &mut f64, lo: &mut f64, x: f64) {
    let s = *hi + x;
    let b = s - *hi;
    let e = (*hi - (s - b)) + (x - b) + *lo;
    let t = s + e;
    if t.is_finite() {
        *hi = t;
        *lo = e - (t - s);
    } else {
        // The finite values overflow, as they do in a plain sum.
        *hi = s + *lo;
        *lo = 0.0;
    }
}

/// Adds `hi + lo` to the sum whose columns begin at `at`.
pub(super) fn add_sum(columns: &mut [Column], at: usize, slot: u32, hi: f64, lo: f64) -> Result<()> {
    let Some([to_hi, to_lo]) = columns.get_mut(at..at + 2) else { return Err(wrong_column()) };
    let (to_hi, to_lo) = (f64s(to_hi)?.get_mut(slot), f64s(to_lo)?.get_mut(slot));
    add_exact(to_hi, to_lo, hi);
    add_exact(to_hi, to_lo, lo);
    Ok(())
}

/// Values from here on (2^900) are summed apart and scaled down, so that no sum overflows that later
/// comes back into range, and so that they take no digits from small values when they go.
const HUGE: f64 = f64::from_bits((1023 + 900) << 52);
/// 2^-200, by which huge values are scaled.
pub(super) const SCALE: f64 = f64::from_bits((1023 - 200) << 52);

fn sum_f64(columns: &mut [Column], values: &[f64], slots: &[u32], weights: &[i64]) -> Result<()> {
    let [hi, lo, nan, pos, neg, huge_hi, huge_lo, ..] = columns else { return Err(wrong_column()) };
    let (hi, lo, huge_hi, huge_lo) = (f64s(hi)?, f64s(lo)?, f64s(huge_hi)?, f64s(huge_lo)?);
    let (nan, pos, neg) = (i64s(nan)?, i64s(pos)?, i64s(neg)?);
    for ((&x, &s), &w) in values.iter().zip(slots).zip(weights) {
        if w == 0 {
            continue;
        }
        if x.is_finite() {
            let (h, l, x) = if x.abs() < HUGE {
                (hi.get_mut(s), lo.get_mut(s), x)
            } else {
                (huge_hi.get_mut(s), huge_lo.get_mut(s), x * SCALE)
            };
            if w == 1 || w == -1 {
                add_exact(h, l, if w == 1 { x } else { -x });
            } else {
                let f = w as f64;
                let p = x * f;
                add_exact(h, l, p);
                if p.is_finite() {
                    add_exact(h, l, x.mul_add(f, -p));
                }
            }
        } else {
            let c = if x.is_nan() {
                nan.get_mut(s)
            } else if x > 0.0 {
                pos.get_mut(s)
            } else {
                neg.get_mut(s)
            };
            *c = c.wrapping_add(w);
        }
    }
    Ok(())
}

/// Feeds one accumulator. `values` is the argument, cast as the accumulator wants it.
pub(super) fn update(
    acc: &Acc,
    columns: &mut [Column],
    values: &ArrayRef,
    slots: &[u32],
    weights: &[i64],
) -> Result<()> {
    let rows = || slots.iter().copied().zip(weights.iter().copied()).enumerate().filter(|(_, (_, w))| *w != 0);
    match &acc.kind {
        AccKind::Count => count(&mut columns[acc.column], slots, weights)?,
        AccKind::SumI64 => {
            let owned;
            let v: &[i64] = match values.data_type() {
                DataType::Int64 => values.as_primitive::<arrow::datatypes::Int64Type>().values(),
                DataType::UInt64 => {
                    owned = values.as_primitive::<UInt64Type>().values().iter().map(|&v| v as i64).collect::<Vec<_>>();
                    &owned
                }
                _ => {
                    owned = to_i64(values)?;
                    &owned
                }
            };
            let c = i64s(&mut columns[acc.column])?;
            for (i, (s, w)) in rows() {
                let x = c.get_mut(s);
                *x = x.wrapping_add(v[i].wrapping_mul(w));
            }
        }
        AccKind::SumI128 => {
            let v = values.as_primitive::<Decimal128Type>().values();
            let c = i128s(&mut columns[acc.column])?;
            for (i, (s, w)) in rows() {
                let x = c.get_mut(s);
                *x = x.wrapping_add(v[i].wrapping_mul(i128::from(w)));
            }
        }
        AccKind::SumI256 => {
            let v = values.as_primitive::<Decimal256Type>().values();
            let Column::I256(c) = &mut columns[acc.column] else { return Err(wrong_column()) };
            for (i, (s, w)) in rows() {
                let x = c.get_mut(s);
                *x = x.wrapping_add(v[i].wrapping_mul(i256::from_i128(i128::from(w))));
            }
        }
        AccKind::SumF64 => {
            sum_f64(&mut columns[acc.column..], values.as_primitive::<Float64Type>().values(), slots, weights)?;
        }
        AccKind::ExtremeI64 { max } => {
            let v = to_i64(values)?;
            let c = i64s(&mut columns[acc.column])?;
            for (i, (s, _)) in rows() {
                if if *max { v[i] > *c.get(s) } else { v[i] < *c.get(s) } {
                    *c.get_mut(s) = v[i];
                }
            }
        }
        AccKind::ExtremeI128 { max } => {
            let v = values.as_primitive::<Decimal128Type>().values();
            let c = i128s(&mut columns[acc.column])?;
            for (i, (s, _)) in rows() {
                if if *max { v[i] > *c.get(s) } else { v[i] < *c.get(s) } {
                    *c.get_mut(s) = v[i];
                }
            }
        }
        AccKind::ExtremeBytes { max, codec } => {
            let v = codec.rows.convert_columns(std::slice::from_ref(values))?;
            let c = bytes(&mut columns[acc.column])?;
            for (i, (s, _)) in rows() {
                let new = v.row(i).data();
                let better = match c.get(s) {
                    Some(old) if *max => new > &**old,
                    Some(old) => new < &**old,
                    None => true,
                };
                if better {
                    *c.get_mut(s) = Some(new.into());
                }
            }
        }
        AccKind::Trues => {
            let v = values.as_boolean().values();
            let c = i64s(&mut columns[acc.column])?;
            for (_, (s, w)) in rows().filter(|(i, _)| v.value(*i)) {
                let x = c.get_mut(s);
                *x = x.wrapping_add(w);
            }
        }
        AccKind::BitXor => {
            let v = bit_patterns(values)?;
            let c = i64s(&mut columns[acc.column])?;
            for (i, (s, _)) in rows().filter(|(_, (_, w))| w & 1 != 0) {
                *c.get_mut(s) ^= v[i];
            }
        }
        AccKind::BitFold { all } => {
            let v = bit_patterns(values)?;
            let c = i64s(&mut columns[acc.column])?;
            for (i, (s, _)) in rows() {
                let x = c.get_mut(s);
                *x = if *all { *x & v[i] } else { *x | v[i] };
            }
        }
        AccKind::BitCounts { bits } => {
            let v = bit_patterns(values)?;
            for bit in 0..*bits {
                let c = i64s(&mut columns[acc.column + bit])?;
                for (_, (s, w)) in rows().filter(|(i, _)| v[*i] >> bit & 1 != 0) {
                    let x = c.get_mut(s);
                    *x = x.wrapping_add(w);
                }
            }
        }
        // Fed apart: the tables of rows each once for all that read it.
        AccKind::ExtremeSet { .. } | AccKind::Rows(_) | AccKind::Moments { .. } => {}
    }
    Ok(())
}

/// Puts what is neutral into the cells of new rows, where that is not zero.
pub(super) fn init(acc: &Acc, columns: &mut [Column], new: std::ops::Range<u32>) -> Result<()> {
    match acc.kind {
        AccKind::ExtremeI64 { max } => {
            let c = i64s(&mut columns[acc.column])?;
            new.for_each(|s| *c.get_mut(s) = if max { i64::MIN } else { i64::MAX });
        }
        AccKind::ExtremeI128 { max } => {
            let c = i128s(&mut columns[acc.column])?;
            new.for_each(|s| *c.get_mut(s) = if max { i128::MIN } else { i128::MAX });
        }
        AccKind::BitFold { all: true } => {
            let c = i64s(&mut columns[acc.column])?;
            new.for_each(|s| *c.get_mut(s) = -1);
        }
        _ => {}
    }
    Ok(())
}

/// The bits of integers, in the low end of a word.
fn bit_patterns(values: &ArrayRef) -> Result<Vec<i64>> {
    let mut v = to_i64(values)?;
    if *values.data_type() == DataType::UInt64 {
        v.iter_mut().for_each(|v| *v ^= i64::MIN);
    }
    Ok(v)
}

/// Clears float sums of groups without values, so that nothing of what they saw remains.
pub(super) fn clear_empty_sums(accs: &[&Acc], columns: &mut [Column], slots: &[u32]) -> Result<()> {
    for acc in accs.iter().filter(|a| matches!(a.kind, AccKind::SumF64)) {
        for &s in slots {
            if *i64s(&mut columns[acc.count])?.get(s) == 0 {
                *f64s(&mut columns[acc.column])?.get_mut(s) = 0.0;
                *f64s(&mut columns[acc.column + 1])?.get_mut(s) = 0.0;
                *f64s(&mut columns[acc.column + 5])?.get_mut(s) = 0.0;
                *f64s(&mut columns[acc.column + 6])?.get_mut(s) = 0.0;
            }
        }
    }
    Ok(())
}
