//! Rows of a statement, as they come.

use std::pin::Pin;
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow_flight::decode::FlightRecordBatchStream;
use futures::{Stream, StreamExt};

use super::{Error, Result};

/// Rows of a statement: a stream of batches. Dropped, the statement ends on the server too.
pub struct Rows {
    pub(super) schema: SchemaRef,
    pub(super) endless: bool,
    pub(super) stream: FlightRecordBatchStream,
}

impl Rows {
    /// Columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Whether the rows go on until the stream is dropped (`SUBSCRIBE`).
    pub fn endless(&self) -> bool {
        self.endless
    }

    /// All rows.
    ///
    /// # Errors
    /// When the statement fails on its way.
    pub async fn collect(mut self) -> Result<Vec<RecordBatch>> {
        let mut batches = Vec::new();
        while let Some(batch) = self.next().await {
            batches.push(batch?);
        }
        Ok(batches)
    }
}

impl Stream for Rows {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.stream.poll_next_unpin(cx).map(|next| next.map(|b| b.map_err(Error::from)))
    }
}
