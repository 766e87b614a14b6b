//! What tasks tell the coordinator and the session about.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;

use crate::connector::DeadLetter;
use crate::types::{Epoch, SpateError, SplitRange, Tick, Watermark};

/// Names one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct TaskId {
    /// Job that it belongs to.
    pub job: u64,
    /// Fragment within the job.
    pub fragment: u32,
    /// Instance within the fragment.
    pub index: u32,
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {} fragment {} task {}", self.job, self.fragment, self.index)
    }
}

/// Receives what tasks report. Called from task threads: must be quick and must not block.
pub trait Events: Send + Sync {
    /// There is input in the open epoch. With `now`, close it at once (a cap was reached, or a
    /// backfill has more).
    fn want_tick(&self, task: TaskId, now: bool);

    /// A source leaf of a task has closed an epoch over these ranges. Called before anyone
    /// downstream can see the barrier, and before anyone can see the watermark.
    fn closed(&self, task: TaskId, leaf: usize, tick: Tick, ranges: &[SplitRange]);

    /// A task has finished an epoch: everything it had to emit is handed over.
    fn completed(&self, task: TaskId, epoch: Epoch, watermark: Watermark);

    /// The ranges that this leaf closed `epoch` over before its task was lost; `None` for an
    /// epoch that it has not closed yet.
    fn replay(&self, _task: TaskId, _leaf: usize, _epoch: Epoch) -> Option<Arc<[SplitRange]>> {
        None
    }

    /// Records that could not be decoded.
    fn dead_letters(&self, source: &Arc<str>, letters: Vec<DeadLetter>);

    /// Rows dropped because they came after the watermark had passed them.
    fn late(&self, source: &Arc<str>, epoch: Epoch, rows: RecordBatch);

    /// Rows that a source accepted, in the projected schema (only if asked for).
    fn accepted(&self, _task: TaskId, _leaf: usize, _epoch: Epoch, _rows: &RecordBatch) {}

    /// After `epoch`, what a task puts out changes at this time though no input comes; `None` if
    /// it no longer does. Told before `completed`, and only by tasks that ever wait for a time.
    fn due(&self, _task: TaskId, _epoch: Epoch, _at_us: Option<i64>) {}

    /// The inputs of a task have all caught up (backfill done), or ended for good (`ended`).
    fn caught_up(&self, task: TaskId, epoch: Epoch, ended: bool);

    /// A task cannot go on.
    fn failed(&self, task: TaskId, epoch: Epoch, error: SpateError);
}
