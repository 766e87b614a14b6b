//! Connectors: where rows come from and where they go. One file per system, one small
//! trait each way.

mod arrow_file;
mod change;
mod columns;
mod csv;
mod datagen;
mod file;
#[cfg(test)]
mod file_tests;
mod format;
pub mod generate;
pub mod generated;
mod infer;
mod json;
mod lines;
#[cfg(test)]
mod made_tests;
mod nested;
mod nexmark;
mod nexmark_bid;
mod options;
mod parquet;
mod prune;
#[cfg(test)]
mod prune_tests;
mod registry;
mod scalar;
mod sink;
mod sink_changes;
mod sink_csv;
mod sink_file;
#[cfg(test)]
mod sink_tests;
mod text;
mod types;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion_physical_expr::PhysicalExpr;

use crate::types::{Delta, Epoch, Result};

pub use change::CHANGE;
pub use format::{Encoding, Envelope, FormatSpec};
pub use nexmark::NexmarkTable;
pub use options::{OnError, idle_timeout};
pub use registry::{open_sink, open_source};

/// The options of a `WITH (…)` clause, keys in lower case.
pub type Options = BTreeMap<String, String>;

/// A part of a source that is read in order by one task.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Split {
    /// Unique and stable within the source (a file and byte range, a partition).
    pub id: Arc<str>,
    /// What it is a part of (a file), whose splits are named in the order of their rows. A task reads
    /// those it has of a lane in this order, and one to come does not hold the watermark back.
    pub lane: Arc<str>,
    /// First offset.
    pub start: u64,
    /// First offset behind the split, where it is known.
    pub end: Option<u64>,
    /// What [`SourceConnector::open`] needs to find it again: path, etag or inode, …
    pub detail: String,
}

impl Split {
    /// Part `i` of `n` of what is made up row by row: the parts have nothing to do with each other's order.
    fn made(name: &str, i: usize, n: usize, end: Option<u64>) -> Self {
        let id: Arc<str> = Arc::from(format!("{name}-{i}/{n}"));
        Self { lane: id.clone(), id, start: 0, end, detail: format!("{i}/{n}") }
    }
}

/// A record that could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Split it stands in.
    pub split: Arc<str>,
    /// Where it starts.
    pub offset: u64,
    /// Its text, cut to 4 KiB, invalid UTF-8 replaced.
    pub text: String,
    /// What is wrong with it.
    pub error: String,
}

/// What a reader has to give.
#[derive(Debug)]
pub enum Polled {
    /// Rows in the projected schema, and the records that could not be decoded.
    Batch {
        /// The rows (may be empty when all records were bad).
        rows: RecordBatch,
        /// What could not be decoded.
        dead: Vec<DeadLetter>,
        /// Bytes or rows read so far against the whole, for progress bars: `(done, total)`.
        progress: Option<(u64, u64)>,
    },
    /// Nothing now; ask again after this time.
    Pending(Duration),
    /// The split has ended for good.
    End,
}

/// A source of rows.
pub trait SourceConnector: Send + Sync {
    /// All columns.
    fn schema(&self) -> SchemaRef;

    /// Whether the source ends.
    fn bounded(&self) -> bool;

    /// Whether records change rows by key: then rows have one more column, [`CHANGE`], behind
    /// those of the table, and are read with all columns.
    fn changes(&self) -> bool {
        false
    }

    /// The splits there are now. A `watch` source may name more at the next call, behind those
    /// named before; splits never vanish or change their id. With `in_order`, a file is not cut
    /// into several. `parallelism` is a wish.
    fn splits(&self, in_order: bool, parallelism: usize) -> Result<Vec<Split>>;

    /// The splits of a `watch` source behind the first `known`. All tasks of all queries ask, each
    /// once in [`Self::discover_every`]: one look at the system may answer several of them.
    fn more_splits(&self, known: usize, in_order: bool, parallelism: usize) -> Result<Vec<Split>> {
        Ok(self.splits(in_order, parallelism)?.into_iter().skip(known).collect())
    }

    /// How often to ask for new splits; `None` means never.
    fn discover_every(&self) -> Option<Duration> {
        None
    }

    /// Opens a split at an offset that [`SplitReader::offset`] gave (or its start), to deliver
    /// these columns.
    fn open(&self, split: &Split, offset: u64, projection: &[usize]) -> Result<Box<dyn SplitReader>>;

    /// As [`Self::open`], for somebody who has no use for rows for which `wanted`, over the delivered columns, is
    /// not true: they may be left out.
    fn open_for(
        &self,
        split: &Split,
        offset: u64,
        projection: &[usize],
        _wanted: &Arc<dyn PhysicalExpr>,
    ) -> Result<Box<dyn SplitReader>> {
        self.open(split, offset, projection)
    }
}

/// Reads one split.
pub trait SplitReader: Send {
    /// The next rows: at most about `max_rows`, and none at or behind offset `until`. The rows
    /// between two offsets are the same on every reading.
    ///
    /// `until` is given when rows are read again that were delivered before: a source with a rate
    /// does not wait then. A reader that stands at `until` answers `Pending` without a wait.
    fn poll(&mut self, max_rows: usize, until: Option<u64>) -> Result<Polled>;

    /// Offset behind what was delivered.
    fn offset(&self) -> u64;
}

/// A sink for deltas: one writer per sink.
pub trait SinkWriter: Send {
    /// Writes all of an epoch, atomically where the system can; called once per epoch, in order.
    fn write_epoch(&mut self, epoch: Epoch, deltas: &[Delta]) -> Result<()>;

    /// The input has ended or the sink is dropped: flush.
    fn finish(&mut self) -> Result<()>;

    /// The newest epoch that is in the target, for sinks that know it after a restart.
    fn last_epoch(&self) -> Result<Option<Epoch>> {
        Ok(None)
    }
}
