//! Counters of a job that anyone may read while it runs.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::types::WATERMARK_MIN;

/// What one source leaf of one task has done.
#[derive(Debug)]
pub struct LeafMetrics {
    /// Rows delivered.
    pub rows: AtomicU64,
    /// Work done, in the source's units.
    pub done: AtomicU64,
    /// Whole work, 0 if unknown.
    pub total: AtomicU64,
    /// Watermark.
    pub watermark: AtomicI64,
}

impl Default for LeafMetrics {
    fn default() -> Self {
        Self {
            rows: AtomicU64::new(0),
            done: AtomicU64::new(0),
            total: AtomicU64::new(0),
            watermark: AtomicI64::new(WATERMARK_MIN),
        }
    }
}

impl LeafMetrics {
    /// Adds rows.
    pub fn add_rows(&self, n: usize) {
        self.rows.fetch_add(n as u64, Ordering::Relaxed);
    }
}
