//! Names one task (a copy; the original needs the two serde derives).

use std::fmt;

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
