//! `FrozenBag`: a bag table as it was at one moment, shared with the table piece by piece
//! and untouched by what happens to the table later.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions};
use arrow::compute::filter;
use arrow::datatypes::SchemaRef;

use super::chunk::Piece;
use crate::types::Result;

/// An immutable picture of a bag table. Cheap to clone and to send to another thread.
#[derive(Debug, Clone)]
pub struct FrozenBag {
    schema: SchemaRef,
    parts: Arc<[FrozenPart]>,
    rows: usize,
    weight: i64,
}

#[derive(Debug)]
pub(crate) struct FrozenPart {
    pub(crate) piece: Arc<Piece>,
    /// Weights of the chunk that the piece belongs to.
    pub(crate) weights: Arc<Vec<i64>>,
}

impl FrozenBag {
    pub(crate) fn new(schema: SchemaRef, parts: Vec<FrozenPart>, rows: usize, weight: i64) -> Self {
        Self { schema, parts: parts.into(), rows, weight }
    }

    /// Columns of the rows.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Number of entries: equal rows that were merged count once.
    pub fn num_rows(&self) -> usize {
        self.rows
    }

    /// Sum of the weights.
    pub fn total_weight(&self) -> i64 {
        self.weight
    }

    /// The rows with their weights (none is 0), in insertion order; batches of at most
    /// [`CHUNK_ROWS`](super::chunk::CHUNK_ROWS) rows, none empty.
    pub fn batches(&self) -> impl Iterator<Item = Result<(RecordBatch, Int64Array)>> + '_ {
        self.parts.iter().filter_map(|p| p.batch(&self.schema).transpose())
    }
}

impl FrozenPart {
    fn batch(&self, schema: &SchemaRef) -> Result<Option<(RecordBatch, Int64Array)>> {
        let Piece { start, rows, columns, .. } = self.piece.as_ref();
        let weights = &self.weights[*start..start + rows];
        let live = weights.iter().filter(|w| **w != 0).count();
        if live == 0 {
            return Ok(None);
        }
        if live == *rows {
            let batch = record_batch(schema, columns.clone(), live)?;
            return Ok(Some((batch, Int64Array::from(weights.to_vec()))));
        }
        let mask: BooleanArray = weights.iter().map(|w| Some(*w != 0)).collect();
        let columns = columns.iter().map(|c| Ok(filter(c.as_ref(), &mask)?)).collect::<Result<_>>()?;
        let weights = weights.iter().copied().filter(|w| *w != 0).collect();
        Ok(Some((record_batch(schema, columns, live)?, Int64Array::new(weights, None))))
    }
}

/// A batch that may have no column.
pub(crate) fn record_batch(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
}
