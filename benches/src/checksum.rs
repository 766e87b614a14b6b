//! A checksum of a bag of rows: the sum of the rows' hashes, so that order does not matter.

use std::hash::{DefaultHasher, Hasher};

use arrow::array::{ArrayRef, AsArray, Float64Array, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Schema};
use arrow::row::{RowConverter, SortField};
use futures::{Stream, TryStreamExt};
use spate_engine::types::{Result, SpateError};

/// Rows of a bag, and the sum of their hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Checksum {
    /// Rows.
    pub rows: u64,
    /// Sum of hashes, modulo 2^64.
    pub sum: u64,
}

impl std::fmt::Display for Checksum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} rows, checksum {:016x}", self.rows, self.sum)
    }
}

/// The checksum of the rows of a stream, cast to the types of `schema`.
///
/// # Errors
/// The stream's, and other columns than those of `schema`.
pub async fn of(schema: &Schema, rows: impl Stream<Item = Result<RecordBatch>>) -> Result<Checksum> {
    let sum = Summing::new(schema)?;
    let sum = rows.try_fold(sum, async |mut sum, batch| sum.add(&batch).map(|()| sum)).await?;
    Ok(sum.total)
}

/// Takes in batches, each cast to the types of one schema.
struct Summing {
    types: Vec<DataType>,
    rows: RowConverter,
    total: Checksum,
}

impl Summing {
    fn new(schema: &Schema) -> Result<Self> {
        let types: Vec<DataType> = schema.fields().iter().map(|f| f.data_type().clone()).collect();
        let rows = RowConverter::new(types.iter().cloned().map(SortField::new).collect())?;
        Ok(Self { types, rows, total: Checksum::default() })
    }

    fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_columns() != self.types.len() {
            return Err(SpateError::internal(format!("{} columns, not {}", batch.num_columns(), self.types.len())));
        }
        let columns: Result<Vec<ArrayRef>> =
            batch.columns().iter().zip(&self.types).map(|(c, t)| Ok(rounded(cast(c, t)?))).collect();
        for row in &self.rows.convert_columns(&columns?)? {
            let mut hasher = DefaultHasher::new();
            hasher.write(row.data());
            self.total.sum = self.total.sum.wrapping_add(hasher.finish());
        }
        self.total.rows += batch.num_rows() as u64;
        Ok(())
    }
}

/// Floats without their last digits, in which sums of another order differ.
fn rounded(column: ArrayRef) -> ArrayRef {
    const LAST: u64 = 1 << 12;
    match column.data_type() {
        DataType::Float64 => {
            let floats: Float64Array = column.as_primitive::<Float64Type>().unary(|v| {
                let bits = v.to_bits();
                f64::from_bits(if v.is_finite() { bits.wrapping_add(LAST / 2) & !(LAST - 1) } else { bits })
            });
            std::sync::Arc::new(floats)
        }
        _ => column,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use arrow::array::{Int64Array, StringArray};

    use super::*;

    fn sum(k: &[i64], s: &[&str]) -> Checksum {
        let k: ArrayRef = Arc::new(Int64Array::from(k.to_vec()));
        let s: ArrayRef = Arc::new(StringArray::from(s.to_vec()));
        let batch = RecordBatch::try_from_iter([("k", k), ("s", s)]).unwrap();
        let mut sum = Summing::new(&batch.schema()).unwrap();
        sum.add(&batch).unwrap();
        sum.total
    }

    #[test]
    fn order_does_not_matter_and_all_else_does() {
        let of = sum(&[1, 2, 2], &["a", "b", "b"]);
        assert_eq!(of, sum(&[2, 1, 2], &["b", "a", "b"]));
        for other in [sum(&[1, 2], &["a", "b"]), sum(&[1, 1, 2], &["a", "a", "b"]), sum(&[1, 2, 2], &["b", "a", "b"])] {
            assert_ne!(of, other);
        }
    }

    #[test]
    fn last_digits_of_floats_do_not_matter() {
        let of = |v: f64| {
            let batch = RecordBatch::try_from_iter([("v", Arc::new(Float64Array::from(vec![v])) as ArrayRef)]).unwrap();
            let mut sum = Summing::new(&batch.schema()).unwrap();
            sum.add(&batch).unwrap();
            sum.total
        };
        assert_eq!(of(0.1 + 0.2), of(0.3));
        assert_ne!(of(0.3), of(0.300_000_1));
    }
}
