//! `Delta`: a batch of rows with weights, the only thing that moves between operators.
//!
//! Weight +n adds a row n times, −n takes it away n times; absent weights mean +1 for
//! every row (append-only, the fast path). An update is a −1 and a +1 in one delta.
//! A delta is a Z-set: order carries no meaning for results, but it is deterministic.

use arrow::array::{Array, ArrayRef, BooleanArray, Int64Array, RecordBatch, UInt32Array};
use arrow::compute;
use arrow::datatypes::SchemaRef;

use super::error::{Result, SpateError};

/// Rows with weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Delta {
    rows: RecordBatch,
    weights: Option<Int64Array>,
}

impl Delta {
    /// All rows with weight +1.
    pub fn insert(rows: RecordBatch) -> Self {
        Self { rows, weights: None }
    }

    /// Rows with one non-null weight each.
    pub fn new(rows: RecordBatch, weights: Option<Int64Array>) -> Result<Self> {
        if let Some(w) = &weights
            && (w.len() != rows.num_rows() || w.null_count() > 0)
        {
            return Err(SpateError::internal("a delta needs one non-null weight per row"));
        }
        Ok(Self { rows, weights })
    }

    /// The rows.
    pub fn rows(&self) -> &RecordBatch {
        &self.rows
    }

    /// The weights; `None` means +1 everywhere.
    pub fn weights(&self) -> Option<&Int64Array> {
        self.weights.as_ref()
    }

    /// Rows and weights, taken apart.
    pub fn into_parts(self) -> (RecordBatch, Option<Int64Array>) {
        (self.rows, self.weights)
    }

    /// Weight of row `i`.
    #[inline]
    pub fn weight(&self, i: usize) -> i64 {
        match &self.weights {
            Some(w) => w.value(i),
            None => 1,
        }
    }

    /// Number of rows (entries, not the sum of weights).
    pub fn num_rows(&self) -> usize {
        self.rows.num_rows()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.num_rows() == 0
    }

    /// The schema of the rows.
    pub fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }

    /// Column `i`.
    pub fn column(&self, i: usize) -> &ArrayRef {
        self.rows.column(i)
    }

    /// The weights as an array, +1s included.
    pub fn weights_or_ones(&self) -> Int64Array {
        match &self.weights {
            Some(w) => w.clone(),
            None => Int64Array::from(vec![1i64; self.rows.num_rows()]),
        }
    }

    /// The same weights over other rows (as many of them).
    pub fn with_rows(&self, rows: RecordBatch) -> Result<Self> {
        Self::new(rows, self.weights.clone())
    }

    /// Rows where `mask` is true (NULL counts as false).
    pub fn filter(&self, mask: &BooleanArray) -> Result<Self> {
        let rows = compute::filter_record_batch(&self.rows, mask)?;
        let weights = match &self.weights {
            Some(w) => Some(
                arrow::array::AsArray::as_primitive::<arrow::datatypes::Int64Type>(&compute::filter(w, mask)?).clone(),
            ),
            None => None,
        };
        Self::new(rows, weights)
    }

    /// Rows at `indices`, in that order.
    pub fn take(&self, indices: &UInt32Array) -> Result<Self> {
        let rows = compute::take_record_batch(&self.rows, indices)?;
        let weights = match &self.weights {
            Some(w) => Some(
                arrow::array::AsArray::as_primitive::<arrow::datatypes::Int64Type>(&compute::take(w, indices, None)?)
                    .clone(),
            ),
            None => None,
        };
        Self::new(rows, weights)
    }

    /// Zero-copy part.
    pub fn slice(&self, offset: usize, len: usize) -> Self {
        Self { rows: self.rows.slice(offset, len), weights: self.weights.as_ref().map(|w| w.slice(offset, len)) }
    }

    /// The same rows with every weight negated.
    pub fn negate(&self) -> Self {
        let w: Int64Array = match &self.weights {
            Some(w) => w.iter().map(|v| v.map(i64::wrapping_neg)).collect(),
            None => Int64Array::from(vec![-1i64; self.rows.num_rows()]),
        };
        Self { rows: self.rows.clone(), weights: Some(w) }
    }

    /// One delta with all rows, in order. `schema` serves when there are none.
    pub fn concat(schema: &SchemaRef, deltas: &[Delta]) -> Result<Self> {
        let rows = compute::concat_batches(schema, deltas.iter().map(|d| &d.rows))?;
        if deltas.iter().all(|d| d.weights.is_none()) {
            return Ok(Self::insert(rows));
        }
        let mut w = Vec::with_capacity(rows.num_rows());
        for d in deltas {
            match &d.weights {
                Some(x) => w.extend_from_slice(x.values()),
                None => w.extend(std::iter::repeat_n(1i64, d.rows.num_rows())),
            }
        }
        Self::new(rows, Some(Int64Array::from(w)))
    }

    /// Bytes that the rows and weights hold in memory; buffers shared between columns
    /// are counted once per column.
    pub fn memory_size(&self) -> usize {
        self.rows.get_array_memory_size() + self.weights.as_ref().map_or(0, |w| w.get_array_memory_size())
    }

    /// Bytes of the rows and weights themselves, whatever else lies in the buffers that they are in.
    pub fn shown_size(&self) -> usize {
        let of = |c: &dyn Array| c.to_data().get_slice_memory_size().unwrap_or_else(|_| c.get_array_memory_size());
        let rows: usize = self.rows.columns().iter().map(|c| of(c)).sum();
        rows + self.weights.as_ref().map_or(0, |w| of(w))
    }
}
