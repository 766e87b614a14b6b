//! Segments: what a table looked like, or what changed in it, at one barrier.

use arrow::array::RecordBatch;

/// Part of a table's snapshot chain. Rows are told apart by `ids`, which rise with insertion,
/// so a restored table has its rows in the same order as the lost one.
#[derive(Debug, Clone, PartialEq)]
pub struct TableSegment {
    /// Whether this holds all rows (a base), or only those that changed since the last segment.
    pub full: bool,
    /// Row ids.
    pub ids: Vec<u64>,
    /// Vnode of each row.
    pub vnodes: Vec<u8>,
    /// Weight of each row from now on; 0 means that the row is gone.
    pub weights: Vec<i64>,
    /// The rows, in a layout of the table's own (gone rows included).
    pub rows: RecordBatch,
}

impl TableSegment {
    /// Bytes held.
    pub fn memory_size(&self) -> usize {
        self.rows.get_array_memory_size() + self.ids.len() * 17
    }
}
