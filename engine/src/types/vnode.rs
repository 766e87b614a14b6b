//! The engine's one stable hash, and the vnodes made of it.
//!
//! `hash_rows` is XXH3-64 over the canonical bytes of the key columns, column after column
//! (each column's hash seeds the next). It is the same in every process and build: vnodes,
//! state tables and snapshots all use it. −0.0 hashes as 0.0, every NaN as one NaN, NULL has
//! a tag of its own; dictionary and view arrays hash as their values do.
//! Source of the hash: XXH3, <https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md>.

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{self as dt, ArrowPrimitiveType, DataType};
use arrow::row::{RowConverter, SortField};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::error::Result;

/// Number of vnodes.
pub const VNODES: usize = 256;

/// Number of a vnode.
pub type VNode = u8;

const NULL_TAG: &[u8] = b"\0null";
const SEED: u64 = 0x53_5041_5445u64;

/// The vnode of a hash.
#[inline]
pub fn vnode_of(hash: u64) -> VNode {
    (hash & 0xff) as VNode
}

/// The task that owns a vnode, of `tasks` in all: equal contiguous shares.
#[inline]
pub fn task_of(vnode: VNode, tasks: usize) -> usize {
    usize::from(vnode) * tasks.max(1) / VNODES
}

/// Hashes of the rows of these columns (`rows` of them, also when there is no column).
pub fn hash_rows(columns: &[ArrayRef], rows: usize) -> Result<Vec<u64>> {
    let mut hashes = vec![SEED; rows];
    for c in columns {
        hash_column(c, &mut hashes)?;
    }
    Ok(hashes)
}

/// Hashes of the rows of `batch`, by the columns at `keys`.
pub fn hash_batch(batch: &RecordBatch, keys: &[usize]) -> Result<Vec<u64>> {
    let columns: Vec<ArrayRef> = keys.iter().map(|&i| batch.column(i).clone()).collect();
    hash_rows(&columns, batch.num_rows())
}

fn hash_bytes<'a>(hashes: &mut [u64], nulls: &dyn Array, value: impl Fn(usize) -> &'a [u8]) {
    for (i, h) in hashes.iter_mut().enumerate() {
        let bytes = if nulls.is_null(i) { NULL_TAG } else { value(i) };
        *h = xxh3_64_with_seed(bytes, *h);
    }
}

fn hash_primitive<T: ArrowPrimitiveType, const N: usize>(
    array: &dyn Array,
    hashes: &mut [u64],
    bytes: impl Fn(T::Native) -> [u8; N],
) {
    let a = array.as_primitive::<T>();
    if a.null_count() == 0 {
        for (h, v) in hashes.iter_mut().zip(a.values()) {
            *h = xxh3_64_with_seed(&bytes(*v), *h);
        }
    } else {
        for (i, h) in hashes.iter_mut().enumerate() {
            *h = if a.is_null(i) { xxh3_64_with_seed(NULL_TAG, *h) } else { xxh3_64_with_seed(&bytes(a.value(i)), *h) };
        }
    }
}

fn f64_bytes(v: f64) -> [u8; 8] {
    let v = if v.is_nan() { f64::NAN } else { v + 0.0 };
    v.to_bits().to_le_bytes()
}

fn hash_bool(a: &BooleanArray, hashes: &mut [u64]) {
    hash_bytes(hashes, a, |i| if a.value(i) { &[1] } else { &[0] });
}

fn hash_column(array: &ArrayRef, hashes: &mut [u64]) -> Result<()> {
    macro_rules! prim {
        ($t:ty) => {
            hash_primitive::<$t, { size_of::<<$t as ArrowPrimitiveType>::Native>() }>(array, hashes, |v| {
                v.to_le_bytes()
            })
        };
    }
    match array.data_type() {
        DataType::Boolean => hash_bool(array.as_boolean(), hashes),
        DataType::Int8 => prim!(dt::Int8Type),
        DataType::Int16 => prim!(dt::Int16Type),
        DataType::Int32 => prim!(dt::Int32Type),
        DataType::Int64 => prim!(dt::Int64Type),
        DataType::UInt8 => prim!(dt::UInt8Type),
        DataType::UInt16 => prim!(dt::UInt16Type),
        DataType::UInt32 => prim!(dt::UInt32Type),
        DataType::UInt64 => prim!(dt::UInt64Type),
        DataType::Float32 => hash_primitive::<dt::Float32Type, 8>(array, hashes, |v| f64_bytes(v.into())),
        DataType::Float64 => hash_primitive::<dt::Float64Type, 8>(array, hashes, f64_bytes),
        DataType::Decimal128(_, _) => prim!(dt::Decimal128Type),
        DataType::Decimal256(_, _) => prim!(dt::Decimal256Type),
        DataType::Date32 => prim!(dt::Date32Type),
        DataType::Date64 => prim!(dt::Date64Type),
        DataType::Time64(dt::TimeUnit::Microsecond) => prim!(dt::Time64MicrosecondType),
        DataType::Timestamp(dt::TimeUnit::Microsecond, _) => prim!(dt::TimestampMicrosecondType),
        DataType::Utf8 => {
            let a = array.as_string::<i32>();
            hash_bytes(hashes, a, |i| a.value(i).as_bytes());
        }
        DataType::LargeUtf8 => {
            let a = array.as_string::<i64>();
            hash_bytes(hashes, a, |i| a.value(i).as_bytes());
        }
        DataType::Utf8View => {
            let a = array.as_string_view();
            hash_bytes(hashes, a, |i| a.value(i).as_bytes());
        }
        DataType::Binary => {
            let a = array.as_binary::<i32>();
            hash_bytes(hashes, a, |i| a.value(i));
        }
        DataType::LargeBinary => {
            let a = array.as_binary::<i64>();
            hash_bytes(hashes, a, |i| a.value(i));
        }
        DataType::FixedSizeBinary(_) => {
            let a = array.as_fixed_size_binary();
            hash_bytes(hashes, a, |i| a.value(i));
        }
        DataType::Dictionary(_, value) => hash_column(&cast(array, value)?, hashes)?,
        DataType::Null => hash_bytes(hashes, array, |_| NULL_TAG),
        // Everything else (intervals, lists, structs, …) by arrow's row format of this build's
        // arrow version, which is canonical per value.
        other => {
            let converter = RowConverter::new(vec![SortField::new(other.clone())])?;
            let rows = converter.convert_columns(std::slice::from_ref(array))?;
            for (h, r) in hashes.iter_mut().zip(rows.iter()) {
                *h = xxh3_64_with_seed(r.as_ref(), *h);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Float64Array, Int64Array, StringArray};
    use std::sync::Arc;

    #[test]
    fn canonical_floats_and_nulls() {
        let a: ArrayRef =
            Arc::new(Float64Array::from(vec![Some(0.0), Some(-0.0), Some(f64::NAN), Some(-f64::NAN), None]));
        let h = hash_rows(&[a], 5).unwrap();
        assert_eq!(h[0], h[1]);
        assert_eq!(h[2], h[3]);
        assert_ne!(h[4], h[0]);
    }

    #[test]
    fn hashes_are_pinned() {
        // Snapshots and vnodes depend on these numbers: a change here breaks stored state.
        let a: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
        let b: ArrayRef = Arc::new(StringArray::from(vec!["x", "y"]));
        assert_eq!(hash_rows(&[a, b], 2).unwrap(), hash_pinned());
    }

    fn hash_pinned() -> Vec<u64> {
        let row = |first: &[u8], second: &[u8]| xxh3_64_with_seed(second, xxh3_64_with_seed(first, SEED));
        vec![row(&1i64.to_le_bytes(), b"x"), row(b"\0null", b"y")]
    }

    #[test]
    fn tasks_share_vnodes_evenly() {
        for tasks in 1..=7 {
            let mut count = vec![0; tasks];
            for v in 0..=255u8 {
                count[task_of(v, tasks)] += 1;
            }
            assert!(count.iter().max().unwrap() - count.iter().min().unwrap() <= 1);
        }
    }
}
