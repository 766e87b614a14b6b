//! A view's store over time: snapshots of its parts, and restore.

use std::sync::atomic::Ordering;

use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;

use super::{Rows, ViewStore};
use crate::state::TableSegment;
use crate::types::vnode::vnode_of;
use crate::types::{Epoch, Result, SpateError, Watermark};

impl ViewStore {
    /// What changed in a part since its last snapshot (everything, if `full`). To be called between
    /// epochs, by whoever writes the part.
    pub fn snapshot(&self, p: usize, full: bool) -> Result<TableSegment> {
        let schema = self.schema();
        self.partition(p)?.rows.snapshot(&schema, full)
    }

    /// Fills an empty part from a chain of segments, oldest first, as it was at the end of `epoch`.
    pub fn restore(&self, p: usize, chain: &[TableSegment], epoch: Epoch, watermark: Watermark) -> Result<()> {
        let schema = self.schema();
        let mut part = self.partition(p)?;
        let part = &mut *part;
        if !part.log.is_empty() || !part.open.is_empty() {
            return Err(SpateError::internal("a view must be empty to be restored"));
        }
        match &mut part.rows {
            Rows::Bag(bag) => bag.restore(&chain.iter().collect::<Vec<_>>())?,
            Rows::Log(log) => {
                let start = chain.iter().rposition(|s| s.full).unwrap_or(0);
                for segment in &chain[start..] {
                    if segment.rows.schema().fields().len() != schema.fields().len() {
                        return Err(SpateError::internal("a table segment does not fit its view"));
                    }
                    log.append(&schema, &segment.rows)?;
                }
                log.snapshotted = log.rows;
            }
        }
        for i in 0..part.indexes.len() {
            let (id, columns) = (part.indexes[i].id, part.indexes[i].columns.clone());
            part.indexes[i] = part.rows.index(id, &schema, &columns)?;
        }
        (part.complete, part.watermark) = (epoch, watermark);
        self.visible.fetch_max(epoch, Ordering::Relaxed);
        Ok(())
    }
}

impl Rows {
    pub(super) fn snapshot(&mut self, schema: &SchemaRef, full: bool) -> Result<TableSegment> {
        match self {
            Rows::Bag(bag) => bag.snapshot(full),
            Rows::Log(log) => {
                let from = if full { 0 } else { log.snapshotted };
                let rows = concat_batches(schema, &log.since(from))?;
                log.snapshotted = log.rows;
                let n = rows.num_rows();
                // Nobody looks these rows up.
                let vnodes = vec![vnode_of(0); n];
                let ids = (from as u64..(from + n) as u64).collect();
                Ok(TableSegment { full, ids, vnodes, weights: vec![1; n], rows })
            }
        }
    }
}
