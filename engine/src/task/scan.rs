//! The scan leaf: a table's or view's rows as of the epoch before the job began (backfill), then
//! its changes, epoch by epoch.
//!
//! Backfill takes several epochs if it must; changes wait in the store's log meanwhile. What an
//! epoch delivers follows from the position alone, so a replay cuts it the same way.
//!
//! Tasks share append-only input by whole deltas. All other input is shared by the hash of the
//! row: a row must be taken back by the task that delivered it, or the partition of a view
//! that holds it would never see it go.

use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch, UInt32Array};

use super::events::{Events, TaskId};
use super::leaf::{LeafBarrier, LeafPoll, merge};
use super::metrics::LeafMetrics;
use crate::plan::ScanSpec;
use crate::state::view::ViewReader;
use crate::types::vnode::{hash_rows, task_of, vnode_of};
use crate::types::{Delta, Epoch, Result, WATERMARK_MIN};

/// Rows that one scan task puts into one epoch at the most while it catches up.
pub const CATCH_UP_ROWS: usize = 1 << 18;

/// Rows of a store at one epoch, shared by the tasks that read them.
pub type Backfill = Arc<Vec<(RecordBatch, Option<Int64Array>)>>;

/// Where a scan leaf stood at a barrier.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ScanState {
    backfilled: usize,
    next_log: Epoch,
}

impl ScanState {
    /// Whether all was delivered that was there at the end of `epoch`.
    pub(super) fn is_caught_up(&self, epoch: Epoch) -> bool {
        self.next_log > epoch
    }

    /// The epoch up to which the log is not needed by a leaf that stands here after `epoch`.
    pub(super) fn unneeded(&self, epoch: Epoch) -> Epoch {
        epoch.min(self.next_log.saturating_sub(1))
    }

    /// Units of the backfill that were delivered (or are other tasks').
    pub(super) fn backfilled(&self) -> usize {
        self.backfilled
    }
}

/// A scan leaf.
pub struct ScanLeaf {
    spec: ScanSpec,
    /// Identities of the columns to deliver: their places may change.
    columns: Vec<u32>,
    task: TaskId,
    tasks: usize,
    /// No row is ever taken back.
    append_only: bool,
    backfill: Option<Backfill>,
    /// Rows that the leaf puts into one epoch at the most while it catches up.
    epoch_rows: usize,
    /// The log is let go by whoever knows which snapshots are current, not by the leaf.
    retain: bool,
    reader: Arc<ViewReader>,
    events: Arc<dyn Events>,
    metrics: Arc<LeafMetrics>,
    /// Position at the start of the open epoch, and now.
    closed: ScanState,
    at: ScanState,
    /// Deltas of the log entries being delivered, last first.
    pending: Vec<Delta>,
    rows: usize,
}

impl std::fmt::Debug for ScanLeaf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScanLeaf").field("object", &self.spec.name).finish_non_exhaustive()
    }
}

impl ScanLeaf {
    /// A leaf for one of `tasks` tasks; `append_only`: the object's rows are never taken back; `start` is the first epoch of the job, and `backfill` the
    /// rows as of the epoch before.
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        spec: ScanSpec,
        task: TaskId,
        tasks: usize,
        append_only: bool,
        backfill: Backfill,
        reader: Arc<ViewReader>,
        events: Arc<dyn Events>,
        metrics: Arc<LeafMetrics>,
        start: Epoch,
        epoch_rows: usize,
        retain: bool,
    ) -> Result<Self> {
        let state = ScanState { backfilled: 0, next_log: start };
        Ok(Self {
            columns: reader.store().column_ids(&spec.projection)?,
            spec,
            task,
            tasks: tasks.max(1),
            append_only,
            backfill: Some(backfill),
            epoch_rows,
            retain,
            reader,
            events,
            metrics,
            closed: state.clone(),
            at: state,
            pending: Vec::new(),
            rows: 0,
        })
    }

    /// Whether unit `n` is, wholly or in part, this task's.
    fn mine(&self, n: usize) -> bool {
        !self.append_only || n % self.tasks == self.task.index as usize
    }

    fn deliver(&mut self, delta: &Delta) -> Result<Delta> {
        // The whole delta counts, so that all tasks cut epochs alike.
        self.rows += delta.num_rows();
        let rows = delta.rows().project(&self.reader.store().places(&self.columns)?)?;
        let mut delta = delta.with_rows(rows)?;
        if !self.append_only && self.tasks > 1 {
            let hashes = hash_rows(delta.rows().columns(), delta.num_rows())?;
            let here = |h: &u64| task_of(vnode_of(*h), self.tasks) == self.task.index as usize;
            let mine: Vec<u32> = (0u32..).zip(&hashes).filter(|(_, h)| here(h)).map(|(i, _)| i).collect();
            if mine.len() < delta.num_rows() {
                delta = delta.take(&UInt32Array::from(mine))?;
            }
        }
        self.metrics.add_rows(delta.num_rows());
        Ok(delta)
    }

    pub(super) fn poll(&mut self, epoch: Epoch) -> Result<LeafPoll> {
        if !self.reader.is_complete(epoch) {
            return Ok(LeafPoll::Wait);
        }
        if let Some(d) = self.pending.pop() {
            return Ok(LeafPoll::Data(self.deliver(&d)?));
        }
        if let Some(backfill) = &self.backfill {
            while self.at.backfilled < backfill.len() && self.rows < self.epoch_rows {
                let unit = self.at.backfilled;
                self.at.backfilled += 1;
                if self.mine(unit) {
                    let (rows, weights) = backfill[unit].clone();
                    let delta = Delta::new(rows, weights)?;
                    return Ok(LeafPoll::Data(self.deliver(&delta)?));
                }
            }
            if self.at.backfilled < backfill.len() {
                return self.close(epoch);
            }
            self.backfill = None;
        }
        while self.at.next_log <= epoch && self.rows < self.epoch_rows {
            let log = self.reader.epoch(self.at.next_log)?;
            self.at.next_log += 1;
            for (partition, deltas) in log.into_iter().enumerate().rev() {
                for (i, d) in deltas.into_iter().enumerate().rev() {
                    if self.mine(partition + i) {
                        self.pending.push(d);
                    }
                }
            }
            if let Some(d) = self.pending.pop() {
                return Ok(LeafPoll::Data(self.deliver(&d)?));
            }
        }
        self.close(epoch)
    }

    fn close(&mut self, epoch: Epoch) -> Result<LeafPoll> {
        let caught_up = self.at.next_log > epoch;
        let mut barrier: LeafBarrier = merge(&self.reader.barriers(epoch)?, epoch)?;
        if !caught_up {
            barrier.watermark = WATERMARK_MIN;
            self.events.want_tick(self.task, true);
        }
        barrier.caught_up = caught_up;
        self.closed = self.at.clone();
        self.rows = 0;
        // Other tasks of this scan may be behind: the reader trims to the slowest.
        if !self.retain {
            self.reader.release(self.task.index as usize, self.closed.unneeded(epoch));
        }
        Ok(LeafPoll::Closed(barrier))
    }

    pub(super) fn state(&self) -> ScanState {
        self.closed.clone()
    }

    pub(super) fn restore(&mut self, state: &ScanState) {
        self.closed = state.clone();
        self.at = state.clone();
        self.pending.clear();
        self.rows = 0;
    }
}
